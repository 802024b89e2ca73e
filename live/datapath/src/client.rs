//! Blocking NBD client with one request at a time. It connects to remote devices, and serves the keeper's rare
//! requests to them and tests. Workers have their own client for remote devices.

mod stream;

use std::os::fd::OwnedFd;
use std::time::Duration;

use nbd::{
    ClientWishes, Command, ExportFlags, REQUEST_BYTES, ReplyHeader, ReplyReader, ReplyStep,
    RequestFlags, RequestHeader, Session, Uri, WireError, encode_request,
};
use thiserror::Error;

use crate::device::{FLUSH_TIME, Lease, STAMP_TIME};
use crate::tls::{Channel, TlsError};
use stream::{Socket, Stream, handshake};

/// Longest wait for a reply. A server that exceeds it is stuck.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Longest wait for a reply while a caller waits for the result.
pub(crate) const QUICK_TIME: Duration = Duration::from_secs(3);

/// Reason why a remote export cannot be used.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The connection failed or broke.
    #[error("cannot talk to {uri}")]
    Io {
        /// URI of the export.
        uri: String,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The server violates the protocol or refuses the client.
    #[error("{uri}: {source}")]
    Wire {
        /// URI of the export.
        uri: String,
        /// Violation or refusal.
        #[source]
        source: WireError,
    },
    /// TLS cannot be established.
    #[error("{uri}: {source}")]
    Tls {
        /// URI of the export.
        uri: String,
        /// Error of TLS.
        #[source]
        source: TlsError,
    },
    /// A command failed.
    #[error("{uri}: {what} failed: {error:?}")]
    Failed {
        /// URI of the export.
        uri: String,
        /// Name of the command.
        what: &'static str,
        /// Error code of the server.
        error: nbd::ErrorCode,
    },
}

/// Connection after its handshake, for a caller with non-blocking I/O.
#[derive(Debug)]
pub struct ClientConnection {
    pub socket: OwnedFd,
    /// Encryption of the connection; `None` without TLS.
    pub tls: Option<Box<Channel>>,
    /// Result of the handshake.
    pub session: Box<Session>,
}

/// Handshake options of a client that only transfers data.
const DATA_ONLY: ClientWishes = ClientWishes {
    structured: true,
    allocation: false,
};

/// Connects to an export and completes the handshake.
///
/// # Errors
/// [`ClientError`] if no server listens or the server refuses.
pub fn connect(uri: &Uri) -> Result<ClientConnection, ClientError> {
    Client::connect(uri)?.into_connected()
}

/// Zeroes ranges of an export durably.
///
/// # Errors
/// [`ClientError`]; the state of the ranges is then unknown.
pub(crate) fn zero(uri: &Uri, lease: &Lease, ranges: &[(u64, u32)]) -> Result<(), ClientError> {
    let mut client = within(uri, QUICK_TIME)?;
    for (offset, length) in ranges {
        lease.check().map_err(|e| client.io(e))?;
        client.zero(*offset, *length)?;
    }
    client.flush()
}

fn within(uri: &Uri, time: Duration) -> Result<Client, ClientError> {
    let client = Client::connect(uri)?;
    client.limit(time)?;
    Ok(client)
}

/// Reads a short range. Each wait for a reply is limited to `time`.
///
/// # Errors
/// [`ClientError`].
pub fn read_within(
    uri: &Uri,
    time: Duration,
    offset: u64,
    length: u32,
) -> Result<Vec<u8>, ClientError> {
    within(uri, time)?.read(offset, length)
}

/// Writes a short range and flushes it.
///
/// # Errors
/// [`ClientError`]; the data may or may not be written then.
pub(crate) fn write_durably(
    uri: &Uri,
    lease: &Lease,
    offset: u64,
    data: &[u8],
) -> Result<(), ClientError> {
    let mut client = within(uri, STAMP_TIME)?;
    lease.check().map_err(|e| client.io(e))?;
    client.write(offset, data)?;
    client.flush()
}

/// Makes all acknowledged writes durable.
///
/// # Errors
/// [`ClientError`].
pub fn flush(uri: &Uri) -> Result<(), ClientError> {
    within(uri, FLUSH_TIME)?.flush()
}

/// Connects, and checks the first `head` bytes of the export before the connection is used.
///
/// # Errors
/// [`ClientError`], also if `is_right` rejects these bytes.
pub fn connect_to(
    uri: &Uri,
    head: u32,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Result<ClientConnection, ClientError> {
    if head == 0 {
        return connect(uri);
    }
    let mut client = within(uri, QUICK_TIME)?;
    let found = client.read(0, head)?;
    if !is_right(&found) {
        return Err(client.io(std::io::Error::other(
            "the superblock is not the last one written: this is another device, or an older copy",
        )));
    }
    client.into_connected()
}

/// Connection to an export.
#[derive(Debug)]
pub struct Client {
    uri: Uri,
    socket: Socket,
    session: Box<Session>,
    reader: ReplyReader,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    cookie: u64,
    /// Result of the last block status command.
    extents: Vec<nbd::StatusExtent>,
}

/// Shuts a connection down when it is dropped, so a thread that waits for a reply on it fails at once.
#[derive(Debug)]
pub struct Breaker(Stream);

impl Drop for Breaker {
    fn drop(&mut self) {
        let how = std::net::Shutdown::Both;
        // The connection may already be closed.
        let _ = match &self.0 {
            Stream::Unix(s) => s.shutdown(how),
            Stream::Tcp(s) => s.shutdown(how),
        };
    }
}

/// Data that a request sends or receives.
enum Payload<'a> {
    None,
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

impl Client {
    /// Connects to an export and completes the handshake.
    ///
    /// # Errors
    /// [`ClientError`] if no server listens or the server refuses.
    pub fn connect(uri: &Uri) -> Result<Self, ClientError> {
        Self::connect_wishing(uri, DATA_ONLY)
    }

    /// Like [`Client::connect`]; also negotiates the allocation status of the export ([`Client::status`]).
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn connect_for_status(uri: &Uri) -> Result<Self, ClientError> {
        let wishes = ClientWishes {
            structured: true,
            allocation: true,
        };
        Self::connect_wishing(uri, wishes)
    }

    fn connect_wishing(uri: &Uri, wishes: ClientWishes) -> Result<Self, ClientError> {
        let (socket, session) = handshake(uri, wishes)?;
        let reader = ReplyReader::new(&session);
        let uri = uri.clone();
        socket
            .set_timeout(ANSWER_TIME)
            .map_err(|source| ClientError::Io {
                uri: uri.to_string(),
                source,
            })?;
        Ok(Self {
            uri,
            socket,
            session,
            reader,
            input: vec![],
            cookie: 0,
            extents: vec![],
        })
    }

    /// Returns a handle that breaks this connection from another thread.
    ///
    /// # Errors
    /// [`ClientError::Io`] if the system has no free descriptor.
    pub fn breaker(&self) -> Result<Breaker, ClientError> {
        let stream = match &self.socket.stream {
            Stream::Unix(s) => s.try_clone().map(Stream::Unix),
            Stream::Tcp(s) => s.try_clone().map(Stream::Tcp),
        };
        stream.map(Breaker).map_err(|e| self.io(e))
    }

    /// Size of the export in bytes.
    pub fn size(&self) -> u64 {
        self.session.export.size
    }

    /// Request sizes that the server allows.
    pub(crate) fn block_sizes(&self) -> nbd::BlockSizes {
        self.session.export.block
    }

    /// Converts the client to a connection for non-blocking I/O.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub(crate) fn into_connected(self) -> Result<ClientConnection, ClientError> {
        let Self {
            uri,
            socket,
            session,
            ..
        } = self;
        let connected = socket.into_connected(session);
        connected.map_err(|source| ClientError::Io {
            uri: uri.to_string(),
            source,
        })
    }

    /// Reads a range, in requests of sizes that the server allows.
    ///
    /// # Errors
    /// [`ClientError`]; all but [`ClientError::Failed`] end the connection.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        let mut data = Vec::with_capacity(length as usize);
        let (end, size) = (offset + u64::from(length), self.size());
        loop {
            let at = offset + data.len() as u64;
            let request = self.block_sizes().request(at, end - at, size);
            let mut piece = vec![0; request.length as usize];
            let payload = Payload::In(&mut piece);
            let (from, length) = (request.offset, request.length);
            self.ask(Command::Read, "reading", from, length, payload)?;
            data.extend_from_slice(&piece[request.wanted()]);
            if offset + data.len() as u64 >= end {
                return Ok(data);
            }
        }
    }

    /// Returns true if the server reports the allocation status of the export.
    pub fn tells_status(&self) -> bool {
        self.session.allocation_context.is_some()
    }

    /// Returns the allocation status of a range from its first byte on. The server may report only a part of the
    /// range.
    ///
    /// # Errors
    /// As for [`Client::read`]; also if [`Client::tells_status`] is false.
    pub fn status(
        &mut self,
        offset: u64,
        length: u32,
    ) -> Result<Vec<nbd::StatusExtent>, ClientError> {
        self.extents.clear();
        let command = Command::BlockStatus;
        let payload = Payload::None;
        self.ask(command, "block status", offset, length, payload)?;
        Ok(std::mem::take(&mut self.extents))
    }

    /// Writes data. It is durable after the next flush.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let length = data.len() as u32;
        self.ask(
            Command::Write,
            "writing",
            offset,
            length,
            Payload::Out(data),
        )
    }

    /// Writes data and makes it durable; earlier writes may stay volatile.
    ///
    /// # Errors
    /// Those of [`Client::read`].
    pub(crate) fn write_through(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        if !self.session.export.flags.contains(ExportFlags::SEND_FUA) {
            self.write(offset, data)?;
            return self.flush();
        }
        let mut header = self.header(Command::Write, offset, data.len() as u32);
        header.flags = RequestFlags::FUA;
        self.send(&encode_request(&header))?;
        self.send(data)?;
        self.answer("writing", &header, &mut [])
    }

    /// Limits the wait for each later reply to `time`.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub(crate) fn limit(&self, time: Duration) -> Result<(), ClientError> {
        self.socket.set_timeout(time).map_err(|e| self.io(e))
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(Command::Flush, "flushing", 0, 0, Payload::None)
    }

    /// Trims a range: its content is no longer needed.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.ask(Command::Trim, "trimming", offset, length, Payload::None)
    }

    /// Zeroes a range.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn zero(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        let command = Command::WriteZeroes;
        self.ask(command, "zeroing", offset, length, Payload::None)
    }

    /// Sends the disconnect command. Dropping the client also closes the connection, but the server may report a
    /// client that crashed.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let header = self.header(Command::Disconnect, 0, 0);
        self.send(&encode_request(&header))
    }

    fn header(&mut self, command: Command, offset: u64, length: u32) -> RequestHeader {
        self.cookie += 1;
        RequestHeader {
            flags: RequestFlags(0),
            command,
            cookie: self.cookie,
            offset,
            length,
        }
    }

    fn io(&self, source: std::io::Error) -> ClientError {
        ClientError::Io {
            uri: self.uri.to_string(),
            source,
        }
    }

    fn wire(&self, source: WireError) -> ClientError {
        ClientError::Wire {
            uri: self.uri.to_string(),
            source,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let sent = self.socket.write_all(bytes);
        sent.map_err(|e| self.io(e))
    }

    /// Fills `to` from the received bytes, then from the socket.
    fn take(&mut self, to: &mut [u8]) -> Result<(), ClientError> {
        let here = to.len().min(self.input.len());
        to[..here].copy_from_slice(&self.input[..here]);
        self.input.drain(..here);
        let mut at = here;
        while at < to.len() {
            let read = self.socket.read(&mut to[at..]);
            at += read.map_err(|e| self.io(e))?;
        }
        Ok(())
    }

    fn ask(
        &mut self,
        command: Command,
        what: &'static str,
        offset: u64,
        length: u32,
        payload: Payload<'_>,
    ) -> Result<(), ClientError> {
        let header = self.header(command, offset, length);
        let bytes: [u8; REQUEST_BYTES] = encode_request(&header);
        self.send(&bytes)?;
        let into = match payload {
            Payload::None => &mut [][..],
            Payload::Out(data) => {
                self.send(data)?;
                &mut []
            }
            Payload::In(data) => data,
        };
        self.answer(what, &header, into)
    }

    /// Waits for the reply to the request in flight.
    fn answer(
        &mut self,
        what: &'static str,
        header: &RequestHeader,
        into: &mut [u8],
    ) -> Result<(), ClientError> {
        let bad = |why| WireError::BadReply {
            place: "reply",
            why,
        };
        let mut failed = None;
        // Received bytes of the payload. Parts without data would keep the earlier content of the buffer.
        let mut covered = 0;
        loop {
            let reply = match self.reader.next(&self.input).map_err(|e| self.wire(e))? {
                ReplyStep::More { .. } => {
                    let mut more = [0; 4096];
                    let n = self.socket.read(&mut more).map_err(|e| self.io(e))?;
                    self.input.extend(&more[..n]);
                    continue;
                }
                ReplyStep::Header { consumed, reply } => {
                    self.input.drain(..consumed);
                    reply
                }
            };
            let inside = |offset: u64, length: u32| {
                let from = offset.checked_sub(header.offset)? as usize;
                let to = from.checked_add(length as usize)?;
                (to <= into.len()).then_some(from..to)
            };
            let (cookie, done) = match reply {
                ReplyHeader::Simple { cookie, error } => {
                    failed = error;
                    if error.is_none() {
                        self.take(into)?;
                        covered = into.len();
                    }
                    (cookie, true)
                }
                ReplyHeader::Data {
                    cookie,
                    offset,
                    length,
                    done,
                } => {
                    let range = inside(offset, length)
                        .ok_or_else(|| self.wire(bad("data outside the request")))?;
                    covered += range.len();
                    self.take(&mut into[range])?;
                    (cookie, done)
                }
                ReplyHeader::Hole {
                    cookie,
                    offset,
                    length,
                    done,
                } => {
                    let range = inside(offset, length)
                        .ok_or_else(|| self.wire(bad("a hole outside the request")))?;
                    covered += range.len();
                    into[range].fill(0);
                    (cookie, done)
                }
                ReplyHeader::None { cookie } => (cookie, true),
                ReplyHeader::Status {
                    cookie,
                    done,
                    extents,
                    ..
                } => {
                    self.extents = extents;
                    (cookie, done)
                }
                ReplyHeader::Error {
                    cookie,
                    error,
                    done,
                    ..
                } => {
                    failed = failed.or(Some(error));
                    (cookie, done)
                }
            };
            if cookie != header.cookie {
                return Err(self.wire(bad("a reply without a request")));
            }
            if let (Some(error), true) = (failed, done) {
                let uri = self.uri.to_string();
                return Err(ClientError::Failed { uri, what, error });
            }
            if done && covered != into.len() {
                let why = "a reply with missing or repeated data";
                return Err(self.wire(bad(why)));
            }
            if done {
                return Ok(());
            }
        }
    }
}
