//! A scenario that is evaluated by counting: `[counting]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// The table `counting` of a scenario: it is evaluated by counting instead of being simulated. Then the scenario's tiers,
/// volumes and policy mean nothing and are left out; `extent`, `traces`, `measurements`, `compare` and `strategies` are used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountingConfig {
    /// Length of an interval: heat is counted, and a placement may be changed, once in each.
    pub interval: Nanos,
    /// Time at the start that is left out of the results: the first placements are nobody's choice.
    #[serde(default)]
    pub count_from: Nanos,
    /// Sizes of the fast tier, as shares of the extents that are ever asked for, above 0 and below 1.
    pub fast_shares: Vec<f64>,
    /// Size of one I/O of a move. 128 KiB is an assumption: paper 1 names no size.
    #[serde(default = "default_movement_io")]
    pub movement_io: Bytes,
    /// How many times as many I/Os per second the fast tier can do (paper 1: 180).
    #[serde(default = "default_speed_ratio")]
    pub speed_ratio: f64,
    /// What movement takes away.
    #[serde(default)]
    pub movement: MovementReading,
    /// In which order to average.
    #[serde(default)]
    pub average: Aggregation,
}

fn default_movement_io() -> Bytes {
    Bytes(128 << 10)
}

fn default_speed_ratio() -> f64 {
    180.0
}

/// What "minus M" means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MovementReading {
    /// P·(1 − M): movement takes a share of what the storage does. Negative where more is moved than asked for.
    Subtract,
    /// P/(1 + M): application and movement share the storage in the ratio of their I/Os. The two agree for small M.
    #[default]
    Share,
}

/// In which order to average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Performance per interval, then the mean: as published.
    #[default]
    PerInterval,
    /// Requests, hits and moves are summed up first.
    Whole,
}
