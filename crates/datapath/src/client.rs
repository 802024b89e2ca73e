//! A blocking NBD client: to connect to remote devices, and for the keeper's rare requests to them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::{
    Address, ClientHandshake, ClientProgress, ClientWishes, Command, REQUEST_BYTES, ReplyHeader,
    ReplyReader, ReplyStep, RequestFlags, RequestHeader, Session, Uri, WireError, encode_request,
};
use thiserror::Error;

/// A server that does not answer the handshake within this time is not there.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Why a remote export cannot be used.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection, or it broke.
    #[error("cannot talk to {uri}")]
    Io {
        /// The export.
        uri: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The other side does not keep to the protocol, or refuses.
    #[error("{uri}: {source}")]
    Wire {
        /// The export.
        uri: String,
        /// What was wrong.
        #[source]
        source: WireError,
    },
    /// A command failed.
    #[error("{uri}: {what} failed: {error:?}")]
    Failed {
        /// The export.
        uri: String,
        /// The command.
        what: &'static str,
        /// The server's error.
        error: nbd::ErrorCode,
    },
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn connect(address: &Address) -> std::io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Socket::Unix(socket))
            }
            Address::Tcp { host, port } => {
                let socket = TcpStream::connect((host.as_str(), *port))?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Socket::Tcp(socket))
            }
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let n = match self {
            Socket::Unix(s) => s.read(bytes),
            Socket::Tcp(s) => s.read(bytes),
        }?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(n)
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Socket::Unix(s) => s.write_all(bytes),
            Socket::Tcp(s) => s.write_all(bytes),
        }
    }

    fn into_fd(self) -> std::io::Result<OwnedFd> {
        Ok(match self {
            Socket::Unix(s) => {
                s.set_read_timeout(None)?;
                s.into()
            }
            Socket::Tcp(s) => {
                s.set_read_timeout(None)?;
                s.into()
            }
        })
    }
}

fn handshake(uri: &Uri) -> Result<(Socket, Box<Session>), ClientError> {
    let failed = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    let mut socket = Socket::connect(&uri.address).map_err(failed)?;
    let wishes = ClientWishes {
        structured: true,
        allocation: false,
    };
    let mut handshake = ClientHandshake::new(&uri.export, wishes);
    let mut input = [0; 4096];
    loop {
        let n = socket.read(&mut input).map_err(failed)?;
        let mut out = vec![];
        let (_, progress) =
            handshake
                .step(&input[..n], &mut out)
                .map_err(|source| ClientError::Wire {
                    uri: uri.to_string(),
                    source,
                })?;
        socket.write_all(&out).map_err(failed)?;
        if let ClientProgress::Ready(session) = progress {
            // Nothing was asked yet, so nothing can follow the handshake.
            return Ok((socket, session));
        }
    }
}

/// Connects and shakes hands.
///
/// # Errors
/// [`ClientError`] when there is no server, or it refuses.
pub fn connect(uri: &Uri) -> Result<(OwnedFd, Box<Session>), ClientError> {
    let (socket, session) = handshake(uri)?;
    let fd = socket.into_fd().map_err(|source| ClientError::Io {
        uri: uri.to_string(),
        source,
    })?;
    Ok((fd, session))
}

/// Makes ranges of an export read as zeroes, durably.
///
/// # Errors
/// [`ClientError`]; then nothing is known of the ranges.
pub fn zero(uri: &Uri, ranges: &[(u64, u32)]) -> Result<(), ClientError> {
    let (mut socket, session) = handshake(uri)?;
    let mut reader = ReplyReader::new(&session);
    let zeroes = ranges
        .iter()
        .map(|(offset, length)| (Command::WriteZeroes, "zeroing", *offset, *length));
    let flush = [(Command::Flush, "flushing", 0, 0)];
    for (command, what, offset, length) in zeroes.chain(flush) {
        ask(
            uri,
            &mut socket,
            &mut reader,
            what,
            RequestHeader {
                flags: RequestFlags(0),
                command,
                cookie: 1,
                offset,
                length,
            },
        )?;
    }
    Ok(())
}

fn ask(
    uri: &Uri,
    socket: &mut Socket,
    reader: &mut ReplyReader,
    what: &'static str,
    header: RequestHeader,
) -> Result<(), ClientError> {
    let io = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    let bytes: [u8; REQUEST_BYTES] = encode_request(&header);
    socket.write_all(&bytes).map_err(io)?;
    let mut input = vec![];
    loop {
        let step = reader.next(&input).map_err(|source| ClientError::Wire {
            uri: uri.to_string(),
            source,
        })?;
        let (error, done) = match step {
            ReplyStep::More { .. } => {
                let mut more = [0; 512];
                let n = socket.read(&mut more).map_err(io)?;
                input.extend(&more[..n]);
                continue;
            }
            ReplyStep::Header { consumed, reply } => {
                input.drain(..consumed);
                match reply {
                    ReplyHeader::Simple { error, .. } => (error, true),
                    ReplyHeader::Error { error, done, .. } => (Some(error), done),
                    ReplyHeader::None { .. } => (None, true),
                    _ => (None, false),
                }
            }
        };
        if let Some(error) = error {
            let uri = uri.to_string();
            return Err(ClientError::Failed { uri, what, error });
        }
        if done {
            return Ok(());
        }
    }
}
