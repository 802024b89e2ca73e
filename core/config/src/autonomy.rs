//! Autonomy of a controller: modes of moves, hours for moves, and limits that raise problems.

use model::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Treatment of moves for each goal: `off` (no plan), `recommend` (an operator approves each move), `partial`
/// (moves that are predicted to make their volume faster start by themselves) or `auto` (all moves start by
/// themselves). A goal that is left out is `recommend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModesConfig {
    /// Mode of moves that evacuate draining tiers. Default: recommend.
    pub drain: Mode,
    /// Mode of moves that enforce pins and affinity rules. Default: recommend.
    pub rules: Mode,
    /// Mode of moves off devices whose space use is above `policy.space_high`. Default: recommend.
    pub space: Mode,
    /// Mode of moves that the strategy plans to reduce latency. Default: recommend.
    pub latency: Mode,
}

/// Hours in which moves may start by themselves. An approved move may start at any time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HoursConfig {
    /// Time ranges such as "22:00-06:00" (every day), "Sat 00:00-24:00" or "Mon-Fri 20:00-23:30". Empty, the
    /// default, means any time. Moves off devices that run full ignore these hours.
    pub moves: Vec<String>,
    /// Time zone of these ranges: a name such as "Europe/Berlin", with its daylight saving time, or a fixed offset
    /// such as "+02:00". Default: "UTC".
    pub time_zone: String,
}

impl Default for HoursConfig {
    fn default() -> Self {
        Self {
            moves: vec![],
            time_zone: "UTC".into(),
        }
    }
}

/// Limits beyond which the controller reports a problem with a host, a move or its predictions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatchConfig {
    /// Number of windows without a report after which a host counts as late; the controller then makes no decisions
    /// for it. Default: 2.
    pub late_windows: u32,
    /// Number of windows without a report after which a host counts as lost; the controller then discards its
    /// facts. Default: 6.
    pub lost_windows: u32,
    /// Time without copied bytes after which a move is reported as stuck. Default: 5 minutes.
    pub stuck_after: Nanos,
    /// Time after which a stuck move is cancelled. Default: 30 minutes.
    pub give_up_after: Nanos,
    /// Largest acceptable median of the prediction errors of recent moves, as a ratio: |observed − predicted| ÷
    /// observed. A larger median is reported as a problem. Default: 0.5.
    pub prediction_error_max: f64,
    /// Number of latest moves with a known outcome whose errors are counted. Default: 10.
    pub prediction_outcomes: u32,
    /// Number of outcomes below which the prediction error is not judged. Default: 4.
    pub prediction_outcomes_min: u32,
    /// Latency that calibration may inject, as a share of the total time of a volume's requests in a migration
    /// epoch, 0 to 1. Default: 0.05.
    pub calibration_budget: f64,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            late_windows: 2,
            lost_windows: 6,
            stuck_after: Nanos::from_secs(300),
            give_up_after: Nanos::from_secs(1800),
            prediction_error_max: 0.5,
            prediction_outcomes: 10,
            prediction_outcomes_min: 4,
            calibration_budget: 0.05,
        }
    }
}
