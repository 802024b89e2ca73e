//! Families: the snapshots of each volume.
//!
//! ```text
//!   family of volume 3:   snapshot 7 ──▶ snapshot 9 ──▶ volume 3      in order of time: the states of the volume
//!                         sequence 1     sequence 4     now
//! ```
//!
//! For each state, table `changed` has the extents whose content may differ from the previous state. The first state
//! has no such records, because no state precedes it.

use std::collections::{BTreeMap, BTreeSet};

use redb::ReadableTable;
use units::VolumeId;

use crate::ArrayError;
use crate::read::each;
use crate::record::VolumeRecord;
use crate::tables;

/// All snapshots, grouped by their volume.
#[derive(Debug, Default, Clone)]
pub(crate) struct Families {
    /// Snapshots in order of sequence. The volume need not exist.
    snapshots: BTreeMap<VolumeId, BTreeSet<(u32, VolumeId)>>,
    /// Volume and sequence of each snapshot.
    of: BTreeMap<VolumeId, (VolumeId, u32)>,
    /// Volumes with unreadable records. They may be snapshots of any other volume.
    unreadable: BTreeSet<VolumeId>,
}

impl Families {
    pub(crate) fn read(
        volumes: &impl ReadableTable<u32, tables::Bytes>,
    ) -> Result<Self, ArrayError> {
        let mut families = Self::default();
        each::<VolumeRecord>(volumes, |id, found| {
            match found {
                Ok(record) => families.add(&record),
                Err(_) => families.add_unreadable(VolumeId(id)),
            }
            Ok(())
        })?;
        Ok(families)
    }

    /// Adds a volume, if it is a snapshot.
    pub(crate) fn add(&mut self, record: &VolumeRecord) {
        if let Some(of) = record.snapshot {
            let family = self.snapshots.entry(of.volume).or_default();
            family.insert((of.sequence, record.id));
            self.of.insert(record.id, (of.volume, of.sequence));
        }
    }

    pub(crate) fn add_unreadable(&mut self, volume: VolumeId) {
        self.unreadable.insert(volume);
    }

    /// Removes a volume.
    pub(crate) fn remove(&mut self, volume: VolumeId) {
        self.unreadable.remove(&volume);
        let Some((of, sequence)) = self.of.remove(&volume) else {
            return;
        };
        if let Some(family) = self.snapshots.get_mut(&of) {
            family.remove(&(sequence, volume));
            if family.is_empty() {
                self.snapshots.remove(&of);
            }
        }
    }

    /// Returns the volume that this one is a snapshot of.
    pub(crate) fn snapshot_of(&self, volume: VolumeId) -> Option<VolumeId> {
        self.of.get(&volume).map(|of| of.0)
    }

    /// Returns the volumes that have snapshots.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.snapshots.keys().copied()
    }

    /// Returns sequences and ids of the snapshots of a volume, in order.
    pub(crate) fn snapshots(
        &self,
        volume: VolumeId,
    ) -> impl DoubleEndedIterator<Item = (u32, VolumeId)> + ExactSizeIterator {
        static NONE: BTreeSet<(u32, VolumeId)> = BTreeSet::new();
        self.snapshots.get(&volume).unwrap_or(&NONE).iter().copied()
    }

    /// Returns the newest snapshot of a volume.
    pub(crate) fn newest(&self, volume: VolumeId) -> Option<VolumeId> {
        self.snapshots(volume).next_back().map(|s| s.1)
    }

    /// Returns the states of a volume: its snapshots, then the volume itself.
    pub(crate) fn states(&self, volume: VolumeId) -> Vec<VolumeId> {
        let snapshots = self.snapshots(volume).map(|s| s.1);
        snapshots.chain([volume]).collect()
    }

    /// Returns two snapshots of a volume with the same sequence, whose order is therefore unknown.
    pub(crate) fn same_sequence(&self, volume: VolumeId) -> Option<(VolumeId, VolumeId)> {
        let mut pairs = self.snapshots(volume).zip(self.snapshots(volume).skip(1));
        let found = pairs.find(|(a, b)| a.0 == b.0);
        found.map(|(a, b)| (a.1, b.1))
    }

    /// Returns one of the volumes with unreadable records.
    pub(crate) fn unreadable(&self) -> Option<VolumeId> {
        self.unreadable.first().copied()
    }

    pub(crate) fn is_unreadable(&self, volume: VolumeId) -> bool {
        self.unreadable.contains(&volume)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
    }
}
