//! One live volume, sans I/O: guest requests, places of extents, flushes, failures, hangs and moves.
//!
//! The engine drives [`volume::VolumeMap`] and adds the rules of durability. Inputs are events with the time. Outputs are
//! [`Effect`]s, which the worker carries out with a ring of I/O, and the crash tests with simulated disks that lose data.
//! The map decides the devices of each request during a move.
//!
//! # The life of an extent
//!
//! ```text
//!            write                    place durable, slot reads as zeroes          trim of the whole extent
//!   hole ───────────▶ being placed ──────────────────────────────────▶ placed ──────────────────────▶ hole
//!     reads as zeroes, no I/O    writes to it wait                       │  ▲    its slot: quarantined until the removal is
//!                                                              move      │  │    durable and no request in flight uses it,
//!                                                                        ▼  │    then free, then zeroed, then flushed
//!   requests from before ──▶ copy, catch up ──▶ flush target ──▶ durable switch ──▶ requests drain ──▶ source slot free
//!   the move are complete    (volume's page)    flushes of all connections go to both devices up to here
//! ```
//!
//! # Guarantees
//!
//! - *Kill*: a write is answered when the tier's file has it and its place is durable.
//! - *Power loss*: a flush is answered when every device with a write of this volume since its last flush has been flushed,
//!   including the target of a running move. A failed flush fails the flush of every volume on that device, because the
//!   kernel reports such an error only once.
//! - *Switch*: the target is flushed after the last chunk and before the switch is stored. From the first mirrored write
//!   on, flushes cover both devices. If the keeper cannot tell if a switch is durable, the engine continues to write to
//!   both devices and tries again.
//! - *Late writes*: a write that was answered with an error because its device hangs may still take effect. Requests that
//!   overlap it wait until it has ended with success or failure. They fail themselves if they have waited too long.

mod behind;
mod copy_up;
mod failure;
mod flush;
mod grace;
mod interface;
mod judged;
mod late;
mod mirror;
mod mover;
mod places;
mod rest;
mod retry;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::Op;
use slab::Slab;
use units::{Bytes, DeviceId};
use volume::{
    DeviceIo, GuestLatency, Mover, NeighborSlack, Request, Slack, Submission, Ticket, VolumeMap,
};

use behind::ImportState;
pub use behind::ImportStatus;
use copy_up::CopyUp;
pub use failure::{Failure, StopReason};
use flush::{FlushState, Waiter};
use grace::{Epoch, Grace};
pub use interface::{
    DataRef, DeviceRequest, Effect, Fault, GuestOp, GuestRequest, IoKind, StoreReply, StoreRequest,
    Zeroes,
};
use judged::JudgedLatency;
use mirror::{Mirror, Straggler};
pub use mirror::{MirrorEnd, MirrorLimits, MirrorRefusal, MirrorStatus};
pub use mover::{MoveEnd, MoveStatus};
pub use places::Presence;
use places::QuarantinedSlots;
use rest::Rest;
use retry::{Retry, overlap};
pub use volume::{MoveOrder, Purpose};

/// Time without requests after which a guest counts as idle.
const RESTS_NS: u64 = 1_000_000_000;

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for the map, for a place or for a hung write.
    Waiting,
    /// Parts are in flight.
    Issued,
    /// Complete except for the flush that makes it durable.
    Flushing,
}

#[derive(Debug)]
struct GuestState<G> {
    /// None after the answer.
    guest: Option<G>,
    request: GuestRequest,
    stage: Stage,
    /// Number of outstanding parts and replies of the keeper.
    left: u32,
    /// Number of these parts that go to a second copy.
    mirrors: u32,
    /// Time at which only parts at the second copy were left.
    first_done_ns: u64,
    /// For a read of a mirrored extent: the copy that it went to.
    end: Option<u8>,
    failed: Option<Fault>,
    ticket: Option<Ticket>,
    epoch: Option<Epoch>,
    since_ns: u64,
    /// Holes of a read.
    gaps: Vec<(u64, u64)>,
    /// Losses that the answer of a flush reports.
    reports_losses: Vec<(DeviceId, u64)>,
    /// True for a read of the driver itself, which no guest waits for.
    aside: bool,
}

/// Owner of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Guest {
        request: u32,
        mirror: bool,
    },
    CopyRead,
    CopyWrite,
    MoveFlush {
        batch: u64,
    },
    MirrorFlush {
        batch: u64,
    },
    /// Abandoned part at a second copy. Its slot cannot be freed before it ends.
    Straggler(u32),
    CopyUpRead(u32),
    CopyUpWrite(u32),
    CopyUpFlush(u32),
    BehindRead(u32),
    BehindWrite(u32),
    BehindFlush(u32),
    RestFlush(u32),
    /// Its waiting requests are listed in the state of the device's flush.
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct IoState {
    owner: Owner,
    device: DeviceId,
    kind: IoKind,
    /// For durable writes.
    epoch: Option<Epoch>,
}

/// Limits of one volume.
#[derive(Debug, Clone, Copy)]
pub struct EngineLimits {
    /// Time after which a request fails. Protects the guest from a device that hangs.
    pub timeout_ns: u64,
    /// Size of a chunk of a copy while guests have latencies below 1 ms. A request of a guest may have to wait for one
    /// chunk.
    pub copy_chunk: Bytes,
    /// Size of a chunk while guests have high latencies ([`volume::copy_chunk`]).
    pub copy_chunk_max: Bytes,
    /// Bytes of the extents that are moved and switched together, and of those that are imported together.
    pub batch: Bytes,
    /// Size of one piece of an import; some pieces are copied at a time.
    pub import_piece: Bytes,
    /// Limits of second copies.
    pub mirror: MirrorLimits,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            timeout_ns: 30_000_000_000,
            copy_chunk: Bytes(64 << 10),
            copy_chunk_max: Bytes(256 << 10),
            batch: Bytes::mib(64),
            import_piece: Bytes::mib(1),
            mirror: MirrorLimits::default(),
        }
    }
}

/// One live volume. `G` is the driver's data of a request, which comes back with the answer.
#[derive(Debug)]
pub struct Engine<G> {
    map: VolumeMap,
    limits: EngineLimits,
    requests: Slab<GuestState<G>>,
    ios: Slab<IoState>,
    parts: Vec<DeviceIo>,
    /// Requests that wait, in order.
    waiting: VecDeque<u32>,
    /// Waiting requests to try again.
    retry: Retry,
    /// Extents for which the keeper is allocating slots.
    placing: BTreeSet<u32>,
    grace: Grace,
    /// Vacated slots. They are freed when their removal is durable and their epoch has passed.
    quarantine: Vec<QuarantinedSlots>,
    flush_states: Vec<FlushState>,
    /// Number of changes in flight.
    changing: u32,
    /// Number of changes that have ended.
    changed: u64,
    /// Holes that may still have a place in the durable map, with the device of the place: their trim is not durable yet,
    /// or could not be made durable.
    unsure: BTreeMap<u32, DeviceId>,
    /// Number of writes that were answered with an error and may still take effect.
    zombies: u32,
    mover: Option<Mover<StopReason>>,
    /// Mirror: the mover keeps second copies.
    mirror: Option<Box<Mirror>>,
    /// Move to start when the second copies are removed.
    next_move: Option<MoveOrder>,
    /// Abandoned parts of requests at second copies.
    stragglers: Slab<Straggler>,
    /// Requests and operations that receive the result of a flush now.
    telling: VecDeque<Waiter>,
    /// Extents that are copied up: they get their own slots.
    copy_ups: Slab<CopyUp>,
    /// State of the import; none when no extent is left at the source.
    behind: Option<ImportState>,
    rest: Option<Rest>,
    /// Number of rests, including attempts.
    rests: u32,
    /// True while no batch of a move may start.
    moves_held: bool,
    /// Epoch of the requests from before the batch that is being moved.
    earlier: Option<Epoch>,
    latency: GuestLatency,
    judged: JudgedLatency,
    /// Use of the latency objective by the guest at the last tick.
    slack: Slack,
    /// Time of the last answer to the guest.
    answered_ns: u64,
    /// Use of objectives by guests of other volumes on the devices of the move.
    others: NeighborSlack,
    now_ns: u64,
    /// Time of the last check for late requests.
    looked_ns: u64,
    /// Number of batches of moves that were started.
    batches: u64,
    effects: Vec<Effect<G>>,
}

impl<G> Engine<G> {
    /// Creates the engine of a volume at rest, from its map.
    pub fn new(map: VolumeMap, limits: EngineLimits) -> Self {
        let behind = map.source().map(|_| ImportState::new(None));
        let mut engine = Self {
            map,
            limits,
            requests: Slab::new(),
            ios: Slab::new(),
            parts: Vec::new(),
            waiting: VecDeque::new(),
            retry: Retry::None,
            placing: BTreeSet::new(),
            grace: Grace::new(),
            quarantine: Vec::new(),
            flush_states: Vec::new(),
            changing: 0,
            changed: 0,
            unsure: BTreeMap::new(),
            zombies: 0,
            mover: None,
            mirror: None,
            next_move: None,
            stragglers: Slab::new(),
            telling: VecDeque::new(),
            slack: Slack::Unbound,
            copy_ups: Slab::new(),
            behind,
            rest: None,
            rests: 0,
            moves_held: false,
            earlier: None,
            latency: GuestLatency::default(),
            judged: JudgedLatency::default(),
            answered_ns: 0,
            others: NeighborSlack::UNKNOWN,
            now_ns: 0,
            looked_ns: 0,
            batches: 0,
            effects: Vec::new(),
        };
        // A killed process may have answered writes that were not flushed: only the page cache has them.
        let holders: Vec<DeviceId> = engine.map.holders().iter().map(|h| h.0).collect();
        for device in holders {
            engine.flush_state(device).dirty = true;
        }
        if let Some(source) = engine.map.source() {
            // The source is never written.
            engine.flush_state(source).dirty = false;
        }
        engine
    }

    /// Grows the volume, unless it has that size already or is being moved. Returns true if it has the size now. A mirror
    /// is stopped for this, and may have to end first.
    pub fn grow(&mut self, size: Bytes) -> bool {
        if self.map.size().0 >= size.0 {
            return true;
        }
        self.mirror_makes_way(StopReason::MadeWay("a change of size"));
        self.settle();
        let still = self.mover.is_none() && !self.map.relocating() && !self.copies_up();
        if still {
            self.map.grow(size);
        }
        still
    }

    /// Returns the map.
    pub fn map(&self) -> &VolumeMap {
        &self.map
    }

    /// Returns the driver's data of a request in flight; none after the answer.
    pub fn guest(&self, request: u32) -> Option<&G> {
        self.requests[request as usize].guest.as_ref()
    }

    /// Returns true if no request, I/O, move or request to the keeper is in flight.
    pub fn at_rest(&self) -> bool {
        self.requests.is_empty()
            && self.ios.is_empty()
            && self.mover.is_none()
            && !self.copies_up()
            && self.placing.is_empty()
            && self.quarantine.iter().all(|q| q.durable)
            && self.rest.is_none()
    }

    /// Returns the number of requests that are in flight or wait.
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Moves the effects to `into`, which is cleared first.
    pub fn take_effects(&mut self, into: &mut Vec<Effect<G>>) {
        into.clear();
        std::mem::swap(&mut self.effects, into);
    }

    /// Returns true if changes that were answered with an error may still take effect. Requests that overlap them wait.
    #[inline]
    pub fn has_late_changes(&self) -> bool {
        self.zombies > 0
    }

    /// Counts a request of a guest that was answered without the engine, for the latency objective.
    #[inline]
    pub fn answered_from_memory(&mut self, now_ns: u64, latency_ns: u64) {
        self.judged.observe(latency_ns);
        self.answered_ns = now_ns;
    }

    /// Submits a request of a guest.
    pub fn submit(&mut self, now_ns: u64, guest: G, request: GuestRequest) {
        self.submit_as(now_ns, guest, request, false);
    }

    /// Submits a read of the driver itself. Its latency does not count for the guest.
    pub fn submit_aside(&mut self, now_ns: u64, guest: G, request: GuestRequest) {
        self.submit_as(now_ns, guest, request, true);
    }

    #[inline]
    fn submit_as(&mut self, now_ns: u64, guest: G, request: GuestRequest, aside: bool) {
        self.now_ns = now_ns;
        let in_range =
            request.op == GuestOp::Flush || self.map.contains(request.offset, request.length);
        if !in_range {
            let result = Err(Fault::Range);
            self.effects.push(Effect::Reply {
                guest,
                request,
                result,
                gaps: vec![],
            });
            return;
        }
        let id = self.requests.insert(GuestState {
            guest: Some(guest),
            request,
            stage: Stage::Waiting,
            left: 0,
            mirrors: 0,
            first_done_ns: 0,
            end: None,
            failed: None,
            ticket: None,
            epoch: None,
            since_ns: now_ns,
            gaps: vec![],
            reports_losses: vec![],
            aside,
        }) as u32;
        if !self.try_issue(id) {
            self.waiting.push_back(id);
        }
        if !self.retry.is_none() || self.mover.is_some() {
            self.settle();
        }
    }

    /// Handles the end of an I/O. For a read of a copy, `zeroes` is set if all data is zero.
    pub fn io_done(&mut self, now_ns: u64, io: u32, result: Result<(), Fault>, zeroes: Zeroes) {
        self.now_ns = now_ns;
        let state = self.ios[io as usize];
        self.write_is_over(&state, result);
        // The line above may have made it an abandoned part.
        let state = self.ios.remove(io as usize);
        match state.owner {
            Owner::Guest { request, mirror } => self.part_done(request, mirror, result),
            Owner::CopyRead => self.copy_read_done(result, zeroes),
            Owner::CopyWrite => self.copy_write_done(result),
            Owner::CopyUpRead(number) => self.copy_up_read(number, result, zeroes),
            Owner::CopyUpWrite(number) => self.copy_up_written(number, result),
            Owner::BehindRead(piece) => self.behind_read(piece, result, zeroes),
            Owner::BehindWrite(piece) => self.behind_written(piece, result),
            Owner::Straggler(number) => self.straggler_done(number),
            Owner::Flush
            | Owner::MoveFlush { .. }
            | Owner::MirrorFlush { .. }
            | Owner::CopyUpFlush(_)
            | Owner::BehindFlush(_)
            | Owner::RestFlush(_) => {
                self.flush_done(state.device, result);
            }
        }
        self.settle();
    }

    /// Handles a reply of the keeper.
    pub fn store_done(&mut self, now_ns: u64, reply: StoreReply) {
        self.now_ns = now_ns;
        match reply {
            StoreReply::Placed { extents, places } => self.placed(&extents, places),
            StoreReply::Vacated { extents, done } => self.vacated(&extents, done),
            StoreReply::Reserved(slots) => self.reserved(slots),
            StoreReply::Switched(done) => self.switched(done),
            StoreReply::Unshared { extent, to } => self.unshared(extent, to),
            StoreReply::CopiedUp { extent, done } => self.copied_up(extent, done),
            StoreReply::Gathered(slots) => self.gathered(slots),
            StoreReply::Arrived { group, done } => self.arrived(group, done),
            StoreReply::Imported(done) => self.imported(done),
        }
        self.settle();
    }

    /// Handles the end of a requested wait.
    pub fn wake(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.settle();
    }

    /// Fails requests that have taken too long. The driver calls it about once a second.
    pub fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let waits = || {
            let mut asked = self.requests.iter().map(|(_, s)| s);
            asked.any(|s| s.guest.is_some() && !s.aside)
        };
        if now_ns.saturating_sub(self.answered_ns) > RESTS_NS && !waits() {
            self.latency.rests();
        }
        self.look_for_late();
        self.rest_in_time();
        self.settle();
    }

    fn start_io(&mut self, owner: Owner, part: DeviceIo, kind: IoKind, data: DataRef) {
        let device = part.device;
        let epoch = self.write_begins(device, kind);
        let io = self.ios.insert(IoState {
            owner,
            device,
            kind,
            epoch,
        }) as u32;
        self.effects.push(Effect::Io(DeviceRequest {
            io,
            device,
            kind,
            at: part.at,
            length: part.length,
            data,
        }));
    }

    /// Starts a request if possible. Returns true if it no longer waits.
    fn try_issue(&mut self, id: u32) -> bool {
        let request = self.requests[id as usize].request;
        if self.zombies > 0 && self.overlaps_zombie(request) {
            return false;
        }
        if self.changes_wait() && request.op.changes() {
            return false;
        }
        let trims_nothing = request.op == GuestOp::Trim && self.trims_nothing(request);
        let vacated = match request.op {
            // During a move, a trim frees space of the device, but not the slot.
            GuestOp::Trim if !self.map.relocating() => self.vacate_whole(request),
            _ => vec![],
        };
        let routed = Request {
            op: self.routed_as(request),
            offset: request.offset,
            length: request.length,
        };
        let mut parts = std::mem::take(&mut self.parts);
        let submission = self.map.submit(routed, &mut parts);
        let issued = match submission.expect("the range was checked") {
            Submission::Issued(ticket) => {
                if request.op == GuestOp::Flush {
                    self.cover_unsure(&mut parts);
                } else if trims_nothing {
                    parts.clear();
                }
                self.issue(id, ticket, &parts, &vacated);
                true
            }
            Submission::Held => false,
            Submission::NeedsPlace { extent, end } => {
                self.ask_for_places(extent as u32..end as u32);
                false
            }
            Submission::NeedsCopy { extent, end } => {
                self.ask_for_copies(extent as u32..end as u32);
                false
            }
        };
        self.parts = parts;
        issued
    }

    fn issue(&mut self, id: u32, ticket: Option<Ticket>, parts: &[DeviceIo], vacated: &[u32]) {
        let epoch = self.grace.enter();
        let request = self.requests[id as usize].request;
        let end = match request.op {
            GuestOp::Read => self.end_of(request, parts),
            _ => None,
        };
        let state = &mut self.requests[id as usize];
        state.end = end;
        state.stage = Stage::Issued;
        state.ticket = ticket;
        state.epoch = Some(epoch);
        self.changing += u32::from(request.op.changes());
        if request.op == GuestOp::Read {
            state.gaps = gaps(request, parts);
        }
        // One more than the parts, so that the request does not complete before all parts have started.
        state.left = 1;
        for part in parts {
            let kind = match request.op {
                GuestOp::Read => IoKind::Read,
                GuestOp::Write => IoKind::Write {
                    durable: request.fua,
                },
                GuestOp::Trim => IoKind::Discard,
                GuestOp::Zero => IoKind::Zero,
                GuestOp::ZeroAllocated => IoKind::ZeroAllocated,
                GuestOp::Flush => IoKind::Flush,
            };
            if kind == IoKind::Flush && !self.is_to_flush(part) {
                continue;
            }
            let data = match kind {
                IoKind::Read | IoKind::Write { .. } => DataRef::Guest {
                    request: id,
                    from: part.offset - request.offset,
                },
                _ => DataRef::None,
            };
            let owner = self.part_begins(id, part.mirror);
            match kind {
                IoKind::Flush => self.start_flush(owner, part.device),
                _ => self.start_io(owner, *part, kind, data),
            }
        }
        if !vacated.is_empty() {
            self.requests[id as usize].left += 1;
            self.quarantine.last_mut().expect("just vacated").waiter = Some(id);
        }
        self.part_done(id, false, Ok(()));
    }

    /// Counts one more part of a request.
    fn part_begins(&mut self, id: u32, mirror: bool) -> Owner {
        let state = &mut self.requests[id as usize];
        state.left += 1;
        state.mirrors += u32::from(mirror);
        Owner::Guest {
            request: id,
            mirror,
        }
    }

    fn part_done(&mut self, id: u32, mirror: bool, result: Result<(), Fault>) {
        let state = &mut self.requests[id as usize];
        state.mirrors -= u32::from(mirror);
        let op = state.request.op;
        if let Err(fault) = result {
            let harmless = mirror && self.mirror_failed(fault);
            if harmless && op == GuestOp::Read {
                self.ask_again(id);
            }
            if !harmless {
                self.requests[id as usize].failed.get_or_insert(fault);
                if op.changes() {
                    self.mirror_makes_way(StopReason::FirstCopy(fault.failure()));
                }
            }
        }
        let mover = self.mover.as_ref().filter(|_| self.mirror.is_some());
        let given_up = mover.is_some_and(Mover::is_given_up);
        let state = &mut self.requests[id as usize];
        state.left -= 1;
        if state.left > 0 {
            if state.left == state.mirrors {
                state.first_done_ns = self.now_ns;
                if given_up && op != GuestOp::Read {
                    self.straggle(id);
                }
            }
            return;
        }
        self.parts_over(id);
    }

    /// Completes a request, or makes it durable first, after all its parts have ended or were abandoned.
    fn parts_over(&mut self, id: u32) {
        let state = &self.requests[id as usize];
        let durable_next = state.request.fua
            && state.stage == Stage::Issued
            && state.failed.is_none()
            && !matches!(
                state.request.op,
                GuestOp::Read | GuestOp::Write | GuestOp::Flush
            );
        if durable_next {
            return self.flush_for(id);
        }
        self.complete(id);
    }

    /// Makes a trim or zeroes durable before the answer.
    fn flush_for(&mut self, id: u32) {
        let mut parts = std::mem::take(&mut self.parts);
        let flush = Request {
            op: Op::Flush,
            offset: 0,
            length: 0,
        };
        let submission = self.map.submit(flush, &mut parts);
        let Ok(Submission::Issued(ticket)) = submission else {
            unreachable!("a flush is never held");
        };
        self.cover_unsure(&mut parts);
        let state = &mut self.requests[id as usize];
        state.stage = Stage::Flushing;
        state.left = 1;
        let before = std::mem::replace(&mut state.ticket, ticket);
        if let Some(before) = before {
            self.ticket_done(before);
        }
        for part in &parts {
            if self.is_to_flush(part) {
                let owner = self.part_begins(id, part.mirror);
                self.start_flush(owner, part.device);
            }
        }
        self.parts = parts;
        self.part_done(id, false, Ok(()));
    }

    #[inline]
    fn complete(&mut self, id: u32) {
        let state = self.requests.remove(id as usize);
        if let Some(ticket) = state.ticket {
            self.ticket_done(ticket);
        }
        if let Some(epoch) = state.epoch {
            self.grace.leave(epoch);
            if state.request.op.changes() {
                self.changing -= 1;
                self.changed += 1;
            }
        }
        match state.guest {
            Some(guest) => {
                self.report_losses(&state.reports_losses);
                let latency_ns = self.now_ns.saturating_sub(state.since_ns);
                let moving = self.mover.as_ref().is_some_and(|m| !m.is_mirrored());
                if !state.aside {
                    self.latency.observe(latency_ns, moving);
                    self.judged.observe(latency_ns);
                    self.answered_ns = self.now_ns;
                }
                if let Some(end) = state.end.filter(|_| state.failed.is_none() && !state.aside) {
                    self.read_at(end, latency_ns);
                }
                self.effects.push(Effect::Reply {
                    guest,
                    request: state.request,
                    result: state.failed.map_or(Ok(()), Err),
                    gaps: state.gaps,
                });
            }
            None if state.request.op.changes() => {
                self.zombies -= 1;
                self.retry.touching(state.request.bytes());
            }
            None => {}
        }
    }

    #[inline]
    fn ticket_done(&mut self, ticket: Ticket) {
        if let Some(bytes) = self.map.complete(ticket) {
            self.retry.touching(bytes);
        }
    }

    fn overlaps_zombie(&self, request: GuestRequest) -> bool {
        let bytes = request.bytes();
        let over = |other: &GuestState<G>| {
            other.guest.is_none()
                && other.request.op.changes()
                && overlap(&other.request.bytes(), &bytes)
        };
        request.op != GuestOp::Flush && self.requests.iter().any(|(_, s)| over(s))
    }

    /// Continues all operations that can continue now.
    fn settle(&mut self) {
        loop {
            if !self.retry.is_none() {
                let retry = std::mem::take(&mut self.retry);
                for _ in 0..self.waiting.len() {
                    let id = self.waiting.pop_front().expect("counted");
                    let bytes = self.requests[id as usize].request.bytes();
                    if !retry.takes(bytes) || !self.try_issue(id) {
                        self.waiting.push_back(id);
                    }
                }
            }
            self.release_quarantine();
            self.ask_store_again();
            self.step_move();
            self.step_mirror();
            self.step_behind();
            self.come_to_rest();
            if self.retry.is_none() {
                break;
            }
        }
    }
}

/// Returns the ranges of a read that have no part.
fn gaps(request: GuestRequest, parts: &[DeviceIo]) -> Vec<(u64, u64)> {
    let mut gaps = vec![];
    let mut at = 0;
    let ends = parts.iter().map(|p| (p.offset - request.offset, p.length));
    for (from, length) in ends.chain([(request.length, 0)]) {
        if from > at {
            gaps.push((at, from - at));
        }
        at = from + length;
    }
    gaps
}
