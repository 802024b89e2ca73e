//! Snapshots: volumes that share the slots of another volume, in its state at a moment without requests in flight.
//!
//! A shared slot becomes free when its last owner releases it ([`array::Slots::give_back`]). An engine may treat an
//! extent as shared that no other volume shares any more; the keeper tells it so when it asks for a private slot.

use array::{ArrayError, Change, VolumeRecord};
use units::VolumeId;
use volume::{Location, VolumeMap};

use super::Keeper;
use crate::device::SlotSpace;

impl<D: SlotSpace> Keeper<D> {
    /// Returns the places of a volume's extents, with the slots that other volumes share.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn volume_map(&self, record: &VolumeRecord) -> Result<VolumeMap, ArrayError> {
        let places = match self.known.get(&record.id) {
            Some(places) => places.clone(),
            None => self.map.places(record.id)?,
        };
        if places.len() as u64 != record.extents(self.map.extent()) {
            let why = format!("the size of volume {:?} is unknown", record.name);
            return Err(ArrayError::Away { why });
        }
        let source = record.source.as_ref().map(|s| s.device);
        let mut map = VolumeMap::from_source(record.size, self.map.extent(), places, source);
        for extent in 0..map.extents() {
            let at = map.location(extent);
            if at.is_some_and(|at| self.slots.owners(at) > 1) {
                map.share(extent);
            }
        }
        Ok(map)
    }

    fn slots_of(&self, volume: VolumeId) -> Result<Vec<Location>, ArrayError> {
        let places = self.map.extents(volume)?.into_iter();
        let known = places.filter_map(|place| match place {
            array::Extent::At(at) => Some(at),
            array::Extent::Hole | array::Extent::Lost => None,
        });
        Ok(known.collect())
    }

    /// Takes a snapshot of a volume. The volume's engine has no requests in flight, and its writes are durable.
    ///
    /// # Errors
    /// The snapshot was not created, or that is unknown. In the second case its slots stay allocated.
    pub fn take_snapshot(&mut self, record: VolumeRecord) -> Result<(), ArrayError> {
        let slots = self.slots_of(record.family())?;
        let held = self.is_held();
        let done = self.commit(&[Change::TakeSnapshot(record.clone())]);
        if done.is_ok() || (self.is_held() && !held) {
            slots.into_iter().for_each(|at| self.slots.share(at));
        }
        done?;
        self.volumes.insert(record.id, record);
        Ok(())
    }

    /// Releases the slots of a snapshot whose commit was in doubt and has failed.
    pub(super) fn snapshots_undone(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::TakeSnapshot(record) = change
                && let Ok(slots) = self.slots_of(record.family())
            {
                slots.into_iter().for_each(|at| self.slots.give_back(at));
            }
        }
    }

    /// Restores a volume to the state of one of its snapshots. The volume is not served, and no engine knows its
    /// slots.
    ///
    /// # Errors
    /// The volume was not restored, or that is unknown. In the second case no slot of either state becomes free
    /// before the next start.
    pub fn restore_snapshot(&mut self, snapshot: VolumeId) -> Result<(), ArrayError> {
        let Some(record) = self.volumes.get(&snapshot).cloned() else {
            return Err(ArrayError::NoVolume(snapshot.0));
        };
        let (before, after) = (self.slots_of(record.family())?, self.slots_of(snapshot)?);
        let held = self.is_held();
        let done = self.commit(&[Change::RestoreSnapshot(snapshot)]);
        if done.is_ok() || (self.is_held() && !held) {
            after.into_iter().for_each(|at| self.slots.share(at));
        }
        done?;
        self.waiting.retain(|w| w.volume != record.family());
        if let Some(volume) = self.volumes.get_mut(&record.family()) {
            // Other volumes may have slots of a damaged volume, so they become free only when the map is read again.
            if volume.health == array::Health::Whole {
                before.into_iter().for_each(|at| self.slots.give_back(at));
            }
            (volume.size, volume.health) = (record.size, record.health);
        }
        Ok(())
    }

    /// Removes a volume or a snapshot. It is not served, and no engine knows its slots.
    ///
    /// # Errors
    /// The volume was not removed, or that is unknown.
    pub fn remove_volume(&mut self, volume: VolumeId) -> Result<(), ArrayError> {
        let places = self.map.extents(volume)?;
        self.commit(&[Change::RemoveVolume(volume)])?;
        let removed = self.volumes.remove(&volume);
        self.waiting.retain(|w| w.volume != volume);
        if removed
            .as_ref()
            .is_none_or(|v| v.health == array::Health::Damaged)
        {
            // Another volume may have the same slots, so they become free only when the map is read again.
            return Ok(());
        }
        for place in places {
            if let array::Extent::At(place) = place
                && removed.as_ref().is_some_and(|v| !v.is_at_source(place))
            {
                self.slots.give_back(place);
            }
        }
        Ok(())
    }
}
