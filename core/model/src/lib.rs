//! Data types of Terrace: topology, inventory, measurements, policy, plan and report.
//!
//! ```text
//!   Topology ─┐
//!   Facts ────┼──▶ planner ──▶ Plan   (actions; the executor chooses nothing)
//!   Policy ───┘             └▶ Report (reasons for moves, and filters that rejected others)
//! ```
//!
//! This crate decides nothing; the rules are in `planner`, `volume` and `executor`. Facts, policies, plans and reports are
//! serializable. A stored decision can therefore be repeated.

#![warn(missing_docs)]

mod action;
mod device;
mod error;
mod extent_facts;
mod extent_ranges;
mod facts;
mod io;
mod job;
mod lease;
mod mode;
mod physical;
mod plan;
mod policy;
mod presets;
mod reason;
mod report;
mod score;

pub use action::{Action, CalibrationRun, CalibrationStep, Cost, Effect, Move, Terms};
pub use device::{Device, DeviceSpec, LoadCurve, Specialty, Tier, Topology};
pub use error::ModelError;
pub use extent_facts::{ExtentFacts, ExtentHeat, ExtentPlaces};
pub use extent_ranges::ExtentRanges;
pub use facts::{
    CalibrationWindow, DeviceFacts, Facts, FailedMove, Flow, LatencySummary, MeasuredLoad, Nodes,
    RunningMove, VolumeFacts,
};
pub use io::{DirectIo, Op};
pub use job::{IoFailure, JobStatus};
pub use lease::{ControllerId, LeaseHolder, LeaseStatus};
pub use mode::{Mode, TierState};
pub use physical::{BANDWIDTH_MAX, LATENCY_MIN_US};
pub use plan::{Goal, MoveLimits, Plan};
pub use policy::{
    Affinity, AffinityKind, Budget, ClassObjective, Epochs, Gates, Headroom, MAX_SLOWDOWN,
    NO_CLASS, Objective, Pin, Policy, SloClass, SloStatistic,
};
pub use presets::{DevicePreset, PRESETS, preset};
pub use reason::{Reason, ReasonValue};
pub use report::{
    ExtentOutcome, Outcome, Prediction, Rejection, Report, TierOption, Verdict, VolumeReport,
};
pub use score::{
    AgedBy, Aging, Bounded, MatchPart, MatchParts, PriceParts, ScoreColumn, ScoreParts,
    ViolatedParts,
};
