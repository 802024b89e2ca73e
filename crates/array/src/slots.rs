//! Which slots are free: an allocator over all devices, in memory and sans I/O.
//!
//! ```text
//!                take_clean                    give_back
//!   ┌─ never used ──────────┐      ┌─────────────────────────▶ dirty ◀─┐ (what is free at the start, below the mark)
//!   │ (above high water)    ▼      │                             │     │
//!   │ take_any (last) ──▶ taken ───┘ ◀── take_any (first) ───────┤     │
//!   │                       ▲                                    │ to_clean
//!   │                       │ take_clean (first), take_any       ▼
//!   │                     clean ◀────────── cleaned ───────── cleaning
//!   ▼
//!  each slot is in exactly one of these states; within one, the lowest is taken first
//! ```
//!
//! A hole that is written to gets a slot that reads as zeroes ([`Slots::take_clean`]), because the guest may write less than
//! the extent. The target of a move is filled by the copy and may be any ([`Slots::take_any`]), so that clean slots last.
//!
//! A slot may have several owners: an extent of a volume, and the same extent of snapshots of it ([`Slots::share`]). Each gives it back; it is
//! free when the last one has.
//!
//! That a cleaned slot is clean is not remembered across a restart: free slots below the high-water mark are dirty then.
//! Memory: three bits per slot, and two bytes for each up to the highest one that was ever shared.
//!
//! # What it is not
//!
//! Nothing durable: where extents are is the map's, and a slot is given back only when the map says so durably. It does not
//! choose devices.

use std::collections::BTreeMap;

use thiserror::Error;
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::bitmap::Bitmap;
use crate::claims::Claims;
use crate::record::DeviceRecord;

/// Why devices and places do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SlotsError {
    /// An id that two devices have.
    #[error("device {0} exists twice")]
    DeviceTwice(u16),
    /// A place on a device that is not there.
    #[error("slot {slot} of device {device} is in use, but the device does not exist")]
    NoDevice { device: u16, slot: u32 },
    /// A place past the end of its device.
    #[error("slot {slot} of device {device} is in use, but the device has {slots} slots")]
    Outside {
        device: u16,
        slot: u32,
        /// The device's slots.
        slots: u32,
    },
    /// A place in a slot that was never written.
    #[error(
        "slot {slot} of device {device} is in use, but not below the device's high-water mark {high_water}"
    )]
    AboveHighWater {
        device: u16,
        slot: u32,
        /// The mark.
        high_water: u32,
    },
    /// Two extents in one slot that may not share it: they are not the same extent of volumes of one family.
    #[error("slot {slot} of device {device} is in use twice")]
    Twice { device: u16, slot: u32 },
}

/// A slot that was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a slot that is dropped is lost until the next start: give it back"]
pub struct Taken {
    pub slot: u32,
    /// If there is one, the device's high-water mark must be this or more, durably, before the slot is written
    /// ([`Change::HighWater`](crate::Change::HighWater)). Of several, the highest is enough.
    pub high_water: Option<u32>,
}

/// An extent that is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Used {
    /// The slot.
    pub at: Location,
    /// The volume, or that which it is a snapshot of ([`VolumeRecord::family`](crate::VolumeRecord::family)).
    pub family: VolumeId,
    pub extent: u32,
}

#[derive(Debug)]
struct DeviceSlots {
    slots: u32,
    /// Slots from this one on were never used and read as zeroes.
    mark: u32,
    dirty: Bitmap,
    cleaning: Bitmap,
    clean: Bitmap,
    /// How many owners a taken slot has besides one; none where it is too short.
    extra: Vec<u16>,
}

/// The free slots of all devices.
#[derive(Debug, Default)]
pub struct Slots {
    devices: BTreeMap<DeviceId, DeviceSlots>,
}

impl Slots {
    /// All slots of the devices but those that are in use. The same extent of volumes of one family may be in one slot, and no others.
    pub fn new(
        devices: &[DeviceRecord],
        used: impl Iterator<Item = Used>,
    ) -> Result<Self, SlotsError> {
        let mut all = Self::default();
        for record in devices {
            let fresh = DeviceSlots::new(record);
            if all.devices.insert(record.id, fresh).is_some() {
                return Err(SlotsError::DeviceTwice(record.id.0));
            }
        }
        let mut claims = Claims::default();
        for one in used {
            all.claim(one, &mut claims)?;
        }
        Ok(all)
    }

    /// Takes a slot out that an extent is in.
    fn claim(&mut self, used: Used, claims: &mut Claims) -> Result<(), SlotsError> {
        let Used { at, family, extent } = used;
        let (slot, device) = (at.slot, at.device.0);
        let Some(on) = self.devices.get_mut(&at.device) else {
            return Err(SlotsError::NoDevice { device, slot });
        };
        if slot >= on.slots {
            let slots = on.slots;
            return Err(SlotsError::Outside {
                device,
                slot,
                slots,
            });
        }
        if slot >= on.mark {
            let high_water = on.mark;
            return Err(SlotsError::AboveHighWater {
                device,
                slot,
                high_water,
            });
        }
        if on.dirty.remove(slot) {
            claims.set(at, (family, extent));
            return Ok(());
        }
        let shares = claims.get(at) == Some((family, extent)) && on.extra(slot) < u16::MAX;
        match shares {
            true => {
                on.share(slot);
                Ok(())
            }
            false => Err(SlotsError::Twice { device, slot }),
        }
    }

    /// Adds a device of which nothing is in use. Panics if there is one with its id.
    pub fn add_device(&mut self, record: &DeviceRecord) {
        let before = self.devices.insert(record.id, DeviceSlots::new(record));
        assert!(before.is_none(), "device {} is there twice", record.id.0);
    }

    /// Forgets a device. Panics while something on it is taken.
    pub fn remove_device(&mut self, device: DeviceId) {
        let gone = self.devices.remove(&device);
        let empty = gone.is_none_or(|on| on.free() == on.slots);
        assert!(empty, "device {} is removed, but is in use", device.0);
    }

    /// Nothing is known any more of what is in the slots that were never used: they may hold old bytes, as dirty ones. The device's
    /// high-water mark must be the number of its slots, durably, before one of them is given.
    pub fn distrust(&mut self, device: DeviceId) {
        if let Some(on) = self.devices.get_mut(&device) {
            for slot in on.mark..on.slots {
                on.dirty.insert(slot);
            }
            on.mark = on.slots;
        }
    }

    /// A slot that reads as zeroes: a cleaned one, or else one that was never used.
    pub fn take_clean(&mut self, device: DeviceId) -> Option<Taken> {
        let on = self.devices.get_mut(&device)?;
        on.clean.pop().map(Taken::again).or_else(|| on.take_new())
    }

    /// A slot with any content: a dirty one, or else a cleaned one, or else one that was never used.
    pub fn take_any(&mut self, device: DeviceId) -> Option<Taken> {
        let on = self.devices.get_mut(&device)?;
        let used = on.dirty.pop().or_else(|| on.clean.pop());
        used.map(Taken::again).or_else(|| on.take_new())
    }

    /// A slot that is taken has one owner more: a snapshot of the extent that is in it. Panics if it is not taken.
    pub fn share(&mut self, at: Location) {
        let (device, slot) = (at.device.0, at.slot);
        let on = self.device(at.device);
        assert!(
            on.taken(slot),
            "slot {slot} of device {device} is shared, but is not taken"
        );
        on.share(slot);
    }

    /// How many owners a slot has: 0 if it is not taken.
    pub fn owners(&self, at: Location) -> u32 {
        let on = self.devices.get(&at.device);
        on.filter(|on| on.taken(at.slot))
            .map_or(0, |on| 1 + u32::from(on.extra(at.slot)))
    }

    /// A slot has one owner less: no request of it that knows the slot is in flight, and the map says durably that its extent is not in it.
    /// When it was the last one, the slot is free again, and may hold old bytes. Panics if it is not taken.
    pub fn give_back(&mut self, at: Location) {
        let (device, slot) = (at.device.0, at.slot);
        let on = self.device(at.device);
        assert!(
            on.taken(slot),
            "slot {slot} of device {device} is given back, but is not taken"
        );
        if !on.unshare(slot) {
            on.dirty.insert(slot);
        }
    }

    /// Takes up to `most` dirty slots out, to be zeroed.
    pub fn to_clean(&mut self, device: DeviceId, most: usize) -> Vec<u32> {
        let Some(on) = self.devices.get_mut(&device) else {
            return vec![];
        };
        let count = most.min(on.dirty.count() as usize);
        let taken: Vec<u32> = (0..count).filter_map(|_| on.dirty.pop()).collect();
        for slot in &taken {
            on.cleaning.insert(*slot);
        }
        taken
    }

    /// Slots that [`Slots::to_clean`] gave read as zeroes now, durably. Panics for others.
    pub fn cleaned(&mut self, device: DeviceId, slots: &[u32]) {
        self.end_cleaning(device, slots, |on| &mut on.clean);
    }

    /// Slots that [`Slots::to_clean`] gave could not be zeroed: they are dirty as before. Panics for others.
    pub fn not_cleaned(&mut self, device: DeviceId, slots: &[u32]) {
        self.end_cleaning(device, slots, |on| &mut on.dirty);
    }

    fn end_cleaning(
        &mut self,
        device: DeviceId,
        slots: &[u32],
        state: impl Fn(&mut DeviceSlots) -> &mut Bitmap,
    ) {
        let on = self.device(device);
        for slot in slots {
            assert!(
                *slot < on.mark && on.cleaning.remove(*slot),
                "slot {slot} of device {} was not being cleaned",
                device.0
            );
            state(on).insert(*slot);
        }
    }

    /// How many slots [`Slots::take_clean`] would give now.
    pub fn clean_left(&self, device: DeviceId) -> usize {
        let on = self.devices.get(&device);
        on.map_or(0, |on| (on.clean.count() + on.never_used()) as usize)
    }

    /// How many slots no extent is in, including those that are being cleaned.
    pub fn free(&self, device: DeviceId) -> u32 {
        self.devices.get(&device).map_or(0, DeviceSlots::free)
    }

    /// How many slots a device has.
    pub fn total(&self, device: DeviceId) -> u32 {
        self.devices.get(&device).map_or(0, |on| on.slots)
    }

    fn device(&mut self, id: DeviceId) -> &mut DeviceSlots {
        match self.devices.get_mut(&id) {
            Some(on) => on,
            None => panic!("there is no device {}", id.0),
        }
    }
}

impl Taken {
    fn again(slot: u32) -> Self {
        Self {
            slot,
            high_water: None,
        }
    }
}

impl DeviceSlots {
    fn new(record: &DeviceRecord) -> Self {
        let slots = record.slots;
        let mark = match record.kind.begins_as_zeroes() {
            true => record.high_water.min(slots),
            false => slots,
        };
        Self {
            slots,
            mark,
            dirty: Bitmap::filled(slots, mark),
            cleaning: Bitmap::new(slots),
            clean: Bitmap::new(slots),
            extra: vec![],
        }
    }

    fn extra(&self, slot: u32) -> u16 {
        self.extra.get(slot as usize).copied().unwrap_or(0)
    }

    fn share(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.extra.len() <= slot {
            self.extra.resize(slot + 1, 0);
        }
        let more = self.extra[slot].checked_add(1);
        self.extra[slot] = more.expect("a family has at most 1 001 members");
    }

    /// Takes one of several owners; says whether there were several.
    fn unshare(&mut self, slot: u32) -> bool {
        match self.extra.get_mut(slot as usize) {
            Some(extra) if *extra > 0 => {
                *extra -= 1;
                true
            }
            _ => false,
        }
    }

    fn take_new(&mut self) -> Option<Taken> {
        if self.mark == self.slots {
            return None;
        }
        let slot = self.mark;
        self.mark += 1;
        Some(Taken {
            slot,
            high_water: Some(self.mark),
        })
    }

    fn never_used(&self) -> u32 {
        self.slots - self.mark
    }

    fn free(&self) -> u32 {
        let below = self.dirty.count() + self.cleaning.count() + self.clean.count();
        below + self.never_used()
    }

    fn taken(&self, slot: u32) -> bool {
        slot < self.mark
            && !self.dirty.contains(slot)
            && !self.cleaning.contains(slot)
            && !self.clean.contains(slot)
    }
}
