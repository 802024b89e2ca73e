//! A blocking NBD client, one request at a time: to connect to remote devices, for the keeper's rare requests to them, and
//! for tests. Workers talk to remote devices by themselves.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::{
    Address, ClientHandshake, ClientProgress, ClientWishes, Command, ExportFlags, REQUEST_BYTES,
    ReplyHeader, ReplyReader, ReplyStep, RequestFlags, RequestHeader, Session, TlsWords, Uri,
    WireError, encode_request,
};
use thiserror::Error;

use crate::device::{FLUSH_TIME, Lease, STAMP_TIME};
use crate::tls::{self, Channel, OUT_BYTES, TlsError};

/// A server that does not answer the handshake within this time is not there.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// A server that does not answer a request within this time is stuck.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// An answer that somebody waits for takes no longer.
pub(crate) const QUICK_TIME: Duration = Duration::from_secs(3);

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
    /// There is no TLS to be had.
    #[error("{uri}: {source}")]
    Tls {
        /// The export.
        uri: String,
        /// Why.
        #[source]
        source: TlsError,
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

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection, and what its bytes are encrypted by, if they are.
#[derive(Debug)]
struct Socket {
    stream: Stream,
    tls: Option<Box<Channel>>,
}

/// A connection after its handshake, to be used by who does not wait for it.
#[derive(Debug)]
pub struct Connected {
    pub socket: OwnedFd,
    /// What its bytes are encrypted by, if they are.
    pub tls: Option<Box<Channel>>,
    /// What was agreed.
    pub session: Box<Session>,
}

/// A peer that says nothing for so long, though asked, is gone.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Connecting takes no longer than a handshake may.
fn connect_tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HANDSHAKE_TIME) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    fn connect(address: &Address) -> std::io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Stream::Unix(socket))
            }
            Address::Tcp { host, port } => {
                let socket = connect_tcp(host, *port)?;
                // A peer that is gone without a word is noticed, also when nothing is being sent.
                rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
                rustix::net::sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
                rustix::net::sockopt::set_tcp_user_timeout(&socket, KEEPALIVE.as_millis() as u32)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(HANDSHAKE_TIME))?;
                Ok(Stream::Tcp(socket))
            }
        }
    }

    fn set_timeout(&self, time: Option<Duration>) -> std::io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(time),
            Stream::Tcp(s) => s.set_read_timeout(time),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = match self {
                Stream::Unix(s) => s.read(bytes),
                Stream::Tcp(s) => s.read(bytes),
            };
            match read {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                // A read that is waited for a limited time ends so whenever the process was stopped and goes on.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Unix(s) => s.write_all(bytes),
            Stream::Tcp(s) => s.write_all(bytes),
        }
    }
}

impl Socket {
    fn set_timeout(&self, time: Duration) -> std::io::Result<()> {
        self.stream.set_timeout(Some(time))
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read(bytes);
        };
        loop {
            let n = tls.read(bytes).map_err(std::io::Error::other)?;
            if n > 0 || bytes.is_empty() {
                return Ok(n);
            }
            if tls.is_closed() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            tls.receive(|room| self.stream.read(room))?;
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(bytes);
        };
        for bytes in bytes.chunks(OUT_BYTES) {
            tls.seal(bytes).map_err(std::io::Error::other)?;
            flush_tls(tls, &mut self.stream)?;
        }
        Ok(())
    }

    fn into_connected(self, session: Box<Session>) -> std::io::Result<Connected> {
        let Socket { stream, tls } = self;
        stream.set_timeout(None)?;
        let socket = match stream {
            Stream::Unix(s) => s.into(),
            Stream::Tcp(s) => s.into(),
        };
        Ok(Connected {
            socket,
            tls,
            session,
        })
    }
}

/// Sends what a session has to say.
fn flush_tls(tls: &mut Channel, stream: &mut Stream) -> std::io::Result<()> {
    stream.write_all(tls.unsent())?;
    tls.sent(tls.unsent().len());
    Ok(())
}

/// Makes a session with the server that a URI names.
fn secure(uri: &Uri, words: &TlsWords, stream: &mut Stream) -> Result<Channel, ClientError> {
    let failed = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    let refused = |source| ClientError::Tls {
        uri: uri.to_string(),
        source,
    };
    let host = match &uri.address {
        Address::Tcp { host, .. } => host,
        Address::Unix(_) => "localhost",
    };
    let mut tls = tls::connect(words, host).map_err(refused)?;
    loop {
        let shaken = tls.shake();
        let sent = flush_tls(&mut tls, stream);
        let over = shaken.map_err(refused)?;
        sent.map_err(failed)?;
        if over {
            return Ok(tls);
        }
        tls.receive(|room| stream.read(room)).map_err(failed)?;
    }
}

fn handshake(uri: &Uri, wishes: ClientWishes) -> Result<(Socket, Box<Session>), ClientError> {
    let failed = |source| ClientError::Io {
        uri: uri.to_string(),
        source,
    };
    if let Some(words) = &uri.tls {
        // What is wrong with our own files is said whether anybody is there or not.
        tls::check(words).map_err(|source| ClientError::Tls {
            uri: uri.to_string(),
            source,
        })?;
    }
    let stream = Stream::connect(&uri.address).map_err(failed)?;
    let mut socket = Socket { stream, tls: None };
    let mut handshake = match uri.tls {
        Some(_) => ClientHandshake::with_tls(&uri.export, wishes),
        None => ClientHandshake::new(&uri.export, wishes),
    };
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
        match (progress, &uri.tls) {
            (ClientProgress::More, _) => {}
            (ClientProgress::StartTls, Some(words)) => {
                socket.tls = Some(Box::new(secure(uri, words, &mut socket.stream)?));
                out.clear();
                handshake.secured(&mut out);
                socket.write_all(&out).map_err(failed)?;
            }
            (ClientProgress::StartTls, None) => unreachable!("it was not asked for"),
            // Nothing was asked yet, so nothing can follow the handshake.
            (ClientProgress::Ready(session), _) => return Ok((socket, session)),
        }
    }
}

/// What is asked of a server that data goes to and comes from.
const DATA_ONLY: ClientWishes = ClientWishes {
    structured: true,
    allocation: false,
};

/// Connects and shakes hands.
///
/// # Errors
/// [`ClientError`] when there is no server, or it refuses.
pub fn connect(uri: &Uri) -> Result<Connected, ClientError> {
    let (socket, session) = handshake(uri, DATA_ONLY)?;
    socket
        .into_connected(session)
        .map_err(|source| ClientError::Io {
            uri: uri.to_string(),
            source,
        })
}

/// Makes ranges of an export read as zeroes, durably.
///
/// # Errors
/// [`ClientError`]; then nothing is known of the ranges.
pub(crate) fn zero(uri: &Uri, lease: &Lease, ranges: &[(u64, u32)]) -> Result<(), ClientError> {
    let mut client = Client::connect(uri)?;
    let timeout = client.socket.set_timeout(QUICK_TIME);
    timeout.map_err(|e| client.io(e))?;
    for (offset, length) in ranges {
        lease.check().map_err(|e| client.io(e))?;
        client.zero(*offset, *length)?;
    }
    client.flush()
}

fn within(uri: &Uri, time: Duration) -> Result<Client, ClientError> {
    let client = Client::connect(uri)?;
    let timeout = client.socket.set_timeout(time);
    timeout.map_err(|e| client.io(e))?;
    Ok(client)
}

/// Reads a little, for who can wait no longer than so.
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

/// Writes a little, and flushes.
///
/// # Errors
/// [`ClientError`]; then it may be there or not.
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

/// Makes what was written durable.
///
/// # Errors
/// [`ClientError`].
pub fn flush(uri: &Uri) -> Result<(), ClientError> {
    within(uri, FLUSH_TIME)?.flush()
}

/// Connects, and lets what the export begins with be looked at before anything else is done with the connection.
///
/// # Errors
/// [`ClientError`], also where `is_right` says no.
pub fn connect_to(
    uri: &Uri,
    head: u32,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Result<Connected, ClientError> {
    if head == 0 {
        return connect(uri);
    }
    let mut client = within(uri, QUICK_TIME)?;
    let found = client.read(0, head)?;
    if !is_right(&found) {
        return Err(client.io(std::io::Error::other(
            "its superblock is not the one that was written last: another device, or an older copy",
        )));
    }
    client.into_connected()
}

/// A connection to an export.
#[derive(Debug)]
pub struct Client {
    uri: Uri,
    socket: Socket,
    session: Box<Session>,
    reader: ReplyReader,
    /// Received, not looked at yet.
    input: Vec<u8>,
    cookie: u64,
    /// The last block status.
    extents: Vec<nbd::StatusExtent>,
}

/// Ends a connection when it is dropped: whoever waits for an answer on it is told at once that it broke.
#[derive(Debug)]
pub struct Breaker(Stream);

impl Drop for Breaker {
    fn drop(&mut self) {
        let how = std::net::Shutdown::Both;
        // It may have ended by itself.
        let _ = match &self.0 {
            Stream::Unix(s) => s.shutdown(how),
            Stream::Tcp(s) => s.shutdown(how),
        };
    }
}

/// What is sent with a request, or comes back.
enum Payload<'a> {
    None,
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

impl Client {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// [`ClientError`] when there is no server, or it refuses.
    pub fn connect(uri: &Uri) -> Result<Self, ClientError> {
        Self::connect_wishing(uri, DATA_ONLY)
    }

    /// [`Client::connect`], and asks what of the export is there ([`Client::status`]).
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

    /// What ends this connection from another thread.
    ///
    /// # Errors
    /// [`ClientError::Io`], when the system has no descriptor for it.
    pub fn breaker(&self) -> Result<Breaker, ClientError> {
        let stream = match &self.socket.stream {
            Stream::Unix(s) => s.try_clone().map(Stream::Unix),
            Stream::Tcp(s) => s.try_clone().map(Stream::Tcp),
        };
        stream.map(Breaker).map_err(|e| self.io(e))
    }

    /// Bytes of the export.
    pub fn size(&self) -> u64 {
        self.session.export.size
    }

    /// Sizes of requests that the server allows.
    pub(crate) fn block_sizes(&self) -> nbd::BlockSizes {
        self.session.export.block
    }

    /// The connection, to be used by a caller that does not wait for it.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub(crate) fn into_connected(self) -> Result<Connected, ClientError> {
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

    /// Reads, in requests of the sizes that the server allows.
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

    /// Whether the server says what of the export is there.
    pub fn tells_status(&self) -> bool {
        self.session.allocation_context.is_some()
    }

    /// What is in a range, from its first byte on; perhaps not all of it.
    ///
    /// # Errors
    /// As for [`Client::read`]; also where [`Client::tells_status`] says no.
    pub fn status(
        &mut self,
        offset: u64,
        length: u32,
    ) -> Result<Vec<nbd::StatusExtent>, ClientError> {
        self.extents.clear();
        let command = Command::BlockStatus;
        let payload = Payload::None;
        self.ask(command, "asking for block status", offset, length, payload)?;
        Ok(std::mem::take(&mut self.extents))
    }

    /// Writes; durable after the next flush.
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

    /// Makes what was written durable.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(Command::Flush, "flushing", 0, 0, Payload::None)
    }

    /// Says that a range is of no use any more.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.ask(Command::Trim, "trimming", offset, length, Payload::None)
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// As for [`Client::read`].
    pub fn zero(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        let command = Command::WriteZeroes;
        self.ask(command, "zeroing", offset, length, Payload::None)
    }

    /// Says goodbye. Dropping the client does as well; a server may take that for a client that died.
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

    /// Fills `to` from what was received and what comes.
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

    /// Waits for the answer to the one request that is under way.
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
        // Where nothing came the buffer has what it had before.
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
                        .ok_or_else(|| self.wire(bad("data that was not asked for")))?;
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
                        .ok_or_else(|| self.wire(bad("a hole that was not asked for")))?;
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
                return Err(self.wire(bad("an answer to nothing")));
            }
            if let (Some(error), true) = (failed, done) {
                let uri = self.uri.to_string();
                return Err(ClientError::Failed { uri, what, error });
            }
            if done && covered != into.len() {
                let why = "an answer that leaves something out, or gives it twice";
                return Err(self.wire(bad(why)));
            }
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_answer_is_waited_for_though_the_process_was_stopped_meanwhile() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let mut stream = Stream::Unix(ours);
        let me = std::process::id();
        let script = format!("sleep 0.2; kill -STOP {me}; sleep 0.05; kill -CONT {me}");
        let mut stops = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(stops.wait().unwrap().success());
                std::io::Write::write_all(&mut theirs, b"here").unwrap();
            });
            let mut bytes = [0; 8];
            assert_eq!(stream.read(&mut bytes).unwrap(), 4);
        });
    }
}
