//! Advice for the placement of a volume that does not exist yet.

use model::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Advice for the placement of a volume that does not exist yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceView {
    /// Name of the host.
    pub host: String,
    /// Name of the strategy.
    pub strategy: String,
    /// Controller time of the facts behind the advice, nanoseconds.
    pub at_ns: u64,
    /// Size of the planned volume, bytes.
    pub size_bytes: u64,
    /// Service class of the planned volume.
    pub class: String,
    /// Existing volume whose load is assumed (`like`); null if none was named.
    pub like: Option<String>,
    /// Load that is assumed for the planned volume.
    pub load: PlaceLoadView,
    /// Recommended tier; null without a recommendation.
    pub tier: Option<String>,
    /// Reason for the recommendation, with its numbers; null without a recommendation.
    pub reason: Option<Reason>,
    /// Reason why no tier is recommended; null if one is.
    pub why_not: Option<String>,
    /// All tiers of the host, best first.
    pub tiers: Vec<PlaceTierView>,
    /// Notes; the first one gives the source of the assumed load.
    pub notes: Vec<String>,
}

/// Load that is assumed for a planned volume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceLoadView {
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
}

/// Suitability of a tier for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceStanding {
    /// The recommended tier.
    Best,
    /// Suitable, but another tier is better.
    Possible,
    /// Not judged by the strategy.
    Unknown,
    /// Unsuitable: a rule or lack of space rejects it.
    Refused,
}

/// Tier as a place for a planned volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceTierView {
    /// Name of the tier.
    pub tier: String,
    /// Suitability of the tier.
    pub standing: PlaceStanding,
    /// Reason, in words.
    pub verdict: String,
    /// Device of the tier that the predictions refer to; null without predictions.
    pub device: Option<String>,
    /// Predicted mean latency, microseconds; null without a prediction.
    pub latency_us: Option<f64>,
    /// Lower and upper bound of this prediction at 90 % confidence, microseconds; null without
    /// bounds.
    pub latency_range_us: Option<(f64, f64)>,
    /// Predicted violation with the volume on this tier; null without a prediction.
    pub cost: Option<PlaceCostView>,
    /// Predicted share of time in which the device is busy with the volume, from 0. A value above 1
    /// means that the device cannot serve the load.
    pub device_use: Option<f64>,
    /// Free space of the tier after placement, bytes; null if the tier is unsuitable.
    pub free_after_bytes: Option<u64>,
}

/// Predicted violation of a placement: seconds of violation per second, multiplied by the weight of
/// the class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceCostView {
    /// Total of the volume and of other volumes.
    pub total_per_s: f64,
    /// Violation of the volume itself.
    pub own_per_s: f64,
    /// Additional violation of other volumes; null if the strategy does not predict it.
    pub others_per_s: Option<f64>,
}
