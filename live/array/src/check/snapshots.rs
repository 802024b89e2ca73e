//! Checks that snapshots fit their volumes, and that the change records fit both.

use std::collections::BTreeMap;

use redb::ReadableTable;
use units::VolumeId;

use super::{RecordScan, reason};
use crate::ArrayError;
use crate::changed::{each_changed, each_difference};
use crate::claims::Owner;
use crate::problem::Repair;
use crate::tables::{ChangedBytes, ExtentBytes, Key, Table, extent_key, split_key, unseal_changed};

const COPY_OUT: &str = "copy its data, then remove it";

impl RecordScan {
    /// Checks the snapshots after all volumes were read.
    pub(super) fn snapshots(&mut self) {
        let of: Vec<VolumeId> = self.families.volumes().collect();
        for volume in of {
            let what = match self.volumes.get(&volume.0) {
                None => Some(format!("its volume {} does not exist", volume.0)),
                Some(Some(record)) if record.snapshot.is_some() => {
                    Some(format!("its volume {} is a snapshot", volume.0))
                }
                Some(_) => None,
            };
            let snapshots: Vec<_> = self.families.snapshots(volume).collect();
            if let Some(what) = what {
                for (_, snapshot) in &snapshots {
                    self.problem(Table::Volumes, snapshot.0, &what, None, COPY_OUT);
                }
            }
            for pair in snapshots.windows(2) {
                if pair[0].0 == pair[1].0 {
                    let (sequence, other) = (pair[0].0, pair[0].1.0);
                    let what = format!("its sequence {sequence} also belongs to snapshot {other}");
                    let advice = "remove one";
                    self.problem(Table::Volumes, pair[1].1.0, what, None, advice);
                }
            }
        }
    }

    /// Returns true if slots of this family may have several owners.
    pub(super) fn shares(&self, family: VolumeId) -> bool {
        self.families.snapshots(family).len() > 0 || self.families.unreadable().is_some()
    }

    /// Returns true if two owners may share a slot. A volume with an unreadable record may be a snapshot of any other.
    pub(super) fn may_share(&self, a: Owner, b: Owner) -> bool {
        let unreadable = |owner: Owner| self.families.is_unreadable(owner.0);
        a.1 == b.1 && (a.0 == b.0 || unreadable(a) || unreadable(b))
    }

    /// Checks each record of a changed extent.
    pub(super) fn changes(
        &mut self,
        table: &impl ReadableTable<u64, ChangedBytes>,
    ) -> Result<(), ArrayError> {
        let failed = || ArrayError::store("read table changed");
        let mut of_nobody: BTreeMap<VolumeId, u64> = BTreeMap::new();
        for row in table.iter().map_err(failed())? {
            let (key, value) = row.map_err(failed())?;
            let key = key.value();
            let state = split_key(key).0;
            let in_family =
                self.families.snapshot_of(state).is_some() || self.families.newest(state).is_some();
            if !in_family {
                *of_nobody.entry(state).or_default() += 1;
            } else if let Err(error) = unseal_changed(key, value.value()) {
                let repair = Some(Repair::CountChanged(state));
                let what = reason(&error);
                self.problem(Table::Changed, Key::Extent(key), what, repair, "");
            }
        }
        if self.families.unreadable().is_some() {
            // The owner of the records is unknown.
            return Ok(());
        }
        for (state, count) in of_nobody {
            let what = format!(
                "{count} extents of volume {} have changed, which has no snapshots",
                state.0
            );
            let repair = Some(Repair::DropChanged(state));
            self.problem(Table::Changed, state.0, what, repair, "");
        }
        Ok(())
    }

    /// Checks that each extent outside the slot of the newest snapshot counts as changed.
    pub(super) fn unsaid(
        &mut self,
        extents: &impl ReadableTable<u64, ExtentBytes>,
        changed: &impl ReadableTable<u64, ChangedBytes>,
    ) -> Result<(), ArrayError> {
        if self.families.unreadable().is_some() {
            // The newest snapshot is unknown.
            return Ok(());
        }
        let of: Vec<VolumeId> = self.families.volumes().collect();
        for volume in of {
            let exists = matches!(self.volumes.get(&volume.0), Some(Some(_)));
            let Some(newest) = self.families.newest(volume).filter(|_| exists) else {
                continue;
            };
            let mut said = vec![];
            each_changed(changed, volume, |extent, _| {
                said.push(extent);
                Ok(())
            })?;
            let (mut first, mut count) = (None, 0_u64);
            each_difference(extents, newest, volume, |extent| {
                if said.binary_search(&extent).is_err() {
                    first = first.or(Some(extent));
                    count += 1;
                }
                Ok(())
            })?;
            if let Some(first) = first {
                let what = format!(
                    "{count} extents, from this one on, differ from the newest snapshot {}, but are not marked as changed",
                    newest.0
                );
                let key = Key::Extent(extent_key(volume, first));
                let repair = Some(Repair::CountChanged(volume));
                self.problem(Table::Changed, key, what, repair, "");
            }
        }
        Ok(())
    }
}
