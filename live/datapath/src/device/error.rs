//! Errors of devices.

use std::io;

use thiserror::Error;

use super::owner::Refusal;

/// Reason why a device cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A system call failed.
    #[error("device {name:?}: cannot {what} {path}")]
    System {
        name: String,
        /// The attempt.
        what: &'static str,
        path: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The kernel, QEMU or another process uses the device.
    #[error("device {name:?} ({path}) is in use: {by}")]
    InUse {
        name: String,
        path: String,
        /// The user, as a clause.
        by: String,
    },
    /// The device was not formatted because it holds data.
    #[error("device {name:?}: {path} holds data: {data}. `--force` destroys that data")]
    HoldsData {
        name: String,
        path: String,
        data: String,
    },
    /// The device was not formatted because it may hold data.
    #[error(
        "device {name:?}: cannot check {path} for data: {why}. `--force` formats it without the check and destroys its data"
    )]
    NotProbed {
        name: String,
        path: String,
        /// Reason why the prober failed.
        why: String,
    },
    /// Direct writes of the previous user have not completed.
    #[error(
        "device {name:?} ({path}) still has writes in flight from an earlier server process, which could overwrite new data: wait until they complete, and start the server again"
    )]
    UnderWay { name: String, path: String },
    /// The device is not the one of the array.
    #[error("device {name:?} ({path}): {why}")]
    Wrong {
        name: String,
        path: String,
        /// Description of the difference.
        why: String,
    },
    /// Another server uses the export or may use it.
    #[error("device {name:?} ({path})")]
    NotOwned {
        name: String,
        path: String,
        #[source]
        why: Refusal,
    },
}

impl DeviceError {
    /// Returns true if another attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            DeviceError::System { source, .. } => source.kind() != io::ErrorKind::NotFound,
            _ => false,
        }
    }
}
