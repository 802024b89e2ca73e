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

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ReadTransaction, TableDefinition, Value};
use units::VolumeId;

use crate::copy::Rows;
use crate::create::open_there;
use crate::file::MapFile;
use crate::membership::CopyId;
use crate::record::VolumeRecord;
use crate::sums::Sum;
use crate::tables::{
    CHANGED, DEVICES, EXTENTS, META, MOVES, STAMPS, STATE, SUMS, TIERS, Table, VOLUMES, keys_of,
};
use crate::view::Shared;
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

/// A copy of the map that was opened without verification.
pub(crate) struct Unverified {
    copy: CopyId,
    array: Array,
}

impl Salvage {
    /// Finds the intact volumes in the files of copies.
    ///
    /// # Errors
    /// [`ArrayError::Damaged`] if the own records of every copy are damaged.
    pub fn find(copies: &[(CopyId, PathBuf)]) -> Result<Self, ArrayError> {
        let open = |path: &Path| -> Result<Array, ArrayError> {
            let file = open_there(path)?;
            let storage = Shared(Arc::new(MapFile(file.clone())));
            let mut array = Array::look_unverified(storage, &path.display().to_string())?;
            array.file = Some(file);
            Ok(array)
        };
        let opened = copies.iter().filter_map(|(copy, path)| {
            let (copy, array) = (*copy, open(path).ok()?);
            Some(Unverified { copy, array })
        });
        Self::of(opened.collect())
    }

    pub(crate) fn of(copies: Vec<Unverified>) -> Result<Self, ArrayError> {
        let adds_up = |c: &&Unverified| c.array.own_records_add_up().is_ok_and(|fits| fits);
        let latest = |c: &&Unverified| {
            let state = c.array.state().ok();
            state.map(|s| (s.confirmed.stamp.generation, s.commits))
        };
        let base = copies.iter().filter(adds_up).max_by_key(latest);
        let base = base.ok_or_else(|| ArrayError::Damaged {
            place: "each copy".into(),
            why: match copies.is_empty() {
                true => "its last commit cannot be read, so no volume can be recovered".into(),
                false => "the list of volumes does not add up to the sum of the last commit".into(),
            },
        })?;
        let state = base.array.state()?;
        let others = copies.iter().filter(|c| c.copy != base.copy);
        let others = others.filter(|c| c.array.state().is_ok_and(|other| other == state));
        let sources: Vec<&Array> = [base].into_iter().chain(others).map(|c| &c.array).collect();
        let array = Array::create_in_memory(base.array.id(), base.array.extent())?;
        base.array.copy_own_records(&array)?;
        let (mut intact, mut lost) = (vec![], vec![]);
        for volume in base.array.volumes()? {
            let sum = base.array.sum_of(volume.id)?;
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
        let copy = base.copy;
        Ok(Self {
            copy,
            array,
            intact,
            lost,
        })
    }
}

/// Reads the rows of a volume in one table, and adds their hashes to a sum.
fn rows_of<V: Value>(
    txn: &ReadTransaction,
    table: TableDefinition<'static, u64, V>,
    number: Table,
    volume: VolumeId,
    sum: &mut Sum,
) -> Result<Rows<u64, V>, ArrayError> {
    Rows::read_range(txn, table, number, keys_of(volume), sum)
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
            let mut sum = Sum::default();
            let extents = rows_of(&from, EXTENTS, Table::Extents, volume.id, &mut sum)?;
            let changed = rows_of(&from, CHANGED, Table::Changed, volume.id, &mut sum)?;
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
