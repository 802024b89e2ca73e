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
//!
//! The mover does no I/O and keeps no time. Its driver takes steps ([`Mover::step`]) and carries them out as it can: with devices
//! and a store that answer later and may fail, or, in simulation, with a store that answers at once. It steps the mover
//! after everything that happens to the volume. Why a move ends early is the driver's to say; `W` is how it says so.

use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId};

use crate::map::{Batch, Earlier, Location, VolumeMap};
use crate::pace::{GuestLatency, Pace};
use crate::relocation::{Chunk, CopyStep};
use crate::selection::Selection;
use crate::slack::Others;

/// How long to wait before the store is asked again for a switch that it could not confirm.
const SWITCH_RETRY_NS: u64 = 200_000_000;

/// A move whose copy made no progress for so long, while it was allowed to, is to be given up. Protects the guest's writes from
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
    /// What it is for.
    pub purpose: Purpose,
}

/// What extents are copied for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The target is their place.
    #[default]
    Move,
    /// Both are kept alike until it is given up: they are mirrored ([`VolumeMap::share_reads`]). All of them are one batch. Nothing of it outlasts the
    /// driver: where they are is as before.
    Mirror,
}

impl MoveOrder {
    /// What moves.
    pub fn selection(&self) -> Selection<'_> {
        match &self.extents {
            None => Selection::Whole,
            Some(ranges) => Selection::Extents(ranges),
        }
    }
}

/// Sizes that bound a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveLimits {
    /// Bytes of the extents that are moved, and switched, together.
    pub batch: Bytes,
    /// Bytes of one chunk of a copy.
    pub chunk: Bytes,
}

/// To whom a move yields.
#[derive(Debug, Clone, Copy)]
pub struct Guests<'a> {
    /// The volume's own.
    pub own: &'a GuestLatency,
    /// Those of other volumes, on the source and on the target.
    pub others: Others,
}

/// What the driver is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum MoveStep {
    /// Take so many slots on the target; answer with [`Mover::reserved`].
    Reserve {
        /// The target.
        device: DeviceId,
        /// How many.
        count: usize,
    },
    /// Step the mover again at this time, in nanoseconds.
    Wake(u64),
    /// Read a chunk; answer with [`Mover::chunk_read`] or [`Mover::chunk_failed`].
    Read {
        /// The chunk.
        chunk: Chunk,
        /// Its place: device, and first byte on it.
        from: (DeviceId, u64),
    },
    /// Flush the target; answer with [`Mover::flushed`].
    Flush {
        /// The target.
        device: DeviceId,
    },
    /// Make the batch's targets its places, durably and at once ([`VolumeMap::batch_targets`]); answer with [`Mover::switched`] or
    /// [`Mover::switch_unknown`].
    Switch,
    /// Nobody knows these slots any more: the sources of a batch that was switched, or the targets of one that was given
    /// up. What the map held back may go on.
    Free {
        /// The slots.
        slots: Vec<Location>,
    },
    /// The move is over: [`Mover::into_end`] says how.
    Over,
}

/// What came of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Reserved {
    /// Those that are not needed after all; free them.
    pub unused: Vec<Location>,
    /// A batch is to be copied to the others. Say [`Mover::earlier_complete`] when every request that is in flight now is
    /// complete.
    pub begun: bool,
}

/// What came of a flush of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// All of the batch is there for good: make the switch, as [`MoveStep::Switch`] says.
    Durable,
    /// What was copied may be lost: the move must be given up.
    Lost,
    /// The batch was given up meanwhile.
    GivenUp,
}

#[derive(Debug)]
enum Phase {
    /// The next batch is to be chosen.
    Choose,
    /// Slots were asked for.
    Reserving { first: usize, extents: Vec<usize> },
    /// Requests from before the relocation are in flight.
    Earlier,
    /// Chunks are copied; at most one at a time.
    Copying { chunk: Option<Chunk> },
    /// All of it is there, and kept alike.
    Mirrored,
    /// The target is being flushed.
    Flushing,
    /// The store was asked for the switch.
    Switching,
    /// The store could not say; ask again then.
    SwitchUnknown { again_ns: u64 },
    /// Given up: requests that know the target are in flight, and perhaps a chunk.
    Cancelled { free: Vec<Location> },
    /// Switched: requests that know the source are in flight.
    Switched { free: Vec<Location> },
}

/// One move.
#[derive(Debug)]
pub struct Mover<W> {
    order: MoveOrder,
    limits: MoveLimits,
    phase: Phase,
    pace: Pace,
    copied: Bytes,
    /// Bytes that were not on the target at first, less those that were switched; for moves of some extents, of which it
    /// takes long to add them up.
    left: Bytes,
    /// Requests from before the relocation are in flight.
    earlier: bool,
    /// A chunk of a batch that was given up, still on its way.
    abandoned: Option<Chunk>,
    /// Losses of the target when the batch began: one more, and what was copied may be lost.
    losses: u64,
    /// Set when it is to end, with the reason.
    stop: Option<W>,
    cursor: usize,
    /// When the copy last made progress.
    progress_ns: u64,
    wake_ns: u64,
}

impl<W> Mover<W> {
    /// A move of what `map` knows; the volume must have the extents.
    pub fn new(now_ns: u64, order: MoveOrder, limits: MoveLimits, map: &VolumeMap) -> Self {
        let last = order.extents.as_ref().and_then(ExtentRanges::last);
        assert!(
            last.is_none_or(|last| (last as usize) < map.extents()),
            "whoever orders a move knows the volume"
        );
        Self {
            pace: Pace::new(order.bandwidth),
            left: map.bytes_not_on(order.selection(), order.to),
            order,
            limits,
            phase: Phase::Choose,
            copied: Bytes::ZERO,
            earlier: false,
            abandoned: None,
            losses: 0,
            stop: None,
            cursor: 0,
            progress_ns: now_ns,
            wake_ns: 0,
        }
    }

    /// What was ordered.
    pub fn order(&self) -> &MoveOrder {
        &self.order
    }

    /// Bandwidth that it may take now.
    pub fn rate(&self) -> BytesPerSec {
        self.pace.rate()
    }

    /// Bytes copied, those copied again included.
    pub fn copied(&self) -> Bytes {
        self.copied
    }

    /// Bytes that are not on the target yet. Of some extents an upper bound: those that are trimmed meanwhile count on.
    pub fn left(&self, map: &VolumeMap) -> Bytes {
        match self.order.selection() {
            Selection::Whole => map.bytes_not_on(Selection::Whole, self.order.to),
            Selection::Extents(_) => self.left,
        }
    }

    /// What it does, in a word.
    pub fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Choose | Phase::Reserving { .. } | Phase::Earlier => "preparing",
            Phase::Copying { .. } => "copying",
            Phase::Mirrored => "mirrored",
            Phase::Flushing => "flushing",
            Phase::Switching | Phase::SwitchUnknown { .. } => "switching",
            Phase::Cancelled { .. } | Phase::Switched { .. } => "draining",
        }
    }

    /// Whether the batch was given up: its source is the truth, whatever becomes of the target.
    pub fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::Cancelled { .. })
    }

    /// Whether all that was to be mirrored is.
    pub fn is_mirrored(&self) -> bool {
        matches!(self.phase, Phase::Mirrored)
    }

    /// Whether it is between two batches, and there is to be another one.
    pub fn is_between(&self) -> bool {
        matches!(self.phase, Phase::Choose) && self.stop.is_none()
    }

    /// Whether it is stuck, and should be given up.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        let allowed_ns = self.progress_ns.max(self.pace.next_ns());
        !self.is_mirrored() && now_ns.saturating_sub(allowed_ns) > STUCK_NS
    }

    /// How it ended: why early, if so, and what was copied.
    pub fn into_end(self) -> (Option<W>, Bytes) {
        (self.stop, self.copied)
    }

    /// What to do next; `None` until something happens. To be asked again after each step that was carried out.
    pub fn step(
        &mut self,
        now_ns: u64,
        map: &mut VolumeMap,
        guests: Guests<'_>,
    ) -> Option<MoveStep> {
        match &self.phase {
            Phase::Choose => self.choose_batch(now_ns, map),
            Phase::Earlier if !self.earlier => {
                self.enter(now_ns, Phase::Copying { chunk: None });
                self.copy_next(now_ns, map, guests)
            }
            Phase::Copying { chunk: None } => self.copy_next(now_ns, map, guests),
            Phase::SwitchUnknown { again_ns } if *again_ns <= now_ns => {
                self.enter(now_ns, Phase::Switching);
                Some(MoveStep::Switch)
            }
            Phase::Cancelled { .. } | Phase::Switched { .. } => self.drain(now_ns, map),
            _ => None,
        }
    }

    /// The move is to end. What is under way ends first. Whether a batch was given up: what the map held back may go on.
    pub fn give_up(&mut self, map: &mut VolumeMap, why: W) -> bool {
        self.stop.get_or_insert(why);
        match self.phase {
            Phase::Copying { chunk } => self.abandoned = chunk,
            Phase::Earlier | Phase::Flushing | Phase::Mirrored => {}
            // Choosing, reserving: when the slots come. Switching: too late. Draining: it ends by itself.
            _ => return false,
        }
        let free = map.batch_targets().into_iter().map(|t| t.1).collect();
        self.phase = Phase::Cancelled { free };
        map.cancel_relocation()
            .expect("a relocation before its switch can be given up");
        true
    }

    fn enter(&mut self, now_ns: u64, phase: Phase) {
        self.phase = phase;
        self.progress_ns = now_ns;
    }

    /// None while all that is left of it is being copied up.
    fn choose_batch(&mut self, now_ns: u64, map: &VolumeMap) -> Option<MoveStep> {
        if self.stop.is_some() {
            return Some(MoveStep::Over);
        }
        let (to, selection) = (self.order.to, self.order.selection());
        let batch = match self.order.purpose {
            Purpose::Move => self.limits.batch,
            // All of it, with the last one that may be short.
            Purpose::Mirror => Bytes(map.extents() as u64 * map.extent_bytes().0),
        };
        let next = |cursor| map.next_batch(selection, cursor, to, batch);
        // Extents before the cursor may have been placed elsewhere since: look again from the start.
        let Some(range) = next(self.cursor).or_else(|| next(0)) else {
            return (!map.copies_up(selection)).then_some(MoveStep::Over);
        };
        let moves = |e: &usize| {
            let elsewhere = map.location(*e).is_some_and(|l| l.device != to);
            // Writes to what is shared would wait for a switch that never comes.
            let kept = self.order.purpose == Purpose::Mirror && map.is_shared(*e);
            let stays = map.is_copied_up(*e) || map.is_at_source(*e) || kept;
            elsewhere && selection.contains(*e) && !stays
        };
        let mut extents: Vec<usize> = range.clone().filter(moves).collect();
        self.cursor = range.end;
        if let Some(shared) = extents.iter().position(|e| map.is_shared(*e)) {
            // Writes to it wait for the switch of its batch.
            extents.truncate(shared.max(1));
            self.cursor = extents.last().expect("one is left") + 1;
        }
        if extents.is_empty() {
            // All that is left is shared, and cannot be mirrored.
            return Some(MoveStep::Over);
        }
        let count = extents.len();
        let first = range.start;
        self.enter(now_ns, Phase::Reserving { first, extents });
        Some(MoveStep::Reserve { device: to, count })
    }

    /// Slots on the target, as many as were asked for, or why there are none. `losses` are those that the target has had so far.
    pub fn reserved(
        &mut self,
        now_ns: u64,
        map: &mut VolumeMap,
        slots: Result<Vec<Location>, W>,
        losses: u64,
    ) -> Reserved {
        let phase = std::mem::replace(&mut self.phase, Phase::Choose);
        let Phase::Reserving { first, extents } = phase else {
            unreachable!("slots come when they were asked for");
        };
        let mut unused = vec![];
        let mut targets = vec![];
        let slots = slots.unwrap_or_else(|why| {
            self.stop.get_or_insert(why);
            vec![]
        });
        // Some may have been trimmed meanwhile.
        let (stays, to) = (self.stop.is_some(), self.order.to);
        for (extent, slot) in extents.into_iter().zip(slots) {
            assert_eq!(slot.device, to, "slots are on the target");
            let gone = map.location(extent).is_none_or(|l| l.device == to);
            if stays || gone || map.is_copied_up(extent) {
                unused.push(slot);
            } else {
                targets.resize(extent - first, None);
                targets.push(Some(slot));
            }
        }
        let begun = !targets.is_empty();
        if begun {
            let batch = Batch { first, targets };
            map.begin_relocation(batch, self.limits.chunk, Earlier::InFlight)
                .expect("one relocation at a time, of extents that have a place");
            (self.earlier, self.losses) = (true, losses);
            self.enter(now_ns, Phase::Earlier);
        }
        Reserved { unused, begun }
    }

    /// Every request that was in flight when the batch began is complete.
    pub fn earlier_complete(&mut self, map: &mut VolumeMap) {
        self.earlier = false;
        map.earlier_complete();
    }

    fn copy_next(
        &mut self,
        now_ns: u64,
        map: &mut VolumeMap,
        guests: Guests<'_>,
    ) -> Option<MoveStep> {
        let next_ns = self.pace.next_ns();
        if now_ns < next_ns && !map.is_wanted() {
            let wakes_already = std::mem::replace(&mut self.wake_ns, next_ns) == next_ns;
            return (!wakes_already).then_some(MoveStep::Wake(next_ns));
        }
        match map.next_copy().expect("a relocation is under way") {
            CopyStep::Copy(chunk) => {
                self.pace
                    .took(now_ns, chunk.length, guests.own, guests.others);
                self.enter(now_ns, Phase::Copying { chunk: Some(chunk) });
                let (from, _) = map.copy_ends(chunk);
                Some(MoveStep::Read { chunk, from })
            }
            // The next completion steps the move again.
            CopyStep::Wait => None,
            // Everything copied becomes durable on the target before the switch may be.
            CopyStep::Done if self.order.purpose == Purpose::Mirror => {
                self.enter(now_ns, Phase::Mirrored);
                None
            }
            CopyStep::Done => {
                self.enter(now_ns, Phase::Flushing);
                let device = self.order.to;
                Some(MoveStep::Flush { device })
            }
        }
    }

    fn chunk_in_flight(&self) -> Option<Chunk> {
        match self.phase {
            Phase::Copying { chunk } => chunk,
            _ => None,
        }
    }

    /// The chunk was read: write it there, and answer with [`Mover::chunk_written`] or [`Mover::chunk_failed`]. `None` if its
    /// batch was given up meanwhile, and the chunk is over.
    pub fn chunk_read(
        &mut self,
        now_ns: u64,
        map: &mut VolumeMap,
    ) -> Option<(Chunk, (DeviceId, u64))> {
        let Some(chunk) = self.chunk_in_flight() else {
            self.abandoned_chunk_is_over(map);
            return None;
        };
        self.progress_ns = now_ns;
        let (_, target) = map.copy_ends(chunk);
        Some((chunk, target))
    }

    /// The chunk was written: requests that were held and touch it may go on. `None` if its batch was given up meanwhile.
    pub fn chunk_written(&mut self, now_ns: u64, map: &mut VolumeMap) -> Option<Chunk> {
        let Some(chunk) = self.chunk_in_flight() else {
            self.abandoned_chunk_is_over(map);
            return None;
        };
        map.copied(chunk).expect("a relocation is under way");
        self.copied += Bytes(chunk.length);
        self.enter(now_ns, Phase::Copying { chunk: None });
        Some(chunk)
    }

    /// The chunk could not be read, or written, and is over; the move is given up. Whether its batch was given up by this, as in
    /// [`Mover::give_up`].
    pub fn chunk_failed(&mut self, map: &mut VolumeMap, why: W) -> bool {
        let gives_up = self.chunk_in_flight().is_some() && self.give_up(map, why);
        self.abandoned_chunk_is_over(map);
        gives_up
    }

    fn abandoned_chunk_is_over(&mut self, map: &mut VolumeMap) {
        let chunk = self.abandoned.take().expect("a copy has its chunk");
        map.copy_abandoned(chunk)
            .expect("the relocation waits for its chunks");
    }

    /// The flush of the target is over, and the target has had so many losses by now. What was copied may be lost if one of them is
    /// since the batch began, whoever's flush it was that told of it: this one may know of nothing.
    pub fn flushed(&mut self, now_ns: u64, losses: u64) -> Flushed {
        if !matches!(self.phase, Phase::Flushing) {
            return Flushed::GivenUp;
        }
        if losses > self.losses {
            return Flushed::Lost;
        }
        self.enter(now_ns, Phase::Switching);
        Flushed::Durable
    }

    /// The store has made the switch durable: the targets are the truth, and what the map held back may go on.
    pub fn switched(&mut self, now_ns: u64, map: &mut VolumeMap) {
        let targets = map.batch_targets();
        let switched: Bytes = targets.iter().map(|t| map.bytes_of(t.0)).sum();
        let free = map.switch().expect("source and target are alike");
        self.left = self.left.saturating_sub(switched);
        self.enter(now_ns, Phase::Switched { free });
    }

    /// The store cannot say whether the switch is durable. Both ends are kept alike, so either answer after a crash is right. Step
    /// the mover again at the time that is returned: it will ask again.
    pub fn switch_unknown(&mut self, now_ns: u64) -> u64 {
        let again_ns = now_ns + SWITCH_RETRY_NS;
        self.enter(now_ns, Phase::SwitchUnknown { again_ns });
        again_ns
    }

    fn drain(&mut self, now_ns: u64, map: &mut VolumeMap) -> Option<MoveStep> {
        if !map.released() {
            return None;
        }
        let (Phase::Cancelled { free } | Phase::Switched { free }) = &mut self.phase else {
            unreachable!("only a draining move is released");
        };
        let slots = std::mem::take(free);
        self.enter(now_ns, Phase::Choose);
        Some(MoveStep::Free { slots })
    }
}
