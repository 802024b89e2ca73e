//! What a plan can order: one type for each kind of action, and what all of them say of themselves.

use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

use crate::{ExtentRanges, Goal, Reason};

/// One thing to do.
///
/// Both kinds are carried out in every world. What became of a volume's move is kept beside what was predicted of it; moves of extents
/// have no prediction yet, and a calibration has none: what comes of it is what it measures. What is done when an objective breaks is no
/// plan's: answers have actions of their own (`slo::RemedyAction`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Data goes to another device.
    Move(Move),
    /// What latency does to a volume is measured.
    Calibrate(CalibrationRun),
}

/// What every action says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// What it is for.
    #[serde(default)]
    pub goal: Goal,
    /// Why.
    pub reason: Reason,
    /// The prediction: what it is expected to change.
    pub effect: Effect,
    /// The price: what it costs.
    pub cost: Cost,
}

/// Predicted change for the volume; `None` where the strategy predicts nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Mean latency before, microseconds.
    pub latency_before_us: Option<f64>,
    /// Mean latency after, microseconds.
    pub latency_after_us: Option<f64>,
    /// Between what bounds it is expected with 90 % confidence, microseconds; none from a strategy that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_after_range_us: Option<(f64, f64)>,
    /// Request rate before.
    pub iops_before: Option<f64>,
    /// Request rate after.
    pub iops_after: Option<f64>,
}

/// Price of an action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read from the source and written to the target.
    pub bytes: Bytes,
    /// Time it takes, of a move at the planned rate.
    pub duration: Nanos,
}

/// One volume from one device to another, or some of its extents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The volume.
    pub volume: VolumeId,
    /// Its source: the device that the facts showed.
    pub from: DeviceId,
    /// Its target.
    pub to: DeviceId,
    /// The extents that move, all of them on the source when planned; `None` is the whole volume, wherever it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// The volume's size, or that of the extents.
    pub size: Bytes,
    /// Positions in the plan of moves that must have ended first, because this one needs the space they free.
    pub after: Vec<u32>,
    /// Copy rate, at most.
    pub bandwidth: BytesPerSec,
    /// For what, why, and at what price.
    #[serde(flatten)]
    pub terms: Terms,
}

/// A session of injected latency on one volume (paper 0's TSSCS), with control windows between. What comes of it is the volume's
/// sensitivity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationRun {
    /// The volume.
    pub volume: VolumeId,
    /// Windows, in order.
    pub steps: Vec<CalibrationStep>,
    /// For what, why, and at what price.
    #[serde(flatten)]
    pub terms: Terms,
}

impl CalibrationRun {
    /// Of these steps, to learn what latency does to the volume.
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

/// One window of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationStep {
    /// Latency to add to every request; zero is a control window.
    pub inject: Nanos,
    /// Length of the window.
    pub duration: Nanos,
}

impl Action {
    /// The volume that it is about.
    pub fn volume(&self) -> VolumeId {
        match self {
            Action::Move(a) => a.volume,
            Action::Calibrate(a) => a.volume,
        }
    }
}
