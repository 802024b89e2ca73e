//! Content of the map as plain data.

use std::fmt;

use model::{DeviceSpec, DirectIo, ExtentRanges, LeaseHolder};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, TierId, VolumeId};
use volume::{Location, MoveOrder, Purpose};

/// Random identifier of an array, chosen at its creation. Its devices carry it, so no device is mistaken for one of
/// another array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrayId(pub [u8; 16]);

impl fmt::Display for ArrayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Controller that took the lease on the array last. Renewals are not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    pub holder: LeaseHolder,
    /// Time from a renewal, or from a start of the array's server, to the end of the lease.
    pub lasting: Nanos,
}

/// Tier. The order of ids is the order of tiers, high end first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRecord {
    pub id: TierId,
    /// Unique name.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// Sparse file: slots that were never written read as zeroes.
    File,
    /// Block device. The content of its unused slots is unknown.
    Block,
    /// Export of an NBD server. The content of its unused slots is unknown.
    Nbd,
    /// The device is lost for good, with the extents that are still on it. Their volumes return errors there until they
    /// are trimmed. The record is removed with the last extent.
    Gone,
}

impl DeviceKind {
    /// Returns true if slots that were never written read as zeroes.
    pub fn begins_as_zeroes(self) -> bool {
        self == DeviceKind::File
    }

    /// Returns true if the device is at an NBD server.
    pub fn is_remote(self) -> bool {
        self == DeviceKind::Nbd
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRecord {
    pub id: DeviceId,
    /// Tier of the device.
    pub tier: TierId,
    /// Unique name.
    pub name: String,
    pub kind: DeviceKind,
    /// File, block device or NBD URI; unique.
    pub path: String,
    /// Capacity in extents.
    pub slots: u32,
    /// Mark below which slots may hold old bytes; slots from it on were never written. All slots, unless the device is
    /// a file.
    pub high_water: u32,
    /// Device whose speed is emulated, if any.
    pub emulate: Option<DeviceSpec>,
    /// Use of direct I/O, which bypasses the page cache; for a file or block device.
    pub direct: DirectIo,
}

/// Completeness of the map's records of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Whole,
    /// Records of the volume are lost, or contradict those of another volume. It must not be written to.
    Damaged,
}

/// Origin of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotOf {
    /// Original volume, which is no snapshot itself.
    pub volume: VolumeId,
    /// Position among the volume's snapshots, higher than that of every snapshot that existed when it was taken.
    pub sequence: u32,
    /// Time in seconds since 1970.
    pub taken_s: u64,
}

/// Source of an imported volume, until all its extents are copied. Extents that are not copied yet have places on
/// `device`, each in the slot of its own number. Nothing else has a place there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRecord {
    /// Device number that stands for the source in places. No device of the array and no other source has this number.
    pub device: DeviceId,
    /// File, block device or NBD URI.
    pub from: String,
    /// Format: `raw`, or the name that QEMU uses for a format of images.
    pub format: String,
    /// Properties at the start of the import. A source with other properties now is a different one.
    pub mark: SourceMark,
    /// Maximum rate of copies; 0 is no limit.
    pub bandwidth: BytesPerSec,
}

/// Properties that distinguish a source from another one, and from itself after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceMark {
    /// Number of bytes to import.
    pub size: Bytes,
    /// Size of the file, if the source is one. It differs from `size` if the image has a format.
    pub file_bytes: u64,
    /// Time of the last write to the file, in nanoseconds since 1970; 0 if the source is no file.
    pub modified_ns: i64,
    /// Inode number; 0 if the source is no file.
    pub inode: u64,
}

/// Usual and smallest logical block size of disks.
pub const LOGICAL_BLOCK_MIN: u32 = 512;

/// Largest logical block size that all kinds of guests support.
pub const LOGICAL_BLOCK_MAX: u32 = 4096;

/// Volume, or snapshot of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    pub id: VolumeId,
    /// Unique name.
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Tier for its next extents.
    pub home: TierId,
    /// Name of its service class.
    pub class: String,
    /// Sector size that its guests see, in bytes: a power of two from [`LOGICAL_BLOCK_MIN`] to [`LOGICAL_BLOCK_MAX`].
    pub logical_block: u32,
    /// Completeness of its records.
    pub health: Health,
    /// Origin and time, if this is a snapshot, which is never written to.
    pub snapshot: Option<SnapshotOf>,
    /// Source of the rest of its data during an import; never set for a snapshot.
    pub source: Option<SourceRecord>,
}

impl VolumeRecord {
    /// Returns true if a place is at the volume's source.
    pub fn is_at_source(&self, at: Location) -> bool {
        self.source.as_ref().is_some_and(|s| s.device == at.device)
    }

    /// Returns the volume that this is a snapshot of, or the volume itself. Volumes of one family may share slots.
    pub fn family(&self) -> VolumeId {
        self.snapshot.map_or(self.id, |of| of.volume)
    }

    /// Returns the number of extents for a given extent size.
    pub fn extents(&self, extent: Bytes) -> u64 {
        self.size.0.div_ceil(extent.0)
    }
}

/// Move in progress, of a volume or of some of its extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveRecord {
    pub volume: VolumeId,
    pub to: DeviceId,
    /// Maximum rate of its copies.
    pub bandwidth: BytesPerSec,
    /// Extents to move; `None` for all.
    pub extents: Option<ExtentRanges>,
}

impl MoveRecord {
    /// Returns the order that continues the move.
    pub fn order(&self) -> MoveOrder {
        MoveOrder {
            to: self.to,
            bandwidth: self.bandwidth,
            extents: self.extents.clone(),
            purpose: Purpose::Move,
        }
    }
}

/// State of one extent of a volume, damaged or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Never written, or trimmed: reads as zeroes.
    Hole,
    /// Has this place.
    At(Location),
    /// Has a place, but its record is corrupt and the place unknown. It must not be read as zeroes.
    Lost,
}
