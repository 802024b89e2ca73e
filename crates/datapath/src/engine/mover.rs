//! Moves one volume, or some of its extents, batch after batch, while its guest goes on.
//!
//! ```text
//!  reserve slots ─▶ wait for requests from before ─▶ copy chunks ─▶ flush target ─▶ store the switch ─▶ drain ─▶ free the source
//!       ▲                        │                       │               │                │                          │
//!       │                        └── cancel, I/O error ──┴───────────────┘                │ the store cannot say:     │
//!       │                                    ▼                                            │ go on mirroring, ask again│
//!       │                     drain ─▶ free the target; source intact                     ▼                          │
//!       └──────────────────────────────── next batch ────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A batch that was switched stays switched when the move ends early: the volume is then spread over both devices, which
//! is a valid state like any other. A move that is resumed goes on with what is not on its target yet.

use units::{Bytes, BytesPerSec, DeviceId};
use volume::{Batch, Chunk, CopyStep, DeviceIo, Earlier, Location, Selection};

use array::MoveRecord;
use model::{ExtentRanges, Op};

use super::grace::Epoch;
use super::pace::Pace;
use super::retry::Retry;
use super::{DataRef, Effect, Engine, Fault, IoKind, Owner, StopReason, StoreRequest, Zeroes};

/// How long to wait before the store is asked again for a switch that it could not confirm.
const SWITCH_RETRY_NS: u64 = 200_000_000;

/// A move whose copy made no progress for so long, while it was allowed to, is given up. Protects the guest's writes from
/// being held, or sent to both ends, for ever.
const STUCK_NS: u64 = 60_000_000_000;

/// A move to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveOrder {
    /// Where the extents are to be.
    pub to: DeviceId,
    /// At most so fast.
    pub bandwidth: BytesPerSec,
    /// Which of them; `None` is all, also those that are written first meanwhile. Others stay where they are. The volume must
    /// have them.
    pub extents: Option<ExtentRanges>,
}

impl MoveOrder {
    /// The one that a map remembers.
    pub fn of(record: &MoveRecord) -> Self {
        Self {
            to: record.to,
            bandwidth: record.bandwidth,
            extents: record.extents.clone(),
        }
    }

    /// What moves.
    pub fn selection(&self) -> Selection<'_> {
        match &self.extents {
            None => Selection::Whole,
            Some(ranges) => Selection::Extents(ranges),
        }
    }
}

/// How a move ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveEnd {
    /// Everything is on the target.
    Done {
        /// Bytes copied, those copied again included.
        copied: Bytes,
    },
    /// Given up; what was switched stays where it is.
    Stopped {
        /// Why.
        why: StopReason,
        /// Bytes copied.
        copied: Bytes,
    },
}

/// How far a move is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveStatus {
    /// The target.
    pub to: DeviceId,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
    /// The extents that move; `None` is all of them.
    pub extents: Option<ExtentRanges>,
    /// Bytes that are not on the target yet. Of some extents an upper bound: those that are trimmed meanwhile count on.
    pub left: Bytes,
    /// Bandwidth that it may take now.
    pub rate: BytesPerSec,
    /// What it does.
    pub phase: &'static str,
}

#[derive(Debug)]
enum Phase {
    /// The next batch is to be chosen.
    Choose,
    /// Slots were asked for.
    Reserving { first: usize, extents: Vec<usize> },
    /// Requests from before the relocation are in flight.
    Grace,
    /// Chunks are copied; at most one at a time.
    Copying { chunk: Option<Chunk> },
    /// The target is being flushed; so many devices are left.
    Flushing { left: u32 },
    /// The store was asked for the switch.
    Switching,
    /// The store could not say; ask again then.
    SwitchUnknown { again_ns: u64 },
    /// Given up: requests that know the target are in flight, and perhaps a chunk.
    Cancelled { free: Vec<Location> },
    /// Switched: requests that know the source are in flight.
    Switched { free: Vec<Location> },
}

#[derive(Debug)]
pub(super) struct Mover {
    order: MoveOrder,
    phase: Phase,
    pace: Pace,
    copied: u64,
    /// Bytes that were not on the target at first, less those that were switched; for moves of some extents, of which it
    /// takes long to add them up.
    left: Bytes,
    /// Ends with the last request from before the relocation.
    earlier: Option<Epoch>,
    /// A chunk of a batch that was given up, still on its way.
    abandoned: Option<Chunk>,
    /// Number of the batch.
    batch: u64,
    /// Losses of the target when the batch began: one more, and what was copied may be lost.
    losses: u64,
    /// Set when it is to end, with the reason.
    stop: Option<StopReason>,
    cursor: usize,
    /// When the copy last made progress.
    progress_ns: u64,
    wake_ns: u64,
}

impl Mover {
    pub(super) fn order(&self) -> &MoveOrder {
        &self.order
    }

    pub(super) fn rate(&self) -> BytesPerSec {
        self.pace.rate()
    }
}

impl<G> Engine<G> {
    /// Starts a move; refused while there is another.
    pub fn start_move(&mut self, now_ns: u64, order: MoveOrder) -> Result<(), MoveStatus> {
        if let Some(status) = self.move_status() {
            return Err(status);
        }
        self.now_ns = now_ns;
        let last = order.extents.as_ref().and_then(ExtentRanges::last);
        assert!(
            last.is_none_or(|last| (last as usize) < self.map.extents()),
            "whoever orders a move knows the volume"
        );
        self.mover = Some(Mover {
            pace: Pace::new(order.bandwidth),
            left: self.map.bytes_not_on(order.selection(), order.to),
            order,
            phase: Phase::Choose,
            copied: 0,
            earlier: None,
            abandoned: None,
            batch: 0,
            losses: 0,
            stop: None,
            cursor: 0,
            progress_ns: now_ns,
            wake_ns: 0,
        });
        self.settle();
        Ok(())
    }

    /// Ends a move as soon as that is safe; the answer is [`Effect::MoveEnded`]. Whether there is one.
    pub fn cancel_move(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        let running = self.mover.is_some();
        self.give_up(StopReason::Cancelled);
        self.settle();
        running
    }

    /// How far the move is, if there is one.
    pub fn move_status(&self) -> Option<MoveStatus> {
        let mover = self.mover.as_ref()?;
        Some(MoveStatus {
            to: mover.order.to,
            extents: mover.order.extents.clone(),
            copied: Bytes(mover.copied),
            left: match mover.order.selection() {
                Selection::Whole => self.map.bytes_not_on(Selection::Whole, mover.order.to),
                Selection::Extents(_) => mover.left,
            },
            rate: mover.rate(),
            phase: match mover.phase {
                Phase::Choose | Phase::Reserving { .. } | Phase::Grace => "preparing",
                Phase::Copying { .. } => "copying",
                Phase::Flushing { .. } => "flushing",
                Phase::Switching | Phase::SwitchUnknown { .. } => "switching",
                Phase::Cancelled { .. } | Phase::Switched { .. } => "draining",
            },
        })
    }

    /// The move is to end. What is under way ends first.
    fn give_up(&mut self, why: StopReason) {
        let Some(mover) = &mut self.mover else { return };
        mover.stop.get_or_insert(why);
        match mover.phase {
            Phase::Copying { chunk } => mover.abandoned = chunk,
            Phase::Grace | Phase::Flushing { .. } => {}
            // Choosing, reserving: when the slots come. Switching: too late. Draining: it ends by itself.
            _ => return,
        }
        let free = self.map.batch_targets().into_iter().map(|t| t.1).collect();
        mover.phase = Phase::Cancelled { free };
        self.map
            .cancel_relocation()
            .expect("a relocation before its switch can be given up");
        self.retry = Retry::All;
    }

    /// A write, or flush, that was to keep the target alike failed there. Whether that harms nobody but the move.
    pub(super) fn mirror_failed(&mut self, fault: Fault) -> bool {
        self.give_up(match fault.failure() {
            Some(failure) if failure.kind == IoKind::Flush => {
                StopReason::TargetFlush(Some(failure))
            }
            _ => StopReason::TargetWrite(fault),
        });
        // From the request for the switch on, the target may be the truth.
        let given_up = |m: &Mover| matches!(m.phase, Phase::Cancelled { .. });
        self.mover.as_ref().is_some_and(given_up)
    }

    pub(super) fn step_move(&mut self) {
        let Some(mover) = &mut self.mover else { return };
        if mover.earlier.is_some_and(|e| self.grace.passed(e)) {
            mover.earlier = None;
            self.map.earlier_complete();
        }
        match &mover.phase {
            Phase::Choose => self.choose_batch(),
            Phase::Grace if mover.earlier.is_none() => {
                self.set_phase(Phase::Copying { chunk: None });
                self.copy_next();
            }
            Phase::Copying { chunk: None } => self.copy_next(),
            Phase::SwitchUnknown { again_ns } if *again_ns <= self.now_ns => self.ask_for_switch(),
            Phase::Cancelled { .. } | Phase::Switched { .. } => self.drain(),
            _ => {}
        }
        self.watch_progress();
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(mover) = &mut self.mover {
            mover.phase = phase;
            mover.progress_ns = self.now_ns;
        }
    }

    fn watch_progress(&mut self) {
        let stuck = self.mover.as_ref().is_some_and(|m| {
            let allowed_ns = m.progress_ns.max(m.pace.next_ns());
            self.now_ns.saturating_sub(allowed_ns) > STUCK_NS
        });
        if stuck {
            let to = self.mover.as_ref().map(|m| m.order.to);
            let late = self.late_io(|io| match io.owner {
                Owner::CopyRead | Owner::CopyWrite => true,
                Owner::Flush => Some(io.device) == to,
                _ => false,
            });
            self.give_up(StopReason::NoProgress(late));
        }
    }

    fn choose_batch(&mut self) {
        let mover = self.mover.as_ref().expect("a step of a move");
        if let Some(why) = mover.stop {
            return self.end_move(Some(why));
        }
        let (to, selection) = (mover.order.to, mover.order.selection());
        let next = |cursor| {
            let batch = self.limits.batch;
            self.map.next_batch(selection, cursor, to, batch)
        };
        // Extents before the cursor may have been placed elsewhere since: look again from the start.
        let Some(range) = next(mover.cursor).or_else(|| next(0)) else {
            return self.end_move(None);
        };
        let moves = |e: &usize| {
            let elsewhere = self.map.location(*e).is_some_and(|l| l.device != to);
            elsewhere && selection.contains(*e)
        };
        let extents: Vec<usize> = range.clone().filter(moves).collect();
        self.effects.push(Effect::Store(StoreRequest::Reserve {
            device: to,
            count: extents.len(),
        }));
        self.mover.as_mut().expect("a step of a move").cursor = range.end;
        self.set_phase(Phase::Reserving {
            first: range.start,
            extents,
        });
    }

    pub(super) fn reserved(&mut self, slots: Result<Vec<Location>, Fault>) {
        let mover = self.mover.as_mut().expect("slots are for a move");
        let phase = std::mem::replace(&mut mover.phase, Phase::Choose);
        let Phase::Reserving { first, extents } = phase else {
            unreachable!("slots come when they were asked for");
        };
        let slots = match slots {
            Ok(slots) => slots,
            Err(fault) => {
                mover.stop.get_or_insert(match fault {
                    Fault::NoSpace => StopReason::NoSpace,
                    Fault::Lost => StopReason::TargetLost,
                    _ => StopReason::Store,
                });
                return;
            }
        };
        // Some may have been trimmed meanwhile.
        let (stays, to) = (mover.stop.is_some(), mover.order.to);
        let mut targets = vec![];
        let mut unused = vec![];
        for (extent, slot) in extents.into_iter().zip(slots) {
            let gone = self.map.location(extent).is_none_or(|l| l.device == to);
            if stays || gone {
                unused.push(slot);
            } else {
                targets.resize(extent - first, None);
                targets.push(Some(slot));
            }
        }
        if !unused.is_empty() {
            let free = StoreRequest::Free { slots: unused };
            self.effects.push(Effect::Store(free));
        }
        if targets.is_empty() {
            return;
        }
        self.map
            .begin_relocation(
                Batch { first, targets },
                self.limits.copy_chunk,
                Earlier::InFlight,
            )
            .expect("one relocation at a time, of extents that have a place");
        let earlier = self.grace.end_epoch();
        self.begins_on(to);
        let losses = self.losses(to);
        self.batches += 1;
        let mover = self.mover.as_mut().expect("slots are for a move");
        mover.earlier = Some(earlier);
        (mover.batch, mover.losses) = (self.batches, losses);
        self.set_phase(Phase::Grace);
    }

    fn copy_next(&mut self) {
        let mover = self.mover.as_mut().expect("a step of a move");
        let next_ns = mover.pace.next_ns();
        if self.now_ns < next_ns {
            if mover.wake_ns != next_ns {
                mover.wake_ns = next_ns;
                self.effects.push(Effect::Wake(next_ns));
            }
            return;
        }
        match self.map.next_copy().expect("a relocation is under way") {
            CopyStep::Copy(chunk) => {
                mover.pace.took(self.now_ns, chunk.length, &self.latency);
                self.set_phase(Phase::Copying { chunk: Some(chunk) });
                let (source, _) = self.map.copy_ends(chunk);
                self.copy_io(Owner::CopyRead, chunk, source, IoKind::Read);
            }
            // The next completion steps the move again.
            CopyStep::Wait => {}
            CopyStep::Done => self.flush_target(),
        }
    }

    fn copy_io(&mut self, owner: Owner, chunk: Chunk, end: (DeviceId, u64), kind: IoKind) {
        let part = DeviceIo {
            device: end.0,
            op: Op::Read,
            offset: chunk.offset,
            length: chunk.length,
            at: end.1,
            mirror: false,
        };
        let data = match kind {
            IoKind::Read | IoKind::Write { .. } => DataRef::Copy,
            _ => DataRef::None,
        };
        self.start_io(owner, part, kind, data);
    }

    pub(super) fn copy_read_done(&mut self, result: Result<(), Fault>, zeroes: Zeroes) {
        let Some(chunk) = self.chunk_in_flight() else {
            return self.abandoned_chunk_is_over();
        };
        if let Err(fault) = result {
            return self.copy_failed(StopReason::Source(fault));
        }
        self.set_phase(Phase::Copying { chunk: Some(chunk) });
        let (_, target) = self.map.copy_ends(chunk);
        let kind = match zeroes {
            Zeroes::No => IoKind::Write { durable: false },
            Zeroes::All => IoKind::Zero,
        };
        self.copy_io(Owner::CopyWrite, chunk, target, kind);
    }

    pub(super) fn copy_write_done(&mut self, result: Result<(), Fault>) {
        let Some(chunk) = self.chunk_in_flight() else {
            return self.abandoned_chunk_is_over();
        };
        if let Err(fault) = result {
            return self.copy_failed(StopReason::TargetWrite(fault));
        }
        self.map.copied(chunk).expect("a relocation is under way");
        self.mover.as_mut().expect("a chunk has its move").copied += chunk.length;
        self.set_phase(Phase::Copying { chunk: None });
        self.retry
            .touching(chunk.offset..chunk.offset + chunk.length);
    }

    fn chunk_in_flight(&self) -> Option<Chunk> {
        match self.mover.as_ref().map(|m| &m.phase) {
            Some(Phase::Copying { chunk }) => *chunk,
            _ => None,
        }
    }

    /// The chunk that failed is over too.
    fn copy_failed(&mut self, why: StopReason) {
        self.give_up(why);
        self.abandoned_chunk_is_over();
    }

    fn abandoned_chunk_is_over(&mut self) {
        let mover = self.mover.as_mut().expect("a move ends after its chunks");
        let chunk = mover.abandoned.take().expect("a copy has its chunk");
        self.map
            .copy_abandoned(chunk)
            .expect("the relocation waits for its chunks");
    }

    /// Everything copied becomes durable on the target before the switch may be.
    fn flush_target(&mut self) {
        let mut devices: Vec<DeviceId> = self
            .map
            .batch_targets()
            .iter()
            .map(|t| t.1.device)
            .collect();
        devices.dedup();
        self.set_phase(Phase::Flushing {
            left: devices.len() as u32,
        });
        let batch = self.mover.as_ref().expect("a step of a move").batch;
        for device in devices {
            self.start_flush(Owner::MoveFlush { batch }, device);
        }
    }

    pub(super) fn move_flush_done(&mut self, batch: u64) {
        let Some(mover) = self.mover.as_mut().filter(|m| m.batch == batch) else {
            return; // given up meanwhile, and perhaps another one is under way
        };
        let (to, losses) = (mover.order.to, mover.losses);
        let Phase::Flushing { left } = &mut mover.phase else {
            return; // given up meanwhile
        };
        *left -= 1;
        let over = *left == 0;
        // Whoever's flush it was that failed: what was copied before it may be lost, and this flush does not know of it.
        if self.losses(to) > losses {
            let loss = self.loss(to).failure();
            self.give_up(StopReason::TargetFlush(loss));
        } else if over {
            self.ask_for_switch();
        }
    }

    fn ask_for_switch(&mut self) {
        let targets = self.map.batch_targets();
        let places = targets.into_iter().map(|(e, l)| (e as u32, l)).collect();
        self.set_phase(Phase::Switching);
        self.effects
            .push(Effect::Store(StoreRequest::Switch { places }));
    }

    pub(super) fn switched(&mut self, done: Result<(), Fault>) {
        if done.is_err() {
            // It may be durable. Both ends are kept alike, so either answer after a crash is right.
            let again_ns = self.now_ns + SWITCH_RETRY_NS;
            self.set_phase(Phase::SwitchUnknown { again_ns });
            self.effects.push(Effect::Wake(again_ns));
            return;
        }
        let targets = self.map.batch_targets();
        let switched: Bytes = targets.iter().map(|t| self.map.bytes_of(t.0)).sum();
        let free = self.map.switch().expect("source and target are alike");
        let mover = self.mover.as_mut().expect("a switch has its move");
        mover.left = mover.left.saturating_sub(switched);
        self.set_phase(Phase::Switched { free });
        self.retry = Retry::All;
    }

    fn drain(&mut self) {
        if !self.map.released() {
            return;
        }
        let mover = self.mover.as_mut().expect("a move drains");
        let (Phase::Cancelled { free } | Phase::Switched { free }) = &mut mover.phase else {
            unreachable!("only a draining move is released");
        };
        let slots = std::mem::take(free);
        self.effects
            .push(Effect::Store(StoreRequest::Free { slots }));
        self.set_phase(Phase::Choose);
        self.retry = Retry::All;
    }

    fn end_move(&mut self, why: Option<StopReason>) {
        let mover = self.mover.take().expect("a move ends once");
        let copied = Bytes(mover.copied);
        self.effects.push(Effect::Store(StoreRequest::MoveOver));
        self.effects.push(Effect::MoveEnded(match why {
            None => MoveEnd::Done { copied },
            Some(why) => MoveEnd::Stopped { why, copied },
        }));
    }
}
