//! Moves by an agent: the real decision, `vmhost::moving::next`, executed as in the real agent. The agent may be killed
//! between any two actions. Durable intents survive it.

use std::collections::BTreeMap;

use manager::agent::{MoveEnd, Snapshot};
use manager::wire::{ArrayProblem, MoveOrder, MovingWindow};
use vmhost::Image;
use vmhost::moving::{
    DefinedImage, Definition, Doubt, ImageId, Intent, KeptFile, LiveDomain, MoveObservation, Phase,
    Step, next,
};

use super::guests::{PauseCause, image, path_of};
use super::hypervisor::{Order, Sight};
use super::{FakeMachines, SECOND};

/// Largest number of steps of a move per poll.
const STEPS_MAX: usize = 12;
/// Time after which an order without a reply is no longer executed.
pub const SURE_AFTER_NS: u64 = 6 * SECOND;
/// Time within which only the agent of an intent has touched a paused guest.
pub const RECENT_S: u64 = 10;
/// Retention of old images.
const KEEP_S: u64 = 20;
/// Interval between checks of a kept file that is in use.
const AGAIN_S: u64 = 30;
/// Free space that a copy needs on its target: seconds of copying, and bytes.
const FREE_S: u64 = 4;
const FREE_MIN: u64 = 32 << 20;
/// Time between two polls during moves.
const LOOKS_APART_NS: u64 = 900_000_000;

/// Reason that an action was not executed.
pub enum Stop {
    /// The agent was killed.
    Killed,
    /// The action was refused.
    Said(String),
    /// There was no reply. The order may still be executed.
    Silent(String),
}

pub type StepResult<T> = Result<T, Stop>;

impl Stop {
    /// Returns the reason as text, for a running agent.
    fn why(self) -> StepResult<String> {
        match self {
            Stop::Killed => Err(Stop::Killed),
            Stop::Said(why) | Stop::Silent(why) => Ok(why),
        }
    }
}

fn said<T>(result: Result<T, String>) -> StepResult<T> {
    result.map_err(Stop::Said)
}

#[derive(Debug, Clone)]
struct Move {
    intent: Intent,
    copied: u64,
    left: u64,
    ordered_ns: u64,
    refused: bool,
    unanswered_ns: Option<u64>,
    stuck: Option<String>,
}

impl Move {
    fn of(intent: Intent, left: u64, now_ns: u64) -> Self {
        Self {
            intent,
            copied: 0,
            left,
            ordered_ns: now_ns,
            refused: false,
            unanswered_ns: None,
            stuck: None,
        }
    }
}

/// State of an agent in memory.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    moves: BTreeMap<String, Move>,
    ended: BTreeMap<String, MoveEnd>,
    last: Option<(u64, Snapshot)>,
}

/// Pause state of a guest.
#[derive(PartialEq, Eq)]
enum Rest {
    Ours,
    Others,
    Off,
}

/// Planned move of a disk.
pub struct DiskMove {
    pub uuid: String,
    pub target: String,
    pub from: Image,
    pub to: Image,
    pub capacity: u64,
    pub bytes: u64,
    pub hold: bool,
}

impl FakeMachines {
    /// Restores the agent's state at its start; fails while an order of the previous agent holds the lock.
    pub fn open(&mut self) -> Result<(), String> {
        if self.moves.is_some() {
            return Ok(());
        }
        if !self.host.plain && !self.host.late.is_empty() {
            return Err("another agent has the directory of moves".into());
        }
        let now_ns = self.host.now_ns;
        let found = self.intents.iter();
        let found = found.map(|(name, i)| (name.clone(), Move::of(i.clone(), 0, now_ns)));
        self.moves = Some(Moves {
            moves: found.collect(),
            ..Moves::default()
        });
        Ok(())
    }

    fn memory(&mut self) -> &mut Moves {
        self.moves.as_mut().expect("the agent lives")
    }

    /// Advances all moves as far as possible, and observes the whole host.
    pub fn look(&mut self) -> StepResult<Snapshot> {
        let now_ns = self.host.now_ns;
        let memory = self.memory();
        let fresh = |(at, _): &&(u64, Snapshot)| now_ns - at < LOOKS_APART_NS;
        let busy = memory.moves.values().any(|m| m.intent.moves());
        if let Some((_, last)) = memory.last.as_ref().filter(fresh)
            && busy
        {
            let mut last = last.clone();
            self.tell(&mut last);
            return Ok(last);
        }
        self.beat()?;
        self.point(None)?;
        if self.fails(60) {
            return Err(Stop::Said("libvirt does not answer".into()));
        }
        let mut snapshot = self.inventory();
        self.tell(&mut snapshot);
        self.report_bounds(&mut snapshot);
        self.memory().last = Some((now_ns, snapshot.clone()));
        Ok(snapshot)
    }

    fn beat(&mut self) -> StepResult<()> {
        let names: Vec<String> = self.memory().moves.keys().cloned().collect();
        for name in names {
            let mut m = self.memory().moves.remove(&name).expect("it is there");
            let (result, there) = match self.advance(&name, &mut m) {
                Ok(there) => (None, there),
                Err(stop) => (Some(stop.why()?), true),
            };
            m.stuck = result;
            if there && m.intent.phase == Phase::Copying {
                let least = FREE_MIN.max(m.intent.rate_bytes_per_s * FREE_S);
                let device = self.host.files.device_of(path_of(&m.intent.to));
                if self.host.files.free(device) < least {
                    let why = format!("less than {least} bytes are free on its target");
                    if let Err(stop) = self.note(&name, &mut m, None, Phase::GivingUp { why }) {
                        m.stuck = Some(stop.why()?);
                    }
                }
            }
            if there {
                self.memory().moves.insert(name, m);
            }
        }
        Ok(())
    }

    /// Advances a move. Returns true if it still exists.
    fn advance(&mut self, name: &str, m: &mut Move) -> StepResult<bool> {
        let mut stuck = None;
        for _ in 0..STEPS_MAX {
            self.point(Some(&m.intent))?;
            let sight = match m.intent.moves() {
                true if self.fails(40) => match stuck {
                    Some(stuck) => return Err(stuck),
                    None => return Err(Stop::Said("libvirt does not say how it is".into())),
                },
                true => self.host.look(&m.intent),
                false => Sight {
                    live: LiveDomain::Unknown,
                    definition: Definition::Unknown,
                    runs: false,
                    progress: None,
                    failed: None,
                },
            };
            if let Some((copied, left)) = sight.progress {
                (m.copied, m.left) = (m.copied.max(copied), left);
            }
            let seen = self.seen(m, sight);
            let step = next(&m.intent, &seen);
            if let Some(stuck) = stuck.take()
                && !matches!(step, Step::Note(_))
            {
                return Err(stuck);
            }
            if step == Step::Wait {
                return Ok(true);
            }
            self.happened.count(match &step {
                Step::Abort => "aborts",
                Step::Release => "releases",
                Step::RemoveKept => "old images removed",
                Step::Note(Phase::Doubtful) => "doubts",
                Step::Note(Phase::GivingUp { .. }) => "moves given up",
                _ => "other steps",
            });
            match self.take(name, m, &seen, step) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(Stop::Killed) => return Err(Stop::Killed),
                // The next observation shows whether the action was executed anyway.
                Err(stop) => stuck = Some(stop),
            }
        }
        stuck.map_or(Ok(true), Err)
    }

    fn seen(&self, m: &Move, sight: Sight) -> MoveObservation {
        let (files, intent) = (&self.host.files, &m.intent);
        let now_s = self.now_s();
        MoveObservation {
            live: sight.live,
            definition: sight.definition,
            failed: sight.failed,
            runs: sight.runs,
            recent: intent.boot == self.boot.to_string() && now_s - intent.at_s < RECENT_S,
            refused: m.refused,
            target: files.at(path_of(&intent.to)).map(ImageId::File),
            source_there: files.at(path_of(&intent.from)).is_some(),
            kept_there: match &intent.phase {
                Phase::Kept(kept) => files.at(&kept.path).is_some(),
                _ => false,
            },
            sure: self.host.now_ns - m.ordered_ns >= SURE_AFTER_NS,
            now_s,
            keep_s: KEEP_S,
        }
    }

    /// Executes a step. Returns true if the move still exists.
    fn take(
        &mut self,
        name: &str,
        m: &mut Move,
        seen: &MoveObservation,
        step: Step,
    ) -> StepResult<bool> {
        match step {
            Step::Wait => {}
            Step::Note(phase) => {
                let life = match seen.live {
                    LiveDomain::On { life, .. } => life,
                    LiveDomain::Unknown | LiveDomain::Off => None,
                };
                self.note(name, m, life, phase)?;
            }
            Step::Release => self.let_go(name, &mut m.intent, false)?,
            Step::Abort => self.held(name, &mut m.intent, |of, intent| {
                of.order(Order::Abort(intent.clone()))
            })?,
            Step::Pivot => self.pivot(name, m)?,
            Step::Define(naming) => {
                let intent = m.intent.clone();
                let image = match naming {
                    DefinedImage::Unsettled => image(&intent.unsettled),
                    DefinedImage::From => intent.from.clone(),
                    DefinedImage::To => intent.to.clone(),
                };
                let seen = seen.definition.clone();
                self.order(Order::Define(intent, seen, image))?;
            }
            Step::RemoveTarget => {
                let path = path_of(&m.intent.to);
                if let Some(user) = self.user_of(path) {
                    return Err(Stop::Said(format!("{path} is used by {user}")));
                }
                let there = self.host.files.at(path);
                if there.is_some() && there.map(ImageId::File) == m.intent.made {
                    self.remove(path);
                }
            }
            Step::RenameSource => {
                let (from, kept) = (path_of(&m.intent.from), m.intent.kept_as.as_deref());
                let renamed = self.host.files.rename(from, kept.expect("all are files"));
                said(renamed)?;
            }
            Step::RemoveKept => {
                if let Phase::Kept(kept) = m.intent.phase.clone() {
                    self.remove_kept(name, m, kept)?;
                }
            }
            Step::Forget(why) => {
                self.point(Some(&m.intent))?;
                self.intents.remove(name);
                self.definitions_are_durable();
                if m.intent.moves() {
                    self.end(m, why);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns a user that names a file or has it open.
    fn user_of(&self, path: &str) -> Option<String> {
        let named = self.host.user_of(path).map(|name| format!("domain {name}"));
        let file = self.host.files.at(path);
        let locked = file.is_some_and(|f| self.host.open_files().contains(&f));
        named.or(locked.then(|| "a process that has it open".into()))
    }

    fn remove(&mut self, path: &str) {
        let file = self.host.files.at(path).expect("it was just seen");
        let open = self.host.open_files();
        assert!(!open.contains(&file), "{path} is removed and in use");
        self.host.files.remove(file);
    }

    fn remove_kept(&mut self, name: &str, m: &mut Move, kept: KeptFile) -> StepResult<()> {
        let why = match self.user_of(&kept.path) {
            Some(user) => format!("{user} uses it"),
            None if self.host.files.at(&kept.path).map(ImageId::File) != kept.file => {
                "it is another file by now".into()
            }
            None => {
                self.remove(&kept.path);
                return Ok(());
            }
        };
        let kept = KeptFile {
            until_s: Some(self.now_s() + AGAIN_S),
            doubt: Some(Doubt {
                what: format!("{why}, so it was not removed when its time was over"),
                stale: false,
            }),
            ..kept
        };
        self.note(name, m, None, Phase::Kept(kept))
    }

    fn pivot(&mut self, name: &str, m: &mut Move) -> StepResult<()> {
        match self.pause(&m.intent)? {
            Rest::Ours => {}
            Rest::Off => return Ok(()),
            Rest::Others => {
                let why = "its guest was paused by somebody else";
                return Err(Stop::Said(why.into()));
            }
        }
        let now_ns = self.host.now_ns;
        let answer = match m.unanswered_ns {
            None => self.order(Order::Pivot(m.intent.clone())),
            Some(at) if now_ns - at < SURE_AFTER_NS => Ok(()),
            Some(_) => Err(Stop::Said("the pivot was not answered".into())),
        };
        let unanswered = m.unanswered_ns.or(Some(now_ns));
        let at_once = answer.is_ok() && self.went_over(&m.intent);
        match answer {
            Ok(()) => {}
            Err(Stop::Killed) => return Err(Stop::Killed),
            Err(Stop::Silent(_)) => m.unanswered_ns = unanswered,
            Err(Stop::Said(why)) if !self.went_over(&m.intent) => {
                (m.refused, m.unanswered_ns) = (true, unanswered);
                return Err(Stop::Said(why));
            }
            Err(Stop::Said(_)) => m.unanswered_ns = unanswered,
        }
        self.point(Some(&m.intent))?;
        if !self.went_over(&m.intent) {
            m.unanswered_ns = unanswered;
            let why = "the domain does not go over to the new image";
            return Err(Stop::Said(why.into()));
        }
        self.happened.count("pivots");
        if !at_once {
            return Ok(()); // the next step depends on the next observation
        }
        if self.host.plain {
            said(self.host.block(&m.intent))?;
            self.point(Some(&m.intent))?;
        }
        self.note(name, m, None, Phase::Pivoted)?;
        self.let_go(name, &mut m.intent, true)
    }

    fn went_over(&self, intent: &Intent) -> bool {
        let live = self.host.look(intent).live;
        matches!(live, LiveDomain::On { image: Some(i), life, .. } if i == intent.to && life == intent.life)
    }

    fn pause(&mut self, intent: &Intent) -> StepResult<Rest> {
        let guest = self.host.guest(&intent.uuid);
        match (guest.life, guest.paused) {
            (None, _) => Ok(Rest::Off),
            (Some(_), None) => {
                self.order(Order::Pause(intent.clone()))?;
                Ok(Rest::Ours)
            }
            (Some(_), Some(PauseCause::User)) if intent.held => Ok(Rest::Ours),
            (Some(_), Some(_)) => Ok(Rest::Others),
        }
    }

    fn let_go(&mut self, name: &str, intent: &mut Intent, just_now: bool) -> StepResult<()> {
        let own = |(other, i): (&String, &Intent)| other != name && i.held && i.uuid == intent.uuid;
        if self.intents.iter().any(own) {
            // The other move will resume the guest.
            intent.held = false;
            return self.save(name, intent);
        }
        let paused = self.host.guest(&intent.uuid).paused;
        if just_now || paused == Some(PauseCause::User) {
            match self.order(Order::Resume(intent.clone())) {
                Err(Stop::Said(_)) if just_now => {}
                other => other?,
            }
        }
        intent.held = false;
        self.save(name, intent)
    }

    fn held(
        &mut self,
        name: &str,
        intent: &mut Intent,
        what: impl FnOnce(&mut Self, &Intent) -> StepResult<()>,
    ) -> StepResult<()> {
        if !intent.held && !self.host.guest(&intent.uuid).runs() {
            return what(self, intent);
        }
        intent.held = true;
        self.save(name, intent)?;
        if self.pause(intent)? != Rest::Ours {
            intent.held = false;
            self.save(name, intent)?;
            return what(self, intent);
        }
        match what(self, intent) {
            Err(Stop::Killed) => Err(Stop::Killed),
            done => {
                self.let_go(name, intent, true)?;
                done
            }
        }
    }

    fn note(
        &mut self,
        name: &str,
        m: &mut Move,
        life: Option<u32>,
        phase: Phase,
    ) -> StepResult<()> {
        let mut intent = m.intent.clone();
        match &phase {
            Phase::Pivoted => {
                let files = &mut self.host.files;
                if let Some(to) = files.at(path_of(&intent.to)) {
                    let file = files.get_mut(to);
                    file.flushed = file.content;
                }
                let names = [Some(path_of(&intent.from)), intent.kept_as.as_deref()];
                let left = names.into_iter().flatten().find_map(|path| files.at(path));
                intent.left = left.map(ImageId::File);
            }
            Phase::Pivoting => {
                (intent.held, intent.life) = (true, life.or(intent.began));
                (m.refused, m.unanswered_ns) = (false, None);
            }
            _ => {}
        }
        intent.boot = self.boot.to_string();
        intent.at_s = self.now_s();
        intent.phase = phase;
        self.save(name, &intent)?;
        let moved = m.intent.moves();
        m.intent = intent;
        if let Phase::Kept(kept) = &m.intent.phase
            && moved
        {
            let doubt = kept.doubt.as_ref().map(|d| d.what.clone());
            self.end(m, doubt);
        }
        Ok(())
    }

    /// Stores an intent durably.
    fn save(&mut self, name: &str, intent: &Intent) -> StepResult<()> {
        self.point(Some(intent))?;
        if self.fails(300) {
            return Err(Stop::Said("the intent cannot be written".into()));
        }
        self.intents.insert(name.into(), intent.clone());
        self.definitions_are_durable();
        self.point(Some(intent))
    }

    fn definitions_are_durable(&mut self) {
        for disk in self.host.guests.iter_mut().flat_map(|g| &mut g.disks) {
            disk.durable = disk.defined.clone();
        }
    }

    fn end(&mut self, m: &Move, why: Option<String>) {
        let copied_bytes = m.copied;
        let end = match why {
            None => MoveEnd::Done { copied_bytes },
            Some(why) => MoveEnd::Stopped {
                why,
                copied_bytes,
                failed_io: None,
            },
        };
        self.happened.count(match end {
            MoveEnd::Done { .. } => "disks moved",
            MoveEnd::Stopped { .. } => "disks not moved",
        });
        let volume = m.intent.volume.clone();
        self.memory().ended.insert(volume, end);
    }

    /// Gives an order to the hypervisor, which may not reply.
    fn order(&mut self, order: Order) -> StepResult<()> {
        let intent = order.intent().clone();
        self.point(Some(&intent))?;
        let silent = || Err(Stop::Silent("it was not answered".into()));
        // libvirt executes the orders of a domain one by one. QEMU does not wait for a pivot.
        let plain = self.host.plain;
        let waits = |(_, o): &(u64, Order)| {
            o.intent().uuid == intent.uuid && !(plain && matches!(o, Order::Pivot(_)))
        };
        if self.host.late.iter().any(waits) {
            return silent();
        }
        let may_be_late = matches!(order, Order::Begin(_) | Order::Pivot(_) | Order::Abort(_));
        if may_be_late && self.fails(5) {
            self.happened.count("orders without an answer");
            match self.rng.below(3) {
                0 => {
                    let at_ns = self.host.now_ns + self.rng.below(5) * SECOND;
                    self.host.late.push((at_ns, order));
                }
                1 => drop(self.host.execute(&order)),
                _ => {}
            }
            self.point(Some(&intent))?;
            return silent();
        }
        if matches!(order, Order::Pivot(_)) && self.fails(8) {
            self.happened.count("pivots refused");
            return Err(Stop::Said("QEMU does not like it".into()));
        }
        said(self.host.execute(&order))?;
        self.point(Some(&intent))
    }

    /// Counts moves of a domain with another moving disk.
    fn count_both(&mut self, uuid: &str) {
        let own = |i: &&Intent| i.moves() && i.uuid == uuid;
        if self.intents.values().any(|i| own(&i)) {
            self.happened.count("moves beside one of the same domain");
        }
    }

    /// Stores the intent of a move durably and starts the move.
    pub fn begin(&mut self, order: &MoveOrder, disk: DiskMove) -> StepResult<()> {
        let (now_s, now_ns) = (self.now_s(), self.host.now_ns);
        let moves = &self.memory().moves;
        let same = |m: &Move| m.intent.uuid == disk.uuid && m.intent.target == disk.target;
        if moves.values().any(|m| m.intent.moves() && same(m)) {
            return Err(Stop::Said("the disk is being moved already".into()));
        }
        self.count_both(&disk.uuid);
        let moves = &self.memory().moves;
        let names = (1..).map(|n| format!("{}-{}-{}-{n}", disk.uuid, disk.target, order.job));
        let mut names = names.filter(|name| !moves.contains_key(name));
        let name = names.next().expect("there are enough");
        let unsettled = format!("/state/{name}.unsettled");
        let mut intent = Intent {
            job: order.job,
            volume: order.volume.clone(),
            device: order.device.clone(),
            kept_as: Some(format!("{}.moved-{now_s}", path_of(&disk.from))),
            rate_bytes_per_s: order.rate_bytes_per_s.max(1),
            boot: self.boot.to_string(),
            at_s: now_s,
            began: self.host.guest(&disk.uuid).life,
            ..Intent::new(disk.uuid, disk.target, disk.from, disk.to, unsettled)
        };
        self.save(&name, &intent)?;
        let began = match self.make_target(&name, &mut intent, disk.capacity) {
            Ok(()) if disk.hold => self.held(&name, &mut intent, |of, intent| {
                of.order(Order::Begin(intent.clone()))
            }),
            Ok(()) => self.order(Order::Begin(intent.clone())),
            made => made,
        };
        let mut m = Move::of(intent, disk.bytes, now_ns);
        self.memory().ended.remove(&order.volume);
        let result = match began {
            Err(Stop::Killed) => return Err(Stop::Killed),
            Err(Stop::Said(why)) => {
                m.intent.phase = Phase::GivingUp { why: why.clone() };
                m.stuck = match self.save(&name, &m.intent) {
                    Ok(()) => None,
                    Err(stop) => Some(stop.why()?),
                };
                Err(Stop::Said(why))
            }
            Ok(()) | Err(Stop::Silent(_)) => Ok(()),
        };
        self.memory().moves.insert(name, m);
        result
    }

    fn make_target(&mut self, name: &str, intent: &mut Intent, capacity: u64) -> StepResult<()> {
        let made = said(self.host.files.make(path_of(&intent.to)))?;
        self.point(Some(intent))?;
        intent.made = Some(made.into());
        self.save(name, intent)?;
        self.host.files.get_mut(made).capacity = capacity;
        Ok(())
    }

    pub fn cancel(&mut self, volume: &str) -> StepResult<()> {
        let moves = self.memory().moves.clone();
        for (name, mut m) in moves {
            if m.intent.volume == volume && m.intent.moves() && !m.intent.cancel {
                m.intent.cancel = true;
                self.memory().moves.insert(name.clone(), m.clone());
                self.save(&name, &m.intent)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, snapshot: &mut Snapshot) {
        let memory = self.memory();
        for v in &mut snapshot.volumes {
            let mut moves = memory.moves.values();
            let m = moves.find(|m| m.intent.moves() && m.intent.volume == v.name);
            v.moving = m.map(|m| MovingWindow {
                device: m.intent.device.clone(),
                extents: None,
                copied_bytes: m.copied,
                left_bytes: m.left,
                rate_bytes_per_s: m.intent.rate_bytes_per_s,
            });
            v.last_move = memory.ended.get(&v.name).cloned();
        }
        snapshot.problems = memory.moves.values().filter_map(problem).collect();
    }
}

/// Returns the problem of a move that an operator must know.
fn problem(m: &Move) -> Option<ArrayProblem> {
    let (from, to) = (&m.intent.from, &m.intent.to);
    let (kind, what) = match (&m.intent.phase, &m.stuck) {
        (Phase::Doubtful, _) => ("stale-image", format!("{from} or {to}")),
        (Phase::Kept(kept), _) => {
            let doubt = kept.doubt.as_ref()?;
            let kind = match doubt.stale {
                true => "stale-image",
                false => "file-left-behind",
            };
            (kind, format!("{}: {}", kept.path, doubt.what))
        }
        (_, None) => return None,
        (Phase::Blocking | Phase::Pivoting | Phase::Pivoted, Some(why)) if !m.intent.held => {
            ("stale-image", why.clone())
        }
        (_, Some(why)) => ("move-stuck", why.clone()),
    };
    Some(ArrayProblem {
        kind: kind.into(),
        about: m.intent.volume.clone(),
        what,
    })
}
