//! Random placement of extents on all devices, weighted by free space: `initial_placement = "scattered"`.

use std::sync::Arc;

use algo::mix;
use model::Topology;
use units::{Bytes, DeviceId};

use crate::{ScenarioError, ScenarioFile, VolumeModel};

impl ScenarioFile {
    /// Assigns the extents of the volumes in `scattered` to devices. `free` has the free bytes of each device.
    pub(crate) fn scatter(
        &self,
        topology: &Topology,
        volumes: &mut [VolumeModel],
        scattered: &[usize],
        free: &[u64],
    ) -> Result<(), ScenarioError> {
        let extent = self.scenario.extent;
        let extents = |v: &VolumeModel| v.size.0.div_ceil(extent.0);
        let all: u64 = scattered.iter().map(|v| extents(&volumes[*v])).sum();
        let rooms: Vec<u64> = free.iter().map(|bytes| bytes / extent.0).collect();
        let room: u64 = rooms.iter().sum();
        if all > room {
            let why = format!(
                "{all} extents of {extent} must be scattered, but the devices have space for {room} ({})",
                Bytes(room * extent.0)
            );
            return Err(self.fault("initial_placement", why));
        }
        let places = dealt(&rooms, all, mix(self.scenario.seed, 0x97ACE));
        let mut places = places.into_iter();
        for v in scattered {
            let volume = &mut volumes[*v];
            let count = extents(volume) as usize;
            let own: Arc<[DeviceId]> = places.by_ref().take(count).collect();
            let mut held = vec![0u64; topology.devices.len()];
            own.iter().for_each(|d| held[d.index()] += 1);
            let most = (0..held.len()).max_by_key(|d| (held[*d], std::cmp::Reverse(*d)));
            volume.device = DeviceId::from_index(most.expect("there are devices"));
            volume.places = Some(own);
        }
        Ok(())
    }
}

/// Returns the devices of `all` extents in random order. The number on each device is proportional to its free space.
fn dealt(rooms: &[u64], all: u64, stream: u64) -> Vec<DeviceId> {
    let room: u128 = rooms.iter().map(|r| u128::from(*r)).sum();
    let mut places: Vec<DeviceId> = Vec::with_capacity(all as usize);
    let mut before = 0u128;
    for (d, own) in rooms.iter().enumerate() {
        before += u128::from(*own);
        let until = (u128::from(all) * before / room.max(1)) as usize;
        places.resize(until, DeviceId::from_index(d));
    }
    // Fisher-Yates shuffle.
    for i in (1..places.len()).rev() {
        let j = ((u128::from(mix(stream, i as u64)) * (i as u128 + 1)) >> 64) as usize;
        places.swap(i, j);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_get_their_share_of_all_extents_and_of_each_subset() {
        let rooms = [30, 180, 790];
        let places = dealt(&rooms, 500, 7);
        let count = |part: &[DeviceId], d: usize| part.iter().filter(|p| p.index() == d).count();
        assert_eq!([0, 1, 2].map(|d| count(&places, d)), [15, 90, 395]);
        let half = count(&places[..250], 2);
        assert!((180..215).contains(&half), "{half}");
        // Devices are filled exactly to their capacity.
        let full = dealt(&rooms, 1000, 7);
        assert_eq!([0, 1, 2].map(|d| count(&full, d)), [30, 180, 790]);
        assert_ne!(dealt(&rooms, 500, 8), places);
        assert!(dealt(&[0, 0], 0, 1).is_empty());
    }
}
