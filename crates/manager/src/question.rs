//! What people and programs ask of the controller: the REST interface in one enum each for questions and answers.

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

/// A question, or an order. Names of volumes and tiers may be `host/name` where several hosts have the same one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How everything is.
    Status,
    Tiers,
    Volumes,
    Volume {
        /// Its name.
        volume: String,
    },
    /// A volume's past.
    History {
        /// Its name.
        volume: String,
        /// So much of it, up to now.
        last_ns: u64,
    },
    /// The plan of a host; the current one without a number.
    Plan {
        /// The host; may be left out when there is one.
        host: Option<String>,
        /// Number of the plan.
        generation: Option<u64>,
    },
    /// Jobs, newest first.
    Jobs {
        /// At most so many.
        limit: usize,
    },
    /// Events, oldest first.
    Events {
        /// Those with higher numbers; the newest without it.
        after: Option<u64>,
        /// At most so many.
        limit: usize,
    },
    /// What came of moves, newest first.
    Outcomes {
        /// At most so many.
        limit: usize,
    },
    /// Answers to broken objectives, newest first.
    Responses {
        /// At most so many.
        limit: usize,
    },
    /// Why a volume is where it is.
    Why {
        /// Its name.
        volume: String,
    },
    /// Why a volume is not on a tier.
    WhyNot {
        /// Its name.
        volume: String,
        tier: String,
    },
    /// Where a volume that does not exist yet would do best.
    Place(PlaceQuestion),
    /// A host's facts, policy and state as a scenario file.
    ExportFacts {
        /// The host; may be left out when there is one.
        host: Option<String>,
        /// The decision; the last one that could place data without it.
        generation: Option<u64>,
    },
    /// Totals, for metrics.
    Counters,
    /// Carry out moves of a plan.
    Apply(Choice),
    /// Do not carry out moves of a plan.
    Reject(Choice),
    /// Begin nothing new anywhere.
    Pause,
    /// Go on.
    Resume,
    /// Give a job up.
    CancelJob {
        /// The host; may be left out when there is one.
        host: Option<String>,
        job: u32,
    },
    /// What a tier takes and keeps.
    SetTier {
        tier: String,
        /// Its new state.
        state: TierState,
    },
    /// Keep a volume on a tier; on none in particular without one.
    Pin {
        /// Its name.
        volume: String,
        tier: Option<String>,
    },
    /// Let a volume do no more than this for a time; as much as it can without it.
    Throttle {
        /// Its name.
        volume: String,
        /// The limits.
        to: Option<Throttle>,
    },
    /// How far the controller may go for a goal by itself.
    SetMode {
        goal: Goal,
        /// How far.
        mode: Mode,
    },
}

impl Question {
    /// Whether it is to change something.
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

/// A volume that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceQuestion {
    /// Its size, such as `100 GiB`.
    pub size: Bytes,
    /// Its service class; none, so no objective, if left out.
    #[serde(default)]
    pub class: Option<String>,
    /// A volume that has the load which it is expected to have; guessed by those of its class if left out.
    #[serde(default)]
    pub like: Option<String>,
    /// The host; may be left out when there is one.
    #[serde(default)]
    pub host: Option<String>,
}

/// Moves of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The host; may be left out when there is one.
    #[serde(default)]
    pub host: Option<String>,
    /// Number of the plan.
    pub generation: u64,
    /// Positions in the plan; all if left out.
    #[serde(default)]
    pub moves: Option<Vec<u32>>,
}

/// What is answered.
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
    /// A file's text.
    Text(String),
    Done(Done),
}

/// An order was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// What was done, one line for people.
    pub message: String,
}

/// Why a question is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be done as things are.
    #[error("{0}")]
    Conflict(String),
    /// It makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The store fails: nothing is decided or ordered until it works again.
    #[error("{0}")]
    Unavailable(String),
}

/// Who asks, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Actor(pub String);
