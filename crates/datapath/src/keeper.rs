//! The array's keeper: the one thread that changes the map. Gives extents places, frees slots, makes switches durable.
//!
//! Requests that wait together become one durable commit. Slots that were given up are zeroed and flushed before they
//! are handed out again, in batches, when nothing else is to be done or when they are needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use array::{
    Array, ArrayError, Change, DeviceKind, DeviceRecord, Health, Slots, TierRecord, VolumeRecord,
};
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use crate::device::{Device, SlotSpace};
use crate::engine::{Fault, StoreReply, StoreRequest};
use crate::worker::{Inbox, Message};

/// Requests answered with one commit. Bounds the time that the first of them waits for the others' work.
const TOGETHER: usize = 256;

/// Slots zeroed and flushed at once.
const CLEAN_AT_ONCE: usize = 64;

/// Slots zeroed in one idle moment. Bounds how long a request may have to wait behind them.
const CLEAN_WHEN_IDLE: usize = 8;

/// A device that failed to zero slots is not asked for new ones for so long: others wait for the keeper meanwhile.
const SPARE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// When nothing happens for so long, given-up slots are zeroed, which gives their space back.
const IDLE: Duration = Duration::from_millis(50);

/// Something to do.
pub enum ToKeeper {
    /// An engine's request.
    Store {
        /// The worker to answer.
        worker: usize,
        /// The volume.
        volume: VolumeId,
        /// What it wants.
        request: StoreRequest,
    },
    /// Anything else, done between requests.
    Do(Box<dyn FnOnce(&mut Keeper) + Send>),
    /// End.
    Stop,
}

impl std::fmt::Debug for ToKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToKeeper::Store {
                volume, request, ..
            } => write!(f, "Store({volume:?}, {request:?})"),
            ToKeeper::Do(_) => write!(f, "Do"),
            ToKeeper::Stop => write!(f, "Stop"),
        }
    }
}

/// The array and what is known of it in memory. `D` is a [`Device`], but in tests.
pub struct Keeper<D = Device> {
    /// The durable map.
    pub array: Array,
    /// Free slots.
    pub slots: Slots,
    /// Open devices.
    pub devices: BTreeMap<DeviceId, Arc<D>>,
    /// Their records.
    pub records: BTreeMap<DeviceId, DeviceRecord>,
    /// Tiers, high end first.
    pub tiers: Vec<TierRecord>,
    /// Volumes.
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// Workers to answer; none when nothing is served.
    pub workers: Vec<Inbox>,
    /// When zeroing slots of a device last failed.
    failed: BTreeMap<DeviceId, Instant>,
    /// What the store last failed with.
    pub store_error: Option<String>,
    /// Devices of which a flush failed, that nobody was told of because there are no workers.
    pub lost_flushes: Vec<DeviceId>,
}

impl Keeper {
    /// Reads an array's map and opens its devices.
    ///
    /// # Errors
    /// A map that cannot be read or contradicts itself, a device that is missing or not the array's.
    pub fn open(array: Array) -> Result<Self, KeeperError> {
        Self::open_with(array, |array, record| Ok(Device::open(array, record)?))
    }

    /// Works until told to stop, or until nobody can ask any more.
    pub fn run(mut self, inbox: &Receiver<ToKeeper>) {
        // Zeroing slots must not take the processor from guests' requests.
        let _ = rustix::process::nice(10);
        loop {
            let first = match inbox.recv_timeout(IDLE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.clean_a_little();
                    continue;
                }
            };
            let mut together = vec![];
            let rest = inbox.try_iter().take(TOGETHER);
            for message in std::iter::once(first).chain(rest) {
                match message {
                    ToKeeper::Store {
                        worker,
                        volume,
                        request,
                    } => together.push((worker, volume, request)),
                    ToKeeper::Do(what) => {
                        self.serve(std::mem::take(&mut together));
                        what(&mut self);
                    }
                    ToKeeper::Stop => {
                        self.serve(together);
                        return;
                    }
                }
            }
            self.serve(together);
        }
    }

    /// Carries out requests with one commit, then answers them.
    fn serve(&mut self, requests: Vec<(usize, VolumeId, StoreRequest)>) {
        for (worker, volume, reply) in self.carry_out(requests) {
            self.workers[worker].send(Message::Store(volume, reply));
        }
    }
}

impl<D: SlotSpace> Keeper<D> {
    /// Reads an array's map and opens its devices in some way.
    ///
    /// # Errors
    /// A map that cannot be read or contradicts itself, and whatever `open` says.
    pub fn open_with(
        array: Array,
        mut open: impl FnMut(&Array, &DeviceRecord) -> Result<D, KeeperError>,
    ) -> Result<Self, KeeperError> {
        let tiers = array.tiers()?;
        let records: BTreeMap<DeviceId, DeviceRecord> =
            array.devices()?.into_iter().map(|d| (d.id, d)).collect();
        let volumes: BTreeMap<VolumeId, VolumeRecord> =
            array.volumes()?.into_iter().map(|v| (v.id, v)).collect();
        let mut used = vec![];
        let (mut lost, mut contested) = (false, vec![]);
        for volume in volumes.values() {
            for extent in array.extents(volume.id)? {
                match (extent, volume.health) {
                    (array::Extent::At(location), Health::Whole) => used.push(location),
                    // Others may claim the same slot; none of them is served, and the slot is nobody else's.
                    (array::Extent::At(location), Health::Damaged) => contested.push(location),
                    (array::Extent::Lost, _) => lost = true,
                    (array::Extent::Hole, _) => {}
                }
            }
        }
        used.sort();
        contested.sort();
        contested.dedup();
        contested.retain(|c| used.binary_search(c).is_err());
        used.append(&mut contested);
        let all: Vec<DeviceRecord> = records.values().cloned().collect();
        let mut slots = Slots::new(&all, used.into_iter())?;
        if lost {
            // Any slot that was ever used may be the one that was lost: none of them is handed out, nor zeroed.
            for device in &all {
                let _ = slots.to_clean(device.id, usize::MAX);
            }
        }
        let mut devices = BTreeMap::new();
        for record in &all {
            devices.insert(record.id, Arc::new(open(&array, record)?));
        }
        Ok(Self {
            array,
            slots,
            devices,
            records,
            tiers,
            volumes,
            workers: vec![],
            failed: BTreeMap::new(),
            store_error: None,
            lost_flushes: vec![],
        })
    }

    /// Carries out requests with one commit; the answers, each with the worker that waits for it.
    pub fn carry_out(
        &mut self,
        requests: Vec<(usize, VolumeId, StoreRequest)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        self.carry_out_by(requests, |keeper, changes| keeper.commit(changes).is_ok())
    }

    /// [`Keeper::carry_out`] with another way to commit, which says whether the changes are durable.
    #[doc(hidden)]
    pub fn carry_out_by(
        &mut self,
        requests: Vec<(usize, VolumeId, StoreRequest)>,
        commit: impl FnOnce(&mut Self, &[Change]) -> bool,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let mut changes = vec![];
        let mut answers = vec![];
        for (worker, volume, request) in requests {
            if let Some(reply) = self.prepare(volume, request, &mut changes) {
                answers.push((worker, volume, reply));
            }
        }
        let done = commit(self, &changes);
        if !done {
            for (_, _, reply) in &mut answers {
                *reply = failed(reply.clone());
            }
        }
        answers
    }

    /// Makes changes durable; remembers an error to show to the operator.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        let done = self.array.commit(changes);
        match &done {
            Ok(()) => self.remember_marks(changes),
            Err(error) => self.store_error = Some(error.to_string()),
        }
        done
    }

    fn remember_marks(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::HighWater { device, slots } = change
                && let Some(record) = self.records.get_mut(device)
            {
                record.high_water = record.high_water.max(*slots);
            }
        }
    }

    /// What makes a slot one that may be written. A slot that was taken and given back unused is not new to [`Slots`] any
    /// more, and its mark may not be durable all the same: what counts is the mark that is.
    fn mark_for(&self, at: Location) -> Option<Change> {
        (at.slot >= self.records[&at.device].high_water).then_some(Change::HighWater {
            device: at.device,
            slots: at.slot + 1,
        })
    }

    /// The changes that a request needs, and the answer once they are durable.
    fn prepare(
        &mut self,
        volume: VolumeId,
        request: StoreRequest,
        changes: &mut Vec<Change>,
    ) -> Option<StoreReply> {
        match request {
            StoreRequest::Place { extents, prefer } => {
                let places = self.place_all(volume, extents.len(), prefer, changes);
                if let Ok(places) = &places {
                    for (extent, at) in extents.iter().zip(places) {
                        changes.push(Change::Place {
                            volume,
                            extent: *extent,
                            at: *at,
                        });
                    }
                }
                Some(StoreReply::Placed { extents, places })
            }
            StoreRequest::Vacate { extents } => {
                for extent in &extents {
                    changes.push(Change::Vacate {
                        volume,
                        extent: *extent,
                    });
                }
                let done = Ok(());
                Some(StoreReply::Vacated { extents, done })
            }
            StoreRequest::Reserve { device, count } => {
                let slots = self.reserve(device, count, changes);
                Some(StoreReply::Reserved(slots))
            }
            StoreRequest::Switch { places } => {
                for (extent, at) in places {
                    changes.push(Change::Place { volume, extent, at });
                }
                Some(StoreReply::Switched(Ok(())))
            }
            StoreRequest::Free { slots } => {
                for slot in slots {
                    self.slots.give_back(slot);
                }
                None
            }
            StoreRequest::MoveOver => {
                changes.push(Change::ClearMove(volume));
                None
            }
        }
    }

    fn place_all(
        &mut self,
        volume: VolumeId,
        count: usize,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        let home = self.volumes.get(&volume).map_or(TierId(0), |v| v.home);
        let mut places = vec![];
        for _ in 0..count {
            match self.place_one(home, prefer, changes) {
                Some(place) => places.push(place),
                None => {
                    // They were never written: they are as they were.
                    places.into_iter().for_each(|p| self.slots.give_back(p));
                    return Err(Fault::NoSpace);
                }
            }
        }
        Ok(places)
    }

    /// Devices to try for a new extent: the preferred one, the home tier, the tiers below it, those above it from the
    /// nearest on; within a tier the one with most room.
    fn candidates(&self, home: TierId, prefer: Option<DeviceId>) -> Vec<DeviceId> {
        let mut tiers: Vec<TierId> = self.tiers.iter().map(|t| t.id).collect();
        tiers.sort_by_key(|t| (*t < home, t.0.abs_diff(home.0)));
        let mut all: Vec<DeviceId> = prefer.into_iter().collect();
        for tier in tiers {
            let of_tier = self.records.values().filter(|d| d.tier == tier);
            let mut devices: Vec<DeviceId> = of_tier.map(|d| d.id).collect();
            devices.sort_by_key(|d| (u32::MAX - self.slots.free(*d), *d));
            all.extend(devices);
        }
        all
    }

    fn place_one(
        &mut self,
        home: TierId,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Option<Location> {
        for device in self.candidates(home, prefer) {
            if self.slots.clean_left(device) == 0 && !self.clean(device, CLEAN_AT_ONCE) {
                continue;
            }
            let Some(taken) = self.slots.take_clean(device) else {
                continue;
            };
            let at = Location {
                device,
                slot: taken.slot,
            };
            if !self.hold_space(at) {
                self.slots.give_back(at);
                continue;
            }
            changes.extend(self.mark_for(at));
            return Some(at);
        }
        None
    }

    fn reserve(
        &mut self,
        device: DeviceId,
        count: usize,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        let mut places = vec![];
        for _ in 0..count {
            let taken = self.slots.take_any(device);
            let at = taken.map(|t| Location {
                device,
                slot: t.slot,
            });
            match at {
                // A full filesystem fails the copy, which harms nobody.
                Some(at) => places.push(at),
                at => {
                    places
                        .into_iter()
                        .chain(at)
                        .for_each(|p| self.slots.give_back(p));
                    return Err(Fault::NoSpace);
                }
            }
        }
        let highest = places.iter().max();
        changes.extend(highest.and_then(|at| self.mark_for(*at)));
        Ok(places)
    }

    /// Takes a slot's space from the filesystem now, so that a full one is found here and not in the middle of a write.
    fn hold_space(&self, at: Location) -> bool {
        let of_file = self.records[&at.device].kind == DeviceKind::File;
        !of_file || self.devices[&at.device].hold(at.slot, self.array.extent())
    }

    /// What the keeper does when nothing is to be done: zeroes some given-up slots.
    pub fn clean_a_little(&mut self) {
        // A remote device is asked only when its slots are needed: it may take long to answer.
        let near = self.records.values().filter(|d| d.kind != DeviceKind::Nbd);
        let devices: Vec<DeviceId> = near.map(|d| d.id).collect();
        for device in devices {
            self.clean(device, CLEAN_WHEN_IDLE);
        }
    }

    /// Zeroes given-up slots of a device and flushes it; whether there are clean slots then.
    fn clean(&mut self, device: DeviceId, most: usize) -> bool {
        let recently = |at: &Instant| at.elapsed() < SPARE_AFTER_FAILURE;
        let dirty = if self.failed.get(&device).is_some_and(recently) {
            vec![]
        } else {
            self.slots.to_clean(device, most)
        };
        if !dirty.is_empty() {
            let zeroed = self.devices[&device].zero(&dirty, self.array.extent());
            match zeroed {
                Ok(()) => self.slots.cleaned(device, &dirty),
                Err(error) => {
                    if error.flush {
                        self.lost_flushes.push(device);
                        self.tell_losses();
                    }
                    self.store_error = Some(error.why);
                    self.failed.insert(device, Instant::now());
                    // A remote device may zero them yet, late: nobody gets them before the next start.
                    if self.records[&device].kind != DeviceKind::Nbd {
                        self.slots.not_cleaned(device, &dirty);
                    }
                }
            }
        }
        self.slots.clean_left(device) > 0
    }

    /// The kernel tells of a failed flush once, and has told the keeper: the guests' next flushes must fail.
    fn tell_losses(&mut self) {
        if self.workers.is_empty() {
            return; // whoever drives the keeper asks
        }
        for device in self.lost_flushes.drain(..) {
            for worker in &self.workers {
                worker.send(Message::FlushFailed(device));
            }
        }
    }

    /// Space of a tier: used and total bytes.
    pub fn space(&self, tier: TierId) -> (Bytes, Bytes) {
        let extent = self.array.extent().0;
        let of_tier = self.records.values().filter(|d| d.tier == tier);
        let (mut used, mut total) = (0, 0);
        for device in of_tier {
            let slots = u64::from(self.slots.total(device.id));
            total += slots * extent;
            used += (slots - u64::from(self.slots.free(device.id))) * extent;
        }
        (Bytes(used), Bytes(total))
    }
}

/// What is answered when the commit failed.
fn failed(reply: StoreReply) -> StoreReply {
    let fault = Fault::Io;
    match reply {
        StoreReply::Placed { extents, places } => StoreReply::Placed {
            extents,
            places: Err(places.err().unwrap_or(fault)),
        },
        StoreReply::Vacated { extents, .. } => StoreReply::Vacated {
            extents,
            done: Err(fault),
        },
        StoreReply::Reserved(slots) => StoreReply::Reserved(Err(slots.err().unwrap_or(fault))),
        StoreReply::Switched(_) => StoreReply::Switched(Err(fault)),
    }
}

/// Why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its map.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Two extents in one place, or the like: `terrace volume check` says more.
    #[error("the map contradicts itself: {0} (run `terrace volume check`)")]
    Slots(#[from] array::SlotsError),
    /// A device.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
}

#[cfg(test)]
mod tests;
