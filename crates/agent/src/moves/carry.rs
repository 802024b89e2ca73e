//! Steps of moves, carried out one after the other, each on what was just seen.

use std::path::Path;
use std::time::{Duration, Instant};

use manager::agent::MoveEnd;
use tracing::{info, warn};
use vmhost::moving::{
    Definition, Doubt, ImageId, Intent, Kept, Live, Naming, Phase, Seen, Step, next,
};
use vmhost::{At, Image};

use super::one::{Move, SURE_AFTER, now_s};
use super::{FREE_S, Intents, MoveOperations, Moves, Refusal, Rest, Sight, files};
use crate::yielding::Yielding;
use crate::{kernel, storage};

/// Steps that one move may take at a look, at most: all of a pivot, and no more.
const STEPS_MAX: usize = 12;
/// A guest is paused for one step of a move for so long at most, as far as that depends on us.
const HELD_MAX: Duration = Duration::from_secs(2);
/// Bytes that a copy leaves free on its target, at least.
const FREE_MIN: u64 = 32 << 20;
/// A kept file that somebody uses is looked after again in so many seconds.
const AGAIN_S: u64 = 3600;

impl Moves {
    /// Takes all moves as far as they go now.
    pub(crate) fn beat(
        &mut self,
        operations: &mut dyn MoveOperations,
        yielding: &Yielding,
        now_ns: u64,
    ) {
        let names: Vec<String> = self.moves.keys().cloned().collect();
        for name in names {
            let result = self.advance(&name, operations);
            let Some(m) = self.moves.get_mut(&name) else {
                continue;
            };
            if let Err(why) = &result
                && m.stuck.as_ref() != Some(why)
            {
                let (volume, phase) = (&m.intent.volume, m.intent.phase.to_string());
                warn!(volume, phase, why, "a move is stuck");
            }
            m.stuck = result.err();
            if m.intent.phase != Phase::Copying {
                continue;
            }
            m.keep_pace(operations, yielding, now_ns);
            // A copy that fails by itself is like a cancel in mid-write, which QEMU does not bear.
            let least = FREE_MIN.max(m.rate.saturating_mul(FREE_S));
            let free = m.intent.target_path().and_then(|p| storage::of(p).free(p));
            if free.is_some_and(|free| free < least) {
                let why = format!("less than {least} bytes are free on its target");
                let noted = self.note(&name, None, Phase::GivingUp { why });
                if let (Err(why), Some(m)) = (noted, self.moves.get_mut(&name)) {
                    m.stuck = Some(why);
                }
            }
        }
    }

    fn advance(&mut self, name: &str, operations: &mut dyn MoveOperations) -> Result<(), String> {
        let mut stuck = Ok(());
        for _ in 0..STEPS_MAX {
            let Some(m) = self.moves.get_mut(name) else {
                return Ok(());
            };
            let sight = match m.intent.moves() {
                true => operations.look(&m.intent),
                // Nothing but a file is left.
                false => Ok(Sight::without_job(Live::Unknown, Definition::Unknown)),
            };
            let sight = match sight {
                Ok(sight) => sight,
                // What was tried before it says more.
                Err(why) => return stuck.and(Err(why)),
            };
            if let Some((copied, left)) = sight.progress {
                (m.copied, m.left) = (m.copied.max(copied), left);
            }
            let seen = match m.seen(sight, self.boot.as_deref(), self.keep) {
                Ok(seen) => seen,
                Err(why) => return stuck.and(Err(why)),
            };
            let step = next(&m.intent, &seen);
            if stuck.is_err() && !matches!(step, Step::Note(_)) {
                return stuck; // tried again at the next look
            }
            if step == Step::Wait {
                let unknown = m.intent.moves()
                    && (seen.live == Live::Unknown || seen.definition == Definition::Unknown);
                return match unknown {
                    true => stuck.and(Err(
                        "the hypervisor does not report the state of its domain".into(),
                    )),
                    false => stuck,
                };
            }
            let (volume, phase) = (&m.intent.volume, m.intent.phase.to_string());
            info!(volume, phase, step = ?step, "a move continues");
            // What could not be done may have been done all the same: what is seen next says.
            stuck = self.take(name, operations, &seen, step);
        }
        stuck
    }

    fn take(
        &mut self,
        name: &str,
        operations: &mut dyn MoveOperations,
        seen: &Seen,
        step: Step,
    ) -> Result<(), String> {
        let shared = self.is_held_by_others(name);
        let m = self.moves.get_mut(name).expect("it was just looked at");
        let intent = &mut m.intent;
        match step {
            Step::Wait => Ok(()),
            Step::Note(phase) => self.note(name, life_of(&seen.live), phase),
            Step::Release => let_go(
                &self.intents,
                name,
                intent,
                operations,
                Held {
                    shared,
                    just_now: false,
                },
            ),
            Step::Abort => {
                held(&self.intents, name, intent, shared, operations, abort).and_then(|done| done)
            }
            Step::Pivot => self.pivot(name, operations),
            Step::Define(naming) => {
                let image = match naming {
                    Naming::Unsettled => &Image {
                        at: At::File(intent.unsettled.clone()),
                        format: intent.from.format.clone(),
                    },
                    Naming::From => &intent.from,
                    Naming::To => &intent.to,
                };
                operations.define(intent, &seen.definition, image)
            }
            Step::RemoveTarget => {
                let at = &intent.to.at;
                // A domain that runs may have it open for nothing: where libvirt was killed before it began the copy.
                let user = match seen.live {
                    Live::On { .. } => operations.user_of(at)?,
                    Live::Unknown | Live::Off => user_of(at, operations)?,
                };
                match (user, intent.target_path(), &intent.made) {
                    (Some(user), ..) => Err(format!("{at} is used by {user}")),
                    (None, Some(path), Some(made)) => storage::of(path).remove(made, path),
                    (None, ..) => Ok(()),
                }
            }
            Step::RenameSource => match (intent.source_path(), &intent.kept_as) {
                (Some(from), Some(to)) => storage::of(to).rename(intent.left.as_ref(), from, to),
                _ => Ok(()),
            },
            Step::RemoveKept => match &intent.phase {
                Phase::Kept(kept) => {
                    let kept = kept.clone();
                    self.remove_kept(name, operations, kept)
                }
                _ => Ok(()),
            },
            Step::Forget(why) => {
                self.intents.forget(name)?;
                let m = self.moves.remove(name).expect("it was just looked at");
                if m.intent.moves() {
                    self.end(&m, why);
                }
                Ok(())
            }
        }
    }

    /// Goes over to the new image, while the guest is held: the intent says so already.
    fn pivot(&mut self, name: &str, operations: &mut dyn MoveOperations) -> Result<(), String> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        // What is on its way to the new image's device is not waited for while the guest is.
        if let Err(why) = files::flush(&m.intent.to) {
            m.refused |= m.unanswered.is_none(); // no pivot was ordered, and none will be
            return Err(why);
        }
        match operations.pause(&m.intent)? {
            Rest::Ours => {}
            Rest::Off => return Ok(()),
            Rest::Others => return Err("another program has paused its guest".into()),
        }
        let answer = match m.unanswered {
            None => operations.pivot(&m.intent),
            // It may come to pass yet.
            Some(at) if at.elapsed() < SURE_AFTER => Ok(Live::Unknown),
            Some(_) => Err(Refusal::Said(
                "the hypervisor did not answer the pivot command".into(),
            )),
        };
        let intent = &m.intent;
        // In the same life: one that was started from it is another matter.
        let went_over = |live: &Live| matches!(live, Live::On { image: Some(i), life, .. } if *i == intent.to && *life == intent.life);
        let there = |operations: &mut dyn MoveOperations| {
            operations.look(intent).is_ok_and(|s| went_over(&s.live))
        };
        let mut unanswered = m.unanswered;
        let at_once = answer.as_ref().is_ok_and(went_over);
        if let Err(refusal) = answer {
            unanswered = unanswered.or(Some(Instant::now()));
            if matches!(refusal, Refusal::Said(_)) && !there(operations) {
                (m.refused, m.unanswered) = (true, unanswered);
                return Err(refusal.why());
            }
        }
        if !at_once {
            if until(|| there(operations)) {
                return Ok(()); // what is next is decided on what is seen
            }
            m.unanswered = unanswered.or(Some(Instant::now()));
            return Err("the domain does not switch to the new image".into());
        }
        self.note(name, None, Phase::Pivoted)?;
        let shared = self.is_held_by_others(name);
        let m = self.moves.get_mut(name).expect("it was just noted");
        let how = Held {
            shared,
            just_now: true,
        };
        let_go(&self.intents, name, &mut m.intent, operations, how)
    }

    /// Whether another move of the same domain has its guest paused.
    fn is_held_by_others(&self, name: &str) -> bool {
        let uuid = self.moves.get(name).map(|m| &m.intent.uuid);
        let mut others = self.moves.iter().filter(|(other, _)| *other != name);
        others.any(|(_, m)| m.intent.held && Some(&m.intent.uuid) == uuid)
    }

    /// Removes a file whose time is over, unless it is another one by now, or somebody uses it.
    fn remove_kept(
        &mut self,
        name: &str,
        operations: &mut dyn MoveOperations,
        kept: Kept,
    ) -> Result<(), String> {
        let path = kept.path.clone();
        let at = match kept.file {
            Some(ImageId::Volume(_)) => At::Block { path, bytes: None },
            _ => At::File(path),
        };
        let kind = storage::of(&kept.path);
        let why = match (user_of(&at, operations)?, kind.describe(&kept.path)?) {
            (Some(user), _) => format!("{user} uses it"),
            (None, None) => return Ok(()),
            (None, Some(there)) if Some(&there.id) != kept.file.as_ref() => {
                "another image has replaced it".into()
            }
            (None, Some(there)) if !there.dependents.is_empty() => {
                format!("it has {}", there.dependents.join(", "))
            }
            (None, Some(there)) => return kind.remove(&there.id, &kept.path),
        };
        let kept = Kept {
            until_s: Some(now_s().saturating_add(AGAIN_S)),
            doubt: Some(Doubt {
                what: format!("{why}, so it was not removed when its retention time ended"),
                stale: false,
            }),
            ..kept
        };
        self.note(name, None, Phase::Kept(kept))
    }

    /// Writes down how far a move is; `life` is the start of the domain that was just seen.
    fn note(&mut self, name: &str, life: Option<u32>, phase: Phase) -> Result<(), String> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        let mut intent = m.intent.clone();
        match &phase {
            Phase::Pivoted => {
                files::flush(&intent.to)?;
                if let Some(from) = intent.from.at.file() {
                    // It may have the name already that it is kept under.
                    let names = [Some(from), intent.kept_as.as_deref()]
                        .into_iter()
                        .flatten();
                    let mut found = names.filter_map(|n| storage::of(n).describe(n).ok()?);
                    intent.left = found.next().map(|there| there.id);
                }
            }
            Phase::Pivoting => {
                (intent.held, intent.life) = (true, life.or(intent.began));
                (m.refused, m.unanswered) = (false, None);
            }
            _ => {}
        }
        intent.boot = self.boot.clone().unwrap_or_default();
        intent.at_s = now_s();
        intent.phase = phase;
        self.intents.save(name, &intent)?;
        let moved = m.intent.moves();
        m.intent = intent;
        if let Phase::Kept(kept) = &m.intent.phase
            && moved
        {
            let doubt = kept.doubt.as_ref().map(|d| d.what.clone());
            let m = self.moves.remove(name).expect("it was just changed");
            self.end(&m, doubt);
            self.moves.insert(name.into(), m);
        }
        Ok(())
    }

    fn end(&mut self, m: &Move, why: Option<String>) {
        let (volume, job, copied_bytes) = (&m.intent.volume, m.intent.job, m.copied);
        let end = match why {
            None => {
                let to = m.intent.to.to_string();
                info!(volume, job, to, "moved a disk");
                MoveEnd::Done { copied_bytes }
            }
            Some(why) => {
                warn!(volume, job, why, "the move of a disk failed");
                MoveEnd::Stopped {
                    why,
                    copied_bytes,
                    failed_io: None,
                }
            }
        };
        self.ended.insert(volume.clone(), end);
    }
}

/// Who uses an image, or has it open, by name or without.
fn user_of(at: &At, operations: &mut dyn MoveOperations) -> Result<Option<String>, String> {
    if let Some(user) = operations.user_of(at)? {
        return Ok(Some(user));
    }
    match (at.file().map(Path::new), at.device()) {
        (Some(path), _) if path.exists() && kernel::is_locked(path)? => {
            Ok(Some("a process that has it open".into()))
        }
        (_, Some(device)) if Path::new(device).exists() => files::user_of_device(device),
        _ => Ok(None),
    }
}

/// Which start of the domain it is.
fn life_of(live: &Live) -> Option<u32> {
    match live {
        Live::On { life, .. } => *life,
        Live::Unknown | Live::Off => None,
    }
}

/// Does something while the guest is paused: it is written down before, so that whoever comes next lets it go on.
pub(super) fn held<T>(
    intents: &Intents,
    name: &str,
    intent: &mut Intent,
    shared: bool,
    operations: &mut dyn MoveOperations,
    what: impl FnOnce(&Intent, &mut dyn MoveOperations) -> T,
) -> Result<T, String> {
    // One that rests already does so for somebody else, who will have it go on.
    if !intent.held && !operations.look(intent)?.runs {
        return Ok(what(intent, operations));
    }
    intent.held = true;
    intents.save(name, intent)?;
    if operations.pause(intent)? != Rest::Ours {
        // It rests as it is, and not for us.
        intent.held = false;
        intents.save(name, intent)?;
        return Ok(what(intent, operations));
    }
    let done = what(intent, operations);
    let how = Held {
        shared,
        just_now: true,
    };
    let_go(intents, name, intent, operations, how)?;
    Ok(done)
}

/// How a guest is held.
struct Held {
    /// Whether another move of it holds it too, and is who lets it go on.
    shared: bool,
    /// Whether it was paused by us a moment ago.
    just_now: bool,
}

/// Has a guest that was held go on, and writes that down.
fn let_go(
    intents: &Intents,
    name: &str,
    intent: &mut Intent,
    operations: &mut dyn MoveOperations,
    how: Held,
) -> Result<(), String> {
    if !how.shared {
        operations.resume(intent, how.just_now)?;
    }
    intent.held = false;
    intents.save(name, intent)
}

/// Begins a copy, and waits until its target is prepared: then it is known how much there is to copy.
pub(super) fn begin_prepared(
    intent: &Intent,
    operations: &mut dyn MoveOperations,
) -> Result<(), Refusal> {
    operations.begin(intent)?;
    until(|| {
        let sight = operations.look(intent).ok();
        let progress = sight.and_then(|s| s.progress);
        progress.is_some_and(|(copied, left)| copied + left > 0)
    });
    Ok(())
}

/// Gives a copy up, and waits until it is gone.
fn abort(intent: &Intent, operations: &mut dyn MoveOperations) -> Result<(), String> {
    operations.abort(intent)?;
    until(|| {
        let live = operations.look(intent).map(|s| s.live);
        matches!(live, Ok(Live::Off | Live::On { mirror: None, .. }))
    });
    Ok(())
}

/// Waits until something is so, for as long as a guest may be paused for it; whether it is.
fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + HELD_MAX;
    while !is_so() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
