//! Every order of events around a move, by exhaustion: writes, kills, power losses, starts, other people's hands, and an agent that looks, is
//! killed, and acts on what it saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use vmhost::moving::{Definition, FileId, ImageId, Intent, Live, Naming, Phase, Seen, Step, next};
use vmhost::{At, Image, Mirror};

/// Writes in a history. Each raises the version of the disk by one.
const WRITES: u8 = 2;
/// Starts of the domain in a history.
const STARTS: u32 = 2;
/// An image that is not complete.
const PARTIAL: u8 = 255;
const TARGET: ImageId = ImageId::File(FileId {
    device: 1,
    inode: 7,
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Guest {
    Off,
    From,
    Mirrored { ready: bool },
    To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Names {
    From,
    To,
    Unsettled,
}

/// What a start would read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A definition, which is made to name nothing before the pivot.
    Libvirt,
    /// The file of the old name, which has another one from the pivot on.
    Plain,
}

/// A host with one disk, and the version that each file has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Host {
    kind: Kind,
    acknowledged: u8,
    /// Under its own name, under the name that it is kept as, and the target.
    from: Option<u8>,
    kept: Option<u8>,
    to: Option<u8>,
    /// What of the target would outlast QEMU and a power loss: its tables may be in QEMU's memory.
    to_flushed: u8,
    guest: Guest,
    paused: bool,
    /// Starts of the domain.
    life: u32,
    names: Names,
    /// As it would be after a power loss: changes are durable with the next note of the intent, which is flushed after them.
    names_durable: Names,
    /// Whether the intent was written a short time ago.
    recent: bool,
    /// Whether the agent saw that its pivot did not come to pass.
    refused: bool,
    /// Whether an order to begin may still be carried out.
    may_begin: bool,
    intent: Option<Intent>,
    /// What the agent is about to do, and what the definition named when it looked, in which life of the domain.
    about_to: Option<(Step, (Names, u32))>,
    /// Somebody accepted that what was written is lost.
    accepted: bool,
    /// What was acknowledged when somebody chose the other image.
    given_up: Option<u8>,
    /// A power loss, or a guest that somebody let go on.
    strange: bool,
}

fn image(path: &str) -> Image {
    Image {
        at: At::File(path.into()),
        format: "raw".into(),
    }
}

fn ordered(kind: Kind) -> Host {
    Host {
        kind,
        acknowledged: 0,
        from: Some(0),
        kept: None,
        to: None,
        to_flushed: PARTIAL,
        guest: Guest::From,
        paused: false,
        life: 0,
        names: Names::From,
        names_durable: Names::From,
        recent: true,
        refused: false,
        may_begin: true,
        intent: Some(Intent {
            kept_as: Some("/slow/a.kept".into()),
            began: Some(0),
            ..Intent::new(
                "u".into(),
                "vda".into(),
                image("/slow/a"),
                image("/fast/a"),
                "/state/a.unsettled".into(),
            )
        }),
        about_to: None,
        accepted: false,
        given_up: None,
        strange: false,
    }
}

impl Host {
    fn seen(&self, now_s: u64) -> Seen {
        let intent = self.intent.as_ref().unwrap();
        let on = |image: &Image, mirror| Live::On {
            image: Some(image.clone()),
            mirror,
            life: Some(self.life),
        };
        Seen {
            failed: None,
            live: match self.guest {
                Guest::Off => Live::Off,
                Guest::From => on(&intent.from, None),
                Guest::To => on(&intent.to, None),
                Guest::Mirrored { ready } => on(
                    &intent.from,
                    Some(Mirror {
                        to: Some(intent.to.clone()),
                        ready,
                    }),
                ),
            },
            definition: self.definition(intent),
            runs: self.guest != Guest::Off && !self.paused,
            recent: self.recent,
            refused: self.refused,
            target: self.to.map(|_| TARGET),
            source_there: self.from.is_some(),
            kept_there: match &intent.phase {
                Phase::Kept(kept) if kept.path == "/fast/a" => self.to.is_some(),
                Phase::Kept(kept) if kept.path == "/slow/a" => self.from.is_some(),
                Phase::Kept(_) => self.kept.is_some(),
                _ => false,
            },
            sure: !self.may_begin,
            now_s,
            keep_s: 10,
        }
    }

    /// As those who carry moves out see it.
    fn definition(&self, intent: &Intent) -> Definition {
        let from = || Definition::Names(Some(intent.from.clone()));
        match (self.kind, self.names, &intent.phase) {
            (Kind::Libvirt, Names::From, _) => from(),
            (Kind::Libvirt, Names::To, _) => Definition::Names(Some(intent.to.clone())),
            (Kind::Libvirt, Names::Unsettled, _) => Definition::Unsettled,
            (Kind::Plain, _, Phase::Blocking) if self.from.is_some() => Definition::None,
            (Kind::Plain, ..) if self.from.is_some() => from(),
            (Kind::Plain, _, Phase::Pivoted | Phase::Kept(_)) => Definition::None,
            (Kind::Plain, ..) if self.kept.is_some() => Definition::Unsettled,
            (Kind::Plain, ..) => Definition::None,
        }
    }

    /// Has a start of the old image fail, by its name.
    fn block(&mut self) {
        if self.from.is_some() {
            self.kept = self.from.take();
        }
    }

    fn note(&mut self, phase: &Phase, life: u32) {
        if *phase == Phase::Pivoted {
            self.to_flushed = self.to.unwrap();
        }
        let intent = self.intent.as_mut().unwrap();
        intent.phase = phase.clone();
        if *phase == Phase::Pivoting {
            (intent.held, intent.life) = (true, Some(life));
        }
        self.recent = true;
        self.names_durable = self.names;
    }

    fn pause(&mut self) {
        self.intent.as_mut().unwrap().held = true;
        self.paused = self.guest != Guest::Off;
    }

    fn release(&mut self) {
        self.intent.as_mut().unwrap().held = false;
        self.paused = false;
    }

    /// Does what the agent is about to do, as far as the host lets it; `killed_at` parts of it, and then the agent is killed.
    fn act(&mut self, step: &Step, (looked, life): (Names, u32), killed_at: Option<u32>) {
        let parts = |part| killed_at.is_none_or(|at| part < at);
        if self.intent.is_none() {
            return;
        }
        match step {
            Step::Wait => {}
            Step::Release => self.release(),
            Step::Note(phase) => self.note(phase, life),
            Step::Abort => {
                self.pause();
                if parts(1) && matches!(self.guest, Guest::Mirrored { .. }) {
                    self.guest = Guest::From;
                }
                if parts(2) {
                    self.release();
                }
            }
            Step::Define(Naming::From) if self.kind == Kind::Plain => {
                if self.from.is_none() {
                    self.from = self.kept.take();
                }
            }
            Step::Define(_) if self.kind == Kind::Plain => self.block(),
            Step::Define(_) if self.names != looked => {}
            Step::Define(naming) => {
                self.names = match naming {
                    Naming::Unsettled => Names::Unsettled,
                    Naming::From => Names::From,
                    Naming::To => Names::To,
                };
            }
            Step::Pivot => {
                self.pause();
                if parts(1) && self.guest == (Guest::Mirrored { ready: true }) {
                    self.guest = Guest::To;
                    self.to_flushed = self.to.unwrap();
                }
                let there = self.guest == Guest::To && self.life == life;
                if parts(2) && there && self.kind == Kind::Plain {
                    self.block();
                }
                if parts(3) && there {
                    self.note(&Phase::Pivoted, life);
                }
                if parts(4) && there {
                    self.release();
                }
            }
            // Who does it looks whether it is used.
            Step::RemoveTarget => {
                if !matches!(self.guest, Guest::To | Guest::Mirrored { .. }) {
                    self.to = None;
                }
            }
            Step::RenameSource => {
                assert!(
                    !matches!(self.guest, Guest::From | Guest::Mirrored { .. }),
                    "in use"
                );
                self.kept = self.from.take();
            }
            // Who does it looks whether it is used.
            Step::RemoveKept => match &self.intent.as_ref().unwrap().phase {
                Phase::Kept(kept) if kept.path == "/fast/a" => {
                    if self.guest != Guest::To && self.names != Names::To {
                        self.to = None;
                    }
                }
                _ => self.kept = None,
            },
            Step::Forget(_) => {
                self.intent = None;
                self.names_durable = self.names;
            }
        }
    }

    /// What can happen next, with its name.
    fn events(&self) -> Vec<(&'static str, Host)> {
        let mut all = vec![];
        let mut event = |name, change: &dyn Fn(&mut Host)| {
            let mut host = self.clone();
            change(&mut host);
            if host != *self {
                all.push((name, host));
            }
        };
        let running = self.guest != Guest::Off;
        if running && !self.paused && self.acknowledged < WRITES {
            event("the guest writes", &|h| {
                h.acknowledged += 1;
                let to = match h.guest {
                    Guest::To => &mut h.to,
                    // Whatever its name is by now.
                    _ if h.from.is_none() => &mut h.kept,
                    _ => &mut h.from,
                };
                *to = Some(h.acknowledged);
                match h.guest {
                    Guest::Mirrored { ready: true } => h.to = Some(h.acknowledged),
                    Guest::To => h.to_flushed = h.acknowledged,
                    _ => {}
                }
            });
        }
        if self.may_begin {
            event("the copy begins", &|h| {
                if h.guest == Guest::From && h.to.is_none() {
                    (h.guest, h.to) = (Guest::Mirrored { ready: false }, Some(PARTIAL));
                    h.intent.as_mut().unwrap().made = Some(TARGET);
                }
                h.may_begin = false;
            });
            for noted in [false, true] {
                event("a file is made, and the order is lost", &|h| {
                    h.to = Some(PARTIAL);
                    h.intent.as_mut().unwrap().made = noted.then_some(TARGET);
                    h.may_begin = false;
                });
            }
            event("the order to begin is lost", &|h| h.may_begin = false);
        }
        if self.guest == (Guest::Mirrored { ready: false }) {
            event("all is copied", &|h| {
                h.guest = Guest::Mirrored { ready: true };
                h.to = h.from;
            });
        }
        if let Guest::Mirrored { ready } = self.guest {
            event("somebody gives the job up", &|h| h.guest = Guest::From);
            // Not in the instant in which we are about to: a power loss right after that is left out. Whoever does it by QMP alone may start it from anything.
            if ready && self.names == Names::From && self.kind == Kind::Libvirt {
                event("somebody pivots", &|h| {
                    h.guest = Guest::To;
                    h.to_flushed = h.to.unwrap();
                    // libvirt's own way, whose gaps are not ours.
                    (h.names, h.names_durable) = (Names::To, Names::To);
                });
            }
        }
        if running {
            for lost in [false, true] {
                event("QEMU is killed", &|h| {
                    (h.guest, h.paused) = (Guest::Off, false);
                    if lost {
                        h.to = h.to.map(|_| h.to_flushed);
                    }
                });
            }
        }
        if self.paused {
            event("somebody lets the guest go on, after a while", &|h| {
                (h.paused, h.recent, h.strange) = (false, false, true);
            });
        }
        if self.recent {
            event("time goes by", &|h| (h.recent, h.strange) = (false, true));
        }
        for flushed in [false, true] {
            for saved in [false, true] {
                event("the power is lost", &|h| {
                    (h.guest, h.paused, h.recent) = (Guest::Off, false, false);
                    (h.may_begin, h.refused, h.strange) = (false, false, true);
                    h.about_to = None;
                    if !flushed {
                        h.to = h.to.map(|_| h.to_flushed);
                    }
                    match saved {
                        false => h.names = h.names_durable,
                        true => h.names_durable = h.names,
                    }
                });
            }
        }
        if !running && self.life < STARTS {
            event("the domain is started", &|h| h.start());
            // Whether the copy is complete or not, and whatever the definition says.
            if let Some(version) = self.to.filter(|_| self.is_open()) {
                event("somebody starts it from the new image", &|h| {
                    (h.guest, h.life) = (Guest::To, h.life + 1);
                    h.chosen(version);
                });
            }
        }
        match (&self.intent, &self.about_to) {
            (Some(intent), None) => {
                if !intent.cancel {
                    event("it is cancelled", &|h| {
                        h.intent.as_mut().unwrap().cancel = true;
                    });
                }
                // Where it is known which one counts, the agent says so again.
                if self.is_open() && self.names == Names::Unsettled && !running && !self.recent {
                    for (names, of) in [(Names::From, self.from), (Names::To, self.to)] {
                        let Some(version) = of else { continue };
                        event("the operator chooses", &|h| {
                            h.names = names;
                            h.chosen(version);
                        });
                    }
                }
                for now_s in [0, 1_000] {
                    let step = next(intent, &self.seen(now_s));
                    event("the agent looks", &|h| {
                        h.about_to = Some((step.clone(), (h.names, h.life)))
                    });
                }
            }
            (_, Some((step, looked))) => {
                event("the agent acts", &|h| {
                    h.about_to = None;
                    h.act(step, *looked, None);
                });
                event("the agent is killed", &|h| {
                    (h.about_to, h.refused) = (None, false);
                });
                for part in 1..=4 {
                    event("the agent is killed while it acts", &|h| {
                        (h.about_to, h.refused) = (None, false);
                        if matches!(step, Step::Abort | Step::Pivot) {
                            h.act(step, *looked, Some(part));
                        }
                    });
                }
                if *step == Step::Pivot {
                    event("the pivot is refused", &|h| {
                        (h.about_to, h.refused) = (None, true);
                        h.act(step, *looked, Some(1));
                    });
                }
            }
            (None, None) => {}
        }
        all
    }

    /// Whether it is not written down yet that the new image counts, and nobody has chosen one.
    fn is_open(&self) -> bool {
        let phase = self.intent.as_ref().map(|i| &i.phase);
        let open = phase.is_some_and(|p| !matches!(p, Phase::Pivoted | Phase::Kept(_)));
        open && !self.accepted
    }

    /// Somebody has the guest go on with an image that may lack something: the other one has to stay.
    fn chosen(&mut self, version: u8) {
        self.accepted = true;
        self.given_up = Some(self.acknowledged).filter(|v| version != *v);
        self.acknowledged = version;
    }

    /// From the definition, if its image is there.
    fn start(&mut self) {
        let (of, guest) = match self.names {
            _ if self.kind == Kind::Plain => (self.from, Guest::From),
            Names::From => (self.from, Guest::From),
            Names::To => (self.to, Guest::To),
            Names::Unsettled => (None, Guest::Off),
        };
        let Some(version) = of else { return };
        // Between the pivot and the old image's new name the agent was killed, and somebody let the guest go on: both images stay, and it is said.
        let odd = self.kind == Kind::Plain && self.strange && !self.accepted;
        if odd && version != self.acknowledged {
            self.chosen(version);
        }
        assert!(
            version == self.acknowledged || self.accepted,
            "started from version {version} of {}",
            self.acknowledged
        );
        if self.given_up == Some(version) {
            self.given_up = None; // it is what the guest has again
        }
        self.acknowledged = version;
        (self.guest, self.life) = (guest, self.life + 1);
    }

    /// What must hold at every moment.
    fn check(&self) {
        let images = [self.from, self.kept, self.to];
        assert!(
            self.accepted || images.contains(&Some(self.acknowledged)),
            "what was acknowledged is nowhere"
        );
        assert!(
            self.given_up.is_none_or(|v| images.contains(&Some(v))),
            "what somebody gave up is nowhere"
        );
        let names_kept = self.guest == Guest::To && self.to.is_none()
            || matches!(self.guest, Guest::From | Guest::Mirrored { .. })
                && self.from.is_none()
                && (self.kind == Kind::Libvirt || self.kept.is_none());
        assert!(!names_kept, "the guest's file is gone");
    }

    /// Left alone, it comes to an end, and a domain that is off can be started unless there is a doubt.
    fn ends(&self) {
        let mut host = self.clone();
        host.may_begin = false;
        for round in 1..=20 {
            let Some(intent) = &host.intent else { break };
            let step = next(intent, &host.seen(1_000 * round));
            let waits = match &intent.phase {
                Phase::Copying => host.guest == Guest::Mirrored { ready: false },
                Phase::Doubtful => host.guest == Guest::Off,
                Phase::Kept(kept) if kept.until_s.is_some() && step == Step::Wait => continue,
                Phase::Kept(_) => true,
                _ => false,
            };
            if step == Step::Wait {
                assert!(waits, "it waits for nothing");
                break;
            }
            host.act(&step, (host.names, host.life), None);
            host.check();
        }
        let phase = host.intent.as_ref().map(|i| i.phase.clone());
        match phase {
            _ if host.intent.as_ref().is_some_and(|i| i.held) => panic!("the guest stays paused"),
            None => assert!(
                host.to.is_none() || host.names == Names::To || host.guest == Guest::To
                    // Its script is somebody's, and the old image is gone.
                    || host.kind == Kind::Plain && host.from.is_none(),
                "a file is left that no list shows"
            ),
            Some(Phase::Copying | Phase::Doubtful | Phase::Kept(_)) => {}
            Some(other) => panic!("it does not end, but is {other}"),
        }
        let doubtful = phase == Some(Phase::Doubtful) || host.kind == Kind::Plain;
        if host.guest == Guest::Off && !doubtful {
            host.start();
            assert_ne!(host.guest, Guest::Off, "it cannot be started");
        }
    }
}

#[test]
fn whatever_is_killed_when_no_domain_starts_from_a_stale_image() {
    let first = [Kind::Libvirt, Kind::Plain].map(ordered);
    let key = |host: &Host| {
        let mut hasher = std::hash::DefaultHasher::new();
        host.hash(&mut hasher);
        hasher.finish()
    };
    let mut known: BTreeSet<u64> = first.iter().map(key).collect();
    let mut waiting: VecDeque<_> = first.into_iter().map(|f| (f, vec![])).collect();
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    let mut doubts = (0, 0);
    while let Some((host, history)) = waiting.pop_front() {
        let look = || {
            host.check();
            host.ends();
            host.events()
        };
        let events = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        let Ok(events) = events else {
            panic!("after {history:?}: {host:#?}");
        };
        let phase = host.intent.as_ref().map(|i| i.phase.to_string());
        if phase.as_deref() == Some("in doubt") {
            assert!(host.strange, "a doubt without a reason: {history:?}");
            doubts.0 += 1;
        }
        *phases
            .entry(phase.unwrap_or("forgotten".into()))
            .or_default() += 1;
        for (name, next) in events {
            if known.insert(key(&next)) {
                let mut history: Vec<&str> = history.clone();
                history.push(name);
                waiting.push_back((next, history));
            }
        }
        doubts.1 += 1;
    }
    // All of it was reached, and doubts are rare.
    for phase in [
        "begun",
        "copying",
        "pivoting",
        "in doubt",
        "pivoted",
        "giving up",
        "kept",
        "forgotten",
    ] {
        assert!(phases.contains_key(phase), "{phases:?}");
    }
    assert!(doubts.1 > 10_000, "{phases:?}");
    eprintln!("{} states: {phases:?}", doubts.1);
}
