//! Response to violations of service-level objectives: detection, analysis, and choice of the cheapest remedy that suffices.
//!
//! ```text
//!  samples, every 10 s ─▶ detect ─▶ interference ─▶ cacheable ─▶ sizing ─▶ solutions ─┐
//!                                                    curve          load (the model)  ▼
//!  orders ◀─ responder ◀─ warm ◀─ reroute ◀─ host ◀──────────────────────────────── ladder
//!     │                    zones
//!     └▶ appliance life cycle (crate `executor`) ─▶ … ─▶ removal            seasonal ─▶ forecast
//! ```
//!
//! The workflow is that of Dynamite (Bairavasundaram et al., *Responding Rapidly to Service Level Violations Using Virtual
//! Appliances*, 2012). The step numbers are those of its figure 4. The paper leaves some parts open: statistics, thresholds
//! and the performance model. The comments mark our own choices. The ladder of remedies around the appliance is our
//! addition.
//!
//! Each step is a function or a small state machine whose evidence is plain data. [`Responder`] combines all steps, sans
//! I/O: it reads no clock and executes nothing. A decision ([`Decision`]) can be stored, read and explained.
//!
//! This crate does not measure: callers pass samples, curves and zones. It knows nothing of the inside of an appliance.

mod ahead;
pub mod cacheable;
mod copies;
pub mod curve;
mod decision;
pub mod detect;
pub mod host;
mod in_force;
pub mod interference;
mod joining;
mod judged;
pub mod ladder;
pub mod load;
mod measured;
mod moved;
mod orders;
mod placed;
pub mod price;
mod recorded;
mod remedy;
pub mod removal;
pub mod reroute;
mod responder;
mod sample;
pub mod seasonal;
mod site;
pub mod sizing;
pub mod solutions;
pub mod warm;
pub mod zones;

pub use ahead::{AheadConfig, KnownPeak};
pub use copies::CopiesConfig;
pub use decision::{Cacheability, Cause, Decision, Peak, Taker};
pub use in_force::ReleaseConfig;
pub use measured::Habit;
pub use responder::{DECISIONS_MAX, Responder, ResponderConfig};
pub use sample::{
    HostId, LIMITED_MIN, OCCUPIED_MIN, ObjectiveRelation, Promise, RATE_SLACK, ResourceId,
    ResourceUse, SAMPLE, Sample, WorkloadId,
};
pub use site::{
    ApplianceEvent, Forecast, Knowledge, MoveEvent, ResponseOrder, Site, WarmForecast, Workload,
};
