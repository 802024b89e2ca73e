//! How everything is at one moment: for who asks again and again, and looks at the differences.

use std::borrow::Cow;

use model::{DeviceSpec, ExtentRanges};
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

use crate::stages::throttle::Throttled;
use crate::stages::{DeviceStagesSample, StagesSample};
use crate::worker::{CacheSample, LastMove, Mirroring, SecondStatus};

/// The tiers, devices and volumes of an array as they are, with counters that only grow while the server runs.
///
/// Counters are read within a few milliseconds after `at_ns`. Those of a device and of the volumes on it are not of the
/// very same moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// When this was asked, in nanoseconds of the server's monotonic clock.
    pub at_ns: u64,
    /// Size of an extent.
    pub extent: Bytes,
    /// Names of the tiers, high end first.
    pub tiers: Vec<String>,
    /// Sizes of the volumes whose home each tier is, in the order of the tiers; empty from a server that does not say.
    #[serde(default)]
    pub provisioned: Vec<Bytes>,
    /// Devices in order of their numbers.
    pub devices: Vec<DeviceSample>,
    /// Volumes in order of creation.
    pub volumes: Vec<VolumeSample>,
    /// What is wrong, most urgent first.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Processor time that workers have spent with looking for requests instead of sleeping, since the server was started; unknown while a worker is
    /// stalled.
    #[serde(default)]
    pub looked: Option<Nanos>,
    /// The second level of the cache, if it has or had one; unknown while a worker is stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Box<SecondStatus>>,
}

/// Something that is wrong with an array and that its operator should know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: ProblemKind,
    /// The name of the device, volume, tier, worker or map copy that it is about.
    pub about: String,
    /// A sentence for a person: what is wrong, what follows from it, what can be done.
    pub what: String,
}

/// Kinds of trouble, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A worker does not respond: I/O of its volumes hangs. Samples of these volumes come from the map: not served, without counters.
    WorkerStalled,
    /// Nothing can be made durable in the map: no new extents, no moves.
    MapFailing,
    /// Another program has overwritten the superblock of a device. Terrace has stopped writing to
    /// it.
    DeviceOverwritten,
    /// A device cannot be used: what is on it answers with errors.
    DeviceLost,
    /// A device is used, and its file is not at its path any more: the next start will not find it.
    DeviceFileGone,
    /// Some extents of a volume cannot be read.
    VolumeIncomplete,
    /// The map knows that records of a volume are damaged: it is not served.
    VolumeDamaged,
    /// A volume is being imported, and its source cannot be read, or was written to.
    SourceLost,
    /// One of the copies of the map is not kept up to date.
    MapCopyLost,
    /// A device does not answer, or another one answers in its place.
    DeviceUnreachable,
    /// Another server owns a remote device or may own it.
    RemoteNotOwned,
    /// I/O on a device has failed within minutes, by kind of request and errno.
    DeviceErrors,
    /// A device, or the disk of a map copy, has no room.
    NoSpace,
    /// A part of the controller beside the array does not run.
    ControllerDegraded,
    /// A device, or the disk of a map copy, has little room left.
    NearlyFull,
    /// A device goes through the page cache, though direct I/O was asked for.
    DeviceNotDirect,
}

/// A device as it is. Its counters are of the I/Os that the server has completed on it without an error, for guests and
/// for moves; those of an array that is not served are zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSample {
    pub name: String,
    pub tier: String,
    /// File, block device or URI.
    pub path: String,
    pub size: Bytes,
    /// Bytes that are taken, also by a move that has reserved them.
    pub used: Bytes,
    /// The device that it behaves like.
    pub emulate: Option<DeviceSpec>,
    /// Whether it can be reached. A remote device can when every worker is connected to it and it answers, and not where
    /// nothing is served; others always.
    pub connected: bool,
    /// When its counters began, in nanoseconds of the server's monotonic clock. Those of different beginnings cannot be
    /// subtracted.
    pub since_ns: u64,
    pub reads: u64,
    /// Writes; trims, zeroes and flushes too, without bytes.
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    #[serde(flatten)]
    pub stages: DeviceStagesSample,
    /// I/Os that failed since the counters began, by kind of request and errno.
    #[serde(default)]
    pub errors: Vec<DeviceErrors>,
}

/// I/Os of one kind on a device that failed with one errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceErrors {
    /// `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// The errno's name, such as `EIO`.
    pub errno: String,
    /// How many.
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeSample {
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Service class; `default` is that of a volume which was given none.
    pub class: String,
    /// The tier of its next extents.
    pub home: String,
    /// Bytes by device, in order of devices, those with any.
    pub placed: Vec<(String, Bytes)>,
    /// Whether its map is whole.
    pub healthy: bool,
    /// True if the volume is served. False while its worker is stalled, because the state is unknown.
    pub exported: bool,
    /// Guests' connections; unknown while its worker is stalled.
    pub connections: Option<usize>,
    /// The move that is under way, or waits for the volume to be served.
    pub moving: Option<MovingSample>,
    /// How the last move ended, since the server runs.
    pub last_move: Option<LastMove>,
    /// What of it has a second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirroring>,
    /// What it is limited to for a time, with what is left of that.
    #[serde(default)]
    pub throttled: Option<Throttled>,
    /// Requests that its stages hold back now; unknown while its worker is stalled.
    #[serde(default)]
    pub held_back: Option<u64>,
    /// Time that its guest's I/O took of devices since it is served, of those devices that say so and that any was taken of: emulated
    /// ones.
    #[serde(default)]
    pub took: Vec<TookSample>,
    #[serde(flatten)]
    pub stages: StagesSample,
    /// Its cache, if it is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSample>,
}

/// Time that a volume's I/O took of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TookSample {
    pub device: String,
    /// By reads, in nanoseconds.
    pub reads_ns: u64,
    /// By all else, in nanoseconds.
    pub writes_ns: u64,
}

/// A move as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MovingSample {
    /// The target device.
    pub to: String,
    /// The extents that move; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// Bytes copied since it was started or resumed, those copied again included.
    pub copied: Bytes,
    /// Bytes not on the target yet; of some extents, of those that were not there at first.
    pub left: Bytes,
    /// Bandwidth that it may take now; none while it waits.
    pub rate: BytesPerSec,
    /// What it does; `waiting` until the volume is served.
    pub phase: Cow<'static, str>,
}
