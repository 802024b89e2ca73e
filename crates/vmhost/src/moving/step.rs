//! What a move does next.
//!
//! ```text
//!  Begun ─▶ Copying ─▶ Blocking ─▶ Pivoting ─▶ Pivoted ─▶ Kept ─▶ forgotten
//!    │         │           │        │  │ nobody knows for how long it did
//!    └─────────┴─────┬─────┴────────┘  ▼
//!                GivingUp ─▶ forgotten Doubtful ─▶ Pivoted, or Kept
//!                              ▲▼ guest
//!           runs               │ paused from before the pivot until Pivoted is durable
//! ```
//!
//! The worst that can happen to a moved disk is a domain that starts from an image that lacks what its guest was told is written. Up to the pivot
//! that is the new one: what the guest flushes is flushed to the old image only, and tables of a qcow2 target may be in QEMU's memory. From the
//! pivot on it is the old one. So the guest is *paused* before the pivot is ordered, and goes on when [`Phase::Pivoted`] is durable: in between nothing is
//! acknowledged, so until then the old image has everything, and from then on the new one, which QEMU's pivot has flushed. And the *definition*
//! (the persistent one, which a start reads) names a path that no file has in between, so that a start fails and says where to look.
//!
//! Only somebody who lets the guest go on meanwhile, beside an agent that is dead for long, makes a doubt: then a person has to look.
//!
//! Where a start cannot be made to fail before the pivot (plain QEMU, whose pivot opens the old image once more by its name), it is made to fail after
//! it and before the guest goes on: until then the old image has everything.
//!
//! The new image is taken for complete after a pivot only. A guest that runs from it without one, as it was started from it, leaves the old image where
//! it is, for a person to look at.
//!
//! A step is taken only on what was just seen, and every step may be taken twice. There is no memory but the intent: an agent that was
//! killed anywhere goes on with the same function.

use super::{Doubt, ImageId, Intent, Kept, Phase};
use crate::{Domain, Image, Mirror};

/// The running domain, as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Live {
    /// Nobody could say.
    Unknown,
    /// It does not run.
    Off,
    /// It runs, or is paused.
    On {
        /// The disk's image; none if it has no such disk.
        image: Option<Image>,
        /// The block job on it.
        mirror: Option<Mirror>,
        /// Another number for each time that it is started.
        life: Option<u32>,
    },
}

/// What a start would read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Definition {
    /// Nobody could say.
    Unknown,
    /// There is none: the domain is transient, or gone.
    None,
    /// The path that no file has.
    Unsettled,
    /// This image; none if it has no such disk.
    Names(Option<Image>),
}

impl Live {
    /// Of a domain's XML as it runs; `directory_of` says where a pool's volumes are.
    pub fn of<'p>(
        domain: &Domain,
        target: &str,
        directory_of: impl Fn(&str) -> Option<&'p str>,
    ) -> Self {
        let disk = domain.disks.iter().find(|d| d.target == target);
        let image = disk.map(|d| d.image(directory_of));
        match image {
            Some(None) => Live::Unknown,
            image => Live::On {
                image: image.flatten(),
                mirror: disk.and_then(|d| d.mirror.clone()),
                life: domain.id,
            },
        }
    }
}

impl Definition {
    /// Of a domain's definition.
    pub fn of<'p>(
        domain: &Domain,
        intent: &Intent,
        directory_of: impl Fn(&str) -> Option<&'p str>,
    ) -> Self {
        let disk = domain.disks.iter().find(|d| d.target == intent.target);
        match disk.map(|d| d.image(directory_of)) {
            None => Definition::Names(None),
            Some(None) => Definition::Unknown,
            Some(Some(image)) if image.at.file() == Some(&intent.unsettled) => {
                Definition::Unsettled
            }
            Some(image) => Definition::Names(image),
        }
    }
}

/// A host as far as a move is concerned, just looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The running domain.
    pub live: Live,
    /// What a start would read.
    pub definition: Definition,
    /// Why the copy does not go on by itself, where the hypervisor says so.
    pub failed: Option<String>,
    /// Whether the guest runs: a pivot waits for one that others have paused, and cannot be held.
    pub runs: bool,
    /// Whether the intent was written so short a time ago, in this life of the host, that nobody but its agent has had to do with a guest that is held.
    pub recent: bool,
    /// Whether a pivot was ordered by this agent, and did not come to pass.
    pub refused: bool,
    /// The target, if it is a file or a volume and there.
    pub target: Option<ImageId>,
    /// Whether the old image is there under its own name.
    pub source_there: bool,
    /// Whether a kept file is there, as far as is known.
    pub kept_there: bool,
    /// Whether an order to begin that was not answered cannot be carried out any more.
    pub sure: bool,
    /// Seconds of the wall clock.
    pub now_s: u64,
    /// For how long an old image is kept.
    pub keep_s: u64,
}

/// What a definition is to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// The path that no file has.
    Unsettled,
    /// The old image.
    From,
    /// The new one.
    To,
}

/// One step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing to do now.
    Wait,
    /// The intent is to say this, durably. With [`Phase::Pivoting`] it says that the guest is held. Before it says [`Phase::Pivoted`] the new image is
    /// to be flushed.
    Note(Phase),
    /// The guest was held for something that is over: it is to go on, and the intent to say so.
    Release,
    /// The block job is to end without a pivot, while the guest is held: QEMU 7.2.22 crashed in 21 of 36 cancels of a mirror with writes to both
    /// ends while the guest wrote, and in none of 24 while it did not.
    Abort,
    /// The definition is to name something else.
    Define(Naming),
    /// The guest is to be paused, as the intent says, and to go over to the new image.
    Pivot,
    /// The target's file is to be removed; it is of this move, and nobody ever ran from it.
    RemoveTarget,
    /// The old image's file is to get the name under which it is kept.
    RenameSource,
    /// The kept file is to be removed, if nobody uses it: its time is over.
    RemoveKept,
    /// The intent is to be removed: it is over. Why, if the disk did not move.
    Forget(Option<String>),
}

/// The next step.
pub fn next(intent: &Intent, seen: &Seen) -> Step {
    if let Phase::Kept(kept) = &intent.phase {
        return match intent.held {
            true => Step::Release,
            false => keep(kept, seen),
        };
    }
    let look = Look { intent, seen };
    let known = seen.live != Live::Unknown && seen.definition != Definition::Unknown;
    // A guest that need not be held is not, whatever else is known.
    let mirrored = known && matches!(look.guest(), Guest::Mirrored { .. });
    let needed = match intent.phase {
        Phase::Pivoting => true,
        Phase::GivingUp { .. } => mirrored,
        // A start would find the old image.
        Phase::Pivoted => known && look.names(&intent.from),
        _ => false,
    };
    if intent.held && !needed {
        return Step::Release;
    }
    if !known {
        return Step::Wait;
    }
    match &intent.phase {
        Phase::Begun => look.begun(),
        Phase::Copying => look.copying(),
        Phase::Blocking => look.blocking(),
        Phase::Pivoting => look.pivoting(),
        Phase::Doubtful => look.doubtful(),
        Phase::Pivoted => look.pivoted(),
        Phase::GivingUp { why } => look.giving_up(why),
        Phase::Kept(_) => Step::Wait,
    }
}

fn keep(kept: &Kept, seen: &Seen) -> Step {
    match kept.until_s {
        _ if !seen.kept_there => Step::Forget(None),
        Some(until) if seen.now_s >= until => Step::RemoveKept,
        _ => Step::Wait,
    }
}

fn give_up(why: &str) -> Step {
    Step::Note(Phase::GivingUp { why: why.into() })
}

struct Look<'a> {
    intent: &'a Intent,
    seen: &'a Seen,
}

/// The running domain as the move sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Guest {
    Off,
    /// On the old image, without a block job.
    OnFrom,
    /// On the old image, with our copy.
    Mirrored {
        ready: bool,
    },
    /// On the old image, with somebody else's block job.
    OnFromBusy,
    /// On the new image.
    OnTo,
    /// On another one.
    Elsewhere,
}

impl Look<'_> {
    fn guest(&self) -> Guest {
        let Live::On { image, mirror, .. } = &self.seen.live else {
            return Guest::Off;
        };
        let on = |of: &Image| image.as_ref() == Some(of);
        match mirror {
            _ if on(&self.intent.to) => Guest::OnTo,
            _ if !on(&self.intent.from) => Guest::Elsewhere,
            None => Guest::OnFrom,
            Some(m) if m.to.as_ref() == Some(&self.intent.to) => Guest::Mirrored { ready: m.ready },
            Some(_) => Guest::OnFromBusy,
        }
    }

    /// For the hypervisor's reason, if it has one.
    fn give_up_or(&self, otherwise: &str) -> Step {
        give_up(self.seen.failed.as_deref().unwrap_or(otherwise))
    }

    fn names(&self, image: &Image) -> bool {
        matches!(&self.seen.definition, Definition::Names(Some(i)) if i == image)
    }

    /// Whether the domain runs in a start of it that is known.
    fn in_life(&self, of: Option<u32>) -> bool {
        matches!(self.seen.live, Live::On { life, .. } if life.is_some() && life == of)
    }

    /// The guest has the new image, and it is not written down that it went over.
    fn went_over(&self) -> Step {
        match self.in_life(self.intent.began) || self.in_life(self.intent.life) {
            true => Step::Note(Phase::Pivoted),
            false => self.started_early(),
        }
    }

    /// The domain was, or would be, started from what may be a part of its image.
    fn started_early(&self) -> Step {
        self.keep_source(
            "the domain was started from its new image, or is defined with it, and the copy may be incomplete: this file is the old image",
            true,
        )
    }

    fn begun(&self) -> Step {
        match self.guest() {
            Guest::Mirrored { .. } => Step::Note(Phase::Copying),
            Guest::OnTo => self.went_over(),
            _ if !self.seen.sure => Step::Wait,
            _ => self.give_up_or("the copy did not start"),
        }
    }

    fn copying(&self) -> Step {
        match self.guest() {
            Guest::Mirrored { .. } if self.intent.cancel => give_up("cancelled"),
            Guest::Mirrored { .. } if self.seen.failed.is_some() => {
                self.give_up_or("the copy failed")
            }
            Guest::Mirrored { ready: true } if self.seen.runs => Step::Note(Phase::Blocking),
            Guest::Mirrored { .. } => Step::Wait,
            _ => self.without_pivot(),
        }
    }

    fn blocking(&self) -> Step {
        let ours = self.names(&self.intent.from) || self.names(&self.intent.to);
        match self.guest() {
            Guest::Mirrored { .. } if self.intent.cancel => give_up("cancelled"),
            Guest::Mirrored { .. } if self.seen.failed.is_some() => {
                self.give_up_or("the copy failed")
            }
            Guest::Mirrored { .. } if ours => Step::Define(Naming::Unsettled),
            Guest::Mirrored { .. } if self.seen.runs => Step::Note(Phase::Pivoting),
            Guest::Mirrored { .. } => Step::Wait,
            _ => self.without_pivot(),
        }
    }

    /// The copy is gone, and no pivot of ours was ordered.
    fn without_pivot(&self) -> Step {
        match self.guest() {
            // Somebody else may have ordered one.
            Guest::OnTo => self.went_over(),
            Guest::Off if self.names(&self.intent.to) => self.started_early(),
            Guest::Off => give_up("the domain ended before the pivot"),
            Guest::OnFromBusy => give_up("another program has started a block job on the disk"),
            Guest::Elsewhere => give_up("the disk has another image than at the time of the order"),
            Guest::OnFrom | Guest::Mirrored { .. } => self.give_up_or(
                "the copy ended before it was complete: the target failed or was full, or another program cancelled the copy",
            ),
        }
    }

    fn pivoting(&self) -> Step {
        let same_life = self.in_life(self.intent.life);
        match self.guest() {
            // No start from the old image may come in between.
            Guest::OnTo if same_life && self.names(&self.intent.from) => {
                Step::Define(Naming::Unsettled)
            }
            Guest::OnTo => self.went_over(),
            Guest::Mirrored { .. } if self.seen.refused => give_up("QEMU rejected the pivot"),
            Guest::Mirrored { ready: true } => Step::Pivot,
            Guest::Mirrored { ready: false } if self.seen.failed.is_some() => {
                self.give_up_or("the copy failed")
            }
            Guest::Mirrored { ready: false } => Step::Wait,
            Guest::Off if self.names(&self.intent.to) => self.started_early(),
            Guest::Off if self.seen.recent => give_up("the domain ended before the pivot"),
            Guest::Off if self.names(&self.intent.from) => Step::Define(Naming::Unsettled),
            Guest::Off | Guest::Elsewhere => Step::Note(Phase::Doubtful),
            // It runs on, and on the old image: there was no pivot.
            // It was started from it again, and there was nobody who could have let it go on before.
            Guest::OnFrom | Guest::OnFromBusy if same_life || self.seen.recent => {
                self.give_up_or("the copy ended before the pivot: the target failed or was full, or another program cancelled the copy")
            }
            Guest::OnFrom | Guest::OnFromBusy => self.left_behind(
                "the domain ended during the pivot, and was started from the old image: writes after the pivot, if it took place, are only in this file",
                true,
            ),
        }
    }

    fn doubtful(&self) -> Step {
        let (from, to) = (&self.intent.from, &self.intent.to);
        let chosen = "the other image was chosen after a pivot with unknown result";
        // A start from an export cannot be made to fail everywhere, so it need not have been a choice.
        let stale = self.intent.kept_as.is_none();
        match self.guest() {
            Guest::OnTo => self.keep_source(chosen, stale),
            Guest::Off if self.names(to) => self.keep_source(chosen, stale),
            Guest::OnFrom | Guest::OnFromBusy | Guest::Mirrored { .. } => {
                self.left_behind(chosen, stale)
            }
            Guest::Off if self.names(from) => self.left_behind(chosen, stale),
            Guest::Off | Guest::Elsewhere => Step::Wait,
        }
    }

    /// The old image stays, and is shown; the new one is what the guest has.
    fn keep_source(&self, why: &str, stale: bool) -> Step {
        // A name that the old image has lost stands for no definition any more.
        let renamed = self.intent.kept_as.is_some() && !self.seen.source_there;
        if self.seen.definition == Definition::Unsettled && !renamed {
            return Step::Define(Naming::To);
        }
        let path = match self.seen.source_there {
            true => self.intent.source_path(),
            false => self.intent.kept_as.as_deref(),
        };
        match path {
            Some(path) => Step::Note(Phase::Kept(Kept {
                path: path.into(),
                file: self.intent.left.clone(),
                until_s: None,
                doubt: Some(Doubt {
                    what: why.into(),
                    stale,
                }),
            })),
            None => Step::Forget(Some(why.into())),
        }
    }

    /// The new image stays, and is shown; the old one is what the guest has.
    fn left_behind(&self, why: &str, stale: bool) -> Step {
        self.keep_target(why, stale, None)
    }

    fn keep_target(&self, why: &str, stale: bool, until_s: Option<u64>) -> Step {
        if self.seen.definition == Definition::Unsettled {
            return Step::Define(Naming::From);
        }
        match &self.intent.target_path() {
            Some(path) => Step::Note(Phase::Kept(Kept {
                path: (*path).into(),
                file: self.seen.target.clone(),
                until_s,
                doubt: Some(Doubt {
                    what: why.into(),
                    stale,
                }),
            })),
            None => Step::Forget(Some(why.into())),
        }
    }

    fn pivoted(&self) -> Step {
        let stale = self.names(&self.intent.from) || self.seen.definition == Definition::Unsettled;
        match self.guest() {
            Guest::OnFrom | Guest::OnFromBusy | Guest::Mirrored { .. } => {
                return self.left_behind(
                    "the domain was started from the old image after the pivot: writes after the pivot are only in this file",
                    true,
                );
            }
            Guest::Off | Guest::OnTo | Guest::Elsewhere => {}
        }
        if stale {
            return Step::Define(Naming::To);
        }
        match &self.intent.kept_as {
            Some(_) if self.seen.source_there => Step::RenameSource,
            Some(path) => Step::Note(Phase::Kept(Kept {
                path: path.clone(),
                file: self.intent.left.clone(),
                until_s: Some(self.seen.now_s.saturating_add(self.seen.keep_s)),
                doubt: None,
            })),
            None => Step::Forget(None),
        }
    }

    fn giving_up(&self, why: &str) -> Step {
        match self.guest() {
            Guest::Mirrored { .. } => return Step::Abort,
            Guest::OnTo => return self.went_over(),
            Guest::Off if self.names(&self.intent.to) => return self.started_early(),
            Guest::Off | Guest::OnFrom | Guest::OnFromBusy | Guest::Elsewhere => {}
        }
        if self.seen.definition == Definition::Unsettled {
            return Step::Define(Naming::From);
        }
        match (&self.seen.target, &self.intent.made) {
            (None, _) => Step::Forget(Some(why.into())),
            // A pivot may have been ordered: nothing that a guest may have run from is removed at once.
            (Some(_), _) if self.intent.life.is_some() => self.keep_target(
                &format!("{why}; as far as known, the domain has never used this file"),
                false,
                Some(self.seen.now_s.saturating_add(self.seen.keep_s)),
            ),
            (Some(there), Some(made)) if there == made => Step::RemoveTarget,
            (Some(_), _) => self.left_behind(
                &format!("{why}; this file may not belong to that move, so it was not removed"),
                false,
            ),
        }
    }
}
