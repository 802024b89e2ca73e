//! The rungs of the ladder as data: what each does, takes and would lead to.

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
    /// All, in the order of the ladder.
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
    /// Its name.
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

/// What a rung would have done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RemedyAction {
    /// Hold `workload` to a rate.
    Throttle {
        workload: WorkloadId,
        /// Requests per second.
        rate_per_s: f64,
    },
    /// A part of the memory for `workload`.
    GiveMemory {
        workload: WorkloadId,
        /// How much.
        size: Bytes,
    },
    /// Spare flash for `workload`.
    GiveOps {
        workload: WorkloadId,
        /// Write-amplification factor now.
        waf: f64,
        /// And with the spare flash.
        waf_with_spare: f64,
    },
    /// Second copies of extents.
    Mirror(SecondCopies),
    /// An appliance for `workload`.
    Appliance {
        workload: WorkloadId,
        host: HostId,
        cache: Bytes,
        /// Hits that are expected, share of the reads.
        hits: f64,
    },
    /// A workload's data goes to another device.
    Move(OtherDevice),
}

impl RemedyAction {
    /// Of which rung it is.
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

    /// To whom it is done.
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

/// A workload that is held to a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    pub workload: WorkloadId,
    /// Requests per second that it may have.
    pub rate_per_s: f64,
    /// And that it asked for before it was held.
    pub asked_per_s: f64,
}

/// A rung, looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    pub kind: RemedyKind,
    /// What it would do; `None` where there is nothing it could.
    pub action: Option<RemedyAction>,
    /// What that takes.
    pub price: Price,
    /// And what that is in all.
    #[serde(default)]
    pub total: Total,
    /// What would be.
    pub prediction: Option<Prediction>,
    /// Why it is not taken; `None` if it would do.
    pub refused: Option<String>,
}

impl Remedy {
    /// Whether it would do.
    pub fn would_do(&self) -> bool {
        self.refused.is_none() && self.action.is_some()
    }
}

/// Until a part of the memory helps: its misses have to fill it.
pub const MEMORY_EFFECT: Nanos = Nanos::from_secs(120);
/// Until more over-provisioned flash helps: garbage collection has to work through the old blocks.
pub const OPS_EFFECT: Nanos = Nanos::from_secs(600);

/// Over-provisioning that could be given to a workload on flash.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpareOps {
    /// Whose writes would be cheaper.
    pub workload: WorkloadId,
    /// Write-amplification factor now.
    pub waf: f64,
    /// And with all the spare flash.
    pub waf_with_spare: f64,
}

/// Second copies of some of a workload's extents that could be made on another device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondCopies {
    /// Whose reads could go to either device.
    pub workload: WorkloadId,
    /// The device of the first copies.
    pub from: ResourceId,
    /// The device of the second ones.
    pub to: ResourceId,
    /// What would be copied.
    pub extents: ExtentRanges,
    pub bytes: Bytes,
    /// Share of its reads at `from` that are of these extents, 0..=1.
    pub reads: f64,
    /// Share of its writes at `from`, which go to both then.
    pub writes: f64,
    /// What its requests would cost at `to`.
    pub cost: Cost,
    /// At which rate they are expected to be made.
    pub copy_rate: BytesPerSec,
}

/// A device that a workload's data could move to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherDevice {
    /// Whose data.
    pub workload: WorkloadId,
    /// Where it is.
    pub from: ResourceId,
    /// Where it could be.
    pub to: ResourceId,
    /// What would be copied.
    pub bytes: Bytes,
    /// What its requests would cost at `to`.
    pub cost: Cost,
    /// How long one of its requests takes at `to` while nothing else is asked of that, microseconds; none where it is not known.
    pub idle_us: Option<f64>,
    /// At which rate it is expected to be copied.
    pub copy_rate: BytesPerSec,
}
