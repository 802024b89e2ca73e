//! Moves in the simulated array: executes the steps of [`volume::Mover`] on volumes, space and devices.
//!
//! Moves have the same steps and the same pace as live ones. They yield to guests of other volumes according to the
//! slack of their objectives in the last window. Unlike a live move, a simulated one does not yield to the guest of its
//! own volume. The store is immediate: slots are available, a flush takes no time, and a switch is durable at once.
//! Space on the target is reserved for the whole move at its start; space on the source is freed batch by batch.

use algo::mix;
use manager::wire::{JobProgress, MoveOrder};
use model::{ExtentRanges, Op};
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};
use volume::{
    BATCH_BYTES, FlushResult, GuestLatency, Guests, Location, MoveLimits, MoveStep, Mover,
    NeighborSlack, Purpose,
};

use crate::agenda::Event;
use crate::device::Io;
use crate::engine::Simulation;
use crate::world::World;

/// Identity of a move and its volume in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MoveNo {
    pub(crate) job: u32,
    pub(crate) volume: u32,
}

/// Only reason for an early end of a simulated move: it is no longer ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrderWithdrawal;

/// Move in progress and the space that it uses.
pub(crate) struct ActiveMove {
    pub(crate) job: u32,
    mover: Mover<OrderWithdrawal>,
    /// Reserved space on the target that was not released to the move yet.
    pub(crate) reserved: Bytes,
    /// Slots that become free at the release of the batch: those on the target before the switch, those on the source
    /// after it.
    places: Vec<Location>,
    /// Bytes of a switched batch that is not released yet, by source device.
    leaving: Vec<(DeviceId, Bytes)>,
}

impl ActiveMove {
    /// Returns true if this is a mirror, not a move.
    pub(crate) fn is_mirror(&self) -> bool {
        self.mover.order().purpose == Purpose::Mirror
    }

    /// Returns true if all extents of the mirror are copied.
    pub(crate) fn is_alike(&self) -> bool {
        self.mover.is_mirrored()
    }

    /// Returns the target device.
    pub(crate) fn to(&self) -> DeviceId {
        self.mover.order().to
    }

    /// Returns the extents that move; `None` for the whole volume.
    pub(crate) fn extents(&self) -> Option<&ExtentRanges> {
        self.mover.order().extents.as_ref()
    }

    /// Returns the bandwidth that the move may use now.
    pub(crate) fn rate(&self) -> BytesPerSec {
        self.mover.rate()
    }

    /// Returns the copied bytes, including repeated copies.
    pub(crate) fn copied(&self) -> Bytes {
        self.mover.copied()
    }

    fn leaves(&mut self, device: DeviceId, bytes: Bytes) {
        match self.leaving.iter_mut().find(|l| l.0 == device) {
            Some(l) => l.1 += bytes,
            None => self.leaving.push((device, bytes)),
        }
    }

    /// Returns true if a switched batch waits for its release.
    #[cfg(test)]
    pub(crate) fn switched(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns the slots that the batch holds in addition to those of the volume.
    #[cfg(test)]
    pub(crate) fn places(&self) -> &[Location] {
        &self.places
    }

    /// Adds the reserved space of the move by device. Data that was switched but not released still counts as used at
    /// its source.
    #[cfg(test)]
    pub(crate) fn count(&self, used: &mut [Bytes], reserved: &mut [Bytes]) {
        reserved[self.to().index()] += self.reserved;
        for (from, bytes) in &self.leaving {
            used[from.index()] += *bytes;
            used[self.to().index()] -= *bytes;
        }
    }
}

impl Simulation<'_> {
    /// Reserves space for data that is not on the target yet, and starts the move. Returns true if there was enough
    /// space.
    pub(crate) fn begin_move(
        &mut self,
        now_ns: u64,
        volume: usize,
        to: DeviceId,
        order: &MoveOrder,
    ) -> bool {
        let order_of = volume::MoveOrder {
            to,
            bandwidth: BytesPerSec(order.rate_bytes_per_s),
            extents: order.extents.clone(),
            purpose: Purpose::Move,
        };
        self.begin_copy(now_ns, volume, order.job, order_of)
    }

    /// Starts a copy for a move or a mirror.
    pub(crate) fn begin_copy(
        &mut self,
        now_ns: u64,
        volume: usize,
        job: u32,
        order: volume::MoveOrder,
    ) -> bool {
        let to = order.to;
        let limits = MoveLimits {
            batch: BATCH_BYTES,
            chunk: self.model.copy_chunk,
        };
        let map = &self.world.maps[volume];
        let size = map.bytes_not_on(order.selection(), to);
        let d = to.index();
        let capacity = self.model.topology.device(to).spec.capacity;
        if self.used[d] + self.reserved[d] + size > capacity || self.moving[volume].is_some() {
            return false;
        }
        self.reserved[d] += size;
        self.moving[volume] = Some(ActiveMove {
            job,
            mover: Mover::new(now_ns, order, limits, map),
            reserved: size,
            places: vec![],
            leaving: vec![],
        });
        self.step_move(now_ns, volume);
        true
    }

    /// Cancels the move of a volume. Batches that were switched stay on the target; the rest stays on the source.
    pub(crate) fn cancel_move(&mut self, now_ns: u64, v: usize) {
        let Some(moving) = self.moving[v].as_mut() else {
            return;
        };
        if moving
            .mover
            .give_up(&mut self.world.maps[v], OrderWithdrawal)
        {
            self.retry_held(now_ns, v);
        }
        self.step_move(now_ns, v);
    }

    /// Handles the completion of a request on a moving volume. Requests and steps that waited for it may continue.
    pub(crate) fn after_completion(&mut self, now_ns: u64, volume: usize) {
        self.retry_held(now_ns, volume);
        self.step_move(now_ns, volume);
    }

    /// Handles the completion of all requests from before the batch.
    pub(crate) fn earlier_complete(&mut self, now_ns: u64, volume: usize) {
        let moving = self.moving[volume].as_mut();
        let mover = &mut moving.expect("a batch waits for its requests").mover;
        mover.earlier_complete(&mut self.world.maps[volume]);
        self.after_completion(now_ns, volume);
    }

    /// Wakes a move at the time that it requested.
    pub(crate) fn wake_move(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        if self.moving[v].as_ref().is_some_and(|m| m.job == no.job) {
            self.step_move(now_ns, v);
        }
    }

    /// Returns the slack of other volumes' guests on the devices of a move, as measured in the last window.
    fn others(&self, now_ns: u64, v: usize) -> NeighborSlack {
        let Some(moving) = &self.moving[v] else {
            return NeighborSlack::UNKNOWN;
        };
        let World {
            maps, slack, worst, ..
        } = &self.world;
        NeighborSlack::around(&maps[v], moving.to(), |device| {
            match worst[device.index()] == v {
                true => slack.hear_others(now_ns, 0, device),
                false => slack.hear(now_ns, device),
            }
        })
    }

    /// Performs the steps of a move that are possible now.
    fn step_move(&mut self, now_ns: u64, v: usize) {
        let guests = Guests {
            // A window is too long for this measurement, which is evaluated every 20 ms.
            own: &GuestLatency::NONE,
            others: self.others(now_ns, v),
        };
        while let Some(moving) = &mut self.moving[v]
            && let map = &mut self.world.maps[v]
            && let Some(step) = moving.mover.step(now_ns, map, guests)
        {
            let no = MoveNo {
                job: moving.job,
                volume: v as u32,
            };
            match step {
                MoveStep::Reserve { device, count } => self.reserve(now_ns, v, device, count),
                MoveStep::Wake(at_ns) => self.agenda.at(at_ns, Event::MoveWake(no)),
                MoveStep::Read { chunk, from } => {
                    let done_ns = self.copy_io(now_ns, v, Op::Read, from, chunk.length);
                    self.agenda.at(done_ns, Event::CopyRead(no));
                }
                MoveStep::Flush { .. } => {
                    let flushed = moving.mover.flushed(now_ns, 0);
                    assert_eq!(
                        flushed,
                        FlushResult::Durable,
                        "nothing is lost in simulation"
                    );
                    self.switch(now_ns, v);
                }
                MoveStep::Switch => unreachable!("no switch is in doubt in simulation"),
                MoveStep::Free { slots } => {
                    self.release(v, slots);
                    self.retry_held(now_ns, v);
                }
                MoveStep::Over => self.end_move(now_ns, v),
            }
        }
    }

    /// Reserves slots for a batch, which then starts.
    fn reserve(&mut self, now_ns: u64, v: usize, device: DeviceId, count: usize) {
        let free = &mut self.world.slots[device.index()];
        let slots = std::iter::repeat_with(|| free.take()).take(count);
        let slots: Vec<Location> = slots.map(|slot| Location { device, slot }).collect();
        let moving = self.moving[v].as_mut().expect("slots are for a move");
        moving.places.clone_from(&slots);
        let map = &mut self.world.maps[v];
        let reserved = moving.mover.reserved(now_ns, map, Ok(slots), 0);
        assert!(
            reserved.begun && reserved.unused.is_empty(),
            "nothing comes between a batch and its slots"
        );
        let quiet_ns = self.world.last_done_ns[v];
        if quiet_ns > now_ns {
            let volume = v as u32;
            self.agenda.at(quiet_ns, Event::Earlier { volume });
        } else {
            moving.mover.earlier_complete(map);
        }
        self.world.refresh_route(v);
    }

    /// Switches one batch to the target.
    fn switch(&mut self, now_ns: u64, v: usize) {
        let map = &mut self.world.maps[v];
        let moving = self.moving[v].as_mut().expect("a switch has its move");
        moving.places.clear();
        for (extent, _) in map.batch_targets() {
            let source = map
                .location(extent)
                .expect("simulated volumes have no holes");
            moving.places.push(source);
            moving.leaves(source.device, map.bytes_of(extent));
        }
        moving.mover.switched(now_ns, map);
        self.world.refresh_route(v);
        self.retry_held(now_ns, v);
    }

    /// Frees the slots that a batch no longer uses and no request refers to: the source of a switched batch, or the
    /// target of a cancelled one.
    fn release(&mut self, v: usize, mut slots: Vec<Location>) {
        self.world.refresh_route(v);
        self.world.give_back(&mut slots);
        let moving = self.moving[v].as_mut().expect("a batch has its move");
        moving.places.clear();
        let to = moving.to().index();
        for (from, bytes) in moving.leaving.drain(..) {
            self.used[from.index()] -= bytes;
            self.used[to] += bytes;
            self.reserved[to] -= bytes;
            moving.reserved -= bytes;
        }
    }

    /// Ends a move and frees its unused reserved space.
    fn end_move(&mut self, now_ns: u64, v: usize) {
        let moving = self.moving[v].take().expect("a move ends once");
        self.reserved[moving.to().index()] -= moving.reserved;
        let is_mirror = moving.is_mirror();
        let (why, copied) = moving.mover.into_end();
        let copied_bytes = copied.0;
        if is_mirror {
            self.mirror_ended(now_ns, v, copied_bytes);
            return self.after_mirror(now_ns, v);
        }
        self.move_ended(
            moving.job,
            match why {
                None => JobProgress::Done { copied_bytes },
                Some(OrderWithdrawal) => JobProgress::Failed {
                    why: "cancelled".into(),
                    copied_bytes,
                },
            },
        );
    }

    /// Submits the read or the write of a copied piece and returns its completion time.
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

    /// Handles the end of a piece's read.
    pub(crate) fn copy_read(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        let moving = self.moving[v]
            .as_mut()
            .expect("a move ends after its pieces");
        match moving.mover.chunk_read(now_ns, &mut self.world.maps[v]) {
            Some((chunk, target)) => {
                let done_ns = self.copy_io(now_ns, v, Op::Write, target, chunk.length);
                self.agenda.at(done_ns, Event::CopyWritten(no));
            }
            None => self.step_move(now_ns, v),
        }
    }

    /// Handles the end of a piece's write.
    pub(crate) fn copy_written(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        let moving = self.moving[v]
            .as_mut()
            .expect("a move ends after its pieces");
        let copied = moving.mover.chunk_written(now_ns, &mut self.world.maps[v]);
        if copied.is_some() {
            self.retry_held(now_ns, v);
        }
        self.step_move(now_ns, v);
    }
}
