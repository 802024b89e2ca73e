//! Places of extents: allocation for first writes, holes after trims, and quarantine of vacated slots.

use model::Op;
use volume::Location;

use super::grace::Epoch;
use super::retry::Retry;
use super::{Effect, Engine, Fault, GuestOp, GuestRequest, StoreRequest};

/// Limit on the extents of one volume in allocation at the same time. Protects writes of other volumes: the keeper may need
/// almost a second for each extent and serves no other volume meanwhile, and writes fail after half a minute.
const PLACES_MAX: usize = 32;

/// Vacated slots. They are freed when their removal is durable and no request in flight uses them.
#[derive(Debug)]
pub(super) struct QuarantinedSlots {
    pub(super) extents: Vec<u32>,
    pub(super) slots: Vec<Location>,
    pub(super) epoch: Epoch,
    pub(super) durable: bool,
    /// Trim that waits for the removal.
    pub(super) waiter: Option<u32>,
}

impl<G> Engine<G> {
    pub(super) fn ask_for_places(&mut self, extents: std::ops::Range<u32>) {
        let wanted = extents.filter(|e| self.map.location(*e as usize).is_none());
        let wanted = wanted.filter(|e| !self.placing.contains(e));
        let room = PLACES_MAX.saturating_sub(self.placing.len());
        let wanted: Vec<u32> = wanted.take(room).collect();
        if wanted.is_empty() {
            return; // in allocation, or next when others are allocated
        }
        self.placing.extend(&wanted);
        // An extent that moves gets a place on the target of the move, any other on the home tier.
        let order = self.moves_by();
        let moves = |e: &u32| order.is_some_and(|o| o.selection().contains(*e as usize));
        let to = order.map(|o| o.to);
        let (moving, staying): (Vec<u32>, Vec<u32>) = wanted.into_iter().partition(moves);
        for (extents, prefer) in [(moving, to), (staying, None)] {
            if !extents.is_empty() {
                let place = StoreRequest::Place { extents, prefer };
                self.effects.push(Effect::Store(place));
            }
        }
    }

    pub(super) fn placed(&mut self, extents: &[u32], places: Result<Vec<Location>, Fault>) {
        for extent in extents {
            self.placing.remove(extent);
        }
        match places {
            Ok(places) => {
                assert_eq!(places.len(), extents.len(), "one place for each extent");
                for (extent, place) in extents.iter().zip(places) {
                    self.comes_to(place.device);
                    self.map.place(*extent as usize, place);
                    self.unsure.remove(extent);
                }
                self.retry = Retry::All;
            }
            Err(fault) => self.fail_waiting(extents, fault),
        }
    }

    /// Fails the writes that wait for one of these extents.
    pub(super) fn fail_waiting(&mut self, extents: &[u32], fault: Fault) {
        let extent_bytes = self.map.extent_bytes().0;
        let mut waiting = std::mem::take(&mut self.waiting);
        let wants = |request: GuestRequest| {
            let first = request.offset / extent_bytes;
            let last = (request.offset + request.length.max(1) - 1) / extent_bytes;
            self.routed_as(request) == Op::Write
                && extents
                    .iter()
                    .any(|e| (first..=last).contains(&u64::from(*e)))
        };
        let mut failed = vec![];
        let requests = &self.requests;
        waiting.retain(|id| {
            let fails = wants(requests[*id as usize].request);
            if fails {
                failed.push(*id);
            }
            !fails
        });
        self.waiting = waiting;
        for id in failed {
            self.requests[id as usize].failed = Some(fault);
            self.complete(id);
        }
        self.retry = Retry::All;
    }

    /// Returns the kind by which the volume core routes a request. Zeroes on a hole need no write. The exception is a hole
    /// that may still have a place in the durable map after a crash: it gets a new place.
    pub(super) fn routed_as(&self, request: GuestRequest) -> Op {
        if request.op != GuestOp::Zero || request.length == 0 {
            return request.op.routed_as();
        }
        // In a shared slot, zeroes are a change of this volume alone and must be written.
        if self.map.touches_shared(request.offset, request.length) {
            return Op::Write;
        }
        if self.unsure.is_empty() {
            return Op::Trim;
        }
        let extent_bytes = self.map.extent_bytes().0;
        let first = (request.offset / extent_bytes) as u32;
        let last = ((request.offset + request.length - 1) / extent_bytes) as u32;
        match self.unsure.range(first..=last).next() {
            Some(_) => Op::Write,
            None => Op::Trim,
        }
    }

    /// Makes holes of the extents that a trim covers completely, unless they move.
    pub(super) fn vacate_whole(&mut self, request: GuestRequest) -> Vec<u32> {
        let extent_bytes = self.map.extent_bytes().0;
        let end = request.offset + request.length;
        let first = request.offset.div_ceil(extent_bytes);
        // The last extent of a volume may be short.
        let last = if end == self.map.size().0 {
            end.div_ceil(extent_bytes)
        } else {
            end / extent_bytes
        };
        let mut extents = vec![];
        let mut slots = vec![];
        for extent in first..last {
            if let Some(slot) = self.map.vacate(extent as usize) {
                extents.push(extent as u32);
                slots.push(slot);
            }
        }
        if !extents.is_empty() {
            let places = extents.iter().zip(&slots);
            self.unsure.extend(places.map(|(e, s)| (*e, s.device)));
            let epoch = self.grace.end_epoch();
            self.quarantine.push(QuarantinedSlots {
                extents: extents.clone(),
                slots,
                epoch,
                durable: false,
                waiter: None,
            });
            self.effects.push(Effect::Store(StoreRequest::Vacate {
                extents: extents.clone(),
            }));
        }
        extents
    }

    pub(super) fn vacated(&mut self, extents: &[u32], done: Result<(), Fault>) {
        let at = self
            .quarantine
            .iter()
            .position(|q| q.extents == extents && !q.durable)
            .expect("the store answers what was asked");
        let waiter = self.quarantine[at].waiter.take();
        match done {
            Ok(()) => {
                self.quarantine[at].durable = true;
                for extent in extents {
                    self.unsure.remove(extent);
                }
            }
            // The durability is unknown: these slots are not used again before a restart.
            Err(_) => {
                let given_up = self.quarantine.remove(at);
                self.vacate_failed(&given_up.slots);
            }
        }
        if let Some(id) = waiter {
            self.part_done(id, false, done);
        }
    }

    pub(super) fn release_quarantine(&mut self) {
        let (grace, source) = (&self.grace, self.map.source());
        let mut free = vec![];
        self.quarantine.retain_mut(|q| {
            let over = q.durable && grace.passed(q.epoch);
            if over {
                free.append(&mut q.slots);
            }
            !over
        });
        // Extents at a source have no slot.
        free.retain(|at| Some(at.device) != source);
        if !free.is_empty() {
            self.effects
                .push(Effect::Store(StoreRequest::Free { slots: free }));
        }
    }

    /// Returns the state of a range for block status: runs from `offset` on, at most `most` of them.
    pub fn status(&self, offset: u64, length: u64, most: usize) -> Vec<(u64, Presence)> {
        let extent_bytes = self.map.extent_bytes().0;
        let end = (offset + length).min(self.map.size().0);
        let mut runs: Vec<(u64, Presence)> = vec![];
        let mut at = offset;
        while at < end {
            let extent = at / extent_bytes;
            let to = end.min((extent + 1) * extent_bytes);
            let presence = match self.map.location(extent as usize) {
                Some(_) => Presence::Data,
                None => Presence::Hole,
            };
            let full = runs.len() == most;
            match runs.last_mut() {
                Some(last) if last.1 == presence => last.0 += to - at,
                _ if full => break,
                _ => runs.push((to - at, presence)),
            }
            at = to;
        }
        runs
    }
}

/// State of an extent in block status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Data,
    /// The extent has no place and reads as zeroes.
    Hole,
}

#[cfg(test)]
mod tests {
    use units::{Bytes, DeviceId};
    use volume::VolumeMap;

    use super::*;
    use crate::engine::{EngineLimits, StoreReply};

    const EXTENTS: usize = 3 * PLACES_MAX + 5;

    fn asked(engine: &mut Engine<u32>) -> Vec<Vec<u32>> {
        let mut effects = vec![];
        engine.take_effects(&mut effects);
        let asked = effects.into_iter().filter_map(|effect| match effect {
            Effect::Store(StoreRequest::Place { extents, .. }) => Some(extents),
            _ => None,
        });
        asked.collect()
    }

    fn zero(extents: std::ops::Range<usize>) -> GuestRequest {
        GuestRequest {
            op: GuestOp::ZeroAllocated,
            offset: (extents.start as u64) << 20,
            length: (extents.len() as u64) << 20,
            fua: false,
        }
    }

    #[test]
    fn long_request_allocates_its_extents_in_parts() {
        let size = Bytes::mib(EXTENTS as u64);
        let map = VolumeMap::at(size, Bytes::mib(1), vec![None; EXTENTS]);
        let mut engine = Engine::new(map, EngineLimits::default());
        engine.submit(0, 1, zero(0..EXTENTS));
        let mut outstanding = asked(&mut engine);
        engine.submit(0, 2, zero(EXTENTS - 1..EXTENTS));
        assert!(asked(&mut engine).is_empty(), "others are asked for");
        let mut placed = vec![];
        while let Some(extents) = outstanding.pop() {
            assert!(outstanding.is_empty() && extents.len() <= PLACES_MAX);
            placed.extend(extents.iter().copied());
            let at = |slot: &u32| Location {
                device: DeviceId(0),
                slot: *slot,
            };
            let places = Ok(extents.iter().map(at).collect());
            engine.store_done(0, StoreReply::Placed { extents, places });
            outstanding = asked(&mut engine);
        }
        let all: Vec<u32> = (0..EXTENTS as u32).collect();
        assert_eq!(placed, all);
        assert!(engine.waiting.is_empty());
    }
}
