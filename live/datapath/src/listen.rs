//! Addresses where guests connect: their text form, the rules for them without TLS, and stale sockets.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use crate::tls::TlsError;

/// Address where guests connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address. Without TLS it must be a loopback address.
    Tcp(SocketAddr),
    /// A TCP address where clients authenticate by TLS. [`Listen::Tcp`] becomes this with [`Credentials`](crate::Credentials).
    Tls(SocketAddr),
}

/// Reason why the server cannot listen on an address.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The text is not an address.
    #[error("{0:?} is not an address to listen on: write unix:PATH or tcp:127.0.0.1:10809")]
    Unknown(String),
    /// Any host could connect without authentication.
    #[error(
        "{0} is not a loopback address: without TLS, which --tls-certificates or --tls-psk turns on (tls_certificates or tls_psk in a configuration), only 127.0.0.0/8 and ::1 are allowed"
    )]
    NotLoopback(SocketAddr),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Another server listens there.
    #[error("{0} is in use by a server that answers")]
    InUse(PathBuf),
    /// The path exceeds Linux's limit for sockets.
    #[error(
        "{path}: a socket's path has at most {most} bytes, this one has {bytes}: use a shorter one, or one relative to the working directory"
    )]
    TooLong {
        path: PathBuf,
        /// Length of the path.
        bytes: usize,
        /// Limit of Linux.
        most: usize,
    },
    /// The volume's name cannot be the name of a socket.
    #[error(
        "volume {0:?} has a '/' in its name, so it cannot have a vhost-user socket: name the volumes to export"
    )]
    NoFileName(String),
    /// The system call failed.
    #[error("cannot listen on {address}")]
    System {
        address: String,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
            return Ok(Listen::Unix(path.into()));
        }
        let unknown = || ListenError::Unknown(text.into());
        let address = text.strip_prefix("tcp:").ok_or_else(unknown)?;
        let address = address.parse().map_err(|_| unknown())?;
        Ok(Listen::Tcp(address))
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) | Listen::Tls(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl Listen {
    /// Checks that guests may connect there without TLS.
    ///
    /// # Errors
    /// [`ListenError::NotLoopback`].
    pub fn allowed_in_the_clear(&self) -> Result<(), ListenError> {
        match self {
            Listen::Tcp(address) if !address.ip().is_loopback() => {
                Err(ListenError::NotLoopback(*address))
            }
            _ => Ok(()),
        }
    }

    /// Name of the socket in a hand-over. It includes the use of TLS: a socket without TLS never becomes one with TLS, nor the reverse.
    pub(crate) fn listener_name(&self, secured: bool) -> String {
        match self {
            Listen::Tcp(_) | Listen::Tls(_) if secured => format!("tls {self}"),
            _ => format!("nbd {self}"),
        }
    }

    /// URI by which a client connects to an export.
    pub fn uri(&self, export: &str) -> String {
        let address = match self {
            Listen::Unix(path) => nbd::Address::Unix(path.clone()),
            Listen::Tcp(address) | Listen::Tls(address) => nbd::Address::Tcp {
                host: address.ip().to_string(),
                port: address.port(),
            },
        };
        let secured = matches!(self, Listen::Tls(_));
        let uri = nbd::Uri {
            address,
            export: export.to_owned(),
            // The client's own host knows the paths of its certificates or keys.
            tls: secured.then(nbd::TlsWords::default),
        };
        uri.to_string()
    }
}

/// Removes the socket of a server that was killed.
pub(crate) fn clear_stale(path: &Path) -> Result<(), ListenError> {
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse(path.into()));
    }
    let is_socket = std::fs::symlink_metadata(path)
        .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_socket(&m.file_type()));
    if is_socket {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
