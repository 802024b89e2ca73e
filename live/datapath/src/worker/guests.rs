//! Connections of guests: handshake, requests, and limits on the memory of one connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nbd::{
    Command, ErrorCode, HandshakeLimits, Progress, RequestFlags, RequestHeader, ServerHandshake,
    Session, WireError, decode_request,
};
use rustix::io::Errno;

use crate::cached::Pass;
use crate::engine::{GuestOp, GuestRequest};
use crate::io::{Buf, Op, Outcome, Target};
use crate::tls::Channel;

use super::answers::Segment;
use super::budget::PausedGuest;
use super::cached::OriginalRequest;
use super::messages::Message;
use super::{Token, Worker};

/// Size of the input buffer of a connection: largest number of bytes in one receive, unless they belong to a large payload.
pub(super) const INPUT_BYTES: usize = 64 << 10;

/// Largest payload that is collected in the input buffer. A larger one is received into its own buffer.
const INLINE_PAYLOAD: usize = 32 << 10;

/// Limit on the unanswered requests of one connection; further ones stay in its socket. Protects memory and the share of
/// the worker that other guests have.
pub(super) const REQUESTS_MAX: u32 = 512;

/// Limit on the bytes of one connection's unanswered requests; further ones stay in its socket. One request may exceed it.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// Longest time without an option in a handshake. Protects the connection limit from clients that only connect.
const OPTION_NS: u64 = 10_000_000_000;

/// Longest handshake. Protects the connection limit from clients that never start. A client that lists 1,000 exports over a
/// network waits for 3,000 replies.
const HANDSHAKE_NS: u64 = 120_000_000_000;

/// Room before the data of a read for the header of its answer. Keeps the data aligned for direct I/O on nearly all
/// devices.
pub(super) const HEAD: usize = 512;

/// Largest number of descriptors in one answer to a block status request.
const STATUS_MAX: usize = 1024;

/// Receiver of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerTo {
    Socket {
        connection: u32,
        cookie: u64,
    },
    /// Ring in the memory of a guest.
    Ring {
        ring: u32,
        chain: u32,
    },
    /// Thread that waits for the answer.
    Waiter(u32),
    /// No receiver: the pages of the read go to the L2 cache, if it still is the one with the number `time`.
    SecondLevel {
        time: u32,
    },
}

/// Data that the engine carries for each request.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) to: AnswerTo,
    pub(super) buf: Option<Arc<Buf>>,
    pub(super) arrival_ns: u64,
    /// Mark of the request in the cache.
    pub(super) pass: Pass,
    /// Request of the guest, if a read that is widened to whole pages replaces it.
    pub(super) asked: Option<Box<OriginalRequest>>,
    /// True if the cache's memory answered the request.
    pub(super) from_memory: bool,
}

impl Guest {
    /// Creates the data of a request that has just arrived.
    pub(super) fn new(to: AnswerTo, buf: Option<Arc<Buf>>, arrival_ns: u64) -> Self {
        Self {
            to,
            buf,
            arrival_ns,
            pass: Pass::NONE,
            asked: None,
            from_memory: false,
        }
    }
}

pub(super) enum Stage {
    Handshake(Box<ServerHandshake>),
    Serving {
        volume: u32,
        session: Box<Session>,
    },
    /// Nothing is read any more. The connection is removed when its requests in flight have ended.
    Closing,
}

/// Write whose payload is received into its own buffer.
pub(super) struct Payload {
    pub(super) header: RequestHeader,
    pub(super) buf: Arc<Buf>,
    pub(super) filled: usize,
    /// Start of the last receive for this payload.
    pub(super) since_ns: u64,
}

pub(super) struct Connection {
    pub(super) socket: Arc<OwnedFd>,
    /// TLS session; none without encryption.
    pub(super) tls: Option<Box<Channel>>,
    pub(super) stage: Stage,
    since_ns: u64,
    /// Time of the last option of the handshake; before the first option, of the connection.
    option_ns: u64,
    pub(super) input: Option<Arc<Buf>>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) payload: Option<Payload>,
    /// True while the next request waits for the memory budget.
    pub(super) paused: bool,
    /// True if the connection ends when its outstanding replies are sent.
    leaves: bool,
    /// Number of bytes of a refused write that are still to be received and dropped.
    pub(super) skip: u64,
    /// Cookie, error and reason of that write. It is answered when all its bytes have arrived, because a client that still
    /// sends does not read answers.
    pub(super) refused: Option<(u64, ErrorCode, &'static str)>,
    pub(super) receiving: bool,
    pub(super) out: VecDeque<Segment>,
    pub(super) waiting_writable: bool,
    /// Last time at which its socket was full.
    pub(super) unsent_since_ns: u64,
    pub(super) listed_unsent: bool,
    /// Number of requests whose answers have not been sent.
    pub(super) requests: u32,
    pub(super) bytes: u64,
}

impl Connection {
    /// Returns true if no receive is in flight and the limits allow more requests.
    #[inline]
    fn may_receive(&self) -> bool {
        let full = self.paused || self.requests >= REQUESTS_MAX || self.bytes >= BYTES_MAX;
        !self.receiving && !self.leaves && !full && !matches!(self.stage, Stage::Closing)
    }

    /// Returns the free part of the input buffer, for all input except payloads with their own buffer.
    #[inline]
    fn input_room(&mut self) -> (Arc<Buf>, Range<usize>) {
        let input = self.input.get_or_insert_with(|| Buf::new(INPUT_BYTES));
        if self.start > 0 && (self.start == self.end || self.end == input.len()) {
            let (start, end) = (self.start, self.end);
            input.fill(0..end, |bytes| bytes.copy_within(start..end, 0));
            (self.start, self.end) = (0, end - start);
        }
        (input.clone(), self.end..input.len())
    }
}

impl Worker {
    /// Adds an accepted connection.
    pub(super) fn welcome(&mut self, socket: OwnedFd) {
        let handshake = ServerHandshake::new(HandshakeLimits::default());
        let greeting = handshake.greeting().to_vec();
        let stage = Stage::Handshake(Box::new(handshake));
        let connection = self.add_connection(socket, None, stage);
        self.push_segment(connection, Segment::Bytes(greeting, 0));
        self.receive(connection);
    }

    /// Adds the connection of a client that was authenticated by TLS.
    pub(super) fn welcome_secured(
        &mut self,
        socket: OwnedFd,
        handshake: Box<ServerHandshake>,
        tls: Box<Channel>,
    ) {
        let connection = self.add_connection(socket, Some(tls), Stage::Handshake(handshake));
        self.receive(connection);
    }

    /// Adds a connection whose handshake was done by another worker.
    pub(super) fn take_over(
        &mut self,
        socket: OwnedFd,
        tls: Option<Box<Channel>>,
        session: Box<Session>,
        volume: u32,
        rest: &[u8],
        unsent: Vec<Segment>,
    ) {
        let connection = self.add_connection(socket, tls, Stage::Serving { volume, session });
        for segment in unsent {
            self.push_segment(connection, segment);
        }
        let c = &mut self.connections[connection as usize];
        let input = Buf::new(INPUT_BYTES.max(rest.len()));
        input.fill(0..rest.len(), |to| to.copy_from_slice(rest));
        c.input = Some(input);
        c.end = rest.len();
        self.decode(connection);
        self.receive(connection);
    }

    pub(super) fn add_connection(
        &mut self,
        socket: OwnedFd,
        tls: Option<Box<Channel>>,
        stage: Stage,
    ) -> u32 {
        self.connections.insert(Connection {
            socket: Arc::new(socket),
            tls,
            stage,
            since_ns: self.now_ns,
            option_ns: self.now_ns,
            input: None,
            start: 0,
            end: 0,
            payload: None,
            paused: false,
            leaves: false,
            skip: 0,
            refused: None,
            receiving: false,
            out: VecDeque::new(),
            waiting_writable: false,
            unsent_since_ns: 0,
            listed_unsent: false,
            requests: 0,
            bytes: 0,
        }) as u32
    }

    /// Starts a receive, if the limits allow more requests.
    pub(super) fn receive(&mut self, connection: u32) {
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        let serving = matches!(c.stage, Stage::Serving { .. });
        if !c.may_receive() || self.still && serving {
            return;
        }
        if c.tls.is_some() {
            return self.receive_secured(connection);
        }
        let to = match &c.payload {
            Some(p) => {
                let end = HEAD + p.header.length as usize;
                p.buf.target(HEAD + p.filled..end)
            }
            None => {
                let (input, range) = c.input_room();
                input.target(range)
            }
        };
        self.start_receive(connection, to);
    }

    fn start_receive(&mut self, connection: u32, to: Target) {
        let c = &mut self.connections[connection as usize];
        c.receiving = true;
        if let Some(payload) = &mut c.payload {
            payload.since_ns = self.now_ns;
        }
        let socket = c.socket.clone();
        let token = Token::Receive(connection).pack();
        self.io.start(token, Op::Receive { socket, to });
    }

    pub(super) fn received(&mut self, connection: u32, outcome: Outcome) {
        let c = &mut self.connections[connection as usize];
        c.receiving = false;
        if matches!(c.stage, Stage::Closing) {
            return self.remove_if_over(connection); // data of a closing connection is dropped
        }
        let n = match outcome {
            // The receive was cancelled, because the worker became still.
            Err(Errno::CANCELED) => return self.receive(connection),
            Ok(0) | Err(_) => return self.close(connection),
            Ok(n) => n as usize,
        };
        match &mut c.tls {
            Some(tls) => tls.received(n),
            None => self.arrived(connection, n),
        }
        self.receive(connection);
    }

    /// Handles bytes that were received into the input buffer or into a payload.
    #[inline]
    fn arrived(&mut self, connection: u32, n: usize) {
        let c = &mut self.connections[connection as usize];
        match &mut c.payload {
            Some(payload) => {
                payload.filled += n;
                if payload.filled == payload.header.length as usize {
                    let Payload { header, buf, .. } = c.payload.take().expect("just filled");
                    self.request(connection, header, Some(buf));
                }
            }
            None => {
                c.end += n;
                self.decode(connection);
            }
        }
    }

    /// Decrypts received bytes while the limits allow more requests, then starts a receive. Bytes beyond the limits stay
    /// encrypted, and nothing more is received once the buffer for them is full.
    fn receive_secured(&mut self, connection: u32) {
        loop {
            let Some(c) = self.connections.get_mut(connection as usize) else {
                return;
            };
            if !c.may_receive() {
                return;
            }
            let (buf, range) = match &c.payload {
                Some(p) => (
                    p.buf.clone(),
                    HEAD + p.filled..HEAD + p.header.length as usize,
                ),
                None => c.input_room(),
            };
            let tls = c.tls.as_mut().expect("it is asked before");
            let read = buf.fill(range, |to| tls.read(to));
            match read {
                Ok(0) if tls.is_closed() => return self.close(connection),
                Ok(0) => break,
                Ok(n) => self.arrived(connection, n),
                Err(_) => return self.close(connection),
            }
        }
        let c = &mut self.connections[connection as usize];
        let tls = c.tls.as_mut().expect("it is asked before");
        let to = tls.room();
        if !tls.unsent().is_empty() && !c.listed_unsent {
            // The TLS session has a message of its own to send.
            c.listed_unsent = true;
            self.unsent.push(connection);
        }
        self.start_receive(connection, to);
    }

    /// Decodes the received bytes.
    pub(super) fn decode(&mut self, connection: u32) {
        loop {
            let Some(c) = self.connections.get_mut(connection as usize) else {
                return;
            };
            let Some(input) = c.input.clone() else { return };
            match &mut c.stage {
                Stage::Closing => return,
                Stage::Serving { .. } if self.still => return,
                Stage::Handshake(_) => {
                    if !self.handshake(connection, &input) {
                        return;
                    }
                }
                Stage::Serving { .. } => {
                    if !self.next_request(connection, &input) {
                        return;
                    }
                }
            }
        }
    }

    /// Makes one step of the handshake. Returns true if the input may have more to decode.
    fn handshake(&mut self, connection: u32, input: &Buf) -> bool {
        let registry = self.shared.registry.clone();
        let c = &mut self.connections[connection as usize];
        let Stage::Handshake(handshake) = &mut c.stage else {
            unreachable!("called in a handshake");
        };
        let mut out = vec![];
        let stepped = input.with(c.start..c.end, |bytes| {
            handshake.step(bytes, &*registry, &mut out)
        });
        let progress = match stepped {
            Ok((used, progress)) => {
                c.start += used;
                progress
            }
            Err(_) => {
                self.push_segment(connection, Segment::Bytes(out, 0));
                self.close(connection);
                return false;
            }
        };
        if !out.is_empty() {
            c.option_ns = self.now_ns;
            self.push_segment(connection, Segment::Bytes(out, 0));
        }
        match progress {
            Progress::More => false,
            // This server never offers TLS here: encrypted connections arrive with their TLS session.
            Progress::Closed | Progress::StartTls => {
                self.close(connection);
                false
            }
            Progress::Ready(session) => self.begin_serving(connection, session),
        }
    }

    fn begin_serving(&mut self, connection: u32, session: Box<Session>) -> bool {
        let Some(home) = self.shared.registry.home(&session.export.name) else {
            self.close(connection); // the volume has been deleted meanwhile
            return false;
        };
        if home.worker == self.index {
            if !self.admits(home.volume, &session) {
                self.close(connection);
                return false;
            }
            let volume = home.volume.0;
            self.connections[connection as usize].stage = Stage::Serving { volume, session };
            return true;
        }
        // The last answer of the handshake is sent before another worker takes the connection.
        self.send_now(connection);
        if self.connections[connection as usize].waiting_writable {
            // The socket is full directly after the handshake: the client does not read.
            self.close(connection);
            return false;
        }
        let c = self.connections.remove(connection as usize);
        let rest = c
            .input
            .map_or(vec![], |input| input.with(c.start..c.end, <[u8]>::to_vec));
        let unsent = c.out.into_iter().collect();
        match Arc::try_unwrap(c.socket) {
            Ok(socket) => {
                self.peers[home.worker].send(Message::TakeOver {
                    socket,
                    tls: c.tls,
                    session,
                    volume: home.volume,
                    rest,
                    unsent,
                });
            }
            // No other reference exists, because no receive is in flight during a step of the handshake.
            Err(_) => {
                self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
        false
    }

    /// Takes one request from the input. Returns true if the input may have another.
    fn next_request(&mut self, connection: u32, input: &Arc<Buf>) -> bool {
        let c = &mut self.connections[connection as usize];
        let have = c.end - c.start;
        if c.skip > 0 {
            let now = c.skip.min(have as u64);
            c.skip -= now;
            c.start += now as usize;
            let whole = c.skip == 0;
            if let Some((cookie, error, why)) = c.refused.take_if(|_| whole) {
                self.refuse(connection, cookie, error, why);
            }
            return now > 0;
        }
        if have < nbd::REQUEST_BYTES || c.requests >= REQUESTS_MAX || c.bytes >= BYTES_MAX {
            return false;
        }
        let mut bytes = [0; nbd::REQUEST_BYTES];
        input.with(c.start..c.start + nbd::REQUEST_BYTES, |b| {
            bytes.copy_from_slice(b)
        });
        let header = match decode_request(&bytes) {
            Ok(header) => header,
            Err(WireError::UnknownCommand { cookie, .. }) => {
                c.start += nbd::REQUEST_BYTES;
                self.refuse(connection, cookie, ErrorCode::Inval, "unknown command");
                return true;
            }
            Err(_) => {
                self.close(connection);
                return false;
            }
        };
        c.leaves = header.command == Command::Disconnect && c.requests > 0;
        if c.leaves {
            return false;
        }
        let Stage::Serving { session, .. } = &c.stage else {
            unreachable!("called when serving");
        };
        if let Err(refusal) = nbd::check(&header, session) {
            c.start += nbd::REQUEST_BYTES;
            c.skip = u64::from(header.payload_bytes());
            if c.skip > 0 && !refusal.fatal {
                c.refused = Some((header.cookie, refusal.error, refusal.why));
                return true;
            }
            self.refuse(connection, header.cookie, refusal.error, refusal.why);
            if refusal.fatal {
                self.close(connection);
                return false;
            }
            return true;
        }
        let in_flight = self.connections[connection as usize].bytes;
        let who = PausedGuest::Connection(connection);
        let waits = self.waits_for_budget(who, in_flight, data_bytes(&header));
        self.connections[connection as usize].paused = waits;
        if waits {
            return false;
        }
        let c = &mut self.connections[connection as usize];
        let payload = header.payload_bytes() as usize;
        let after = have - nbd::REQUEST_BYTES;
        if payload == 0 {
            c.start += nbd::REQUEST_BYTES;
            self.account(connection, data_bytes(&header));
            self.request(connection, header, None);
            return true;
        }
        if after < payload && payload <= INLINE_PAYLOAD {
            return false; // the rest of the payload arrives with the next bytes
        }
        self.account(connection, payload as u64);
        let c = &mut self.connections[connection as usize];
        let data = c.start + nbd::REQUEST_BYTES;
        let buf = self.pool.take(HEAD + payload);
        let here = after.min(payload);
        input.with(data..data + here, |from| {
            buf.fill(HEAD..HEAD + here, |to| to.copy_from_slice(from));
        });
        c.start = data + here;
        if here == payload {
            self.request(connection, header, Some(buf));
            return true;
        }
        c.payload = Some(Payload {
            header,
            buf,
            filled: here,
            since_ns: self.now_ns,
        });
        false
    }

    /// Handles a complete request.
    fn request(&mut self, connection: u32, header: RequestHeader, buf: Option<Arc<Buf>>) {
        let c = &mut self.connections[connection as usize];
        let Stage::Serving { volume, session } = &c.stage else {
            return;
        };
        let volume = *volume;
        let structured = session.structured;
        let context = session.allocation_context;
        let has = |flag| header.flags.contains(flag);
        let fua = has(RequestFlags::FUA);
        let op = match header.command {
            Command::Read => GuestOp::Read,
            Command::Write => GuestOp::Write,
            Command::Flush => GuestOp::Flush,
            Command::Trim => GuestOp::Trim,
            Command::WriteZeroes if has(RequestFlags::NO_HOLE) => GuestOp::ZeroAllocated,
            Command::WriteZeroes => GuestOp::Zero,
            Command::Disconnect => return self.close(connection),
            Command::Cache => {
                c.requests += 1;
                return self.acknowledge(connection, header.cookie, structured);
            }
            Command::BlockStatus => {
                let one = has(RequestFlags::REQ_ONE);
                let dirty = session.dirty.clone();
                return self.block_status(connection, volume, &header, context, &dirty, one);
            }
        };
        c.requests += 1;
        let buf = match op {
            GuestOp::Read => Some(self.pool.take(HEAD + header.length as usize)),
            _ => buf,
        };
        let to = AnswerTo::Socket {
            connection,
            cookie: header.cookie,
        };
        let guest = Guest::new(to, buf, self.now_ns);
        let request = GuestRequest {
            op,
            offset: header.offset,
            length: u64::from(header.length),
            fua,
        };
        self.arrive(volume, guest, request);
    }

    fn block_status(
        &mut self,
        connection: u32,
        volume: u32,
        header: &RequestHeader,
        context: Option<u32>,
        dirty_all: &[(u32, Arc<nbd::DirtyRanges>)],
        one: bool,
    ) {
        let most = if one { 1 } else { STATUS_MAX };
        let (offset, length) = (header.offset, u64::from(header.length));
        let live = self.volumes[volume as usize].as_ref();
        let runs = live.map_or(vec![], |v| v.engine.status(offset, length, most));
        let extents: Vec<nbd::StatusExtent> = runs
            .into_iter()
            .map(|(bytes, presence)| nbd::StatusExtent {
                length: bytes as u32,
                flags: match presence {
                    crate::engine::Presence::Data => 0,
                    crate::engine::Presence::Hole => {
                        nbd::StatusExtent::HOLE | nbd::StatusExtent::ZERO
                    }
                },
            })
            .collect();
        let mut out = vec![];
        if let Some(context) = context {
            let done = dirty_all.is_empty();
            nbd::status_chunk(header.cookie, context, &extents, done, &mut out);
        }
        for (at, (context, dirty)) in (1..).zip(dirty_all) {
            let runs = dirty.runs(offset, length, most);
            let done = at == dirty_all.len();
            nbd::status_chunk(header.cookie, *context, &runs, done, &mut out);
        }
        self.connections[connection as usize].requests += 1;
        self.push_segment(connection, Segment::Answer(out, 0));
    }

    /// Stops reading from a connection. It is removed when its requests have ended.
    pub(super) fn close(&mut self, connection: u32) {
        if self.is_anothers(connection) {
            return;
        }
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        if !matches!(c.stage, Stage::Closing) {
            c.stage = Stage::Closing;
            // Answers that are ready are still sent; a receive in flight ends.
            self.send_now(connection);
            self.say_goodbye(connection);
            if let Some(c) = self.connections.get_mut(connection as usize) {
                let how = rustix::net::Shutdown::Both;
                let _ = rustix::net::shutdown(&*c.socket, how);
            }
        }
        self.remove_if_over(connection);
    }

    pub(super) fn remove_if_over(&mut self, connection: u32) {
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        if !matches!(c.stage, Stage::Closing) {
            return;
        }
        while let Some(segment) = c.out.pop_front() {
            c.requests -= u32::from(segment.ends_answer());
            if let Segment::Data { buf, bytes, .. } = segment {
                c.bytes -= bytes;
                self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.pool.give(buf);
            }
        }
        if c.requests == 0 && !c.receiving && !c.waiting_writable {
            // The remaining bytes belong to a payload that did not arrive completely.
            self.shared.bytes.fetch_sub(c.bytes, Ordering::Relaxed);
            self.connections.remove(connection as usize);
            self.lent.left();
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn close_idle_handshakes(&mut self) {
        let now_ns = self.now_ns;
        let late = |c: &Connection| {
            let over = c.since_ns + HANDSHAKE_NS < now_ns || c.option_ns + OPTION_NS < now_ns;
            matches!(c.stage, Stage::Handshake(_)) && over
        };
        let late: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, c)| late(c))
            .map(|(i, _)| i as u32)
            .collect();
        for connection in late {
            self.close(connection);
        }
    }
}

impl Worker {
    /// Continues with input that the limits have delayed.
    pub(super) fn decode_again(&mut self, connection: u32) {
        let waits = |c: &Connection| !c.receiving && c.payload.is_none() && c.end > c.start;
        if self.connections.get(connection as usize).is_some_and(waits) {
            self.decode(connection);
        }
    }
}

/// Returns the bytes of memory that a request takes until it is answered.
fn data_bytes(header: &RequestHeader) -> u64 {
    match header.command {
        Command::Read | Command::Write => u64::from(header.length),
        _ => 0,
    }
}
