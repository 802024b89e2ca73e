//! Guests whose requests are in rings in their own memory, which this process has mapped.
//!
//! ```text
//!            kick (an event counter)                                      interrupt (another one)
//!  guest ───────▶ awake ─▶ pop ─▶ copied ─▶ stages, engine, I/O ─▶ answer ─▶ publish ───────▶ guest
//!                   ▲                                                           │
//!        asleep ◀───┴── nothing to take: armed, right before the worker sleeps ◀┘
//! ```
//!
//! A guest is a connection that speaks vhost-user, on a thread of its own (`crate::vhost`); that thread says here which rings there are, and
//! from there on requests take the same way as those from sockets. A ring that is awake is looked at in each turn, so a guest that
//! is busy sends no kicks. What is written is copied out of the guest's memory before anybody sees it, what was read is copied in when
//! it is whole: the guest may change its buffers at any moment.
//!
//! What a guest does wrong ends its connection, and nothing else. A connection that is over writes nothing to its guest any more: what
//! was in flight is done to its end here, and in the ledger, where there is one, it is still to be done. So the rings of the next
//! connection wait until nothing of the last one is in flight; a late write could land on a newer one otherwise.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use rustix::event::{PollFd, PollFlags};
use slab::Slab;
use tracing::{info, warn};
use units::VolumeId;
use vring::blk::{self, Operation, Status};
use vring::{Chain, Interrupt, Ledger, Memory, Queue, QueueSetup, RingError};

use crate::engine::{Fault, GuestOp, GuestRequest};
use crate::io::{Buf, Op, Outcome, close_elsewhere};
use crate::registry::REQUEST_BYTES_MAX;

use super::guests::{AnswerTo, BYTES_MAX, Guest, HEAD, REQUESTS_MAX};
use super::{Token, Worker};

/// Requests that ask for nothing, and are answered in one look.
const NOTHING_MAX: u32 = 16;

/// Bytes that are copied out of one ring's requests in one turn, but for one request. Others wait behind it.
const TURN_BYTES: u64 = 1 << 20;

/// When a guest is told that something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// At once: it flushes what has to be durable.
    ByFlush,
    /// When it is durable: it never flushes.
    ByWrite,
}

/// A guest that has connected.
#[derive(Debug)]
pub struct RingGuestSetup {
    /// The volume.
    pub volume: VolumeId,
    /// Its socket, to end the conversation.
    pub socket: UnixStream,
    /// Told its number, or nothing if the volume is not served.
    pub answer: Sender<Option<u32>>,
}

/// A ring that is to be served.
#[derive(Debug)]
pub struct RingSetup {
    /// Its number among the guest's.
    pub index: u16,
    /// The guest's memory.
    pub memory: Arc<Memory>,
    /// Where it is there.
    pub queue: QueueSetup,
    /// What is in flight, and which file that is, if the guest keeps it.
    pub ledger: Option<(Ledger, FileId)>,
    /// Written to when there is something to take; does not block.
    pub kick: Arc<OwnedFd>,
    /// To be written to when there are answers; does not block.
    pub call: Option<Arc<OwnedFd>>,
}

/// Device and number of a file.
pub type FileId = (u64, u64);

/// What the thread of a guest's connection wants.
#[derive(Debug)]
pub enum RingOrder {
    /// It has connected.
    Connect(RingGuestSetup),
    /// Serve a ring.
    Start(u32, Box<RingSetup>),
    /// Send a ring's interrupts there.
    Call(u32, u16, Option<Arc<OwnedFd>>),
    /// Finish what is in flight of a ring, and say where the next request of it is; nothing if the connection is over.
    Stop(u32, u16, Sender<Option<u16>>),
    /// The guest's memory has changed. Told when it is used.
    Memory(u32, Arc<Memory>, Sender<()>),
    /// Writes are answered like this from now on. Told when that is so, for what was answered before as well.
    Durability(u32, Durability, Sender<Result<(), Fault>>),
    /// The connection has ended.
    Gone(u32),
}

/// A guest with rings.
struct RingGuest {
    volume: u32,
    socket: UnixStream,
    rings: Vec<u32>,
    /// All that it ever was in, for as long as something may be in flight there.
    memories: Vec<Arc<Memory>>,
    ledger: Option<FileId>,
    durability: Durability,
    /// Requests that are not answered, and bytes of those.
    requests: u32,
    bytes: u64,
    /// Of these, changes that are not made durable before they are answered.
    cached: u32,
    /// Those who wait until there are none.
    switching: Vec<Sender<Result<(), Fault>>>,
    /// Its memory is not written to any more.
    over: bool,
    /// Its thread has ended.
    gone: bool,
}

/// A ring.
struct LiveRing {
    guest: u32,
    setup: RingSetup,
    /// None while something of an earlier connection is in flight.
    queue: Option<Queue>,
    /// Requests that are being carried out.
    pending: Slab<Chain>,
    /// One that waits for memory.
    held: Option<(Chain, blk::Request)>,
    /// It cannot take more before others are answered.
    blocked: bool,
    /// It is looked at in each turn.
    awake: bool,
    /// Its kicks are told.
    watched: bool,
    /// Whoever waits until nothing is in flight.
    stopping: Option<Sender<Option<u16>>>,
    over: bool,
}

/// All guests with rings of a worker.
#[derive(Default)]
pub(super) struct Rings {
    guests: Slab<RingGuest>,
    rings: Slab<LiveRing>,
    /// Those to look at in the next turn.
    awake: Vec<u32>,
    /// Threads that wait for a flush.
    waiters: Slab<Sender<Result<(), Fault>>>,
    /// One of them was left with more to take.
    pub(super) more: bool,
}

impl Rings {
    /// Volumes of all guests that are connected.
    pub(super) fn volumes(&self) -> impl Iterator<Item = u32> {
        let open = self.guests.iter().filter(|(_, g)| !g.over);
        open.map(|(_, g)| g.volume)
    }

    /// The worker ends: so do all conversations. Bytes of requests in flight.
    pub(super) fn let_go(&mut self) -> u64 {
        for (_, guest) in &self.guests {
            let _ = guest.socket.shutdown(Shutdown::Both);
        }
        self.guests.iter().map(|(_, g)| g.bytes).sum()
    }

    /// Whether a ring that is looked at has something to take.
    pub(super) fn any_waiting(&self) -> bool {
        let waits = |live: &LiveRing| {
            let queue = live.queue.as_ref().filter(|_| !live.over && !live.blocked);
            queue.is_some_and(Queue::is_waiting)
        };
        let awake = self.awake.iter();
        awake
            .filter_map(|ring| self.rings.get(*ring as usize))
            .any(waits)
    }

    fn wake(&mut self, ring: u32) {
        let live = &mut self.rings[ring as usize];
        if !live.awake {
            live.awake = true;
            self.awake.push(ring);
        }
    }

    fn ring_of(&mut self, guest: u32, index: u16) -> Option<u32> {
        let mut rings = self.guests[guest as usize].rings.iter();
        let is = |ring: &&u32| {
            let live = &self.rings[**ring as usize];
            live.setup.index == index && !live.over
        };
        rings.find(is).copied()
    }
}

impl Worker {
    pub(super) fn ring_order(&mut self, order: RingOrder) {
        match order {
            RingOrder::Connect(setup) => self.welcome_ring_guest(setup),
            RingOrder::Start(guest, setup) => self.start_ring(guest, *setup),
            RingOrder::Call(guest, index, call) => {
                if let Some(ring) = self.rings.ring_of(guest, index) {
                    self.rings.rings[ring as usize].setup.call = call;
                    // What was published before may not have been told to anybody.
                    self.interrupt(ring);
                }
            }
            RingOrder::Stop(guest, index, answer) => self.stop_ring(guest, index, answer),
            RingOrder::Memory(guest, memory, answer) => {
                self.set_memory(guest, &memory);
                let _ = answer.send(()); // whoever waits may have gone
            }
            RingOrder::Durability(guest, durability, answer) => {
                self.set_durability(guest, durability, answer);
            }
            RingOrder::Gone(guest) => {
                self.end_ring_guest(guest);
                self.rings.guests[guest as usize].gone = true;
                self.remove_ring_guest_if_over(guest);
            }
        }
    }

    /// Guests with rings that are connected to a volume.
    pub(super) fn ring_guests_of(&self, volume: u32) -> Vec<u32> {
        let of = |g: &RingGuest| g.volume == volume && !g.over;
        let all = self.rings.guests.iter().filter(|(_, g)| of(g));
        all.map(|(i, _)| i as u32).collect()
    }

    fn welcome_ring_guest(&mut self, setup: RingGuestSetup) {
        let live = self.volumes.get(setup.volume.index());
        let served = live.is_some_and(|v| v.as_ref().is_some_and(|v| v.detached.is_none()));
        let guest = served.then(|| {
            self.rings.guests.insert(RingGuest {
                cached: 0,
                switching: vec![],
                volume: setup.volume.0,
                socket: setup.socket,
                rings: vec![],
                memories: vec![],
                ledger: None,
                durability: Durability::ByWrite,
                requests: 0,
                bytes: 0,
                over: false,
                gone: false,
            }) as u32
        });
        if let (Err(_), Some(guest)) = (setup.answer.send(guest), guest) {
            self.ring_order(RingOrder::Gone(guest));
        }
    }

    fn start_ring(&mut self, guest: u32, setup: RingSetup) {
        if self.rings.guests[guest as usize].over {
            return;
        }
        if let Some((_, file)) = &setup.ledger {
            // Who has a ledger is one, so the connection that had it before has been left, whether that was heard of or not.
            let had =
                |(i, g): &(usize, &RingGuest)| *i != guest as usize && g.ledger == Some(*file);
            let before: Vec<u32> = self
                .rings
                .guests
                .iter()
                .filter(had)
                .map(|(i, _)| i as u32)
                .collect();
            self.rings.guests[guest as usize].ledger = Some(*file);
            for other in before {
                self.end_ring_guest(other);
            }
        }
        let live = &mut self.rings.guests[guest as usize];
        if live.over {
            close_elsewhere(setup.memory);
            return;
        }
        if !live.memories.iter().any(|m| Arc::ptr_eq(m, &setup.memory)) {
            live.memories.push(setup.memory.clone());
        }
        let ring = self.rings.rings.insert(LiveRing {
            guest,
            setup,
            queue: None,
            pending: Slab::new(),
            held: None,
            blocked: false,
            awake: false,
            watched: false,
            stopping: None,
            over: false,
        }) as u32;
        live.rings.push(ring);
        self.begin_ring(ring);
    }

    /// Begins to serve a ring, if nothing of a connection that is over is in flight any more.
    fn begin_ring(&mut self, ring: u32) {
        // Its guest may have been refused meanwhile, for another ring.
        let Some(live) = self.rings.rings.get(ring as usize).filter(|r| !r.over) else {
            return;
        };
        let guest = live.guest;
        let volume = self.rings.guests[guest as usize].volume;
        let before = |g: &RingGuest| g.volume == volume && g.over && g.requests > 0;
        if live.queue.is_some() || self.rings.guests.iter().any(|(_, g)| before(g)) {
            return;
        }
        let RingSetup {
            index,
            memory,
            queue,
            ledger,
            kick,
            ..
        } = &live.setup;
        let account = ledger.as_ref().map(|(l, _)| l.account(*index, queue.size));
        let made = account
            .transpose()
            .and_then(|account| Queue::new(memory.clone(), *queue, account));
        match made {
            Err(why) => self.refuse_ring_guest(guest, &why),
            Ok(made) => {
                let event = kick.clone();
                if made.resubmitted() > 0 {
                    let name = self.name_of(volume);
                    let requests = made.resubmitted();
                    info!(
                        volume = name,
                        ring = index,
                        requests,
                        "requests in flight are done again"
                    );
                }
                let live = &mut self.rings.rings[ring as usize];
                live.queue = Some(made);
                live.watched = true;
                if live.stopping.is_some() {
                    live.queue.as_mut().expect("just made").end();
                }
                let token = Token::Kick(ring).pack();
                self.io.start(token, Op::Kicks { event });
                // What is there needs no kick; of what a server before has published its guest may not know yet.
                self.rings.wake(ring);
                self.interrupt(ring);
            }
        }
    }

    fn stop_ring(&mut self, guest: u32, index: u16, answer: Sender<Option<u16>>) {
        let Some(ring) = self.rings.ring_of(guest, index) else {
            let _ = answer.send(None); // whoever waits may have gone
            return;
        };
        let live = &mut self.rings.rings[ring as usize];
        live.stopping = Some(answer);
        if let Some(queue) = &mut live.queue {
            queue.end();
            self.rings.wake(ring);
        }
    }

    fn set_durability(
        &mut self,
        guest: u32,
        durability: Durability,
        answer: Sender<Result<(), Fault>>,
    ) {
        let live = &mut self.rings.guests[guest as usize];
        let before = std::mem::replace(&mut live.durability, durability);
        if before == durability || durability == Durability::ByFlush || live.over {
            let _ = answer.send(Ok(())); // whoever waits may have gone
            return;
        }
        live.switching.push(answer);
        self.flush_for_switch(guest);
    }

    /// A guest that switches its cache off never flushes what it was told is written: once all of that is answered, it is flushed.
    fn flush_for_switch(&mut self, guest: u32) {
        let live = &mut self.rings.guests[guest as usize];
        if live.cached > 0 {
            return;
        }
        let volume = live.volume;
        for answer in std::mem::take(&mut live.switching) {
            self.flush_for(volume, answer);
        }
    }

    fn flush_for(&mut self, volume: u32, answer: Sender<Result<(), Fault>>) {
        let waiter = self.rings.waiters.insert(answer) as u32;
        let guest = Guest {
            to: AnswerTo::Waiter(waiter),
            buf: None,
            arrival_ns: self.now_ns,
        };
        let flush = GuestRequest {
            op: GuestOp::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        self.arrive(volume, guest, flush);
    }

    /// Tells the thread of a connection how something ended that it waits for.
    pub(super) fn answer_waiter(&mut self, waiter: u32, result: Result<(), Fault>) {
        let answer = self.rings.waiters.remove(waiter as usize);
        let _ = answer.send(result); // whoever waits may have gone
    }

    fn set_memory(&mut self, guest: u32, memory: &Arc<Memory>) {
        let rings = self.rings.guests[guest as usize].rings.clone();
        for ring in rings {
            let Some(live) = self.rings.rings.get_mut(ring as usize) else {
                continue;
            };
            live.setup.memory = memory.clone();
            let changed = live.queue.as_mut().filter(|_| !live.over);
            if let Some(Err(why)) = changed.map(|q| q.set_memory(memory.clone())) {
                self.refuse_ring_guest(guest, &why);
                break; // its rings may be gone
            }
        }
        let live = &mut self.rings.guests[guest as usize];
        live.memories.push(memory.clone());
        // Taking large memory out of this process takes its time.
        let unused = live.memories.extract_if(.., |m| Arc::strong_count(m) == 1);
        let unused: Vec<_> = unused.collect();
        if !unused.is_empty() {
            close_elsewhere(unused);
        }
    }

    /// A ring's guest has written to its event counter, or nobody is told of that any more.
    pub(super) fn kicked(&mut self, ring: u32, outcome: Outcome) {
        let live = &mut self.rings.rings[ring as usize];
        match outcome {
            Ok(_) if live.over => {}
            Ok(_) => {
                if let Some(queue) = &mut live.queue {
                    queue.disarm();
                }
                self.rings.wake(ring);
            }
            Err(why) => {
                live.watched = false;
                let guest = live.guest;
                match live.over {
                    true => self.remove_ring_if_over(ring),
                    // All of its rings end with it, this one too.
                    false => self.refuse_ring_guest(guest, &why),
                }
            }
        }
    }

    /// Publishes what was answered, and takes what has come.
    pub(super) fn serve_rings(&mut self) {
        self.rings.more = false;
        if self.rings.awake.is_empty() {
            return;
        }
        let mut awake = std::mem::take(&mut self.rings.awake);
        for ring in &awake {
            self.publish(*ring);
            self.take_requests(*ring);
            // What needed no I/O.
            self.publish(*ring);
        }
        awake.append(&mut self.rings.awake);
        self.rings.awake = awake;
    }

    /// Asks for kicks, as the worker is about to sleep; whether something has come for which there are none.
    pub(super) fn arm_rings(&mut self) -> bool {
        let mut awake = std::mem::take(&mut self.rings.awake);
        awake.retain(|ring| self.stays_awake(*ring));
        // One that began just now was neither looked at nor armed.
        self.rings.more |= !self.rings.awake.is_empty();
        awake.append(&mut self.rings.awake);
        self.rings.awake = awake;
        self.rings.more
    }

    fn publish(&mut self, ring: u32) {
        let Some(live) = self.rings.rings.get_mut(ring as usize) else {
            return;
        };
        let Some(queue) = live.queue.as_mut().filter(|_| !live.over) else {
            return;
        };
        let wanted = queue.publish() == Interrupt::Wanted;
        let ends = (queue.in_flight() == 0).then(|| queue.next_available());
        let ends = ends.and_then(|next| Some((next, live.stopping.take()?)));
        if wanted {
            self.interrupt(ring);
        }
        if let Some((next, answer)) = ends {
            let _ = answer.send(Some(next)); // whoever waits may have gone
            self.end_ring(ring);
        }
    }

    /// Has a guest look at its answers.
    fn interrupt(&self, ring: u32) {
        let live = self.rings.rings.get(ring as usize);
        let Some(call) = live.and_then(|r| r.setup.call.as_ref()) else {
            return;
        };
        // A counter that is full, which nobody has looked at, or that was made one that blocks, must not keep the worker.
        let mut ready = [PollFd::new(&**call, PollFlags::OUT)];
        let now = rustix::event::Timespec::default();
        if rustix::event::poll(&mut ready, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(&**call, &1u64.to_ne_bytes());
        }
    }

    /// Takes requests from a ring, within what its guest may have in flight.
    fn take_requests(&mut self, ring: u32) {
        let (mut copied, mut taken) = (0, 0);
        loop {
            let Some(live) = self.rings.rings.get_mut(ring as usize) else {
                return;
            };
            let Some(queue) = live.queue.as_mut().filter(|_| !live.over) else {
                return;
            };
            let (guest, held) = (live.guest, live.held.take());
            let RingGuest {
                requests, bytes, ..
            } = self.rings.guests[guest as usize];
            live.blocked = false;
            let enough = copied >= TURN_BYTES || taken >= REQUESTS_MAX;
            if enough || requests >= REQUESTS_MAX || bytes >= BYTES_MAX {
                live.held = held;
                live.blocked = true;
                self.rings.more |= enough;
                return;
            }
            taken += 1;
            let next = match held {
                Some(held) => Ok(Some(held)),
                None => next_request(queue),
            };
            let (chain, request) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(why) => return self.refuse_ring_guest(guest, &why),
            };
            let moved = moved_bytes(&request);
            if self.over_budget(bytes, moved) {
                let live = &mut self.rings.rings[ring as usize];
                live.held = Some((chain, request));
                live.blocked = true;
                return;
            }
            copied += moved;
            self.carry_out_chain(ring, chain, request);
        }
    }

    fn carry_out_chain(&mut self, ring: u32, chain: Chain, request: blk::Request) {
        let op = match request.operation {
            Operation::Read => GuestOp::Read,
            Operation::Write => GuestOp::Write,
            Operation::Flush => GuestOp::Flush,
            Operation::Discard => GuestOp::Trim,
            Operation::Zero => GuestOp::Zero,
            Operation::ZeroAllocated => GuestOp::ZeroAllocated,
            Operation::Name => return self.tell_name(ring, chain, request.length),
        };
        let moved = moved_bytes(&request);
        let end = HEAD + moved as usize;
        let buf = (moved > 0).then(|| self.pool.take(end));
        if let (GuestOp::Write, Some(buf)) = (op, &buf) {
            buf.fill(HEAD..end, |to| chain.read(blk::DATA_AT, to));
        }
        let live = &mut self.rings.rings[ring as usize];
        let chain = live.pending.insert(chain) as u32;
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.requests += 1;
        guest.bytes += moved;
        self.shared.bytes.fetch_add(moved, Ordering::Relaxed);
        let changes = !matches!(op, GuestOp::Read | GuestOp::Flush);
        let request = GuestRequest {
            op,
            offset: request.offset,
            length: request.length,
            fua: changes && guest.durability == Durability::ByWrite,
        };
        guest.cached += u32::from(changes && !request.fua);
        let volume = guest.volume;
        let to = AnswerTo::Ring { ring, chain };
        let guest = Guest {
            to,
            buf,
            arrival_ns: self.now_ns,
        };
        self.arrive(volume, guest, request);
    }

    fn tell_name(&mut self, ring: u32, chain: Chain, length: u64) {
        let live = &mut self.rings.rings[ring as usize];
        let volume = self.rings.guests[live.guest as usize].volume;
        let volume = self.volumes[volume as usize].as_ref();
        let name = blk::name_field(&volume.expect("it has guests").name);
        chain.write(0, &name[..length as usize]);
        let written = blk::finish(&chain, Status::Done, length);
        let queue = live.queue.as_mut().expect("it was just taken from it");
        queue.push(chain, written);
    }

    /// Answers a request.
    pub(super) fn answer_ring(
        &mut self,
        ring: u32,
        chain: u32,
        buf: Option<Arc<Buf>>,
        request: GuestRequest,
        result: Result<(), Fault>,
    ) {
        let live = &mut self.rings.rings[ring as usize];
        let chain = live.pending.remove(chain as usize);
        let moved = match request.op {
            GuestOp::Read | GuestOp::Write => request.length,
            _ => 0,
        };
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.requests -= 1;
        guest.bytes -= moved;
        self.shared.bytes.fetch_sub(moved, Ordering::Relaxed);
        let changes = !matches!(request.op, GuestOp::Read | GuestOp::Flush);
        guest.cached -= u32::from(changes && !request.fua);
        let switches = guest.cached == 0 && !guest.switching.is_empty();
        let owner = live.guest;
        if live.over {
            let guest = live.guest;
            buf.into_iter().for_each(|buf| self.pool.give(buf));
            self.begin_rings_after(guest);
            return self.remove_ring_if_over(ring);
        }
        let data = match (request.op, &buf, result) {
            (GuestOp::Read, Some(buf), Ok(())) => {
                let range = HEAD..HEAD + request.length as usize;
                buf.with(range, |bytes| chain.write(0, bytes));
                request.length
            }
            _ => 0,
        };
        let status = match result {
            Ok(()) => Status::Done,
            Err(_) => Status::Failed,
        };
        let written = blk::finish(&chain, status, data);
        let queue = live.queue.as_mut().expect("it was taken from it");
        queue.push(chain, written);
        buf.into_iter().for_each(|buf| self.pool.give(buf));
        self.rings.wake(ring);
        if switches {
            self.flush_for_switch(owner);
        }
    }

    /// Whether a ring is to be looked at in the next turn too. If not, its kicks are asked for.
    fn stays_awake(&mut self, ring: u32) -> bool {
        // Something of another ring, or of a socket, may have had it answered since.
        self.publish(ring);
        let Some(live) = self.rings.rings.get_mut(ring as usize) else {
            return false;
        };
        let stays = match live.queue.as_mut().filter(|_| !live.over) {
            None => Ok(false),
            Some(_) if live.blocked => Ok(true),
            Some(queue) => queue.arm().inspect(|more| self.rings.more |= more),
        };
        live.awake = *stays.as_ref().unwrap_or(&false);
        let (awake, guest) = (live.awake, live.guest);
        if let Err(why) = stays {
            self.refuse_ring_guest(guest, &why);
        }
        awake
    }

    /// Ends the connection of a guest that breaks the rules, or whose rings cannot be served.
    fn refuse_ring_guest(&mut self, guest: u32, why: &dyn std::fmt::Display) {
        let live = &self.rings.guests[guest as usize];
        if !live.over {
            let volume = self.name_of(live.volume);
            warn!(volume, %why, "the connection of a guest is closed");
        }
        self.end_ring_guest(guest);
    }

    /// Its memory is not written to any more, and nothing more is taken from it.
    pub(super) fn end_ring_guest(&mut self, guest: u32) {
        let live = &mut self.rings.guests[guest as usize];
        if std::mem::replace(&mut live.over, true) {
            return;
        }
        let _ = live.socket.shutdown(Shutdown::Both);
        for answer in live.switching.drain(..) {
            let _ = answer.send(Err(Fault::Shutdown)); // whoever waits may have gone
        }
        for ring in live.rings.clone() {
            self.end_ring(ring);
        }
        self.begin_rings_after(guest);
    }

    fn end_ring(&mut self, ring: u32) {
        let live = &mut self.rings.rings[ring as usize];
        live.over = true;
        live.held = None;
        live.queue = None;
        if let Some(answer) = live.stopping.take() {
            let _ = answer.send(None); // whoever waits may have gone
        }
        if live.watched {
            self.io.cancel(Token::Kick(ring).pack());
        }
        self.remove_ring_if_over(ring);
    }

    fn remove_ring_if_over(&mut self, ring: u32) {
        let live = &self.rings.rings[ring as usize];
        if !live.over || live.watched || !live.pending.is_empty() {
            return;
        }
        let live = self.rings.rings.remove(ring as usize);
        self.rings.awake.retain(|awake| *awake != ring);
        let guest = &mut self.rings.guests[live.guest as usize];
        guest.rings.retain(|other| *other != ring);
        self.remove_ring_guest_if_over(live.guest);
    }

    /// Rings of the same volume that waited for a connection that is over.
    fn begin_rings_after(&mut self, guest: u32) {
        let live = &self.rings.guests[guest as usize];
        if !live.over || live.requests > 0 {
            return;
        }
        let guests = &self.rings.guests;
        let waits = |r: &LiveRing| {
            r.queue.is_none() && !r.over && guests[r.guest as usize].volume == live.volume
        };
        let waiting = self.rings.rings.iter().filter(|(_, r)| waits(r));
        let waiting: Vec<u32> = waiting.map(|(i, _)| i as u32).collect();
        for ring in waiting {
            self.begin_ring(ring);
        }
        self.remove_ring_guest_if_over(guest);
    }

    fn remove_ring_guest_if_over(&mut self, guest: u32) {
        let Some(live) = self.rings.guests.get(guest as usize) else {
            return;
        };
        if live.over && live.gone && live.requests == 0 && live.rings.is_empty() {
            let live = self.rings.guests.remove(guest as usize);
            if !live.memories.is_empty() {
                close_elsewhere(live.memories);
            }
        }
    }

    fn name_of(&self, volume: u32) -> Option<&str> {
        let live = self.volumes.get(volume as usize)?.as_ref();
        live.map(|v| v.name.as_str())
    }
}

/// The next request that has something to do; those that do not are answered.
fn next_request(queue: &mut Queue) -> Result<Option<(Chain, blk::Request)>, RingError> {
    // Others have their turn, too: what is left is there at the next look.
    for _ in 0..NOTHING_MAX {
        let Some(chain) = queue.pop()? else {
            return Ok(None);
        };
        match blk::parse(&chain, REQUEST_BYTES_MAX.into())? {
            Ok(request) => return Ok(Some((chain, request))),
            Err(status) => {
                let written = blk::finish(&chain, status, 0);
                queue.push(chain, written);
            }
        }
    }
    Ok(None)
}

/// Bytes that a request takes in memory until it is answered.
fn moved_bytes(request: &blk::Request) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write => request.length,
        _ => 0,
    }
}
