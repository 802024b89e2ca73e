//! Why a controller was not asked, or did not do it; each with what to do.

use std::io;
use std::path::PathBuf;

use manager::wire::WireRefusal;
use thiserror::Error;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Not an address.
    #[error("{0:?} is not the address of a controller: write unix:PATH or https://HOST:PORT")]
    Address(String),
    /// Not a token.
    #[error("invalid token: expected one line of visible ASCII characters without spaces")]
    Token,
    /// Nobody listens there.
    #[error("no controller answers on {address}: is `terrace serve` running?")]
    Nobody {
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The socket is another user's.
    #[error(
        "{path} may not be opened by this user: be the one that runs `terrace serve`, or use https:// with a token"
    )]
    SocketMode {
        /// The socket.
        path: PathBuf,
    },
    /// TLS needs something to trust.
    #[error(
        "no certificate of {address} is trusted: give its fingerprint, which `terrace serve` prints (--fingerprint, or TERRACE_FINGERPRINT), or its CA file (--ca)"
    )]
    NoTrust { address: String },
    /// The certificate is not the one that was expected.
    #[error(
        "the certificate of {address} is not trusted: give its fingerprint, which `terrace serve` prints (--fingerprint, or TERRACE_FINGERPRINT), or its CA file (--ca)"
    )]
    Untrusted {
        address: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The file of trusted certificates.
    #[error("cannot use the CA file {path}: {why}")]
    CaFile {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// Not the SHA-256 of a certificate.
    #[error("{0:?} is not a fingerprint: write sha256: and 64 hexadecimal digits")]
    Fingerprint(String),
    /// The connection broke, or nothing came in time.
    #[error("{address} does not respond")]
    Silent {
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// 401.
    #[error("{0}")]
    Unauthorized(String),
    /// 403: another role is needed.
    #[error("{0}")]
    Forbidden(String),
    /// 404.
    #[error("{0}")]
    NotFound(String),
    /// 409: it cannot be done as things are.
    #[error("{0}")]
    Conflict(String),
    /// 409 to an agent.
    #[error("{0}")]
    Wire(WireRefusal),
    /// Any other refusal: the request makes no sense to the controller.
    #[error("{0}")]
    Invalid(String),
    /// 503: nothing is decided or ordered until that has changed. 429: too many requests without a
    /// valid token.
    #[error("{0}")]
    Unavailable(String),
    /// It is no controller, or one of another version.
    #[error(
        "{address} answered something that is not understood ({why}): use the same version of terrace on both sides"
    )]
    Strange {
        address: String,
        /// What was wrong.
        why: String,
    },
    /// The system gives no event loop.
    #[error("cannot start a client")]
    System(#[source] io::Error),
}
