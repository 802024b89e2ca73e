//! Job: a move from its plan to its end.

use model::{IoFailure, JobStatus, Move};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Number of a job, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

/// State of a job, with its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredState", into = "StoredState")]
pub enum JobState {
    /// Waits for approval by an operator.
    Proposed,
    /// Approved. Waits for other moves, because of the limits on concurrent moves or because they free its space.
    Waiting,
    /// Running. The host has the order and carries it out. The job uses space and bandwidth.
    Active,
    /// Final state.
    Ended {
        at: Nanos,
        /// Result.
        end: End,
    },
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Finished. The volume or all named extents are on the target.
    Done,
    /// Rejected, superseded or cancelled. Extents that have been switched stay on the target.
    Cancelled(EndCause),
    /// Ended by an error. Extents that have been switched stay on the target.
    Failed(FailCause),
}

/// Stored form of a state.
#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum StoredState {
    Proposed,
    Waiting,
    Active,
    Done { at: Nanos },
    Cancelled { at: Nanos, cause: EndCause },
    Failed { at: Nanos, cause: FailCause },
}

impl From<StoredState> for JobState {
    fn from(stored: StoredState) -> Self {
        let ended = |at, end| JobState::Ended { at, end };
        match stored {
            StoredState::Proposed => JobState::Proposed,
            StoredState::Waiting => JobState::Waiting,
            StoredState::Active => JobState::Active,
            StoredState::Done { at } => ended(at, End::Done),
            StoredState::Failed { at, cause } => ended(at, End::Failed(cause)),
            StoredState::Cancelled { at, cause } => ended(at, End::Cancelled(cause)),
        }
    }
}

impl From<JobState> for StoredState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Proposed => StoredState::Proposed,
            JobState::Waiting => StoredState::Waiting,
            JobState::Active => StoredState::Active,
            JobState::Ended { at, end } => match end {
                End::Done => StoredState::Done { at },
                End::Failed(cause) => StoredState::Failed { at, cause },
                End::Cancelled(cause) => StoredState::Cancelled { at, cause },
            },
        }
    }
}

/// Cause of the early end of a job without an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum EndCause {
    /// A newer plan replaced its plan before the job started.
    Superseded,
    /// An operator rejected the move.
    Rejected { by: String },
    /// The job waited until its plan was too old to be valid.
    PlanTooOld,
    /// The target tier is cordoned or draining.
    TierClosed,
    /// The volume was pinned to another tier.
    Pinned,
    /// An operator cancelled the job.
    GivenUp,
    /// The array carries out the orders of another controller.
    OtherController,
    /// A move that would have freed its space was cancelled.
    SpaceNotFreed { why: String },
}

impl EndCause {
    /// Returns the code of the cause in JSON.
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
        }
    }
}

const OTHER_CONTROLLER: &str = "its array carries out the orders of another controller";

/// Cause of the failure of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum FailCause {
    /// An I/O of the job failed on a device.
    FailedIo {
        /// Error message of the host.
        why: String,
        /// Failed I/O.
        io: IoFailure,
    },
    /// The host could not complete the job for another cause.
    HostGaveUp {
        /// Error message of the host.
        why: String,
    },
    /// A move that would have freed its space failed.
    SpaceNotFreed,
    /// Another controller took over the array after the start of the job.
    OtherController,
}

impl FailCause {
    /// Returns the code of the cause in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            FailCause::FailedIo { .. } => "failed-io",
            FailCause::HostGaveUp { .. } => "host-gave-up",
            FailCause::SpaceNotFreed => "space-not-freed",
            FailCause::OtherController => "other-controller",
        }
    }

    /// Returns the cause for an error message of the host and the failed I/O, if any.
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
    /// Returns true if a newer plan replaced the plan of the job before the job started.
    pub fn superseded(&self) -> bool {
        matches!(self.end(), Some(End::Cancelled(EndCause::Superseded)))
    }

    /// Returns the result; `None` before the end.
    pub fn end(&self) -> Option<&End> {
        match self {
            JobState::Ended { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Returns the time of the end; `None` before the end.
    pub fn ended_at(&self) -> Option<Nanos> {
        match self {
            JobState::Ended { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Returns true if the job has reached a final state.
    pub fn ended(&self) -> bool {
        matches!(self, JobState::Ended { .. })
    }

    /// Returns true if the job uses bandwidth and space.
    pub fn active(&self) -> bool {
        *self == JobState::Active
    }

    /// Returns true if the job has not started; a newer plan then replaces it.
    pub fn queued(&self) -> bool {
        matches!(self, JobState::Proposed | JobState::Waiting)
    }

    /// Returns the state without time and cause.
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
    /// Returns the cause of an early end, in words; `None` for a finished job.
    pub fn why(&self) -> Option<String> {
        match self {
            End::Done => None,
            End::Cancelled(cause) => Some(cause.to_string()),
            End::Failed(cause) => Some(cause.to_string()),
        }
    }

    /// Returns the code of the cause of an early end; `None` for a finished job.
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            End::Done => None,
            End::Cancelled(cause) => Some(cause.name()),
            End::Failed(cause) => Some(cause.name()),
        }
    }

    /// Returns the I/O error that made the job fail; `None` for other results.
    pub fn failed_io(&self) -> Option<&IoFailure> {
        match self {
            End::Failed(FailCause::FailedIo { io, .. }) => Some(io),
            _ => None,
        }
    }
}

/// Move with its state and progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job.
    pub id: JobId,
    /// Generation of the plan of the job.
    pub generation: u64,
    pub order: Move,
    /// Jobs that must finish successfully before this one starts.
    pub after: Vec<JobId>,
    /// State.
    pub state: JobState,
    /// Time of the start; `None` before the start.
    pub started: Option<Nanos>,
    /// Bytes copied, including repeated copies of rewritten data.
    pub copied: Bytes,
}
