//! One move and where it stands.

use model::Move;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// One move under way, by number; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum JobState {
    /// For somebody to approve of it.
    Proposed,
    /// For its turn, or for moves that free its space.
    Waiting,
    /// Space on the target has been asked for.
    Reserving,
    /// Bytes are being copied.
    Copying,
    /// Everything is copied; the target is becoming the truth.
    Switching,
    /// The target is the truth; the source is being freed.
    Releasing,
    /// Ended well.
    Done {
        /// When.
        at: Nanos,
    },
    /// Ended, with the source as the truth.
    Cancelled {
        /// When.
        at: Nanos,
        /// Why, in words.
        why: String,
        /// Why, for whoever has to tell one from another.
        #[serde(default)]
        cause: EndCause,
    },
    /// Ended, with the source as the truth.
    Failed {
        /// When.
        at: Nanos,
        /// Why.
        why: String,
    },
}

/// Why a job ended before its time, without a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum EndCause {
    /// Its plan was, before it had begun.
    Superseded,
    /// Somebody did not want it.
    Rejected {
        /// Who.
        by: String,
    },
    /// It waited for so long that what it was planned by is not true any more.
    PlanTooOld,
    /// Its target takes no new data.
    TierClosed,
    /// Its volume was pinned elsewhere.
    Pinned,
    /// Somebody gave it up.
    GivenUp,
    /// A move that was to free its space was cancelled.
    SpaceNotFreed {
        /// Why that was.
        why: String,
    },
    /// Nobody wrote it down: it ended under an older version.
    #[default]
    Unsaid,
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
            EndCause::SpaceNotFreed { .. } => "space-not-freed",
            EndCause::Unsaid => "unsaid",
        }
    }
}

impl std::fmt::Display for EndCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndCause::Superseded => f.write_str("superseded by a newer plan"),
            EndCause::Rejected { by } => write!(f, "rejected by {by}"),
            EndCause::PlanTooOld => f.write_str("its plan is too old"),
            EndCause::TierClosed => f.write_str("its tier takes no new data"),
            EndCause::Pinned => f.write_str("its volume was pinned"),
            EndCause::GivenUp => f.write_str("cancelled by the operator"),
            EndCause::SpaceNotFreed { why } => {
                write!(f, "a move that was to free its space was cancelled: {why}")
            }
            EndCause::Unsaid => f.write_str("not said"),
        }
    }
}

impl JobState {
    /// Whether a newer plan took the place of its plan before it had begun: it never was more than a proposal.
    pub fn superseded(&self) -> bool {
        let cause = EndCause::Superseded;
        matches!(self, JobState::Cancelled { cause: of, .. } if *of == cause)
    }

    /// Whether nothing will happen any more.
    pub fn ended(&self) -> bool {
        self.ended_at().is_some()
    }

    /// When it ended, if it did.
    pub fn ended_at(&self) -> Option<Nanos> {
        match self {
            JobState::Done { at }
            | JobState::Cancelled { at, .. }
            | JobState::Failed { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Whether it takes bandwidth and space now.
    pub fn active(&self) -> bool {
        !self.ended() && !self.queued()
    }

    /// Whether it has not started: a newer plan drops it.
    pub fn queued(&self) -> bool {
        matches!(self, JobState::Proposed | JobState::Waiting)
    }
}

/// One move and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number.
    pub id: JobId,
    /// Generation of its plan.
    pub generation: u64,
    /// What to do.
    pub order: Move,
    /// Jobs that must have ended well first.
    pub after: Vec<JobId>,
    /// Where it stands.
    pub state: JobState,
    /// When it left the queue.
    pub started: Option<Nanos>,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
    /// Earliest time of the next chunk.
    pub next_copy: Nanos,
}
