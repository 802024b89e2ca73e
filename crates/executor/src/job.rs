//! One move and where it stands.

use model::{IoFailure, JobStatus, Move};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// One move under way, by number; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub enum JobState {
    /// For somebody to approve of it.
    Proposed,
    /// For its turn, or for moves that free its space.
    Waiting,
    /// Its host is told to carry it out, or does so. It takes space and bandwidth.
    Active,
    /// Nothing will happen any more.
    Ended {
        at: Nanos,
        /// How.
        end: End,
    },
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All that it names is on the target.
    Done,
    /// It was not to be, or was given up. What had been switched by then stays on the target.
    Cancelled(EndCause),
    /// It could not be carried out, or not to its end. What had been switched by then stays on the target.
    Failed(FailCause),
}

/// A state as it is kept: also what was kept when steps of a copy were states of their own.
#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum Stored {
    Proposed,
    Waiting,
    #[serde(
        alias = "reserving",
        alias = "copying",
        alias = "switching",
        alias = "releasing"
    )]
    Active,
    Done {
        at: Nanos,
    },
    Cancelled {
        at: Nanos,
        why: String,
        #[serde(default)]
        cause: Option<EndCause>,
    },
    Failed {
        at: Nanos,
        why: String,
        #[serde(default)]
        cause: Option<FailCause>,
    },
}

impl From<Stored> for JobState {
    fn from(stored: Stored) -> Self {
        let ended = |at, end| JobState::Ended { at, end };
        match stored {
            Stored::Proposed => JobState::Proposed,
            Stored::Waiting => JobState::Waiting,
            Stored::Active => JobState::Active,
            Stored::Done { at } => ended(at, End::Done),
            Stored::Failed { at, why, cause } => {
                let cause = cause.unwrap_or(FailCause::HostGaveUp { why });
                ended(at, End::Failed(cause))
            }
            Stored::Cancelled { at, why, cause } => {
                let cause = match cause {
                    None | Some(EndCause::Unsaid { .. }) => EndCause::Unsaid { why },
                    Some(cause) => cause,
                };
                ended(at, End::Cancelled(cause))
            }
        }
    }
}

impl From<JobState> for Stored {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Proposed => Stored::Proposed,
            JobState::Waiting => Stored::Waiting,
            JobState::Active => Stored::Active,
            JobState::Ended { at, end } => match end {
                End::Done => Stored::Done { at },
                End::Failed(cause) => Stored::Failed {
                    at,
                    why: cause.to_string(),
                    cause: Some(cause),
                },
                End::Cancelled(cause) => Stored::Cancelled {
                    at,
                    why: cause.to_string(),
                    cause: Some(cause),
                },
            },
        }
    }
}

/// Why a job ended before its time, without a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum EndCause {
    /// Its plan was, before it had begun.
    Superseded,
    /// Somebody did not want it.
    Rejected { by: String },
    /// It waited for so long that what it was planned by is not true any more.
    PlanTooOld,
    /// Its target takes no new data.
    TierClosed,
    /// Its volume was pinned elsewhere.
    Pinned,
    /// Somebody gave it up.
    GivenUp,
    /// Its array carries out the orders of another controller.
    OtherController,
    /// A move that was to free its space was cancelled.
    SpaceNotFreed { why: String },
    /// Nobody wrote it down: it ended under an older version.
    Unsaid {
        /// What was said.
        #[serde(default)]
        why: String,
    },
}

impl EndCause {
    /// Its name in what programs read.
    pub fn name(&self) -> &'static str {
        match self {
            EndCause::Superseded => "superseded",
            EndCause::Rejected { .. } => "rejected",
            EndCause::PlanTooOld => "plan-too-old",
            EndCause::TierClosed => "tier-closed",
            EndCause::Pinned => "pinned",
            EndCause::GivenUp => "given-up",
            EndCause::OtherController => "other-controller",
            EndCause::SpaceNotFreed { .. } => "space-not-freed",
            EndCause::Unsaid { .. } => "unsaid",
        }
    }
}

impl std::fmt::Display for EndCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndCause::Superseded => f.write_str("superseded by a newer plan"),
            EndCause::Rejected { by } => write!(f, "rejected by {by}"),
            EndCause::PlanTooOld => f.write_str("its plan is too old"),
            EndCause::TierClosed => f.write_str("its tier accepts no new data"),
            EndCause::Pinned => f.write_str("its volume was pinned"),
            EndCause::GivenUp => f.write_str("cancelled by the operator"),
            EndCause::OtherController => f.write_str(OTHER_CONTROLLER),
            EndCause::SpaceNotFreed { why } => {
                write!(
                    f,
                    "the move that should have freed its space was cancelled: {why}"
                )
            }
            EndCause::Unsaid { why } => f.write_str(why),
        }
    }
}

const OTHER_CONTROLLER: &str = "its array carries out the orders of another controller";

/// Why a job could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum FailCause {
    /// A device failed an I/O of it.
    FailedIo {
        /// What its host said, the I/O named.
        why: String,
        /// The I/O.
        io: IoFailure,
    },
    /// Its host gave it up, for something that only words tell.
    HostGaveUp {
        /// What it said.
        why: String,
    },
    /// A move that was to free its space failed.
    SpaceNotFreed,
    /// Its array carries out the orders of another controller since it began.
    OtherController,
}

impl FailCause {
    /// Its name in what programs read.
    pub fn name(&self) -> &'static str {
        match self {
            FailCause::FailedIo { .. } => "failed-io",
            FailCause::HostGaveUp { .. } => "host-gave-up",
            FailCause::SpaceNotFreed => "space-not-freed",
            FailCause::OtherController => "other-controller",
        }
    }

    /// What its host said, with the I/O that failed, if one did.
    pub fn of_host(why: String, io: Option<IoFailure>) -> Self {
        match io {
            Some(io) => FailCause::FailedIo { why, io },
            None => FailCause::HostGaveUp { why },
        }
    }
}

impl std::fmt::Display for FailCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FailCause::FailedIo { why, .. } | FailCause::HostGaveUp { why } => f.write_str(why),
            FailCause::SpaceNotFreed => {
                f.write_str("the move that should have freed its space failed")
            }
            FailCause::OtherController => f.write_str(OTHER_CONTROLLER),
        }
    }
}

impl JobState {
    /// Whether a newer plan took the place of its plan before it had begun: it never was more than a proposal.
    pub fn superseded(&self) -> bool {
        matches!(self.end(), Some(End::Cancelled(EndCause::Superseded)))
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<&End> {
        match self {
            JobState::Ended { end, .. } => Some(end),
            _ => None,
        }
    }

    /// When it ended, if it did.
    pub fn ended_at(&self) -> Option<Nanos> {
        match self {
            JobState::Ended { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Whether nothing will happen any more.
    pub fn ended(&self) -> bool {
        matches!(self, JobState::Ended { .. })
    }

    /// Whether it takes bandwidth and space now.
    pub fn active(&self) -> bool {
        *self == JobState::Active
    }

    /// Whether it has not started: a newer plan drops it.
    pub fn queued(&self) -> bool {
        matches!(self, JobState::Proposed | JobState::Waiting)
    }

    /// Where it stands, without when and why.
    pub fn status(&self) -> JobStatus {
        match self {
            JobState::Proposed => JobStatus::Proposed,
            JobState::Waiting => JobStatus::Waiting,
            JobState::Active => JobStatus::Active,
            JobState::Ended { end, .. } => match end {
                End::Done => JobStatus::Done,
                End::Cancelled(_) => JobStatus::Cancelled,
                End::Failed(_) => JobStatus::Failed,
            },
        }
    }
}

impl End {
    /// Why it ended before its time; none if it did not.
    pub fn why(&self) -> Option<String> {
        match self {
            End::Done => None,
            End::Cancelled(cause) => Some(cause.to_string()),
            End::Failed(cause) => Some(cause.to_string()),
        }
    }

    /// The name of its cause in what programs read; none if it did not end before its time.
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            End::Done => None,
            End::Cancelled(cause) => Some(cause.name()),
            End::Failed(cause) => Some(cause.name()),
        }
    }

    /// The I/O that it failed by, if it did by one.
    pub fn failed_io(&self) -> Option<&IoFailure> {
        match self {
            End::Failed(FailCause::FailedIo { io, .. }) => Some(io),
            _ => None,
        }
    }
}

/// One move and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number.
    pub id: JobId,
    /// Generation of its plan.
    pub generation: u64,
    pub order: Move,
    /// Jobs that must have ended well first.
    pub after: Vec<JobId>,
    /// Where it stands.
    pub state: JobState,
    /// When it left the queue.
    pub started: Option<Nanos>,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
}
