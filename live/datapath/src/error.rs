//! Errors of requests to an array, and of the steps that carry them out.

use std::fmt::Display;
use std::io;

use array::ArrayError;
use thiserror::Error;

use crate::device::DeviceError;
use crate::keeper::KeeperError;
use crate::text::{explain, guests, hint};
use crate::worker::NoReply;

/// Result of a request to an array or of one of its steps.
pub type Result<T, E = DatapathError> = std::result::Result<T, E>;

/// Reason why a request to an array, or one of its steps, failed.
///
/// The message contains all causes. Therefore `source` returns none, and callers print the message alone.
#[derive(Debug, Error)]
pub enum DatapathError {
    /// The request cannot be parsed, or a value of it is invalid in every state of the array.
    #[error("{0}")]
    Invalid(String),
    /// No volume, device, tier or class has the name.
    #[error("unknown {kind} {name:?}{hint}")]
    Unknown {
        /// `volume`, `device`, …
        kind: &'static str,
        name: String,
        /// Clause with the most similar name, or with all known ones.
        hint: String,
    },
    /// The volume or the array is not served by this process, or no longer.
    #[error("{0}")]
    NotServed(String),
    /// An operation in progress excludes this one. A later attempt may succeed.
    #[error("{0}")]
    Busy(String),
    /// Guests are connected to the volume.
    #[error("volume {volume:?} is in use: {} open{consequence}", guests(*.connections, "is", "are"))]
    InUse {
        volume: String,
        connections: usize,
        /// End of the sentence: the consequence or the remedy.
        consequence: String,
    },
    /// The state of the array, of a device or of a source does not permit the operation.
    #[error("{0}")]
    Refused(String),
    /// A thread, a device or a program does not respond in time.
    #[error("{0}")]
    Late(String),
    /// A system call failed.
    #[error("cannot {action} {object}: {}", explain(.error))]
    System {
        /// `open`, `inspect`, …
        action: &'static str,
        /// Path of the file, or its description.
        object: String,
        error: io::Error,
    },
    /// An image is damaged, incomplete, or has content that an import does not support.
    #[error("{0}")]
    Image(String),
    /// A program of the system cannot start, fails, or has an unexpected output.
    #[error("{0}")]
    Program(String),
    /// The source of an import does not exist or does not respond.
    #[error("{0}")]
    SourceGone(Box<DatapathError>),
    /// The other process of a take-over, or a client, refuses or violates the protocol.
    #[error("{0}")]
    Peer(String),
    /// Error with the volume, file or device that it concerns.
    #[error("{subject}: {error}")]
    Context {
        subject: String,
        error: Box<DatapathError>,
    },
    /// The map or a device failed.
    #[error("{}", explain(.0.as_ref()))]
    Keeper(Box<KeeperError>),
    /// Another layer failed: an export, TLS, a socket, the cache, a trace.
    #[error("{}", explain(.0.as_ref()))]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl DatapathError {
    /// Error for `map_err`: a system call on an object failed.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
        object: &dyn Display,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let object = object.to_string();
        move |error| DatapathError::System {
            action,
            object,
            error: error.into(),
        }
    }

    /// Error for `map_err`: another layer failed.
    pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        DatapathError::Failed(Box::new(error))
    }

    /// Error for a name that is not among the known ones.
    pub fn unknown<'a>(
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        DatapathError::Unknown {
            kind,
            name: name.into(),
            hint: hint(name, known),
        }
    }

    /// Returns the error with the subject that it concerns.
    pub(crate) fn about(self, subject: impl Display) -> Self {
        DatapathError::Context {
            subject: subject.to_string(),
            error: Box::new(self),
        }
    }

    /// Returns the error with the volume that it concerns.
    pub(crate) fn of_volume(self, name: &str) -> Self {
        self.about(format_args!("volume {name:?}"))
    }

    /// Returns the error of a source that does not exist or does not respond.
    pub(crate) fn gone(self) -> Self {
        DatapathError::SourceGone(Box::new(self))
    }
}

impl From<KeeperError> for DatapathError {
    fn from(error: KeeperError) -> Self {
        DatapathError::Keeper(Box::new(error))
    }
}

impl From<ArrayError> for DatapathError {
    fn from(error: ArrayError) -> Self {
        KeeperError::from(error).into()
    }
}

impl From<DeviceError> for DatapathError {
    fn from(error: DeviceError) -> Self {
        KeeperError::from(error).into()
    }
}

impl From<NoReply> for DatapathError {
    fn from(error: NoReply) -> Self {
        match error {
            NoReply::Ended => DatapathError::NotServed(error.to_string()),
            NoReply::Stalled { .. } | NoReply::StalledMeanwhile { .. } => {
                DatapathError::Late(error.to_string())
            }
        }
    }
}
