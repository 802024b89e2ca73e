//! What failed where: kept from the device to whoever is told of it.

use rustix::io::Errno;
use thiserror::Error;
use units::DeviceId;

use super::{Fault, IoKind};

/// An I/O that a device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub device: DeviceId,
    /// What it was asked for.
    pub kind: IoKind,
    /// How it failed. `ETIMEDOUT` is one that it did not answer in time, `ENODEV` one on a device that is lost.
    pub errno: i32,
}

impl Failure {
    /// An I/O that failed in this way.
    pub fn new(device: DeviceId, kind: IoKind, errno: Errno) -> Self {
        Self {
            device,
            kind,
            errno: errno.raw_os_error(),
        }
    }

    /// A flush of a device, of which no more is known than that it failed.
    pub fn of_flush(device: DeviceId) -> Self {
        Self::new(device, IoKind::Flush, Errno::IO)
    }

    /// Whether the device had no room for it.
    pub fn is_no_space(&self) -> bool {
        [Errno::NOSPC, Errno::DQUOT]
            .map(Errno::raw_os_error)
            .contains(&self.errno)
    }

    /// Whether it was not answered in time.
    pub fn is_late(&self) -> bool {
        self.errno == Errno::TIMEDOUT.raw_os_error()
    }
}

/// Why a move was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StopReason {
    /// Somebody asked for it.
    #[error("cancelled by the operator")]
    Cancelled,
    /// There are not enough slots.
    #[error("no space on the target")]
    NoSpace,
    /// It went while the move was under way.
    #[error("the target is lost")]
    TargetLost,
    /// It could not take slots.
    #[error("the store failed")]
    Store,
    /// What was under way for too long, if anything was.
    #[error("no progress: a device does not respond")]
    NoProgress(Option<Failure>),
    /// What was to be copied could not be read.
    #[error("the source failed a read")]
    Source(Fault),
    /// What was copied, or mirrored, could not be written.
    #[error("the target failed a write")]
    TargetWrite(Fault),
    /// What was copied may be lost.
    #[error("the target failed a flush")]
    TargetFlush(Option<Failure>),
    /// What is mirrored was not written, or read, in time.
    #[error("the target did not respond in time")]
    TargetLate(Option<Failure>),
    /// Of what is mirrored the first copy failed a write, or lost something.
    #[error("the primary copy failed")]
    FirstCopy(Option<Failure>),
    /// What is mirrored was, for something that cannot be done to it.
    #[error("stopped because of {0}")]
    MadeWay(&'static str),
}

impl StopReason {
    /// The I/O that failed, if one did.
    pub fn failure(self) -> Option<Failure> {
        match self {
            StopReason::Source(fault) | StopReason::TargetWrite(fault) => fault.failure(),
            StopReason::NoProgress(failure)
            | StopReason::TargetFlush(failure)
            | StopReason::TargetLate(failure)
            | StopReason::FirstCopy(failure) => failure,
            StopReason::Cancelled
            | StopReason::MadeWay(_)
            | StopReason::NoSpace
            | StopReason::TargetLost
            | StopReason::Store => None,
        }
    }
}
