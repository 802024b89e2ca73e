//! Decision of the next step of a move.
//!
//! ```text
//!  Begun ─▶ Copying ─▶ Blocking ─▶ Pivoting ─▶ Pivoted ─▶ Kept ─▶ forgotten
//!    │         │           │        │  │ the domain ended at an unknown time
//!    └─────────┴─────┬─────┴────────┘  ▼
//!                GivingUp ─▶ forgotten Doubtful ─▶ Pivoted, or Kept
//!                              ▲▼ guest
//!           runs               │ paused from before the pivot until Pivoted is durable
//! ```
//!
//! The worst outcome of a move is a domain that starts from an image without all acknowledged writes. Up to the pivot
//! that is the new image: the guest's flushes reach the old image only, and tables of a qcow2 target may be in QEMU's
//! memory. From the pivot on it is the old image. The guest is therefore *paused* before the pivot is ordered, and
//! resumed when [`Phase::Pivoted`] is durable. Nothing is acknowledged in between: until then the old image has all
//! writes, and from then on the new one, which QEMU's pivot has flushed. During this time the *definition* (the
//! persistent one, which a start reads) names a path at which a file never exists. A start then fails with an error
//! that names this path.
//!
//! A doubt arises only if another program may have resumed the guest during this time, because the agent did not run for
//! some minutes or the host was restarted. An operator must resolve it.
//!
//! Plain QEMU opens the old image once more by its name during the pivot, so a start cannot be prevented before it. The
//! old image is renamed after the pivot and before the guest is resumed: until then the old image has all writes.
//!
//! The new image is considered complete only after a pivot. If a guest was started from it without a pivot, the old
//! image stays for inspection by an operator.
//!
//! A step is taken only on the state that was just read, and every step may be repeated. The intent is the only memory:
//! a restarted agent continues with the same function.

use super::{Doubt, ImageId, Intent, KeptFile, Phase};
use crate::{Domain, Image, Mirror};

/// Present state of the running domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LiveDomain {
    /// The state cannot be determined.
    Unknown,
    /// The domain does not run.
    Off,
    /// The domain runs, or is paused.
    On {
        /// Image of the disk; `None` if the domain has no such disk.
        image: Option<Image>,
        /// Block job on the disk.
        mirror: Option<Mirror>,
        /// Number that differs for each start of the domain.
        life: Option<u32>,
    },
}

/// Definition that a start would read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Definition {
    /// The definition cannot be read.
    Unknown,
    /// There is none: the domain is transient, or no longer exists.
    None,
    /// The path at which a file never exists.
    Unsettled,
    /// This image; `None` if the definition has no such disk.
    Names(Option<Image>),
}

impl LiveDomain {
    /// Derives the state from the XML of a running domain; `directory_of` returns the directory of a pool's volumes.
    pub fn of<'p>(
        domain: &Domain,
        target: &str,
        directory_of: impl Fn(&str) -> Option<&'p str>,
    ) -> Self {
        let disk = domain.disks.iter().find(|d| d.target == target);
        let image = disk.map(|d| d.image(directory_of));
        match image {
            Some(None) => LiveDomain::Unknown,
            image => LiveDomain::On {
                image: image.flatten(),
                mirror: disk.and_then(|d| d.mirror.clone()),
                life: domain.id,
            },
        }
    }
}

impl Definition {
    /// Derives the state from a domain's persistent definition.
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

/// State of a host for one move, just read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MoveObservation {
    /// Running domain.
    pub live: LiveDomain,
    /// Definition that a start would read.
    pub definition: Definition,
    /// Reason for which the copy has stopped, if the hypervisor reports it.
    pub failed: Option<String>,
    /// True if the guest runs. A pivot waits for a guest that another program has paused, because this move cannot hold
    /// that pause.
    pub runs: bool,
    /// True if the intent is so recent, in this boot of the host, that only its agent can have resumed or paused a held
    /// guest.
    pub recent: bool,
    /// True if a pivot of this agent was refused.
    pub refused: bool,
    /// Target, if it is an existing file or volume.
    pub target: Option<ImageId>,
    /// True if the old image exists under its own name.
    pub source_there: bool,
    /// True if a kept file exists, as far as is known.
    pub kept_there: bool,
    /// True if an unanswered order to begin can no longer be carried out.
    pub sure: bool,
    /// Seconds of the wall clock.
    pub now_s: u64,
    /// Seconds for which an old image is kept.
    pub keep_s: u64,
}

/// Image that a definition is to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefinedImage {
    /// The path at which a file never exists.
    Unsettled,
    /// The old image.
    From,
    /// The new image.
    To,
}

/// Step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Do nothing now.
    Wait,
    /// Record this phase in the intent, durably. With [`Phase::Pivoting`] the guest is recorded as held. Before
    /// [`Phase::Pivoted`] is recorded, the new image must be flushed.
    Note(Phase),
    /// Resume the guest, whose pause has no reason any more, and record it in the intent.
    Release,
    /// End the block job without a pivot, while the guest is held. QEMU 7.2.22 crashed in 21 of 36 cancels of a mirror
    /// with writes to both images while the guest wrote, and in none of 24 while it did not.
    Abort,
    /// Change the image in the definition.
    Define(DefinedImage),
    /// Pause the guest, as the intent records, and switch to the new image.
    Pivot,
    /// Remove the target's file. It belongs to this move, and no guest ever ran from it.
    RemoveTarget,
    /// Rename the old image's file to the name under which it is kept.
    RenameSource,
    /// Remove the kept file, whose time has expired, unless it is in use.
    RemoveKept,
    /// Remove the intent: the move has ended. The reason is set if the disk did not move.
    Forget(Option<String>),
}

/// Returns the next step.
pub fn next(intent: &Intent, seen: &MoveObservation) -> Step {
    if let Phase::Kept(kept) = &intent.phase {
        return match intent.held {
            true => Step::Release,
            false => keep(kept, seen),
        };
    }
    let look = Look { intent, seen };
    let known = seen.live != LiveDomain::Unknown && seen.definition != Definition::Unknown;
    // Resume a guest that need not be held, even if other facts are unknown.
    let mirrored = known && matches!(look.guest(), Guest::Mirrored { .. });
    let needed = match intent.phase {
        Phase::Pivoting => true,
        Phase::GivingUp { .. } => mirrored,
        // A start would use the old image.
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

fn keep(kept: &KeptFile, seen: &MoveObservation) -> Step {
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
    seen: &'a MoveObservation,
}

/// Running domain from the view of the move.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Guest {
    Off,
    /// Uses the old image, without a block job.
    OnFrom,
    /// Uses the old image, with our copy.
    Mirrored {
        ready: bool,
    },
    /// Uses the old image, with a block job of another program.
    OnFromBusy,
    /// Uses the new image.
    OnTo,
    /// Uses another image.
    Elsewhere,
}

impl Look<'_> {
    fn guest(&self) -> Guest {
        let LiveDomain::On { image, mirror, .. } = &self.seen.live else {
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

    /// Cancels the move with the hypervisor's reason, if it reports one.
    fn give_up_or(&self, otherwise: &str) -> Step {
        give_up(self.seen.failed.as_deref().unwrap_or(otherwise))
    }

    fn names(&self, image: &Image) -> bool {
        matches!(&self.seen.definition, Definition::Names(Some(i)) if i == image)
    }

    /// Returns true if the domain runs in this life.
    fn in_life(&self, of: Option<u32>) -> bool {
        matches!(self.seen.live, LiveDomain::On { life, .. } if life.is_some() && life == of)
    }

    /// Handles a guest on the new image without a recorded pivot.
    fn went_over(&self) -> Step {
        match self.in_life(self.intent.began) || self.in_life(self.intent.life) {
            true => Step::Note(Phase::Pivoted),
            false => self.started_early(),
        }
    }

    /// Handles a domain that was started, or would be started, from a possibly incomplete copy.
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
            Guest::Mirrored { .. } if ours => Step::Define(DefinedImage::Unsettled),
            Guest::Mirrored { .. } if self.seen.runs => Step::Note(Phase::Pivoting),
            Guest::Mirrored { .. } => Step::Wait,
            _ => self.without_pivot(),
        }
    }

    /// Handles a missing copy job before any pivot of ours.
    fn without_pivot(&self) -> Step {
        match self.guest() {
            // Another program may have ordered a pivot.
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
            // Prevent a start from the old image first.
            Guest::OnTo if same_life && self.names(&self.intent.from) => {
                Step::Define(DefinedImage::Unsettled)
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
            Guest::Off if self.names(&self.intent.from) => Step::Define(DefinedImage::Unsettled),
            Guest::Off | Guest::Elsewhere => Step::Note(Phase::Doubtful),
            // The domain still runs from the old image, so there was no pivot. If it was restarted from the old image,
            // no other program can have resumed it before.
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
        // A start from an export cannot be prevented in all cases, so it may not have been a choice of the operator.
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

    /// Keeps the old image and reports it; the guest uses the new one.
    fn keep_source(&self, why: &str, stale: bool) -> Step {
        // After its renaming, the old image's name does not stand for the definition any more.
        let renamed = self.intent.kept_as.is_some() && !self.seen.source_there;
        if self.seen.definition == Definition::Unsettled && !renamed {
            return Step::Define(DefinedImage::To);
        }
        let path = match self.seen.source_there {
            true => self.intent.source_path(),
            false => self.intent.kept_as.as_deref(),
        };
        match path {
            Some(path) => Step::Note(Phase::Kept(KeptFile {
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

    /// Keeps the new image and reports it; the guest uses the old one.
    fn left_behind(&self, why: &str, stale: bool) -> Step {
        self.keep_target(why, stale, None)
    }

    fn keep_target(&self, why: &str, stale: bool, until_s: Option<u64>) -> Step {
        if self.seen.definition == Definition::Unsettled {
            return Step::Define(DefinedImage::From);
        }
        match &self.intent.target_path() {
            Some(path) => Step::Note(Phase::Kept(KeptFile {
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
            return Step::Define(DefinedImage::To);
        }
        match &self.intent.kept_as {
            Some(_) if self.seen.source_there => Step::RenameSource,
            Some(path) => Step::Note(Phase::Kept(KeptFile {
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
            return Step::Define(DefinedImage::From);
        }
        match (&self.seen.target, &self.intent.made) {
            (None, _) => Step::Forget(Some(why.into())),
            // A pivot may have been ordered: an image from which a guest may have run is not removed at once.
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
