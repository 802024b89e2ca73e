//! Totals since the controller was started, as metrics have them.

use model::Goal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResponseCounter;

/// Totals since the controller was started, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountersView {
    /// Per volume.
    pub volumes: Vec<VolumeCounters>,
    /// Moves that ended, by goal and `done`, `failed` or `cancelled`.
    pub moves: Vec<MoveCounter>,
    /// Bytes copied by moves that ended.
    pub moved_bytes: u64,
    /// Plans that were made.
    pub plans: u64,
    /// Reports that were taken.
    pub reports: u64,
    /// Reports that were refused.
    pub reports_refused: u64,
    /// Calibration sessions that were taken in.
    pub calibrations: u64,
    /// I/Os that devices failed.
    #[serde(default)]
    pub failed: Vec<FailedCounter>,
    /// Answers to broken objectives.
    #[serde(default)]
    pub responses: Vec<ResponseCounter>,
}

/// I/Os of one kind that a device failed with one errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedCounter {
    /// The host.
    pub host: String,
    /// The device.
    pub device: String,
    /// `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// The errno's name, such as `EIO`.
    pub errno: String,
    /// How many.
    pub count: u64,
}

/// Totals of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCounters {
    /// The host.
    pub host: String,
    /// Its name.
    pub volume: String,
    /// The tier with most of it now.
    pub tier: String,
    /// Service class.
    pub class: String,
    /// Reads.
    pub reads: DirectionCounters,
    /// Writes.
    pub writes: DirectionCounters,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Time in windows that missed the objective.
    pub slo_violated_ns: u64,
    /// Requests that a cache in front of the devices answered; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_cache: Option<u64>,
}

/// Totals of a direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionCounters {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Latencies added up, as the guest sees them.
    pub sum_ns: u64,
    /// Requests up to each of [`LATENCY_BOUNDS_NS`], cumulative.
    pub up_to: Vec<u64>,
}

/// Bounds of the latency histogram in metrics.
pub const LATENCY_BOUNDS_NS: [u64; 13] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    2_000_000_000,
];

/// Moves that ended one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveCounter {
    /// What they were for.
    pub goal: Goal,
    /// `done`, `failed` or `cancelled`.
    pub end: String,
    /// How many.
    pub count: u64,
}
