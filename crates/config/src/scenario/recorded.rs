//! What was known when a live array was decided about: `[recorded]`.

use std::collections::BTreeMap;

use model::{
    CalibrationWindow, DeviceFacts, ExtentFacts, ExtentRanges, Facts, Measured, VolumeFacts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos};

/// What was known when a live array was decided about. Names are those of the scenario's volumes and devices; what else
/// the scenario says may be changed before it is decided again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The controller's time.
    pub at: Nanos,
    /// Number of the monitor epoch.
    pub epoch: u64,
    /// Number of the plan before.
    pub generation: u64,
    /// Whether data could be placed.
    pub placement_due: bool,
    /// Measurements, as JSON.
    pub facts: String,
    /// What the strategy remembered, as JSON.
    pub state: String,
}

/// Measurements by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFacts {
    /// By volume. One that is not here is unknown.
    pub volumes: BTreeMap<String, RecordedVolume>,
    /// By device. One that is not here is idle and empty.
    pub devices: BTreeMap<String, DeviceFacts>,
    /// Moves that had not ended.
    pub moves: Vec<RecordedMove>,
    /// Moves that had failed and were not tried then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<RecordedFailure>,
}

/// What was known of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedVolume {
    /// Its load over the last monitor epoch; none is unknown.
    pub measured: Option<Measured>,
    /// Windows of calibration that had ended; their devices are those of the scenario, in its order.
    pub calibration: Vec<CalibrationWindow>,
    /// Whether a session was under way.
    pub calibrating: bool,
    /// When its last move had ended.
    pub last_moved: Option<Nanos>,
    /// Its extents, on the scenario's devices in its order; none is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentFacts>,
}

/// A move that had not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMove {
    /// The volume.
    pub volume: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// The extents that moved; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
}

/// A move that had failed and was not tried then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFailure {
    /// The volume.
    pub volume: String,
    /// The target.
    pub device: String,
    /// Attempts that had failed, one after the other.
    pub attempts: u32,
    /// Time until the next attempt; none while the cause lasted.
    pub left: Option<Nanos>,
    /// The last cause.
    pub why: String,
}

impl RecordedFacts {
    /// What of facts a scenario does not say by itself.
    pub fn of(facts: &Facts) -> Self {
        let device = |d: DeviceId| facts.topology.device(d).name.clone();
        let volume = |v: &VolumeFacts| RecordedVolume {
            measured: v.measured,
            calibration: v.calibration.clone(),
            calibrating: v.calibrating,
            last_moved: v.last_moved,
            extents: v.extents.clone(),
        };
        let devices = facts.topology.devices.iter().zip(&facts.devices);
        Self {
            volumes: facts
                .volumes
                .iter()
                .map(|v| (v.name.clone(), volume(v)))
                .collect(),
            devices: devices.map(|(d, f)| (d.name.clone(), *f)).collect(),
            moves: facts
                .moves
                .iter()
                .map(|m| RecordedMove {
                    volume: facts.volumes[m.volume.index()].name.clone(),
                    from: device(m.from),
                    to: device(m.to),
                    extents: m.extents.clone(),
                })
                .collect(),
            failed: facts
                .failed
                .iter()
                .map(|f| RecordedFailure {
                    volume: facts.volumes[f.volume.index()].name.clone(),
                    device: device(f.device),
                    attempts: f.attempts,
                    left: f.left,
                    why: f.why.clone(),
                })
                .collect(),
        }
    }
}
