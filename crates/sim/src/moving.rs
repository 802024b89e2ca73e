//! Moves in the simulated array: carries orders out against volumes, space and devices.
//!
//! A move is done in batches: each waits for the requests issued before it, is copied at the order's rate, switched and released, then
//! the next one begins.

use algo::mix;
use manager::wire::{JobProgress, MoveOrder};
use model::{ExtentRanges, Op};
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};
use volume::{BATCH_BYTES, Batch, Chunk, CopyStep, Earlier, Location, RelocationError, Selection};

use crate::device::Io;
use crate::engine::{Event, Simulation};

/// How long a copy waits when the piece it wants has guest writes in flight.
const COPY_RETRY_NS: u64 = 200_000;

/// What a move is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Batches are copied, switched and released.
    Copying,
    /// All is copied; the last batch is switched when the rate allows it.
    Switching,
    /// The last batch is switched; its source is being drained.
    Releasing,
    /// What was switched stays, what was not is being drained.
    GivenUp,
}

/// A move, and the volume that it moves, in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MoveNo {
    pub(crate) job: u32,
    pub(crate) volume: u32,
}

/// A move as the array carries it out: batch after batch, each with its own copy, switch and release.
pub(crate) struct Moving {
    pub(crate) job: u32,
    pub(crate) to: DeviceId,
    /// What of the volume moves; `None` is all of it.
    pub(crate) extents: Option<ExtentRanges>,
    pub(crate) rate: BytesPerSec,
    /// Bytes copied, those copied again included.
    pub(crate) copied: Bytes,
    phase: Phase,
    /// Earliest time of the next piece.
    next_copy_ns: u64,
    /// The piece that is being copied.
    chunk: Option<Chunk>,
    /// Where to look for the next batch.
    cursor: usize,
    /// Space on the target for what is not released to it yet.
    pub(crate) reserved: Bytes,
    /// Places that are free once the batch is released: the targets, or what they came to replace after the switch.
    places: Vec<Location>,
    /// Bytes of the batch, by the device that they leave.
    leaving: Vec<(DeviceId, Bytes)>,
    /// The batch is on the target; what was its place waits for the requests that know it.
    switched: bool,
    /// When the requests that the batch waits for before its copy, or after its switch, are complete.
    quiet_ns: u64,
}

impl Moving {
    fn selected(&self) -> Selection<'_> {
        self.extents
            .as_ref()
            .map_or(Selection::Whole, Selection::Extents)
    }

    fn leaves(&mut self, device: DeviceId, bytes: Bytes) {
        match self.leaving.iter_mut().find(|l| l.0 == device) {
            Some(l) => l.1 += bytes,
            None => self.leaving.push((device, bytes)),
        }
    }

    /// Whether the batch waits to be released.
    #[cfg(test)]
    pub(crate) fn switched(&self) -> bool {
        self.switched
    }

    /// Places that the batch holds besides its volume's.
    #[cfg(test)]
    pub(crate) fn places(&self) -> &[Location] {
        &self.places
    }

    /// Adds what the move has reserved by device; what left its place and is not released yet is still used there.
    #[cfg(test)]
    pub(crate) fn count(&self, used: &mut [Bytes], reserved: &mut [Bytes]) {
        reserved[self.to.index()] += self.reserved;
        for (from, bytes) in self.leaving.iter().filter(|_| self.switched) {
            used[from.index()] += *bytes;
            used[self.to.index()] -= *bytes;
        }
    }

    /// Bytes still to copy after the batch that is being copied: what is reserved and not for the batch.
    fn after_batch(&self) -> Bytes {
        self.reserved - self.leaving.iter().map(|l| l.1).sum()
    }
}

impl Simulation<'_> {
    /// The move of that number, if its volume is still at it in that phase.
    fn moving(&mut self, no: MoveNo, phase: Phase) -> Option<&mut Moving> {
        let moving = self.moving[no.volume as usize].as_mut();
        moving.filter(|m| m.job == no.job && m.phase == phase)
    }

    /// Reserves space for what is not on the target yet and begins with the first batch; whether there was room.
    pub(crate) fn begin_move(
        &mut self,
        now_ns: u64,
        volume: usize,
        to: DeviceId,
        order: &MoveOrder,
    ) -> bool {
        let mut moving = Moving {
            job: order.job,
            to,
            extents: order.extents.clone(),
            rate: BytesPerSec(order.rate_bytes_per_s),
            copied: Bytes::ZERO,
            phase: Phase::Copying,
            next_copy_ns: now_ns,
            chunk: None,
            cursor: 0,
            reserved: Bytes::ZERO,
            places: vec![],
            leaving: vec![],
            switched: false,
            quiet_ns: now_ns,
        };
        let size = self.world.maps[volume].bytes_not_on(moving.selected(), to);
        let d = to.index();
        let capacity = self.model.topology.device(to).spec.capacity;
        if self.used[d] + self.reserved[d] + size > capacity || self.moving[volume].is_some() {
            return false;
        }
        self.reserved[d] += size;
        moving.reserved = size;
        self.begin_batch(now_ns, volume, moving);
        let (job, volume) = (order.job, volume as u32);
        self.agenda
            .at(now_ns, Event::CopyStart(MoveNo { job, volume }));
        true
    }

    /// Gives the move of a volume up. The last batch that was copied is the target's; what follows stays where it is.
    pub(crate) fn cancel_move(&mut self, now_ns: u64, v: usize) {
        let Some(moving) = self.moving[v].as_mut() else {
            return;
        };
        if moving.phase != Phase::Copying {
            return; // as good as done
        }
        moving.phase = Phase::GivenUp;
        match self.world.maps[v].cancel_relocation() {
            Ok(()) => self.retry_held(now_ns, v),
            Err(RelocationError::TooLate) => {}
            Err(e) => unreachable!("a move has a relocation: {e}"),
        }
        self.release_if_drained(now_ns, v);
    }

    /// Begins with the next batch of a move; there is one.
    fn begin_batch(&mut self, now_ns: u64, volume: usize, mut moving: Moving) {
        let map = &mut self.world.maps[volume];
        let to = moving.to;
        let extents = map
            .next_batch(moving.selected(), moving.cursor, to, BATCH_BYTES)
            .expect("the last batch ends the copy");
        moving.cursor = extents.end;
        moving.leaving.clear();
        moving.switched = false;
        moving.quiet_ns = self.world.last_done_ns[volume];
        let first = extents.start;
        let mut targets = Vec::with_capacity(extents.len());
        for extent in extents {
            let meant = moving.selected().contains(extent);
            let source = map.location(extent);
            let source = source.filter(|l| l.device != to && meant);
            if let Some(source) = source {
                moving.leaves(source.device, map.bytes_of(extent));
            }
            let slots = &mut self.world.slots[to.index()];
            let target = source.map(|_| Location {
                device: to,
                slot: slots.take(),
            });
            targets.push(target);
        }
        moving.places = targets.iter().flatten().copied().collect();
        let earlier = if moving.quiet_ns > now_ns {
            let volume = volume as u32;
            self.agenda.at(moving.quiet_ns, Event::Earlier { volume });
            Earlier::InFlight
        } else {
            Earlier::None
        };
        map.begin_relocation(Batch { first, targets }, self.model.copy_chunk, earlier)
            .expect("the volume is at rest, and the batch is elsewhere");
        self.moving[volume] = Some(moving);
        self.world.refresh_route(volume);
    }

    /// A request on a volume that is being moved is complete: what waited for it may go on.
    pub(crate) fn after_completion(&mut self, now_ns: u64, volume: usize) {
        self.retry_held(now_ns, volume);
        self.release_if_drained(now_ns, volume);
    }

    /// The last batch's switch.
    pub(crate) fn switch(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        let Some(moving) = self.moving(no, Phase::Switching) else {
            return;
        };
        moving.phase = Phase::Releasing;
        self.switch_batch(v);
        self.release_if_drained(now_ns, v);
        self.retry_held(now_ns, v);
    }

    /// Makes the target the truth for one batch. In the simulation a switch is durable at once.
    fn switch_batch(&mut self, volume: usize) {
        let left = self.world.maps[volume]
            .switch()
            .expect("switched when all of the batch is copied");
        self.world.refresh_route(volume);
        let moving = self.moving[volume].as_mut().expect("a batch has its move");
        moving.switched = true;
        moving.places = left;
        moving.quiet_ns = self.world.last_done_ns[volume];
    }

    /// Once no request knows what a batch gave up: frees the source of one that was switched, and goes on to the next batch
    /// or to the end. Of a move that was given up the space that it did not come to use is free.
    fn release_if_drained(&mut self, now_ns: u64, volume: usize) {
        if !self.world.maps[volume].released() {
            return;
        }
        self.world.refresh_route(volume);
        let mut moving = self.moving[volume].take().expect("a batch has its move");
        let to = moving.to.index();
        self.world.give_back(&mut moving.places);
        if moving.switched {
            for (from, bytes) in &moving.leaving {
                self.used[from.index()] -= *bytes;
                self.used[to] += *bytes;
                self.reserved[to] -= *bytes;
                moving.reserved -= *bytes;
            }
        }
        match moving.phase {
            Phase::Copying => self.begin_batch(now_ns, volume, moving),
            Phase::Switching => unreachable!("a batch that is to be switched is not released"),
            Phase::Releasing => {
                let copied_bytes = moving.copied.0;
                let done = JobProgress::Done { copied_bytes };
                self.move_ended(moving.job, done);
            }
            Phase::GivenUp => {
                self.reserved[to] -= moving.reserved;
                let failed = JobProgress::Failed {
                    why: "given up".into(),
                    copied_bytes: moving.copied.0,
                };
                self.move_ended(moving.job, failed);
            }
        }
    }

    /// Half of the copy of a piece; when it is done.
    fn copy_io(
        &mut self,
        now_ns: u64,
        volume: usize,
        op: Op,
        (device, at): (DeviceId, u64),
        length: u64,
    ) -> u64 {
        self.copies += 1;
        let io = Io {
            op,
            at,
            length,
            volume: VolumeId::from_index(volume),
            copy: true,
            bits: mix(mix(self.model.seed, 0xC0B1), self.copies),
        };
        self.world.devices[device.index()].submit(now_ns, &io)
    }

    pub(crate) fn copy_start(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        if self.moving(no, Phase::Copying).is_none() {
            return; // given up meanwhile
        }
        match self.world.maps[v]
            .next_copy()
            .expect("a move that copies has a relocation")
        {
            CopyStep::Copy(chunk) => {
                let (source, _) = self.world.maps[v].copy_ends(chunk);
                let done = self.copy_io(now_ns, v, Op::Read, source, chunk.length);
                if let Some(moving) = &mut self.moving[v] {
                    moving.chunk = Some(chunk);
                }
                self.agenda.at(done, Event::CopyRead(no));
            }
            // Done: the batch was switched, and the next one begins when its source is released.
            CopyStep::Wait | CopyStep::Done => {
                let moving = self.moving[v].as_mut().expect("it was just looked at");
                let retry_ns = moving.quiet_ns.max(now_ns + COPY_RETRY_NS);
                moving.next_copy_ns = moving.next_copy_ns.max(retry_ns);
                let at_ns = moving.next_copy_ns;
                self.agenda.at(at_ns, Event::CopyStart(no));
            }
        }
    }

    pub(crate) fn copy_read(&mut self, now_ns: u64, no: MoveNo) {
        let Some(moving) = self.moving(no, Phase::Copying) else {
            return self.abandon_copy(now_ns, no);
        };
        let chunk = moving.chunk.expect("a piece was read");
        let v = no.volume as usize;
        let (_, target) = self.world.maps[v].copy_ends(chunk);
        let done = self.copy_io(now_ns, v, Op::Write, target, chunk.length);
        self.agenda.at(done, Event::CopyWritten(no));
    }

    pub(crate) fn copy_written(&mut self, now_ns: u64, no: MoveNo) {
        let Some(moving) = self.moving(no, Phase::Copying) else {
            return self.abandon_copy(now_ns, no);
        };
        let chunk = moving.chunk.take().expect("a piece was written");
        let after_batch = moving.after_batch();
        let v = no.volume as usize;
        let map = &mut self.world.maps[v];
        let of_batch = map
            .copied(chunk)
            .expect("a move that copies has a relocation");
        // The last switch waits for the rate; those before it need not.
        if map.ready_to_switch() && after_batch > Bytes::ZERO {
            self.switch_batch(v);
            self.release_if_drained(now_ns, v);
        }
        self.retry_held(now_ns, v);
        let moving = self
            .moving(no, Phase::Copying)
            .expect("it is not copied to its end");
        let bytes = Bytes(chunk.length);
        moving.copied += bytes;
        moving.next_copy_ns = now_ns.max(moving.next_copy_ns + moving.rate.time_for(bytes).0);
        let at_ns = moving.next_copy_ns;
        if of_batch + after_batch == Bytes::ZERO {
            moving.phase = Phase::Switching;
            self.agenda.at(at_ns, Event::Switch(no));
        } else {
            self.agenda.at(at_ns, Event::CopyStart(no));
        }
    }

    /// A piece of a move that was given up meanwhile.
    fn abandon_copy(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        let Some(moving) = self.moving(no, Phase::GivenUp) else {
            return;
        };
        if let Some(chunk) = moving.chunk.take() {
            self.world.maps[v]
                .copy_abandoned(chunk)
                .expect("its relocation waits for it");
            self.release_if_drained(now_ns, v);
        }
    }
}
