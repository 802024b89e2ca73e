//! Plan: the complete list of actions of one decision. The executor chooses nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Nanos, VolumeId};

use crate::action::{Action, CalibrationRun, CalibrationStep, Move};

/// Immutable list of actions, from one set of facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
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

/// Stored form of a plan. It also accepts the older form, with separate lists of moves and of calibration sessions without terms.
#[derive(Deserialize)]
struct Stored {
    generation: u64,
    parent: u64,
    at: Nanos,
    strategy: String,
    #[serde(default)]
    actions: Vec<Action>,
    #[serde(default)]
    moves: Vec<Move>,
    #[serde(default)]
    calibrations: Vec<BareRun>,
    limits: MoveLimits,
}

#[derive(Deserialize)]
struct BareRun {
    volume: VolumeId,
    steps: Vec<CalibrationStep>,
}

impl From<Stored> for Plan {
    fn from(stored: Stored) -> Self {
        let runs = stored.calibrations.into_iter();
        let runs = runs.map(|r| Action::Calibrate(CalibrationRun::new(r.volume, r.steps)));
        let mut actions: Vec<Action> = stored.moves.into_iter().map(Action::Move).collect();
        actions.extend(stored.actions);
        actions.extend(runs);
        Self {
            generation: stored.generation,
            parent: stored.parent,
            at: stored.at,
            strategy: stored.strategy,
            actions,
            limits: stored.limits,
        }
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

#[cfg(test)]
mod tests {
    use units::{Bytes, DeviceId};

    use super::*;

    #[test]
    fn a_plan_of_the_older_form_is_read() {
        let kept = serde_json::json!({
            "generation": 7, "parent": 6, "at": "10m", "strategy": "autotiering",
            "moves": [{
                "volume": 3, "from": 1, "to": 0, "size": "1GiB", "after": [], "bandwidth": "100MiB/s", "goal": "rules",
                "reason": {"kind": "pinned"},
                "effect": {"latency_before_us": 300.0, "latency_after_us": 80.0, "iops_before": null, "iops_after": null},
                "cost": {"bytes": "1GiB", "duration": "10s"},
            }],
            "calibrations": [{"volume": 4, "steps": [{"inject": "50us", "duration": "5s"}]}],
            "limits": {"concurrent": 2, "concurrent_per_device": 1},
        });
        let plan: Plan = serde_json::from_value(kept).unwrap();
        let [m] = plan.moves()[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((m.volume, m.to), (VolumeId(3), DeviceId(0)));
        assert_eq!(m.terms.goal, Goal::Rules);
        assert_eq!(m.terms.cost.bytes, Bytes::gib(1));
        assert_eq!(m.terms.reason.kind(), "pinned");
        let [run] = plan.calibrations()[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((run.volume, run.steps.len()), (VolumeId(4), 1));
        assert_eq!(run.terms.cost.duration, Nanos::from_secs(5));
        let again = serde_json::to_value(&plan).unwrap();
        assert_eq!(again["actions"][0]["action"], "move");
        assert_eq!(serde_json::from_value::<Plan>(again).unwrap(), plan);
    }
}
