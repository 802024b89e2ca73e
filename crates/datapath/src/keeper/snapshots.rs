//! Snapshots: volumes that share the slots of another one, as it was at a moment when it was at rest.
//!
//! A slot that several volumes have is free when the last of them has let go of it ([`array::Slots::give_back`]); a volume whose engine holds an
//! extent for shared is told when it asks that nobody else has the slot any more.

use array::{ArrayError, Change, VolumeRecord};
use units::VolumeId;
use volume::{Location, VolumeMap};

use super::Keeper;
use crate::device::SlotSpace;

impl<D: SlotSpace> Keeper<D> {
    /// Where a volume's extents are, and which of their slots others have too.
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

    /// Keeps a volume as it is. Its engine is at rest, and what it wrote is durable.
    ///
    /// # Errors
    /// When there is none, or that is not known; the slots are held for it then, all the same.
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

    /// The snapshot whose commit was in doubt is not there.
    pub(super) fn snapshots_undone(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::TakeSnapshot(record) = change
                && let Ok(slots) = self.slots_of(record.family())
            {
                slots.into_iter().for_each(|at| self.slots.give_back(at));
            }
        }
    }

    /// Makes a volume what it was when a snapshot of it was taken. It is not served, and nobody knows its slots.
    ///
    /// # Errors
    /// When it is not, or that is not known: then no slot of either is free before the next start.
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
            // Others may have slots of one that is damaged: they are only free when the map is read again.
            if volume.health == array::Health::Whole {
                before.into_iter().for_each(|at| self.slots.give_back(at));
            }
            (volume.size, volume.health) = (record.size, record.health);
        }
        Ok(())
    }

    /// Removes a volume, or a snapshot. It is not served, and nobody knows its slots.
    ///
    /// # Errors
    /// When it is still there, or that is not known.
    pub fn remove_volume(&mut self, volume: VolumeId) -> Result<(), ArrayError> {
        let places = self.map.extents(volume)?;
        self.commit(&[Change::RemoveVolume(volume)])?;
        let removed = self.volumes.remove(&volume);
        self.waiting.retain(|w| w.volume != volume);
        if removed
            .as_ref()
            .is_none_or(|v| v.health == array::Health::Damaged)
        {
            // Another volume may have the same slots: they are only free when the map is read again.
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
