//! Slots of extent size on the simulated devices. The slot of an extent matters only on devices with a flash model.

use units::{Bytes, DeviceId};
use volume::{Location, VolumeMap};

use crate::build::VolumeModel;

/// Free slots of one device. Freed slots are used first, in last-in-first-out order, then new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    free: Vec<u32>,
    next: u32,
}

impl Slots {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Returns the number of used slots.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.next as usize - self.free.len()
    }
}

/// Returns the slots of each device after the initial placement, and the maps of the volumes. Extents of a volume are
/// contiguous, and volumes follow each other. Scattered extents have the order of their assignment to devices.
pub(crate) fn first_places(
    volumes: &[VolumeModel],
    extent: Bytes,
    devices: usize,
) -> (Vec<Slots>, Vec<VolumeMap>) {
    let mut slots = vec![Slots::default(); devices];
    let maps = volumes.iter().map(|v| {
        let extents = v.size.0.div_ceil(extent.0);
        let place = |e: u64| {
            let scattered = v.places.as_ref().map(|p| p[e as usize]);
            let device: DeviceId = scattered.unwrap_or(v.device);
            let slot = slots[device.index()].take();
            Some(Location { device, slot })
        };
        VolumeMap::at(v.size, extent, (0..extents).map(place).collect())
    });
    let maps = maps.collect();
    (slots, maps)
}
