//! Move of a volume, or of some of its extents, batch by batch, while its guest uses it.
//!
//! ```text
//!  reserve slots ─▶ wait for earlier requests ─▶ copy chunks ─▶ flush target ─▶ store the switch ─▶ drain ─▶ free the source
//!       ▲                        │                    │               │                │                          │
//!       │                        └── cancel, I/O error┴───────────────┘                │ the result is unknown:   │
//!       │                                    ▼                                         │ keep mirroring, retry    │
//!       │                     drain ─▶ free the target; source intact                  ▼                          │
//!       └──────────────────────────────── next batch ─────────────────────────────────────────────────────────────┘
//! ```
//!
//! A switched batch stays switched if the move ends early. The volume is then on both devices, which is a valid state. A
//! resumed move continues with the extents that are not on its target yet.
//!
//! The mover does no I/O and has no clock. Its driver takes steps ([`Mover::step`]) and carries them out. Its devices and
//! its store complete later and may fail; a simulated store completes at once. The driver steps the mover after each event
//! of the volume. The driver chooses the reasons for an early end, of type `W`.

use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId};

use crate::map::{Batch, EarlierRequests, Location, VolumeMap};
use crate::pace::{GuestLatency, Pace};
use crate::relocation::{Chunk, CopyStep};
use crate::selection::Selection;
use crate::slack::NeighborSlack;

/// Delay before the switch is retried if its result is unknown, ns.
const SWITCH_RETRY_NS: u64 = 200_000_000;

/// Time without progress of a permitted copy after which a move should be cancelled, ns. Protects guest writes from being
/// held or mirrored for ever.
const STUCK_NS: u64 = 60_000_000_000;

/// Order for a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveOrder {
    /// Target device.
    pub to: DeviceId,
    /// Highest rate.
    pub bandwidth: BytesPerSec,
    /// Extents to move; the others stay. The volume must have them. `None` moves all extents, including those that are first
    /// written during the move.
    pub extents: Option<ExtentRanges>,
    /// Purpose of the copies.
    pub purpose: Purpose,
}

/// Purpose of copied extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The target becomes their place.
    #[default]
    Move,
    /// Both copies are kept equal until the mover is cancelled: the extents are mirrored ([`VolumeMap::share_reads`]). All
    /// extents are one batch. The mirror ends with the driver, and the places of the extents do not change.
    Mirror,
}

impl MoveOrder {
    /// Returns the extents to move.
    pub fn selection(&self) -> Selection<'_> {
        match &self.extents {
            None => Selection::Whole,
            Some(ranges) => Selection::Extents(ranges),
        }
    }
}

/// Sizes that limit a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveLimits {
    /// Size of a batch, which is switched together, bytes.
    pub batch: Bytes,
    /// Size of one chunk of a copy, bytes.
    pub chunk: Bytes,
}

/// Guests to which a move yields.
#[derive(Debug, Clone, Copy)]
pub struct Guests<'a> {
    /// Latency of the moving volume.
    pub own: &'a GuestLatency,
    /// Slack of other volumes on source and target.
    pub others: NeighborSlack,
}

/// Next step for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum MoveStep {
    /// Allocate slots on the target and report with [`Mover::reserved`].
    Reserve {
        /// Target device.
        device: DeviceId,
        /// Number of slots.
        count: usize,
    },
    /// Call [`Mover::step`] again at this time, ns.
    Wake(u64),
    /// Read a chunk and report with [`Mover::chunk_read`] or [`Mover::chunk_failed`].
    Read {
        /// Chunk to read.
        chunk: Chunk,
        /// Device of the chunk, and its offset on the device.
        from: (DeviceId, u64),
    },
    /// Flush the target and report with [`Mover::flushed`].
    Flush {
        /// Target device.
        device: DeviceId,
    },
    /// Switch the batch to its targets durably and atomically ([`VolumeMap::batch_targets`]); report with
    /// [`Mover::switched`] or [`Mover::switch_unknown`].
    Switch,
    /// Free these slots: the sources of a switched batch, or the targets of a cancelled one. No request uses them any more.
    /// Held requests may continue.
    Free {
        /// Slots to free.
        slots: Vec<Location>,
    },
    /// The move is over: [`Mover::into_end`] returns its result.
    Over,
}

/// Result of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ReserveResult {
    /// Slots that are not needed after all; free them.
    pub unused: Vec<Location>,
    /// True if a batch was started. Call [`Mover::earlier_complete`] when all requests that are now in flight are complete.
    pub begun: bool,
}

/// Result of a flush of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum FlushResult {
    /// The whole batch is durable: carry out the switch as for [`MoveStep::Switch`].
    Durable,
    /// Copied data may be lost: the move must be cancelled.
    Lost,
    /// The batch was cancelled meanwhile.
    GivenUp,
}

#[derive(Debug)]
enum Phase {
    /// The next batch must be chosen.
    Choose,
    /// Slots were requested.
    Reserving { first: usize, extents: Vec<usize> },
    /// Requests from before the relocation are in flight.
    Earlier,
    /// Chunks are copied, one at a time.
    Copying { chunk: Option<Chunk> },
    /// All extents are copied and kept equal.
    Mirrored,
    /// The target is being flushed.
    Flushing,
    /// The switch was sent to the store.
    Switching,
    /// The result of the switch is unknown; it is retried at this time.
    SwitchUnknown { again_ns: u64 },
    /// Cancelled: requests that use the target are in flight, and perhaps a chunk.
    Cancelled { free: Vec<Location> },
    /// Switched: requests that use the source are in flight.
    Switched { free: Vec<Location> },
}

/// State machine of one move.
#[derive(Debug)]
pub struct Mover<W> {
    order: MoveOrder,
    limits: MoveLimits,
    phase: Phase,
    pace: Pace,
    copied: Bytes,
    /// Bytes that were not on the target at the start, minus those that were switched. It is used for moves of some extents,
    /// where the sum takes long.
    left: Bytes,
    /// True while requests from before the relocation are in flight.
    earlier: bool,
    /// Chunk of a cancelled batch that is still in flight.
    abandoned: Option<Chunk>,
    /// Number of losses of the target when the batch began. If it grows, copied data may be lost.
    losses: u64,
    /// Reason to end the move, once it is set.
    stop: Option<W>,
    cursor: usize,
    /// Time of the copy's last progress.
    progress_ns: u64,
    wake_ns: u64,
}

impl<W> Mover<W> {
    /// Creates a move. The volume must have the extents of the order.
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

    /// Returns the order.
    pub fn order(&self) -> &MoveOrder {
        &self.order
    }

    /// Returns the rate that the move may use now.
    pub fn rate(&self) -> BytesPerSec {
        self.pace.rate()
    }

    /// Returns the copied bytes, including repeated copies.
    pub fn copied(&self) -> Bytes {
        self.copied
    }

    /// Returns the bytes that are not on the target yet. For some extents it is an upper bound: trimmed extents still count.
    pub fn left(&self, map: &VolumeMap) -> Bytes {
        match self.order.selection() {
            Selection::Whole => map.bytes_not_on(Selection::Whole, self.order.to),
            Selection::Extents(_) => self.left,
        }
    }

    /// Returns the phase as one word.
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

    /// Returns true if the batch was cancelled: its source is authoritative, whatever happens to the target.
    pub fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::Cancelled { .. })
    }

    /// Returns true if all extents are mirrored.
    pub fn is_mirrored(&self) -> bool {
        matches!(self.phase, Phase::Mirrored)
    }

    /// Returns true between two batches, unless the move is to end.
    pub fn is_between(&self) -> bool {
        matches!(self.phase, Phase::Choose) && self.stop.is_none()
    }

    /// Returns true if the move is stuck and should be cancelled.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        let allowed_ns = self.progress_ns.max(self.pace.next_ns());
        !self.is_mirrored() && now_ns.saturating_sub(allowed_ns) > STUCK_NS
    }

    /// Returns the reason of an early end, if any, and the copied bytes.
    pub fn into_end(self) -> (Option<W>, Bytes) {
        (self.stop, self.copied)
    }

    /// Returns the next step; `None` until the next event. Call it again after each step.
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

    /// Ends the move with a reason; the operation in progress completes first. Returns true if a batch was cancelled, so
    /// that held requests may continue.
    pub fn give_up(&mut self, map: &mut VolumeMap, why: W) -> bool {
        self.stop.get_or_insert(why);
        match self.phase {
            Phase::Copying { chunk } => self.abandoned = chunk,
            Phase::Earlier | Phase::Flushing | Phase::Mirrored => {}
            // Choosing or reserving: the move ends when the slots arrive. Switching: it is too late. Draining: it ends by
            // itself.
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

    /// Returns `None` while all remaining extents are being copied up.
    fn choose_batch(&mut self, now_ns: u64, map: &VolumeMap) -> Option<MoveStep> {
        if self.stop.is_some() {
            return Some(MoveStep::Over);
        }
        let (to, selection) = (self.order.to, self.order.selection());
        let batch = match self.order.purpose {
            Purpose::Move => self.limits.batch,
            // All extents, including the last one, which may be shorter.
            Purpose::Mirror => Bytes(map.extents() as u64 * map.extent_bytes().0),
        };
        let next = |cursor| map.next_batch(selection, cursor, to, batch);
        // Extents before the cursor may have got other places since: search again from the start.
        let Some(range) = next(self.cursor).or_else(|| next(0)) else {
            return (!map.copies_up(selection)).then_some(MoveStep::Over);
        };
        let moves = |e: &usize| {
            let elsewhere = map.location(*e).is_some_and(|l| l.device != to);
            // Writes to a shared extent would wait for a switch that never comes.
            let kept = self.order.purpose == Purpose::Mirror && map.is_shared(*e);
            let stays = map.is_copied_up(*e) || map.is_at_source(*e) || kept;
            elsewhere && selection.contains(*e) && !stays
        };
        let mut extents: Vec<usize> = range.clone().filter(moves).collect();
        self.cursor = range.end;
        if let Some(shared) = extents.iter().position(|e| map.is_shared(*e)) {
            // Writes to a shared extent wait for the switch of its batch.
            extents.truncate(shared.max(1));
            self.cursor = extents.last().expect("one is left") + 1;
        }
        if extents.is_empty() {
            // All remaining extents are shared and cannot be mirrored.
            return Some(MoveStep::Over);
        }
        let count = extents.len();
        let first = range.start;
        self.enter(now_ns, Phase::Reserving { first, extents });
        Some(MoveStep::Reserve { device: to, count })
    }

    /// Passes the requested number of slots on the target, or the reason for their absence. `losses` is the target's number
    /// of losses so far.
    pub fn reserved(
        &mut self,
        now_ns: u64,
        map: &mut VolumeMap,
        slots: Result<Vec<Location>, W>,
        losses: u64,
    ) -> ReserveResult {
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
        // Some extents may have been trimmed meanwhile.
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
            map.begin_relocation(batch, self.limits.chunk, EarlierRequests::InFlight)
                .expect("one relocation at a time, of extents that have a place");
            (self.earlier, self.losses) = (true, losses);
            self.enter(now_ns, Phase::Earlier);
        }
        ReserveResult { unused, begun }
    }

    /// Reports that all requests from before the batch are complete.
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
            // All copied data must be durable on the target before the switch.
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

    /// Reports that a chunk was read. Returns its target: write it and report with [`Mover::chunk_written`] or
    /// [`Mover::chunk_failed`]. `None` if its batch was cancelled meanwhile; the chunk is then done.
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

    /// Reports that a chunk was written. Returns the chunk; held requests that touch it may continue. `None` if its batch
    /// was cancelled meanwhile.
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

    /// Reports that a chunk could not be read or written, and cancels the move. Returns true if this cancelled the batch, as
    /// in [`Mover::give_up`].
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

    /// Reports the end of a flush of the target, with the target's number of losses by now. Copied data may be lost if that
    /// number has grown since the batch began. Any flush can report the loss, so this one may have succeeded.
    pub fn flushed(&mut self, now_ns: u64, losses: u64) -> FlushResult {
        if !matches!(self.phase, Phase::Flushing) {
            return FlushResult::GivenUp;
        }
        if losses > self.losses {
            return FlushResult::Lost;
        }
        self.enter(now_ns, Phase::Switching);
        FlushResult::Durable
    }

    /// Reports that the switch is durable: the targets are authoritative, and held requests may continue.
    pub fn switched(&mut self, now_ns: u64, map: &mut VolumeMap) {
        let targets = map.batch_targets();
        let switched: Bytes = targets.iter().map(|t| map.bytes_of(t.0)).sum();
        let free = map.switch().expect("source and target are alike");
        self.left = self.left.saturating_sub(switched);
        self.enter(now_ns, Phase::Switched { free });
    }

    /// Reports that the result of the switch is unknown. Both ends are kept equal, so both results are correct after a
    /// crash. Step the mover again at the returned time: it retries the switch.
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
