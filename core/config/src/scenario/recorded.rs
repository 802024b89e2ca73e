//! Inputs of a recorded decision of a live array: `[recorded]`.

use std::collections::BTreeMap;

use model::{
    CalibrationWindow, DeviceFacts, ExtentFacts, ExtentRanges, Facts, MeasuredLoad, VolumeFacts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos};

/// Inputs of a recorded decision of a live array. Names are those of the scenario's volumes and devices. Other
/// tables of the scenario may be changed before the decision is repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Time of the controller at the decision.
    pub at: Nanos,
    /// Number of the monitor epoch.
    pub epoch: u64,
    /// Number of the previous plan.
    pub generation: u64,
    /// True if the decision could move data: a migration epoch ended.
    pub placement_due: bool,
    /// Measurements, as JSON.
    pub facts: String,
    /// State of the strategy, as JSON.
    pub state: String,
}

/// Measurements, by name of volume and device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFacts {
    /// Measurements by volume. A volume without an entry is unknown.
    pub volumes: BTreeMap<String, RecordedVolume>,
    /// Measurements by device. A device without an entry is idle and empty.
    pub devices: BTreeMap<String, DeviceFacts>,
    /// Moves in progress.
    pub moves: Vec<RecordedMove>,
    /// Failed moves that are not due for another attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<RecordedFailure>,
}

/// Recorded facts of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedVolume {
    /// Load in the last monitor epoch; `None` if unknown.
    pub measured: Option<MeasuredLoad>,
    /// Finished calibration windows. Their devices are those of the scenario, in its order.
    pub calibration: Vec<CalibrationWindow>,
    /// True during a calibration session.
    pub calibrating: bool,
    /// End of the volume's last move.
    pub last_moved: Option<Nanos>,
    /// Extents on the scenario's devices, in its order; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentFacts>,
}

/// Move in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMove {
    /// Name of the volume.
    pub volume: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// Extents of the move; `None` is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
}

/// Failed move that is not due for another attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFailure {
    /// Name of the volume.
    pub volume: String,
    /// Target device.
    pub device: String,
    /// Number of consecutive failed attempts.
    pub attempts: u32,
    /// Time until the next attempt; `None` while the cause persists.
    pub left: Option<Nanos>,
    /// Cause of the last failure.
    pub why: String,
}

impl RecordedFacts {
    /// Returns the facts that a scenario does not contain in other tables.
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
