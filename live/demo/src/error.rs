//! Errors of a demonstration.

use std::path::PathBuf;

use client::ClientError;
use daemon::DaemonError;
use datapath::explain;
use thiserror::Error;

/// Failure of a demonstration.
#[derive(Debug, Error)]
pub enum DemoError {
    #[error("cannot use {path}")]
    File {
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The directory of a device cannot be created.
    #[error("cannot make {path}: {why}")]
    Directory {
        path: PathBuf,
        /// Error of the system.
        why: std::io::Error,
    },
    /// An array or its server fails; the text has the causes.
    #[error("{0}")]
    Array(String),
    /// The array does not export a volume.
    #[error("{0} is not served")]
    NotServed(&'static str),
    /// The generated configuration is invalid.
    #[error(transparent)]
    Config(#[from] config::ConfigFault),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A call to the controller failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An address is invalid.
    #[error(transparent)]
    Uri(#[from] nbd::UriError),
    /// Threads cannot be started.
    #[error("cannot start guests")]
    Guests(#[source] std::io::Error),
    /// Requests of guests failed.
    #[error("{0} guests had an error")]
    GuestErrors(u64),
    /// The observer stopped it.
    #[error("stopped")]
    Stopped,
}

impl DemoError {
    /// Creates the error of a failed operation of an array, with its causes.
    pub(crate) fn of_array(error: impl std::error::Error) -> Self {
        Self::Array(explain(&error))
    }

    /// Creates the error of a command that an array refuses.
    pub(crate) fn refused(why: impl ToString) -> Self {
        Self::Array(why.to_string())
    }
}
