//! Actions of a plan: one type for each kind, and the terms that all kinds have in common.

use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

use crate::{ExtentRanges, Goal, Reason};

/// Entry of a plan.
///
/// The simulation and the live system carry out both kinds. The measured effect of a volume's move is stored with its prediction.
/// Moves of extents and calibration sessions have no prediction; the result of a session is its measurement.
/// Remedies for violations are not part of plans and have actions of their own (`slo::RemedyAction`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Relocation of data to another device.
    Move(Move),
    /// Calibration session: a measurement of the effect of latency on a volume.
    Calibrate(CalibrationRun),
}

/// Purpose, reason, prediction and cost of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Purpose.
    #[serde(default)]
    pub goal: Goal,
    /// Reason.
    pub reason: Reason,
    /// Predicted change.
    pub effect: Effect,
    /// Cost.
    pub cost: Cost,
}

/// Predicted change for the volume. A value is `None` if the strategy does not predict it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Mean latency before, microseconds.
    pub latency_before_us: Option<f64>,
    /// Mean latency after, microseconds.
    pub latency_after_us: Option<f64>,
    /// Interval that contains the latency after with 90 % confidence, microseconds; `None` if the strategy gives no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_after_range_us: Option<(f64, f64)>,
    /// Requests per second before.
    pub iops_before: Option<f64>,
    /// Requests per second after.
    pub iops_after: Option<f64>,
}

/// Cost of an action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read from the source and written to the target.
    pub bytes: Bytes,
    /// Duration; for a move at the planned copy rate.
    pub duration: Nanos,
}

/// Relocation of a volume, or of some of its extents, from one device to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Volume to move.
    pub volume: VolumeId,
    /// Source device according to the facts.
    pub from: DeviceId,
    /// Target device.
    pub to: DeviceId,
    /// Extents to move, all on the source at the time of the plan; `None` for the whole volume, on whichever devices it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// Size of the volume or of the extents.
    pub size: Bytes,
    /// Positions in the plan of the moves that must end first, because they free the space for this move.
    pub after: Vec<u32>,
    /// Upper limit of the copy rate.
    pub bandwidth: BytesPerSec,
    /// Purpose, reason, prediction and cost.
    #[serde(flatten)]
    pub terms: Terms,
}

/// Calibration session of one volume: windows with injected latency, with control windows between them (paper 0, TSSCS).
/// The result is the sensitivity of the volume to latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationRun {
    /// Volume to measure.
    pub volume: VolumeId,
    /// Windows, in order.
    pub steps: Vec<CalibrationStep>,
    /// Purpose, reason, prediction and cost.
    #[serde(flatten)]
    pub terms: Terms,
}

impl CalibrationRun {
    /// Returns a session with these steps. Its duration is the sum of theirs.
    pub fn new(volume: VolumeId, steps: Vec<CalibrationStep>) -> Self {
        let duration = steps.iter().map(|s| s.duration).sum();
        let text = "measures the effect of added latency on the volume";
        Self {
            volume,
            steps,
            terms: Terms {
                goal: Goal::Latency,
                reason: Reason::new("calibration", text),
                effect: Effect::default(),
                cost: Cost {
                    bytes: Bytes::ZERO,
                    duration,
                },
            },
        }
    }
}

/// Window of a calibration session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationStep {
    /// Latency to add to every request; zero for a control window.
    pub inject: Nanos,
    /// Length of the window.
    pub duration: Nanos,
}

impl Action {
    /// Returns the volume of the action.
    pub fn volume(&self) -> VolumeId {
        match self {
            Action::Move(a) => a.volume,
            Action::Calibrate(a) => a.volume,
        }
    }
}
