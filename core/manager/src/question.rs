//! Requests of operators and programs to the controller, and their replies: one enum each, used by
//! the REST interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::HistoryPoint;
use crate::view::{
    CountersView, EventView, JobView, OutcomeView, PlaceView, PlanView, ResponseView, StatusView,
    TierView, VolumeView, WhyNotView, WhyView,
};
use crate::wire::Throttle;
use model::Mode;
use model::{Goal, TierState};
use units::Bytes;

/// Query or order. Where several hosts have a volume or tier of one name, the name must be
/// `host/name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// State of the controller, its hosts and its problems.
    Status,
    Tiers,
    Volumes,
    Volume {
        /// Name of the volume.
        volume: String,
    },
    /// History of a volume.
    History {
        /// Name of the volume.
        volume: String,
        /// Length of the history up to now, nanoseconds.
        last_ns: u64,
    },
    /// Plan of a host.
    Plan {
        /// Name of the host; optional with one host.
        host: Option<String>,
        /// Number of the plan; the newest one without it.
        generation: Option<u64>,
    },
    /// Jobs, newest first.
    Jobs {
        /// Maximum number of jobs.
        limit: usize,
    },
    /// Events, oldest first.
    Events {
        /// Only events with higher numbers; the newest ones without it.
        after: Option<u64>,
        /// Maximum number of events.
        limit: usize,
    },
    /// Outcomes of moves, newest first.
    Outcomes {
        /// Maximum number of outcomes.
        limit: usize,
    },
    /// Remedies for violations, newest first.
    Responses {
        /// Maximum number of remedies.
        limit: usize,
    },
    /// Reasons for the present place of a volume.
    Why {
        /// Name of the volume.
        volume: String,
    },
    /// Reason why a volume is not on a tier.
    WhyNot {
        /// Name of the volume.
        volume: String,
        tier: String,
    },
    /// Best tier for a volume that does not exist yet.
    Place(PlaceQuestion),
    /// Facts, policy and state of a host as a scenario file.
    ExportFacts {
        /// Name of the host; optional with one host.
        host: Option<String>,
        /// Number of the decision; without it, the last one that could place data.
        generation: Option<u64>,
    },
    /// Totals for metrics.
    Counters,
    /// Approves moves of a plan.
    Apply(Choice),
    /// Rejects moves of a plan.
    Reject(Choice),
    /// Pauses the controller: no new activity starts on any host.
    Pause,
    /// Ends the pause.
    Resume,
    /// Cancels a job.
    CancelJob {
        /// Name of the host; optional with one host.
        host: Option<String>,
        job: u32,
    },
    /// Opens, cordons or drains a tier.
    SetTier {
        tier: String,
        /// New state of the tier.
        state: TierState,
    },
    /// Pins a volume to a tier, or removes the pin without a tier.
    Pin {
        /// Name of the volume.
        volume: String,
        tier: Option<String>,
    },
    /// Limits a volume for a time, or removes its limit.
    Throttle {
        /// Name of the volume.
        volume: String,
        /// Limit and duration; without it the limit is removed.
        to: Option<Throttle>,
    },
    /// Sets the mode of a goal: which moves the controller carries out without approval.
    SetMode {
        goal: Goal,
        /// New mode.
        mode: Mode,
    },
}

impl Question {
    /// Returns true for orders, which change state.
    pub fn is_order(&self) -> bool {
        match self {
            Question::Apply(_)
            | Question::Reject(_)
            | Question::Pause
            | Question::Resume
            | Question::CancelJob { .. }
            | Question::SetTier { .. }
            | Question::Pin { .. }
            | Question::Throttle { .. }
            | Question::SetMode { .. } => true,
            Question::Status
            | Question::Tiers
            | Question::Volumes
            | Question::Volume { .. }
            | Question::History { .. }
            | Question::Plan { .. }
            | Question::Jobs { .. }
            | Question::Events { .. }
            | Question::Outcomes { .. }
            | Question::Responses { .. }
            | Question::Why { .. }
            | Question::WhyNot { .. }
            | Question::Place(_)
            | Question::ExportFacts { .. }
            | Question::Counters => false,
        }
    }
}

/// Request for advice on the placement of a volume that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceQuestion {
    /// Size of the volume, such as `100 GiB`.
    pub size: Bytes,
    /// Service class of the volume; if omitted, the volume has no class and no objective.
    #[serde(default)]
    pub class: Option<String>,
    /// Existing volume with the expected load. If omitted, the load is estimated from volumes of
    /// the same class.
    #[serde(default)]
    pub like: Option<String>,
    /// Name of the host; optional with one host.
    #[serde(default)]
    pub host: Option<String>,
}

/// Selection of moves of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Name of the host; optional with one host.
    #[serde(default)]
    pub host: Option<String>,
    /// Number of the plan.
    pub generation: u64,
    /// Positions of the moves in the plan; if omitted, all moves.
    #[serde(default)]
    pub moves: Option<Vec<u32>>,
}

/// Reply to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Status(Box<StatusView>),
    Tiers(Vec<TierView>),
    Volumes(Vec<VolumeView>),
    Volume(Box<VolumeView>),
    History(Vec<HistoryPoint>),
    Plan(Box<PlanView>),
    Jobs(Vec<JobView>),
    Events(Vec<EventView>),
    Outcomes(Vec<OutcomeView>),
    Responses(Vec<ResponseView>),
    Counters(Box<CountersView>),
    Why(Box<WhyView>),
    WhyNot(Box<WhyNotView>),
    Place(Box<PlaceView>),
    /// Text of a file.
    Text(String),
    Done(Done),
}

/// Confirmation of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Description of the completed order, one line.
    pub message: String,
}

/// Reason why a question or order is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The named volume, tier, plan, job or host does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The order is impossible in the present state.
    #[error("{0}")]
    Conflict(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The store fails; the controller decides and orders nothing until it works again.
    #[error("{0}")]
    Unavailable(String),
}

/// Author of an order, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Actor(pub String);
