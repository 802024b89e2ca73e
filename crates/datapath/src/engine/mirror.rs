//! Keeps a second copy of some extents on another device, for reads: a relocation that copies, and is then neither switched nor stored.
//!
//! ```text
//!   start_mirror() ──▶ copied ──▶ target flushed ──▶ shared: reads go to either end, by what those take ──▶ given up ──▶ slots free
//!                        │              │              a look every 200 ms                                     ▲
//!                        └──────────────┴───────────── anything that fails or lags, or is to be done ──────────┘
//! ```
//!
//! # What makes the promises hold
//!
//! - *Nothing of it is stored*: the map knows the first copy alone. A crash, a restart or a handover ends it, and its slots are nobody's then. So a copy
//!   that was given up is never believed again, and nothing has to be made durable for that.
//! - *Writes and flushes go to both ends*, and are answered when both are done. Where the second copy fails one, it is given up before the guest is
//!   answered, and the guest hears of no error. Where it is later than the first copy by [`MirrorLimits::late_ns`], likewise; what is late may still land,
//!   so its slots stay taken until it has ended (`Stragglers`).
//! - *Reads go there only* once all of it was copied and flushed, and nothing was lost since. Those in flight when it is given up are asked again at the first copy
//!   ([`Effect::Again`]), into memory of their own: the late one may still write to what it was given.
//! - *The first copy is the truth*: when it fails a write or loses something, nobody can tell which of the two is right, so the second one goes.

use algo::Histogram;
use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId};
use volume::{
    EndReads, MoveOrder, Mover, OFFLOAD_LOOK, Offload, OffloadLimits, Others, Purpose, Slack,
    Ticket,
};

use super::{
    Effect, Engine, Failure, Fault, GuestOp, GuestRequest, IoKind, Owner, StopReason, Zeroes,
};

/// Times of a mirror, and how much of the reads may go where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorLimits {
    /// Time between two looks at how many reads go where.
    pub look_ns: u64,
    /// What the second copy is given beyond the first one, for a write or a flush, and in all for a read or a chunk of the copy, before it is given up. It is
    /// looked at as often as the share, so a guest waits for it for no longer than both times together.
    pub late_ns: u64,
    /// Bounds of the share of reads.
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

/// Looks after which the slowest reads are judged anew.
const TAIL_LOOKS: u32 = 10;

/// Reads of the second copy below which its slowest say nothing.
const TAIL_READS_MIN: u64 = 100;

/// How far a mirror is.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorStatus {
    /// Where the second copies are.
    pub to: DeviceId,
    /// The extents that were named; `None` is all.
    pub extents: Option<ExtentRanges>,
    /// Bytes that have a second copy, or are to have one.
    pub bytes: Bytes,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
    /// Share of the reads of what is mirrored that go to the second copy, 0..=1; none before it is there.
    pub share: f64,
    /// Reads that the first and the second copy have answered since it was there. Those that lie on both, or not only on mirrored extents, do not count.
    pub reads: [u64; 2],
    pub phase: &'static str,
}

/// How a mirror ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorEnd {
    /// Why it was given up; none if there was nothing to mirror.
    pub why: Option<StopReason>,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
    /// As [`MirrorStatus::reads`].
    pub reads: [u64; 2],
}

/// What was in the way of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorRefusal {
    /// The volume is being moved.
    Moving,
    /// It is mirrored, or was until now and the last of that is not over.
    Mirrored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Chunks are copied.
    Copying,
    /// The target is being flushed.
    Flushing,
    /// Reads go to either end.
    Shared,
}

/// What is remembered of a mirror, beside what its [`Mover`] does.
#[derive(Debug)]
pub(super) struct Mirror {
    stage: Stage,
    offload: Offload,
    /// Reads that each end answered since the last look, and since it is shared.
    ends: [EndReads; 2],
    pub(super) reads: [u64; 2],
    /// Their latencies, of some looks.
    tails: [Histogram; 2],
    looks: u32,
    next_look_ns: u64,
    pub(super) bytes: Bytes,
    /// When the chunk on its way was begun.
    pub(super) chunk_since_ns: Option<u64>,
}

/// Parts of a request at a second copy that was given up: whoever asked was answered without them.
#[derive(Debug)]
pub(super) struct Straggler {
    /// Until it is handed back, the slots that they go to are not free.
    ticket: Option<Ticket>,
    left: u32,
}

impl<G> Engine<G> {
    /// Begins to keep second copies of extents, beside such guests of other volumes.
    ///
    /// # Panics
    /// When the order is one to move.
    pub fn start_mirror(
        &mut self,
        now_ns: u64,
        order: MoveOrder,
        others: Others,
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

    /// Gives the mirror up, if there is one; the answer is [`Effect::MirrorEnded`]. Whether there is.
    pub fn stop_mirror(&mut self, now_ns: u64, why: StopReason) -> bool {
        self.now_ns = now_ns;
        let running = self.mirror.is_some();
        self.mirror_makes_way(why);
        self.settle();
        running
    }

    /// How far the mirror is, if there is one.
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

    /// Whether it keeps the second copies that such an order makes, and is not giving them up.
    pub fn keeps_mirror(&self, order: &MoveOrder) -> bool {
        let own = self.mirror.as_ref().and(self.mover.as_ref());
        own.is_some_and(|mover| {
            let kept = mover.order();
            (kept.to, &kept.extents) == (order.to, &order.extents) && !mover.is_given_up()
        })
    }

    /// Bandwidth that its copy has now.
    pub fn mirror_rate(&self) -> Option<BytesPerSec> {
        self.mirror.as_ref()?;
        self.mover.as_ref().map(Mover::rate)
    }

    /// Something is to be done that a mirrored volume cannot have done to it.
    pub(super) fn mirror_makes_way(&mut self, why: StopReason) {
        if self.mirror.is_some() {
            self.give_up(why);
        }
    }

    /// Takes the mirror on: the flush that follows the copy, the look at how many reads go where.
    pub(super) fn step_mirror(&mut self) {
        let (Some(mirror), Some(mover)) = (&mut self.mirror, &self.mover) else {
            return;
        };
        if mirror.stage == Stage::Copying && mover.is_mirrored() {
            // What a device has not on its medium it may lose without a word, and read something older.
            mirror.stage = Stage::Flushing;
            let (batch, to) = (self.batches, mover.order().to);
            self.start_flush(Owner::MirrorFlush { batch }, to);
        }
        self.look_at_mirror();
    }

    /// What was copied is on the medium, or may be lost.
    pub(super) fn mirror_flushed(&mut self, batch: u64, result: Result<(), Fault>) {
        let mirrored = self.mover.as_ref().is_some_and(Mover::is_mirrored);
        if batch != self.batches || !mirrored {
            return; // given up meanwhile
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

    /// Whether something has waited for the second copy for too long, and for which of its I/Os, if that is known.
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

    /// Whether flushes need not reach the second copy: nobody reads from it yet.
    #[inline]
    pub(super) fn is_unread(&self) -> bool {
        self.mirror
            .as_ref()
            .is_some_and(|m| m.stage == Stage::Copying)
    }

    /// Which end alone a read goes to, of what is mirrored.
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

    /// An end has answered a read.
    #[inline]
    pub(super) fn read_at(&mut self, end: u8, latency_ns: u64) {
        if let Some(mirror) = &mut self.mirror {
            let end = usize::from(end);
            mirror.ends[end].add(latency_ns);
            mirror.tails[end].record(latency_ns);
            mirror.reads[end] += 1;
        }
    }

    /// The mirror is given up, and the map sends nothing there any more: nobody waits for what is on its way to it.
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

    /// A read is to be done again without the second copy. What is under way for it goes on, and nobody wants to know of it.
    pub(super) fn ask_again(&mut self, id: u32) {
        let state = &mut self.requests[id as usize];
        if let Some(guest) = state.guest.take() {
            let request = state.request;
            self.effects.push(Effect::Again { guest, request });
        }
    }

    /// A request does not wait for its parts at the second copy, which are all that is left of it.
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

    /// A part of one that nobody waits for has ended, however.
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

    /// A trim where some of what it is about is mirrored: whether nothing is done. Both ends are to read the same, and a device may do what it
    /// likes with a trim, so that of a part of an extent is none; one of a whole extent ends the mirror.
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

    /// A device has lost something, or is lost itself: whether the mirror is of it, and which end.
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

    /// The I/O of a request that nobody waits for cannot be begun any more: what it was to read into is another's.
    pub fn not_begun(&mut self, now_ns: u64, io: u32) {
        let device = self.ios[io as usize].device;
        let failed = Fault::of(device, IoKind::Read, rustix::io::Errno::CANCELED);
        self.io_done(now_ns, io, Err(failed), Zeroes::No);
    }
}

#[cfg(test)]
mod tests;
