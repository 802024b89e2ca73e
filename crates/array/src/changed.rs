//! Which extents have changed from one state of a volume to another.
//!
//! What counts as unchanged never is changed; what counts as changed may be the same. Two rules make sure of that:
//!
//! 1. An extent of a volume that does not count as changed since its newest snapshot has the slot of that snapshot, or both have none. That slot
//!    is shared, so nobody writes to it before there is a commit that gives the volume another one, which counts as changed.
//! 2. Whatever would break this (the volume's extent, or that of its newest snapshot, goes to another slot; the newest snapshot is removed, or
//!    the volume gets an earlier one back) makes the extent count as changed.

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
    /// Extents of which the content may differ between two states of a volume, ascending: from one of its snapshots to a later one, or to the
    /// volume as it is now. `None` is from nothing: all that have a place in `to`. Only extents that `to` has.
    ///
    /// # Errors
    /// When the two are not of one family, or `from` does not come before `to`; when a record is corrupt that may say more; when the store fails.
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
            // It may be a snapshot between the two: what is wrong with it says its record.
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

/// The extents that have a place, also one that cannot be read.
fn with_places(txn: &ReadTransaction, volume: VolumeId) -> Result<Vec<u32>, ArrayError> {
    let failed = || ArrayError::store("read table extents");
    let extents = open(txn, EXTENTS, Table::Extents)?;
    let rows = extents.range(keys_of(volume)).map_err(failed())?;
    rows.map(|row| Ok(split_key(row.map_err(failed())?.0.value()).1))
        .collect()
}

/// The extents of a state that count as changed, in order, and whether the record can be read.
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

/// Visits, in order, the extents of two volumes that are not in one slot: in two, in one of them only, or where a record cannot be read.
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
            Some(Err(_)) => 0, // to be seen at once
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
