//! Intent of a move, which is recorded before each step.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stored::VolumeId;
use crate::{Image, ImageLocation};

/// Version of the form of [`Intent`].
pub const INTENT_FORM: u32 = 2;

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileId {
    /// Device number of its file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Identity of an image, independent of its name.
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

/// Move of one disk, durable before its next step is taken. A restarted agent can determine from it which steps may
/// have been taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Version of the form: [`INTENT_FORM`].
    pub form: u32,
    /// Job that ordered the move.
    pub job: u32,
    /// Name of the volume at the time of the order.
    pub volume: String,
    /// Permanent identifier of the domain.
    pub uuid: String,
    /// Name of the disk in the domain.
    pub target: String,
    /// Name of the target device.
    pub device: String,
    /// Image of the disk until the pivot.
    pub from: Image,
    /// Image of the disk after the pivot.
    pub to: Image,
    /// Path at which a file never exists: the definition names it while the domain must not be started.
    pub unsettled: String,
    /// New name of the old image after the move, if the image is a file or a volume.
    pub kept_as: Option<String>,
    /// Highest rate of the copy.
    pub rate_bytes_per_s: u64,
    /// Boot ID of the host at the time of this record.
    pub boot: String,
    /// Time of this record in seconds of the wall clock.
    pub at_s: u64,
    /// Life of the domain at the time of the order. A domain that runs from the new image in another life, and not
    /// after a pivot, may have been started from an incomplete copy.
    pub began: Option<u32>,
    /// Life of the domain that is to pivot, from the time at which a pivot may have been ordered.
    pub life: Option<u32>,
    /// Identity of the old image: of a volume from the beginning, of a file from the pivot on.
    pub left: Option<ImageId>,
    /// Identity of the target, once it is known to belong to this move.
    pub made: Option<ImageId>,
    /// True if the target is a volume that the move creates. Files are always created.
    pub creates: bool,
    /// True if the guest is paused for the move, or is about to be.
    pub held: bool,
    /// True if the move is to be cancelled, if that is still possible.
    pub cancel: bool,
    /// Progress of the move.
    pub phase: Phase,
}

/// Phase of a move. Each phase states the possible states of disks and domain, whichever process was killed at any
/// time. The *valid* image is the one that has all acknowledged writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Phase {
    /// The copy may have been ordered. `from` is valid.
    Begun,
    /// The copy is in progress. `from` is valid.
    Copying,
    /// Both images have all acknowledged writes, and the definition is about to name neither. No pivot was ordered:
    /// `from` is valid.
    Blocking,
    /// The definition names neither image, the guest is paused, and the pivot may have been ordered. While the guest
    /// stays paused, both images have all acknowledged writes, and `from` has all flushed writes.
    Pivoting,
    /// It is unknown which image has all acknowledged writes: the domain ended during the pivot at an unknown time, so
    /// another program may have resumed it before.
    Doubtful,
    /// `to` is valid. The definition and the name of the old image are about to be changed accordingly.
    Pivoted,
    /// The move is being cancelled. `from` is valid.
    GivingUp { why: String },
    /// The guest uses the right image, and a file that it no longer uses is kept.
    Kept(KeptFile),
}

/// File that was kept intentionally.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    pub path: String,
    pub file: Option<ImageId>,
    /// Time of its removal in seconds of the wall clock; `None` if it is not removed automatically.
    pub until_s: Option<u64>,
    /// Doubt for the operator; `None` for an old image that is kept for a while.
    pub doubt: Option<Doubt>,
}

/// Doubt about a kept file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubt {
    /// Message for the operator.
    pub what: String,
    /// True if the guest may run without acknowledged writes.
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
    /// Creates the intent for a disk of a domain, before any step. `unsettled` is a path at which a file never exists.
    /// The caller adds the data of the order.
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

    /// Returns the path of the old image if it is a file or a volume, which a move renames and removes.
    pub fn source_path(&self) -> Option<&str> {
        let is_volume = matches!(self.left, Some(ImageId::Volume(_)));
        path_of(&self.from.at, is_volume)
    }

    /// Returns the path of the new image if it is a file or a volume, which a move creates and removes.
    pub fn target_path(&self) -> Option<&str> {
        let is_volume = matches!(self.made, Some(ImageId::Volume(_))) || self.creates;
        path_of(&self.to.at, is_volume)
    }

    /// Returns true until the guest uses the right image. Afterwards only kept files remain.
    pub fn moves(&self) -> bool {
        !matches!(self.phase, Phase::Kept(_))
    }
}

fn path_of(at: &ImageLocation, is_volume: bool) -> Option<&str> {
    at.file().or_else(|| at.device().filter(|_| is_volume))
}
