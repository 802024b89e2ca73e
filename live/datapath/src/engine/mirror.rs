//! Mirrors: second copies of extents on another device, for reads. A mirror is a relocation that copies, but never switches
//! or stores.
//!
//! ```text
//!   start_mirror() ──▶ copied ──▶ target flushed ──▶ shared: reads go to either copy, by their latencies ──▶ stopped ──▶ slots free
//!                        │              │              a look every 200 ms                                    ▲
//!                        └──────────────┴──────────── failure, lag, or an operation that excludes mirrors ────┘
//! ```
//!
//! # Guarantees
//!
//! - *Nothing is stored*: the map has only the first copy. A crash, a restart or a handover ends the mirror, and its slots
//!   are then free. A stopped copy is therefore never used again, and stopping it needs no durable change.
//! - *Writes and flushes go to both copies*, and are answered when both have completed. If the second copy fails one, the
//!   mirror stops before the guest is answered, and the guest sees no error. The same holds if the second copy is later
//!   than the first by [`MirrorLimits::late_ns`]. A late write may still take effect, so its slots stay reserved until it
//!   has ended (`Straggler`).
//! - *Reads go to the second copy* only after all data was copied and flushed, and if nothing was lost since. Reads in
//!   flight when the mirror stops are repeated at the first copy ([`Effect::Again`]), with another buffer: the late read
//!   may still write to the old one.
//! - *The first copy is authoritative*: if it fails a write or loses data, the correct copy is unknown, so the mirror
//!   stops.

use algo::Histogram;
use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId};
use volume::{
    EndReads, MoveOrder, Mover, NeighborSlack, OFFLOAD_LOOK, Offload, OffloadLimits, Purpose,
    Slack, Ticket,
};

use super::{
    Effect, Engine, Failure, Fault, GuestOp, GuestRequest, IoKind, Owner, StopReason, Zeroes,
};

/// Times of a mirror, and limits of its share of reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorLimits {
    /// Time between two adjustments of the share of reads.
    pub look_ns: u64,
    /// Longest time for which an operation waits for the second copy before the mirror stops: for a write or a flush, after
    /// the end of the first copy; for a read or a chunk of the copy, in total. It is checked at each adjustment of the
    /// share, so a guest waits at most for the sum of both times.
    pub late_ns: u64,
    /// Limits of the share of reads.
    pub offload: OffloadLimits,
}

impl Default for MirrorLimits {
    fn default() -> Self {
        Self {
            look_ns: OFFLOAD_LOOK.0,
            late_ns: 1_000_000_000,
            offload: OffloadLimits::default(),
        }
    }
}

/// Number of looks after which the histograms of slow reads start again.
const TAIL_LOOKS: u32 = 10;

/// Number of reads of the second copy below which its slowest reads are not judged.
const TAIL_READS_MIN: u64 = 100;

/// Progress of a mirror.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorStatus {
    /// Device of the second copies.
    pub to: DeviceId,
    /// Extents of the order; none for the whole volume.
    pub extents: Option<ExtentRanges>,
    /// Number of bytes that have or will have a second copy.
    pub bytes: Bytes,
    /// Number of copied bytes, including repeated copies.
    pub copied: Bytes,
    /// Share of the reads of mirrored extents that go to the second copy, 0..=1; 0 before it is complete.
    pub share: f64,
    /// Number of reads by the first and by the second copy since the second is complete. Reads of both copies, or that
    /// include other extents, are not counted.
    pub reads: [u64; 2],
    pub phase: &'static str,
}

/// End of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorEnd {
    /// Reason; none if there was nothing to mirror.
    pub why: Option<StopReason>,
    /// Number of copied bytes, including repeated copies.
    pub copied: Bytes,
    /// Reads, as in [`MirrorStatus::reads`].
    pub reads: [u64; 2],
}

/// Reason why a mirror was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorRefusal {
    /// The volume is being moved.
    Moving,
    /// The volume has a mirror, or its last mirror has not ended completely.
    Mirrored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Chunks are copied.
    Copying,
    /// The target is flushed.
    Flushing,
    /// Reads go to either copy.
    Shared,
}

/// State of a mirror, in addition to its [`Mover`].
#[derive(Debug)]
pub(super) struct Mirror {
    stage: Stage,
    offload: Offload,
    /// Reads by each copy since the last look; then since both are in use.
    ends: [EndReads; 2],
    pub(super) reads: [u64; 2],
    /// Latencies of these reads, of some looks.
    tails: [Histogram; 2],
    looks: u32,
    next_look_ns: u64,
    pub(super) bytes: Bytes,
    /// Start of the chunk in flight.
    pub(super) chunk_since_ns: Option<u64>,
}

/// Abandoned parts of a request at the second copy of a stopped mirror. The request was answered without them.
#[derive(Debug)]
pub(super) struct Straggler {
    /// Ticket of the request. Until the map gets it back, the slots of the parts are not free.
    ticket: Option<Ticket>,
    left: u32,
}

impl<G> Engine<G> {
    /// Starts a mirror of extents. It yields to guests of other volumes according to `others`.
    ///
    /// # Panics
    /// If the purpose of the order is a move.
    pub fn start_mirror(
        &mut self,
        now_ns: u64,
        order: MoveOrder,
        others: NeighborSlack,
    ) -> Result<(), MirrorRefusal> {
        assert_eq!(order.purpose, Purpose::Mirror, "a move is another order");
        if self.mirror.is_some() {
            return Err(MirrorRefusal::Mirrored);
        }
        if self.mover.is_some() {
            return Err(MirrorRefusal::Moving);
        }
        (self.now_ns, self.others) = (now_ns, others);
        let limits = self.limits.mirror;
        let next_look_ns = now_ns + limits.look_ns;
        self.mirror = Some(Box::new(Mirror {
            stage: Stage::Copying,
            offload: Offload::new(limits.offload),
            ends: Default::default(),
            reads: [0; 2],
            tails: Default::default(),
            looks: 0,
            next_look_ns,
            bytes: Bytes::ZERO,
            chunk_since_ns: None,
        }));
        self.effects.push(Effect::Wake(next_look_ns));
        self.mover = Some(self.new_mover(order));
        self.settle();
        Ok(())
    }

    /// Stops the mirror. Its end follows as [`Effect::MirrorEnded`]. Returns true if a mirror exists.
    pub fn stop_mirror(&mut self, now_ns: u64, why: StopReason) -> bool {
        self.now_ns = now_ns;
        let running = self.mirror.is_some();
        self.mirror_makes_way(why);
        self.settle();
        running
    }

    /// Returns the progress of the mirror, if one exists.
    pub fn mirror_status(&self) -> Option<MirrorStatus> {
        let (mirror, mover) = (self.mirror.as_ref()?, self.mover.as_ref()?);
        let shared = mirror.stage == Stage::Shared && mover.is_mirrored();
        Some(MirrorStatus {
            to: mover.order().to,
            extents: mover.order().extents.clone(),
            bytes: mirror.bytes,
            copied: mover.copied(),
            share: if shared { mirror.offload.share() } else { 0.0 },
            reads: mirror.reads,
            phase: match mover.phase() {
                "mirrored" if !shared => "flushing",
                phase => phase,
            },
        })
    }

    /// Returns true if the mirror has the target and extents of the order, and is not stopping.
    pub fn keeps_mirror(&self, order: &MoveOrder) -> bool {
        let own = self.mirror.as_ref().and(self.mover.as_ref());
        own.is_some_and(|mover| {
            let kept = mover.order();
            (kept.to, &kept.extents) == (order.to, &order.extents) && !mover.is_given_up()
        })
    }

    /// Returns the present bandwidth of the mirror's copy.
    pub fn mirror_rate(&self) -> Option<BytesPerSec> {
        self.mirror.as_ref()?;
        self.mover.as_ref().map(Mover::rate)
    }

    /// Stops the mirror for an operation that mirrored volumes do not permit.
    pub(super) fn mirror_makes_way(&mut self, why: StopReason) {
        if self.mirror.is_some() {
            self.give_up(why);
        }
    }

    /// Starts the next step of the mirror: the flush after the copy, or a look at the share of reads.
    pub(super) fn step_mirror(&mut self) {
        let (Some(mirror), Some(mover)) = (&mut self.mirror, &self.mover) else {
            return;
        };
        if mirror.stage == Stage::Copying && mover.is_mirrored() {
            // A device may lose data that is not on its medium without an error, and return older data.
            mirror.stage = Stage::Flushing;
            let (batch, to) = (self.batches, mover.order().to);
            self.start_flush(Owner::MirrorFlush { batch }, to);
        }
        self.look_at_mirror();
    }

    /// Handles the flush after the copy: reads start to use the second copy, or the mirror stops.
    pub(super) fn mirror_flushed(&mut self, batch: u64, result: Result<(), Fault>) {
        let mirrored = self.mover.as_ref().is_some_and(Mover::is_mirrored);
        if batch != self.batches || !mirrored {
            return; // stopped meanwhile
        }
        if let Err(fault) = result {
            return self.give_up(StopReason::TargetFlush(fault.failure()));
        }
        let mirror = self.mirror.as_mut().expect("one is kept alike");
        mirror.stage = Stage::Shared;
        let share = mirror.offload.share();
        let shared = self.map.share_reads(share);
        shared.expect("it is kept alike by a relocation");
    }

    fn look_at_mirror(&mut self) {
        let Some(mirror) = &mut self.mirror else {
            return;
        };
        if self.now_ns < mirror.next_look_ns {
            return;
        }
        mirror.next_look_ns = self.now_ns + self.limits.mirror.look_ns;
        self.effects.push(Effect::Wake(mirror.next_look_ns));
        let shared = mirror.stage == Stage::Shared;
        if let Some(late) = self.late_at_mirror() {
            return self.give_up(StopReason::TargetLate(late));
        }
        if !shared || !self.mover.as_ref().is_some_and(Mover::is_mirrored) {
            return;
        }
        let misses = |slack| matches!(slack, Slack::Used(used) if used > 1.0);
        let others_miss = misses(self.others.target);
        let own_misses = misses(self.slack);
        let mirror = self.mirror.as_mut().expect("it was just looked at");
        let ends = std::mem::take(&mut mirror.ends);
        let [first, second] = &mirror.tails;
        let tail = |end: &Histogram| end.quantile_ns(0.99);
        let slowest = second.count() >= TAIL_READS_MIN && tail(second) > tail(first);
        let share = match others_miss || (own_misses && slowest) {
            true => mirror.offload.give_way(ends),
            false => mirror.offload.look(ends),
        };
        mirror.looks += 1;
        if mirror.looks.is_multiple_of(TAIL_LOOKS) {
            mirror.tails.iter_mut().for_each(Histogram::clear);
        }
        let shared = self.map.share_reads(share);
        shared.expect("it is kept alike by a relocation");
    }

    /// Returns the I/O for which an operation has waited for the second copy too long; `Some(None)` if the I/O is unknown.
    fn late_at_mirror(&self) -> Option<Option<Failure>> {
        let late_ns = self.limits.mirror.late_ns;
        let late = |since_ns: u64| self.now_ns.saturating_sub(since_ns) >= late_ns;
        let chunk = self.mirror.as_ref().and_then(|m| m.chunk_since_ns);
        if chunk.is_some_and(late) {
            let copy = |io: &super::IoState| matches!(io.owner, Owner::CopyRead | Owner::CopyWrite);
            return Some(self.late_io(copy));
        }
        let mut waiting = self.requests.iter().filter(|(_, s)| s.guest.is_some());
        let (id, _) = waiting.find(|(_, s)| match s.request.op {
            GuestOp::Read => s.mirrors > 0 && late(s.since_ns),
            _ => s.mirrors > 0 && s.left == s.mirrors && late(s.first_done_ns),
        })?;
        let of =
            |owner| matches!(owner, Owner::Guest { request, mirror: true } if request == id as u32);
        let to = self.mover.as_ref().map(|m| m.order().to);
        let flushes = self.requests[id].request.op == GuestOp::Flush;
        Some(self.late_io(|io| {
            of(io.owner) || flushes && io.owner == Owner::Flush && Some(io.device) == to
        }))
    }

    /// Returns true if flushes may skip the second copy, because it is not read yet.
    #[inline]
    pub(super) fn is_unread(&self) -> bool {
        self.mirror
            .as_ref()
            .is_some_and(|m| m.stage == Stage::Copying)
    }

    /// Returns the copy that answers a read of mirrored extents alone.
    #[inline]
    pub(super) fn end_of(&self, request: GuestRequest, parts: &[volume::DeviceIo]) -> Option<u8> {
        let mirror = self.mirror.as_ref()?;
        let [part] = parts else { return None };
        if mirror.stage != Stage::Shared || part.length != request.length {
            return None;
        }
        match part.mirror {
            true => Some(1),
            false => {
                let mirrored = self.map.is_mirrored(request.offset, request.length);
                mirrored.then_some(0)
            }
        }
    }

    /// Records a read by a copy.
    #[inline]
    pub(super) fn read_at(&mut self, end: u8, latency_ns: u64) {
        if let Some(mirror) = &mut self.mirror {
            let end = usize::from(end);
            mirror.ends[end].add(latency_ns);
            mirror.tails[end].record(latency_ns);
            mirror.reads[end] += 1;
        }
    }

    /// Releases requests from their parts at the second copy. Called when the mirror stops: the map uses the second copy no
    /// more.
    pub(super) fn shed(&mut self) {
        let waiting = self.requests.iter().filter(|(_, s)| s.mirrors > 0);
        let ids: Vec<u32> = waiting.map(|(id, _)| id as u32).collect();
        for id in ids {
            let state = &self.requests[id as usize];
            if state.request.op == GuestOp::Read {
                self.ask_again(id);
            } else if state.left == state.mirrors {
                self.straggle(id);
            }
        }
    }

    /// Repeats a read without the second copy. Its I/Os in flight continue, and their results are ignored.
    pub(super) fn ask_again(&mut self, id: u32) {
        let state = &mut self.requests[id as usize];
        if let Some(guest) = state.guest.take() {
            let request = state.request;
            self.effects.push(Effect::Again { guest, request });
        }
    }

    /// Abandons the parts of a request at the second copy, which are its only outstanding parts.
    pub(super) fn straggle(&mut self, id: u32) {
        let state = &mut self.requests[id as usize];
        let left = std::mem::take(&mut state.mirrors);
        let ticket = state.ticket.take();
        state.left -= left;
        let number = self.stragglers.insert(Straggler { ticket, left }) as u32;
        let own = Owner::Guest {
            request: id,
            mirror: true,
        };
        let flushes = self.flush_states.iter_mut().flat_map(|s| s.waiters());
        let flushes = flushes.chain(&mut self.telling).map(|w| &mut w.owner);
        let ios = self.ios.iter_mut().map(|(_, io)| &mut io.owner);
        for owner in ios.chain(flushes).filter(|owner| **owner == own) {
            *owner = Owner::Straggler(number);
        }
        self.parts_over(id);
    }

    /// Counts the end of an abandoned part, with any result.
    pub(super) fn straggler_done(&mut self, number: u32) {
        let straggler = &mut self.stragglers[number as usize];
        straggler.left -= 1;
        if straggler.left == 0 {
            let straggler = self.stragglers.remove(number as usize);
            if let Some(ticket) = straggler.ticket {
                self.ticket_done(ticket);
            }
        }
    }

    /// Handles a trim that may touch mirrored extents. Returns true if the trim does nothing. Both copies must read the
    /// same, and a device may ignore a trim. So a trim of a part of a mirrored extent does nothing, and a trim of a whole
    /// one stops the mirror.
    pub(super) fn trims_nothing(&mut self, request: GuestRequest) -> bool {
        let given_up = self.mover.as_ref().is_none_or(Mover::is_given_up);
        if self.mirror.is_none() || given_up || request.length == 0 {
            return false;
        }
        let extent_bytes = self.map.extent_bytes().0;
        let end = request.offset + request.length;
        let touched = request.offset / extent_bytes..end.div_ceil(extent_bytes);
        let is_mirrored = |e: &u64| self.map.is_relocated(*e as usize);
        let whole = |e: &u64| {
            let first = *e * extent_bytes;
            let last = first + self.map.bytes_of(*e as usize).0;
            request.offset <= first && last <= end
        };
        let mut mirrored = touched.filter(is_mirrored).peekable();
        let any = mirrored.peek().is_some();
        if mirrored.any(|e| whole(&e)) {
            self.give_up(StopReason::MadeWay("a trim"));
            return false;
        }
        any
    }

    /// Stops the mirror if a device with one of its copies has lost data or is lost.
    pub(super) fn lost_at_mirror(&mut self, device: DeviceId, failure: Option<Failure>) {
        let Some(to) = self.mirror.as_ref().and(self.move_target()) else {
            return;
        };
        if device == to {
            self.give_up(StopReason::TargetFlush(failure));
        } else if self.map.holders().iter().any(|h| h.0 == device) {
            self.give_up(StopReason::FirstCopy(failure));
        }
    }

    /// Ends an I/O of an abandoned read that was not started, because its buffer belongs to another request now.
    pub fn not_begun(&mut self, now_ns: u64, io: u32) {
        let device = self.ios[io as usize].device;
        let failed = Fault::of(device, IoKind::Read, rustix::io::Errno::CANCELED);
        self.io_done(now_ns, io, Err(failed), Zeroes::No);
    }
}

#[cfg(test)]
mod tests;
