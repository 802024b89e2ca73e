//! Tenants on one device: their loads, the scheduling between them, their objectives, and their shares.
//!
//! ```text
//!  load of each tenant ─▶ its queue ─▶ service (first come, weights, device time) ─▶ tags ─▶ the drive picks ─▶ Drive
//!        ▲                                                                                                        │
//!        └────────────────────── closed loops: the next request after a reply ◀──────────────────────────────────┘
//! ```
//!
//! The effect of spare space alone depends on the service. The cost model gives the IOPS of a tenant *while the device
//! serves it*. Under first come, first served, tenants with equal numbers of outstanding requests get equal IOPS,
//! whatever their spare space. Only with [`Service::DeviceTime`] does more spare space mean more IOPS.

mod control;
mod disk;
mod engine;
mod load;
mod objectives;
mod outcome;
mod plan;
mod room;
mod service;

pub use control::{Control, Slo, spare_split};
pub use disk::Disk;
pub use engine::{Host, WAITING_MAX, run};
pub use load::{Generator, Load, LoadError, RecordedRequest};
pub use objectives::{objectives, shares_for_objectives};
pub use outcome::{Latency, Outcome, TenantOutcome, proportionality};
pub use plan::{HostConfig, Target, TenantPlan};
pub use room::{Split, place_tenants};
pub use service::Service;
