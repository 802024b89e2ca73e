//! Protocol violations of a peer.

use thiserror::Error;

/// Invalid bytes from the peer: the connection must be closed. The only exception is [`WireError::UnknownCommand`], which a
/// server answers with `EINVAL`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// A wrong magic number.
    #[error("{place}: bad magic {found:#x}")]
    BadMagic {
        /// Header with the wrong number.
        place: &'static str,
        /// Received number.
        found: u64,
    },
    /// The server uses the negotiation from before 2011.
    #[error("server greeting: oldstyle negotiation is not supported")]
    Oldstyle,
    /// A well-formed request with an unknown command. It has no payload; answer `EINVAL`.
    #[error("request {cookie:#x}: unknown command {number}")]
    UnknownCommand {
        /// Number of the command.
        number: u16,
        /// Cookie for the reply.
        cookie: u64,
        /// Length field of the request.
        length: u32,
    },
    /// The client set flags that were not offered.
    #[error("client flags: unknown flags in {flags:#x}")]
    UnknownClientFlags {
        /// All flags of the client.
        flags: u32,
    },
    /// The client does not support option replies, but the option needs one.
    #[error("option {option}: the client did not negotiate fixed newstyle")]
    NotFixed {
        /// Number of the option.
        option: u32,
    },
    /// An option that is too long to be skipped.
    #[error("option {option}: {length} bytes, at most {limit} are accepted")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// Length of its data, bytes.
        length: u32,
        /// Limit, bytes.
        limit: u32,
    },
    /// The client exceeds a limit of the handshake without starting the transmission.
    #[error("handshake: more than {limit} bytes of {what}")]
    HandshakeTooLong {
        /// Limited bytes: `options` or `replies`.
        what: &'static str,
        /// Limit, bytes.
        limit: u32,
    },
    /// `EXPORT_NAME` with an unknown name; this option has no error reply.
    #[error("export name: no export {name:?}")]
    UnknownExport {
        /// Requested name.
        name: String,
    },
    /// An invalid export name.
    #[error("export name: {why}")]
    BadExportName {
        /// Violated rule.
        why: &'static str,
    },
    /// A request outside TLS that the peer grants only inside TLS.
    #[error("the server requires TLS: use nbds:// with tls-certificates=DIR or tls-psk-file=FILE")]
    TlsRequired,
    /// The peer does not support TLS.
    #[error(
        "the server does not support TLS ({message}): enable TLS on the server, or use nbd:// without encryption and authentication"
    )]
    NoTls {
        /// Message of the peer, truncated.
        message: String,
    },
    /// Unencrypted bytes that would have been processed as if they had arrived inside TLS.
    #[error("starttls: unencrypted bytes after STARTTLS: possible man-in-the-middle attack")]
    BeforeTls,
    /// The handshake has already ended, with success or an error.
    #[error("the handshake has already ended")]
    HandshakeOver,
    /// The server refused a required option.
    #[error("option {option}: the server refused with {code:#x}: {message}")]
    Refused {
        /// Number of the option.
        option: u32,
        /// Type of the reply.
        code: u32,
        /// Message of the server, truncated.
        message: String,
    },
    /// A reply to an option that was not sent.
    #[error("option reply: for option {found}, expected option {expected}")]
    WrongOption {
        /// Expected option.
        expected: u32,
        /// Option in the reply.
        found: u32,
    },
    /// A reply with an invalid length or content.
    #[error("{place}: {why}")]
    BadReply {
        /// Kind of reply.
        place: &'static str,
        /// Violated rule.
        why: &'static str,
    },
    /// A reply that exceeds the client's limit.
    #[error("{place}: {length} bytes, at most {limit} are accepted")]
    ReplyTooLong {
        /// Kind of reply.
        place: &'static str,
        /// Length in its header, bytes.
        length: u32,
        /// Limit, bytes.
        limit: u32,
    },
    /// Too many replies to one option.
    #[error("option {option}: more than {limit} bytes of replies")]
    TooManyReplies {
        /// Number of the option.
        option: u32,
        /// Limit, bytes.
        limit: usize,
    },
}
