//! Errors of the daemon's start and of its operation.

use agent::AgentError;
use client::ClientError;
use controller::StartError;
use datapath::{DatapathError, ListenError, ServeError, StopError};
use manager::store::StoreError;
use thiserror::Error;

/// Error of the daemon.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration has an invalid value.
    #[error("{key} {why}")]
    Config {
        key: &'static str,
        /// Reason.
        why: String,
    },
    /// The configuration is invalid; the text has file, line and key.
    #[error("{0}")]
    Configuration(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the controller does not run.
    #[error("{0}")]
    Part(String),
    /// A thread cannot be started.
    #[error("cannot start the controller's thread")]
    Thread(#[source] std::io::Error),
    /// The file of a recording cannot be opened.
    #[error("cannot record to {file}")]
    Record {
        file: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A directory of the controller cannot be used.
    #[error("cannot create files in {dir}")]
    Directory {
        /// Path of the directory.
        dir: std::path::PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The controller's sockets cannot be opened.
    #[error(transparent)]
    Controller(#[from] StartError),
    /// The array cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The array did not stop in order.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Guests cannot connect.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The array refused a command.
    #[error(transparent)]
    Array(#[from] DatapathError),
    /// The agent cannot connect to the controller.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A part of the process has ended.
    #[error("{0} has ended unexpectedly: acknowledged writes are safe; start the server again")]
    Ended(&'static str),
}
