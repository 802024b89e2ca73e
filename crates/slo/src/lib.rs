//! What is done when a service-level objective breaks: seen, understood, and answered by the cheapest step that works.
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
//! Appliances*, 2012), whose steps have the numbers of its figure 4; what it leaves open (statistics, thresholds, the
//! performance model) is ours and said to be so where it is. The ladder of answers around the appliance is ours.
//!
//! Every step is a function or a small state machine with its evidence as data, and [`Responder`] is all of them together,
//! sans I/O: it reads no clock and carries nothing out. A decision ([`Decision`]) can be stored, read and explained.
//!
//! What it is not: it does not measure (samples, curves and zones are told), and it knows nothing of the inside of an appliance.

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
    Busy, HostId, LIMITED_MIN, OCCUPIED_MIN, Promise, RATE_SLACK, ResourceId, SAMPLE, Sample,
    Standing, WorkloadId,
};
pub use site::{
    ApplianceEvent, Forecast, Knowledge, MoveEvent, ResponseOrder, Site, WarmForecast, Workload,
};
