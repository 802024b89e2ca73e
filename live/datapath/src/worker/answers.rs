//! Answers to guests: delayed by stages, framed, and sent together.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nbd::ErrorCode;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::clock;
use crate::engine::{Fault, GuestOp, GuestRequest};
use crate::io::{Buf, Op};
use crate::stages::Completion;
use crate::tls::{OUT_BYTES, TlsError};

use super::guests::{AnswerTo, Guest, HEAD, Stage};
use super::timers::TimerAction;
use super::{Token, Worker};

/// Largest number of segments in one send; the kernel accepts 1024.
const SEGMENTS_MAX: usize = 256;

/// Part of a connection's output.
#[derive(Debug)]
pub enum Segment {
    /// Bytes of the handshake, and the number of bytes sent.
    Bytes(Vec<u8>, usize),
    /// Complete answer, and the number of bytes sent.
    Answer(Vec<u8>, usize),
    /// Short answer: its bytes, their number, and the number of bytes sent.
    Short([u8; 20], u8, u8),
    /// Complete answer in a buffer: header and data.
    Data {
        /// The buffer.
        buf: Arc<Buf>,
        /// Position of the first byte that is not sent.
        from: usize,
        /// End of the answer in the buffer.
        to: usize,
        /// Bytes of guest data; they return to the connection's limit when the answer is sent.
        bytes: u64,
    },
}

impl Segment {
    /// Returns true if the request of this segment counts as answered when the segment is sent.
    pub(super) fn ends_answer(&self) -> bool {
        !matches!(self, Segment::Bytes(..))
    }

    /// Appends the bytes of the segment that are not sent.
    pub(super) fn append_to_send(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&view(self));
    }

    fn left(&self) -> usize {
        match self {
            Segment::Bytes(bytes, sent) | Segment::Answer(bytes, sent) => bytes.len() - sent,
            Segment::Short(_, len, sent) => usize::from(len - sent),
            Segment::Data { from, to, .. } => to - from,
        }
    }

    fn sent(&mut self, n: usize) {
        match self {
            Segment::Bytes(_, sent) | Segment::Answer(_, sent) => *sent += n,
            Segment::Short(_, _, sent) => *sent += n as u8,
            Segment::Data { from, .. } => *from += n,
        }
    }
}

fn error_code(fault: Fault) -> ErrorCode {
    match fault {
        Fault::Device(failure) if failure.is_no_space() => ErrorCode::NoSpc,
        Fault::Device(_) | Fault::Io | Fault::Lost => ErrorCode::Io,
        Fault::NoSpace => ErrorCode::NoSpc,
        Fault::Range => ErrorCode::Inval,
        Fault::Shutdown => ErrorCode::Shutdown,
    }
}

impl Worker {
    /// Answers a request that the engine has completed, after the delay imposed by the stages.
    pub(super) fn ready(
        &mut self,
        volume: u32,
        guest: Guest,
        request: GuestRequest,
        result: Result<(), Fault>,
    ) {
        let live = self.volumes[volume as usize]
            .as_mut()
            .expect("it has requests");
        let hold_ns = live.stages.hold_ns(&request);
        if hold_ns == 0 {
            return self.answer(volume, guest, request, result, 0);
        }
        let ready_ns = clock::now_ns();
        self.timers.at(
            ready_ns + hold_ns,
            TimerAction::Answer {
                volume,
                guest,
                request,
                result,
                ready_ns,
            },
        );
    }

    /// Sends answers whose delay has ended, and runs all other timers that are due.
    pub(super) fn fire_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        self.now_ns = clock::now_ns();
        while let Some(due) = self.timers.pop_due(self.now_ns) {
            match due {
                TimerAction::Answer {
                    volume,
                    guest,
                    request,
                    result,
                    ready_ns,
                } => {
                    let live = self.volumes[volume as usize]
                        .as_mut()
                        .expect("it has requests");
                    let held_ns = self.now_ns.saturating_sub(ready_ns);
                    live.stages.held(&request, held_ns);
                    self.answer(volume, guest, request, result, held_ns);
                }
                TimerAction::Device(io) => self.device_over(io),
                TimerAction::Submit {
                    volume,
                    guest,
                    request,
                } => self.submit(volume, guest, request),
                TimerAction::Warm(time) => self.warm(time),
                TimerAction::Wake(volume) => {
                    if let Some(live) = self.volumes[volume as usize].as_mut() {
                        live.engine.wake(self.now_ns);
                        self.carry_out(volume);
                    }
                }
            }
        }
    }

    /// Answers a request whose answer was delayed for `held_ns`.
    fn answer(
        &mut self,
        volume: u32,
        guest: Guest,
        request: GuestRequest,
        result: Result<(), Fault>,
        held_ns: u64,
    ) {
        let live = self.volumes[volume as usize]
            .as_mut()
            .expect("it has requests");
        let how = Completion {
            at_ns: self.now_ns,
            arrival_ns: guest.arrival_ns,
            held_ns,
            ok: result.is_ok(),
            from_memory: guest.from_memory,
        };
        live.stages.answered(&request, &how);
        match guest.to {
            AnswerTo::Socket { connection, cookie } => {
                self.answer_socket(connection, cookie, guest.buf, request, result);
            }
            AnswerTo::Ring { ring, chain } => {
                self.answer_ring(ring, chain, guest.buf, request, result);
            }
            AnswerTo::Waiter(waiter) => self.answer_waiter(waiter, result),
            AnswerTo::SecondLevel { .. } => unreachable!("its answer goes past the stages"),
        }
    }

    #[inline]
    fn answer_socket(
        &mut self,
        connection: u32,
        cookie: u64,
        buf: Option<Arc<Buf>>,
        request: GuestRequest,
        result: Result<(), Fault>,
    ) {
        let c = &mut self.connections[connection as usize];
        let moves_data = matches!(request.op, GuestOp::Read | GuestOp::Write);
        let bytes = if moves_data { request.length } else { 0 };
        let structured = match &c.stage {
            Stage::Serving { session, .. } => session.structured,
            _ => {
                // The connection is closing: the answer is dropped.
                c.requests -= 1;
                self.settle_account(connection, bytes);
                if let Some(buf) = buf {
                    self.pool.give(buf);
                }
                return self.remove_if_over(connection);
            }
        };
        match (request.op, result, buf) {
            (GuestOp::Read, Ok(()), Some(buf)) => {
                let head = if structured {
                    let head = nbd::data_chunk(cookie, request.offset, request.length as u32, true);
                    put_before(&buf, &head)
                } else {
                    put_before(&buf, &nbd::simple_reply(cookie, None))
                };
                let segment = Segment::Data {
                    buf,
                    from: head,
                    to: HEAD + request.length as usize,
                    bytes,
                };
                self.push_segment(connection, segment);
            }
            (_, result, buf) => {
                self.settle_account(connection, bytes);
                if let Some(buf) = buf {
                    self.pool.give(buf);
                }
                match result {
                    Ok(()) => self.acknowledge(connection, cookie, structured),
                    Err(fault) => {
                        self.refuse_counted(
                            connection,
                            cookie,
                            error_code(fault),
                            &fault.to_string(),
                        );
                    }
                }
            }
        }
    }

    /// Sends a success without data.
    pub(super) fn acknowledge(&mut self, connection: u32, cookie: u64, structured: bool) {
        let mut bytes = [0; 20];
        let len = if structured {
            bytes.copy_from_slice(&nbd::none_chunk(cookie));
            20
        } else {
            bytes[..16].copy_from_slice(&nbd::simple_reply(cookie, None));
            16
        };
        self.push_segment(connection, Segment::Short(bytes, len, 0));
    }

    /// Refuses a request that is not yet in the connection's number of requests.
    pub(super) fn refuse(&mut self, connection: u32, cookie: u64, error: ErrorCode, why: &str) {
        self.connections[connection as usize].requests += 1;
        self.refuse_counted(connection, cookie, error, why);
    }

    fn refuse_counted(&mut self, connection: u32, cookie: u64, error: ErrorCode, why: &str) {
        let structured = match &self.connections[connection as usize].stage {
            Stage::Serving { session, .. } => session.structured,
            _ => false,
        };
        let mut out = vec![];
        if structured {
            nbd::error_chunk(cookie, error, why, &mut out);
        } else {
            out.extend(nbd::simple_reply(cookie, Some(error)));
        }
        self.push_segment(connection, Segment::Answer(out, 0));
    }

    pub(super) fn push_segment(&mut self, connection: u32, segment: Segment) {
        if segment.left() == 0 {
            return; // a send of 0 bytes would look like a socket that takes nothing, and would be repeated for ever
        }
        let c = &mut self.connections[connection as usize];
        c.out.push_back(segment);
        self.send_later(connection);
    }

    /// Adds a connection to the list of those that send at the end of this turn.
    pub(super) fn send_later(&mut self, connection: u32) {
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        if !c.listed_unsent {
            c.listed_unsent = true;
            self.unsent.push(connection);
        }
    }

    /// Serves the rings, then sends the output of each listed connection with one send.
    pub(super) fn send_answers(&mut self) {
        self.serve_rings();
        let mut unsent = std::mem::take(&mut self.unsent);
        for connection in unsent.drain(..) {
            if let Some(c) = self.connections.get_mut(connection as usize) {
                c.listed_unsent = false;
                self.send_now(connection);
                self.decode_again(connection);
                self.receive(connection);
                self.remove_if_over(connection);
            }
        }
        // Sending may have closed connections, which may have listed others.
        unsent.append(&mut self.unsent);
        self.unsent = unsent;
    }

    pub(super) fn send_now(&mut self, connection: u32) {
        if self.connections[connection as usize].tls.is_some() {
            return self.send_secured(connection);
        }
        if self.is_anothers(connection) {
            return; // the other process sends this output, or this worker does if the take-over fails
        }
        loop {
            let c = &mut self.connections[connection as usize];
            if c.out.is_empty() || c.waiting_writable {
                return;
            }
            let guards: Vec<_> = c.out.iter().take(SEGMENTS_MAX).map(view).collect();
            let slices: Vec<IoSlice<'_>> = guards.iter().map(|g| IoSlice::new(g)).collect();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut none = SendAncillaryBuffer::default();
            let sent = sendmsg(&*c.socket, &slices, &mut none, flags);
            drop(slices);
            drop(guards);
            match sent {
                Ok(0) => return self.cut(connection), // a repeated send would never end
                Ok(n) => self.account_sent(connection, n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.wait_writable(connection),
                Err(_) => return self.cut(connection),
            }
        }
    }

    fn wait_writable(&mut self, connection: u32) {
        let c = &mut self.connections[connection as usize];
        c.waiting_writable = true;
        c.unsent_since_ns = self.now_ns;
        let socket = c.socket.clone();
        let token = Token::Writable(connection).pack();
        self.io.start(token, Op::Writable { socket });
    }

    /// Shuts a connection down in both directions.
    fn cut(&mut self, connection: u32) {
        let c = &mut self.connections[connection as usize];
        c.stage = Stage::Closing;
        let _ = rustix::net::shutdown(&*c.socket, rustix::net::Shutdown::Both);
    }

    /// Encrypts and sends answers. At most the amount of one send is encrypted in advance: the rest stays in the queue as
    /// plain segments, and is counted there.
    fn send_secured(&mut self, connection: u32) {
        loop {
            let c = &mut self.connections[connection as usize];
            let tls = c.tls.as_mut().expect("it is asked before");
            if c.waiting_writable {
                return;
            }
            if !tls.unsent().is_empty() {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match send(&*c.socket, tls.unsent(), flags) {
                    Ok(0) => return self.cut(connection),
                    Ok(n) => tls.sent(n),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return self.wait_writable(connection),
                    Err(_) => return self.cut(connection),
                }
            } else if c.out.is_empty() {
                return;
            } else if !self.seal(connection).is_ok_and(|sealed| sealed > 0) {
                return self.cut(connection);
            }
        }
    }

    /// Encrypts the next bytes of the queue, [`OUT_BYTES`] at most, and returns their number.
    fn seal(&mut self, connection: u32) -> Result<usize, TlsError> {
        let mut left = OUT_BYTES;
        while left > 0 {
            let c = &mut self.connections[connection as usize];
            let tls = c.tls.as_mut().expect("it is asked before");
            let sealed = tls.seal_next(c.out.iter().map(view), left, &mut self.gathered)?;
            if sealed == 0 {
                break;
            }
            left -= sealed;
            self.account_sent(connection, sealed);
        }
        Ok(OUT_BYTES - left)
    }

    /// Sends the closing message of the TLS session, if the socket takes it now.
    pub(super) fn say_goodbye(&mut self, connection: u32) {
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        if let Some(tls) = &mut c.tls
            && tls.unsent().is_empty()
            && !c.waiting_writable
        {
            tls.close();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&*c.socket, tls.unsent(), flags);
        }
    }

    fn account_sent(&mut self, connection: u32, mut n: usize) {
        let c = &mut self.connections[connection as usize];
        while n > 0 {
            let first = c.out.front_mut().expect("only what is there was sent");
            let now = n.min(first.left());
            first.sent(now);
            n -= now;
            if first.left() > 0 {
                return;
            }
            let segment = c.out.pop_front().expect("looked at above");
            c.requests -= u32::from(segment.ends_answer());
            if let Segment::Data { buf, bytes, .. } = segment {
                c.bytes -= bytes;
                self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.pool.give(buf);
            }
        }
    }

    pub(super) fn writable(&mut self, connection: u32) {
        let Some(c) = self.connections.get_mut(connection as usize) else {
            return;
        };
        c.waiting_writable = false;
        self.send_now(connection);
        self.decode_again(connection);
        self.receive(connection);
        self.remove_if_over(connection);
    }
}

/// Borrowed bytes of a segment.
pub(super) enum View<'a> {
    Plain(&'a [u8]),
    Shared(crate::io::Reading<'a>),
}

impl std::ops::Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            View::Plain(bytes) => bytes,
            View::Shared(reading) => reading,
        }
    }
}

fn view(segment: &Segment) -> View<'_> {
    match segment {
        Segment::Bytes(bytes, sent) | Segment::Answer(bytes, sent) => View::Plain(&bytes[*sent..]),
        Segment::Short(bytes, len, sent) => {
            View::Plain(&bytes[usize::from(*sent)..usize::from(*len)])
        }
        Segment::Data { buf, from, to, .. } => View::Shared(buf.reading(*from..*to)),
    }
}

/// Writes a header directly before the data of a buffer, and returns the position of its first byte.
fn put_before(buf: &Buf, head: &[u8]) -> usize {
    let at = HEAD - head.len();
    buf.fill(at..HEAD, |to| to.copy_from_slice(head));
    at
}
