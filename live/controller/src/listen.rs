//! Listeners: a unix socket that only its owner may open, and a TCP port.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};

use crate::limits::BACKLOG;
use crate::server::StartError;

/// Maximum length of the path of a unix socket on Linux, bytes.
const SOCKET_PATH_MAX: usize = 107;

/// Checks that a socket can be created at a path, without creating it.
///
/// # Errors
/// [`StartError`]: another controller serves the socket, another file exists there, the directory is missing, or the path is
/// too long.
pub fn check_socket(path: &Path) -> Result<(), StartError> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        return Err(StartError::TooLong {
            path: path.into(),
            bytes,
            most: SOCKET_PATH_MAX,
        });
    }
    if UnixStream::connect(path).is_ok() {
        return Err(StartError::SocketInUse(path.into()));
    }
    let found = std::fs::symlink_metadata(path);
    match found.is_ok_and(|m| !m.file_type().is_socket()) {
        false => Ok(()),
        true => Err(StartError::Socket {
            path: path.into(),
            source: io::Error::other(
                "the path exists and is not a socket: remove it, or use another path",
            ),
        }),
    }
}

/// Creates a socket that is private from the start: its mode is set before it has a name.
pub(crate) fn unix(path: &Path) -> Result<UnixListener, StartError> {
    check_socket(path)?;
    clear_stale(path)?;
    let failed = |source: io::Error| StartError::Socket {
        path: path.into(),
        source,
    };
    let listener = private(path).map_err(|e| failed(e.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn private(path: &Path) -> rustix::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket that a killed controller left. Other files remain.
fn clear_stale(path: &Path) -> Result<(), StartError> {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(|source| StartError::Socket {
            path: path.into(),
            source,
        })?;
    }
    Ok(())
}

/// Listens on a TCP port.
pub(crate) fn tcp(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let listener = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(address),
        _ => StartError::Tcp { address, source },
    })
}
