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
//! was in flight is done to its end here, and in the inflight buffer, where there is one, it is still to be done. So the rings of the next
//! connection wait until nothing of the last one is in flight; a late write could land on a newer one otherwise.

mod orders;
mod requests;

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use slab::Slab;
use units::VolumeId;
use vring::{Chain, InflightBuffer, Memory, Queue, QueueSetup, blk};

use crate::engine::Fault;
use crate::vhost::Counted;

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
    pub volume: VolumeId,
    /// Its socket, to end the conversation.
    pub socket: UnixStream,
    pub counted: Vec<Counted>,
    /// ControlAnswer its number, or nothing if the volume is not served.
    pub answer: Sender<Option<u32>>,
}

/// A ring that is to be served.
#[derive(Debug)]
pub struct RingSetup {
    /// Its number among the guest's.
    pub index: u16,
    /// The guest's memory.
    pub memory: Arc<Memory>,
    pub queue: QueueSetup,
    /// What is in flight, and which file that is, if the guest keeps it.
    pub inflight: Option<(InflightBuffer, FileId)>,
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
    /// Set the event counter for a ring's interrupts. The answer confirms it.
    Call(u32, u16, Option<Arc<OwnedFd>>, Sender<()>),
    /// Finish what is in flight of a ring, and say where the next request of it is; nothing if the connection is over.
    Stop(u32, u16, Sender<Option<u16>>),
    /// The guest's memory has changed. ControlAnswer when it is used.
    Memory(u32, Arc<Memory>, Sender<()>),
    /// Writes are answered like this from now on. ControlAnswer when that is so, for what was answered before as well.
    Durability(u32, Durability, Sender<Result<(), Fault>>),
    /// The connection has ended.
    Gone(u32),
}

struct RingGuest {
    volume: u32,
    socket: UnixStream,
    /// It counts until all that it handed over is let go of.
    counted: Vec<Counted>,
    rings: Vec<u32>,
    /// All that it ever was in, for as long as something may be in flight there.
    memories: Vec<Arc<Memory>>,
    inflight: Option<FileId>,
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
}

impl Rings {
    /// Volumes of all guests that are connected.
    pub(super) fn volumes(&self) -> impl Iterator<Item = u32> {
        let open = self.guests.iter().filter(|(_, g)| !g.over);
        open.map(|(_, g)| g.volume)
    }

    /// Whether a request of a ring, or a thread of one, waits for something.
    pub(super) fn any_in_flight(&self) -> bool {
        let busy = |live: &LiveRing| live.held.is_some() || !live.pending.is_empty();
        !self.waiters.is_empty() || self.rings.iter().any(|(_, live)| busy(live))
    }

    /// How many guests are connected.
    pub(super) fn connected(&self) -> usize {
        self.guests.iter().filter(|(_, g)| !g.over).count()
    }

    /// The worker ends: so do all conversations. Bytes of requests in flight.
    pub(super) fn let_go(&mut self) -> u64 {
        for (_, guest) in &self.guests {
            let _ = guest.socket.shutdown(Shutdown::Both);
        }
        self.guests.iter().map(|(_, g)| g.bytes).sum()
    }

    /// Returns true if a request of this ring waits for the memory budget.
    pub(super) fn holds_back(&self, ring: u32) -> bool {
        let live = self.rings.get(ring as usize);
        live.is_some_and(|live| live.held.is_some())
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

    fn ring_of(&self, guest: u32, index: u16) -> Option<u32> {
        let mut rings = self.guests[guest as usize].rings.iter();
        let is = |ring: &&u32| {
            let live = &self.rings[**ring as usize];
            live.setup.index == index && !live.over
        };
        rings.find(is).copied()
    }
}
