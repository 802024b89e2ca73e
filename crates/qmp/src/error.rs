//! What is wrong with what the peer sent.

use thiserror::Error;

/// Why a session cannot go on. Offsets are bytes since its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QmpError {
    /// A line that does not end.
    #[error("offset {offset}: a message of more than {max} bytes")]
    TooLong {
        /// Where the message begins.
        offset: u64,
        /// The limit.
        max: usize,
    },
    /// A line that is no JSON.
    #[error("offset {offset}: no JSON: {why}")]
    Syntax {
        /// Where the message begins.
        offset: u64,
        /// What the parser says.
        why: String,
    },
    /// A message of another form than the protocol has.
    #[error("offset {offset}, {field}: {why}")]
    Form {
        /// Where the message begins.
        offset: u64,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An answer to nothing that was asked.
    #[error("offset {offset}: an answer to command {id}, which waits for none")]
    Unasked {
        /// Where the message begins.
        offset: u64,
        /// The number in it.
        id: u64,
    },
    /// The peer does not negotiate.
    #[error("offset {offset}: it refuses to negotiate: {why}")]
    Refused {
        /// Where the message begins.
        offset: u64,
        /// What it says.
        why: String,
    },
    /// A command before the session is ready.
    #[error("the session is not ready")]
    NotReady,
    /// Too many commands at once.
    #[error("{0} commands wait for their answers already")]
    TooMany(usize),
}
