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
        /// Why.
        why: String,
    },
    /// Ended, with the source as the truth.
    Failed {
        /// When.
        at: Nanos,
        /// Why.
        why: String,
    },
}

impl JobState {
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
