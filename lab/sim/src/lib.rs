//! Simulated array: replays loads against tiers of devices under a placement strategy. Moves use device time and
//! bandwidth, as on a real array.
//!
//! ```text
//!  sources (traces, clients) ──▶ volume core ──▶ devices            the request path: `engine`
//!        ▲ completions                │ reports, once per window
//!        └────────────────────────────┼──▶ manager::Controller ──▶ orders ──▶ copies on the devices: `moving`
//!                                     └──▶ results over time: `stats`
//! ```
//!
//! A run is a function of the model, the strategy and the seed: the same inputs give the same bytes. All time is
//! simulated. Nothing here opens a file, reads a clock or starts a thread: the caller loads the traces, and may run
//! several simulations in parallel.

mod access;
mod agenda;
mod answering;
mod build;
mod cache_model;
mod cache_stage;
pub mod counting;
mod deferred;
mod depth;
mod device;
mod disks;
mod engine;
mod evidence;
mod faults;
mod flash_config;
mod flash_device;
mod frames;
mod generator;
mod heat;
mod host;
mod intervals;
mod measured;
mod mirroring;
mod moving;
pub mod optimum;
mod overdue;
mod pages;
mod parse;
mod played;
mod recorded;
mod requests;
mod result;
mod running;
mod scatter;
mod sensitivity;
mod session;
mod slots;
mod solo;
mod source;
mod stats;
mod stretch;
pub mod sweep;
mod tenants;
mod throttling;
mod wear;
mod world;

/// Invalid value in a scenario.
pub use config::ConfigFault as ScenarioError;

pub use answering::ServersModel;
pub use build::{ClientModel, Model, TraceModel, VolumeModel};
pub use cache_model::CacheModel;
pub use disks::DisksModel;
pub use engine::{
    RunError, RunOptions, RunProgress, run, run_while, run_with_evidence, run_with_intervals,
    run_with_requests,
};
pub use evidence::{AccessLog, Evidence, EvidenceOptions, VolumeEvidence, WindowEvidence};
pub use flash_config::FlashModel;
pub use generator::GeneratorModel;
pub use intervals::{IntervalLatencies, Intervals};
pub use parse::{ScenarioFile, scenario_schema};
pub use played::RatesModel;
pub use requests::{RequestServer, ServedRequest};
pub use result::{
    ApplianceRecord, CachePartSummary, CacheSummary, CacheVolumeSummary, DeviceSeries,
    DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary, Manifest, MoveRecord,
    MoveTotals, OtherRemedy, RUN_SCHEMA, RateRecord, RefusedRemedy, RemedyRecord, ResponseSummary,
    RunEvent, RunResult, Series, TraceHash,
};
pub use running::{RunningModel, host_settings};
pub use sensitivity::{
    SENSITIVITY_CASES, SensitivityCase, SensitivityError, SensitivityRow, TierErrors,
    sensitivity_row,
};
pub use solo::solo_loads;
pub use stretch::{ServedRequests, Stretch, StretchGroup, Stretches, TRIMMED};
pub use wear::{ClassWritten, DeviceWear, TenantWear, VmWear, WearSummary};
