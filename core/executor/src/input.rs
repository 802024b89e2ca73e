//! Inputs of the executor.

use model::{Move, Plan};
use units::Bytes;

use crate::JobId;
use crate::job::{EndCause, FailCause};

/// Event or order.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A new plan, each of whose moves waits for its own approval.
    Propose(Box<Plan>),
    /// A move outside of any plan, which waits for approval. A plan that arrives before its start replaces it, too.
    Add(Box<Move>),
    /// Approval: the move may start when its turn comes.
    Approve(JobId),
    /// Withdrawal of an approval; it has no effect after the job has left the queue.
    Withdraw(JobId),
    /// Rejection of a proposed move.
    Reject {
        job: JobId,
        /// Cause of the rejection.
        cause: EndCause,
    },
    /// No further jobs start; running jobs continue.
    Pause,
    /// Jobs start again.
    Resume,
    /// Progress of an active job.
    Copied {
        job: JobId,
        /// Bytes copied since the start, including repeated copies. It never decreases.
        bytes: Bytes,
    },
    /// Success of an active job: all of its data is durably on the target, and its source is free.
    Done(JobId),
    /// Failure of an active job.
    Failed {
        job: JobId,
        /// Cause of the failure.
        cause: FailCause,
    },
    /// Cancellation by an operator.
    Cancel(JobId),
}

impl Input {
    /// Returns the job of the input; `None` for inputs that concern all jobs.
    pub(crate) fn job(&self) -> Option<JobId> {
        match self {
            Input::Propose(_) | Input::Add(_) | Input::Pause | Input::Resume => None,
            Input::Approve(job)
            | Input::Withdraw(job)
            | Input::Done(job)
            | Input::Cancel(job)
            | Input::Reject { job, .. }
            | Input::Copied { job, .. }
            | Input::Failed { job, .. } => Some(*job),
        }
    }
}
