//! Remedies as data: action, price and prediction.

use model::ExtentRanges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

use crate::load::{Cost, Prediction};
pub use crate::price::Price;
use crate::price::Total;
use crate::sample::{HostId, ResourceId, WorkloadId};

/// Kind of remedy for a violation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyKind {
    /// Limit of an interfering workload's rate, never below its guaranteed rate.
    Throttle,
    /// Share of the array's cache for one workload.
    MemoryShare,
    /// Unused flash for the over-provisioning of one workload.
    OpsShare,
    /// Mirror of a workload's most-read extents on another device.
    Mirror,
    /// Caching appliance in front of the array.
    Appliance,
    /// Move of a workload's data to another device.
    Move,
}

impl RemedyKind {
    /// All kinds, in the order of the ladder.
    pub const ALL: [RemedyKind; 6] = [
        RemedyKind::Throttle,
        RemedyKind::MemoryShare,
        RemedyKind::OpsShare,
        RemedyKind::Mirror,
        RemedyKind::Appliance,
        RemedyKind::Move,
    ];
}

impl RemedyKind {
    /// Returns the name in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            RemedyKind::Throttle => "throttle",
            RemedyKind::MemoryShare => "memory-share",
            RemedyKind::OpsShare => "ops-share",
            RemedyKind::Mirror => "mirror",
            RemedyKind::Appliance => "appliance",
            RemedyKind::Move => "move",
        }
    }
}

/// Action of a remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RemedyAction {
    /// Limits the rate of `workload`.
    Throttle {
        workload: WorkloadId,
        /// Requests per second.
        rate_per_s: f64,
    },
    /// Reserves a share of the cache for `workload`.
    GiveMemory {
        workload: WorkloadId,
        /// Size of the share.
        size: Bytes,
    },
    /// Gives unused flash to `workload` for over-provisioning.
    GiveOps {
        workload: WorkloadId,
        /// Present write amplification factor.
        waf: f64,
        /// Write amplification factor with the unused flash.
        waf_with_spare: f64,
    },
    /// Mirrors extents.
    Mirror(SecondCopies),
    /// Creates an appliance for `workload`.
    Appliance {
        workload: WorkloadId,
        host: HostId,
        cache: Bytes,
        /// Expected hit ratio, as a share of the reads.
        hits: f64,
    },
    /// Moves a workload's data to another device.
    Move(OtherDevice),
}

impl RemedyAction {
    /// Returns the kind of remedy.
    pub fn kind(&self) -> RemedyKind {
        match self {
            RemedyAction::Throttle { .. } => RemedyKind::Throttle,
            RemedyAction::GiveMemory { .. } => RemedyKind::MemoryShare,
            RemedyAction::GiveOps { .. } => RemedyKind::OpsShare,
            RemedyAction::Mirror(_) => RemedyKind::Mirror,
            RemedyAction::Appliance { .. } => RemedyKind::Appliance,
            RemedyAction::Move(_) => RemedyKind::Move,
        }
    }

    /// Returns the workload that the action changes.
    pub fn workload(&self) -> WorkloadId {
        match self {
            RemedyAction::Throttle { workload, .. }
            | RemedyAction::GiveMemory { workload, .. }
            | RemedyAction::GiveOps { workload, .. }
            | RemedyAction::Appliance { workload, .. } => *workload,
            RemedyAction::Mirror(copies) => copies.workload,
            RemedyAction::Move(other) => other.workload,
        }
    }
}

/// Throttled workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThrottledWorkload {
    pub workload: WorkloadId,
    /// Limit, requests per second.
    pub rate_per_s: f64,
    /// Demand before the throttle, requests per second.
    pub asked_per_s: f64,
}

/// Evaluated remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    pub kind: RemedyKind,
    /// Action of the remedy; `None` if nothing is possible.
    pub action: Option<RemedyAction>,
    /// Parts of the price.
    pub price: Price,
    /// Total price.
    #[serde(default)]
    pub total: Total,
    /// Predicted state with the remedy.
    pub prediction: Option<Prediction>,
    /// Reason of the rejection; `None` if the remedy suffices.
    pub refused: Option<String>,
}

impl Remedy {
    /// Returns true if the remedy suffices.
    pub fn would_do(&self) -> bool {
        self.refused.is_none() && self.action.is_some()
    }
}

/// Time until a cache share takes effect: its misses must fill it.
pub const MEMORY_EFFECT: Nanos = Nanos::from_secs(120);
/// Time until more over-provisioning takes effect: garbage collection must process the old blocks.
pub const OPS_EFFECT: Nanos = Nanos::from_secs(600);

/// Unused flash that a workload could get for over-provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpareOps {
    /// Workload whose writes would cost less.
    pub workload: WorkloadId,
    /// Present write amplification factor.
    pub waf: f64,
    /// Write amplification factor with all of the unused flash.
    pub waf_with_spare: f64,
}

/// Possible mirror of some of a workload's extents on another device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondCopies {
    /// Workload whose reads would be divided between the devices.
    pub workload: WorkloadId,
    /// Device of the data.
    pub from: ResourceId,
    /// Device of the mirror.
    pub to: ResourceId,
    /// Extents to mirror.
    pub extents: ExtentRanges,
    pub bytes: Bytes,
    /// Share of these extents in the workload's reads at `from`, 0..=1.
    pub reads: f64,
    /// Share of these extents in the workload's writes at `from`, 0..=1. With the mirror they go to both devices.
    pub writes: f64,
    /// Cost of the workload's requests at `to`.
    pub cost: Cost,
    /// Expected copy rate.
    pub copy_rate: BytesPerSec,
}

/// Possible target for a move of a workload's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherDevice {
    /// Workload whose data would move.
    pub workload: WorkloadId,
    /// Present device.
    pub from: ResourceId,
    /// Target device.
    pub to: ResourceId,
    /// Amount of data to copy.
    pub bytes: Bytes,
    /// Cost of the workload's requests at `to`.
    pub cost: Cost,
    /// Latency of one of its requests at `to` if that device is otherwise idle, µs; `None` if it is unknown.
    pub idle_us: Option<f64>,
    /// Expected copy rate.
    pub copy_rate: BytesPerSec,
}
