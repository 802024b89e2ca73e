//! Advice about a volume that does not exist yet.

use model::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a volume that does not exist yet would do best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceView {
    /// The host.
    pub host: String,
    /// The strategy.
    pub strategy: String,
    /// When what is known was gathered, the controller's time.
    pub at_ns: u64,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Its service class.
    pub class: String,
    /// The volume whose load it is taken to have, if one was named.
    pub like: Option<String>,
    /// The load that it is taken to have.
    pub load: PlaceLoadView,
    /// The best tier; none where nothing is advised.
    pub tier: Option<String>,
    /// Why it is the best, with its numbers.
    pub reason: Option<Reason>,
    /// Why nothing is advised; none where something is.
    pub why_not: Option<String>,
    /// Every tier, best first.
    pub tiers: Vec<PlaceTierView>,
    /// Notes; the first says where the load is from.
    pub notes: Vec<String>,
}

/// A load that a volume is taken to have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceLoadView {
    /// r/s
    pub reads_per_s: f64,
    /// w/s
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
}

/// Whether a tier is a place for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceStanding {
    /// The best one.
    Best,
    /// It would do.
    Possible,
    /// The strategy says nothing about it.
    Unknown,
    /// It does not take the volume.
    Refused,
}

/// A tier as a place for a volume that does not exist yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceTierView {
    /// The tier.
    pub tier: String,
    /// Whether it is a place.
    pub standing: PlaceStanding,
    /// Why, in words.
    pub verdict: String,
    /// The device of the tier that the numbers are about; none where nothing is predicted.
    pub device: Option<String>,
    /// Predicted mean latency, microseconds.
    pub latency_us: Option<f64>,
    /// Between what bounds that is with 90 % confidence, microseconds.
    pub latency_range_us: Option<(f64, f64)>,
    /// What would be missed with the volume there.
    pub cost: Option<PlaceCostView>,
    /// Share of the device's time in use with the volume there; above 1 more is asked for than there is.
    pub device_use: Option<f64>,
    /// Space of the tier that would be left; none where it does not take the volume.
    pub free_after_bytes: Option<u64>,
}

/// What a placement would miss: seconds in which an objective is missed, times the weight of its class, per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceCostView {
    /// In all.
    pub total_per_s: f64,
    /// Of the volume itself.
    pub own_per_s: f64,
    /// What others would miss more than now; none where the strategy does not say.
    pub others_per_s: Option<f64>,
}
