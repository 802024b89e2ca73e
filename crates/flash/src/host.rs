//! Tenants on one device: their loads, the service between them, their objectives, and who gets how much.
//!
//! ```text
//!  load of each tenant ─▶ its queue ─▶ service (first come, weights, device time) ─▶ tags ─▶ the drive picks ─▶ Drive
//!        ▲                                                                                                        │
//!        └────────────────────── closed loops: the next request when one is answered ◀───────────────────────────┘
//! ```
//!
//! What over-provisioned space alone can do depends on the service. The cost model says what a tenant gets *while the device serves it*;
//! under first come, first served, tenants with equally many requests outstanding all get the same, whatever their spare space.
//! Only with [`Service::DeviceTime`] does more spare space mean more IOPS.

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
pub use load::{Generator, Load, LoadError, Recorded};
pub use objectives::{objectives, shares_for_objectives};
pub use outcome::{Latency, Outcome, TenantOutcome, proportionality};
pub use plan::{HostConfig, Target, TenantPlan};
pub use room::{Split, place_tenants};
pub use service::Service;
