//! Plan: the complete list of actions of one decision. The executor chooses nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::action::{Action, CalibrationRun, Move};

/// Immutable list of actions, from one set of facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of this plan. An executor rejects a plan that is not newer than the last accepted one.
    pub generation: u64,
    /// Generation of the plan that was in force when the facts were gathered.
    pub parent: u64,
    /// Time of the decision, on the clock of [`crate::Facts::at`].
    pub at: Nanos,
    /// Name of the strategy.
    pub strategy: String,
    /// Actions. Moves come first, in the order of their starts, so the position of a move among the moves is its position in the plan.
    pub actions: Vec<Action>,
    /// Limits of concurrent moves.
    pub limits: MoveLimits,
}

impl Plan {
    /// Returns the moves, by position.
    pub fn moves(&self) -> Vec<&Move> {
        let moves = self.actions.iter().filter_map(|action| match action {
            Action::Move(m) => Some(m),
            _ => None,
        });
        moves.collect()
    }

    /// Returns the calibration sessions, which start at once.
    pub fn calibrations(&self) -> Vec<&CalibrationRun> {
        let runs = self.actions.iter().filter_map(|action| match action {
            Action::Calibrate(run) => Some(run),
            _ => None,
        });
        runs.collect()
    }
}

/// Purpose of an action, in the order of priority: an earlier goal prevails over a later one that contradicts it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Evacuation of a tier.
    Drain,
    /// Compliance with pins and affinity rules.
    Rules,
    /// Free space on a device that is nearly full.
    Space,
    /// Placement of every volume on the tier that the strategy prefers.
    #[default]
    Latency,
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Goal::Drain => "drain",
            Goal::Rules => "rules",
            Goal::Space => "space",
            Goal::Latency => "latency",
        })
    }
}

/// Limits of concurrent moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLimits {
    /// Number of concurrent moves in total.
    pub concurrent: u32,
    /// Number of concurrent moves that read from or write to one device.
    pub concurrent_per_device: u32,
}
