//! What is written down of a move before anything is done about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stored::VolumeId;
use crate::{At, Image};

/// The form of [`Intent`] that this program writes.
pub const INTENT_FORM: u32 = 2;

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileId {
    /// Its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Which image it is, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageId {
    File(FileId),
    Volume(VolumeId),
}

impl From<FileId> for ImageId {
    fn from(file: FileId) -> Self {
        ImageId::File(file)
    }
}

/// A move of one disk, durable before its next step is taken: whoever finds it knows what may have happened, and what never can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// [`INTENT_FORM`].
    pub form: u32,
    /// The job that ordered it.
    pub job: u32,
    /// The volume's name when it was ordered.
    pub volume: String,
    /// The domain, for good.
    pub uuid: String,
    /// The disk's name in it.
    pub target: String,
    /// The device that it moves to, by its name.
    pub device: String,
    /// Where its data is until the pivot.
    pub from: Image,
    /// Where it is from then on.
    pub to: Image,
    /// A path that never has a file: what the definition names while nobody must start the domain.
    pub unsettled: String,
    /// What the old image is called afterwards, if it is a file or a volume.
    pub kept_as: Option<String>,
    /// How fast it may copy, at most.
    pub rate_bytes_per_s: u64,
    /// The host's life in which this was written: the kernel's name of its boot.
    pub boot: String,
    /// When this was written, in seconds of the wall clock.
    pub at_s: u64,
    /// The start of the domain in which it was ordered: what runs from the new image later, and not from a pivot, may run from a part of it.
    pub began: Option<u32>,
    /// Which start of the domain is to pivot, from when a pivot may have been ordered.
    pub life: Option<u32>,
    /// The old image: a volume from the beginning, a file from the pivot on.
    pub left: Option<ImageId>,
    /// The target, once it is known to be of this move.
    pub made: Option<ImageId>,
    /// Whether the target is a volume that the move creates; of a file it always does.
    pub creates: bool,
    /// Whether the guest is paused for it, or is about to be.
    pub held: bool,
    /// Whether it is to be given up, where that is still possible.
    pub cancel: bool,
    /// How far it is.
    pub phase: Phase,
}

/// How far a move is. Each phase says what can have happened on disk and to the domain, whoever was killed when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Phase {
    /// The copy was ordered, perhaps. `from` counts.
    Begun,
    /// The copy is under way. `from` counts.
    Copying,
    /// Both images have all that was acknowledged; the definition is about to name neither. No pivot was ordered: `from` counts.
    Blocking,
    /// The definition names neither image, the guest is held, and the pivot was ordered, perhaps: as long as nobody lets the guest go on, both have all
    /// that was acknowledged, and `from` has all that was flushed.
    Pivoting,
    /// Nobody can tell which image has all that was acknowledged: the domain ended in the middle of the pivot, and it is not known how long before, so
    /// that somebody may have let it go on.
    Doubtful,
    /// `to` counts; the definition and the old image's name are about to say so.
    Pivoted,
    /// It is being undone. `from` counts.
    GivingUp { why: String },
    /// The guest is where it should be, and a file that it does not use any more is kept.
    Kept(Kept),
}

/// A file that was left on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub path: String,
    pub file: Option<ImageId>,
    /// When it is removed, in seconds of the wall clock; none is never, by itself.
    pub until_s: Option<u64>,
    /// What the operator has to know of it; none of an old image that is kept for a while.
    pub doubt: Option<Doubt>,
}

/// What is not certain about a file that was left.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubt {
    /// What an operator has to know.
    pub what: String,
    /// Whether the guest may be running without something that it was told is written.
    pub stale: bool,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Begun => "begun",
            Phase::Copying => "copying",
            Phase::Blocking | Phase::Pivoting => "pivoting",
            Phase::Doubtful => "in doubt",
            Phase::Pivoted => "pivoted",
            Phase::GivingUp { .. } => "giving up",
            Phase::Kept(_) => "kept",
        })
    }
}

impl Intent {
    /// Of a disk of a domain, before anything is done; `unsettled` is a path that never has a file. What it is ordered for is added by who orders it.
    pub fn new(uuid: String, target: String, from: Image, to: Image, unsettled: String) -> Self {
        Self {
            form: INTENT_FORM,
            job: 0,
            volume: String::new(),
            device: String::new(),
            kept_as: None,
            rate_bytes_per_s: 1,
            boot: String::new(),
            at_s: 0,
            began: None,
            life: None,
            left: None,
            made: None,
            creates: false,
            held: false,
            cancel: false,
            phase: Phase::Begun,
            uuid,
            target,
            from,
            to,
            unsettled,
        }
    }

    /// Path of the old image, if it is a file or a volume, which a move renames and removes.
    pub fn source_path(&self) -> Option<&str> {
        let is_volume = matches!(self.left, Some(ImageId::Volume(_)));
        path_of(&self.from.at, is_volume)
    }

    /// Path of the new image, if it is a file or a volume, which a move creates and removes.
    pub fn target_path(&self) -> Option<&str> {
        let is_volume = matches!(self.made, Some(ImageId::Volume(_))) || self.creates;
        path_of(&self.to.at, is_volume)
    }

    /// Whether the guest's data is still on its way: else only files are left to be looked after.
    pub fn moves(&self) -> bool {
        !matches!(self.phase, Phase::Kept(_))
    }
}

fn path_of(at: &At, is_volume: bool) -> Option<&str> {
    at.file().or_else(|| at.device().filter(|_| is_volume))
}
