//! State of all tiers, devices and volumes, for callers that compare successive samples.

use std::borrow::Cow;

use model::{DeviceSpec, ExtentRanges};
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

use crate::stages::throttle::ThrottleStatus;
use crate::stages::{DeviceStagesSample, StagesSample};
use crate::worker::{CacheSample, LastMove, MirrorProgress, SecondStatus};

/// State of the tiers, devices and volumes of an array, with counters that only grow while the server runs.
///
/// Counters are read within a few milliseconds after `at_ns`. Those of a device and of the volumes on it are not of exactly
/// the same moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Time of the request, in nanoseconds of the server's monotonic clock.
    pub at_ns: u64,
    /// Size of an extent.
    pub extent: Bytes,
    /// Names of the tiers, fastest first.
    pub tiers: Vec<String>,
    /// Total size of the volumes whose home each tier is, in the order of the tiers; empty from an older server.
    #[serde(default)]
    pub provisioned: Vec<Bytes>,
    /// Devices in order of their numbers.
    pub devices: Vec<DeviceSample>,
    /// Volumes in order of creation.
    pub volumes: Vec<VolumeSample>,
    /// Problems, most urgent first.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Processor time that workers have spent on polling since the start of the server; none while a worker is stalled.
    #[serde(default)]
    pub looked: Option<Nanos>,
    /// L2 cache, if there is or was one; none while a worker is stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Box<SecondStatus>>,
}

/// Problem of an array that its operator should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: ProblemKind,
    /// Name of the affected device, volume, tier, worker or map copy.
    pub about: String,
    /// Sentence for people: problem, consequence, and possible action.
    pub what: String,
}

/// Kind of a problem, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A worker does not respond: I/O of its volumes hangs. Samples of these volumes come from the map: not served, without
    /// counters.
    WorkerStalled,
    /// No change of the map can be made durable: no new extents, no moves.
    MapFailing,
    /// Another program has overwritten the superblock of a device. Terrace has stopped writing to it.
    DeviceOverwritten,
    /// A device is unusable: requests for its data fail.
    DeviceLost,
    /// A device is in use, but its file is not at its path any more: the next start will not find it.
    DeviceFileGone,
    /// Some extents of a volume cannot be read.
    VolumeIncomplete,
    /// Records of a volume in the map are damaged: it is not served.
    VolumeDamaged,
    /// The source of an import cannot be read, or was written to.
    SourceLost,
    /// A copy of the map is out of date.
    MapCopyLost,
    /// A device does not answer, or another one answers in its place.
    DeviceUnreachable,
    /// Another server owns a remote device or may own it.
    RemoteNotOwned,
    /// I/O on a device has failed within the last minutes, by operation and errno.
    DeviceErrors,
    /// A device, or the disk of a map copy, is full.
    NoSpace,
    /// A part of the controller outside the array does not run.
    ControllerDegraded,
    /// A device, or the disk of a map copy, is nearly full.
    NearlyFull,
    /// A device uses the page cache, although direct I/O is configured.
    DeviceNotDirect,
}

/// State of a device. Its counters include the I/Os that the server has completed on it without an error, for guests and
/// for moves. They are zero if the array is not served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSample {
    pub name: String,
    pub tier: String,
    /// File, block device or URI.
    pub path: String,
    pub size: Bytes,
    /// Allocated bytes, including those that a move has reserved.
    pub used: Bytes,
    /// Emulated device.
    pub emulate: Option<DeviceSpec>,
    /// True if the device is reachable. A remote device is reachable if every worker is connected to it and it answers, and
    /// not if nothing is served; others always are.
    pub connected: bool,
    /// Start of its counters, in nanoseconds of the server's monotonic clock. Counters with different starts cannot be
    /// subtracted.
    pub since_ns: u64,
    pub reads: u64,
    /// Number of writes. Includes trims, zeroes and flushes, which add no bytes.
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    #[serde(flatten)]
    pub stages: DeviceStagesSample,
    /// I/Os that failed since the start of the counters, by operation and errno.
    #[serde(default)]
    pub errors: Vec<DeviceErrors>,
}

/// Failed I/Os of one operation and errno on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceErrors {
    /// `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// Name of the errno, such as `EIO`.
    pub errno: String,
    /// Number of failures.
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeSample {
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Service class; `default` for a volume without one.
    pub class: String,
    /// Tier of its next extents.
    pub home: String,
    /// Bytes by device, in order of devices, for devices with any.
    pub placed: Vec<(String, Bytes)>,
    /// True if its map is complete.
    pub healthy: bool,
    /// True if the volume is served. False while its worker is stalled, because the state is unknown.
    pub exported: bool,
    /// Number of guests' connections; none while its worker is stalled.
    pub connections: Option<usize>,
    /// Move that is running, or waits until the volume is served.
    pub moving: Option<MovingSample>,
    /// End of the last move since the start of the server.
    pub last_move: Option<LastMove>,
    /// Second copies of extents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorProgress>,
    /// Temporary limits, with the remaining time.
    #[serde(default)]
    pub throttled: Option<ThrottleStatus>,
    /// Number of requests that its stages delay; none while its worker is stalled.
    #[serde(default)]
    pub held_back: Option<u64>,
    /// Device time of its guests' I/O since it is served, for devices that report it and were used: emulated ones.
    #[serde(default)]
    pub took: Vec<DeviceTimeSample>,
    #[serde(flatten)]
    pub stages: StagesSample,
    /// Cache of the volume, if it is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSample>,
}

/// Device time of a volume's I/O.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTimeSample {
    pub device: String,
    /// For reads, in nanoseconds.
    pub reads_ns: u64,
    /// For other kinds, in nanoseconds.
    pub writes_ns: u64,
}

/// State of a move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MovingSample {
    /// Name of the target device.
    pub to: String,
    /// Extents that move; none for the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// Number of bytes copied since its start or resumption, including repeated copies.
    pub copied: Bytes,
    /// Number of bytes that are not on the target yet. For a part of the extents: of those that were not there at the
    /// start.
    pub left: Bytes,
    /// Present limit of its bandwidth; 0 while it waits.
    pub rate: BytesPerSec,
    /// Phase; `waiting` until the volume is served.
    pub phase: Cow<'static, str>,
}
