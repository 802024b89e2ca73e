//! Orders of an operator: moves, and growth of volumes.

use array::{Change, MoveRecord, VolumeRecord};
use datapath::engine::{Fault, GuestOp, GuestRequest, MoveOrder, Purpose, StopReason};
use model::ExtentRanges;
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};
use volume::NeighborSlack;

use super::life::{Event, Life};
use super::plan::DEVICES;
use super::stays::Stays;

/// Number of the zeroes that a growing volume needs, among requests of its guest.
pub(super) const GROWING: u64 = u64::MAX;

/// Approximate limit of a volume's growth in all lives together.
const GROWTH: u64 = 12 * super::plan::EXTENT;

impl Life<'_> {
    pub(super) fn order(&mut self, volume: usize) -> Result<(), String> {
        if self.to_come > 0 {
            let wait_ns = self.some(self.plan.order_ns);
            self.after(wait_ns, Event::Order(volume));
        }
        // Mirrored volumes usually get no other order, so their second copies are read.
        let mirrored = self.engines[volume].mirror_status().is_some();
        if mirrored && self.rng.below(20) > 0 {
            return Ok(());
        }
        if self.plan.snapshots && self.rng.below(4) == 0 {
            return self.order_snapshot(volume);
        }
        if self.engines[volume].move_status().is_some() {
            if self.rng.below(3) == 0 {
                self.engines[volume].cancel_move(self.now_ns);
                self.settle(volume)?;
            }
            return Ok(());
        }
        if mirrored && self.rng.below(2) == 0 {
            self.engines[volume].stop_mirror(self.now_ns, StopReason::Cancelled);
            return self.settle(volume);
        }
        if !mirrored && self.rng.below(3) > 0 {
            return self.mirror(volume);
        }
        let size = self.engines[volume].map().size().0;
        let room = self.plan.volumes[volume] + GROWTH > size;
        if room && self.rng.below(6) == 0 {
            return self.grow(volume);
        }
        let to = DeviceId(self.rng.below(DEVICES as u64) as u16);
        let order = MoveOrder {
            to,
            bandwidth: BytesPerSec(self.plan.bandwidth),
            extents: self.some_extents(volume),
            purpose: Purpose::Move,
        };
        let id = VolumeId(volume as u32);
        let mut record = self.keeper.volumes[&id].clone();
        if order.extents.is_none() {
            record.home = TierId(to.0);
        }
        let durable = self.keeper.commit(&[
            Change::SetVolume(record.clone()),
            Change::SetMove(MoveRecord {
                volume: id,
                to,
                bandwidth: order.bandwidth,
                extents: order.extents.clone(),
            }),
        ]);
        self.look_at_disks();
        self.tell_failures();
        if durable.is_err() || self.crashed {
            return Ok(());
        }
        self.keeper.volumes.insert(id, record);
        self.watch_move(volume, &order);
        self.tally.moves += 1;
        self.tally.moves_of_extents += u64::from(order.extents.is_some());
        let started = self.engines[volume].start_move(self.now_ns, order, NeighborSlack::UNKNOWN);
        started.map_err(|s| format!("a move under way that has no status: {s:?}"))?;
        self.settle(volume)
    }

    /// Mirrors some extents of a volume. Mirrors are not stored.
    fn mirror(&mut self, volume: usize) -> Result<(), String> {
        let to = DeviceId(self.rng.below(DEVICES as u64) as u16);
        let map = self.engines[volume].map();
        let elsewhere = |e: &u32| {
            let at = map.location(*e as usize);
            at.is_some_and(|at| at.device != to) && !map.is_shared(*e as usize)
        };
        // Few extents, so trims do not reach them for a while.
        let few = (0..map.extents() as u32).filter(elsewhere);
        let few = ExtentRanges::from_sorted(few.take(1 + self.rng.below(3) as usize));
        let order = MoveOrder {
            to,
            bandwidth: BytesPerSec(self.plan.bandwidth << 6),
            extents: match self.rng.below(4) {
                0 => self.some_extents(volume),
                _ if few.count() == 0 => return Ok(()),
                _ => Some(few),
            },
            purpose: Purpose::Mirror,
        };
        self.tally.mirrors += 1;
        let started = self.engines[volume].start_mirror(self.now_ns, order, NeighborSlack::UNKNOWN);
        started.map_err(|why| format!("a volume at rest cannot be mirrored: {why:?}"))?;
        self.settle(volume)
    }

    /// Grows a volume in this order: its engine adopts the size, the new part of its last extent is zeroed, the map
    /// records the size, the guest learns it.
    fn grow(&mut self, volume: usize) -> Result<(), String> {
        let id = VolumeId(volume as u32);
        let from = self.keeper.volumes[&id].size;
        let to = Bytes(from.0 + (1 + self.rng.below(200)) * super::oracle::SECTOR as u64);
        let engine = &self.engines[volume];
        let imports = self.keeper.volumes[&id].source.is_some();
        if self.growing[volume].is_some() || engine.rests() || engine.copies_up() || imports {
            return Ok(());
        }
        self.oracles[volume].grow(to.0);
        let mirrored = self.engines[volume].mirror_status().is_some();
        if !self.engines[volume].grow(to) {
            return match mirrored {
                true => self.settle(volume), // the mirror ends first
                false => Err("a volume that does not move cannot grow".into()),
            };
        }
        self.growing[volume] = Some((from, to));
        self.cached_grew(volume);
        let rest = self.engines[volume].map().rest_of_extent(from);
        if rest.0 == 0 {
            return self.grown(volume, Ok(()));
        }
        let zero = GuestRequest {
            op: GuestOp::Zero,
            offset: from.0,
            length: rest.0,
            fua: true,
        };
        self.submit(volume, GROWING, zero)?;
        self.settle(volume)
    }

    pub(super) fn grown(&mut self, volume: usize, zeroed: Result<(), Fault>) -> Result<(), String> {
        let id = VolumeId(volume as u32);
        let Some((from, to)) = self.growing[volume].take() else {
            return Err("what grew was not to".into());
        };
        let before = self.keeper.volumes[&id].clone();
        if zeroed.is_err() || before.size != from {
            return Ok(());
        }
        let record = VolumeRecord { size: to, ..before };
        let durable = self.keeper.commit(&[Change::SetVolume(record.clone())]);
        self.look_at_disks();
        self.tell_failures();
        if self.tally.trace {
            eprintln!("  volume {volume} has {to}: {durable:?}");
        }
        if durable.is_ok() && !self.crashed {
            self.tally.grown += 1;
            self.keeper.volumes.insert(id, record);
        }
        Ok(())
    }

    /// Returns all extents of a volume, as `None`, or some of them.
    fn some_extents(&mut self, volume: usize) -> Option<ExtentRanges> {
        if self.rng.below(2) == 0 {
            return None;
        }
        // The engine may have more extents, if the map could not be changed.
        let record = &self.keeper.volumes[&VolumeId(volume as u32)];
        let count = record.extents(self.keeper.map.extent());
        let (of, one) = (1 + self.rng.below(8), self.rng.below(count));
        let chosen: Vec<u32> = (0..count)
            .filter(|e| self.rng.below(of) == 0 || *e == one)
            .map(|e| e as u32)
            .collect();
        Some(ExtentRanges::from_sorted(chosen))
    }

    pub(super) fn watch_move(&mut self, volume: usize, order: &MoveOrder) {
        let map = self.engines[volume].map();
        self.stays[volume] = Some(Stays::new(order, map));
    }
}
