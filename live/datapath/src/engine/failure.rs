//! Failures of devices: device, operation and errno, kept up to the report to the operator.

use rustix::io::Errno;
use thiserror::Error;
use units::DeviceId;

use super::{Fault, IoKind};

/// I/O that a device has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub device: DeviceId,
    /// Operation.
    pub kind: IoKind,
    /// Error number. `ETIMEDOUT` if the device did not answer in time, `ENODEV` if it is lost.
    pub errno: i32,
}

impl Failure {
    /// Creates a failure.
    pub fn new(device: DeviceId, kind: IoKind, errno: Errno) -> Self {
        Self {
            device,
            kind,
            errno: errno.raw_os_error(),
        }
    }

    /// Creates the failure of a flush without a known cause.
    pub fn of_flush(device: DeviceId) -> Self {
        Self::new(device, IoKind::Flush, Errno::IO)
    }

    /// Returns true if the device had no space.
    pub fn is_no_space(&self) -> bool {
        [Errno::NOSPC, Errno::DQUOT]
            .map(Errno::raw_os_error)
            .contains(&self.errno)
    }

    /// Returns true if the device did not answer in time.
    pub fn is_late(&self) -> bool {
        self.errno == Errno::TIMEDOUT.raw_os_error()
    }
}

/// Reason for which a move or a mirror was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StopReason {
    /// Order of an operator.
    #[error("cancelled by the operator")]
    Cancelled,
    /// The target has too few slots.
    #[error("no space on the target")]
    NoSpace,
    /// The target was lost during the move.
    #[error("the target is lost")]
    TargetLost,
    /// The keeper could not allocate slots.
    #[error("the store failed")]
    Store,
    /// No progress; the I/O in flight that takes too long, if there is one.
    #[error("no progress: a device does not respond")]
    NoProgress(Option<Failure>),
    /// A read of the source failed.
    #[error("the source failed a read")]
    Source(Fault),
    /// A copied or mirrored write to the target failed.
    #[error("the target failed a write")]
    TargetWrite(Fault),
    /// Copied data may be lost, because a flush of the target failed.
    #[error("the target failed a flush")]
    TargetFlush(Option<Failure>),
    /// A write or read of the second copy was late.
    #[error("the target did not respond in time")]
    TargetLate(Option<Failure>),
    /// The first copy of a mirror failed a write or has lost data.
    #[error("the primary copy failed")]
    FirstCopy(Option<Failure>),
    /// The mirror was stopped for an operation that mirrored volumes do not permit.
    #[error("stopped because of {0}")]
    MadeWay(&'static str),
}

impl StopReason {
    /// Returns the failed I/O, if one is the cause.
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
