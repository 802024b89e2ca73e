//! Execution of the steps of moves. Each step is decided from the state that was just read.

use std::path::Path;
use std::time::{Duration, Instant};

use manager::agent::MoveEnd;
use tracing::{info, warn};
use vmhost::moving::{
    DefinedImage, Definition, Doubt, ImageId, Intent, KeptFile, LiveDomain, MoveObservation, Phase,
    Step, next,
};
use vmhost::{Image, ImageLocation};

use super::one::{Move, SURE_AFTER, now_s};
use super::{FREE_S, Intents, MoveOperations, Moves, Refusal, Rest, Sight, files};
use crate::error::{AgentError, Result};
use crate::yielding::GuestSlack;
use crate::{kernel, storage};

/// Largest number of steps of one move per look. It allows a complete pivot.
const STEPS_MAX: usize = 12;
/// Longest wait of this agent while a guest is paused for a step.
const HELD_MAX: Duration = Duration::from_secs(2);
/// Smallest number of bytes that a copy leaves free on its target.
const FREE_MIN: u64 = 32 << 20;
/// Seconds until the next attempt to remove a kept file that is in use.
const AGAIN_S: u64 = 60;

impl Moves {
    /// Advances all moves as far as possible now.
    pub(crate) fn beat(
        &mut self,
        operations: &mut dyn MoveOperations,
        yielding: &GuestSlack,
        now_ns: u64,
    ) {
        let names: Vec<String> = self.moves.keys().cloned().collect();
        for name in names {
            let stuck = self.advance(&name, operations).err();
            let stuck = stuck.map(|e| e.to_string());
            let Some(m) = self.moves.get_mut(&name) else {
                continue;
            };
            if let Some(why) = &stuck
                && m.stuck != stuck
            {
                let (volume, phase) = (&m.intent.volume, m.intent.phase.to_string());
                warn!(volume, phase, why, "a move is stuck");
            }
            m.stuck = stuck;
            if m.intent.phase != Phase::Copying {
                continue;
            }
            m.keep_pace(operations, yielding, now_ns);
            // End the copy before its target is full: QEMU does not survive a failed copy, as it does not survive a
            // cancel during a write.
            let least = FREE_MIN.max(m.rate.saturating_mul(FREE_S));
            let free = m.intent.target_path().and_then(|p| storage::of(p).free(p));
            if free.is_some_and(|free| free < least) {
                let why = format!("less than {least} bytes are free on its target");
                let noted = self.note(&name, None, Phase::GivingUp { why });
                if let (Err(why), Some(m)) = (noted, self.moves.get_mut(&name)) {
                    m.stuck = Some(why.to_string());
                }
            }
        }
    }

    fn advance(&mut self, name: &str, operations: &mut dyn MoveOperations) -> Result<()> {
        let mut stuck = Ok(());
        for _ in 0..STEPS_MAX {
            let Some(m) = self.moves.get_mut(name) else {
                return Ok(());
            };
            let sight = match m.intent.moves() {
                true => operations.look(&m.intent),
                // Only a kept file is left.
                false => Ok(Sight::without_job(LiveDomain::Unknown, Definition::Unknown)),
            };
            let sight = match sight {
                Ok(sight) => sight,
                // The error of the attempted step is more informative.
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
                    && (seen.live == LiveDomain::Unknown || seen.definition == Definition::Unknown);
                return match unknown {
                    true => stuck.and(Err(AgentError::Unknown(
                        "the hypervisor does not report the state of its domain".into(),
                    ))),
                    false => stuck,
                };
            }
            let (volume, phase) = (&m.intent.volume, m.intent.phase.to_string());
            info!(volume, phase, step = ?step, "a move continues");
            // A failed command may have taken effect nevertheless: the next look shows it.
            stuck = self.take(name, operations, &seen, step);
        }
        stuck
    }

    fn take(
        &mut self,
        name: &str,
        operations: &mut dyn MoveOperations,
        seen: &MoveObservation,
        step: Step,
    ) -> Result<()> {
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
                GuestPause {
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
                    DefinedImage::Unsettled => &Image {
                        at: ImageLocation::File(intent.unsettled.clone()),
                        format: intent.from.format.clone(),
                    },
                    DefinedImage::From => &intent.from,
                    DefinedImage::To => &intent.to,
                };
                operations.define(intent, &seen.definition, image)
            }
            Step::RemoveTarget => {
                let at = &intent.to.at;
                // A running domain may have the image open without using it, if libvirt was killed before it began the
                // copy.
                let user = match seen.live {
                    LiveDomain::On { .. } => operations.user_of(at)?,
                    LiveDomain::Unknown | LiveDomain::Off => user_of(at, operations)?,
                };
                match (user, intent.target_path(), &intent.made) {
                    (Some(user), ..) => Err(AgentError::InUse(format!("{at} is used by {user}"))),
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

    /// Switches to the new image while the guest is paused. The intent records the pause already.
    fn pivot(&mut self, name: &str, operations: &mut dyn MoveOperations) -> Result<()> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        // Flush before the pause, so the guest does not wait for pending writes of the new image's device.
        if let Err(why) = files::flush(&m.intent.to) {
            m.refused |= m.unanswered.is_none(); // no pivot was ordered, and none will be
            return Err(why);
        }
        match operations.pause(&m.intent)? {
            Rest::Ours => {}
            Rest::Off => return Ok(()),
            Rest::Others => {
                return Err(AgentError::Changed(
                    "another program has paused its guest".into(),
                ));
            }
        }
        let answer = match m.unanswered {
            None => operations.pivot(&m.intent),
            // The pivot may still happen.
            Some(at) if at.elapsed() < SURE_AFTER => Ok(LiveDomain::Unknown),
            Some(_) => Err(Refusal::Said(AgentError::Silent(
                "the hypervisor did not answer the pivot command".into(),
            ))),
        };
        let intent = &m.intent;
        // Compare the life as well: a domain that was restarted from the new image has not pivoted.
        let went_over = |live: &LiveDomain| matches!(live, LiveDomain::On { image: Some(i), life, .. } if *i == intent.to && *life == intent.life);
        let there = |operations: &mut dyn MoveOperations| {
            operations.look(intent).is_ok_and(|s| went_over(&s.live))
        };
        let mut unanswered = m.unanswered;
        let at_once = answer.as_ref().is_ok_and(went_over);
        if let Err(refusal) = answer {
            unanswered = unanswered.or(Some(Instant::now()));
            if matches!(refusal, Refusal::Said(_)) && !there(operations) {
                (m.refused, m.unanswered) = (true, unanswered);
                return Err(refusal.into());
            }
        }
        if !at_once {
            if until(|| there(operations)) {
                return Ok(()); // the next step follows from the observed state
            }
            m.unanswered = unanswered.or(Some(Instant::now()));
            return Err(AgentError::Silent(
                "the domain does not switch to the new image".into(),
            ));
        }
        self.note(name, None, Phase::Pivoted)?;
        let shared = self.is_held_by_others(name);
        let m = self.moves.get_mut(name).expect("it was just noted");
        let how = GuestPause {
            shared,
            just_now: true,
        };
        let_go(&self.intents, name, &mut m.intent, operations, how)
    }

    /// Returns true if another move of the same domain has paused its guest.
    fn is_held_by_others(&self, name: &str) -> bool {
        let uuid = self.moves.get(name).map(|m| &m.intent.uuid);
        let mut others = self.moves.iter().filter(|(other, _)| *other != name);
        others.any(|(_, m)| m.intent.held && Some(&m.intent.uuid) == uuid)
    }

    /// Removes a kept file after its retention time, unless another file has replaced it or it is in use.
    fn remove_kept(
        &mut self,
        name: &str,
        operations: &mut dyn MoveOperations,
        kept: KeptFile,
    ) -> Result<()> {
        let path = kept.path.clone();
        let at = match kept.file {
            Some(ImageId::Volume(_)) => ImageLocation::Block { path, bytes: None },
            _ => ImageLocation::File(path),
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
        let kept = KeptFile {
            until_s: Some(now_s().saturating_add(AGAIN_S)),
            doubt: Some(Doubt {
                what: format!("{why}, so it was not removed when its retention time ended"),
                stale: false,
            }),
            ..kept
        };
        self.note(name, None, Phase::Kept(kept))
    }

    /// Records the phase of a move durably; `life` is that of the domain at the last look.
    fn note(&mut self, name: &str, life: Option<u32>, phase: Phase) -> Result<()> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        let mut intent = m.intent.clone();
        match &phase {
            Phase::Pivoted => {
                files::flush(&intent.to)?;
                if let Some(from) = intent.from.at.file() {
                    // The old image may already have the name under which it is kept.
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

/// Returns a program or domain that uses an image or has it open.
fn user_of(at: &ImageLocation, operations: &mut dyn MoveOperations) -> Result<Option<String>> {
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

/// Returns the life of the domain.
fn life_of(live: &LiveDomain) -> Option<u32> {
    match live {
        LiveDomain::On { life, .. } => *life,
        LiveDomain::Unknown | LiveDomain::Off => None,
    }
}

/// Runs a function while the guest is paused. The pause is recorded before, so a restarted agent resumes the guest.
pub(super) fn held<T>(
    intents: &Intents,
    name: &str,
    intent: &mut Intent,
    shared: bool,
    operations: &mut dyn MoveOperations,
    what: impl FnOnce(&Intent, &mut dyn MoveOperations) -> T,
) -> Result<T> {
    // A paused guest was paused by another program, which will resume it.
    if !intent.held && !operations.look(intent)?.runs {
        return Ok(what(intent, operations));
    }
    intent.held = true;
    intents.save(name, intent)?;
    if operations.pause(intent)? != Rest::Ours {
        // It is paused for another reason.
        intent.held = false;
        intents.save(name, intent)?;
        return Ok(what(intent, operations));
    }
    let done = what(intent, operations);
    let how = GuestPause {
        shared,
        just_now: true,
    };
    let_go(intents, name, intent, operations, how)?;
    Ok(done)
}

/// Pause of a guest.
struct GuestPause {
    /// True if another move of the guest also holds the pause, and will resume it.
    shared: bool,
    /// True if this agent paused the guest a moment ago.
    just_now: bool,
}

/// Resumes a paused guest, and records it.
fn let_go(
    intents: &Intents,
    name: &str,
    intent: &mut Intent,
    operations: &mut dyn MoveOperations,
    how: GuestPause,
) -> Result<()> {
    if !how.shared {
        operations.resume(intent, how.just_now)?;
    }
    intent.held = false;
    intents.save(name, intent)
}

/// Begins a copy and waits until its target is prepared: the number of bytes to copy is known then.
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

/// Aborts a copy and waits until the job has disappeared.
fn abort(intent: &Intent, operations: &mut dyn MoveOperations) -> Result<()> {
    operations.abort(intent)?;
    until(|| {
        let live = operations.look(intent).map(|s| s.live);
        matches!(
            live,
            Ok(LiveDomain::Off | LiveDomain::On { mirror: None, .. })
        )
    });
    Ok(())
}

/// Waits until a condition holds, at most as long as a guest may be paused for it. Returns true if it holds.
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
