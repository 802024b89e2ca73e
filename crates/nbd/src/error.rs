//! What a peer can do wrong.

use thiserror::Error;

/// Bytes that cannot be answered: the connection must be closed. The one exception is
/// [`WireError::UnknownCommand`], which a server answers with `EINVAL`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// Something else than the magic number that belongs there.
    #[error("{place}: bad magic {found:#x}")]
    BadMagic {
        /// Which header.
        place: &'static str,
        /// What stood there.
        found: u64,
    },
    /// The server speaks the negotiation of before 2011.
    #[error("server greeting: oldstyle negotiation is not supported")]
    Oldstyle,
    /// A well-formed request of a command that this crate does not know. It has no payload; answer `EINVAL`.
    #[error("request {cookie:#x}: unknown command {number}")]
    UnknownCommand {
        /// The command.
        number: u16,
        /// Cookie to answer with.
        cookie: u64,
        /// Its length field.
        length: u32,
    },
    /// The client set flags that were not offered.
    #[error("client flags: unknown flags in {flags:#x}")]
    UnknownClientFlags {
        /// All flags.
        flags: u32,
    },
    /// The client does not understand option replies, and the option needs one.
    #[error("option {option}: the client did not negotiate fixed newstyle")]
    NotFixed {
        /// The option.
        option: u32,
    },
    /// An option so long that it is not even skipped.
    #[error("option {option}: {length} bytes, at most {limit} are accepted")]
    OptionTooLong {
        /// The option.
        option: u32,
        /// Its data.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// The client keeps asking and never starts.
    #[error("handshake: more than {limit} bytes of {what}")]
    HandshakeTooLong {
        /// `options` or `replies`.
        what: &'static str,
        /// The limit, in bytes.
        limit: u32,
    },
    /// `EXPORT_NAME` with a name that is not served; it has no error reply.
    #[error("export name: no export {name:?}")]
    UnknownExport {
        /// The name.
        name: String,
    },
    /// A name that cannot be an export's.
    #[error("export name: {why}")]
    BadExportName {
        /// What is wrong with it.
        why: &'static str,
    },
    /// One side asked for something that is granted inside TLS only.
    #[error("the server requires TLS: use nbds:// with tls-certificates=DIR or tls-psk-file=FILE")]
    TlsRequired,
    /// The other side has no TLS.
    #[error(
        "the server does not support TLS ({message}): enable TLS on the server, or use nbd:// without encryption and authentication"
    )]
    NoTls {
        /// Its words, cut.
        message: String,
    },
    /// Bytes in the clear that would have been taken for the other side's inside TLS.
    #[error("starttls: unencrypted bytes after STARTTLS: possible man-in-the-middle attack")]
    BeforeTls,
    /// The handshake has ended already, well or not.
    #[error("the handshake has already ended")]
    HandshakeOver,
    /// The server said no to an option without which there is no session.
    #[error("option {option}: the server refused with {code:#x}: {message}")]
    Refused {
        /// The option.
        option: u32,
        /// The reply's type.
        code: u32,
        /// The server's words, cut.
        message: String,
    },
    /// A reply to an option that was not asked.
    #[error("option reply: for option {found}, expected option {expected}")]
    WrongOption {
        /// What is waited for.
        expected: u32,
        /// What the reply says.
        found: u32,
    },
    /// A reply whose length or content breaks the protocol.
    #[error("{place}: {why}")]
    BadReply {
        /// Which reply.
        place: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A reply that is longer than this client keeps.
    #[error("{place}: {length} bytes, at most {limit} are accepted")]
    ReplyTooLong {
        /// Which reply.
        place: &'static str,
        /// What it announces.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// More replies to one option than this client reads.
    #[error("option {option}: more than {limit} bytes of replies")]
    TooManyReplies {
        /// The option.
        option: u32,
        /// The limit, in bytes.
        limit: usize,
    },
}
