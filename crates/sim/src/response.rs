//! A simulated world in which objectives break: compute servers, an array with its disks, memory and link, workloads that share
//! it, and caching appliances that come and go while they run.
//!
//! ```text
//!  host 0                          array
//!  ┌─────────────────────┐         ┌───────────────────────────────────┐
//!  │ workload ─▶ appliance├──link──▶ controller ─▶ memory ─▶ 10 + 1 disks│      samples, every 10 s
//!  │ workload ────────────┼────────▶                    (RAID-4)        │ ───▶ slo::Responder ─▶ orders
//!  └─────────────────────┘         └───────────────────────────────────┘ ◀─── executor::Appliances ◀─┘
//! ```
//!
//! It is a world of its own beside the array of tiers that the rest of this crate simulates: there nothing is created, here nothing
//! is placed. What is decided is decided by `slo`, and carried out by `executor`'s state machines, as in any other world.
//!
//! What it knows: first come first served at disks and link; memory with second chances; a bound on outstanding requests, which
//! turns an open trace into a closed loop when storage is slow (what waits is counted, and what was not served at the end); write-back
//! from battery-backed memory. All rungs of the ladder are carried out: throttles, parts of the memory, cheaper writes once flash was
//! given, appliances, and copies to another backend that read the disks meanwhile. Whatever keeps data is held against what was
//! written last, read by read ([`ResponseResult::stale`]).
//!
//! What it does not know: read-ahead by the array, elevators, the guests' own file caches, the network's loss and congestion
//! control; how flash comes to its write amplification (it is given, before and after); the inside and the link of the other backend.

mod backend;
mod control;
mod elsewhere;
mod keeps;
mod load;
mod memory;
mod model;
mod monitor;
mod mover;
mod nodes;
mod parts;
mod run;
mod world;

use units::Nanos;

pub use backend::ArrayModel;
pub use config::scenario::ReductionConfig;
pub(crate) use keeps::FillBudget;
pub use keeps::Keeps;
pub use load::{Arriving, Generated, Load, LoadOp, LoadPhase, RecordedRequest, Region};
pub use model::{
    ApplianceModel, CurvePair, MemoryBefore, ResponseEvent, ResponseFault, ResponseModel,
    ResponseMove, ResponseResult, ResponseSeries, ResponseWorkload, Uses, ZonesKnown,
};
pub use nodes::Writes;
pub use run::{backend_facts, respond};

/// Between two samples (the paper's ten seconds).
pub const SAMPLE: Nanos = slo::SAMPLE;
