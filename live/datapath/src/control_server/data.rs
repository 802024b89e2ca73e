//! Requests and answers of the control socket, as plain data.

use std::path::PathBuf;

use model::{ClassObjective, DeviceSpec, DirectIo, ExtentRanges, LeaseHolder, LeaseStatus};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use units::{Bytes, BytesPerSec, Iops, Nanos};

use super::heat::{HeatCursor, HeatSample};
use super::reuse::ReuseSample;
use super::samples::Samples;
use crate::stages::Command;
use crate::stages::record::RecordingStatus;
use crate::worker::{SecondStatus, ShareOf, VolumeStatus, WarmUp};

/// Request on the control socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", remote = "Self")]
pub enum ControlRequest {
    Tiers,
    /// Hands the array over to the calling process. The protocol after this line is not JSON.
    TakeOver {
        /// Version of the take-over protocol.
        format: u32,
    },
    /// Claims the lease: only orders of this controller are carried out, for a limited time.
    Claim {
        controller: LeaseHolder,
        /// Time until the lease ends, unless it is claimed again.
        lasting: Nanos,
    },
    /// Returns the state and the counters of all volumes and devices.
    Samples,
    /// Returns the access counters of a volume's extents, and their places.
    Heat {
        volume: String,
        /// Cursor of an earlier answer, for changes since then; all extents if left out.
        #[serde(default)]
        since: Option<HeatCursor>,
    },
    /// Returns the reuse of a volume's pages, from which the miss ratio of a cache follows.
    Reuse {
        volume: String,
    },
    /// Adds a device to a tier; a new tier is created.
    AddDevice(NewDevice),
    /// Removes a device from the array. Data on a lost device is given up only with `accept_loss`.
    RemoveDevice {
        device: String,
        /// Permits the final loss of the data on the device.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_loss: bool,
    },
    /// Replaces a lost device by a new one in the same tier. The lost device is removed from the array.
    ReplaceDevice {
        /// Name of the lost device.
        device: String,
        /// New device; its tier is that of the lost one.
        new: NewDevice,
        /// Permits the final loss of the data on the lost device.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_loss: bool,
    },
    /// Accepts a device in its present state. It has returned, but is not used automatically, because unflushed writes to
    /// it may be lost.
    AcceptDevice {
        device: String,
    },
    /// Sets the use of direct I/O on a device, from the next start of the server.
    SetDirect {
        device: String,
        direct: DirectIo,
    },
    /// Removes an empty tier with its devices.
    RemoveTier {
        tier: String,
    },
    /// Lists the copies of the map.
    Copies,
    /// Sets the place of the second copy of the map.
    SetSecondCopy {
        /// Directory; none for no second copy.
        dir: Option<PathBuf>,
    },
    /// Writes the map to a file.
    Backup {
        /// File of the backup.
        path: PathBuf,
    },
    /// Sets limits that the volumes of a tier share by weight. `None` removes a limit.
    TierLimits {
        tier: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
    },
    Volumes,
    /// Returns one volume with its measurements.
    Show {
        volume: String,
    },
    /// Creates a volume.
    Create {
        volume: String,
        size: Bytes,
        /// Tier of its first extents.
        tier: String,
        /// Service class; none if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
    },
    /// Deletes a volume and its data.
    Delete {
        volume: String,
        /// Deletes the volume even if guests are connected, who are disconnected. Left out when false, because older
        /// servers do not know the key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Imports an image, a block device or an NBD export as a volume. Guests may use it at once: data that is not copied
    /// yet is read from the source.
    Import {
        volume: String,
        /// File, block device or NBD URI.
        from: String,
        /// Format: `raw`, or a name of an image format as in QEMU.
        format: Option<String>,
        /// Name of the home tier.
        tier: String,
        /// Name of the service class.
        class: Option<String>,
        /// Bandwidth limit of the copy.
        bandwidth: Option<BytesPerSec>,
    },
    /// Grows a volume. Guests that connect from now on see the new size.
    Resize {
        volume: String,
        /// New size; not smaller than before.
        size: Bytes,
    },
    /// Renames a volume.
    Rename {
        /// Present name.
        volume: String,
        /// New name.
        to: String,
    },
    /// Gives a volume a part of its worker's cache, until the server ends.
    ShareCache {
        volume: String,
        /// Size of the part; none for the common part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Bytes>,
    },
    /// Gives a class or a volume a share of each worker's cache, until the server ends.
    SetCacheShare {
        /// Owner of the share.
        of: ShareOf,
        /// Share from 0 to below 1; with 0, nothing is cached. None for the common part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        share: Option<f64>,
    },
    /// Adds an L2 cache until the server ends. It starts empty and replaces an earlier one.
    UseSecond {
        /// Directory or NBD URI; none for no L2 cache.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        /// Size; the whole export if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Bytes>,
    },
    /// Uses memory of a cache node as L2 cache for one volume, as a remedy for an SLO violation. An L2 cache that an
    /// operator has ordered takes precedence.
    UseNode {
        /// Number of the remedy.
        answer: u64,
        volume: String,
        /// Name of the cache node, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<String>,
        /// NBD URI of the memory.
        at: String,
        /// Size of the part to use.
        size: Bytes,
        /// Warm-up: data of the volume that is read in advance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warm: Option<WarmUp>,
    },
    /// Removes the L2 cache if it belongs to this remedy.
    StopNode {
        /// Number of the remedy.
        answer: u64,
    },
    /// Returns the state of the L2 cache.
    Second,
    /// Lends a volume a part of the cache for a limited time, as a remedy for an SLO violation. It replaces the part that
    /// an operator has set before or sets meanwhile. That part takes effect again afterwards.
    LendCache {
        volume: String,
        /// Size of the part; none ends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Bytes>,
        /// Time until the part ends, unless it is renewed.
        lasting: Nanos,
    },
    /// Takes a snapshot, which shares the space of unchanged extents with the volume.
    TakeSnapshot {
        volume: String,
        /// Name of the snapshot, after `VOLUME@`.
        name: String,
    },
    /// Restores a volume to the state of a snapshot.
    RestoreSnapshot {
        /// Snapshot, as `VOLUME@NAME`.
        snapshot: String,
    },
    /// Holds a volume for a reader of all its data: it does not change, and no guest can connect, as long as this
    /// connection to the control socket lasts.
    Hold {
        /// Name of a volume, or of a snapshot, which never changes.
        volume: String,
    },
    /// Releases the volume that this connection holds. Success confirms that the volume was held all the time; else it is
    /// an error.
    Release,
    /// Sets limits on new volumes, until the server ends. A live controller sends them.
    Policy {
        /// Known service classes; any class is accepted if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        classes: Option<Vec<String>>,
        /// Largest ratio of the total size of all volumes to the size of the array; no limit if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overcommit_max: Option<f64>,
    },
    /// Sets the latency objectives of guests, to which moves yield. Replaces all earlier ones.
    Objectives {
        /// Objectives by class; volumes of other classes have none.
        objectives: Vec<ClassObjective>,
        /// Time for which they are valid. Afterwards moves run carefully until the next message.
        lasting: Nanos,
    },
    /// Moves a volume to a tier.
    Move {
        volume: String,
        /// Target tier.
        to: String,
        /// Device of that tier; the one with the most space if left out.
        #[serde(default)]
        device: Option<String>,
        /// Bandwidth limit of the copy.
        bandwidth: BytesPerSec,
        /// Extents that move. If left out, all extents move, and the tier becomes the home of the volume.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extents: Option<ExtentRanges>,
    },
    /// Keeps second copies of extents on another tier, for reads. They last until an operation excludes them, the server
    /// ends, or an order stops them.
    Mirror {
        volume: String,
        /// Tier of the second copies.
        to: String,
        /// Device of that tier; the one with the most space if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Bandwidth limit of the copy.
        bandwidth: BytesPerSec,
        /// Extents; all if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extents: Option<ExtentRanges>,
        /// Time until the mirror ends, unless it is renewed: a remedy for an SLO violation. No time limit if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasting: Option<Nanos>,
    },
    /// Stops the mirror of a volume.
    StopMirror {
        volume: String,
        /// Stops only a mirror with a time limit; that of an operator stays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lent_only: bool,
    },
    /// Changes the service class of a volume.
    SetClass {
        volume: String,
        class: String,
    },
    /// Cancels the move of a volume.
    CancelMove {
        volume: String,
    },
    /// Command for a stage of a volume, in the format of the stage.
    #[serde(skip)]
    Stage(Command),
}

// Commands of stages have their own serialization, in addition to the derived one.
impl Serialize for ControlRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ControlRequest::Stage(command) => command.serialize(serializer),
            own => ControlRequest::serialize(own, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ControlRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        let ask = match Command::read(&request) {
            Some(command) => command.map(ControlRequest::Stage),
            None => ControlRequest::deserialize(request),
        };
        ask.map_err(D::Error::custom)
    }
}

/// Device to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDevice {
    pub tier: String,
    /// Place of its data.
    pub source: NewSource,
    /// Size to use; the whole block device or export if left out.
    pub size: Option<Bytes>,
    /// Device to emulate.
    pub emulate: Option<DeviceSpec>,
    /// Use of direct I/O. Older servers do not know this key.
    #[serde(default)]
    pub direct: DirectIo,
    /// Formats the device even if it holds data, which is then destroyed.
    pub force: bool,
    /// Permits devices in files that are larger in total than their file system.
    pub thin: bool,
}

/// Place of a new device's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewSource {
    /// File in this directory.
    Dir(PathBuf),
    /// Block device.
    Block(PathBuf),
    /// Export of an NBD server.
    Nbd(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    pub name: String,
    /// Allocated bytes.
    pub used: Bytes,
    pub size: Bytes,
    /// Total size of the volumes whose home this tier is: the space that their guests may use now or later.
    #[serde(default)]
    pub provisioned: Bytes,
    pub devices: Vec<DeviceInfo>,
    /// Limit of requests per second that its volumes share.
    pub iops: Option<Iops>,
    /// Limit of bytes per second that its volumes share.
    pub bandwidth: Option<BytesPerSec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub name: String,
    /// File, block device or URI.
    pub path: String,
    /// Allocated bytes.
    pub used: Bytes,
    pub size: Bytes,
    /// True if it emulates another device.
    pub emulated: bool,
    /// Configured use of direct I/O.
    #[serde(default)]
    pub direct: DirectIo,
    /// True if that setting takes effect at the next start.
    #[serde(default)]
    pub direct_next: bool,
    /// True if I/O bypasses the page cache now, and the reason; for files and block devices of a served array.
    #[serde(default)]
    pub direct_now: Option<(bool, String)>,
    /// Reason why the device is unusable.
    #[serde(default)]
    pub lost: Option<String>,
}

/// Copy of the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInfo {
    /// `first` or `second`.
    pub copy: String,
    /// File of the copy.
    pub path: String,
    /// `current`, `rebuilding`, or `out of date`.
    pub state: String,
    /// Reason why it is out of date.
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Bytes of the extents that have a place.
    pub allocated: Bytes,
    /// Bytes by tier, fastest first, for tiers with any.
    pub tiers: Vec<(String, Bytes)>,
    /// Tier of its next extents.
    pub home: String,
    /// Service class; `default` for a volume without one.
    pub class: String,
    /// Sector size that the guest sees, bytes.
    pub logical_block: u32,
    /// True if its map is complete.
    pub healthy: bool,
    /// True if it is served now.
    pub exported: bool,
    /// True while its worker does not respond. `exported` is unknown then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// Target tier of a move that is running or will be resumed.
    pub moving_to: Option<String>,
    /// Extents that move, unless all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_extents: Option<ExtentRanges>,
    /// Origin of a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotInfo>,
    /// State of an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportInfo>,
    /// State on its worker, if it is served.
    pub status: Option<VolumeStatus>,
}

/// Import in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportInfo {
    /// File, block device or NBD URI.
    pub from: String,
    /// Format: `raw`, or a name of an image format as in QEMU.
    pub format: String,
    /// Bytes of the extents that are still read from the source.
    pub left: Bytes,
    /// Reason why it does not progress.
    pub problem: Option<String>,
    /// Problem of the source that does not stop the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Content of the source that is not imported, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Name of the volume.
    pub of: String,
    /// Time of the snapshot, in seconds since 1970.
    pub taken_s: u64,
}

/// Answer on the control socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlAnswer {
    /// Success, with a message for people.
    Done {
        /// One line.
        message: String,
    },
    /// An import has started.
    Importing {
        /// One line for people.
        message: String,
        /// Content of the source that is not imported, in words.
        more: Option<String>,
    },
    Tiers {
        /// Tiers, fastest first.
        tiers: Vec<TierInfo>,
        /// Largest ratio of the total size of all volumes to the size of the array; none for no limit.
        #[serde(default)]
        overcommit_max: Option<f64>,
    },
    /// Lease after a claim.
    Lease(LeaseStatus),
    /// Measurements.
    Samples(Samples),
    /// Access counters of a volume's extents.
    Heat(HeatSample),
    /// Reuse of a volume's pages.
    Reuse(ReuseSample),
    /// State of the L2 cache.
    Second {
        /// Sum over all workers; none without an L2 cache.
        status: Option<SecondStatus>,
    },
    /// Copies of the map.
    Copies {
        /// First copy, then the second.
        copies: Vec<CopyInfo>,
        /// Number of commits of the map.
        commits: u64,
        /// Generation of the membership.
        generation: u64,
        /// Reason why the state of the map is uncertain, or too old to continue with.
        unsettled: Option<String>,
    },
    Volumes {
        /// Volumes in order of creation.
        volumes: Vec<VolumeInfo>,
    },
    /// Recording.
    Recorded(RecordingStatus),
    /// Held volume.
    Held {
        /// Name of the export for reading it.
        export: String,
        /// Unix sockets of the server with that export.
        sockets: Vec<PathBuf>,
    },
}

impl ControlAnswer {
    /// Creates an answer of success with a message for people.
    pub(crate) fn done(message: String) -> Self {
        ControlAnswer::Done { message }
    }
}
