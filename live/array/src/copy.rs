//! Copy of a whole map to another place: for the rebuild of the second copy, and for backups.
//!
//! Records are copied unchanged, checksums included, in one transaction. The copy is then compared
//! with the sums of the map.

use std::ops::RangeInclusive;
use std::sync::PoisonError;

use redb::{Range, ReadTransaction, ReadableTable, TableDefinition, Value, WriteTransaction};

use crate::read::open;
use crate::sums::Sum;
use crate::tables::{
    Bytes, CHANGED, ChangedBytes, DEVICES, EXTENTS, ExtentBytes, META, MOVES, STAMPS, STATE, SUMS,
    TIERS, Table, VOLUMES,
};
use crate::{Array, ArrayError, ArrayId, CopyPlace, NewMap};

/// Content of a map at one moment, in memory. The map is needed only while it is read, however long the write to the
/// other place takes. About 30 bytes per extent.
pub struct Image {
    /// Number of commits at that moment.
    pub commits: u64,
    id: ArrayId,
    extent: units::Bytes,
    meta: Rows<&'static str, Bytes>,
    tiers: Rows<u16, Bytes>,
    devices: Rows<u16, Bytes>,
    volumes: Rows<u32, Bytes>,
    extents: Rows<u64, ExtentBytes>,
    moves: Rows<u32, Bytes>,
    state: Rows<&'static str, Bytes>,
    stamps: Rows<u16, Bytes>,
    changed: Rows<u64, ChangedBytes>,
    sums: Rows<u32, Bytes>,
}

/// Rows of one table, in the encoding of the store.
pub(crate) struct Rows<K: redb::Key + 'static, V: Value + 'static> {
    table: TableDefinition<'static, K, V>,
    rows: PackedPairs,
}

/// Keys and values in turn, each behind its length.
#[derive(Default)]
struct PackedPairs(Vec<u8>);

impl PackedPairs {
    fn push(&mut self, part: &[u8]) {
        let length = u32::try_from(part.len()).expect("a record is small");
        self.0.extend(length.to_le_bytes());
        self.0.extend(part);
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = &self.0[..];
        std::iter::from_fn(move || {
            let (length, rest) = left.split_first_chunk()?;
            let (part, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            left = rest;
            Some(part)
        })
    }
}

impl Array {
    /// Reads the whole map as it is at this moment.
    ///
    /// # Errors
    /// The store fails.
    pub fn image(&self) -> Result<Image, ArrayError> {
        self.contained(|| self.read_image())
    }

    fn read_image(&self) -> Result<Image, ArrayError> {
        let from = self.begin_read()?;
        Ok(Image {
            commits: self.state_in(&from)?.commits,
            id: self.id(),
            extent: self.extent(),
            meta: Rows::read(&from, META, Table::Meta)?,
            tiers: Rows::read(&from, TIERS, Table::Tiers)?,
            devices: Rows::read(&from, DEVICES, Table::Devices)?,
            volumes: Rows::read(&from, VOLUMES, Table::Volumes)?,
            extents: Rows::read(&from, EXTENTS, Table::Extents)?,
            moves: Rows::read(&from, MOVES, Table::Moves)?,
            state: Rows::read(&from, STATE, Table::State)?,
            stamps: Rows::read(&from, STAMPS, Table::Stamps)?,
            changed: Rows::read(&from, CHANGED, Table::Changed)?,
            sums: Rows::read(&from, SUMS, Table::Sums)?,
        })
    }
}

impl Image {
    /// Creates a map with this content next to the existing one in a place.
    ///
    /// # Errors
    /// The map cannot be created, its store fails, or the copied records do not match their sums.
    pub fn make_in(&self, place: &dyn CopyPlace) -> Result<NewMap, ArrayError> {
        let fresh = place.begin(self.id, self.extent)?;
        fresh.array.contained(|| self.write_into(&fresh.array))?;
        fresh.array.check_sums("the map that is copied")?;
        Ok(fresh)
    }

    fn write_into(&self, other: &Array) -> Result<(), ArrayError> {
        let mut known = other
            .families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = None;
        let to = other.begin_write()?;
        self.meta.write(&to)?;
        self.tiers.write(&to)?;
        self.devices.write(&to)?;
        self.volumes.write(&to)?;
        self.extents.write(&to)?;
        self.moves.write(&to)?;
        self.state.write(&to)?;
        self.stamps.write(&to)?;
        self.changed.write(&to)?;
        self.sums.write(&to)?;
        to.commit()
            .map_err(ArrayError::store("commit a copy of the map"))
    }
}

impl<K: redb::Key + 'static, V: Value + 'static> Rows<K, V> {
    pub(crate) fn read(
        from: &ReadTransaction,
        table: TableDefinition<'static, K, V>,
        number: Table,
    ) -> Result<Self, ArrayError> {
        let opened = open(from, table, number)?;
        Self::collect(table, opened.iter(), |_, _| ())
    }

    fn collect(
        table: TableDefinition<'static, K, V>,
        from: Result<Range<'_, K, V>, redb::StorageError>,
        mut seen: impl FnMut(&K::SelfType<'_>, &V::SelfType<'_>),
    ) -> Result<Self, ArrayError> {
        let failed = || ArrayError::store("read the map");
        let mut rows = PackedPairs::default();
        for row in from.map_err(failed())? {
            let (key, value) = row.map_err(failed())?;
            let (key, value) = (key.value(), value.value());
            seen(&key, &value);
            rows.push(K::as_bytes(&key).as_ref());
            rows.push(V::as_bytes(&value).as_ref());
        }
        Ok(Self { table, rows })
    }

    /// Replaces the table with these rows.
    pub(crate) fn write(&self, to: &WriteTransaction) -> Result<(), ArrayError> {
        to.delete_table(self.table)
            .map_err(ArrayError::store("write a copy of the map"))?;
        self.add(to)
    }

    /// Adds the rows to the table.
    pub(crate) fn add(&self, to: &WriteTransaction) -> Result<(), ArrayError> {
        let failed = || ArrayError::store("write a copy of the map");
        let mut copied = to
            .open_table(self.table)
            .map_err(ArrayError::store("write a copy of the map"))?;
        let mut parts = self.rows.parts();
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            copied
                .insert(K::from_bytes(key), V::from_bytes(value))
                .map_err(failed())?;
        }
        Ok(())
    }
}

impl<V: Value + 'static> Rows<u64, V> {
    /// Reads the rows in a range of keys and adds their hashes to a sum.
    pub(crate) fn read_range(
        from: &ReadTransaction,
        table: TableDefinition<'static, u64, V>,
        number: Table,
        keys: RangeInclusive<u64>,
        sum: &mut Sum,
    ) -> Result<Self, ArrayError> {
        let opened = open(from, table, number)?;
        Self::collect(table, opened.range(keys), |key, value| {
            sum.add_record::<u64, V>(number, *key, value);
        })
    }
}
