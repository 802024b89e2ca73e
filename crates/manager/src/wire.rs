//! What agents and the controller say to each other, version 10: plain data, JSON on the wire.
//!
//! ```text
//!  agent                                   controller
//!    │ ── Register {session} ───────────────▶ │   once per connection: a session is one life of an agent
//!    │ ◀──────────────────── Welcome {at} ─── │
//!    │ ── WindowReport {session, seq, …} ───▶ │   every window
//!    │ ◀── Orders {session, seq, lease, …} ── │   all that is to be going on, not only what is new
//!    │ ── JobsReport {session, seq, jobs} ──▶ │   as soon as jobs have ended, in the middle of a window
//!    │ ◀── Orders ─────────────────────────── │
//! ```
//!
//! Orders are complete and idempotent: a lost answer is made good by the next one, a doubled one changes nothing, and one that
//! is older than the last that was taken is refused by its `seq`. Times of the agent's clock never travel, only differences:
//! `as_of_ns` is the controller's own time, carried forward by the agent from the last answer it had, so that a late message
//! is old and not fresh.
//!
//! Version 1 knew no [`ArrayPolicy`], requests that wait, or troubles; version 2 no [`JobsReport`]; version 3 no [`Throttle`]; version 4 told no [`VolumeSample`] of live volumes; version 5 no [`CacheWindow`], and knew no [`Remedies`];
//! version 6 no [`MirrorWindow`], and made no second copies; version 7 no [`ApplianceWindow`] of a live host; version 8 no [`LendWindow`], and lent no memory; version 9 lent no flash. A controller takes agents of
//! those versions, and tells them nothing that they would not understand; an agent of this version needs a controller of this version.

mod response;

use std::marker::PhantomData;

use model::{
    CalibrationStep, ClassObjective, ControllerId, DeviceSpec, ExtentHeat, ExtentPlaces,
    ExtentRanges, IoFailure, LeaseStatus,
};
use schemars::JsonSchema;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use response::{
    ApplianceOrder, ApplianceWindow, BusyWindow, CacheShareOrder, CacheWindow, CopiesWindow,
    CurvePoint, ExtentAccess, LendWindow, MirrorOrder, MirrorWindow, NodeOrder, NodeState,
    NodeStore, NodeWindow, Remedies, VolumeSample, Warm,
};

/// Version of these messages.
pub const PROTOCOL: u32 = 10;

/// The oldest version of an agent that a controller takes in.
pub const PROTOCOL_OLDEST: u32 = 1;

/// The first version whose agents understand an [`ArrayPolicy`].
pub const PROTOCOL_ARRAY_POLICY: u32 = 2;

/// The first version whose agents are told at once what reports are to tell.
pub const PROTOCOL_FIRST_DETAIL: u32 = 3;

/// The first version whose agents limit volumes for a time.
pub const PROTOCOL_THROTTLES: u32 = 4;

/// The first version whose agents carry out [`Remedies`].
pub const PROTOCOL_REMEDIES: u32 = 6;

/// The first version whose agents have second copies made.
pub const PROTOCOL_MIRRORS: u32 = 7;

/// The first version whose agents use nodes as appliances.
pub const PROTOCOL_APPLIANCES: u32 = 8;

/// The first version whose agents lend memory.
pub const PROTOCOL_LENDS: u32 = 9;

/// The first version whose agents lend flash, and whose arrays use what others lend.
pub const PROTOCOL_LENDS_FLASH: u32 = 10;

/// An agent says that it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Another number for each life of the agent.
    pub session: u64,
    /// Version of the agent, for people.
    pub version: String,
}

/// The controller takes it in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The controller's time.
    pub at_ns: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Objectives that injected latency has to leave room for, by class: the agent looks while it injects.
    #[serde(with = "objectives")]
    #[schemars(with = "Vec<objectives::Word>")]
    pub objectives: Vec<ClassObjective>,
    /// What the array is to hold its operators to; none is unknown, and nothing is to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ArrayPolicy>,
    /// What reports are to tell.
    #[serde(default, skip_serializing_if = "Detail::is_usual")]
    pub detail: Detail,
}

/// What a volume may do at most, for a time: beside other limits that it has, of which it lifts none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// It ends by itself after so long.
    pub lasting_ns: u64,
}

/// A volume to be limited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleOrder {
    /// The volume.
    pub volume: String,
    /// To what.
    pub throttle: Throttle,
}

/// What an array is to hold its operators to when they create and change volumes. It is the configuration's, and said again with
/// every answer, since that may be read anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayPolicy {
    /// Names of the classes that the configuration has: no other can be given to a volume.
    pub classes: Vec<String>,
    /// Sizes of volumes may come to so many times the space of the array, at least 1.
    pub overcommit_max: f64,
}

/// Objectives as they travel: with the unit in the name of the field.
mod objectives {
    use model::{ClassObjective, Objective, SloStatistic};
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use units::Nanos;

    /// The latency objective of a class.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "Objective")]
    #[serde(deny_unknown_fields)]
    pub(super) struct Word {
        /// The class.
        class: String,
        /// Which statistic.
        statistic: SloStatistic,
        /// It must not exceed this.
        latency_ns: u64,
    }

    pub(super) fn serialize<S: Serializer>(
        said: &[ClassObjective],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(said.iter().map(|o| Word {
            class: o.class.clone(),
            statistic: o.objective.statistic,
            latency_ns: o.objective.latency.0,
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ClassObjective>, D::Error> {
        let words = Vec::<Word>::deserialize(from)?.into_iter();
        let said = words.map(|w| ClassObjective {
            class: w.class,
            objective: Objective {
                statistic: w.statistic,
                latency: Nanos(w.latency_ns),
            },
        });
        Ok(said.collect())
    }
}

/// Most entries of a list of texts. An empty text has 3 bytes on the wire and 24 in memory; protects
/// the memory of the reader before it knows the length.
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

/// One window of one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowReport {
    /// The session that was registered.
    pub session: u64,
    /// Rises by one with each report of a session.
    pub seq: u64,
    /// The controller's time at the end of the window, not later than it was.
    pub as_of_ns: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// Names of tiers, high end first.
    #[serde(deserialize_with = "bounded")]
    pub tiers: Vec<String>,
    /// Devices.
    pub devices: Vec<DeviceWindow>,
    /// Volumes.
    pub volumes: Vec<VolumeWindow>,
    /// Jobs that the agent was ordered to do, until the orders do not name them any more.
    pub jobs: Vec<JobWindow>,
    /// Calibration sessions that ended, until they are acknowledged.
    pub calibrations: Vec<CalibrationResult>,
    /// What an operator should know, since the last report.
    #[serde(deserialize_with = "bounded")]
    pub problem: Vec<String>,
    /// What is wrong with the array now, as it says itself.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded"
    )]
    pub problems: Vec<ArrayProblem>,
    /// Whether a second level of the cache is there that a person has ordered: then there is no room for an appliance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_by_hand: bool,
    /// Appliances that were ordered, until the orders say that they were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances: Vec<ApplianceWindow>,
    /// What the host lends to the arrays of others; none where it lends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<LendWindow>,
    /// The lease after the last claim; none before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStatus>,
}

/// Something that is wrong with an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayProblem {
    /// What kind of trouble, by its name ([`crate::problem::ProblemKind::of_array`]); one that is not known is no fault.
    pub kind: String,
    /// The device, volume, tier or map copy that it is about.
    pub about: String,
    /// What is wrong, what follows from it, what can be done.
    pub what: String,
}

/// I/Os of one kind on a device that failed with one errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailedIo {
    /// `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// The errno's name, such as `EIO`.
    pub errno: String,
    /// How many.
    pub count: u64,
}

/// A device over a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceWindow {
    /// Unique in its array.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// All bytes.
    pub size_bytes: u64,
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// The device that it behaves like.
    #[schemars(with = "Option<serde_json::Value>")]
    pub emulate: Option<DeviceSpec>,
    /// Whether it can be reached.
    pub connected: bool,
    /// Where it is on its host, for commands that are given by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// I/O of the window, moves included; none in the first window of a session.
    pub io: Option<DeviceIoCounts>,
    /// I/Os of the window that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FailedIo>,
    /// Bytes written to flash over bytes written to the device since the monitor epoch began, where the device tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waf: Option<f64>,
}

/// I/O of a device in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeviceIo")]
pub struct DeviceIoCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time in use: as an emulated device knows it, of others the time in which their kernel saw anything under way; none where nobody counts.
    pub busy_ns: Option<u64>,
}

/// A volume over a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeWindow {
    /// Unique in its array.
    pub name: String,
    /// The virtual machine that it belongs to, where that is known; else it counts as one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// Service class.
    pub class: String,
    /// Size that the guest sees.
    pub size_bytes: u64,
    /// Tier of its next extents.
    pub home: String,
    /// Bytes by device, those with any.
    pub placed: Vec<Placed>,
    /// Whether it is served, whole and can be moved.
    pub movable: bool,
    /// What keeps its agent from moving it, as it is and whatever is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// How a person moves it, on hosts of virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<HandMove>,
    /// The move under way, the agent's or another's.
    pub moving: Option<MovingWindow>,
    /// Whether a calibration session is under way.
    pub calibrating: bool,
    /// What the agent limits it to, beside all other limits; the time is what is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Its load; none is unknown.
    pub load: Option<Load>,
    /// Its extents; only where the orders ask for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentWindow>,
    /// What answers to broken objectives are judged by, where they are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<VolumeSample>,
    /// What it has in a cache in memory, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheWindow>,
    /// Its second copies, where it can have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorWindow>,
}

impl VolumeWindow {
    /// Whether nobody can move it as it is.
    pub fn stays(&self) -> bool {
        self.bound.as_ref().is_some_and(|b| !b.by_hand)
    }
}

/// How a person moves a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HandMove {
    /// By a command of a shell.
    Command {
        /// The command; `{device}`, `{tier}` and `{place}` stand for those of the target.
        text: String,
        /// Bytes that must be free on the target.
        needed_bytes: u64,
    },
    /// No command moves it without loss.
    None {
        /// Why.
        why: String,
    },
}

/// A command of [`HandMove`] with a target for `{place}`, `{device}` and `{tier}`, which are inside of single quotes there.
pub fn filled(command: &str, place: &str, device: &str, tier: &str) -> String {
    let quoted = |word: &str| word.replace('\'', "'\\''");
    let mut filled = String::new();
    let mut rest = command;
    // One after the other, so that no name is taken for another place.
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

/// What keeps an agent from moving a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Why.
    pub why: String,
    /// Whether a person can move it: then it is planned for, and recommended only. Otherwise it stays where it is.
    pub by_hand: bool,
}

/// Extents of a volume over a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtentWindow {
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Where they are at its end, as runs: `100x0,20x-,3x1`. A device is its place in the report.
    #[schemars(with = "String")]
    pub places: ExtentPlaces,
    /// Requests of the window by extent, `4:17,0:3`: the extents in between and the requests. None is unknown.
    #[schemars(with = "Option<String>")]
    pub heat: Option<ExtentHeat>,
}

/// What a volume has on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The device.
    pub device: String,
    /// Bytes.
    pub bytes: u64,
}

/// A move under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovingWindow {
    /// The target.
    pub device: String,
    /// The extents that move, `0-99,200`; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Bytes copied, those copied again included.
    pub copied_bytes: u64,
    /// Bytes not on the target yet.
    pub left_bytes: u64,
    /// Rate that it may take now.
    pub rate_bytes_per_s: u64,
}

/// Load of a volume in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Reads.
    pub reads: LoadOf,
    /// Writes; trims and flushes count here, with no bytes.
    pub writes: LoadOf,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Requests in flight, integrated over the window's time.
    pub depth_ns: u64,
    /// Requests that wait at the window's end, by bucket of their age so far, rising, without empty ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<(u16, u64)>,
    /// What of it reached devices, where there is a cache in front of them: what missed, in whole pages, and what was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicesLoad>,
}

/// A volume's requests to devices behind a cache, with the latencies of the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicesLoad {
    /// Reads.
    pub reads: LoadOf,
    /// Writes; trims and flushes count here, with no bytes.
    pub writes: LoadOf,
    /// Requests of the guest that waited for them.
    pub waited_ios: u64,
    /// Their latencies added up.
    pub waited_ns: u64,
}

/// One direction of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadOf {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Latencies added up, as the guest sees them.
    pub sum_ns: u64,
    /// Of that, what answers were held back on purpose.
    pub held_ns: u64,
    /// Requests by bucket of the latency histogram (`algo::bucket_value_ns`), rising, without empty ones; none at all where only the sum is known.
    pub buckets: Vec<(u16, u64)>,
}

/// A job at the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobWindow {
    /// Its number.
    pub job: u32,
    /// How far it is.
    pub state: JobProgress,
    /// The I/O that it failed by, if it did by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
    /// Whether it fails again unless somebody changes something: the host knows that by its cause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobProgress {
    /// Being copied, batch after batch.
    Copying {
        /// Bytes copied, those copied again included.
        copied_bytes: u64,
        /// Bytes not on the target yet.
        left_bytes: u64,
        /// Rate that it may take now.
        rate_bytes_per_s: u64,
    },
    /// All of the volume, or all extents that were named, is on the target, durably.
    Done {
        /// Bytes copied.
        copied_bytes: u64,
    },
    /// It did not begin, or ended before its time. What was switched stays on the target.
    Failed {
        /// Why.
        why: String,
        /// Bytes copied.
        copied_bytes: u64,
    },
}

/// Jobs that have ended, told at once: what waits for their turn need not wait for the end of the window too. The next window tells of
/// them again, so it does no harm when one of these is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsReport {
    /// The session that was registered.
    pub session: u64,
    /// One of the numbers of its reports, which are counted together.
    pub seq: u64,
    /// The jobs.
    pub jobs: Vec<JobWindow>,
}

/// What is to be going on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// The session of the report.
    pub session: u64,
    /// The report that this answers.
    pub seq: u64,
    /// Whose orders they are: the array carries out those of one controller at a time.
    pub controller: ControllerId,
    /// The controller's time.
    pub at_ns: u64,
    /// Nothing new is begun by these orders once so much time has passed since the report was sent.
    pub lease_ns: u64,
    /// Moves.
    pub moves: Vec<MoveOrder>,
    /// Moves to give up. They stay here until the agent says that they ended.
    pub cancels: Vec<MoveOrder>,
    /// Calibration sessions; one that is under way and not named is ended.
    pub calibrations: Vec<CalibrationOrder>,
    /// Calibration results that were taken in.
    pub calibrations_taken: Vec<u64>,
    /// Volumes to limit; one that is limited and not named is let go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttles: Vec<ThrottleOrder>,
    /// Other answers to broken objectives that are to be in force.
    #[serde(default, skip_serializing_if = "Remedies::is_empty")]
    pub remedies: Remedies,
    /// Objectives by class.
    #[serde(with = "objectives")]
    #[schemars(with = "Vec<objectives::Word>")]
    pub objectives: Vec<ClassObjective>,
    /// What the array is to hold its operators to; none is unknown, and nothing is to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ArrayPolicy>,
    /// What reports are to tell.
    #[serde(default, skip_serializing_if = "Detail::is_usual")]
    pub detail: Detail,
}

/// What reports tell of volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Volumes as a whole.
    #[default]
    Volumes,
    /// Also where their extents are, and how hot.
    Extents,
}

impl Detail {
    /// Whether it need not be said, which an older agent would not understand.
    fn is_usual(&self) -> bool {
        *self == Detail::Volumes
    }
}

/// A move to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveOrder {
    /// The job's number.
    pub job: u32,
    /// The volume.
    pub volume: String,
    /// The target.
    pub device: String,
    /// Its tier.
    pub tier: String,
    /// The extents that move, `0-99,200`; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Copy rate, at most.
    pub rate_bytes_per_s: u64,
}

/// A calibration session to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationOrder {
    /// Its number; never used twice.
    pub id: u64,
    /// The volume.
    pub volume: String,
    /// Its windows.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub steps: Vec<CalibrationStep>,
}

impl CalibrationOrder {
    /// What came of it: the windows that were measured, and why it was cut off, if it was.
    pub fn ended(
        self,
        windows: Vec<CalibrationMeasured>,
        cut_off: Option<String>,
    ) -> CalibrationResult {
        CalibrationResult {
            id: self.id,
            volume: self.volume,
            windows,
            cut_off,
        }
    }
}

/// A calibration session that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationResult {
    /// Its number.
    pub id: u64,
    /// The volume.
    pub volume: String,
    /// The windows that were measured, in order; all of them unless it was cut off.
    pub windows: Vec<CalibrationMeasured>,
    /// Why it was cut off, if it was.
    pub cut_off: Option<String>,
}

/// One measured window of a session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationMeasured {
    /// Delay that was asked for.
    pub wanted_ns: u64,
    /// Mean delay that answers really had.
    pub injected_us: f64,
    /// Length.
    pub duration_ns: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Their mean latency, injected part included.
    pub read_mean_us: f64,
    /// Their mean latency, injected part included.
    pub write_mean_us: f64,
}

/// What is wrong with the name of a host, if anything is.
pub fn host_name_fault(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = !name.is_empty() && name.len() <= 100 && name.chars().all(plain);
    (!good).then(|| format!("{name:?} cannot name a host: letters, digits, - _ and . up to 100"))
}

/// Why a message is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum WireRefusal {
    /// Another version.
    Protocol {
        /// What the other side speaks.
        theirs: u32,
    },
    /// The session is not known (the controller was started anew, or another agent has this host): register.
    Register,
    /// A report that is not newer than the last one.
    Stale {
        /// The last one that was taken.
        last_seq: u64,
    },
    /// The message makes no sense.
    Nonsense {
        /// Why.
        why: String,
    },
}

impl std::fmt::Display for WireRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireRefusal::Protocol { theirs } => write!(
                f,
                "the agent speaks version {theirs} of the protocol, this controller version {PROTOCOL}: use the same version of terrace"
            ),
            WireRefusal::Register => f.write_str("the session is not known: register first"),
            WireRefusal::Stale { last_seq } => {
                write!(
                    f,
                    "report {last_seq} was taken already, this one is not newer"
                )
            }
            WireRefusal::Nonsense { why } => f.write_str(why),
        }
    }
}
