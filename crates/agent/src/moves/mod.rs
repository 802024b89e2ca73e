//! Moves of disks of virtual machines, carried out: intents, steps, pace. What is done next is decided in [`vmhost::moving`].

mod files;
mod intents;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use manager::agent::{MoveEnd, Snapshot};
use manager::wire::{ArrayTrouble, MoveOrder, MovingWindow};
use tracing::{info, warn};
use units::BytesPerSec;
use vmhost::moving::{
    Definition, Doubt, INTENT_FORM, Intent, Kept, Live, Naming, Phase, Seen, Step, next,
};
use vmhost::{At, Image};
use volume::{GuestLatency, Others, Pace};

use crate::virsh::Refusal;
use files::boot;
pub(crate) use files::rename_durably;
use intents::Intents;
pub(crate) use intents::TEXT;

/// Steps that one move may take at a look, at most: all of a pivot, and no more.
const STEPS_MAX: usize = 12;
/// An order that was not answered is not carried out any more after this time.
const SURE_AFTER: Duration = Duration::from_secs(20);
/// A guest is paused for one step of a move for so long at most, as far as that depends on us.
const HELD_MAX: Duration = Duration::from_secs(2);
/// Bytes that a copy leaves free on its target, or what it copies in so many seconds.
const FREE_MIN: u64 = 32 << 20;
pub(crate) const LOOKS_FREE: u64 = 4;
/// An intent is recent for so long: until then nobody but its agent has had to do with a guest that is held.
const RECENT_S: u64 = 300;
/// A kept file that somebody uses is looked after again in so many seconds.
const AGAIN_S: u64 = 3600;
/// A rate that differs by less from the one that was set is not set.
const RATE_STEP: f64 = 0.05;

/// What a hypervisor does for a move, and tells of it.
pub(crate) trait Hands {
    /// The domain and the job as they are.
    ///
    /// # Errors
    /// Why nobody can say.
    fn look(&mut self, intent: &Intent) -> Result<Sight, String>;

    /// Begins the copy, with writes to both images.
    ///
    /// # Errors
    /// Why it did not, or may not have.
    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal>;

    /// Says how fast it may copy.
    ///
    /// # Errors
    /// Why that is as before.
    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<(), String>;

    /// Has the guest pause, so that it writes nothing.
    ///
    /// # Errors
    /// Why it goes on.
    fn pause(&mut self, intent: &Intent) -> Result<Rest, String>;

    /// Has a guest that is paused go on; nothing is done if it is not.
    ///
    /// # Errors
    /// Why it is paused still.
    fn resume(&mut self, intent: &Intent) -> Result<(), String>;

    /// Ends the job without a pivot.
    ///
    /// # Errors
    /// Why it goes on.
    fn abort(&mut self, intent: &Intent) -> Result<(), String>;

    /// Goes over to the new image.
    ///
    /// # Errors
    /// Why it may not have.
    fn pivot(&mut self, intent: &Intent) -> Result<(), Refusal>;

    /// Has the definition name something else, if it still is as it was seen.
    ///
    /// # Errors
    /// Why it may not.
    fn define(&mut self, intent: &Intent, seen: &Definition, image: &Image) -> Result<(), String>;

    /// A domain that names a file, whether it runs or not.
    ///
    /// # Errors
    /// Why nobody can say.
    fn user_of(&mut self, path: &str) -> Result<Option<String>, String>;
}

/// Whether a guest rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It was paused by us.
    Ours,
    /// It was paused already, by somebody else or for an error.
    Others,
    /// It does not run.
    Off,
}

/// A domain and the job on its disk.
pub(crate) struct Sight {
    /// Whether the guest runs, and is not paused.
    pub runs: bool,
    pub live: Live,
    pub definition: Definition,
    /// Bytes copied and left, while there is a job.
    pub progress: Option<(u64, u64)>,
    /// Why the copy does not go on by itself, where the hypervisor says so.
    pub failed: Option<String>,
}

/// What a move yields to.
pub(crate) struct Around<'a> {
    /// Requests of a volume since the last look, and their mean latency.
    pub guest: &'a dyn Fn(&str) -> (u64, u64),
    /// How the guests of the other volumes on the devices of a move stand to their objectives: the volume, and its target.
    pub others: &'a dyn Fn(&str, &str) -> Others,
}

struct Move {
    intent: Intent,
    pace: Pace,
    guest: GuestLatency,
    /// What was set last.
    rate: u64,
    copied: u64,
    left: u64,
    /// When an order that may yet be carried out was given; the start of the agent, for one that was found.
    ordered: Instant,
    sure: bool,
    /// Whether a pivot was ordered and did not come to pass.
    refused: bool,
    /// When a pivot was ordered that was not answered.
    unanswered: Option<Instant>,
    /// Why its next step could not be taken.
    stuck: Option<String>,
}

/// All moves of a host.
pub(crate) struct Moves {
    intents: Intents,
    keep: Duration,
    boot: Option<String>,
    moves: BTreeMap<String, Move>,
    /// How the last move of a volume ended.
    ended: BTreeMap<String, MoveEnd>,
    guests: BTreeMap<String, GuestLatency>,
}

impl Moves {
    /// Those that are written down in a directory; old images are kept for a while.
    ///
    /// # Errors
    /// Another agent has it, or it cannot be read.
    pub(crate) fn open(dir: &Path, keep: Duration) -> Result<Self, String> {
        let (intents, found) = Intents::open(dir)?;
        // What rate was set last is not known.
        let moves = found.into_iter().map(|(name, intent)| {
            let found = Move {
                rate: 0,
                ..Move::of(intent)
            };
            (name, found)
        });
        Ok(Self {
            moves: moves.collect(),
            intents,
            keep,
            boot: boot(),
            ended: BTreeMap::new(),
            guests: BTreeMap::new(),
        })
    }

    /// Whether a move that is not forgotten yet names an image's place.
    pub(crate) fn knows(&self, at: &At) -> bool {
        let mut moves = self.moves.values().map(|m| &m.intent);
        moves.any(|i| i.to.at == *at || i.from.at == *at)
    }

    /// What processes with orders are to hold.
    pub(crate) fn lock(&self) -> Arc<File> {
        self.intents.lock()
    }

    /// Whether something goes on that wants to be looked at soon.
    pub(crate) fn is_busy(&self) -> bool {
        self.moves.values().any(|m| m.intent.moves())
    }

    /// Whether a disk of a domain is being moved.
    pub(crate) fn concerns(&self, uuid: &str) -> bool {
        let mut moves = self.moves.values();
        moves.any(|m| m.intent.moves() && m.intent.uuid == uuid)
    }

    /// Whether a disk is being moved by us.
    pub(crate) fn is_moving(&self, uuid: &str, target: &str) -> bool {
        let mut moves = self.moves.values().map(|m| &m.intent);
        moves.any(|i| i.moves() && i.uuid == uuid && i.target == target)
    }

    /// The move of a volume that is under way.
    pub(crate) fn window(&self, volume: &str) -> Option<MovingWindow> {
        let mut moves = self.moves.values();
        let m = moves.find(|m| m.intent.volume == volume && m.intent.moves())?;
        Some(MovingWindow {
            device: m.intent.device.clone(),
            extents: None,
            copied_bytes: m.copied,
            left_bytes: m.left,
            rate_bytes_per_s: m.rate,
        })
    }

    /// How the last move of a volume ended, while this agent lives.
    pub(crate) fn last(&self, volume: &str) -> Option<MoveEnd> {
        self.ended.get(volume).cloned()
    }

    /// Writes a move down, and begins it.
    ///
    /// # Errors
    /// Why it did not begin.
    pub(crate) fn begin(
        &mut self,
        hands: &mut dyn Hands,
        order: &MoveOrder,
        disk: Planned,
    ) -> Result<(), String> {
        if disk.to.at.file().is_some_and(files::may_be_there) {
            return Err(format!("{} is there already", disk.to.at));
        }
        let name = self.name_of(&disk.uuid, &disk.target, order.job);
        let unsettled = self.intents.unsettled(&name);
        let mut intent = Intent {
            form: INTENT_FORM,
            job: order.job,
            volume: order.volume.clone(),
            uuid: disk.uuid.clone(),
            target: disk.target.clone(),
            device: order.device.clone(),
            unsettled: unsettled.to_string_lossy().into_owned(),
            kept_as: disk
                .from
                .at
                .file()
                .map(|p| format!("{p}.moved-{}", now_s())),
            from: disk.from.clone(),
            to: disk.to.clone(),
            rate_bytes_per_s: order.rate_bytes_per_s.max(1),
            boot: self.boot.clone().unwrap_or_default(),
            at_s: now_s(),
            life: None,
            left: None,
            made: None,
            held: false,
            cancel: false,
            phase: Phase::Begun,
        };
        self.intents.save(&name, &intent)?;
        let made = self.make_target(&name, &mut intent, &disk);
        let began = match disk.hold {
            _ if made.is_err() => made.map_err(Refusal::Said),
            false => hands.begin(&intent),
            true => self
                .held(&name, &mut intent, hands, begin_prepared)
                .unwrap_or_else(|why| Err(Refusal::Said(why))),
        };
        let mut m = Move {
            guest: self.guests.get(&order.volume).copied().unwrap_or_default(),
            left: disk.bytes,
            ..Move::of(intent)
        };
        self.ended.remove(&order.volume);
        let result = match began {
            Ok(()) => Ok(()),
            Err(Refusal::Said(why)) => {
                m.intent.phase = Phase::GivingUp { why: why.clone() };
                // Not written, it says that the copy may have begun, and is found not to have.
                m.stuck = self.intents.save(&name, &m.intent).err();
                Err(why)
            }
            // It is found out whether it began.
            Err(Refusal::Silent(why)) => {
                warn!(
                    volume = order.volume,
                    why, "an order to copy was not answered"
                );
                Ok(())
            }
        };
        self.moves.insert(name, m);
        result
    }

    /// Makes the file that is copied to, and writes down which one it is before anybody else has to do with it.
    fn make_target(&self, name: &str, intent: &mut Intent, disk: &Planned) -> Result<(), String> {
        let Some(path) = disk.to.at.file() else {
            return Ok(());
        };
        intent.made = Some(files::make(path)?);
        self.intents.save(name, intent)?;
        files::prepare(&disk.to, disk.bytes, disk.cluster_bytes)
    }

    /// Does something while the guest is paused: it is written down before, so that whoever comes next lets it go on.
    fn held<T>(
        &self,
        name: &str,
        intent: &mut Intent,
        hands: &mut dyn Hands,
        what: impl FnOnce(&Intent, &mut dyn Hands) -> T,
    ) -> Result<T, String> {
        intent.held = true;
        self.intents.save(name, intent)?;
        if hands.pause(intent)? != Rest::Ours {
            // It rests as it is, and not for us.
            intent.held = false;
            self.intents.save(name, intent)?;
            return Ok(what(intent, hands));
        }
        let done = what(intent, hands);
        hands.resume(intent)?;
        intent.held = false;
        self.intents.save(name, intent)?;
        Ok(done)
    }

    /// Another name for each move.
    fn name_of(&self, uuid: &str, target: &str, job: u32) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let of: String = format!("{uuid}-{target}").chars().map(clean).collect();
        let mut name = format!("{of}-{job}");
        let mut again = 1;
        while self.moves.contains_key(&name) {
            again += 1;
            name = format!("{of}-{job}-{again}");
        }
        name
    }

    /// Gives the move of a volume up, where that is still possible.
    ///
    /// # Errors
    /// Why that is not written down.
    pub(crate) fn cancel(&mut self, volume: &str) -> Result<(), String> {
        let found = self.moves.iter_mut();
        for (name, m) in found.filter(|(_, m)| m.intent.volume == volume && m.intent.moves()) {
            if !m.intent.cancel {
                m.intent.cancel = true;
                self.intents.save(name, &m.intent)?;
            }
        }
        Ok(())
    }

    /// Takes all moves as far as they go now.
    pub(crate) fn beat(&mut self, hands: &mut dyn Hands, around: &Around<'_>, now_ns: u64) {
        let names: Vec<String> = self.moves.keys().cloned().collect();
        for name in names {
            let result = self.advance(&name, hands);
            let Some(m) = self.moves.get_mut(&name) else {
                continue;
            };
            if let Err(why) = &result
                && m.stuck.as_ref() != Some(why)
            {
                let (volume, phase) = (&m.intent.volume, m.intent.phase.to_string());
                warn!(volume, phase, why, "a move does not go on");
            }
            m.stuck = result.err();
            if m.intent.phase != Phase::Copying {
                continue;
            }
            m.keep_pace(hands, around, now_ns);
            // A copy that fails by itself is like a cancel in mid-write, which QEMU does not bear.
            let least = FREE_MIN.max(m.rate.saturating_mul(LOOKS_FREE));
            if files::free(&m.intent.to).is_some_and(|free| free < least) {
                let why = format!("less than {least} bytes are free on its target");
                let phase = Phase::GivingUp { why };
                let mut intent = m.intent.clone();
                intent.phase = phase;
                match self.intents.save(&name, &intent) {
                    Ok(()) => m.intent = intent,
                    Err(why) => m.stuck = Some(why),
                }
            }
        }
    }

    fn advance(&mut self, name: &str, hands: &mut dyn Hands) -> Result<(), String> {
        let mut stuck = Ok(());
        for _ in 0..STEPS_MAX {
            let Some(m) = self.moves.get_mut(name) else {
                return Ok(());
            };
            let sight = match m.intent.moves() {
                true => hands.look(&m.intent),
                // Nothing but a file is left.
                false => Ok(Sight {
                    live: Live::Unknown,
                    definition: Definition::Unknown,
                    progress: None,
                    failed: None,
                    runs: false,
                }),
            };
            let sight = match sight {
                Ok(sight) => sight,
                // What was tried before it says more.
                Err(why) => return stuck.and(Err(why)),
            };
            if let Some((copied, left)) = sight.progress {
                (m.copied, m.left) = (m.copied.max(copied), left);
            }
            let seen = m.seen(sight, self.boot.as_deref(), self.keep);
            let step = next(&m.intent, &seen);
            if stuck.is_err() && !matches!(step, Step::Note(_)) {
                return stuck; // tried again at the next look
            }
            if step == Step::Wait {
                let unknown = m.intent.moves()
                    && (seen.live == Live::Unknown || seen.definition == Definition::Unknown);
                return match unknown {
                    true => stuck.and(Err("its hypervisor does not say how its domain is".into())),
                    false => stuck,
                };
            }
            info!(
                volume = m.intent.volume,
                phase = m.intent.phase.to_string(),
                step = ?step,
                "a move goes on"
            );
            // What could not be done may have been done all the same: what is seen next says.
            stuck = self.take(name, hands, &seen, step);
        }
        stuck
    }

    fn take(
        &mut self,
        name: &str,
        hands: &mut dyn Hands,
        seen: &Seen,
        step: Step,
    ) -> Result<(), String> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        match step {
            Step::Wait => Ok(()),
            Step::Note(phase) => self.note(name, seen, phase),
            Step::Release => {
                hands.resume(&m.intent)?;
                m.intent.held = false;
                self.intents.save(name, &m.intent)
            }
            Step::Abort => {
                let mut intent = m.intent.clone();
                let aborted = self.held(name, &mut intent, hands, |intent, hands| {
                    hands.abort(intent)?;
                    until(|| {
                        let live = hands.look(intent).map(|s| s.live);
                        !matches!(
                            live,
                            Ok(Live::On {
                                mirror: Some(_),
                                ..
                            } | Live::Unknown)
                                | Err(_)
                        )
                    });
                    Ok(())
                });
                let m = self.moves.get_mut(name).expect("it was just looked at");
                m.intent = intent;
                aborted.and_then(|done| done)
            }
            Step::Pivot => self.pivot(name, hands, seen),
            Step::Define(naming) => {
                let unsettled = || Image {
                    at: At::File(m.intent.unsettled.clone()),
                    format: m.intent.from.format.clone(),
                };
                let image = match naming {
                    Naming::Unsettled => unsettled(),
                    Naming::From => m.intent.from.clone(),
                    Naming::To => m.intent.to.clone(),
                };
                hands.define(&m.intent, &seen.definition, &image)
            }
            Step::RemoveTarget => match hands.user_of(&m.intent.to.at.to_string())? {
                None => files::remove(&m.intent.to, m.intent.made),
                Some(user) => Err(format!("{} is used by domain {user}", m.intent.to.at)),
            },
            Step::RenameSource => files::rename(&m.intent),
            Step::RemoveKept => match &m.intent.phase {
                Phase::Kept(kept) => {
                    let kept = kept.clone();
                    self.remove_kept(name, hands, seen, kept)
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
    fn pivot(&mut self, name: &str, hands: &mut dyn Hands, seen: &Seen) -> Result<(), String> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        match hands.pause(&m.intent)? {
            Rest::Ours => {}
            Rest::Off => return Ok(()),
            Rest::Others => return Err("its guest was paused by somebody else".into()),
        }
        let answer = match m.unanswered {
            None => hands.pivot(&m.intent),
            // It may come to pass yet.
            Some(at) if at.elapsed() < SURE_AFTER => Ok(()),
            Some(_) => Err(Refusal::Said("the pivot was not answered".into())),
        };
        let intent = m.intent.clone();
        let there = |hands: &mut dyn Hands| {
            let live = hands.look(&intent).map(|s| s.live);
            matches!(live, Ok(Live::On { image: Some(i), .. }) if i == intent.to)
        };
        if let Err(refusal) = answer {
            m.refused = matches!(refusal, Refusal::Said(_)) && !there(hands);
            m.unanswered = m.unanswered.or(Some(Instant::now()));
            if m.refused {
                return Err(refusal.why());
            }
        }
        if !until(|| there(hands)) {
            m.unanswered = m.unanswered.or(Some(Instant::now()));
            return Err("the domain does not go over to the new image".into());
        }
        self.note(name, seen, Phase::Pivoted)?;
        let m = self.moves.get_mut(name).expect("it was just noted");
        hands.resume(&m.intent)?;
        m.intent.held = false;
        self.intents.save(name, &m.intent)
    }

    /// Removes a file whose time is over, unless it is another one by now, or somebody uses it.
    fn remove_kept(
        &mut self,
        name: &str,
        hands: &mut dyn Hands,
        seen: &Seen,
        kept: Kept,
    ) -> Result<(), String> {
        let why = match hands.user_of(&kept.path)? {
            Some(user) => format!("domain {user} names it"),
            None if files::id(&kept.path) != kept.file => "it is another file by now".into(),
            None => return files::remove_path(Path::new(&kept.path)),
        };
        let kept = Kept {
            until_s: Some(seen.now_s.saturating_add(AGAIN_S)),
            doubt: Some(Doubt {
                what: format!("{why}, so it was not removed when its time was over"),
                stale: false,
            }),
            ..kept
        };
        self.note(name, seen, Phase::Kept(kept))
    }

    fn note(&mut self, name: &str, seen: &Seen, phase: Phase) -> Result<(), String> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        let mut intent = m.intent.clone();
        match (&phase, &seen.live) {
            (Phase::Pivoted, _) => {
                files::flush(&intent.to)?;
                // It may have the name already that it is kept under.
                let names = [intent.from.at.file(), intent.kept_as.as_deref()];
                intent.left = names.into_iter().flatten().find_map(files::id);
            }
            (Phase::Pivoting, Live::On { life, .. }) => {
                (intent.held, intent.life) = (true, *life);
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
                info!(
                    volume,
                    job,
                    to = m.intent.to.to_string(),
                    "a disk has moved"
                );
                MoveEnd::Done { copied_bytes }
            }
            Some(why) => {
                warn!(volume, job, why, "a disk has not moved");
                MoveEnd::Stopped {
                    why,
                    copied_bytes,
                    failed_io: None,
                }
            }
        };
        self.ended.insert(volume.clone(), end);
    }

    /// What the guest of each volume sees, moving or not: what it was before a move is what the move yields to.
    pub(crate) fn observe(&mut self, volume: &str, requests: u64, mean_ns: u64) {
        let moving = self.window(volume).is_some();
        let guest = self.guests.entry(volume.into()).or_default();
        observe(guest, requests, mean_ns, moving);
    }

    /// What an operator has to know.
    pub(crate) fn troubles(&self) -> Vec<ArrayTrouble> {
        let told = self.moves.iter().filter_map(|(name, m)| {
            let intent = &m.intent;
            let (kind, what) = match (&intent.phase, &m.stuck) {
                (Phase::Doubtful, _) => (
                    "stale-image",
                    format!(
                        "the host went down in the middle of the pivot from {} to {}, and nobody can tell which of them has all that was acknowledged. The domain \
                         cannot be started until you have looked at both and named the right one, under libvirt with `virsh edit`{}",
                        intent.from.at, intent.to.at, renamed(intent)
                    ),
                ),
                (Phase::Kept(kept), _) => {
                    let doubt = kept.doubt.as_ref()?;
                    let kind = match doubt.stale {
                        true => "stale-image",
                        false => "file-left-behind",
                    };
                    (kind, format!("{}: {}; remove it when you are sure", kept.path, doubt.what))
                }
                (Phase::Begun | Phase::Copying, None) | (_, None) => return None,
                (_, Some(why)) if intent.held => {
                    ("move-stuck", format!("its guest is paused, and cannot go on: {why}"))
                }
                (Phase::Blocking | Phase::Pivoting | Phase::Pivoted, Some(why)) => (
                    "stale-image",
                    format!(
                        "its pivot from {} to {} is not settled, and the domain must not be started before it is ({why}); see {}",
                        intent.from.at,
                        intent.to.at,
                        self.intents.file(name).display()
                    ),
                ),
                (_, Some(why)) if intent.held => {
                    ("move-stuck", format!("its guest is paused, and cannot go on: {why}"))
                }
                (_, Some(why)) => ("move-stuck", why.clone()),
            };
            Some(ArrayTrouble {
                kind: kind.into(),
                about: intent.volume.clone(),
                what,
            })
        });
        told.collect()
    }
}

/// A snapshot with how moves stand.
pub(crate) fn with_moves(mut snapshot: Snapshot, moves: &Moves) -> Snapshot {
    for v in &mut snapshot.volumes {
        v.moving = moves.window(&v.name);
        v.last_move = moves.last(&v.name);
    }
    snapshot.troubles = moves.troubles();
    snapshot
}

/// Where the old image is, if it has the name already that it is kept under.
fn renamed(intent: &Intent) -> String {
    let kept = intent.kept_as.as_ref();
    let kept = kept.filter(|path| Path::new(path).symlink_metadata().is_ok());
    kept.map_or(String::new(), |path| format!("; the old one is at {path}"))
}

/// Begins a copy, and waits until its target is prepared: then it is known how much there is to copy.
fn begin_prepared(intent: &Intent, hands: &mut dyn Hands) -> Result<(), Refusal> {
    hands.begin(intent)?;
    until(|| {
        let sight = hands.look(intent).ok();
        let progress = sight.and_then(|s| s.progress);
        progress.is_some_and(|(copied, left)| copied + left > 0)
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

/// Requests of one look; more of the same say nothing new.
fn observe(guest: &mut GuestLatency, requests: u64, mean_ns: u64, moving: bool) {
    if requests == 0 {
        guest.rests();
    }
    for _ in 0..requests.min(4096) {
        guest.observe(mean_ns, moving);
    }
}

/// A disk that is to be moved.
pub(crate) struct Planned {
    pub uuid: String,
    pub target: String,
    pub from: Image,
    pub to: Image,
    /// Bytes to copy, as far as is known.
    pub bytes: u64,
    /// The size of its clusters, of qcow2.
    pub cluster_bytes: Option<u64>,
    /// Whether the guest must not write while the copy begins.
    pub hold: bool,
}

impl Move {
    fn of(intent: Intent) -> Self {
        Self {
            pace: Pace::new(BytesPerSec(intent.rate_bytes_per_s)),
            rate: intent.rate_bytes_per_s,
            intent,
            guest: GuestLatency::default(),
            copied: 0,
            left: 0,
            ordered: Instant::now(),
            sure: false,
            refused: false,
            unanswered: None,
            stuck: None,
        }
    }

    fn seen(&mut self, sight: Sight, boot: Option<&str>, keep: Duration) -> Seen {
        let intent = &self.intent;
        self.sure |= self.ordered.elapsed() >= SURE_AFTER;
        let now_s = now_s();
        let age_s = now_s.checked_sub(intent.at_s);
        let same_boot = boot == Some(&*intent.boot);
        Seen {
            live: sight.live,
            definition: sight.definition,
            failed: sight.failed,
            runs: sight.runs,
            recent: same_boot && age_s.is_some_and(|age| age < RECENT_S),
            refused: self.refused,
            target: intent.to.at.file().and_then(files::id),
            source_there: intent.from.at.file().is_some_and(files::may_be_there),
            kept_there: match &intent.phase {
                Phase::Kept(kept) => !files::is_gone(&kept.path, kept.file),
                _ => false,
            },
            sure: self.sure,
            now_s,
            keep_s: keep.as_secs(),
        }
    }

    /// As fast as guests leave room for.
    fn keep_pace(&mut self, hands: &mut dyn Hands, around: &Around<'_>, now_ns: u64) {
        let volume = &self.intent.volume;
        let (requests, mean_ns) = (around.guest)(volume);
        observe(&mut self.guest, requests, mean_ns, true);
        let others = (around.others)(volume, &self.intent.device);
        self.pace.took(now_ns, 0, &self.guest, others);
        let rate = self.pace.rate().0.max(1);
        let differs = (rate as f64 / self.rate.max(1) as f64 - 1.0).abs() > RATE_STEP;
        if differs && hands.set_rate(&self.intent, rate).is_ok() {
            self.rate = rate;
        }
    }
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
