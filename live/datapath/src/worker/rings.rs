//! Guests with rings: their requests are in queues in their own memory, which this process has mapped.
//!
//! ```text
//!            kick (an event counter)                                      interrupt (another one)
//!  guest ───────▶ awake ─▶ pop ─▶ copied ─▶ stages, engine, I/O ─▶ answer ─▶ publish ───────▶ guest
//!                   ▲                                                           │
//!        asleep ◀───┴── empty: armed, directly before the worker sleeps ────────┘
//! ```
//!
//! A guest is a vhost-user connection with its own thread (`crate::vhost`). That thread adds the rings, and their requests
//! take the same path as those from sockets. The worker polls each awake ring in every turn, so a busy guest sends no
//! kicks. The guest may change its buffers at any moment. Data of a write is therefore copied out of its memory before it
//! is used, and data of a read is copied in when it is complete.
//!
//! A protocol violation of a guest ends only its own connection. After the end of a connection nothing is written to its
//! guest. Its requests in flight are completed here, but stay incomplete in the inflight buffer, if there is one. The rings
//! of the next connection therefore wait until no request of the last one is in flight: a late write could otherwise
//! overwrite a newer one.

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
use crate::vhost::CountGuard;

/// Time at which a write of a guest is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before it is durable: the guest flushes.
    ByFlush,
    /// When it is durable: the guest never flushes.
    ByWrite,
}

/// Guest that has connected.
#[derive(Debug)]
pub struct RingGuestSetup {
    pub volume: VolumeId,
    /// Socket of the connection, for closing it.
    pub socket: UnixStream,
    pub counted: Vec<CountGuard>,
    /// Receiver of the number of the guest; none if the volume is not served.
    pub answer: Sender<Option<u32>>,
}

/// Ring to serve.
#[derive(Debug)]
pub struct RingSetup {
    /// Number among the rings of the guest.
    pub index: u16,
    /// Memory of the guest.
    pub memory: Arc<Memory>,
    pub queue: QueueSetup,
    /// Inflight buffer and its file, if the guest keeps one.
    pub inflight: Option<(InflightBuffer, FileId)>,
    /// Event counter that the guest writes to after it has added requests; non-blocking.
    pub kick: Arc<OwnedFd>,
    /// Event counter for interrupts after answers; non-blocking.
    pub call: Option<Arc<OwnedFd>>,
}

/// Device and inode number of a file.
pub type FileId = (u64, u64);

/// Order of the thread of a guest's connection.
#[derive(Debug)]
pub enum RingOrder {
    /// Adds a guest.
    Connect(RingGuestSetup),
    /// Starts to serve a ring.
    Start(u32, Box<RingSetup>),
    /// Sets the event counter for a ring's interrupts. The answer confirms it.
    Call(u32, u16, Option<Arc<OwnedFd>>, Sender<()>),
    /// Stops a ring: completes its requests in flight, and answers the position of its next request; none if the connection
    /// has ended.
    Stop(u32, u16, Sender<Option<u16>>),
    /// Sets the memory of the guest. The answer confirms that it is in use.
    Memory(u32, Arc<Memory>, Sender<()>),
    /// Sets the time at which writes are answered. The answer follows when the setting holds for earlier writes, too.
    Durability(u32, Durability, Sender<Result<(), Fault>>),
    /// The connection has ended.
    Gone(u32),
}

struct RingGuest {
    volume: u32,
    socket: UnixStream,
    /// Entries in the numbers of connections; they last until all resources of the guest are released.
    counted: Vec<CountGuard>,
    rings: Vec<u32>,
    /// All memory that the guest has had, as long as requests in it may be in flight.
    memories: Vec<Arc<Memory>>,
    inflight: Option<FileId>,
    durability: Durability,
    /// Number of unanswered requests; then their bytes.
    requests: u32,
    bytes: u64,
    /// Number of unanswered changes that are answered before they are durable.
    cached: u32,
    /// Callers that wait until there are no such changes.
    switching: Vec<Sender<Result<(), Fault>>>,
    /// True if nothing is written to its memory any more.
    over: bool,
    /// True if its thread has ended.
    gone: bool,
}

struct LiveRing {
    guest: u32,
    setup: RingSetup,
    /// None while a request of an earlier connection is in flight.
    queue: Option<Queue>,
    /// Requests in flight.
    pending: Slab<Chain>,
    /// Request that waits for the memory budget.
    held: Option<(Chain, blk::Request)>,
    /// True if the limits allow no more requests before others are answered.
    blocked: bool,
    /// True if the worker polls the ring in each turn.
    awake: bool,
    /// True while a wait for its kicks is in flight.
    watched: bool,
    /// Caller that waits until no request is in flight.
    stopping: Option<Sender<Option<u16>>>,
    over: bool,
}

/// All guests with rings of a worker.
#[derive(Default)]
pub(super) struct Rings {
    guests: Slab<RingGuest>,
    rings: Slab<LiveRing>,
    /// Rings to poll in the next turn.
    awake: Vec<u32>,
    /// Callers that wait for a flush or for zeroing.
    waiters: Slab<Sender<Result<(), Fault>>>,
}

impl Rings {
    /// Returns the volumes of all connected guests.
    pub(super) fn volumes(&self) -> impl Iterator<Item = u32> {
        let open = self.guests.iter().filter(|(_, g)| !g.over);
        open.map(|(_, g)| g.volume)
    }

    /// Returns true if a request of a ring or a call of its thread is in flight.
    pub(super) fn any_in_flight(&self) -> bool {
        let busy = |live: &LiveRing| live.held.is_some() || !live.pending.is_empty();
        !self.waiters.is_empty() || self.rings.iter().any(|(_, live)| busy(live))
    }

    /// Returns the number of connected guests.
    pub(super) fn connected(&self) -> usize {
        self.guests.iter().filter(|(_, g)| !g.over).count()
    }

    /// Closes all connections at the end of the worker. Returns the bytes of requests in flight.
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

    /// Returns true if an awake ring has a request.
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
