//! What the map knows, as plain data.

use std::fmt;

use model::{DeviceSpec, DirectIo, ExtentRanges, LeaseHolder};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, TierId, VolumeId};
use volume::{Location, MoveOrder, Purpose};

/// Names an array; its devices carry it, so that none is taken for another's. Chosen at random by whoever creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrayId(pub [u8; 16]);

impl fmt::Display for ArrayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The controller that took the lease on the array last. A renewal is not written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    pub holder: LeaseHolder,
    /// Time from a renewal, or from a start of the array's server, to the end of the lease.
    pub lasting: Nanos,
}

/// A tier. The order of ids is the order of tiers, high end first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRecord {
    pub id: TierId,
    /// Unique name.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A file, sparse: what was never written reads as zeroes.
    File,
    /// A block device; what is on its unused slots is not known.
    Block,
    /// An export of an NBD server; what is on its unused slots is not known.
    Nbd,
    /// It is lost for good, and extents that are still there with it. Their volumes answer with errors there until they
    /// are trimmed; the record goes with the last of them.
    Gone,
}

impl DeviceKind {
    /// Whether slots that were never written read as zeroes.
    pub fn begins_as_zeroes(self) -> bool {
        self == DeviceKind::File
    }

    /// Whether an NBD server has it.
    pub fn is_remote(self) -> bool {
        self == DeviceKind::Nbd
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRecord {
    pub id: DeviceId,
    /// The tier that it belongs to.
    pub tier: TierId,
    /// Unique name.
    pub name: String,
    pub kind: DeviceKind,
    /// The file, the block device or the NBD URI; unique.
    pub path: String,
    /// Number of extents that it has room for.
    pub slots: u32,
    /// Slots below this may hold old bytes; those from it on were never written. All slots, unless it is a file.
    pub high_water: u32,
    /// The device that this one is to behave like, if it is not to be as fast as it is.
    pub emulate: Option<DeviceSpec>,
    /// Whether I/O on it passes the page cache by; of a file or block device.
    pub direct: DirectIo,
}

/// Whether the map knows everything about a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Whole,
    /// Records of it were lost, or contradict those of another volume: it must not be written to.
    Damaged,
}

/// What a snapshot was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotOf {
    /// The volume, which is no snapshot itself.
    pub volume: VolumeId,
    /// Its place among the volume's snapshots: higher than that of all that were there when it was taken.
    pub sequence: u32,
    /// When, in seconds since 1970.
    pub taken_s: u64,
}

/// Where a volume is imported from, while some of its extents are not there yet. Those have places on `device`, each in the slot of its own
/// number, and nothing else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRecord {
    /// Stands for the source in places. No device of the array has this number, nor has the source of another volume.
    pub device: DeviceId,
    /// The file, the block device or the NBD URI.
    pub from: String,
    /// What it is: `raw`, or a format of images as QEMU calls it.
    pub format: String,
    /// What it looked like when the import began: one that looks different now is another one.
    pub mark: SourceMark,
    /// The most that copies may take; 0 is no limit.
    pub bandwidth: BytesPerSec,
}

/// What tells a source from another one, or from itself after somebody has written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceMark {
    /// Bytes that are imported.
    pub size: Bytes,
    /// Bytes of the file, where it is one; they differ from `size` where the image has a format.
    pub file_bytes: u64,
    /// When the file was last written to, in nanoseconds since 1970; 0 where it is none.
    pub modified_ns: i64,
    /// Number of its inode; 0 where it is none.
    pub inode: u64,
}

/// The usual logical block size of disks, and the smallest.
pub const LOGICAL_BLOCK_MIN: u32 = 512;

/// The largest logical block size that guests of all kinds know.
pub const LOGICAL_BLOCK_MAX: u32 = 4096;

/// A volume, or a snapshot of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    pub id: VolumeId,
    /// Unique name.
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// The tier in which its next extents are placed.
    pub home: TierId,
    /// Name of its service class.
    pub class: String,
    /// Bytes of the sectors that its guests see: a power of two from [`LOGICAL_BLOCK_MIN`] to
    /// [`LOGICAL_BLOCK_MAX`].
    pub logical_block: u32,
    /// Whether the map knows everything about it.
    pub health: Health,
    /// Of what, and since when, if it is a snapshot: nobody writes to it then.
    pub snapshot: Option<SnapshotOf>,
    /// Where the rest of it is to come from, while it is imported; never of a snapshot.
    pub source: Option<SourceRecord>,
}

impl VolumeRecord {
    /// Whether a place is one at the volume's source.
    pub fn is_at_source(&self, at: Location) -> bool {
        self.source.as_ref().is_some_and(|s| s.device == at.device)
    }

    /// The volume that it is a snapshot of, or itself. Volumes of one family may share slots.
    pub fn family(&self) -> VolumeId {
        self.snapshot.map_or(self.id, |of| of.volume)
    }

    /// Number of extents of a given size that it has.
    pub fn extents(&self, extent: Bytes) -> u64 {
        self.size.0.div_ceil(extent.0)
    }
}

/// A move of a volume, or of some of its extents, that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveRecord {
    pub volume: VolumeId,
    pub to: DeviceId,
    /// The most that its copies may take.
    pub bandwidth: BytesPerSec,
    /// The extents that move; `None` is all of them.
    pub extents: Option<ExtentRanges>,
}

impl MoveRecord {
    /// To go on with it.
    pub fn order(&self) -> MoveOrder {
        MoveOrder {
            to: self.to,
            bandwidth: self.bandwidth,
            extents: self.extents.clone(),
            purpose: Purpose::Move,
        }
    }
}

/// What the map says about one extent of a volume, damaged or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It was never written, or trimmed: it reads as zeroes.
    Hole,
    /// It has a place.
    At(Location),
    /// Its record is corrupt: it has a place, which is not known. Reading it as zeroes would be a lie.
    Lost,
}
