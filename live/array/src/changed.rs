//! Extents that changed between two states of a volume.
//!
//! The record is conservative: an extent that counts as unchanged never differs, and one that counts as changed may be
//! equal. Two rules ensure this:
//!
//! 1. An extent that does not count as changed since the volume's newest snapshot has the same slot as in that
//!    snapshot,    or neither has a slot. The slot is shared, so nothing writes to it before a commit gives the volume
//!    another slot,    and that commit marks the extent as changed.
//! 2. An extent counts as changed after each event that would break rule 1: the extent of the volume or of its newest
//!    snapshot gets another slot, the newest snapshot is removed, or an earlier snapshot is restored.

use redb::{ReadTransaction, ReadableTable};
use units::VolumeId;

use crate::families::Families;
use crate::read::{get, open};
use crate::record::VolumeRecord;
use crate::tables::{
    CHANGED, ChangedBytes, EXTENTS, ExtentBytes, Table, VOLUMES, keys_of, split_key,
    unseal_changed, unseal_extent,
};
use crate::{Array, ArrayError};

const READING: &str = "read table changed";

impl Array {
    /// Extents whose content may differ between two states of a volume, in ascending order. `from` is a snapshot of the
    /// volume; `to` is a later snapshot, or the volume itself for its present state. With `from` = `None` the result is
    /// all extents that have a place in `to`. Only extents within the size of `to` are returned.
    ///
    /// # Errors
    /// The two states are not of one family, `from` is not earlier than `to`, a record that may hold more changes is
    /// corrupt, or the store fails.
    pub fn changed_between(
        &self,
        from: Option<VolumeId>,
        to: VolumeId,
    ) -> Result<Vec<u32>, ArrayError> {
        self.contained(|| self.compare(from, to))
    }

    fn compare(&self, from: Option<VolumeId>, to: VolumeId) -> Result<Vec<u32>, ArrayError> {
        let txn = self.begin_read()?;
        let volumes = open(&txn, VOLUMES, Table::Volumes)?;
        let record: VolumeRecord = get(&volumes, to.0)?.ok_or(ArrayError::NoVolume(to.0))?;
        let extents = record.extents(self.extent);
        let Some(from) = from else {
            return with_places(&txn, to);
        };
        let from_record: VolumeRecord =
            get(&volumes, from.0)?.ok_or(ArrayError::NoVolume(from.0))?;
        let not = |why: &str| {
            Err(ArrayError::NotComparable {
                from: from.0,
                to: to.0,
                why: why.into(),
            })
        };
        let family = record.family();
        if from_record.family() != family {
            return not("they do not belong to the same volume");
        }
        let families = Families::read(&volumes)?;
        if let Some(unreadable) = families.unreadable() {
            // The unreadable volume may be a snapshot between the two. Reading its record returns the error.
            get::<VolumeRecord>(&volumes, unreadable.0)?;
        }
        if let Some((a, b)) = families.same_sequence(family) {
            let (a, b) = (a.0, b.0);
            return not(&format!(
                "the order of the snapshots {a} and {b} is unknown"
            ));
        }
        let states = families.states(family);
        let place = |state| states.iter().position(|s| *s == state);
        let (Some(first), Some(last)) = (place(from), place(to)) else {
            return not("they do not belong to the same volume");
        };
        if first >= last {
            return not("the first snapshot is not older than the second");
        }
        let changed = open(&txn, CHANGED, Table::Changed)?;
        let mut all = vec![];
        for state in &states[first + 1..=last] {
            each_changed(&changed, *state, |extent, read| {
                read?;
                all.push(extent);
                Ok(())
            })?;
        }
        all.retain(|extent| u64::from(*extent) < extents);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// Returns the extents that have a place, including those whose place record is unreadable.
fn with_places(txn: &ReadTransaction, volume: VolumeId) -> Result<Vec<u32>, ArrayError> {
    let failed = || ArrayError::store("read table extents");
    let extents = open(txn, EXTENTS, Table::Extents)?;
    let rows = extents.range(keys_of(volume)).map_err(failed())?;
    rows.map(|row| Ok(split_key(row.map_err(failed())?.0.value()).1))
        .collect()
}

/// Visits the extents of a state that count as changed, in order, with a flag for a readable record.
pub(crate) fn each_changed(
    table: &impl ReadableTable<u64, ChangedBytes>,
    volume: VolumeId,
    mut visit: impl FnMut(u32, Result<(), ArrayError>) -> Result<(), ArrayError>,
) -> Result<(), ArrayError> {
    let rows = table.range(keys_of(volume));
    for row in rows.map_err(ArrayError::store(READING))? {
        let (key, value) = row.map_err(ArrayError::store(READING))?;
        let key = key.value();
        visit(split_key(key).1, unseal_changed(key, value.value()))?;
    }
    Ok(())
}

/// Visits, in order, the extents whose slot differs between two volumes. A hole differs from any slot, and an unreadable
/// record from everything.
pub(crate) fn each_difference(
    table: &impl ReadableTable<u64, ExtentBytes>,
    a: VolumeId,
    b: VolumeId,
    mut visit: impl FnMut(u32) -> Result<(), ArrayError>,
) -> Result<(), ArrayError> {
    let failed = || ArrayError::store("read table extents");
    let rows = |volume| -> Result<_, ArrayError> {
        let rows = table.range(keys_of(volume)).map_err(failed())?;
        let rows = rows.map(move |row| {
            let (key, value) = row.map_err(failed())?;
            let key = key.value();
            Ok((split_key(key).1, unseal_extent(key, value.value()).ok()))
        });
        Ok(rows.peekable())
    };
    let (mut of_a, mut of_b) = (rows(a)?, rows(b)?);
    loop {
        let next = |row: Option<&Result<(u32, _), ArrayError>>| match row {
            Some(Ok((extent, _))) => u64::from(*extent),
            Some(Err(_)) => 0, // sorts first
            None => u64::MAX,
        };
        let (in_a, in_b) = (next(of_a.peek()), next(of_b.peek()));
        let extent = in_a.min(in_b);
        if extent == u64::MAX {
            return Ok(());
        }
        let found_a = of_a.next_if(|_| in_a == extent).transpose()?;
        let found_b = of_b.next_if(|_| in_b == extent).transpose()?;
        let place = |found: Option<(u32, Option<volume::Location>)>| found.and_then(|f| f.1);
        if place(found_a).is_none() || place(found_a) != place(found_b) {
            visit(extent as u32)?;
        }
    }
}
