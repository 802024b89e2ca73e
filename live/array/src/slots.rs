//! Allocator of slots over all devices, in memory and sans I/O.
//!
//! ```text
//!                take_clean                    give_back
//!   ┌─ never used ──────────┐      ┌─────────────────────────▶ dirty ◀─┐ (free slots at the start, below the mark)
//!   │ (above high water)    ▼      │                             │     │
//!   │ take_any (last) ──▶ taken ───┘ ◀── take_any (first) ───────┤     │
//!   │                       ▲                                    │ to_clean
//!   │                       │ take_clean (first), take_any       ▼
//!   │                     clean ◀────────── cleaned ───────── cleaning
//!   ▼
//!  each slot is in exactly one of these states; within one, the lowest is taken first
//! ```
//!
//! A write to a hole needs a slot that reads as zeroes ([`Slots::take_clean`]), because the guest may write less than
//! the extent. The target of a move is overwritten by the copy, so any slot fits ([`Slots::take_any`]) and clean slots
//! are saved.
//!
//! A slot may have several owners: an extent of a volume, and the same extent of its snapshots ([`Slots::share`]). Each
//! owner gives the slot back; it is free after the last one did.
//!
//! The clean state is not remembered across a restart: then all free slots below the high-water mark are dirty. Memory:
//! three bits per slot, and two bytes per slot up to the highest one that was ever shared.
//!
//! # Limits
//!
//! Nothing durable: the map has the places of extents, and a slot is given back only after the map has recorded that
//! durably. The allocator does not choose devices.

use std::collections::BTreeMap;

use thiserror::Error;
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::bitmap::Bitmap;
use crate::claims::Claims;
use crate::record::DeviceRecord;

/// Reason devices and places do not match.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SlotsError {
    /// Two devices have the same id.
    #[error("device {0} exists twice")]
    DeviceTwice(u16),
    /// A place is on a device that does not exist.
    #[error("slot {slot} of device {device} is in use, but the device does not exist")]
    NoDevice { device: u16, slot: u32 },
    /// A place is past the end of its device.
    #[error("slot {slot} of device {device} is in use, but the device has {slots} slots")]
    Outside {
        device: u16,
        slot: u32,
        /// Number of slots of the device.
        slots: u32,
    },
    /// A place is in a slot that was never written.
    #[error(
        "slot {slot} of device {device} is in use, but not below the device's high-water mark {high_water}"
    )]
    AboveHighWater {
        device: u16,
        slot: u32,
        /// High-water mark.
        high_water: u32,
    },
    /// Two extents are in one slot but may not share it: they are not the same extent of volumes of one family.
    #[error("slot {slot} of device {device} is in use twice")]
    Twice { device: u16, slot: u32 },
}

/// Slot that was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a slot that is dropped is lost until the next start: give it back"]
pub struct TakenSlot {
    pub slot: u32,
    /// High-water mark that the device must have durably, at least, before the slot is written
    /// ([`Change::HighWater`](crate::Change::HighWater)). Of several marks, the highest is enough.
    pub high_water: Option<u32>,
}

/// Slot in use by an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedSlot {
    /// Place of the extent.
    pub at: Location,
    /// Volume, or its original volume if it is a snapshot ([`VolumeRecord::family`](crate::VolumeRecord::family)).
    pub family: VolumeId,
    pub extent: u32,
}

#[derive(Debug)]
struct DeviceSlots {
    slots: u32,
    /// Mark from which on slots were never used and read as zeroes.
    mark: u32,
    dirty: Bitmap,
    cleaning: Bitmap,
    clean: Bitmap,
    /// Number of owners of a taken slot beyond the first; zero past the end of the vector.
    extra: Vec<u16>,
}

/// Free slots of all devices.
#[derive(Debug, Default)]
pub struct Slots {
    devices: BTreeMap<DeviceId, DeviceSlots>,
}

impl Slots {
    /// Creates the allocator with all slots free except those in use. Only the same extent of volumes of one family may
    /// share a slot.
    pub fn new(
        devices: &[DeviceRecord],
        used: impl Iterator<Item = UsedSlot>,
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

    /// Marks a slot as used by an extent.
    fn claim(&mut self, used: UsedSlot, claims: &mut Claims) -> Result<(), SlotsError> {
        let UsedSlot { at, family, extent } = used;
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

    /// Adds a device without slots in use. Panics if the id exists.
    pub fn add_device(&mut self, record: &DeviceRecord) {
        let before = self.devices.insert(record.id, DeviceSlots::new(record));
        assert!(before.is_none(), "device {} is there twice", record.id.0);
    }

    /// Removes a device. Panics while one of its slots is taken.
    pub fn remove_device(&mut self, device: DeviceId) {
        let gone = self.devices.remove(&device);
        let empty = gone.is_none_or(|on| on.free() == on.slots);
        assert!(empty, "device {} is removed, but is in use", device.0);
    }

    /// Treats the slots that were never used as dirty, because their content is unknown now. The device's high-water
    /// mark must durably be its number of slots before one of them is taken.
    pub fn distrust(&mut self, device: DeviceId) {
        if let Some(on) = self.devices.get_mut(&device) {
            for slot in on.mark..on.slots {
                on.dirty.insert(slot);
            }
            on.mark = on.slots;
        }
    }

    /// Takes a slot that reads as zeroes: a cleaned one, else one that was never used.
    pub fn take_clean(&mut self, device: DeviceId) -> Option<TakenSlot> {
        let on = self.devices.get_mut(&device)?;
        on.clean
            .pop()
            .map(TakenSlot::again)
            .or_else(|| on.take_new())
    }

    /// Takes a slot with any content: a dirty one, else a cleaned one, else one that was never used.
    pub fn take_any(&mut self, device: DeviceId) -> Option<TakenSlot> {
        let on = self.devices.get_mut(&device)?;
        let used = on.dirty.pop().or_else(|| on.clean.pop());
        used.map(TakenSlot::again).or_else(|| on.take_new())
    }

    /// Adds an owner to a taken slot: a snapshot of the extent in it. Panics if the slot is not taken.
    pub fn share(&mut self, at: Location) {
        let (device, slot) = (at.device.0, at.slot);
        let on = self.device(at.device);
        assert!(
            on.taken(slot),
            "slot {slot} of device {device} is shared, but is not taken"
        );
        on.share(slot);
    }

    /// Returns the number of owners of a slot; 0 if it is not taken.
    pub fn owners(&self, at: Location) -> u32 {
        let on = self.devices.get(&at.device);
        on.filter(|on| on.taken(at.slot))
            .map_or(0, |on| 1 + u32::from(on.extra(at.slot)))
    }

    /// Removes an owner of a slot. The caller ensures that no request of the owner that uses the slot is in flight, and
    /// that the map durably records that the owner's extent is elsewhere. After the last owner the slot is free and may
    /// hold old bytes. Panics if the slot is not taken.
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

    /// Takes up to `most` dirty slots for zeroing.
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

    /// Marks slots from [`Slots::to_clean`] as clean: they now durably read as zeroes. Panics for others.
    pub fn cleaned(&mut self, device: DeviceId, slots: &[u32]) {
        self.end_cleaning(device, slots, |on| &mut on.clean);
    }

    /// Returns slots from [`Slots::to_clean`] that could not be zeroed; they are dirty as before. Panics for others.
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

    /// Returns the number of slots that [`Slots::take_clean`] can give now.
    pub fn clean_left(&self, device: DeviceId) -> usize {
        let on = self.devices.get(&device);
        on.map_or(0, |on| (on.clean.count() + on.never_used()) as usize)
    }

    /// Returns the number of slots without an extent, including those that are being cleaned.
    pub fn free(&self, device: DeviceId) -> u32 {
        self.devices.get(&device).map_or(0, DeviceSlots::free)
    }

    /// Returns the number of slots of a device.
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

impl TakenSlot {
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

    /// Removes one of several owners; returns true if there were several.
    fn unshare(&mut self, slot: u32) -> bool {
        match self.extra.get_mut(slot as usize) {
            Some(extra) if *extra > 0 => {
                *extra -= 1;
                true
            }
            _ => false,
        }
    }

    fn take_new(&mut self) -> Option<TakenSlot> {
        if self.mark == self.slots {
            return None;
        }
        let slot = self.mark;
        self.mark += 1;
        Some(TakenSlot {
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
