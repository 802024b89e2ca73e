//! Reads of the map.

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};
use units::{Bytes, VolumeId};
use volume::Location;

use crate::codec::Record;
use crate::membership::{DeviceStamp, MapState};
use crate::panics::contained;
use crate::record::{DeviceRecord, Extent, MoveRecord, TierRecord, VolumeRecord};
use crate::tables::{
    self, DEVICES, EXTENTS, ExtentBytes, Key, MOVES, STAMPS, STATE, STATE_KEY, TIERS, Table,
    VOLUMES, keys_of, split_key, unseal_extent,
};
use crate::{Array, ArrayError, VOLUME_EXTENTS_MAX};

impl Array {
    /// Returns the tiers, high end first.
    pub fn tiers(&self) -> Result<Vec<TierRecord>, ArrayError> {
        self.records(TIERS)
    }

    /// Returns the devices in order of id.
    pub fn devices(&self) -> Result<Vec<DeviceRecord>, ArrayError> {
        self.records(DEVICES)
    }

    /// Returns the volumes in order of id.
    pub fn volumes(&self) -> Result<Vec<VolumeRecord>, ArrayError> {
        self.records(VOLUMES)
    }

    /// Returns the moves in progress, in order of volume.
    pub fn moves(&self) -> Result<Vec<MoveRecord>, ArrayError> {
        self.records(MOVES)
    }

    /// Returns the stamps expected in the superblocks, in order of device. Devices that were never in a membership have
    /// none.
    pub fn stamps(&self) -> Result<Vec<DeviceStamp>, ArrayError> {
        self.records(STAMPS)
    }

    /// Returns the state record of this copy of the map.
    pub fn state(&self) -> Result<MapState, ArrayError> {
        self.contained(|| self.state_in(&self.begin_read()?))
    }

    pub(crate) fn state_in(&self, txn: &ReadTransaction) -> Result<MapState, ArrayError> {
        read_state(&open(txn, STATE, Table::State)?)
    }

    /// Returns the place of each extent of a volume; `None` for a hole.
    ///
    /// # Errors
    /// One of the records is corrupt. [`Array::extents`] then returns the intact ones.
    pub fn places(&self, volume: VolumeId) -> Result<Vec<Option<Location>>, ArrayError> {
        self.extents_as(volume, None, |found| found.map(Some))
    }

    /// Returns the known state of each extent of a volume, also of a damaged one. While the array has an
    /// [`Extent::Lost`], any slot below a high-water mark may be its place, so no such slot should be given to another
    /// extent.
    pub fn extents(&self, volume: VolumeId) -> Result<Vec<Extent>, ArrayError> {
        self.extents_as(volume, Extent::Hole, |found| match found {
            Ok(at) => Ok(Extent::At(at)),
            Err(e) if e.of_record() => Ok(Extent::Lost),
            Err(e) => Err(e),
        })
    }

    /// Returns one value per extent of a volume; `hole` if it has no record.
    fn extents_as<T: Clone>(
        &self,
        volume: VolumeId,
        hole: T,
        value: impl Fn(Result<Location, ArrayError>) -> Result<T, ArrayError>,
    ) -> Result<Vec<T>, ArrayError> {
        self.contained(|| self.extents_in(volume, hole, value))
    }

    fn extents_in<T: Clone>(
        &self,
        volume: VolumeId,
        hole: T,
        value: impl Fn(Result<Location, ArrayError>) -> Result<T, ArrayError>,
    ) -> Result<Vec<T>, ArrayError> {
        let txn = self.begin_read()?;
        let extents = open(&txn, EXTENTS, Table::Extents)?;
        let volumes = open(&txn, VOLUMES, Table::Volumes)?;
        let record: VolumeRecord =
            get(&volumes, volume.0)?.ok_or(ArrayError::NoVolume(volume.0))?;
        let count = extents_of(&record, self.extent)?;
        let mut all = vec![hole; count];
        each_extent(&extents, keys_of(volume), |key, found| {
            let (_, extent) = split_key(key);
            let place = all.get_mut(extent as usize);
            let place = place.ok_or_else(|| ArrayError::Record {
                table: Table::Extents.name(),
                key: Key::Extent(key).to_string(),
                why: format!("the volume has only {count} extents"),
            })?;
            *place = value(found)?;
            Ok(())
        })?;
        Ok(all)
    }

    fn records<R: Record>(
        &self,
        table: TableDefinition<'static, R::Id, tables::Bytes>,
    ) -> Result<Vec<R>, ArrayError>
    where
        R::Id: redb::Key + for<'a> redb::Value<SelfType<'a> = R::Id> + 'static,
    {
        self.contained(|| {
            let mut records = vec![];
            let table = open(&self.begin_read()?, table, R::TABLE)?;
            each::<R>(&table, |_, record| {
                records.push(record?);
                Ok(())
            })?;
            Ok(records)
        })
    }

    /// Runs an operation on this copy. A panic of the store becomes an error.
    pub(crate) fn contained<T>(
        &self,
        run: impl FnOnce() -> Result<T, ArrayError>,
    ) -> Result<T, ArrayError> {
        contained("the map", run)
    }

    pub(crate) fn begin_read(&self) -> Result<ReadTransaction, ArrayError> {
        let txn = self.db.begin_read();
        txn.map_err(ArrayError::store("begin to read"))
    }
}

/// Returns the number of extents of a volume, if it is within the limit.
fn extents_of(record: &VolumeRecord, extent: Bytes) -> Result<usize, ArrayError> {
    let count = record.extents(extent);
    match count <= VOLUME_EXTENTS_MAX {
        true => Ok(count as usize),
        false => Err(ArrayError::Record {
            table: Table::Volumes.name(),
            key: record.id.0.to_string(),
            why: format!("{count} extents are more than {VOLUME_EXTENTS_MAX}"),
        }),
    }
}

/// Reads the state record of a map.
pub(crate) fn read_state(
    table: &impl ReadableTable<&'static str, tables::Bytes>,
) -> Result<MapState, ArrayError> {
    let value = table
        .get(STATE_KEY)
        .map_err(ArrayError::store(reading(Table::State)))?;
    let value = value.ok_or_else(|| ArrayError::Record {
        table: Table::State.name(),
        key: STATE_KEY.into(),
        why: "the record does not exist".into(),
    })?;
    MapState::decode(value.value())
}

fn reading(table: Table) -> String {
    format!("read table {}", table.name())
}

pub(crate) fn open<K: redb::Key + 'static, V: redb::Value + 'static>(
    txn: &ReadTransaction,
    definition: TableDefinition<'static, K, V>,
    table: Table,
) -> Result<redb::ReadOnlyTable<K, V>, ArrayError> {
    txn.open_table(definition)
        .map_err(ArrayError::store(reading(table)))
}

/// Reads one record.
pub(crate) fn get<R: Record>(
    table: &impl ReadableTable<R::Id, tables::Bytes>,
    id: R::Id,
) -> Result<Option<R>, ArrayError>
where
    R::Id: redb::Key + for<'a> redb::Value<SelfType<'a> = R::Id> + 'static,
{
    let value = table
        .get(id)
        .map_err(ArrayError::store(reading(R::TABLE)))?;
    value.map(|v| R::decode(id, v.value())).transpose()
}

/// Visits all records of a table in order, or the errors of reading them.
pub(crate) fn each<R: Record>(
    table: &impl ReadableTable<R::Id, tables::Bytes>,
    mut visit: impl FnMut(R::Id, Result<R, ArrayError>) -> Result<(), ArrayError>,
) -> Result<(), ArrayError>
where
    R::Id: redb::Key + for<'a> redb::Value<SelfType<'a> = R::Id> + 'static,
{
    let rows = table.iter().map_err(ArrayError::store(reading(R::TABLE)))?;
    for row in rows {
        let (key, value) = row.map_err(ArrayError::store(reading(R::TABLE)))?;
        let id = key.value();
        visit(id, R::decode(id, value.value()))?;
    }
    Ok(())
}

/// Visits all places in a range of keys in order, or the errors of reading them.
pub(crate) fn each_extent(
    table: &impl ReadableTable<u64, ExtentBytes>,
    keys: std::ops::RangeInclusive<u64>,
    mut visit: impl FnMut(u64, Result<Location, ArrayError>) -> Result<(), ArrayError>,
) -> Result<(), ArrayError> {
    let failed = || ArrayError::store(reading(Table::Extents));
    for row in table.range(keys).map_err(failed())? {
        let (key, value) = row.map_err(failed())?;
        visit(key.value(), unseal_extent(key.value(), value.value()))?;
    }
    Ok(())
}
