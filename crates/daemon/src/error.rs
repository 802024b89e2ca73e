//! Why the daemon cannot be started, or has to end.

use agent::AgentError;
use client::ClientError;
use controller::StartError;
use datapath::{ListenError, ServeError, StopError};
use manager::store::StoreError;
use thiserror::Error;

/// Why.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration.
    #[error("{key} {why}")]
    Config {
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// All of it, with file, line and key.
    #[error("{0}")]
    Configuration(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the controller does not run.
    #[error("{0}")]
    Part(String),
    /// No threads.
    #[error("cannot start the controller's thread")]
    Thread(#[source] std::io::Error),
    /// The file that a recording goes to.
    #[error("cannot record to {file}")]
    Record {
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A directory of the controller's.
    #[error("cannot create files in {dir}")]
    Directory {
        /// The directory.
        dir: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The controller's sockets.
    #[error(transparent)]
    Controller(#[from] StartError),
    /// The array cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The array does not stop in order.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Guests cannot connect.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The array says no.
    #[error("{0}")]
    Array(String),
    /// The agent's way to the controller.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A part is not there any more.
    #[error("{0} has ended unexpectedly: acknowledged writes are safe; start the server again")]
    Ended(&'static str),
}
