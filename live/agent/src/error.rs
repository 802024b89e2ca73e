//! Errors of the agent.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use datapath::control::ControlError;
use datapath::explain;
use manager::agent::ActionError;
use thiserror::Error;
use vmhost::HostError;

/// Result of an operation of the agent.
pub(crate) type Result<T, E = AgentError> = std::result::Result<T, E>;

/// Error of the agent. Its text has all causes. Therefore `source` returns none, and callers print the text alone.
#[derive(Debug, Error)]
pub enum AgentError {
    /// An operation on a file, a directory or a device failed.
    #[error("{}: {error}", with_path(action, path))]
    File {
        /// Failed operation, such as `cannot inspect`; empty if the cause is enough.
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// Another operation of the system failed.
    #[error("{}{error}", prefix(action))]
    System {
        /// Failed operation, such as `cannot start qemu-img`; empty if the cause is enough.
        action: String,
        error: io::Error,
    },
    /// A record of the agent cannot be used.
    #[error("{path}: {error}; {consequence}")]
    Record {
        path: PathBuf,
        error: Box<dyn StdError + Send + Sync>,
        consequence: &'static str,
    },
    /// Output of a hypervisor or of a storage program cannot be parsed.
    #[error(transparent)]
    Output(#[from] HostError),
    /// A text is not the expected JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The server of the array refused a request or does not respond.
    #[error("{}", explain(.0))]
    Array(#[from] ControlError),
    /// A program or a hypervisor failed or refused an order, or a rule of this agent refuses it; the text is the reason.
    #[error("{0}")]
    Refused(String),
    /// A program or a hypervisor sent no complete and valid answer in time.
    #[error("{0}")]
    Silent(String),
    /// A fact that a decision needs is not reported, or in a form of another version.
    #[error("{0}")]
    Unknown(String),
    /// A setting has a value that cannot be used.
    #[error("{0}")]
    Setting(String),
    /// An image, a disk or a directory has another user.
    #[error("{0}")]
    InUse(String),
    /// An image or its storage is not suitable: wrong size, lack of space, existing data, unsupported options.
    #[error("{0}")]
    Unsuitable(String),
    /// An object has changed or disappeared since it was last read.
    #[error("{0}")]
    Changed(String),
    /// This host or its agent lacks a function, a program or a privilege.
    #[error("{0}")]
    Unsupported(String),
    /// Another error, with the object or the operation that it concerns.
    #[error("{subject}: {error}")]
    Context {
        subject: String,
        error: Box<AgentError>,
    },
}

fn prefix(action: &str) -> String {
    match action {
        "" => String::new(),
        action => format!("{action}: "),
    }
}

fn with_path(action: &str, path: &Path) -> String {
    match action {
        "" => path.display().to_string(),
        action => format!("{action} {}", path.display()),
    }
}

/// Returns the conversion of an error of the system into that of a failed operation on a path.
pub(crate) fn file_error<E: Into<io::Error>>(
    action: &'static str,
    path: &(impl AsRef<Path> + ?Sized),
) -> impl Fn(E) -> AgentError {
    move |e| AgentError::File {
        action,
        path: path.as_ref().into(),
        error: e.into(),
    }
}

/// Returns the conversion of the fault of a record into an error with its consequence.
pub(crate) fn record_error<E: Into<Box<dyn StdError + Send + Sync>>>(
    path: &Path,
    consequence: &'static str,
) -> impl Fn(E) -> AgentError {
    move |e| AgentError::Record {
        path: path.into(),
        error: e.into(),
        consequence,
    }
}

/// Returns the conversion of an error of the system into that of a failed operation.
pub(crate) fn system_error<E: Into<io::Error>>(action: impl Display) -> impl Fn(E) -> AgentError {
    move |e| AgentError::System {
        action: action.to_string(),
        error: e.into(),
    }
}

/// Returns the conversion of an error into one that names its object or its operation.
pub(crate) fn in_context<E: Into<AgentError>>(subject: impl Display) -> impl Fn(E) -> AgentError {
    move |e| AgentError::Context {
        subject: subject.to_string(),
        error: Box::new(e.into()),
    }
}

impl From<AgentError> for ActionError {
    fn from(error: AgentError) -> Self {
        error.to_string().into()
    }
}
