//! Places on the simulated devices: slots of an extent's size. Only devices with flash inside care which one an extent has.

use units::{Bytes, DeviceId};
use volume::{Location, VolumeMap};

use crate::build::VolumeModel;

/// Free slots of one device: those that were given back first, the last one before the others, then new ones.
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

    /// How many are not free.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.next as usize - self.free.len()
    }
}

/// Slots by device with the volumes where they start, and the volumes' maps: extents in a row, volumes one behind the other; those that are
/// scattered in the order in which they come to their devices.
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
