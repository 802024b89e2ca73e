//! Recovery of intact volumes from an array whose copies of the map are all damaged.
//!
//! ```text
//!   unverified copies ──▶ base copy, whose own records add up ──▶ list of volumes
//!   each volume ──▶ copy in which its records add up ──▶ map in memory
//! ```
//!
//! A volume is intact if its records in one copy add up to its sum in the base copy, and both
//! copies have the same last commit. All other volumes are left out: a volume is served unchanged
//! or not at all.

use std::path::PathBuf;

use redb::backends::InMemoryBackend;
use units::VolumeId;

use crate::copy::Rows;
use crate::create::open_there;
use crate::membership::CopyId;
use crate::record::VolumeRecord;
use crate::sums::Sum;
use crate::tables::{
    CHANGED, DEVICES, EXTENTS, META, MOVES, STAMPS, STATE, SUMS, TIERS, Table, VOLUMES, keys_of,
};
use crate::{Array, ArrayError};

/// A map of the intact volumes.
pub struct Salvage {
    /// The copy that supplies the list of volumes.
    pub copy: CopyId,
    /// Map in memory with the intact volumes only.
    pub array: Array,
    pub intact: Vec<String>,
    /// Names of volumes whose records are damaged in every copy.
    pub lost: Vec<String>,
}

impl Salvage {
    /// Finds the intact volumes in the files of copies.
    ///
    /// # Errors
    /// [`ArrayError::Damaged`] if the own records of every copy are damaged.
    pub fn find(copies: &[(CopyId, PathBuf)]) -> Result<Self, ArrayError> {
        let opened = copies.iter().filter_map(|(copy, path)| {
            let file = open_there(path).ok()?;
            let place = path.display().to_string();
            let array = Array::in_file(file, &place, Array::look_unverified);
            Some((*copy, array.ok()?))
        });
        Self::of(opened.collect())
    }

    /// Finds the intact volumes in copies that were opened without verification.
    fn of(copies: Vec<(CopyId, Array)>) -> Result<Self, ArrayError> {
        let adds_up = |c: &&(CopyId, Array)| c.1.own_records_add_up().is_ok_and(|fits| fits);
        let latest = |c: &&(CopyId, Array)| {
            let state = c.1.state().ok();
            state.map(|s| (s.confirmed.stamp.generation, s.commits))
        };
        let base = copies.iter().filter(adds_up).max_by_key(latest);
        let base = base.ok_or_else(|| ArrayError::Damaged {
            place: "each copy".into(),
            why: match copies.is_empty() {
                true => "its last commit cannot be read, so no volume can be recovered".into(),
                false => {
                    "the list of volumes does not match the checksum of the last commit".into()
                }
            },
        })?;
        let (copy, base) = (base.0, &base.1);
        let state = base.state()?;
        let others = copies.iter().filter(|c| c.0 != copy).map(|c| &c.1);
        let others = others.filter(|c| c.state().is_ok_and(|other| other == state));
        let sources: Vec<&Array> = [base].into_iter().chain(others).collect();
        let array = Array::create_on(InMemoryBackend::new(), base.id(), base.extent())?;
        base.copy_own_records(&array)?;
        let (mut intact, mut lost) = (vec![], vec![]);
        for volume in base.volumes()? {
            let sum = base.sum_of(volume.id)?;
            let copied = sources
                .iter()
                .any(|from| from.copy_volume(&volume, sum, &array));
            match copied {
                true => intact.push(volume.name),
                false => {
                    array.leave_out(volume.id)?;
                    lost.push(volume.name);
                }
            }
        }
        Ok(Self {
            copy,
            array,
            intact,
            lost,
        })
    }
}

impl Array {
    /// Copies the records of all tables except `extents` and `changed`.
    fn copy_own_records(&self, to: &Array) -> Result<(), ArrayError> {
        self.contained(|| {
            let from = self.begin_read()?;
            let txn = to.begin_write()?;
            Rows::read(&from, META, Table::Meta)?.write(&txn)?;
            Rows::read(&from, TIERS, Table::Tiers)?.write(&txn)?;
            Rows::read(&from, DEVICES, Table::Devices)?.write(&txn)?;
            Rows::read(&from, VOLUMES, Table::Volumes)?.write(&txn)?;
            Rows::read(&from, MOVES, Table::Moves)?.write(&txn)?;
            Rows::read(&from, STATE, Table::State)?.write(&txn)?;
            Rows::read(&from, STAMPS, Table::Stamps)?.write(&txn)?;
            Rows::read(&from, SUMS, Table::Sums)?.write(&txn)?;
            txn.commit().map_err(ArrayError::store("copy the map"))
        })
    }

    /// Copies the records of a volume if they add up to the expected sum; returns true if they do.
    fn copy_volume(&self, volume: &VolumeRecord, expected: Sum, to: &Array) -> bool {
        let copied = self.contained(|| {
            let from = self.begin_read()?;
            let (keys, mut sum) = (keys_of(volume.id), Sum::default());
            let extents = Rows::read_range(&from, EXTENTS, Table::Extents, keys.clone(), &mut sum)?;
            let changed = Rows::read_range(&from, CHANGED, Table::Changed, keys, &mut sum)?;
            if sum != expected {
                return Ok(false);
            }
            let txn = to.begin_write()?;
            extents.add(&txn)?;
            changed.add(&txn)?;
            let done = txn.commit();
            done.map_err(ArrayError::store("copy the map"))?;
            Ok(true)
        });
        copied.unwrap_or(false)
    }

    /// Removes a damaged volume from the map in memory. Nothing reads the sums of that map.
    fn leave_out(&self, volume: VolumeId) -> Result<(), ArrayError> {
        let remove = || -> Result<(), redb::Error> {
            let txn = self.db.begin_write()?;
            txn.open_table(VOLUMES)?.remove(volume.0)?;
            txn.open_table(MOVES)?.remove(volume.0)?;
            Ok(txn.commit()?)
        };
        remove().map_err(ArrayError::store("leave out a volume"))
    }
}

#[cfg(test)]
mod tests;
