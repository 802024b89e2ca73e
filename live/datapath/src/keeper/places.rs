//! Places for extents: choice of a device, a clean slot on it and space for the slot; zeroing of freed slots.
//!
//! ```text
//!   free, never used ─┐
//!                     ├─▶ allocated ──commit──▶ place of an extent ──freed──▶ dirty ──zeroed, flushed──▶ free and clean
//!   free and clean ───┘
//! ```

use std::time::{Duration, Instant};

use array::{Change, DeviceKind};
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use super::Keeper;
use crate::device::{SlotSpace, Space, ZeroError};
use crate::engine::{Fault, StoreReply};

/// Most slots that are zeroed and flushed together.
const CLEAN_AT_ONCE: usize = 64;

/// Most bytes that are zeroed and flushed together, if that is more than one slot. A request may wait for the first
/// slot.
const CLEAN_BYTES: u64 = 64 << 20;

/// Slots zeroed per idle period. Bounds the wait of a request that arrives meanwhile.
const CLEAN_WHEN_IDLE: usize = 8;

/// Time during which no slots are requested from a device that failed to zero slots or did not respond. Other
/// requests wait for the keeper during such attempts.
const SPARE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Longest wait of new extents for an unresponsive device, if no other has room, or for a map that cannot be changed.
/// It equals the time limit of an I/O on a device.
const PLACE_TIME: Duration = Duration::from_secs(30);

/// Request for places that waits: no device responded in time, or the map could not be changed.
pub(super) struct PendingPlaces {
    pub(super) since: Instant,
    pub(super) worker: usize,
    pub(super) volume: VolumeId,
    pub(super) extents: Vec<u32>,
    pub(super) prefer: Option<DeviceId>,
}

impl PendingPlaces {
    /// Creates a request that waits from now on.
    pub(super) fn new(
        worker: usize,
        volume: VolumeId,
        extents: Vec<u32>,
        prefer: Option<DeviceId>,
    ) -> Self {
        Self {
            since: Instant::now(),
            worker,
            volume,
            extents,
            prefer,
        }
    }
}

/// Required content of an allocated slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeroes, because a guest may write only a part of the slot.
    Zeroes,
    /// Any content: every used part is written before the slot becomes a place.
    Any,
}

/// Reason why no place was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// No device has room.
    Full,
    /// The devices that may have room do not respond.
    NotInTime,
}

impl<D: SlotSpace> Keeper<D> {
    /// Retries requests that wait for unresponsive devices or for the map. Returns the replies of those that are
    /// decided. The caller calls it often.
    pub fn place_waiting(&mut self) -> Vec<(usize, VolumeId, StoreReply)> {
        let held = self.held.is_some();
        let (mut changes, mut answers) = (vec![], vec![]);
        for one in std::mem::take(&mut self.waiting) {
            if !self.volumes.contains_key(&one.volume) {
                continue; // deleted: the request is obsolete
            }
            let (worker, volume) = (one.worker, one.volume);
            let reply = match held {
                true => self.wait_or_fail(one),
                false => self.place_or_wait(one, &mut changes),
            };
            answers.extend(reply.map(|r| (worker, volume, r)));
        }
        match held {
            true => answers,
            false => self.make_durable(&changes, answers),
        }
    }

    /// Returns the reply to a request for places; `None` if it must wait.
    pub(super) fn place_or_wait(
        &mut self,
        one: PendingPlaces,
        changes: &mut Vec<Change>,
    ) -> Option<StoreReply> {
        let count = one.extents.len();
        let places = self.place_all(one.volume, count, one.prefer, Content::Zeroes, changes);
        let places = match places {
            Err(NoPlace::NotInTime) => return self.wait_or_fail(one),
            Err(NoPlace::Full) => Err(Fault::NoSpace),
            Ok(places) => Ok(places),
        };
        let (volume, extents) = (one.volume, one.extents);
        for (extent, at) in extents.iter().zip(places.iter().flatten()) {
            changes.push(Change::Place {
                volume,
                extent: *extent,
                at: *at,
            });
        }
        Some(StoreReply::Placed { extents, places })
    }

    /// Lets a request continue to wait, or fails it after its time limit.
    fn wait_or_fail(&mut self, one: PendingPlaces) -> Option<StoreReply> {
        if one.since.elapsed() < PLACE_TIME {
            self.waiting.push(one);
            return None;
        }
        let (extents, places) = (one.extents, Err(Fault::Io));
        Some(StoreReply::Placed { extents, places })
    }

    pub(super) fn place_all(
        &mut self,
        volume: VolumeId,
        count: usize,
        prefer: Option<DeviceId>,
        content: Content,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, NoPlace> {
        let home = self.volumes.get(&volume).map_or(TierId(0), |v| v.home);
        let before = changes.len();
        let mut places = vec![];
        for _ in 0..count {
            match self.place_one(home, prefer, content, changes) {
                Ok(place) => places.push(place),
                Err(why) => {
                    // The slots were not written and keep their state.
                    places.into_iter().for_each(|p| self.slots.give_back(p));
                    changes.truncate(before);
                    return Err(why);
                }
            }
        }
        Ok(places)
    }

    /// Allocates a slot for an extent that is shared; `None` if it is not shared any more.
    pub(super) fn unshare(
        &mut self,
        volume: VolumeId,
        from: Location,
        prefer: DeviceId,
        changes: &mut Vec<Change>,
    ) -> Result<Option<Location>, Fault> {
        // A place at the source of an import is never private.
        if !self.is_at_source(volume, from) && self.slots.owners(from) < 2 {
            return Ok(None);
        }
        match self.place_all(volume, 1, Some(prefer), Content::Zeroes, changes) {
            Ok(places) => Ok(places.first().copied()),
            Err(NoPlace::Full) => Err(Fault::NoSpace),
            Err(NoPlace::NotInTime) => Err(Fault::Io),
        }
    }

    /// Returns the devices to try for a new extent in this order: the preferred device, the home tier, the tiers
    /// below it, then those above it from the nearest one. Within a tier, the device with most room is first.
    fn candidates(&self, home: TierId, prefer: Option<DeviceId>) -> Vec<DeviceId> {
        let mut tiers: Vec<TierId> = self.tiers.iter().map(|t| t.id).collect();
        tiers.sort_by_key(|t| (*t < home, t.0.abs_diff(home.0)));
        let mut all: Vec<DeviceId> = prefer.into_iter().collect();
        all.retain(|d| self.devices.contains_key(d));
        for tier in tiers {
            let of_tier = self.records.values().filter(|d| d.tier == tier);
            let usable = of_tier.filter(|d| self.devices.contains_key(&d.id));
            let mut devices: Vec<DeviceId> = usable.map(|d| d.id).collect();
            devices.sort_by_key(|d| (u32::MAX - self.slots.free(*d), *d));
            all.extend(devices);
        }
        all
    }

    /// Allocates a place for a new extent. Devices that recently did not respond are tried only if no other has room.
    fn place_one(
        &mut self,
        home: TierId,
        prefer: Option<DeviceId>,
        content: Content,
        changes: &mut Vec<Change>,
    ) -> Result<Location, NoPlace> {
        let lately = |at: &Instant| at.elapsed() < SPARE_AFTER_FAILURE;
        let silent = |d: &DeviceId| self.silent.get(d).is_some_and(lately);
        let all = self.candidates(home, prefer).into_iter();
        let (last, first): (Vec<_>, Vec<_>) = all.partition(silent);
        let mut none = NoPlace::Full;
        for device in first.into_iter().chain(last) {
            match self.place_on(device, content) {
                Ok(at) => {
                    changes.extend(self.mark_for(at));
                    return Ok(at);
                }
                Err(NoPlace::NotInTime) => none = NoPlace::NotInTime,
                Err(NoPlace::Full) => {}
            }
        }
        Err(none)
    }

    fn place_on(&mut self, device: DeviceId, content: Content) -> Result<Location, NoPlace> {
        // Check before allocation: a never used slot becomes dirty when it is allocated.
        if !self.devices[&device].may_hold() {
            return Err(NoPlace::NotInTime);
        }
        let taken = match content {
            Content::Any => self.slots.take_any(device),
            Content::Zeroes => {
                if self.slots.clean_left(device) == 0 {
                    self.clean(device, CLEAN_AT_ONCE)?;
                }
                self.slots.take_clean(device)
            }
        };
        let taken = taken.ok_or(NoPlace::Full)?;
        let slot = taken.slot;
        let at = Location { device, slot };
        let space = self.hold_space(at);
        if space != Space::Held {
            self.slots.give_back(at);
        }
        match space {
            Space::Held => {
                self.silent.remove(&device);
                Ok(at)
            }
            Space::None => Err(NoPlace::Full),
            Space::NotInTime => {
                self.silent.insert(device, Instant::now());
                Err(NoPlace::NotInTime)
            }
        }
    }

    pub(super) fn reserve(
        &mut self,
        device: DeviceId,
        count: usize,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        if !self.devices.contains_key(&device) {
            return Err(Fault::Lost);
        }
        let mut places = vec![];
        for _ in 0..count {
            let taken = self.slots.take_any(device);
            let at = taken.map(|t| Location {
                device,
                slot: t.slot,
            });
            match at {
                // A full file system only fails the copy.
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

    /// Returns the change that a slot needs before it may be written. A slot that was allocated and returned unused
    /// is not new to [`Slots`] any more, but its high-water mark may not be durable. The durable mark decides.
    pub(super) fn mark_for(&self, at: Location) -> Option<Change> {
        (at.slot >= self.records[&at.device].high_water).then_some(Change::HighWater {
            device: at.device,
            slots: at.slot + 1,
        })
    }

    /// Allocates a slot's space in the file system now, so a lack of space is found here and not during a write.
    fn hold_space(&self, at: Location) -> Space {
        match self.records[&at.device].kind {
            DeviceKind::File => self.devices[&at.device].hold(at.slot, self.map.extent()),
            _ => Space::Held,
        }
    }

    /// Zeroes some freed slots while the keeper is idle.
    pub fn clean_a_little(&mut self) {
        if self.imports() {
            return;
        }
        let all: Vec<DeviceId> = self.devices.keys().copied().collect();
        for device in all {
            self.hear_of_zeroing(device);
            // A remote device is zeroed only when its slots are needed: it may respond slowly.
            if !self.records[&device].kind.is_remote() {
                let _ = self.clean(device, CLEAN_WHEN_IDLE);
            }
        }
    }

    /// Receives the result of zeroing that exceeded its time limit.
    pub(super) fn hear_of_zeroing(&mut self, device: DeviceId) {
        while let Some((slots, result)) = self.devices[&device].zeroed_late() {
            self.failed.remove(&device);
            self.zeroed(device, &slots, result);
        }
    }

    /// Zeroes freed slots of a device and flushes it. Returns an error if the device then has no clean slot.
    pub(super) fn clean(&mut self, device: DeviceId, most: usize) -> Result<(), NoPlace> {
        self.hear_of_zeroing(device);
        let recently = |at: &Instant| at.elapsed() < SPARE_AFTER_FAILURE;
        let extent = self.map.extent();
        let most = most.min((CLEAN_BYTES / extent.0).max(1) as usize);
        let spared = self.failed.get(&device).is_some_and(recently);
        let dirty = match spared || self.devices[&device].is_zeroing() {
            true => vec![],
            false => self.slots.to_clean(device, most),
        };
        if !dirty.is_empty() {
            let result = self.devices[&device].zero(&dirty, extent);
            self.zeroed(device, &dirty, result);
        }
        match self.slots.clean_left(device) {
            0 if self.devices[&device].is_zeroing() => Err(NoPlace::NotInTime),
            0 => Err(NoPlace::Full),
            _ => Ok(()),
        }
    }

    /// Handles the end of a zeroing, or its time-out.
    fn zeroed(&mut self, device: DeviceId, slots: &[u32], result: Result<(), ZeroError>) {
        let Err(error) = result else {
            return self.slots.cleaned(device, slots);
        };
        if error.flush {
            self.lost_flushes.push(device);
            self.tell_losses();
        }
        self.store_error = Some(error.why);
        self.failed.insert(device, Instant::now());
        if !error.late {
            self.slots.not_cleaned(device, slots);
        }
    }

    /// Returns the used and total bytes of a tier.
    pub fn space(&self, tier: TierId) -> (Bytes, Bytes) {
        let extent = self.map.extent().0;
        let of_tier = self.records.values().filter(|d| d.tier == tier);
        let of_tier = of_tier.filter(|d| d.kind != DeviceKind::Gone);
        let (mut used, mut total) = (0, 0);
        for device in of_tier {
            let slots = u64::from(self.slots.total(device.id));
            total += slots * extent;
            used += (slots - u64::from(self.slots.free(device.id))) * extent;
        }
        (Bytes(used), Bytes(total))
    }
}
