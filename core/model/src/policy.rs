//! Policy: limits, gates and rules that decisions obey.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos, TierId, VolumeId};

/// Service class. Its `ClassId` is its position in the list of classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SloClass {
    /// Unique name.
    pub name: String,
    /// Weight in scores (SLA weight of paper 0); a class with a higher weight is more important.
    pub weight: f64,
    /// Latency objective; `None` if the class has none.
    pub target: Option<Objective>,
    /// Largest permitted mean latency of a volume, as a multiple of the one at its original place; `None` for no limit. Only classes
    /// without an objective have a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_slowdown: Option<f64>,
}

/// Default of [`SloClass::max_slowdown`] for classes without an objective.
pub const MAX_SLOWDOWN: f64 = 2.0;

/// Latency objective. Simulation, live system and protocols use this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Statistic of the latency of all requests in a window.
    pub statistic: SloStatistic,
    /// Largest value of the statistic that meets the objective.
    pub latency: Nanos,
}

/// Latency objective of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassObjective {
    /// Name of the class.
    pub class: String,
    /// Objective of the volumes of the class.
    #[serde(flatten)]
    pub objective: Objective,
}

/// Statistic of the latency of all requests in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SloStatistic {
    /// Arithmetic mean.
    #[default]
    Mean,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
}

impl SloStatistic {
    /// Returns the name in messages and JSON.
    pub fn name(self) -> &'static str {
        match self {
            SloStatistic::Mean => "mean",
            SloStatistic::P95 => "p95",
            SloStatistic::P99 => "p99",
        }
    }
}

/// Share of each resource of a tier that plans may use (Γ of paper 0, Eq. 5), 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// Share of IOPS.
    pub performance: f64,
    /// Share of bandwidth.
    pub bandwidth: f64,
    /// Share of space that is used without a price. It does not limit whole volumes: `terrace` has a price for the rest, the
    /// reserve; strategies of extents fill the first tier up to this share.
    pub space: f64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self {
            performance: 0.8,
            bandwidth: 0.8,
            space: 0.9,
        }
    }
}

/// Decision intervals (paper 0: monitorEpoch < migrationEpoch; the default values are ours).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// Interval at which facts are gathered and models updated.
    pub monitor: Nanos,
    /// Interval at which plans may move data; a multiple of `monitor`.
    pub migration: Nanos,
}

impl Default for Epochs {
    fn default() -> Self {
        Self {
            monitor: Nanos::from_secs(60),
            migration: Nanos::from_secs(900),
        }
    }
}

/// Limits of moves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Number of moves that may start per migration epoch.
    pub moves_per_epoch: u32,
    /// Bytes moved per migration epoch; `None` for no limit.
    pub bytes_per_epoch: Option<Bytes>,
    /// Number of concurrent copies in total.
    pub concurrent: u32,
    /// Number of concurrent copies that read from or write to one device.
    pub concurrent_per_device: u32,
    /// Largest rate of one copy.
    pub copy_bandwidth: BytesPerSec,
    /// Share of the spare bandwidth of source and target that a copy may use, 0..=1.
    pub copy_share: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            moves_per_epoch: 64,
            bytes_per_epoch: None,
            concurrent: 4,
            concurrent_per_device: 1,
            copy_bandwidth: BytesPerSec(200 << 20),
            copy_share: 0.25,
        }
    }
}

/// Rule that a volume stays on one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Pinned volume.
    pub volume: VolumeId,
    /// Only tier that the volume may use.
    pub tier: TierId,
}

/// Affinity rule: volumes that must share a tier, or must not share a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// Kind of the rule.
    pub kind: AffinityKind,
    /// Volumes of the rule.
    pub volumes: Vec<VolumeId>,
}

/// Kind of an affinity rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AffinityKind {
    /// All volumes are on the same tier.
    SameTier,
    /// No two volumes are on the same device.
    DifferentDevices,
}

/// Conditions that a move for latency must meet. Moves for other goals are not subject to gates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gates {
    /// Number of consecutive placement decisions that must want the volume on the same tier; 1 permits a move at once.
    pub hold: u32,
    /// Minimum time since the end of the volume's last move.
    pub cooldown: Nanos,
    /// Required relative decrease of the volume's predicted mean latency, 0..=1.
    pub margin: f64,
    /// Mean latency below which volumes stay in place.
    pub threshold: Nanos,
}

impl Default for Gates {
    /// Returns gates that every move passes.
    fn default() -> Self {
        Self {
            hold: 1,
            cooldown: Nanos::ZERO,
            margin: 0.0,
            threshold: Nanos::ZERO,
        }
    }
}

/// Policy of an array.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Decision intervals.
    pub epochs: Epochs,
    /// Share of each resource that plans may use.
    pub headroom: Headroom,
    /// Limits of moves.
    pub budget: Budget,
    /// Pinned volumes.
    pub pins: Vec<Pin>,
    /// Affinity rules.
    pub affinity: Vec<Affinity>,
    /// Tiers that accept no new data.
    pub cordoned: Vec<TierId>,
    /// Tiers to evacuate; they accept no new data.
    #[serde(default)]
    pub draining: Vec<TierId>,
    /// Used share of a device's space, 0..=1, above which its least used volumes move away; `None` for no limit.
    #[serde(default)]
    pub space_high: Option<f64>,
    /// Conditions that a move for latency must meet.
    #[serde(default)]
    pub gates: Gates,
    /// Volumes whose requests must not be delayed for calibration.
    #[serde(default)]
    pub no_injection: Vec<VolumeId>,
}

impl Policy {
    /// Returns true if requests of the volume may be delayed for calibration.
    pub fn may_inject(&self, volume: VolumeId) -> bool {
        !self.no_injection.contains(&volume)
    }

    /// Returns true if the tier is cordoned or draining.
    pub fn takes_no_data(&self, tier: TierId) -> bool {
        self.cordoned.contains(&tier) || self.draining.contains(&tier)
    }

    /// Returns the tier to which the volume is pinned.
    pub fn pin_of(&self, volume: VolumeId) -> Option<TierId> {
        self.pins
            .iter()
            .find(|p| p.volume == volume)
            .map(|p| p.tier)
    }
}

/// Name of the class of volumes without a class. It has weight 1 and no objective unless the configuration describes a class with
/// this name.
pub const NO_CLASS: &str = "default";

impl SloClass {
    /// Returns the class of volumes without a class or with an unknown class: no objective, weight 1, default limit of slowdown.
    pub fn none() -> Self {
        Self {
            name: NO_CLASS.into(),
            weight: 1.0,
            target: None,
            max_slowdown: Some(MAX_SLOWDOWN),
        }
    }
}
