//! Exhaustive search over all orders of events around a move: writes, kills, power losses, starts, actions of other
//! programs, and an agent that looks, acts and is killed between the two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use vmhost::moving::{
    DefinedImage, Definition, FileId, ImageId, Intent, LiveDomain, MoveObservation, Phase, Step,
    next,
};
use vmhost::{Image, ImageLocation, Mirror};

/// Number of writes in a history. Each raises the version of the disk by one.
const WRITES: u8 = 2;
/// Number of starts of the domain in a history.
const STARTS: u32 = 2;
/// Version of an incomplete image.
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

/// Kind of definition that a start reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A definition, which names no image during the pivot.
    Libvirt,
    /// The name of the old image's file, which is renamed after the pivot.
    Plain,
}

/// Host with one disk, and the version of each file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Host {
    kind: Kind,
    acknowledged: u8,
    /// Versions of the old image under its own name, of the old image under its kept name, and of the target.
    from: Option<u8>,
    kept: Option<u8>,
    to: Option<u8>,
    /// Version of the target that would survive a crash of QEMU and a power loss: its tables may be in QEMU's memory.
    to_flushed: u8,
    guest: Guest,
    paused: bool,
    /// Number of starts of the domain.
    life: u32,
    names: Names,
    /// Definition after a power loss. Changes become durable with the next record of the intent, which is flushed after
    /// them.
    names_durable: Names,
    /// True if the intent is recent.
    recent: bool,
    /// True if the agent saw that its pivot was refused.
    refused: bool,
    /// True if an order to begin may still be carried out.
    may_begin: bool,
    intent: Option<Intent>,
    /// Next step of the agent, with the definition and the life of the domain at its look.
    about_to: Option<(Step, (Names, u32))>,
    /// True if the operator accepted the loss of writes.
    accepted: bool,
    /// Acknowledged version at the time when the operator chose the other image.
    given_up: Option<u8>,
    /// True after a power loss, or after another program has resumed the guest.
    strange: bool,
}

fn image(path: &str) -> Image {
    Image {
        at: ImageLocation::File(path.into()),
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
    fn seen(&self, now_s: u64) -> MoveObservation {
        let intent = self.intent.as_ref().unwrap();
        let on = |image: &Image, mirror| LiveDomain::On {
            image: Some(image.clone()),
            mirror,
            life: Some(self.life),
        };
        MoveObservation {
            failed: None,
            live: match self.guest {
                Guest::Off => LiveDomain::Off,
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

    /// Returns the definition as the platform's operations would see it.
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

    /// Renames the old image, so a start with it fails.
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

    /// Carries out the next step of the agent as far as possible. With `killed_at`, the agent is killed after this
    /// number of parts.
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
            Step::Define(DefinedImage::From) if self.kind == Kind::Plain => {
                if self.from.is_none() {
                    self.from = self.kept.take();
                }
            }
            Step::Define(_) if self.kind == Kind::Plain => self.block(),
            Step::Define(_) if self.names != looked => {}
            Step::Define(naming) => {
                self.names = match naming {
                    DefinedImage::Unsettled => Names::Unsettled,
                    DefinedImage::From => Names::From,
                    DefinedImage::To => Names::To,
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
            // The real operation checks first whether the file is in use.
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
            // The real operation checks first whether the file is in use.
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

    /// Returns the possible next events, with their names.
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
                    // The old image may have been renamed.
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
            // Not while the definition names no image: a power loss right after this pivot is not modelled. With plain
            // QEMU, a pivot by another program through QMP is not modelled either.
            if ready && self.names == Names::From && self.kind == Kind::Libvirt {
                event("somebody pivots", &|h| {
                    h.guest = Guest::To;
                    h.to_flushed = h.to.unwrap();
                    // libvirt changes the definition itself; its own gaps are not tested here.
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
            // Independent of the definition, and also with an incomplete copy.
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
                // If the valid image is known, the agent sets the definition again.
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

    /// Returns true if the new image is not recorded as valid, and the operator has not chosen an image.
    fn is_open(&self) -> bool {
        let phase = self.intent.as_ref().map(|i| &i.phase);
        let open = phase.is_some_and(|p| !matches!(p, Phase::Pivoted | Phase::Kept(_)));
        open && !self.accepted
    }

    /// Lets the guest continue with an image that may lack writes. The other image must stay.
    fn chosen(&mut self, version: u8) {
        self.accepted = true;
        self.given_up = Some(self.acknowledged).filter(|v| version != *v);
        self.acknowledged = version;
    }

    /// Starts the domain from its definition, if the image exists.
    fn start(&mut self) {
        let (of, guest) = match self.names {
            _ if self.kind == Kind::Plain => (self.from, Guest::From),
            Names::From => (self.from, Guest::From),
            Names::To => (self.to, Guest::To),
            Names::Unsettled => (None, Guest::Off),
        };
        let Some(version) = of else { return };
        // The agent was killed between the pivot and the renaming, and another program resumed the guest. Both images
        // stay, and the doubt is reported.
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
            self.given_up = None; // the guest uses it again
        }
        self.acknowledged = version;
        (self.guest, self.life) = (guest, self.life + 1);
    }

    /// Checks the invariants that must hold at every moment.
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

    /// Checks that the move ends without further events, and that a stopped domain can be started unless there is a
    /// doubt.
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
                    // The start script belongs to the operator, and the old image has been removed.
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
fn domain_does_not_start_from_a_stale_image_after_any_kill() {
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
    // All phases were reached, and doubts are rare.
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
