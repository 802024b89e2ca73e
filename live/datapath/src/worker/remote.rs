//! Devices that are exports of another NBD server. Each worker has one connection per device, and connects again when it
//! breaks.
//!
//! Without a connection, every I/O on the device fails at once: the guest sees an error, and the device is usable again
//! when the other server is. The source of an import is different. Its connection is made for the first I/O, and I/Os wait
//! for the connection. Only the worker of its volume connects, because the server of the source may accept a single client.
//!
//! Reads and writes are split at the largest request of the server, and reads are widened to its smallest. The parts of an
//! I/O run one after another.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nbd::{
    Command, ErrorCode, REQUEST_BYTES, ReplyHeader, ReplyReader, ReplyStep, RequestFlags,
    RequestHeader, Session, encode_request,
};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use slab::Slab;
use units::{Bytes, DeviceId};

use crate::client::{self, ClientConnection, ClientError};
use crate::clock;
use crate::device::{Device, Medium};
use crate::engine::{Failure, Fault, IoKind};
use crate::io::{Buf, Op, Outcome};
use crate::keeper::{Keeper, KeeperMessage};
use crate::tls::{Channel, OUT_BYTES, TlsError};

use super::answers::View;
use super::messages::Message;
use super::second::SECOND_DEVICE;
use super::timers::TimerAction;
use super::{Token, Worker};

/// Size of the input buffer of a connection.
const INPUT_BYTES: usize = 256 << 10;

/// Time for which the other server may still carry out a write after its connection broke, in nanoseconds. NBD has no
/// fence: a server that delays a write for longer can overwrite newer data with it.
const LINGER_NS: u64 = 60_000_000_000;

/// Remote device.
pub(super) struct RemoteDevice {
    device: Arc<Device>,
    link: Option<Link>,
    /// True while a thread connects.
    connecting: bool,
    /// Number of receives and waits of a removed link that have not completed.
    stale: u32,
    /// True if the device is lost or was opened again: this entry is not connected any more.
    gone: bool,
    /// True while the keeper checks a source whose connection has ended, before the source is opened again.
    asked_about: bool,
    /// I/Os on a source that wait for its connection.
    waiting: Vec<u32>,
    /// True if the last attempt failed: the next one follows at the next tick.
    refused: bool,
    /// True after the first I/O, which connects a source.
    used: bool,
}

impl RemoteDevice {
    fn is_idle_source(&self) -> bool {
        self.device.is_source() && !self.used
    }
}

struct Link {
    socket: Arc<OwnedFd>,
    /// TLS session; none without encryption.
    tls: Option<Box<Channel>>,
    session: Box<Session>,
    reader: ReplyReader,
    input: Arc<Buf>,
    start: usize,
    end: usize,
    /// I/Os in flight, by cookie.
    ios: Slab<PendingRequest>,
    out: VecDeque<Piece>,
    waiting_writable: bool,
    receiving: bool,
    /// Data of a read that is arriving: cookie, position in its buffer, bytes that are missing.
    data: Option<(usize, usize, usize)>,
}

impl Link {
    fn make_room(&mut self) {
        if self.start > 0 {
            let (start, end) = (self.start, self.end);
            self.input
                .fill(0..end, |bytes| bytes.copy_within(start..end, 0));
            (self.start, self.end) = (0, end - start);
        }
    }

    fn account_sent(&mut self, mut n: usize) {
        while n > 0 {
            let left = match self.out.front_mut().expect("was sent") {
                Piece::Head(bytes, sent) => {
                    let now = n.min(bytes.len() - *sent);
                    *sent += now;
                    n -= now;
                    bytes.len() - *sent
                }
                Piece::Data(_, from, to) => {
                    let now = n.min(*to - *from);
                    *from += now;
                    n -= now;
                    *to - *from
                }
            };
            if left > 0 {
                return;
            }
            self.out.pop_front();
        }
    }

    /// Encrypts the next bytes, [`OUT_BYTES`] at most, and returns their number.
    fn seal(&mut self, gathered: &mut Vec<u8>) -> Result<usize, TlsError> {
        let mut left = OUT_BYTES;
        while left > 0 {
            let tls = self.tls.as_mut().expect("it is asked before");
            let sealed = tls.seal_next(self.out.iter().map(view), left, gathered)?;
            if sealed == 0 {
                break;
            }
            left -= sealed;
            self.account_sent(sealed);
        }
        Ok(OUT_BYTES - left)
    }
}

/// Borrows the bytes of a piece that are not sent.
fn view(piece: &Piece) -> View<'_> {
    match piece {
        Piece::Head(bytes, sent) => View::Plain(&bytes[*sent..]),
        Piece::Data(buf, from, to) => View::Shared(buf.reading(*from..*to)),
    }
}

/// Request on the connection: a part of an I/O, or a whole one.
#[derive(Debug)]
struct PendingRequest {
    io: u32,
    /// First byte in the export.
    offset: u64,
    length: u64,
    /// Buffer for the data of a read, and the position of its first byte.
    into: Option<(Arc<Buf>, usize)>,
    /// Range of a widened read's own buffer that the I/O needs.
    wanted: Option<Range<usize>>,
    failed: Option<ErrorCode>,
    /// True if the current piece of data is the last one of the answer.
    last: bool,
    /// Number of bytes of a read that have arrived. The rest of its buffer holds data of an earlier user.
    covered: u64,
}

/// Data to send.
enum Piece {
    Head([u8; REQUEST_BYTES], usize),
    Data(Arc<Buf>, usize, usize),
}

impl Worker {
    /// Adds a device; a remote one is connected.
    pub(super) fn add_remote(&mut self, device: &Arc<Device>) {
        if matches!(device.medium, Medium::Nbd(..)) {
            self.remotes.push(RemoteDevice {
                device: device.clone(),
                link: None,
                connecting: false,
                stale: 0,
                gone: false,
                asked_about: false,
                waiting: vec![],
                refused: false,
                used: false,
            });
            self.reconnect_remotes();
        }
    }

    pub(super) fn reconnect_remotes(&mut self) {
        let myself = self.peers.get(self.index);
        let Some(myself) = myself else { return };
        let mut kept = vec![];
        for (index, remote) in self.remotes.iter_mut().enumerate() {
            let ended = remote.gone || remote.asked_about || remote.is_idle_source();
            if ended || remote.link.is_some() || remote.connecting || remote.stale > 0 {
                continue;
            }
            remote.refused = false;
            let device = remote.device.clone();
            if let Some(client) = device.take_connection() {
                remote.connecting = true;
                kept.push((index, client));
                continue;
            }
            let inbox = myself.clone();
            let connect = move || {
                let Medium::Nbd(uri) = &device.medium else {
                    unreachable!("only remote devices are listed");
                };
                // The source of an import and lent memory have no superblock.
                let head = if device.start > 0 {
                    array::SUPERBLOCKS_BYTES
                } else {
                    0
                };
                let connected = client::connect_to(uri, head as u32, |found| device.is_same(found));
                inbox.send(Message::Reconnected(index, connected.map(Box::new)));
            };
            // If no thread can be started, the next tick tries again.
            let thread = std::thread::Builder::new().name("terrace-connect".into());
            remote.connecting = thread.spawn(connect).is_ok();
        }
        for (index, client) in kept {
            self.reconnected(index, client.into_connected().map(Box::new));
        }
    }

    /// Returns the remote devices that are disconnected.
    pub(super) fn remotes_away(&self) -> Vec<u16> {
        let of_array = |r: &&RemoteDevice| r.device.id != SECOND_DEVICE;
        let all = self.remotes.iter().filter(of_array);
        let away = all.filter(|r| r.link.is_none() && !r.gone && !r.is_idle_source());
        away.map(|r| r.device.id.0).collect()
    }

    /// Returns the remote devices that are connected.
    pub(super) fn remotes_linked(&self) -> Vec<DeviceId> {
        let linked = self.remotes.iter().filter(|r| r.link.is_some());
        let of_array = linked.filter(|r| r.device.id != SECOND_DEVICE);
        of_array.map(|r| r.device.id).collect()
    }

    /// Returns true if a remote device is connected.
    pub(super) fn is_linked(&self, device: DeviceId) -> bool {
        let linked = |r: &RemoteDevice| r.device.id == device && r.link.is_some();
        self.remotes.iter().any(linked)
    }

    /// Removes a device that is lost or was opened again. I/Os in flight on its connection fail.
    pub(super) fn drop_remote(&mut self, device: DeviceId) {
        for index in 0..self.remotes.len() {
            let remote = &mut self.remotes[index];
            if remote.device.id == device && !remote.gone {
                remote.gone = true;
                self.remote_broken(index);
            }
        }
    }

    pub(super) fn reconnected(
        &mut self,
        index: usize,
        connected: Result<Box<ClientConnection>, ClientError>,
    ) {
        let remote = &mut self.remotes[index];
        remote.connecting = false;
        if remote.gone {
            return;
        }
        let Ok(connected) = connected else {
            // The next attempt follows at the next tick.
            remote.refused = true;
            return self.fail_waiting(index);
        };
        let size = Bytes(connected.session.export.size);
        if !remote.device.may_have(size) {
            self.ask_about_source(index);
            return self.fail_waiting(index);
        }
        let ClientConnection {
            socket,
            tls,
            session,
        } = *connected;
        remote.link = Some(Link {
            socket: Arc::new(socket),
            tls,
            reader: ReplyReader::new(&session),
            session,
            input: Buf::new(INPUT_BYTES),
            start: 0,
            end: 0,
            ios: Slab::new(),
            out: VecDeque::new(),
            waiting_writable: false,
            receiving: false,
            data: None,
        });
        self.remote_receive(index);
        for id in std::mem::take(&mut self.remotes[index].waiting) {
            self.start_remote(id);
        }
    }

    /// Fails the I/Os that wait for a connection.
    fn fail_waiting(&mut self, index: usize) {
        for id in std::mem::take(&mut self.remotes[index].waiting) {
            self.remote_failed(id, Errno::NOTCONN);
        }
    }

    /// Queues an I/O on a source until the connection exists. Returns false if no connection is to be expected.
    fn waits_for_connection(&mut self, index: usize, id: u32) -> bool {
        let remote = &mut self.remotes[index];
        let source = remote.device.is_source();
        if !source || remote.link.is_some() || remote.asked_about || remote.refused {
            return false;
        }
        remote.used = true;
        remote.waiting.push(id);
        self.reconnect_remotes();
        true
    }

    /// Asks the keeper to check a source whose connection has ended. Copied data and data that is still read must be of the
    /// same state of the source, so no connection is made before the check.
    fn ask_about_source(&mut self, index: usize) {
        let remote = &mut self.remotes[index];
        if remote.gone || !remote.device.is_source() {
            return;
        }
        remote.asked_about = true;
        let device = remote.device.clone();
        if let Some(keeper) = &self.shared.keeper {
            let broke = move |keeper: &mut Keeper| keeper.source_broke(&device);
            let _ = keeper.send(KeeperMessage::Do(Box::new(broke))); // the keeper may have ended
        }
    }

    /// Connects a source again after the keeper has found it unchanged.
    pub(super) fn source_is_the_same(&mut self, device: DeviceId) {
        let same = |r: &&mut RemoteDevice| r.device.id == device && !r.gone;
        for remote in self.remotes.iter_mut().filter(same) {
            remote.asked_about = false;
        }
        self.reconnect_remotes();
    }

    /// Sends an I/O to a remote device.
    pub(super) fn start_remote(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        let device = live.device;
        let of = |r: &RemoteDevice| r.device.id.0 == device && !r.gone;
        let index = self.remotes.iter().position(of);
        let Some(index) = index else {
            return self.remote_failed(id, Errno::NOTCONN);
        };
        if self.waits_for_connection(index, id) {
            return;
        }
        let live = &self.ios[id as usize];
        let remote = &mut self.remotes[index];
        let start = remote.device.start;
        let Some(link) = &mut remote.link else {
            return self.remote_failed(id, Errno::NOTCONN);
        };
        let can = |flag| link.session.export.flags.contains(flag);
        let mut flags = RequestFlags(0);
        let command = match live.kind {
            IoKind::Read => Command::Read,
            IoKind::Write { durable } => {
                if durable {
                    flags = RequestFlags::FUA;
                }
                Command::Write
            }
            IoKind::Zero if can(nbd::ExportFlags::SEND_WRITE_ZEROES) => Command::WriteZeroes,
            IoKind::ZeroAllocated if can(nbd::ExportFlags::SEND_WRITE_ZEROES) => {
                flags = RequestFlags::NO_HOLE;
                Command::WriteZeroes
            }
            IoKind::Discard if can(nbd::ExportFlags::SEND_TRIM) => Command::Trim,
            IoKind::Discard => return self.device_settled(id),
            IoKind::Flush if can(nbd::ExportFlags::SEND_FLUSH) => Command::Flush,
            IoKind::Flush => return self.device_settled(id),
            IoKind::Zero | IoKind::ZeroAllocated => {
                return self.remote_failed(id, Errno::OPNOTSUPP);
            }
        };
        if flags == RequestFlags::FUA && !can(nbd::ExportFlags::SEND_FUA) {
            return self.remote_failed(id, Errno::OPNOTSUPP);
        }
        let sizes = link.session.export.block;
        let (at, left) = (start + live.at + live.done, live.length - live.done);
        let from = live.from + live.done as usize;
        let (mut offset, mut length, mut wanted) = (at, left, None);
        match command {
            Command::Flush => (offset, length) = (0, 0),
            Command::Write => length = left.min(u64::from(sizes.longest())),
            Command::Read => {
                let read = sizes.request(at, left, link.session.export.size);
                (offset, length) = (read.offset, u64::from(read.length));
                let whole = read.wanted() == (0..read.length as usize);
                wanted = (!whole).then(|| read.wanted());
            }
            _ => {}
        }
        let into = match (command, &wanted) {
            (Command::Read, Some(_)) => Some((Buf::new(length as usize), 0)),
            (Command::Read, None) => Some((live.buf.clone().expect("reads have a buffer"), from)),
            _ => None,
        };
        let cookie = link.ios.insert(PendingRequest {
            io: id,
            offset,
            length,
            into,
            wanted,
            failed: None,
            last: false,
            covered: 0,
        }) as u64;
        let head = encode_request(&RequestHeader {
            flags,
            command,
            cookie,
            offset,
            length: length as u32,
        });
        link.out.push_back(Piece::Head(head, 0));
        if command == Command::Write {
            let buf = live.buf.clone().expect("writes have a buffer");
            let end = from + length as usize;
            link.out.push_back(Piece::Data(buf, from, end));
        }
        self.remote_send(index);
    }

    /// Fails an I/O because of the connection. The array reports the state of connections, so this is not counted as an
    /// error of the device.
    fn remote_failed(&mut self, id: u32, errno: Errno) {
        let live = &mut self.ios[id as usize];
        live.result = Err(Fault::of(DeviceId(live.device), live.kind, errno));
        self.device_settled(id);
    }

    /// Sends the requests that have waited for this server's lease.
    pub(super) fn resume_remotes(&mut self) {
        for index in 0..self.remotes.len() {
            self.remote_send(index);
        }
    }

    fn remote_send(&mut self, index: usize) {
        loop {
            let RemoteDevice { device, link, .. } = &mut self.remotes[index];
            let Some(link) = link else {
                return;
            };
            if link.waiting_writable {
                return;
            }
            if link.tls.is_some() {
                return self.remote_send_secured(index);
            }
            if link.out.is_empty() || !device.lease.holds() {
                return; // without a lease, requests wait for the next tick
            }
            let guards: Vec<_> = link.out.iter().take(64).map(view).collect();
            let slices: Vec<IoSlice<'_>> = guards.iter().map(|g| IoSlice::new(g)).collect();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut none = SendAncillaryBuffer::default();
            let sent = sendmsg(&*link.socket, &slices, &mut none, flags);
            drop(slices);
            drop(guards);
            match sent {
                Ok(0) => return self.remote_broken(index), // a repeated send would never end
                Ok(n) => link.account_sent(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.remote_wait_writable(index),
                Err(_) => return self.remote_broken(index),
            }
        }
    }

    fn remote_wait_writable(&mut self, index: usize) {
        let Some(link) = &mut self.remotes[index].link else {
            return;
        };
        link.waiting_writable = true;
        let socket = link.socket.clone();
        let token = Token::RemoteWritable(index as u32).pack();
        self.io.start(token, Op::Writable { socket });
    }

    /// Encrypts and sends requests. At most the amount of one send is encrypted in advance.
    fn remote_send_secured(&mut self, index: usize) {
        loop {
            let RemoteDevice { device, link, .. } = &mut self.remotes[index];
            let Some(link) = link else {
                return;
            };
            if !device.lease.holds() {
                return;
            }
            let tls = link.tls.as_mut().expect("it is asked before");
            if !tls.unsent().is_empty() {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match send(&*link.socket, tls.unsent(), flags) {
                    Ok(0) => return self.remote_broken(index),
                    Ok(n) => tls.sent(n),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return self.remote_wait_writable(index),
                    Err(_) => return self.remote_broken(index),
                }
            } else if link.out.is_empty() {
                return;
            } else if !link.seal(&mut self.gathered).is_ok_and(|sealed| sealed > 0) {
                return self.remote_broken(index);
            }
        }
    }

    pub(super) fn remote_writable(&mut self, index: u32) {
        let remote = &mut self.remotes[index as usize];
        match &mut remote.link {
            Some(link) if remote.stale == 0 => {
                link.waiting_writable = false;
                self.remote_send(index as usize);
            }
            _ => remote.stale = remote.stale.saturating_sub(1),
        }
    }

    fn remote_receive(&mut self, index: usize) {
        let Some(link) = &mut self.remotes[index].link else {
            return;
        };
        if link.receiving {
            return;
        }
        link.make_room();
        link.receiving = true;
        let op = Op::Receive {
            socket: link.socket.clone(),
            to: match &mut link.tls {
                Some(tls) => tls.room(),
                None => link.input.target(link.end..link.input.len()),
            },
        };
        self.io.start(Token::RemoteReceive(index as u32).pack(), op);
    }

    pub(super) fn remote_received(&mut self, index: u32, outcome: Outcome) {
        let index = index as usize;
        let remote = &mut self.remotes[index];
        let Some(link) = remote.link.as_mut().filter(|_| remote.stale == 0) else {
            remote.stale = remote.stale.saturating_sub(1);
            return;
        };
        link.receiving = false;
        match (outcome, &mut link.tls) {
            (Ok(0) | Err(_), _) => return self.remote_broken(index),
            (Ok(n), None) => link.end += n as usize,
            (Ok(n), Some(tls)) => {
                tls.received(n as usize);
                return self.remote_decrypted(index);
            }
        }
        while self.remote_step(index) {}
        self.remote_receive(index);
    }

    /// Handles the decrypted replies of the TLS session, then receives more.
    fn remote_decrypted(&mut self, index: usize) {
        loop {
            let Some(link) = &mut self.remotes[index].link else {
                return;
            };
            link.make_room();
            let tls = link.tls.as_mut().expect("it is asked before");
            let room = link.end..link.input.len();
            match link.input.fill(room, |to| tls.read(to)) {
                Ok(0) if tls.is_closed() => return self.remote_broken(index),
                Ok(0) => break,
                Ok(n) => link.end += n,
                Err(_) => return self.remote_broken(index),
            }
            while self.remote_step(index) {}
        }
        self.remote_send(index); // the TLS session may have a message of its own to send
        self.remote_receive(index);
    }

    /// Takes one reply, or a piece of data, from the input. Returns true if the input may have more.
    fn remote_step(&mut self, index: usize) -> bool {
        let remote = &mut self.remotes[index];
        let Some(link) = &mut remote.link else {
            return false;
        };
        if let Some((cookie, at, left)) = link.data {
            let now = left.min(link.end - link.start);
            if now == 0 {
                return false;
            }
            let (buf, _) = link.ios[cookie].into.as_ref().expect("reads have a buffer");
            link.input.with(link.start..link.start + now, |from| {
                buf.fill(at..at + now, |to| to.copy_from_slice(from));
            });
            link.start += now;
            link.data = (now < left).then_some((cookie, at + now, left - now));
            if link.data.is_none() && link.ios[cookie].last {
                self.remote_done(index, cookie);
            }
            return true;
        }
        let step = link
            .input
            .with(link.start..link.end, |bytes| link.reader.next(bytes));
        let (consumed, reply) = match step {
            Ok(ReplyStep::More { .. }) => return false,
            Ok(ReplyStep::Header { consumed, reply }) => (consumed, reply),
            Err(_) => {
                self.remote_broken(index);
                return false;
            }
        };
        link.start += consumed;
        let cookie = match &reply {
            ReplyHeader::Simple { cookie, .. }
            | ReplyHeader::Data { cookie, .. }
            | ReplyHeader::Hole { cookie, .. }
            | ReplyHeader::None { cookie }
            | ReplyHeader::Status { cookie, .. }
            | ReplyHeader::Error { cookie, .. } => *cookie as usize,
        };
        let Some(in_flight) = link.ios.get_mut(cookie) else {
            self.remote_broken(index); // the cookie belongs to no request
            return false;
        };
        let done = match reply {
            ReplyHeader::Simple { error, .. } => {
                in_flight.failed = error;
                match &in_flight.into {
                    Some((_, from)) if error.is_none() => {
                        in_flight.last = true;
                        in_flight.covered = in_flight.length;
                        link.data = Some((cookie, *from, in_flight.length as usize));
                        false
                    }
                    _ => true,
                }
            }
            ReplyHeader::Data {
                offset,
                length,
                done,
                ..
            }
            | ReplyHeader::Hole {
                offset,
                length,
                done,
                ..
            } => {
                let start = in_flight.offset;
                let end = offset.saturating_add(u64::from(length));
                let inside = offset >= start && end <= start + in_flight.length;
                let Some((buf, from)) = in_flight.into.as_ref().filter(|_| inside) else {
                    self.remote_broken(index);
                    return false;
                };
                let at = from + (offset - start) as usize;
                in_flight.covered += u64::from(length);
                in_flight.last = done;
                if matches!(reply, ReplyHeader::Hole { .. }) {
                    buf.fill(at..at + length as usize, |to| to.fill(0));
                    done
                } else {
                    link.data = Some((cookie, at, length as usize));
                    false
                }
            }
            ReplyHeader::None { .. } => true,
            ReplyHeader::Status { done, .. } => done,
            ReplyHeader::Error { error, done, .. } => {
                in_flight.failed = Some(error);
                done
            }
        };
        if done {
            self.remote_done(index, cookie);
        }
        true
    }

    fn remote_done(&mut self, index: usize, cookie: usize) {
        let link = self.remotes[index].link.as_mut().expect("it has answered");
        let PendingRequest {
            io,
            failed,
            covered,
            length,
            ..
        } = link.ios[cookie];
        let live = &self.ios[io as usize];
        if live.kind == IoKind::Read && failed.is_none() && covered != length {
            // The answer has a gap or an overlap.
            return self.remote_broken(index);
        }
        let part = link.ios.remove(cookie);
        if let Some(error) = failed {
            // Error numbers on the wire are those of the system.
            let errno = Errno::from_raw_os_error(error.number() as i32);
            self.ios[io as usize].result = Err(self.failed(io, errno));
            return self.device_settled(io);
        }
        let live = &mut self.ios[io as usize];
        live.done += match part.wanted {
            Some(wanted) => {
                let (own, _) = part.into.expect("it has a buffer of its own");
                let (to, bytes) = (
                    live.buf.as_ref().expect("reads have a buffer"),
                    wanted.len(),
                );
                let at = live.from + live.done as usize;
                to.fill(at..at + bytes, |to| {
                    own.with(wanted, |from| to.copy_from_slice(from))
                });
                bytes as u64
            }
            None => length,
        };
        match live.done < live.length && live.kind != IoKind::Flush {
            true => self.start_remote(io),
            false => self.device_settled(io),
        }
    }

    /// Handles the loss of a connection. Requests in flight fail; it is unknown if the server has carried them out.
    fn remote_broken(&mut self, index: usize) {
        let remote = &mut self.remotes[index];
        let Some(link) = remote.link.take() else {
            return self.fail_waiting(index);
        };
        remote.stale = u32::from(link.receiving) + u32::from(link.waiting_writable);
        let _ = rustix::net::shutdown(&*link.socket, rustix::net::Shutdown::Both);
        if remote.device.id == SECOND_DEVICE {
            // The content of the L2 cache is not trusted any more, so another connection would be useless.
            let dropped = std::mem::replace(&mut remote.gone, true);
            for (_, in_flight) in link.ios {
                self.remote_failed(in_flight.io, Errno::NOTCONN);
            }
            if !dropped {
                self.second_failed("the connection was lost".into());
            }
            return;
        }
        // Acknowledged writes that are not flushed may be lost: the server may have been replaced, or others may write to
        // its storage.
        let device = remote.device.id;
        self.forget_cached(Some(device));
        for live in self.volumes.iter_mut().flatten() {
            let gone = Failure::new(device, IoKind::Flush, Errno::NOTCONN);
            live.engine.flush_failed_elsewhere(gone);
        }
        for (_, in_flight) in link.ios {
            let live = &mut self.ios[in_flight.io as usize];
            if matches!(live.kind, IoKind::Read | IoKind::Flush) {
                self.remote_failed(in_flight.io, Errno::NOTCONN);
            } else {
                // The server may still carry this request out. Until that can no longer happen, nothing else is sent to the
                // same place: the guest gets its error after its timeout, and slots that are given up stay unused.
                live.result = Err(Fault::of(device, live.kind, Errno::NOTCONN));
                let over_ns = clock::now_ns() + LINGER_NS;
                self.timers.at(over_ns, TimerAction::Device(in_flight.io));
            }
        }
        self.ask_about_source(index);
    }
}
