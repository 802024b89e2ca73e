//! Protocol violations of the peer.

use thiserror::Error;

/// Reason why a session cannot continue. Offsets are bytes since its start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QmpError {
    /// A line that exceeds the limit.
    #[error("offset {offset}: a message of more than {max} bytes")]
    TooLong {
        /// Start of the message.
        offset: u64,
        /// Limit, bytes.
        max: usize,
    },
    /// A line that is not JSON.
    #[error("offset {offset}: no JSON: {why}")]
    Syntax {
        /// Start of the message.
        offset: u64,
        /// Message of the parser.
        why: String,
    },
    /// A message with an invalid structure.
    #[error("offset {offset}, {field}: {why}")]
    Form {
        /// Start of the message.
        offset: u64,
        /// Name of the field.
        field: &'static str,
        /// Violated rule.
        why: String,
    },
    /// An answer without a pending command.
    #[error("offset {offset}: an answer to command {id}, which waits for none")]
    Unasked {
        /// Start of the message.
        offset: u64,
        /// Id in the answer.
        id: u64,
    },
    /// The peer refuses the negotiation.
    #[error("offset {offset}: it refuses to negotiate: {why}")]
    Refused {
        /// Start of the message.
        offset: u64,
        /// Message of the peer.
        why: String,
    },
    /// A command before the session is ready.
    #[error("the session is not ready")]
    NotReady,
    /// Too many pending commands.
    #[error("{0} commands wait for their answers already")]
    TooMany(usize),
}
