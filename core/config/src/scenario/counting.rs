//! Evaluation of a scenario by counting: `[counting]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Evaluation by counting instead of simulation, as in paper 1. It uses `extent`, `traces`, `measurements`,
/// `compare` and `strategies`; tiers, volumes and policy are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountingConfig {
    /// Length of an interval. Heat is counted, and the placement may change, once per interval.
    pub interval: Nanos,
    /// Time at the start that is excluded from the results, because no strategy has chosen the first placement.
    /// Default: 0.
    #[serde(default)]
    pub count_from: Nanos,
    /// Sizes of the fast tier that are evaluated, each as a share of all extents with requests, above 0 and below
    /// 1.
    pub fast_shares: Vec<f64>,
    /// Size of one I/O of a move. Default: 128 KiB, an assumption; paper 1 gives no size.
    #[serde(default = "default_movement_io")]
    pub movement_io: Bytes,
    /// Ratio of the I/O rates of the fast and the slow tier. Default: 180, as in paper 1.
    #[serde(default = "default_speed_ratio")]
    pub speed_ratio: f64,
    /// Formula for the cost of moves. Default: share.
    #[serde(default)]
    pub movement: MovementReading,
    /// Order in which results are averaged. Default: per-interval.
    #[serde(default)]
    pub average: Aggregation,
}

fn default_movement_io() -> Bytes {
    Bytes(128 << 10)
}

fn default_speed_ratio() -> f64 {
    180.0
}

/// Formula for the cost of moves: the interpretation of "minus M" in paper 1. P is the performance, M the ratio of
/// movement I/Os to application I/Os.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MovementReading {
    /// P·(1 − M): moves take a share of the storage performance. The result is negative if moves outnumber
    /// requests.
    Subtract,
    /// P/(1 + M): requests and moves share the storage in the ratio of their I/Os. Both formulas agree for small M.
    #[default]
    Share,
}

/// Order in which results are averaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Performance of each interval, then the mean, as published.
    #[default]
    PerInterval,
    /// Sums of requests, hits and moves, then the performance.
    Whole,
}
