//! What the driver tells, and what it is to do.

use model::Plan;
use units::{Bytes, DeviceId, Nanos, VolumeId};

use crate::JobId;
use crate::job::EndCause;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A new plan.
    Plan(Box<Plan>),
    /// A new plan whose moves wait for approval, each for its own.
    Propose(Box<Plan>),
    /// A proposed move may start when its turn comes.
    Approve(JobId),
    /// An approval is taken back; too late once the job has left the queue.
    Withdraw(JobId),
    /// A proposed move is not wanted.
    Reject {
        /// The job.
        job: JobId,
        /// Why.
        cause: EndCause,
    },
    /// Nothing new starts from now on; what has started goes on.
    Pause,
    /// Jobs start again.
    Resume,
    /// Space on the target is reserved.
    Reserved(JobId),
    /// There is no space on the target now.
    Refused(JobId),
    /// A chunk was copied.
    Copied {
        /// The job.
        job: JobId,
        /// Bytes of the chunk.
        bytes: Bytes,
        /// Bytes still to copy.
        remaining: Bytes,
    },
    /// The next chunk cannot be copied yet; try again at the given time.
    CopyBlocked {
        /// The job.
        job: JobId,
        /// When.
        retry: Nanos,
    },
    /// The target is the truth, durably.
    Switched(JobId),
    /// The source is free.
    Released(JobId),
    /// Reading or writing failed.
    IoError {
        /// The job.
        job: JobId,
        /// What failed.
        why: String,
    },
    /// The operator wants it to end.
    Cancel(JobId),
}

impl Input {
    /// The job that it is about; `None` where it is about all of them.
    pub(crate) fn job(&self) -> Option<JobId> {
        match self {
            Input::Plan(_) | Input::Propose(_) | Input::Pause | Input::Resume => None,
            Input::Approve(job)
            | Input::Withdraw(job)
            | Input::Reserved(job)
            | Input::Refused(job)
            | Input::Switched(job)
            | Input::Released(job)
            | Input::Cancel(job)
            | Input::Reject { job, .. }
            | Input::Copied { job, .. }
            | Input::CopyBlocked { job, .. }
            | Input::IoError { job, .. } => Some(*job),
        }
    }
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Reserve space for the volume on the target and prepare the copy; answer `Reserved` or `Refused`. After a restart it
    /// may be asked for again: a reservation of the same job counts once.
    Reserve {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The target.
        to: DeviceId,
        /// Space.
        size: Bytes,
    },
    /// Copy the next chunk, not before `at`; answer `Copied`, `CopyBlocked` or `IoError`.
    Copy {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// When.
        at: Nanos,
    },
    /// Make the target the truth, durably; answer `Switched` or `IoError`.
    Switch {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// Not before this time: the last piece keeps to the rate too.
        at: Nanos,
    },
    /// Free the source once nobody reads it; answer `Released`.
    Release {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The device to free.
        from: DeviceId,
        /// Space.
        size: Bytes,
    },
    /// Give the copy up and free what was reserved; no answer.
    Abort {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The device that the space was reserved on.
        to: DeviceId,
        /// Space.
        size: Bytes,
    },
}
