//! What the operator wants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos, TierId, VolumeId};

/// A service class; its `ClassId` is its place in the inventory's list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SloClass {
    /// Unique name.
    pub name: String,
    /// Weight in scores (paper 0's SLA); higher is more important.
    pub weight: f64,
    /// The objective, if the class has one.
    pub target: Option<Objective>,
}

/// A latency objective: the one type for it, in every world and on every wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Which statistic of the latency of all requests in a window.
    pub statistic: SloStatistic,
    /// It must not exceed this.
    pub latency: Nanos,
}

/// The latency objective of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassObjective {
    /// The class.
    pub class: String,
    /// What its volumes were promised.
    #[serde(flatten)]
    pub objective: Objective,
}

/// A statistic of latency.
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
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            SloStatistic::Mean => "mean",
            SloStatistic::P95 => "p95",
            SloStatistic::P99 => "p99",
        }
    }
}

/// The share of each resource of a tier that placement may plan for (Γ of paper 0, Eq. 5), 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// Of IOPS.
    pub performance: f64,
    /// Of bandwidth.
    pub bandwidth: f64,
    /// Of space. Not a limit for whole volumes: all of a device may be planned with. `terrace` has a price for the rest, the
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

/// Decision intervals (paper 0: monitorEpoch < migrationEpoch; the values are ours).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// How often facts are gathered and models updated.
    pub monitor: Nanos,
    /// How often data may be moved; a multiple of `monitor`.
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

/// What moving may cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Moves started per migration epoch.
    pub moves_per_epoch: u32,
    /// Bytes moved per migration epoch.
    pub bytes_per_epoch: Option<Bytes>,
    /// Copies under way at once, in all.
    pub concurrent: u32,
    /// Copies under way at once that read from or write to one device.
    pub concurrent_per_device: u32,
    /// Rate of one copy.
    pub copy_bandwidth: BytesPerSec,
    /// A copy takes at most this share of what its source and target have left, 0..=1.
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

/// This volume stays on this tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The volume.
    pub volume: VolumeId,
    /// The only tier it may be on.
    pub tier: TierId,
}

/// Volumes that belong together, or must not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// Which of the two.
    pub kind: AffinityKind,
    /// The volumes.
    pub volumes: Vec<VolumeId>,
}

/// Kind of an affinity rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AffinityKind {
    /// All on one tier.
    SameTier,
    /// No two on one device.
    DifferentDevices,
}

/// What a strategy's wish has to pass before a volume moves for it. Moves for other goals pass as they are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gates {
    /// Placement decisions in a row that must want the volume on the same tier; 1 is at once.
    pub hold: u32,
    /// Time since the end of the volume's last move.
    pub cooldown: Nanos,
    /// Share by which the volume's mean latency must be predicted to fall, 0..=1.
    pub margin: f64,
    /// Volumes with a lower mean latency are fast enough to be left alone.
    pub threshold: Nanos,
}

impl Default for Gates {
    /// No gate at all.
    fn default() -> Self {
        Self {
            hold: 1,
            cooldown: Nanos::ZERO,
            margin: 0.0,
            threshold: Nanos::ZERO,
        }
    }
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Decision intervals.
    pub epochs: Epochs,
    /// Planning limits per resource.
    pub headroom: Headroom,
    /// Moving limits.
    pub budget: Budget,
    /// Pinned volumes.
    pub pins: Vec<Pin>,
    /// Affinity rules.
    pub affinity: Vec<Affinity>,
    /// Tiers that take no new data.
    pub cordoned: Vec<TierId>,
    /// Tiers to empty; they take no new data either.
    #[serde(default)]
    pub draining: Vec<TierId>,
    /// Share of a device's space, 0..=1, above which its least used volumes move away; `None` is no limit.
    #[serde(default)]
    pub space_high: Option<f64>,
    /// What a strategy's wish has to pass.
    #[serde(default)]
    pub gates: Gates,
    /// Volumes whose requests must not be delayed to learn from it.
    #[serde(default)]
    pub no_injection: Vec<VolumeId>,
}

impl Policy {
    /// Whether latency may be injected into a volume's requests.
    pub fn may_inject(&self, volume: VolumeId) -> bool {
        !self.no_injection.contains(&volume)
    }

    /// Whether no volume may be moved to a tier.
    pub fn takes_no_data(&self, tier: TierId) -> bool {
        self.cordoned.contains(&tier) || self.draining.contains(&tier)
    }

    /// The tier a volume is pinned to.
    pub fn pin_of(&self, volume: VolumeId) -> Option<TierId> {
        self.pins
            .iter()
            .find(|p| p.volume == volume)
            .map(|p| p.tier)
    }
}

/// The name of the class of volumes that were given none: no objective and weight 1, unless a configuration describes a class
/// of this name.
pub const NO_CLASS: &str = "default";

impl SloClass {
    /// What a volume is of that was given no class, or one that nobody described: no objective, weight 1.
    pub fn none() -> Self {
        Self {
            name: NO_CLASS.into(),
            weight: 1.0,
            target: None,
        }
    }
}
