//! Rows of the report.

use model::{Facts, Move, Outcome, Rejection, TierOption, Verdict, VolumeReport};
use units::TierId;

use crate::Wish;

/// Returns the report row of one volume from its wish, its rejection and its accepted move.
pub(crate) fn report_row(
    facts: &Facts,
    wish: Wish,
    by: Option<Rejection>,
    taken: Option<&Move>,
) -> VolumeReport {
    let name = |t: TierId| facts.topology.tier(t).name.clone();
    let volume = &facts.volumes[wish.volume.index()];
    let here = facts.topology.tier_of(wish.here);
    let mut options = wish.options;
    let mut set = |tier: TierId, verdict: Verdict| {
        let wanted = name(tier);
        match options.iter_mut().find(|o| o.tier == wanted) {
            Some(option) => option.verdict = verdict,
            None => options.push(TierOption {
                tier: wanted,
                score: None,
                parts: None,
                predicted: None,
                move_s: None,
                verdict,
            }),
        }
    };
    let outcome = match (taken, by) {
        (Some(m), _) => {
            // If several tiers are acceptable, it may differ from the first wanted one.
            let to = facts.topology.tier_of(m.to);
            set(to, Verdict::Chosen);
            Outcome::Move {
                to: name(to),
                reason: m.terms.reason.to_string(),
                why: Some(m.terms.reason.clone()),
            }
        }
        (None, Some(by)) => {
            set(wish.tier, Verdict::Rejected { by: by.clone() });
            set(here, Verdict::Chosen);
            Outcome::Held {
                wanted: name(wish.tier),
                by,
            }
        }
        (None, None) => {
            set(here, Verdict::Chosen);
            Outcome::Stay
        }
    };
    VolumeReport {
        volume: volume.name.clone(),
        tier: name(here),
        outcome,
        options,
        evidence: wish.evidence,
        notes: wish.notes,
        extents: vec![],
    }
}
