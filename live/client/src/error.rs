//! Errors of calls to a controller, each with the required action.

use std::io;
use std::path::PathBuf;

use manager::wire::WireRefusal;
use thiserror::Error;

/// Reason for the failure of a call.
#[derive(Debug, Error)]
pub enum ClientError {
    /// An invalid address.
    #[error("{0:?} is not the address of a controller: write unix:PATH or https://HOST:PORT")]
    Address(String),
    /// An invalid token.
    #[error("invalid token: expected one line of visible ASCII characters without spaces")]
    Token,
    /// No process listens at the address.
    #[error("no controller answers on {address}: is `terrace serve` running?")]
    Nobody {
        address: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error(
        "{path} may not be opened by this user: be the one that runs `terrace serve`, or use https:// with a token"
    )]
    SocketMode {
        /// Path of the socket.
        path: PathBuf,
    },
    /// TLS without a trusted certificate.
    #[error(
        "no certificate of {address} is trusted: give its fingerprint, which `terrace serve` prints (--fingerprint, or TERRACE_FINGERPRINT), or its CA file (--ca)"
    )]
    NoTrust { address: String },
    /// A certificate that is not trusted.
    #[error(
        "the certificate of {address} is not trusted: give its fingerprint, which `terrace serve` prints (--fingerprint, or TERRACE_FINGERPRINT), or its CA file (--ca)"
    )]
    Untrusted {
        address: String,
        /// Reason of the rejection.
        #[source]
        source: io::Error,
    },
    /// An unusable file of trusted certificates.
    #[error("cannot use the CA file {path}: {why}")]
    CaFile {
        /// Path of the file.
        path: PathBuf,
        why: String,
    },
    /// A text that is not the SHA-256 fingerprint of a certificate.
    #[error("{0:?} is not a fingerprint: write sha256: and 64 hexadecimal digits")]
    Fingerprint(String),
    /// A broken connection, or no answer in time.
    #[error("{address} does not respond")]
    Silent {
        address: String,
        /// Error of the connection.
        #[source]
        source: io::Error,
    },
    /// 401.
    #[error("{0}")]
    Unauthorized(String),
    /// 403: the call needs another role.
    #[error("{0}")]
    Forbidden(String),
    /// 404.
    #[error("{0}")]
    NotFound(String),
    /// 409: the present state does not allow the call.
    #[error("{0}")]
    Conflict(String),
    /// 409 to an agent.
    #[error("{0}")]
    Wire(WireRefusal),
    /// Another refusal: the request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// 503: the controller makes no decisions and accepts no orders at present. 429: too many requests without a valid
    /// token.
    #[error("{0}")]
    Unavailable(String),
    /// The answer is not from a controller of this version.
    #[error(
        "{address} answered something that is not understood ({why}): use the same version of terrace on both sides"
    )]
    Strange {
        address: String,
        /// Violated rule.
        why: String,
    },
    /// The system cannot create an event loop.
    #[error("cannot start a client")]
    System(#[source] io::Error),
}
