//! Questions and answers, as plain data.

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
use crate::stages::record::Recorded;
use crate::worker::{SecondStatus, ShareOf, VolumeStatus, WarmUp};

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", remote = "Self")]
pub enum ControlRequest {
    Tiers,
    /// Hand the array to the process that asks: what follows is no line of JSON any more.
    TakeOver {
        /// Version of all that follows.
        format: u32,
    },
    /// A controller wants its orders to be carried out, and nobody else's, for a time.
    Claim {
        controller: LeaseHolder,
        /// Time until the lease ends unless it is claimed again.
        lasting: Nanos,
    },
    /// Everything as it is, with counters.
    Samples,
    /// How often the extents of a volume were touched, and where they are.
    Heat {
        /// Its name.
        volume: String,
        /// What an earlier answer said, for what was touched since; everything if left out.
        #[serde(default)]
        since: Option<HeatCursor>,
    },
    /// How the pages of a volume are used again: what a cache in front of it would miss.
    Reuse {
        /// Its name.
        volume: String,
    },
    /// A device for a tier; the tier is made if it is new.
    AddDevice(NewDevice),
    /// A device leaves the array. What is still on one that is lost is lost with it, if `accept_loss` says so.
    RemoveDevice {
        /// Its name.
        device: String,
        /// Whether what is on it may be lost for good.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_loss: bool,
    },
    /// A new device for the tier of one that is lost, which leaves the array.
    ReplaceDevice {
        /// The name of the one that is lost.
        device: String,
        /// The new one; its tier is that of the one that is lost.
        new: NewDevice,
        /// Whether what is on the lost one may be lost for good.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_loss: bool,
    },
    /// A device that is there and is not taken by itself is taken as it is: what was written to it and not flushed may be lost.
    AcceptDevice {
        /// Its name.
        device: String,
    },
    /// Whether I/O on a device is to pass the page cache by, from the next start of a server on.
    SetDirect {
        /// Its name.
        device: String,
        direct: DirectIo,
    },
    /// A tier that is empty leaves the array, with its devices.
    RemoveTier {
        tier: String,
    },
    /// The copies of the map.
    Copies,
    /// Where the second copy of the map is to be.
    SetSecondCopy {
        /// A directory, or nowhere.
        dir: Option<PathBuf>,
    },
    /// The map is written to a file.
    Backup {
        /// The file.
        path: PathBuf,
    },
    /// What the volumes of a tier share, by weight; `None` lifts a limit.
    TierLimits {
        tier: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
    },
    Volumes,
    /// One volume with its measurements.
    Show {
        /// Its name.
        volume: String,
    },
    /// A new volume.
    Create {
        /// Its name.
        volume: String,
        size: Bytes,
        /// The tier of its first extents.
        tier: String,
        /// Its service class; of none if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
    },
    /// Its data is gone for good.
    Delete {
        /// Its name.
        volume: String,
        /// Also while guests are connected, who are cut off. Not said unless it is so: servers from before do not know it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Make a volume of an image, a block device or an NBD export: guests may use it at once, what is not here yet is read from there.
    Import {
        /// Its name.
        volume: String,
        /// The file, the block device or the NBD URI.
        from: String,
        /// What it is: `raw`, or a format of images as QEMU calls it.
        format: Option<String>,
        /// Name of its home tier.
        tier: String,
        /// Name of its service class.
        class: Option<String>,
        /// The most that copies may take.
        bandwidth: Option<BytesPerSec>,
    },
    /// It is larger from now on, for guests that connect from now on.
    Resize {
        /// Its name.
        volume: String,
        /// Its size, which is not less than before.
        size: Bytes,
    },
    /// It has another name from now on.
    Rename {
        /// Its name.
        volume: String,
        /// The other one.
        to: String,
    },
    /// It has so much of the cache for itself, of that of the worker which it belongs to; until the server ends.
    ShareCache {
        /// Its name.
        volume: String,
        /// How much; none is what others share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Bytes>,
    },
    /// A class, or a volume, has such a share of each worker's cache from now on; until the server ends.
    SetCacheShare {
        /// Whose.
        of: ShareOf,
        /// 0 to 1, below 1; with 0 nothing of it is kept. None is what all others share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        share: Option<f64>,
    },
    /// The cache has a second level from now on, until the server ends; what another one had is forgotten.
    UseSecond {
        /// A directory, or an NBD URI; none is no second level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        /// Its size; all of an export if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Bytes>,
    },
    /// The cache has memory of a node as its second level from now on, for one volume, as the answer to a broken objective of this number. Where a person has
    /// ordered one, that stays.
    UseNode {
        /// The answer's number.
        answer: u64,
        /// The volume's name.
        volume: String,
        /// Whose memory it is, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<String>,
        /// An NBD URI.
        at: String,
        /// How much of it.
        size: Bytes,
        /// What it reads of the volume before its guests ask for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warm: Option<WarmUp>,
    },
    /// The second level ends, if it is that answer's.
    StopNode {
        /// The answer's number.
        answer: u64,
    },
    /// How the second level is.
    Second,
    /// It has so much of the cache for itself for a time, in place of what it was given by hand: an answer to a broken objective. What it was
    /// given by hand, before or meanwhile, it has again after that.
    LendCache {
        /// Its name.
        volume: String,
        /// How much; none ends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Bytes>,
        /// For so long, unless it is said again.
        lasting: Nanos,
    },
    /// It is kept as it is now, and shares its space with what is kept.
    TakeSnapshot {
        /// Its name.
        volume: String,
        /// The name of what is kept, behind `VOLUME@`.
        name: String,
    },
    /// A volume is made what it was when a snapshot was taken.
    RestoreSnapshot {
        /// The snapshot, as `VOLUME@NAME`.
        snapshot: String,
    },
    /// It does not change, and no guest can connect to it, for as long as this connection to the control socket lasts: for who reads all of it.
    Hold {
        /// Its name, or that of a snapshot, which does not change anyhow.
        volume: String,
    },
    /// What this connection held may change again. An error if it held nothing: an answer says that it was held all the time.
    Release,
    /// What may be made from now on, until the server ends: a live manager says it.
    Policy {
        /// The service classes that there are; any is taken if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        classes: Option<Vec<String>>,
        /// The sizes of all volumes together over the size of the array, at most; not bounded if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overcommit_max: Option<f64>,
    },
    /// What guests were promised, for moves to yield to; in place of all that was said before.
    Objectives {
        /// By class; volumes of other classes have none.
        objectives: Vec<ClassObjective>,
        /// For so long. After that moves are careful until it is said again.
        lasting: Nanos,
    },
    /// To another tier.
    Move {
        /// Its name.
        volume: String,
        /// The tier.
        to: String,
        /// The device of that tier; the one with most room if left out.
        #[serde(default)]
        device: Option<String>,
        /// At most so fast.
        bandwidth: BytesPerSec,
        /// The extents that move; all, and the volume's home with them, if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extents: Option<ExtentRanges>,
    },
    /// Second copies of extents on another tier, for reads; until something is in their way, the server ends, or they are given up.
    Mirror {
        /// Its name.
        volume: String,
        /// The tier.
        to: String,
        /// The device of that tier; the one with most room if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// The copy is made at most so fast.
        bandwidth: BytesPerSec,
        /// Which extents; all if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extents: Option<ExtentRanges>,
        /// For so long, unless it is said again: an answer to a broken objective. Until somebody gives them up, if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasting: Option<Nanos>,
    },
    /// Give its second copies up.
    StopMirror {
        /// Its name.
        volume: String,
        /// Only if they are kept for a time: a person's stay.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lent_only: bool,
    },
    /// To another service class.
    SetClass {
        /// Its name.
        volume: String,
        class: String,
    },
    /// Give its move up.
    CancelMove {
        /// Its name.
        volume: String,
    },
    /// To a stage of a volume, in the stage's own words.
    #[serde(skip)]
    Stage(Command),
}

// Beside what is derived: words of stages are theirs to write and to read.
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

/// A device to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDevice {
    pub tier: String,
    /// Where its bytes are.
    pub source: NewSource,
    /// How much of it to use; all of a block device or export if left out.
    pub size: Option<Bytes>,
    /// The device to behave like.
    pub emulate: Option<DeviceSpec>,
    /// Whether I/O on it passes the page cache by. Servers from before do not know it.
    #[serde(default)]
    pub direct: DirectIo,
    /// Format the device even if it holds data, which is then destroyed.
    pub force: bool,
    /// Allow devices in files to be larger together than their file system.
    pub thin: bool,
}

/// Where a new device's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewSource {
    /// A directory: a file in it.
    Dir(PathBuf),
    /// A block device.
    Block(PathBuf),
    /// An export of an NBD server.
    Nbd(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    pub name: String,
    /// Bytes that are taken.
    pub used: Bytes,
    pub size: Bytes,
    /// Sizes of the volumes whose home it is: what their guests may write, now or later.
    #[serde(default)]
    pub provisioned: Bytes,
    pub devices: Vec<DeviceInfo>,
    /// Requests per second that its volumes share.
    pub iops: Option<Iops>,
    /// Bytes per second that its volumes share.
    pub bandwidth: Option<BytesPerSec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub name: String,
    /// File, block device or URI.
    pub path: String,
    /// Bytes that are taken.
    pub used: Bytes,
    pub size: Bytes,
    /// Whether it behaves like another device.
    pub emulated: bool,
    /// What is wanted of direct I/O.
    #[serde(default)]
    pub direct: DirectIo,
    /// Whether it is from the next start on that it is used as wanted.
    #[serde(default)]
    pub direct_next: bool,
    /// Whether I/O passes the page cache by, and why; of a file or block device that is served.
    #[serde(default)]
    pub direct_now: Option<(bool, String)>,
    /// Why it cannot be used, if it cannot.
    #[serde(default)]
    pub lost: Option<String>,
}

/// A copy of the map as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInfo {
    /// `first` or `second`.
    pub copy: String,
    /// Its file.
    pub path: String,
    /// `current`, `rebuilding`, or `out of date`.
    pub state: String,
    /// Why it is out of date.
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Bytes that have a place.
    pub allocated: Bytes,
    /// Bytes by tier, high end first, those with any.
    pub tiers: Vec<(String, Bytes)>,
    /// The tier of its next extents.
    pub home: String,
    /// Service class; `default` is that of a volume which was given none.
    pub class: String,
    /// Bytes of the sectors that the guest sees.
    pub logical_block: u32,
    /// Whether its map is whole.
    pub healthy: bool,
    /// Whether it is served now.
    pub exported: bool,
    /// True while its worker does not respond. `exported` is unknown then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// The move that is under way, or waits to be resumed: the tier.
    pub moving_to: Option<String>,
    /// The extents that move, unless it is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_extents: Option<ExtentRanges>,
    /// Of which volume it is a snapshot, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotInfo>,
    /// Where the rest of it comes from, while it is imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportInfo>,
    /// What its worker knows, if it is served.
    pub status: Option<VolumeStatus>,
}

/// An import that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportInfo {
    /// The file, the block device or the NBD URI.
    pub from: String,
    /// What it is: `raw`, or a format of images as QEMU calls it.
    pub format: String,
    /// Bytes of extents that are read from there.
    pub left: Bytes,
    /// Why it does not go on, if so.
    pub problem: Option<String>,
    /// What is wrong with the source, though it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Content of the source that is not imported, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The volume.
    pub of: String,
    /// When it was taken, in seconds since 1970.
    pub taken_s: u64,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlAnswer {
    /// Done; what a person would like to read of it.
    Done {
        /// One line.
        message: String,
    },
    /// An import began.
    Importing {
        /// One line, for a person.
        message: String,
        /// Content of the source that is not imported, in words.
        more: Option<String>,
    },
    Tiers {
        /// High end first.
        tiers: Vec<TierInfo>,
        /// The sizes of all volumes together over the size of the array, at most; not bounded where nobody has said so.
        #[serde(default)]
        overcommit_max: Option<f64>,
    },
    /// The lease after a claim.
    Lease(LeaseStatus),
    /// Everything as it is.
    Samples(Samples),
    /// The extents of a volume.
    Heat(HeatSample),
    /// How its pages are used again.
    Reuse(ReuseSample),
    /// The second level of the cache.
    Second {
        /// Over all workers; none where there is none.
        status: Option<SecondStatus>,
    },
    /// The copies of the map.
    Copies {
        /// The first one first.
        copies: Vec<CopyInfo>,
        /// Commits of the map up to now.
        commits: u64,
        /// The generation of the membership.
        generation: u64,
        /// Why that is not certain, or not enough to go on with.
        unsettled: Option<String>,
    },
    Volumes {
        /// In order of creation.
        volumes: Vec<VolumeInfo>,
    },
    /// A recording.
    Recorded(Recorded),
    /// A volume that is held.
    Held {
        /// The export that it can be read by, and nothing else.
        export: String,
        /// Unix sockets that the server listens on, where that export is.
        sockets: Vec<PathBuf>,
    },
}

impl ControlAnswer {
    /// Done, and what a person would like to read of it.
    pub(crate) fn done(message: String) -> Self {
        ControlAnswer::Done { message }
    }
}
