//! Sums over the records of a map. They reveal missing, changed and outdated records at a start.
//!
//! ```text
//!   records of a volume in `extents` and `changed` ──▶ its record in `sums` ─┐
//!   meta, tiers, devices, volumes, moves, state, stamps ────────────────────┴──▶ sum of the map, in `state`
//! ```
//!
//! A sum is the number of records and the sum of their hashes, keys included, modulo 2^128. It does
//! not depend on the order of the records. A commit updates it in time proportional to the records
//! that it changes. Each volume has its own sum: an intact volume is recognised in a map that is
//! damaged elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref, RangeInclusive};

use redb::{
    AccessGuard, Key, ReadTransaction, ReadableTable, TableDefinition, Value, WriteTransaction,
};
use units::VolumeId;
use xxhash_rust::xxh3::xxh3_128;

use crate::codec::{Fields, Record};
use crate::panics::contained;
use crate::read::{each, get, open};
use crate::tables::{
    self, CHANGED, DEVICES, EXTENTS, META, META_KEY, MOVES, STAMPS, STATE, STATE_KEY,
    STATE_SUM_KEY, SUMS, TIERS, Table, VOLUMES, seal, split_key,
};
use crate::{Array, ArrayError};

/// Number of records, and the sum of their hashes modulo 2^128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    pub(crate) records: u64,
    pub(crate) hashes: u128,
}

impl Sum {
    fn add(&mut self, hash: u128) {
        self.records = self.records.wrapping_add(1);
        self.hashes = self.hashes.wrapping_add(hash);
    }

    fn remove(&mut self, hash: u128) {
        self.records = self.records.wrapping_sub(1);
        self.hashes = self.hashes.wrapping_sub(hash);
    }

    pub(crate) fn add_record<K: NumberKey, V: Value>(
        &mut self,
        table: Table,
        key: K,
        value: &V::SelfType<'_>,
    ) {
        self.add(hash_of::<K, V>(table, key, value));
    }

    /// Adds the difference between two sums.
    pub(crate) fn apply(&mut self, difference: Sum) {
        self.records = self.records.wrapping_add(difference.records);
        self.hashes = self.hashes.wrapping_add(difference.hashes);
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.hashes.to_le_bytes());
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        Ok(Self {
            records: fields.u64("number of records")?,
            hashes: fields.u128("sum of hashes")?,
        })
    }
}

/// Sum over the records of one volume in the tables `extents` and `changed`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumeSum {
    pub(crate) volume: VolumeId,
    pub(crate) sum: Sum,
}

impl Record for VolumeSum {
    type Id = u32;
    const TABLE: Table = Table::Sums;
    fn key(id: u32) -> tables::Key {
        tables::Key::Long(id)
    }
    fn id(&self) -> u32 {
        self.volume.0
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.sum.write(out);
    }
    fn read(id: u32, fields: &mut Fields<'_>) -> Result<Self, ArrayError> {
        Ok(Self {
            volume: VolumeId(id),
            sum: Sum::read(fields)?,
        })
    }
}

/// The volume whose sum covers a record; `None` for the sum of the map.
type Group = Option<VolumeId>;

/// Changes that a commit makes to sums.
pub(crate) type Differences = BTreeMap<Group, Sum>;

/// Group of a record of `extents` or `changed`.
pub(crate) fn by_volume(key: u64) -> Group {
    Some(split_key(key).0)
}

/// Group of a record of any other table.
pub(crate) fn of_map<K>(_: K) -> Group {
    None
}

fn hash(table: Table, key: &[u8], value: &[u8]) -> u128 {
    /// Length of records that are hashed without an allocation. Records of extents are shorter.
    const SHORT: usize = 32;
    let length = 1 + key.len() + value.len();
    let fill = |to: &mut [u8]| {
        to[0] = table as u8;
        to[1..=key.len()].copy_from_slice(key);
        to[1 + key.len()..].copy_from_slice(value);
        xxh3_128(to)
    };
    match length <= SHORT {
        true => fill(&mut [0; SHORT][..length]),
        false => fill(&mut vec![0; length]),
    }
}

/// Key of a table that has sums.
pub(crate) trait NumberKey:
    Key + for<'a> Value<SelfType<'a> = Self> + Copy + 'static
{
}

impl<K: Key + for<'a> Value<SelfType<'a> = K> + Copy + 'static> NumberKey for K {}

fn hash_of<K: NumberKey, V: Value>(table: Table, key: K, value: &V::SelfType<'_>) -> u128 {
    hash(
        table,
        K::as_bytes(&key).as_ref(),
        V::as_bytes(value).as_ref(),
    )
}

/// A table of a transaction that records how its changes affect the sums.
pub(crate) struct SummedTable<'t, K: NumberKey, V: Value + 'static> {
    table: redb::Table<'t, K, V>,
    number: Table,
    group: fn(K) -> Group,
    differences: Differences,
}

impl<'t, K: NumberKey, V: Value + 'static> Deref for SummedTable<'t, K, V> {
    type Target = redb::Table<'t, K, V>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl<'t, K: NumberKey, V: Value + 'static> SummedTable<'t, K, V> {
    pub(crate) fn open(
        txn: &'t WriteTransaction,
        definition: TableDefinition<'static, K, V>,
        number: Table,
        group: fn(K) -> Group,
    ) -> Result<Self, redb::TableError> {
        Ok(Self {
            table: txn.open_table(definition)?,
            number,
            group,
            differences: Differences::new(),
        })
    }

    /// Writes a record; returns the value that it replaces.
    pub(crate) fn insert(
        &mut self,
        key: K,
        value: V::SelfType<'_>,
    ) -> Result<Option<AccessGuard<'_, V>>, redb::StorageError> {
        let sum = self.differences.entry((self.group)(key)).or_default();
        sum.add(hash_of::<K, V>(self.number, key, &value));
        let before = self.table.insert(key, value)?;
        if let Some(before) = &before {
            sum.remove(hash_of::<K, V>(self.number, key, &before.value()));
        }
        Ok(before)
    }

    /// Removes a record; returns its value.
    pub(crate) fn remove(
        &mut self,
        key: K,
    ) -> Result<Option<AccessGuard<'_, V>>, redb::StorageError> {
        let before = self.table.remove(key)?;
        if let Some(before) = &before {
            let sum = self.differences.entry((self.group)(key)).or_default();
            sum.remove(hash_of::<K, V>(self.number, key, &before.value()));
        }
        Ok(before)
    }

    /// Removes all records with keys in a range.
    pub(crate) fn clear(&mut self, keys: RangeInclusive<K>) -> Result<(), redb::StorageError> {
        let (number, group, differences) = (self.number, self.group, &mut self.differences);
        self.table.retain_in(keys, |key, value| {
            let hash = hash_of::<K, V>(number, key, &value);
            differences.entry(group(key)).or_default().remove(hash);
            false
        })
    }

    /// Returns the differences since the last call.
    pub(crate) fn take_differences(&mut self) -> Differences {
        std::mem::take(&mut self.differences)
    }
}

impl<const N: usize> SummedTable<'_, u64, &'static [u8; N]> {
    /// Inserts records with new keys, in ascending order, between the keys up to `end` and those
    /// after it. Pages fill one after the other.
    pub(crate) fn append(
        &mut self,
        end: u64,
        records: impl Iterator<Item = (u64, [u8; N])>,
    ) -> Result<(), redb::CursorError> {
        let mut cursor = self.table.upper_bound_mut(Bound::Included(end))?;
        for (key, value) in records {
            cursor.insert_before(key, &value)?;
            let hash = hash_of::<u64, &'static [u8; N]>(self.number, key, &&value);
            self.differences
                .entry((self.group)(key))
                .or_default()
                .add(hash);
        }
        Ok(cursor.close()?)
    }
}

/// Parts of the map whose records differ from their sums.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mismatch {
    /// Volumes whose records do not add up to their sums.
    volumes: BTreeSet<VolumeId>,
    /// True if the records of the map itself do not add up to its sum.
    map: bool,
}

impl Mismatch {
    /// Describes the damage; returns `None` if all sums are correct.
    fn explained(&self) -> Option<String> {
        let records = match (self.map, self.volumes.len()) {
            (false, 0) => return None,
            (true, 0) => "records of the map itself".to_owned(),
            (false, 1) => "records of one volume".to_owned(),
            (false, n) => format!("records of {n} volumes"),
            (true, n) => format!("records of the map itself and of {n} volumes"),
        };
        Some(format!(
            "{records} do not match the checksums of the last commit"
        ))
    }
}

impl Array {
    /// Reads every record and compares the totals with the sums.
    ///
    /// # Errors
    /// [`ArrayError::Damaged`] if they differ; when the store fails, or the sum of the map cannot be
    /// read.
    pub(crate) fn check_sums(&self, place: &str) -> Result<(), ArrayError> {
        match contained(place, || self.compare_sums())?.explained() {
            None => Ok(()),
            Some(why) => Err(ArrayError::Damaged {
                place: place.into(),
                why,
            }),
        }
    }

    fn compare_sums(&self) -> Result<Mismatch, ArrayError> {
        let txn = self.begin_read()?;
        let mut found = Differences::new();
        add_table(&txn, EXTENTS, Table::Extents, &mut found, by_volume)?;
        add_table(&txn, CHANGED, Table::Changed, &mut found, by_volume)?;
        let mut volumes = BTreeSet::new();
        each::<VolumeSum>(&open(&txn, SUMS, Table::Sums)?, |id, recorded| {
            let volume = VolumeId(id);
            let counted = found.remove(&Some(volume)).unwrap_or_default();
            if !recorded.is_ok_and(|r| r.sum == counted) {
                volumes.insert(volume);
            }
            Ok(())
        })?;
        volumes.extend(found.into_keys().flatten());
        let map = !own_records_add_up(&txn)?;
        Ok(Mismatch { volumes, map })
    }

    /// Returns true if the records of all tables except `extents` and `changed` add up.
    pub(crate) fn own_records_add_up(&self) -> Result<bool, ArrayError> {
        self.contained(|| own_records_add_up(&self.begin_read()?))
    }

    /// Returns the recorded sum of a volume.
    pub(crate) fn sum_of(&self, volume: VolumeId) -> Result<Sum, ArrayError> {
        self.contained(|| {
            let sums = open(&self.begin_read()?, SUMS, Table::Sums)?;
            let found: Option<VolumeSum> = get(&sums, volume.0)?;
            Ok(found.map(|f| f.sum).unwrap_or_default())
        })
    }
}

fn own_records_add_up(txn: &ReadTransaction) -> Result<bool, ArrayError> {
    let mut found = Differences::new();
    add_table(txn, META, Table::Meta, &mut found, |_| None)?;
    add_table(txn, STATE, Table::State, &mut found, |_| None)?;
    add_table(txn, TIERS, Table::Tiers, &mut found, of_map)?;
    add_table(txn, DEVICES, Table::Devices, &mut found, of_map)?;
    add_table(txn, VOLUMES, Table::Volumes, &mut found, of_map)?;
    add_table(txn, MOVES, Table::Moves, &mut found, of_map)?;
    add_table(txn, STAMPS, Table::Stamps, &mut found, of_map)?;
    add_table(txn, SUMS, Table::Sums, &mut found, of_map)?;
    let counted = found.remove(&None).unwrap_or_default();
    Ok(read_sum(&open(txn, STATE, Table::State)?)? == counted)
}

/// Adds the records of a table to sums, except the record that holds the sum of the map.
fn add_table<K: Key + 'static, V: Value + 'static>(
    txn: &ReadTransaction,
    definition: TableDefinition<'static, K, V>,
    number: Table,
    sums: &mut Differences,
    group: impl Fn(K::SelfType<'_>) -> Group,
) -> Result<(), ArrayError> {
    let failed = || ArrayError::store(format!("read table {}", number.name()));
    for row in open(txn, definition, number)?.iter().map_err(failed())? {
        let (key, value) = row.map_err(failed())?;
        let (key, value) = (key.value(), value.value());
        let bytes = K::as_bytes(&key);
        if number == Table::State && bytes.as_ref() == STATE_SUM_KEY.as_bytes() {
            continue;
        }
        let hash = hash(number, bytes.as_ref(), V::as_bytes(&value).as_ref());
        drop(bytes);
        sums.entry(group(key)).or_default().add(hash);
    }
    Ok(())
}

const SUM_KEY: tables::Key = tables::Key::Name(STATE_SUM_KEY);

/// Returns the recorded sum of the map.
pub(crate) fn read_sum(
    table: &impl ReadableTable<&'static str, tables::Bytes>,
) -> Result<Sum, ArrayError> {
    let failed = ArrayError::store("read table state");
    let value = table.get(STATE_SUM_KEY).map_err(failed)?;
    let value = value.ok_or_else(|| ArrayError::Record {
        table: Table::State.name(),
        key: STATE_SUM_KEY.into(),
        why: "the record does not exist".into(),
    })?;
    let mut fields = Fields::unseal(Table::State, SUM_KEY, value.value())?;
    let sum = Sum::read(&mut fields)?;
    fields.end()?;
    Ok(sum)
}

/// Writes the state of a map and its updated sum.
pub(crate) fn write_state(
    states: &mut redb::Table<'_, &'static str, tables::Bytes>,
    state: &[u8],
    sum: Sum,
) -> Result<(), redb::StorageError> {
    let mut sum = sum;
    let key = STATE_KEY.as_bytes();
    sum.add(hash(Table::State, key, state));
    if let Some(before) = states.insert(STATE_KEY, state)? {
        sum.remove(hash(Table::State, key, before.value()));
    }
    let mut body = vec![];
    sum.write(&mut body);
    states.insert(STATE_SUM_KEY, &*seal(Table::State, SUM_KEY, body))?;
    Ok(())
}

/// Returns the sum of a new map, without its state record.
pub(crate) fn first_sum(meta: &[u8]) -> Sum {
    let mut sum = Sum::default();
    sum.add(hash(Table::Meta, META_KEY.as_bytes(), meta));
    sum
}
