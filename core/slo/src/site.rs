//! Inputs and outputs of the responder as plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::curve::Curve;
use crate::host::Host;
use crate::ladder::{OtherDevice, RemedyAction, SecondCopies, SpareOps};
use crate::load::Backend;
use crate::measured::Habit;
use crate::reroute::Attachment;
use crate::sample::{HostId, Promise, ResourceId, WorkloadId};
use crate::warm::Warm;
use crate::zones::Zone;

/// Workload of a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Name in messages.
    pub name: String,
    /// Objective of the workload.
    pub objective: Promise,
    /// Host of its virtual machine.
    pub host: HostId,
    /// Path to the storage.
    pub attachment: Attachment,
    /// Resources that it uses. Workloads without a common resource do not interfere.
    pub resources: Vec<ResourceId>,
    /// Pool of the array's memory that holds its data.
    pub pool: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Workloads by number.
    pub workloads: Vec<Workload>,
    /// Compute servers.
    pub hosts: Vec<Host>,
    /// The array.
    pub backend: Backend,
}

/// Data that is computed only when a decision needs it.
pub trait Knowledge {
    /// Returns the miss-ratio curve of a workload's reads; `None` if too few reads are known.
    fn curve(&self, workload: WorkloadId) -> Option<Curve>;
    /// Returns the hot zones of the last minutes.
    fn zones(&self, workload: WorkloadId) -> Vec<Zone>;
    /// Returns the hot zones of the minutes before those.
    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone>;
    /// Returns the effect of unused flash on a workload's writes; `None` if its device has no unused flash.
    fn spare_flash(&self, _: WorkloadId) -> Option<SpareOps> {
        None
    }
    /// Returns possible mirrors of the extents that a workload reads most, each with more bytes than the previous one.
    fn second_copies(&self, _: WorkloadId) -> Vec<SecondCopies> {
        vec![]
    }
    /// Returns the devices to which a workload's data could move now.
    fn other_devices(&self, _: WorkloadId) -> Vec<OtherDevice> {
        vec![]
    }
}

/// Forecast of a peak, with the record of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    pub workload: WorkloadId,
    /// Start of the peak.
    pub at: Nanos,
    /// Latest start of the peak: remedies for it are not released before.
    pub by: Nanos,
    /// Expected end.
    pub until: Nanos,
    /// Number of earlier peaks that the forecast rests on; 0 if the driver announced it.
    pub seen: usize,
    /// Expected demand, requests per second.
    pub rate_per_s: f64,
    /// Recorded miss-ratio curve. Without one, no cache is considered.
    pub curve: Option<Curve>,
    /// Recorded hot zones.
    pub zones: Vec<Zone>,
    /// Preloading of these zones.
    pub warm: WarmForecast,
    /// Character of its requests in the peak; before it the workload may be idle.
    pub habit: Habit,
}

/// Preloading of a forecast's zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarmForecast {
    /// The zones are read before the peak.
    Read,
    /// The zones are not read before the peak.
    Leave,
}

/// Order of the responder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum ResponseOrder {
    /// Creates an appliance, warms it up and re-routes requests through it.
    CreateAppliance {
        workload: WorkloadId,
        host: HostId,
        /// Virtual CPUs.
        cpus: u32,
        /// Memory, including the appliance's own use.
        memory: Bytes,
        /// Memory for the cache.
        cache: Bytes,
        /// Method of re-routing.
        way: String,
        /// Content to read in advance.
        warm: Warm,
    },
    /// Routes requests back to the backend and removes the appliance.
    RemoveAppliance { workload: WorkloadId, why: String },
    /// Starts another remedy.
    Carry { action: RemedyAction },
    /// Ends a throttle.
    Unthrottle { workload: WorkloadId },
    /// Releases a cache share, unused flash or a mirror.
    TakeBack {
        /// Remedy to release.
        action: RemedyAction,
    },
}

/// End of a move of a workload's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "moved", rename_all = "kebab-case")]
pub enum MoveEvent {
    /// All of the data is on the target.
    Done,
    /// The move failed; part of the data may be on the target.
    Failed { why: String },
}

/// Event of an appliance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ApplianceEvent {
    /// Requests go through it.
    Serving,
    /// It is being removed: its requests are being routed back to the backend, or already are.
    Returning,
    /// Requests could not be routed back. The appliance serves until an operator acts.
    Stranded,
    /// The creation failed; requests go to the backend.
    Failed { why: String },
    /// Requests go to the backend, but it could not be destroyed. It keeps its memory until [`crate::Responder::freed`] is
    /// called.
    LeftBehind { why: String },
    /// It is removed; requests go to the backend.
    Removed,
}

impl ApplianceEvent {
    /// Returns the message for the workload of this name; `None` if an earlier order has reported it.
    pub fn in_words(&self, name: &str) -> Option<String> {
        Some(match self {
            ApplianceEvent::Serving => format!("{name} goes through its appliance"),
            ApplianceEvent::Returning => return None,
            ApplianceEvent::Stranded => format!(
                "appliance of {name} is stranded: its requests cannot be sent back to the array"
            ),
            ApplianceEvent::Failed { why } => format!("appliance of {name} failed: {why}"),
            ApplianceEvent::LeftBehind { why } => {
                format!("appliance of {name} could not be destroyed and keeps its memory: {why}")
            }
            ApplianceEvent::Removed => format!("appliance of {name} was removed"),
        })
    }
}
