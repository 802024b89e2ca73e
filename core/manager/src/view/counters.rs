//! Totals since the start of the controller, for metrics.

use model::Goal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResponseCounter;

/// Totals since the start of the controller, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountersView {
    /// Totals of each volume.
    pub volumes: Vec<VolumeCounters>,
    /// Number of finished moves by goal and end.
    pub moves: Vec<MoveCounter>,
    /// Bytes copied by finished moves.
    pub moved_bytes: u64,
    /// Number of plans created.
    pub plans: u64,
    /// Number of reports accepted from agents.
    pub reports: u64,
    /// Number of reports rejected.
    pub reports_refused: u64,
    /// Number of calibration results accepted.
    pub calibrations: u64,
    /// I/O errors of devices.
    #[serde(default)]
    pub failed: Vec<FailedCounter>,
    /// Number of remedies by kind and end.
    #[serde(default)]
    pub responses: Vec<ResponseCounter>,
}

/// Number of I/O errors of a device with the same operation and errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedCounter {
    /// Name of the host.
    pub host: String,
    /// Name of the device.
    pub device: String,
    /// Operation: `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// Name of the errno, such as `EIO`.
    pub errno: String,
    /// Number of errors.
    pub count: u64,
}

/// Totals of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCounters {
    /// Name of the host.
    pub host: String,
    /// Name of the volume.
    pub volume: String,
    /// Tier that holds most of the volume's data now.
    pub tier: String,
    /// Name of the service class.
    pub class: String,
    /// Totals of reads.
    pub reads: DirectionCounters,
    /// Totals of writes.
    pub writes: DirectionCounters,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Total length of windows that violated the objective, nanoseconds.
    pub slo_violated_ns: u64,
    /// Requests served by a cache in front of the devices; absent without a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_cache: Option<u64>,
}

/// Totals of reads or writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionCounters {
    /// Number of requests.
    pub ios: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Sum of the latencies that the guest sees, nanoseconds.
    pub sum_ns: u64,
    /// Cumulative latency histogram: number of requests up to each bound, from 50 µs to 2 s.
    // The bounds are `LATENCY_BOUNDS_NS`.
    pub up_to: Vec<u64>,
}

/// Bounds of the latency histogram in metrics, nanoseconds.
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

/// Number of finished moves with the same goal and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveCounter {
    /// Purpose of the moves.
    pub goal: Goal,
    /// End: `done`, `failed` or `cancelled`.
    pub end: String,
    /// Number of moves.
    pub count: u64,
}
