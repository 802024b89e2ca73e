//! What an executor is told.

use model::{Move, Plan};
use units::Bytes;

use crate::JobId;
use crate::job::{EndCause, FailCause};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A new plan whose moves wait for approval, each for its own.
    Propose(Box<Plan>),
    /// A move outside of any plan, which waits for approval. A plan that comes before it has begun takes its place, too.
    Add(Box<Move>),
    /// A proposed move may start when its turn comes.
    Approve(JobId),
    /// An approval is taken back; too late once the job has left the queue.
    Withdraw(JobId),
    /// A proposed move is not wanted.
    Reject {
        job: JobId,
        /// Why.
        cause: EndCause,
    },
    /// Nothing new starts from now on; what has started goes on.
    Pause,
    /// Jobs start again.
    Resume,
    /// An active job goes on.
    Copied {
        job: JobId,
        /// Bytes copied since it began, those copied again included. It never falls.
        bytes: Bytes,
    },
    /// An active job is over: all that it names is on its target, durably, and its source is free.
    Done(JobId),
    /// An active job is over before its time.
    Failed {
        job: JobId,
        /// Why.
        cause: FailCause,
    },
    /// The operator wants it to end.
    Cancel(JobId),
}

impl Input {
    /// The job that it is about; `None` where it is about all of them.
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
