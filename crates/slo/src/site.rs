//! What the responder is told and what it answers, as data.

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

/// A workload as it is known when it is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// For people.
    pub name: String,
    /// What it was promised.
    pub objective: Promise,
    /// Where its virtual machine runs.
    pub host: HostId,
    /// How it reaches its storage.
    pub attachment: Attachment,
    /// Resources that it uses: pairs without a common one do not interfere.
    pub resources: Vec<ResourceId>,
    /// Which part of the array's memory its data is kept in.
    pub pool: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// By number.
    pub workloads: Vec<Workload>,
    /// Compute servers.
    pub hosts: Vec<Host>,
    /// The array.
    pub backend: Backend,
}

/// What is only looked up when a decision asks for it.
pub trait Knowledge {
    /// Miss ratios of a workload's reads; `None` while not enough is known.
    fn curve(&self, workload: WorkloadId) -> Option<Curve>;
    /// Heavy zones of the last minutes.
    fn zones(&self, workload: WorkloadId) -> Vec<Zone>;
    /// Heavy zones of the minutes before those.
    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone>;
    /// What over-provisioned flash that nobody has would do for a workload's writes; `None` where there is none below it.
    fn spare_flash(&self, _: WorkloadId) -> Option<SpareOps> {
        None
    }
    /// Second copies that could be made of what a workload reads most, each choice of more bytes than the one before.
    fn second_copies(&self, _: WorkloadId) -> Vec<SecondCopies> {
        vec![]
    }
    /// Other devices that a workload's data could move to now.
    fn other_devices(&self, _: WorkloadId) -> Vec<OtherDevice> {
        vec![]
    }
}

/// A peak that is coming, with what was recorded of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    pub workload: WorkloadId,
    /// When it begins.
    pub at: Nanos,
    /// When it has begun at the latest: what is done for it is not taken back before.
    pub by: Nanos,
    /// When it is over, as far as that is known.
    pub until: Nanos,
    /// How many such peaks it rests on; 0 where somebody has said so.
    pub seen: usize,
    /// What it will ask for, requests per second.
    pub rate_per_s: f64,
    /// Recorded miss ratios; none where none were known, and then no cache is an answer.
    pub curve: Option<Curve>,
    /// Recorded heavy zones.
    pub zones: Vec<Zone>,
    /// Whether recorded zones are read in advance.
    pub warm: WarmForecast,
    /// What its requests were like: now, before its peak, it may not have any.
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

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum ResponseOrder {
    /// An appliance, re-routing and warm-up.
    CreateAppliance {
        workload: WorkloadId,
        host: HostId,
        /// Virtual CPUs.
        cpus: u32,
        /// Memory, its own included.
        memory: Bytes,
        /// The part that caches.
        cache: Bytes,
        /// How requests get there.
        way: String,
        /// What it reads first.
        warm: Warm,
    },
    /// Back to the backend, then away with it.
    RemoveAppliance { workload: WorkloadId, why: String },
    /// Anything else on the ladder.
    Carry { action: RemedyAction },
    /// The end of a throttle.
    Unthrottle { workload: WorkloadId },
    /// Memory or flash that was given goes back to where it was, second copies are given up.
    TakeBack {
        /// What was given.
        action: RemedyAction,
    },
}

/// What became of a move of a workload's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "moved", rename_all = "kebab-case")]
pub enum MoveEvent {
    /// The workload's data is where it was to go.
    Done,
    /// It is not, or not all of it.
    Failed { why: String },
}

/// What became of an appliance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ApplianceEvent {
    /// Requests go through it.
    Serving,
    /// It is being given up: requests are being sent back to the backend, or are there, and it is being taken away.
    Returning,
    /// Requests could not be sent back: it serves on, for an operator to look at.
    Stranded,
    /// It came to nothing; requests go to the backend.
    Failed { why: String },
    /// Requests go to the backend, but it could not be destroyed: it keeps its memory until [`crate::Responder::freed`] is called.
    LeftBehind { why: String },
    /// It is gone; requests go to the backend.
    Removed,
}

impl ApplianceEvent {
    /// In words, of the workload of that name; none for what an order before it has said.
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
