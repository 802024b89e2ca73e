//! Messages of agents about their windows, jobs and calibration sessions.

use std::marker::PhantomData;

use model::{DeviceSpec, ExtentHeat, ExtentPlaces, ExtentRanges, IoFailure, LeaseStatus};
use schemars::JsonSchema;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{ApplianceWindow, CacheWindow, LendWindow, MirrorWindow, Throttle, VolumeSample};

/// Maximum entries of a list of strings. An empty string has 3 bytes on the wire and 24 in memory.
/// Protects the memory of the receiver, which does not know the length in advance.
const TEXTS_MAX: usize = 100_000;

/// Reads a list of at most [`TEXTS_MAX`] entries.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {TEXTS_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut list = vec![];
            while let Some(entry) = from.next_element()? {
                if list.len() == TEXTS_MAX {
                    let why = format!("a list has more than {TEXTS_MAX} entries");
                    return Err(serde::de::Error::custom(why));
                }
                list.push(entry);
            }
            Ok(list)
        }
    }
    from.deserialize_seq(List(PhantomData))
}

/// Report of an agent about one window of its array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowReport {
    /// Number of the registered session.
    pub session: u64,
    /// Sequence number, which rises by one with each report of a session.
    pub seq: u64,
    /// Lower bound of the controller time at the end of the window, nanoseconds.
    pub as_of_ns: u64,
    /// Length of the window, nanoseconds.
    pub window_ns: u64,
    /// Names of tiers, fastest first.
    #[serde(deserialize_with = "bounded")]
    pub tiers: Vec<String>,
    /// Devices of the array.
    pub devices: Vec<DeviceWindow>,
    /// Volumes of the array.
    pub volumes: Vec<VolumeWindow>,
    /// Ordered jobs. Each job is repeated until the orders omit it.
    pub jobs: Vec<JobWindow>,
    /// Calibration sessions that have ended. Each one is repeated until the controller acknowledges
    /// it.
    pub calibrations: Vec<CalibrationResult>,
    /// Notes for the operator since the last report.
    #[serde(deserialize_with = "bounded")]
    pub problem: Vec<String>,
    /// Present problems of the array.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded"
    )]
    pub problems: Vec<ArrayProblem>,
    /// True if an operator has attached an L2 cache, which leaves no room for a caching appliance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_by_hand: bool,
    /// Ordered caching appliances. Each one is repeated until the orders acknowledge its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances: Vec<ApplianceWindow>,
    /// Memory and flash that this host lends to other hosts; absent if it lends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<LendWindow>,
    /// Lease of the array after the last claim; absent before the first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStatus>,
}

/// Problem of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayProblem {
    /// Kind of the problem, such as `device-lost`. Unknown names count as `other`.
    // The names are those of `crate::problem::ProblemKind::of_array`.
    pub kind: String,
    /// Device, volume, tier or map copy with the problem.
    pub about: String,
    /// Problem, its consequence and the required action.
    pub what: String,
}

/// Number of I/O errors of a device with the same operation and errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailedIo {
    /// Operation: `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// Name of the errno, such as `EIO`.
    pub errno: String,
    /// Number of errors.
    pub count: u64,
}

/// State and load of a device in a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceWindow {
    /// Name of the device, unique in its array.
    pub name: String,
    /// Name of its tier.
    pub tier: String,
    /// Capacity, bytes.
    pub size_bytes: u64,
    /// Used space, bytes.
    pub used_bytes: u64,
    /// Drive that the device emulates; null if it emulates none.
    #[schemars(with = "Option<serde_json::Value>")]
    pub emulate: Option<DeviceSpec>,
    /// True if the host can reach the device.
    pub connected: bool,
    /// Path of the device on its host, for commands of operators; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Node of a cluster that alone reaches the device; absent if all volumes can be on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// I/O in the window, including that of moves; null in the first window of a session.
    pub io: Option<DeviceIoCounts>,
    /// I/O errors in the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FailedIo>,
    /// Write amplification since the start of the monitor epoch: bytes programmed in flash over
    /// bytes written. Absent if the device does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waf: Option<f64>,
}

/// I/O of a device in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeviceIo")]
pub struct DeviceIoCounts {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time with I/O in progress, nanoseconds. An emulated device computes it; for other devices
    /// the kernel counts it. Null if unknown.
    pub busy_ns: Option<u64>,
}

/// State and load of a volume in a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeWindow {
    /// Name of the volume, unique in its array.
    pub name: String,
    /// Virtual machine that uses the volume. Without it, the volume counts as the only one of its
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// Name of the service class.
    pub class: String,
    /// Size that the guest sees, bytes.
    pub size_bytes: u64,
    /// Tier for new extents.
    pub home: String,
    /// Bytes on each device that holds some.
    pub placed: Vec<Placed>,
    /// Node of a cluster that the volume's virtual machine runs on; absent if the host is no
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// True if the volume is served, complete and can be moved.
    pub movable: bool,
    /// Reason why the agent cannot move the volume at present, whatever the plan; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Instructions for an operator who moves the volume; only on hosts of virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<HandMove>,
    /// Running move, ordered by this controller or by others; null without one.
    pub moving: Option<MovingWindow>,
    /// True while a calibration session delays completions of the volume's requests.
    pub calibrating: bool,
    /// Limit that the agent applies, in addition to all other limits, with its remaining time;
    /// absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Load in the window; null if unknown.
    pub load: Option<Load>,
    /// Extents of the volume; present only if the orders request them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentWindow>,
    /// Measurements for the choice of remedies; present only where remedies are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<VolumeSample>,
    /// Use of a memory cache; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheWindow>,
    /// Mirror of the volume; absent if the volume cannot have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorWindow>,
}

impl VolumeWindow {
    /// Returns true if neither the agent nor an operator can move the volume at present.
    pub fn stays(&self) -> bool {
        self.bound.as_ref().is_some_and(|b| !b.by_hand)
    }
}

/// Instructions for an operator who moves a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HandMove {
    /// Shell command that moves the volume.
    Command {
        /// Text of the command, with `{device}`, `{tier}` and `{place}` as placeholders for the target.
        text: String,
        /// Free space that the target needs, bytes.
        needed_bytes: u64,
        /// Commands for targets that are no directories.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        storages: Vec<StorageCommand>,
    },
    /// No command that moves the volume without data loss exists.
    None {
        /// Reason.
        why: String,
    },
}

/// Shell command that moves a volume to storage that is no directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageCommand {
    /// Kind of the storage: `lvm`, `thin`, `zfs` or `rbd`.
    pub storage: String,
    /// Text of the command, as in [`HandMove`]; `{place}` is the name of the storage without its
    /// kind.
    pub text: String,
    /// Free space that the target needs, bytes.
    pub needed_bytes: u64,
}

/// Returns a command of [`HandMove`] with its placeholders replaced. In the command, the
/// placeholders are inside single quotes.
pub fn filled(command: &str, place: &str, device: &str, tier: &str) -> String {
    let quoted = |word: &str| word.replace('\'', "'\\''");
    let mut filled = String::new();
    let mut rest = command;
    // One pass, because an inserted name may contain a placeholder.
    while let Some(at) = rest.find('{') {
        filled += &rest[..at];
        rest = &rest[at..];
        let known = [("{place}", place), ("{device}", device), ("{tier}", tier)];
        let (skip, text) = match known.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, word)) => (name.len(), quoted(word)),
            None => (1, "{".into()),
        };
        filled += &text;
        rest = &rest[skip..];
    }
    filled + rest
}

/// Reason why an agent cannot move a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The reason, in words.
    pub why: String,
    /// True if an operator can move the volume. The controller then recommends moves of the volume
    /// and leaves them to the operator. False if the volume must stay in place.
    pub by_hand: bool,
}

/// Places and heat of a volume's extents in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtentWindow {
    /// Size of an extent, bytes.
    pub extent_bytes: u64,
    /// Device of each extent at the end of the window, as runs `COUNTxDEVICE`: `100x0,20x-,3x1`.
    /// DEVICE is the position in the report's list of devices; `-` means no space is allocated.
    #[schemars(with = "String")]
    pub places: ExtentPlaces,
    /// Requests in the window by extent, as pairs `GAP:REQUESTS`: `4:17,0:3`. GAP is the number of
    /// extents without requests before this one. Null if unknown.
    #[schemars(with = "Option<String>")]
    pub heat: Option<ExtentHeat>,
}

/// Bytes of a volume on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Name of the device.
    pub device: String,
    /// Bytes on this device.
    pub bytes: u64,
}

/// Running move of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovingWindow {
    /// Target device.
    pub device: String,
    /// Extents to move, as ranges such as `0-99,200`; absent if the whole volume moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Bytes copied, including repeated copies of rewritten data.
    pub copied_bytes: u64,
    /// Bytes that are not on the target yet.
    pub left_bytes: u64,
    /// Present limit of the copy rate, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// Load of a volume in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Reads.
    pub reads: LoadOf,
    /// Writes. Discards and flushes count as writes without bytes.
    pub writes: LoadOf,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Number of requests in flight, integrated over the time of the window, nanoseconds.
    pub depth_ns: u64,
    /// Outstanding requests at the end of the window, by histogram bucket of their age: pairs of
    /// bucket and count, in rising order, without empty buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<(u16, u64)>,
    /// Requests to devices behind a cache: misses in whole pages, and writes. Absent without a
    /// cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicesLoad>,
}

/// Requests of a volume to devices behind a cache, with the latencies of the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicesLoad {
    /// Reads.
    pub reads: LoadOf,
    /// Writes. Discards and flushes count as writes without bytes.
    pub writes: LoadOf,
    /// Requests of the guest that needed a device.
    pub waited_ios: u64,
    /// Sum of the latencies of these requests, nanoseconds.
    pub waited_ns: u64,
}

/// Reads or writes of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadOf {
    /// Number of requests.
    pub ios: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Sum of the latencies that the guest sees, nanoseconds.
    pub sum_ns: u64,
    /// Injected delay in this sum, nanoseconds.
    pub held_ns: u64,
    /// Requests by bucket of the latency histogram (`algo::bucket_value_ns`): pairs of bucket and
    /// count, in rising order, without empty buckets. Empty if only the sum is known.
    pub buckets: Vec<(u16, u64)>,
}

/// State of a job at the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobWindow {
    /// Number of the job.
    pub job: u32,
    /// Progress of the job.
    pub state: JobProgress,
    /// I/O error that made the job fail; absent for other causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
    /// True if the cause is permanent: the job would fail again without a change by an operator.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

/// Progress of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobProgress {
    /// Copying data, batch by batch.
    Copying {
        /// Bytes copied, including repeated copies of rewritten data.
        copied_bytes: u64,
        /// Bytes that are not on the target yet.
        left_bytes: u64,
        /// Present limit of the copy rate, bytes per second.
        rate_bytes_per_s: u64,
    },
    /// Finished: the volume or all named extents are durable on the target.
    Done {
        /// Bytes copied.
        copied_bytes: u64,
    },
    /// Not started, or ended early. Extents that have been switched stay on the target.
    Failed {
        /// Reason.
        why: String,
        /// Bytes copied.
        copied_bytes: u64,
    },
}

/// Message about jobs that have ended, sent before the end of the window. Queued jobs can then
/// start at once. The next window report repeats these jobs, so a lost message does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsReport {
    /// Number of the registered session.
    pub session: u64,
    /// Sequence number; window reports and job reports share one sequence.
    pub seq: u64,
    /// Jobs that have ended.
    pub jobs: Vec<JobWindow>,
}

/// Result of a calibration session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationResult {
    /// Number of the session.
    pub id: u64,
    /// Name of the volume.
    pub volume: String,
    /// Measured windows, in order; fewer than ordered if the session ended early.
    pub windows: Vec<CalibrationMeasured>,
    /// Reason for an early end; null otherwise.
    pub cut_off: Option<String>,
}

/// Measurements of one window of a calibration session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationMeasured {
    /// Ordered delay, nanoseconds.
    pub wanted_ns: u64,
    /// Measured mean delay, microseconds.
    pub injected_us: f64,
    /// Length of the window, nanoseconds.
    pub duration_ns: u64,
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Mean latency of the reads, including injected delay, microseconds.
    pub read_mean_us: f64,
    /// Mean latency of the writes, including injected delay, microseconds.
    pub write_mean_us: f64,
}
