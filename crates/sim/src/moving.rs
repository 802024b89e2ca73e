//! Moves in the simulated array: carries out the steps of [`volume::Mover`] against volumes, space and devices.
//!
//! What a move does is the same as live, and so is its pace: it yields to guests of other volumes by what they have left of their
//! objectives, as measured by window. It does not yield to its own volume's guest, as a live one does. The store answers at once: slots are there, a flush takes no time, and a
//! switch is durable when it is asked for. Space on the target is reserved for all of the move when it begins; the source's is free batch by
//! batch.

use algo::mix;
use manager::wire::{JobProgress, MoveOrder};
use model::{ExtentRanges, Op};
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};
use volume::{
    BATCH_BYTES, Flushed, GuestLatency, Guests, Location, MoveLimits, MoveStep, Mover, Others,
    Purpose,
};

use crate::agenda::Event;
use crate::device::Io;
use crate::engine::Simulation;
use crate::world::World;

/// A move, and the volume that it moves, in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MoveNo {
    pub(crate) job: u32,
    pub(crate) volume: u32,
}

/// The only reason for which a simulated move ends early: it is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unwanted;

/// A move under way, and the space that it takes.
pub(crate) struct Moving {
    pub(crate) job: u32,
    mover: Mover<Unwanted>,
    /// Space on the target for what is not released to it yet.
    pub(crate) reserved: Bytes,
    /// Places that are free once the batch is released: the targets, or what they came to replace after the switch.
    places: Vec<Location>,
    /// Bytes of a batch that was switched and is not released yet, by the device that they leave.
    leaving: Vec<(DeviceId, Bytes)>,
}

impl Moving {
    /// Whether it keeps both ends alike, and is no move.
    pub(crate) fn is_mirror(&self) -> bool {
        self.mover.order().purpose == Purpose::Mirror
    }

    /// Whether all that was to be mirrored is.
    pub(crate) fn is_alike(&self) -> bool {
        self.mover.is_mirrored()
    }

    /// The target.
    pub(crate) fn to(&self) -> DeviceId {
        self.mover.order().to
    }

    /// What of the volume moves; `None` is all of it.
    pub(crate) fn extents(&self) -> Option<&ExtentRanges> {
        self.mover.order().extents.as_ref()
    }

    /// Bandwidth that it may take now.
    pub(crate) fn rate(&self) -> BytesPerSec {
        self.mover.rate()
    }

    /// Bytes copied, those copied again included.
    pub(crate) fn copied(&self) -> Bytes {
        self.mover.copied()
    }

    fn leaves(&mut self, device: DeviceId, bytes: Bytes) {
        match self.leaving.iter_mut().find(|l| l.0 == device) {
            Some(l) => l.1 += bytes,
            None => self.leaving.push((device, bytes)),
        }
    }

    /// Whether a batch was switched and waits to be released.
    #[cfg(test)]
    pub(crate) fn switched(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Places that the batch holds besides its volume's.
    #[cfg(test)]
    pub(crate) fn places(&self) -> &[Location] {
        &self.places
    }

    /// Adds what the move has reserved by device; what left its place and is not released yet is still used there.
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
    /// Reserves space for what is not on the target yet and begins; whether there was room.
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

    /// The same for whatever is to come of the copy.
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
        self.moving[volume] = Some(Moving {
            job,
            mover: Mover::new(now_ns, order, limits, map),
            reserved: size,
            places: vec![],
            leaving: vec![],
        });
        self.step_move(now_ns, volume);
        true
    }

    /// Gives the move of a volume up. The last batch that was switched is the target's; what follows stays where it is.
    pub(crate) fn cancel_move(&mut self, now_ns: u64, v: usize) {
        let Some(moving) = self.moving[v].as_mut() else {
            return;
        };
        if moving.mover.give_up(&mut self.world.maps[v], Unwanted) {
            self.retry_held(now_ns, v);
        }
        self.step_move(now_ns, v);
    }

    /// A request on a volume that is being moved is complete: what waited for it may go on.
    pub(crate) fn after_completion(&mut self, now_ns: u64, volume: usize) {
        self.retry_held(now_ns, volume);
        self.step_move(now_ns, volume);
    }

    /// Every request from before the batch is complete.
    pub(crate) fn earlier_complete(&mut self, now_ns: u64, volume: usize) {
        let moving = self.moving[volume].as_mut();
        let mover = &mut moving.expect("a batch waits for its requests").mover;
        mover.earlier_complete(&mut self.world.maps[volume]);
        self.after_completion(now_ns, volume);
    }

    /// The time that a move asked for has come.
    pub(crate) fn wake_move(&mut self, now_ns: u64, no: MoveNo) {
        let v = no.volume as usize;
        if self.moving[v].as_ref().is_some_and(|m| m.job == no.job) {
            self.step_move(now_ns, v);
        }
    }

    /// What guests of other volumes have left on the devices of a move, by what was measured in the last window.
    fn others(&self, now_ns: u64, v: usize) -> Others {
        let Some(moving) = &self.moving[v] else {
            return Others::UNKNOWN;
        };
        let World {
            maps, slack, worst, ..
        } = &self.world;
        Others::around(&maps[v], moving.to(), |device| {
            match worst[device.index()] == v {
                true => slack.hear_others(now_ns, 0, device),
                false => slack.hear(now_ns, device),
            }
        })
    }

    /// Takes a move on as far as it goes by itself.
    fn step_move(&mut self, now_ns: u64, v: usize) {
        let guests = Guests {
            // A window is too long to be measured by, where a look is taken each 20 ms.
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
                    assert_eq!(flushed, Flushed::Durable, "nothing is lost in simulation");
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

    /// Slots for a batch, which begins.
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

    /// Makes the target the truth for one batch.
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

    /// No request knows what a batch gave up: the source of one that was switched, or the target of one that was not.
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

    /// Of a move that was given up the space that it did not come to use is free.
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
                Some(Unwanted) => JobProgress::Failed {
                    why: "cancelled".into(),
                    copied_bytes,
                },
            },
        );
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

    /// A piece was read.
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

    /// A piece was written.
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
