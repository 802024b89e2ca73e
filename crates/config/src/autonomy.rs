//! How far a controller may go by itself, when, and when it is to worry.

use model::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// How far to go without asking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModesConfig {
    /// Emptying tiers.
    pub drain: Mode,
    /// Pins and affinity.
    pub rules: Mode,
    /// Devices that run full.
    pub space: Mode,
    /// What the strategy wants.
    pub latency: Mode,
}

/// When moves may begin by themselves; an operator's approval is good at any time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HoursConfig {
    /// Such as "22:00-06:00", "Sat 00:00-24:00", "Mon-Fri 20:00-23:30"; any time if left out. Moves because a device runs
    /// full do not wait for them.
    pub moves: Vec<String>,
    /// Local time's offset from UTC, such as "+02:00".
    pub utc_offset: String,
}

impl Default for HoursConfig {
    fn default() -> Self {
        Self {
            moves: vec![],
            utc_offset: "+00:00".into(),
        }
    }
}

/// When to worry.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatchConfig {
    /// Windows without a report after which a host is late: nothing is decided about it.
    pub late_windows: u32,
    /// Windows without a report after which a host is lost: everything about it is unknown.
    pub lost_windows: u32,
    /// A job of which no byte was copied for so long is called stuck.
    pub stuck_after: Nanos,
    /// A job that was stuck for so long is given up.
    pub give_up_after: Nanos,
    /// Predictions have failed when the median of their errors, |observed − predicted| ÷ observed, is above this.
    pub prediction_error_max: f64,
    /// The last so many moves with a known outcome count.
    pub prediction_outcomes: u32,
    /// Fewer tell nothing.
    pub prediction_outcomes_min: u32,
    /// Injected latency may add this share to all the time that a volume's requests take in a migration epoch, 0..=1.
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
