//! The listeners: a socket that only its owner may open, and a port.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};

use crate::limits::BACKLOG;
use crate::server::StartError;

/// Most bytes of a unix socket's path, as Linux has it.
const SOCKET_PATH_MAX: usize = 107;

/// Looks whether a socket could be made at a path; makes nothing.
///
/// # Errors
/// [`StartError`]: a controller that answers there, another file, no directory, a path that is too
/// long.
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
                "there is a file that is no socket: remove it, or use another path",
            ),
        }),
    }
}

/// A socket that never was open to others: its mode is set before it has a name.
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

/// Removes the socket that a controller which was killed has left behind. What is no socket stays, and is in the way.
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

/// A port.
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
