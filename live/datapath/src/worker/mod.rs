//! One worker: a thread with its I/O ring, the volumes that it owns, and the connections of their guests.
//!
//! ```text
//!            ┌───────────────────────────────── one turn of the loop ─────────────────────────────────┐
//!  sockets ─▶│ receive ─▶ decode ─▶ stages ─▶ engine ─▶ I/O ─▶ device's stages ─▶ engine ─▶ stages ─▶ │─▶ sockets
//!  rings   ─▶│ kick ────▶ copy   ──────▶                                                    ────────▶ │─▶ rings, interrupts
//!            └────────────────────────────────────────────────────────────────────────────────────────┘
//!  other threads ─▶ inbox (messages)                                  timers: requests delayed by stages, moves
//! ```
//!
//! A volume belongs to one worker for its whole life, and so do all connections to it. Its state therefore needs no locks.
//! Requests that arrive together are decoded together, submitted together and answered with one send.

mod answers;
mod budget;
mod cache_parts;
mod cached;
mod devices;
mod direct;
mod guests;
mod handed;
mod holds;
mod inbox;
mod lent;
mod messages;
mod mirrors;
mod polling;
mod remote;
mod rest;
mod rings;
mod samples;
mod second;
mod slack;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod volumes;
mod warming;
mod zeroes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use slab::Slab;
use volume::{Slack, SlackBoard};

use crate::cached::{CacheMemory, CacheSettings};
use crate::clock;
use crate::device::Device;
use crate::direct::ChangeQueue;
use crate::engine::Effect;
use crate::io::{Buf, Io, Op, Outcome, Pool};
use crate::keeper::KeeperMessage;
use crate::pulse::Beats;
use crate::registry::Registry;
use budget::PausedGuest;
pub use cache_parts::{LentPart, ShareOf};
use cached::WorkerCache;
pub use cached::{CacheOfWorker, CacheSample};
use guests::{Connection, Guest};
pub use handed::{HandedConnection, HandedSession, HandedWork, PLACE_BYTES, Stillness, place_of};
pub use holds::{HoldRefusal, HoldState};
pub use inbox::{Envelope, Inbox, NoReply, PendingAnswer};
use lent::ReturnableMemory;
pub use messages::{
    Answer, DetachRefusal, DetachResult, LastMove, Message, MoveProgress, OfGuests, Question,
    VolumeSetup, VolumeStatus,
};
pub use mirrors::{LastMirror, MirrorProgress};
pub use polling::{PollTimer, Pollers};
use remote::RemoteDevice;
use rings::Rings;
pub use rings::{Durability, FileId, RingGuestSetup, RingOrder, RingSetup};
pub use samples::{LiveSample, WorkerSamples};
use second::WorkerSecond;
pub(crate) use second::{SECOND_DEVICE, SecondSetup};
pub use second::{SecondOf, SecondStatus};
pub use slack::SLACK_OLD_NS;
use timers::Timers;
use turns::Turns;
use volumes::{LiveIo, LiveVolume};
pub use warming::WarmUp;

/// Time before a timer at which the worker stops sleeping and spins, so that the timer fires on time. Bounds the processor
/// time that a delayed answer costs.
const SPIN_NS: u64 = 60_000;

/// Largest number of requests since the last wait for which the worker still polls before it sleeps.
const LONE_MAX: u32 = 4;

/// Largest number of messages in one turn. Protects answers, timers and the regular checks from threads that send messages
/// without a pause.
const MESSAGES_MAX: usize = 256;

/// Interval of the regular checks for overdue work. The server wakes all workers at this interval, so these checks need no
/// timer.
pub const TICK: Duration = Duration::from_millis(250);

/// Owner of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Receive(u32),
    Writable(u32),
    Device(u32),
    RemoteReceive(u32),
    RemoteWritable(u32),
    Inbox,
    Kick(u32),
}

impl Token {
    #[inline]
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Token::Receive(i) => (0, i),
            Token::Writable(i) => (1, i),
            Token::Device(i) => (2, i),
            Token::RemoteReceive(i) => (3, i),
            Token::RemoteWritable(i) => (4, i),
            Token::Inbox => (5, 0),
            Token::Kick(i) => (6, i),
        };
        kind << 32 | u64::from(index)
    }

    #[inline]
    fn unpack(token: u64) -> Self {
        let index = token as u32;
        match token >> 32 {
            0 => Token::Receive(index),
            1 => Token::Writable(index),
            2 => Token::Device(index),
            3 => Token::RemoteReceive(index),
            4 => Token::RemoteWritable(index),
            6 => Token::Kick(index),
            _ => Token::Inbox,
        }
    }
}

/// State that all workers share.
#[derive(Debug, Clone)]
pub struct SharedState {
    /// Exports by name.
    pub registry: Arc<Registry>,
    /// Connections of all workers.
    pub connections: Arc<AtomicUsize>,
    /// Bytes of all connections' unanswered requests.
    pub bytes: Arc<AtomicU64>,
    /// Channel to the keeper of the array; none without an array.
    pub keeper: Option<Sender<KeeperMessage>>,
    /// Use of latency objectives by guests of all workers.
    pub slack: Arc<SlackBoard>,
    /// Permits for polling before sleep.
    pub pollers: Arc<Pollers>,
    /// Heartbeats of the workers.
    pub beats: Arc<Beats>,
}

pub struct Worker {
    index: usize,
    io: Io,
    done: Vec<(u64, Outcome)>,
    pool: Pool,
    now_ns: u64,
    inbox: Receiver<Envelope>,
    /// True if the inbox may have messages.
    unread: bool,
    shared: SharedState,
    peers: Vec<Inbox>,
    connections: Slab<Connection>,
    /// Guests whose next request waits for the memory budget, oldest first, with the bytes of the request.
    paused: VecDeque<(PausedGuest, u64)>,
    /// Connections with data to send.
    unsent: Vec<u32>,
    /// Short answers that are encrypted together.
    gathered: Vec<u8>,
    rings: Rings,
    volumes: Vec<Option<LiveVolume>>,
    devices: Vec<Option<Arc<Device>>>,
    remotes: Vec<RemoteDevice>,
    ios: Slab<LiveIo>,
    timers: Timers,
    effects: Vec<Effect<Guest>>,
    /// I/Os that completed synchronously.
    at_once: Vec<(u32, Outcome)>,
    /// I/Os on devices that are lost.
    lost: Vec<u32>,
    /// Long copies, done slice by slice.
    large: VecDeque<u32>,
    /// I/Os that must take turns, by device.
    turns: Vec<Turns>,
    /// Changes by direct I/O: those in flight, and later ones that wait for them.
    order: ChangeQueue,
    /// Cached pages of this worker's volumes; none without a cache.
    cache: Option<WorkerCache>,
    /// L2 cache of this worker.
    second: WorkerSecond,
    /// Memory that was lent to another host and is to be returned to the system.
    lent: ReturnableMemory,
    /// Zeroes for files whose file system cannot zero a range; allocated at first use.
    zeroes: Option<Arc<Buf>>,
    /// Use of latency objectives by this worker's volumes, by device.
    slack: Vec<Slack>,
    stopping: bool,
    /// True while the worker starts no requests of guests; they stay in their sockets and rings.
    still: bool,
    /// True after another process has received the connections that it can continue. This worker neither sends on these
    /// connections nor closes them.
    handed_over: bool,
    next_tick_ns: u64,
    polling: PollTimer,
    /// Number of requests since the last wait.
    arrived: u32,
}

impl Worker {
    /// Creates a worker on the calling thread.
    pub fn new(
        index: usize,
        io: Io,
        inbox: Receiver<Envelope>,
        shared: SharedState,
        poll: Duration,
    ) -> Self {
        let polling = PollTimer::new(poll, shared.pollers.clone());
        Self {
            index,
            io,
            done: Vec::new(),
            pool: Pool::default(),
            now_ns: clock::now_ns(),
            inbox,
            unread: false,
            shared,
            peers: vec![],
            connections: Slab::new(),
            paused: VecDeque::new(),
            unsent: vec![],
            gathered: vec![],
            rings: Rings::default(),
            volumes: vec![],
            devices: vec![],
            remotes: vec![],
            ios: Slab::new(),
            timers: Timers::default(),
            effects: vec![],
            at_once: vec![],
            lost: vec![],
            large: VecDeque::new(),
            turns: vec![],
            order: ChangeQueue::default(),
            cache: None,
            second: WorkerSecond::default(),
            lent: ReturnableMemory::default(),
            zeroes: None,
            slack: vec![],
            stopping: false,
            still: false,
            handed_over: false,
            next_tick_ns: 0,
            polling,
            arrived: 0,
        }
    }

    /// Adds a cache for the worker's volumes.
    #[must_use]
    pub fn with_cache(mut self, memory: CacheMemory, settings: &CacheSettings) -> Self {
        let (slice, slices) = (settings.slice.0, settings.slices_per_hour);
        self.cache = Some(WorkerCache::new(memory, slice, slices, self.now_ns));
        self
    }

    /// Runs the loop until [`Message::Stop`].
    pub fn run(mut self) -> std::io::Result<()> {
        // Timers are as exact as the kernel can make them.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        self.io.start(Token::Inbox.pack(), Op::Wake);
        while !self.stopping {
            self.fire_timers();
            self.finish_at_once();
            self.end_failed_second();
            self.copy_a_slice();
            self.resume_paused();
            self.send_answers();
            let mut done = std::mem::take(&mut self.done);
            match self.sleep_for() {
                None => self.io.poll(&mut done)?,
                Some(time) => self.wait(time, &mut done)?,
            }
            self.now_ns = clock::now_ns();
            for (token, outcome) in done.drain(..) {
                self.completed(Token::unpack(token), outcome);
            }
            self.done = done;
            self.take_messages();
            self.tick();
        }
        Ok(())
    }

    /// Waits for a completion or the end of `time`. Polls for a while before it sleeps.
    fn wait(
        &mut self,
        time: Option<Duration>,
        done: &mut Vec<(u64, Outcome)>,
    ) -> std::io::Result<()> {
        let began_ns = clock::now_ns();
        let until_ns = time.map_or(u64::MAX, |t| began_ns.saturating_add(t.as_nanos() as u64));
        // Under load, polling is skipped: more requests arrive during the sleep, and a batch costs less per request.
        let lone = std::mem::take(&mut self.arrived) <= LONE_MAX;
        let (io, rings, still) = (&mut self.io, &self.rings, self.still);
        let found = lone
            && self.polling.look(began_ns, until_ns, || {
                io.poll(done)?;
                let found = !done.is_empty() || !still && rings.any_waiting();
                Ok::<_, std::io::Error>((clock::now_ns(), found))
            })?;
        if found {
            return Ok(());
        }
        if !self.still && self.arm_rings() {
            return self.io.poll(done);
        }
        let left = |_| Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
        self.io.wait(time.map(left), done)?;
        if !done.is_empty() {
            let slept_ns = clock::now_ns().saturating_sub(began_ns);
            self.polling.slept(slept_ns);
        }
        Ok(())
    }

    /// Returns the time to wait for a completion: `None` for no wait, because work is left or a timer is about to fire, and
    /// `Some(None)` for no limit.
    #[expect(clippy::option_option, reason = "not at all, for ever, for a while")]
    fn sleep_for(&self) -> Option<Option<Duration>> {
        let more = !self.at_once.is_empty() || !self.large.is_empty() || !self.lost.is_empty();
        if more || self.unread || self.may_resume() || self.second.failed.is_some() {
            return None;
        }
        if self.timers.is_empty() {
            return Some(None); // the regular tick of the server ends the wait
        }
        let exact_ns = self.timers.next_exact_ns().saturating_sub(SPIN_NS);
        let until_ns = exact_ns.min(self.timers.next_rough_ns());
        let left_ns = until_ns.checked_sub(clock::now_ns()).filter(|l| *l > 0)?;
        Some(Some(Duration::from_nanos(left_ns)))
    }

    fn completed(&mut self, token: Token, outcome: Outcome) {
        match token {
            Token::Receive(connection) => self.received(connection, outcome),
            Token::Writable(connection) => self.writable(connection),
            Token::Device(io) => self.device_done(io, outcome),
            Token::RemoteReceive(remote) => self.remote_received(remote, outcome),
            Token::RemoteWritable(remote) => self.remote_writable(remote),
            Token::Kick(ring) => self.kicked(ring, outcome),
            Token::Inbox => {
                self.io.start(Token::Inbox.pack(), Op::Wake);
                self.unread = true;
            }
        }
    }

    /// Takes messages from the inbox: [`MESSAGES_MAX`] at most, and none after the one that stops the worker.
    fn take_messages(&mut self) {
        for _ in 0..MESSAGES_MAX {
            if !self.unread || self.stopping {
                return;
            }
            match self.inbox.try_recv() {
                Ok(envelope) => {
                    if let Some(message) = envelope.open() {
                        self.message(message);
                    }
                }
                Err(_) => self.unread = false,
            }
        }
    }

    fn tick(&mut self) {
        if self.now_ns < self.next_tick_ns {
            return;
        }
        self.next_tick_ns = self.now_ns + TICK.as_nanos() as u64 / 2;
        self.shared.beats.beat(self.index);
        for volume in 0..self.volumes.len() as u32 {
            if let Some(live) = self.volumes[volume as usize].as_mut() {
                live.engine.tick(self.now_ns);
                live.stages.tick(self.now_ns);
                self.carry_out(volume);
                self.readmit_throttled(volume);
                self.detach_if_over(volume);
            }
        }
        self.share_slack();
        self.end_old_mirrors();
        self.tick_cache();
        self.tick_second();
        self.give_memory_back();
        self.close_idle_handshakes();
        self.cut_stalled();
        self.reconnect_remotes();
        self.resume_remotes();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Operations in flight keep sockets open. Without the shutdown, guests would see the end of the connection only
        // when the process exits.
        for (connection, c) in &self.connections {
            if !self.is_anothers(connection as u32) {
                let _ = rustix::net::shutdown(&*c.socket, rustix::net::Shutdown::Both);
            }
        }
        self.shared.beats.end(self.index);
        let bytes = self.connections.iter().map(|(_, c)| c.bytes).sum::<u64>();
        let bytes = bytes + self.rings.let_go();
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let open = self.connections.len();
        self.shared.connections.fetch_sub(open, Ordering::Relaxed);
    }
}
