//! Consistency check of the map.
//!
//! The check reads every record once. It reads the extent records a second time only if a slot has several owners that
//! must not share it, to name the owners, and the extents of volumes with snapshots and of their newest snapshots.
//! Memory: one bit per slot, 12 bytes per slot of a volume with snapshots, and 4 bytes per extent that changed in one
//! volume. The check works on the tables of a reader and on those inside a transaction, where a repair checks again.

use std::collections::{BTreeMap, BTreeSet};

use redb::ReadableTable;
use units::{Bytes, DeviceId, VolumeId};
use volume::Location;

use crate::bitmap::Bitmap;
use crate::claims::Claims;
use crate::families::Families;
use crate::problem::{CheckReport, Problem, Repair};
use crate::read::{each, each_extent, open};
use crate::record::{DeviceRecord, MoveRecord, TierRecord, VolumeRecord};
use crate::refusal::{check_device, check_move, check_tier, check_volume};
use crate::tables::{
    self, CHANGED, ChangedBytes, DEVICES, EXTENTS, ExtentBytes, Key, MOVES, TIERS, Table, VOLUMES,
    split_key,
};
use crate::{Array, ArrayError};

mod snapshots;

impl Array {
    /// Reads the whole map and reports its inconsistencies.
    ///
    /// # Errors
    /// The store itself could not be read.
    pub fn check(&self) -> Result<CheckReport, ArrayError> {
        self.contained(|| self.check_tables())
    }

    fn check_tables(&self) -> Result<CheckReport, ArrayError> {
        let txn = self.begin_read()?;
        let tables = Tables {
            extent: self.extent,
            tiers: &open(&txn, TIERS, Table::Tiers)?,
            devices: &open(&txn, DEVICES, Table::Devices)?,
            volumes: &open(&txn, VOLUMES, Table::Volumes)?,
            extents: &open(&txn, EXTENTS, Table::Extents)?,
            moves: &open(&txn, MOVES, Table::Moves)?,
            changed: &open(&txn, CHANGED, Table::Changed)?,
        };
        check(&tables)
    }
}

/// Tables of a map, from a read or write transaction.
pub(crate) struct Tables<'a, A, D, V, E, M, C> {
    pub(crate) extent: Bytes,
    pub(crate) tiers: &'a A,
    pub(crate) devices: &'a D,
    pub(crate) volumes: &'a V,
    pub(crate) extents: &'a E,
    pub(crate) moves: &'a M,
    pub(crate) changed: &'a C,
}

/// Records read so far. A record that exists but is unreadable is `None`.
#[derive(Default)]
struct RecordScan {
    report: CheckReport,
    tiers: BTreeMap<u16, Option<TierRecord>>,
    devices: BTreeMap<u16, Option<DeviceRecord>>,
    volumes: BTreeMap<u32, Option<VolumeRecord>>,
    owned: BTreeMap<DeviceId, Bitmap>,
    twice: BTreeSet<Location>,
    families: Families,
    claims: Claims,
}

pub(crate) fn check<A, D, V, E, M, C>(
    tables: &Tables<'_, A, D, V, E, M, C>,
) -> Result<CheckReport, ArrayError>
where
    A: ReadableTable<u16, tables::Bytes>,
    D: ReadableTable<u16, tables::Bytes>,
    V: ReadableTable<u32, tables::Bytes>,
    E: ReadableTable<u64, ExtentBytes>,
    M: ReadableTable<u32, tables::Bytes>,
    C: ReadableTable<u64, ChangedBytes>,
{
    let mut seen = RecordScan::default();
    each::<TierRecord>(tables.tiers, |id, found| {
        seen.tier(id, found);
        Ok(())
    })?;
    each::<DeviceRecord>(tables.devices, |id, found| {
        seen.device(id, found);
        Ok(())
    })?;
    each::<VolumeRecord>(tables.volumes, |id, found| {
        seen.volume(id, found, tables.extent);
        Ok(())
    })?;
    seen.snapshots();
    each_extent(tables.extents, 0..=u64::MAX, |key, found| {
        seen.extent(key, found, tables.extent);
        Ok(())
    })?;
    if !seen.twice.is_empty() {
        each_extent(tables.extents, 0..=u64::MAX, |key, found| {
            seen.owner(key, found);
            Ok(())
        })?;
    }
    each::<MoveRecord>(tables.moves, |id, found| {
        seen.mover(id, found, tables.extent);
        Ok(())
    })?;
    seen.changes(tables.changed)?;
    seen.unsaid(tables.extents, tables.changed)?;
    Ok(seen.report)
}

const RESTORE: &str = "restore the map from a copy";
const COPY_OUT: &str = "copy the readable data, then delete the volume";

impl RecordScan {
    fn problem(
        &mut self,
        table: Table,
        key: impl ToString,
        what: impl ToString,
        repair: Option<Repair>,
        advice: &str,
    ) {
        self.report.problems.push(Problem {
            table: table.name(),
            key: key.to_string(),
            what: what.to_string(),
            repair,
            advice: advice.into(),
        });
    }

    fn tier(&mut self, id: u16, found: Result<TierRecord, ArrayError>) {
        self.report.tiers += 1;
        let record = self.readable(Table::Tiers, id, found, check_tier);
        let same = |other: &TierRecord| Some(&other.name) == record.as_ref().map(|r| &r.name);
        let same = first(&self.tiers, same);
        self.not_unique(Table::Tiers, id, "name", same);
        self.tiers.insert(id, record);
    }

    fn device(&mut self, id: u16, found: Result<DeviceRecord, ArrayError>) {
        self.report.devices += 1;
        let record = self.readable(Table::Devices, id, found, check_device);
        if let Some(record) = &record {
            let name = first(&self.devices, |other| other.name == record.name);
            self.not_unique(Table::Devices, id, "name", name);
            let path = first(&self.devices, |other| other.path == record.path);
            self.not_unique(Table::Devices, id, "path", path);
            if !self.tiers.contains_key(&record.tier.0) {
                let what = format!("its tier {} does not exist", record.tier.0);
                self.problem(Table::Devices, id, what, None, RESTORE);
            }
        }
        self.devices.insert(id, record);
    }

    fn volume(&mut self, id: u32, found: Result<VolumeRecord, ArrayError>, extent: Bytes) {
        self.report.volumes += 1;
        let valid = |record: &VolumeRecord| check_volume(record, extent);
        let record = self.readable(Table::Volumes, id, found, valid);
        match &record {
            Some(record) => self.families.add(record),
            None => self.families.add_unreadable(VolumeId(id)),
        }
        if let Some(record) = &record {
            let name = first(&self.volumes, |other| other.name == record.name);
            self.not_unique(Table::Volumes, id, "name", name);
            if !self.tiers.contains_key(&record.home.0) {
                let what = format!("its home tier {} does not exist", record.home.0);
                self.problem(Table::Volumes, id, what, None, "set another home");
            }
        }
        self.volumes.insert(id, record);
    }

    /// Returns the record if it is readable, and reports its other defects.
    fn readable<R>(
        &mut self,
        table: Table,
        id: impl Into<u32> + Copy,
        found: Result<R, ArrayError>,
        valid: impl Fn(&R) -> Result<(), crate::Refusal>,
    ) -> Option<R> {
        match found {
            Ok(record) => {
                if let Err(refusal) = valid(&record) {
                    self.problem(table, id.into(), refusal, None, RESTORE);
                }
                Some(record)
            }
            Err(error) => {
                self.problem(table, id.into(), reason(&error), None, RESTORE);
                None
            }
        }
    }

    fn not_unique(&mut self, table: Table, id: impl Into<u32>, what: &str, other: Option<u32>) {
        if let Some(other) = other {
            let what = format!("its {what} also belongs to {}", other);
            let advice = match table {
                Table::Volumes => "rename one",
                _ => RESTORE,
            };
            self.problem(table, id.into(), what, None, advice);
        }
    }

    fn extent(&mut self, key: u64, found: Result<Location, ArrayError>, size: Bytes) {
        self.report.extents += 1;
        let (volume, extent) = split_key(key);
        let drop = Some(Repair::DropExtent { volume, extent });
        let at = found.as_ref().ok().copied();
        let Some(record) = self.volumes.get(&volume.0) else {
            let what = format!("volume {} does not exist", volume.0);
            return self.extent_problem(key, what, drop, "");
        };
        let extents = record.as_ref().map(|r| r.extents(size));
        let family = record.as_ref().map_or(volume, VolumeRecord::family);
        let is_at_source = |at| record.as_ref().is_some_and(|r| r.is_at_source(at));
        let at_source = at.is_some_and(is_at_source);
        if let Some(extents) = extents
            && u64::from(extent) >= extents
        {
            let what = format!("volume {} has only {extents} extents", volume.0);
            let advice = "grow the volume, and inspect its data";
            self.extent_problem(key, what, None, advice);
        }
        // A volume whose own record is unreadable cannot be marked either.
        let damaged = extents.map(|_| Repair::MarkDamaged(volume));
        let Some(at) = at else {
            let what = found.as_ref().map_or_else(reason, |_| String::new());
            return self.extent_problem(key, what, damaged, COPY_OUT);
        };
        if at_source {
            if at.slot != extent {
                let what = format!("it is at its source, but as extent {}", at.slot);
                self.extent_problem(key, what, damaged, COPY_OUT);
            }
            return;
        }
        let Some(device) = self.devices.get(&at.device.0) else {
            let what = format!("it is on device {}, which does not exist", at.device.0);
            return self.extent_problem(key, what, damaged, COPY_OUT);
        };
        let Some(device) = device else {
            return;
        };
        let (slots, high_water) = (device.slots, device.high_water);
        if at.slot >= slots {
            let (slot, device) = (at.slot, at.device.0);
            let what = format!("it is in slot {slot} of device {device}, which has {slots}");
            return self.extent_problem(key, what, damaged, COPY_OUT);
        }
        if at.slot >= high_water {
            let (slot, device) = (at.slot, at.device);
            let what = format!(
                "it is in slot {slot} of device {}, whose high-water mark is {high_water}",
                device.0
            );
            let slots = slot + 1;
            let raise = Repair::RaiseHighWater { device, slots };
            self.extent_problem(key, what, Some(raise), "");
        }
        let owner = (family, extent);
        let owned = self.owned.entry(at.device);
        if owned.or_insert_with(|| Bitmap::new(slots)).insert(at.slot) {
            if self.shares(family) {
                self.claims.set(at, owner);
            }
        } else if !self
            .claims
            .get(at)
            .is_some_and(|other| self.may_share(owner, other))
        {
            self.twice.insert(at);
        }
    }

    fn extent_problem(&mut self, key: u64, what: String, repair: Option<Repair>, advice: &str) {
        self.problem(Table::Extents, Key::Extent(key), what, repair, advice);
    }

    /// Names one of the owners of a slot that has several.
    fn owner(&mut self, key: u64, found: Result<Location, ArrayError>) {
        let (volume, _) = split_key(key);
        let Some(at) = found.ok().filter(|at| self.twice.contains(at)) else {
            return;
        };
        let Some(record) = self.volumes.get(&volume.0) else {
            return;
        };
        let damaged = record.as_ref().map(|_| Repair::MarkDamaged(volume));
        let what = format!(
            "it is in slot {} of device {}, which also holds another extent",
            at.slot, at.device.0
        );
        self.extent_problem(key, what, damaged, COPY_OUT);
    }

    fn mover(&mut self, id: u32, found: Result<MoveRecord, ArrayError>, size: Bytes) {
        self.report.moves += 1;
        let drop = Some(Repair::DropMove(VolumeId(id)));
        let what = match &found {
            Err(error) => reason(error),
            Ok(_) if !self.volumes.contains_key(&id) => format!("volume {id} does not exist"),
            Ok(record) if !self.devices.contains_key(&record.to.0) => {
                format!("its target, device {}, does not exist", record.to.0)
            }
            Ok(record) => {
                // An unreadable volume may have any number of extents.
                let volume = self.volumes.get(&id).and_then(Option::as_ref);
                let fits = |v: &VolumeRecord| check_move(record, v.extents(size)).err();
                match volume.and_then(fits) {
                    Some(refusal) => refusal.to_string(),
                    None => return,
                }
            }
        };
        self.problem(Table::Moves, id, what, drop, "");
    }
}

/// Finds the first record that satisfies `holds`.
fn first<K: Copy + Into<u32>, R>(
    records: &BTreeMap<K, Option<R>>,
    holds: impl Fn(&R) -> bool,
) -> Option<u32> {
    let mut matching = records
        .iter()
        .filter(|(_, r)| r.as_ref().is_some_and(&holds));
    matching.next().map(|(id, _)| (*id).into())
}

/// Text of a record's error without table and key, which the problem names.
fn reason(error: &ArrayError) -> String {
    match error {
        ArrayError::Corrupt { .. } => "checksum mismatch".into(),
        ArrayError::Record { why, .. } => why.clone(),
        other => other.to_string(),
    }
}
