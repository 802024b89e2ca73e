//! Problems of moves for the operator.

use manager::wire::ArrayProblem;
use vmhost::moving::{Intent, Phase};

use super::Moves;
use super::one::Move;
use crate::storage;

impl Moves {
    /// Returns the problems of all moves.
    pub(super) fn problems(&self) -> Vec<ArrayProblem> {
        let problems = self.moves.iter().filter_map(|(name, m)| {
            let (kind, what) = self.problem(name, m)?;
            Some(ArrayProblem {
                kind: kind.into(),
                about: m.intent.volume.clone(),
                what,
            })
        });
        problems.collect()
    }

    fn problem(&self, name: &str, m: &Move) -> Option<(&'static str, String)> {
        let intent = &m.intent;
        let (from, to) = (&intent.from.at, &intent.to.at);
        match &intent.phase {
            Phase::Doubtful => {
                let what = format!(
                    "the domain ended during the pivot from {from} to {to}, and it is unknown which image has all acknowledged writes. Do not start the domain until you have inspected both and set the right one, under libvirt with `virsh edit`{}",
                    renamed(intent)
                );
                return Some(("stale-image", what));
            }
            Phase::Kept(kept) => {
                let doubt = kept.doubt.as_ref()?;
                let kind = match doubt.stale {
                    true => "stale-image",
                    false => "file-left-behind",
                };
                let (path, what) = (&kept.path, &doubt.what);
                return Some((kind, format!("{path}: {what}; remove it when you are sure")));
            }
            _ => {}
        }
        let why = m.stuck.as_ref()?;
        Some(match &intent.phase {
            _ if intent.held => (
                "move-stuck",
                format!("its guest is paused and cannot continue: {why}"),
            ),
            Phase::Blocking | Phase::Pivoting | Phase::Pivoted => (
                "stale-image",
                format!(
                    "the result of its pivot from {from} to {to} is unknown ({why}): do not start the domain before it is resolved; see {}",
                    self.intents.file(name).display()
                ),
            ),
            _ => ("move-stuck", why.clone()),
        })
    }
}

/// Returns the place of the old image as text, if it already has the name under which it is kept.
fn renamed(intent: &Intent) -> String {
    let kept = intent.kept_as.as_ref();
    let kept = kept.filter(|path| storage::may_be_there(path));
    kept.map_or(String::new(), |path| format!("; the old one is at {path}"))
}
