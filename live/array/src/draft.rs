//! State of the map after a commit: the tables inside a transaction, and the rules of each change.

use std::collections::BTreeMap;

use redb::{ReadableTable, WriteTransaction};
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use crate::ArrayError;
use crate::codec::Record;
use crate::commit::{Change, Failure, at_index, refused, store, unknown};
use crate::families::Families;
use crate::membership::{
    DeviceStamp, MapState, Members, Membership, PROPOSALS_MAX, SecondCopy, Stamp,
};
use crate::problem::Repair;
use crate::read::{each, each_extent, get, read_state};
use crate::record::{DeviceRecord, Health, MoveRecord, TierRecord, VolumeRecord};
use crate::refusal::{
    Refusal, check_controller, check_device, check_move, check_path, check_tier, check_volume,
    taken,
};
use crate::sums::{Sum, SummedTable, VolumeSum, by_volume, of_map, read_sum, write_state};
use crate::tables::{
    self, CHANGED, ChangedBytes, DEVICES, EXTENTS, ExtentBytes, MOVES, STAMPS, STATE, SUMS, TIERS,
    Table, VOLUMES, extent_key, keys_of, seal_extent, split_key, unseal_extent,
};

mod snapshots;
mod sources;

type Records<'t, K> = SummedTable<'t, K, tables::Bytes>;

/// State of the map after the commit.
pub(crate) struct Draft<'t> {
    pub(crate) extent: Bytes,
    pub(crate) tiers: Records<'t, u16>,
    pub(crate) devices: Records<'t, u16>,
    pub(crate) volumes: Records<'t, u32>,
    pub(crate) extents: SummedTable<'t, u64, ExtentBytes>,
    pub(crate) moves: Records<'t, u32>,
    stamps: Records<'t, u16>,
    sums: Records<'t, u32>,
    states: redb::Table<'t, &'static str, tables::Bytes>,
    changed: SummedTable<'t, u64, ChangedBytes>,
    /// Families, after their first use.
    families: Option<Families>,
    /// State record of the map.
    state: MapState,
    set_aside: bool,
    /// Device records read so far.
    known_devices: BTreeMap<u16, DeviceRecord>,
    /// Numbers of extents of the volumes read so far.
    known_volumes: BTreeMap<u32, u64>,
    /// Highest slot of each device that an extent got, with the index of the change.
    highest: BTreeMap<u16, (u32, usize)>,
}

impl<'t> Draft<'t> {
    /// Opens the tables. `families` are those of the map, if known.
    pub(crate) fn open(
        txn: &'t WriteTransaction,
        extent: Bytes,
        families: Option<Families>,
    ) -> Result<Self, ArrayError> {
        let states = txn
            .open_table(STATE)
            .map_err(ArrayError::store("begin a commit"))?;
        let state = read_state(&states)?;
        let open = || -> Result<Self, redb::TableError> {
            Ok(Self {
                extent,
                changed: SummedTable::open(txn, CHANGED, Table::Changed, by_volume)?,
                families,
                stamps: SummedTable::open(txn, STAMPS, Table::Stamps, of_map)?,
                sums: SummedTable::open(txn, SUMS, Table::Sums, of_map)?,
                states,
                state,
                set_aside: false,
                tiers: SummedTable::open(txn, TIERS, Table::Tiers, of_map)?,
                devices: SummedTable::open(txn, DEVICES, Table::Devices, of_map)?,
                volumes: SummedTable::open(txn, VOLUMES, Table::Volumes, of_map)?,
                extents: SummedTable::open(txn, EXTENTS, Table::Extents, by_volume)?,
                moves: SummedTable::open(txn, MOVES, Table::Moves, of_map)?,
                known_devices: BTreeMap::new(),
                known_volumes: BTreeMap::new(),
                highest: BTreeMap::new(),
            })
        };
        open().map_err(ArrayError::store("begin a commit"))
    }

    pub(crate) fn make(&mut self, index: usize, change: &Change) -> Result<(), Failure> {
        match change {
            Change::AddTier(record) => self.add_tier(record),
            Change::AddDevice(record) => self.add_device(record),
            Change::HighWater { device, slots } => self.raise(*device, *slots),
            Change::AddVolume(record) => self.add_volume(record),
            Change::Import { volume, extents } => self.import(volume, extents),
            Change::SetVolume(record) => self.set_volume(record),
            Change::RemoveVolume(volume) => self.remove_volume(*volume),
            Change::TakeSnapshot(record) => self.take_snapshot(record),
            Change::RestoreSnapshot(snapshot) => self.restore_snapshot(*snapshot),
            Change::Place { volume, extent, at } => {
                let had_one = self.place(index, *volume, *extent, *at)?;
                self.placed(*volume, *extent, had_one)
            }
            Change::CopyUp { volume, extent, at } => {
                let had_one = self.place(index, *volume, *extent, *at)?;
                self.copied_up(*volume, *extent, had_one)
            }
            Change::Vacate { volume, extent } => {
                self.vacate(*volume, *extent)?;
                self.vacated(*volume, *extent)
            }
            Change::SetMove(record) => self.set_move(record),
            Change::ClearMove(volume) => {
                self.volume_extents(*volume)?;
                self.moves.remove(volume.0).map_err(store)?;
                Ok(())
            }
            Change::RemoveDevice(device) => self.remove_device(*device),
            Change::SetDevice(record) => self.set_device(record),
            Change::RemoveTier(tier) => self.remove_tier(*tier),
            Change::Propose {
                membership,
                devices,
            } => self.propose(*membership, devices),
            Change::Confirm { devices } => self.confirm(devices),
            Change::SetSecondCopy(second) => {
                if let SecondCopy::At(path) = second {
                    check_path(path)?;
                }
                self.state.second = second.clone();
                Ok(())
            }
            Change::SetLease(lease) => {
                check_controller(&lease.holder.name)?;
                self.state.lease = Some(lease.clone());
                Ok(())
            }
            Change::SetAside => {
                self.state.confirmed.members = Members::NONE;
                self.state.pending = None;
                self.state.earlier.clear();
                self.set_aside = true;
                Ok(())
            }
            Change::Repair(repair) => self.repair(*repair),
        }
    }

    /// Writes the changed sums and the state of the map; called once for each commit.
    pub(crate) fn count_commit(&mut self) -> Result<(), ArrayError> {
        // A backup keeps the number of commits of its array.
        self.state.commits += u64::from(!self.set_aside);
        let mut differences = self.extents.take_differences();
        for (volume, difference) in self.changed.take_differences() {
            differences.entry(volume).or_default().apply(difference);
        }
        for (volume, difference) in differences {
            let volume = volume.expect("these tables only have records of volumes");
            let before: Option<VolumeSum> = get(&*self.sums, volume.0)?;
            let mut sum = before.map(|b| b.sum).unwrap_or_default();
            sum.apply(difference);
            let written = match sum == Sum::default() {
                true => self.sums.remove(volume.0).map(drop),
                false => {
                    let value = VolumeSum { volume, sum }.encode();
                    self.sums.insert(volume.0, &value).map(drop)
                }
            };
            written.map_err(ArrayError::store("write sums"))?;
        }
        let mut sum = read_sum(&self.states)?;
        for differences in [
            self.tiers.take_differences(),
            self.devices.take_differences(),
            self.volumes.take_differences(),
            self.moves.take_differences(),
            self.stamps.take_differences(),
            self.sums.take_differences(),
        ] {
            differences.into_values().for_each(|d| sum.apply(d));
        }
        write_state(&mut self.states, &self.state.encode(), sum)
            .map_err(ArrayError::store("count a commit"))
    }

    fn propose(
        &mut self,
        membership: Membership,
        devices: &[(DeviceId, Stamp)],
    ) -> Result<(), Failure> {
        let Membership { stamp, members } = membership;
        if !stamp.supersedes(self.state.confirmed.stamp) || !(members.first || members.second) {
            return Err(Failure::Refused(Refusal::Membership {
                generation: stamp.generation,
                confirmed: self.state.confirmed.stamp.generation,
            }));
        }
        if self.state.earlier.len() >= PROPOSALS_MAX {
            return Err(Failure::Refused(Refusal::Proposals));
        }
        self.state.propose(membership);
        let mut known: BTreeMap<DeviceId, Vec<Stamp>> = BTreeMap::new();
        for (device, found) in devices {
            known.entry(*device).or_default().push(*found);
        }
        for (device, was) in known {
            self.device(device)?;
            let now = stamp;
            self.put_stamp(DeviceStamp { device, now, was })?;
        }
        Ok(())
    }

    fn confirm(&mut self, devices: &[DeviceId]) -> Result<(), Failure> {
        let Some(confirmed) = self.state.confirm() else {
            return Err(Failure::Refused(Refusal::NothingProposed));
        };
        let mut open = vec![];
        each::<DeviceStamp>(&*self.stamps, |_, found| {
            let found = found?;
            if found.now == confirmed.stamp && !found.was.is_empty() {
                open.push(found);
            }
            Ok(())
        })?;
        for DeviceStamp { device, now, was } in open {
            let (now, was) = match (devices.contains(&device), was.split_first()) {
                // The device may carry any of these stamps.
                (false, Some((last, others))) => (*last, [others, &[now]].concat()),
                _ => (now, vec![]),
            };
            self.put_stamp(DeviceStamp { device, now, was })?;
        }
        Ok(())
    }

    fn put_stamp(&mut self, stamp: DeviceStamp) -> Result<(), Failure> {
        let value = stamp.encode();
        self.stamps.insert(stamp.device.0, &value).map_err(store)?;
        Ok(())
    }

    /// Returns the first extent on a device.
    fn first_on(&self, device: DeviceId) -> Result<Option<(VolumeId, u32)>, Failure> {
        let mut first = None;
        each_extent(&*self.extents, 0..=u64::MAX, |key, at| {
            // An unreadable record may be on any device.
            if first.is_none() && at.is_ok_and(|at| at.device == device) {
                first = Some(split_key(key));
            }
            Ok(())
        })?;
        Ok(first)
    }

    fn remove_device(&mut self, device: DeviceId) -> Result<(), Failure> {
        self.device(device)?;
        if let Some((volume, extent)) = self.first_on(device)? {
            return Err(Failure::Refused(Refusal::DeviceHolds {
                device: device.0,
                volume: volume.0,
                extent,
            }));
        }
        let mut moving = None;
        each::<MoveRecord>(&*self.moves, |id, found| {
            if found.is_ok_and(|m| m.to == device) {
                moving = Some(id);
            }
            Ok(())
        })?;
        if let Some(volume) = moving {
            let device = device.0;
            return Err(Failure::Refused(Refusal::DeviceIsTarget { device, volume }));
        }
        self.devices.remove(device.0).map_err(store)?;
        self.stamps.remove(device.0).map_err(store)?;
        self.known_devices.remove(&device.0);
        Ok(())
    }

    fn set_device(&mut self, record: &DeviceRecord) -> Result<(), Failure> {
        check_device(record)?;
        let before = self.device(record.id)?.clone();
        if before.tier != record.tier || before.slots > record.slots {
            return Err(Failure::Refused(Refusal::DeviceChanged {
                device: record.id.0,
            }));
        }
        self.device_is_unique(record)?;
        self.put_device(record)
    }

    fn remove_tier(&mut self, tier: TierId) -> Result<(), Failure> {
        self.tier(tier)?;
        let id = tier.0;
        let mut user = None;
        each::<DeviceRecord>(&*self.devices, |_, found| {
            let found = found?;
            if found.tier == tier {
                user = Some(format!("device {:?} belongs to it", found.name));
            }
            Ok(())
        })?;
        each::<VolumeRecord>(&*self.volumes, |_, found| {
            let found = found?;
            if found.home == tier {
                user = Some(format!("it is the home of volume {:?}", found.name));
            }
            Ok(())
        })?;
        if let Some(why) = user {
            return Err(Failure::Refused(Refusal::TierInUse { tier: id, why }));
        }
        self.tiers.remove(id).map_err(store)?;
        Ok(())
    }

    fn repair(&mut self, repair: Repair) -> Result<(), Failure> {
        match repair {
            Repair::DropExtent { volume, extent } => {
                let key = extent_key(volume, extent);
                self.extents.remove(key).map_err(store)?;
            }
            Repair::DropMove(volume) => {
                self.moves.remove(volume.0).map_err(store)?;
            }
            Repair::RaiseHighWater { device, slots } => self.raise(device, slots)?,
            Repair::MarkDamaged(volume) => self.mark_damaged(volume)?,
            Repair::CountChanged(volume) => self.count_changed(volume)?,
            Repair::DropChanged(volume) => self.forget_changed(volume)?,
        }
        Ok(())
    }

    fn add_tier(&mut self, record: &TierRecord) -> Result<(), Failure> {
        check_tier(record)?;
        let id = record.id.0;
        let mut refusal = None;
        each::<TierRecord>(&*self.tiers, |_, other| {
            let other = other?;
            if other.id == record.id {
                refusal = Some(Refusal::IdTaken {
                    what: "tier",
                    id: id.into(),
                });
            } else if other.name == record.name {
                refusal = Some(taken("name", &other.name, "tier", other.id.0));
            }
            Ok(())
        })?;
        refused(refusal)?;
        self.tiers.insert(id, &record.encode()).map_err(store)?;
        Ok(())
    }

    fn add_device(&mut self, record: &DeviceRecord) -> Result<(), Failure> {
        check_device(record)?;
        self.tier(record.tier)?;
        let id = record.id.0;
        if self.devices.get(id).map_err(store)?.is_some() {
            let (what, id) = ("device", id.into());
            return Err(Failure::Refused(Refusal::IdTaken { what, id }));
        }
        self.is_no_source(record.id, None)?;
        self.device_is_unique(record)?;
        self.put_device(record)
    }

    /// Checks that no other device has the same name or path.
    fn device_is_unique(&self, record: &DeviceRecord) -> Result<(), Failure> {
        let mut refusal = None;
        each::<DeviceRecord>(&*self.devices, |_, other| {
            let other = other?;
            if other.id == record.id {
                return Ok(());
            }
            if other.name == record.name {
                refusal = Some(taken("name", &other.name, "device", other.id.0));
            } else if other.path == record.path {
                refusal = Some(taken("path", &other.path, "device", other.id.0));
            }
            Ok(())
        })?;
        refused(refusal)
    }

    fn put_device(&mut self, record: &DeviceRecord) -> Result<(), Failure> {
        let value = record.encode();
        self.devices.insert(record.id.0, &value).map_err(store)?;
        self.known_devices.insert(record.id.0, record.clone());
        Ok(())
    }

    fn raise(&mut self, device: DeviceId, mark: u32) -> Result<(), Failure> {
        let mut record = self.device(device)?.clone();
        if mark > record.slots {
            return Err(Failure::Refused(Refusal::HighWater {
                device: device.0,
                mark,
                slots: record.slots,
                why: "it is past the end",
            }));
        }
        if mark <= record.high_water {
            return Ok(());
        }
        record.high_water = mark;
        self.put_device(&record)
    }

    fn add_volume(&mut self, record: &VolumeRecord) -> Result<(), Failure> {
        if record.snapshot.is_some() {
            return Err(Failure::Refused(Refusal::Snapshot {
                volume: record.id.0,
                why: "a snapshot cannot be added, only created from its volume".into(),
            }));
        }
        if record.source.is_some() {
            let (volume, why) = (record.id.0, "a volume cannot be added with a source".into());
            return Err(Failure::Refused(Refusal::Source { volume, why }));
        }
        self.id_is_free(record.id)?;
        self.put_volume(record)
    }

    fn id_is_free(&mut self, volume: VolumeId) -> Result<(), Failure> {
        let id = volume.0;
        if self.volumes.get(id).map_err(store)?.is_some() {
            return Err(Failure::Refused(Refusal::IdTaken { what: "volume", id }));
        }
        // Otherwise records of a lost volume would appear to belong to this one.
        if let Some(extent) = self.first_placed(volume, 0)? {
            let why = "belongs to no volume, but has the number of this one: run `terrace volume repair` first".into();
            return Err(Failure::Other(ArrayError::Record {
                table: Table::Extents.name(),
                key: format!("{id}:{extent}"),
                why,
            }));
        }
        if let Some((_, snapshot)) = self.families()?.snapshots(volume).next() {
            return Err(Failure::Refused(Refusal::Snapshot {
                volume: snapshot.0,
                why: format!("it belongs to volume {id}, which does not exist: remove it first"),
            }));
        }
        Ok(())
    }

    fn set_volume(&mut self, record: &VolumeRecord) -> Result<(), Failure> {
        let id = record.id.0;
        let before: Option<VolumeRecord> = get(&*self.volumes, id)?;
        let before = before.ok_or_else(|| unknown("volume", id))?;
        let why = match before.snapshot {
            of if of != record.snapshot => {
                Some("it cannot become or cease to be a snapshot, or change its volume")
            }
            Some(_) if before.size != record.size => Some("a snapshot cannot change its size"),
            _ => None,
        };
        if let Some(why) = why {
            let (volume, why) = (id, why.into());
            return Err(Failure::Refused(Refusal::Snapshot { volume, why }));
        }
        self.source_is_kept(&before, record)?;
        let extents = record.extents(self.extent);
        if let Ok(after) = u32::try_from(extents)
            && let Some(placed) = self.first_placed(record.id, after)?
        {
            return Err(Failure::Refused(Refusal::Shrink {
                volume: record.id.0,
                extents,
                placed,
            }));
        }
        if extents < before.extents(self.extent)
            && let Some(running) = get::<MoveRecord>(&*self.moves, record.id.0)?
        {
            check_move(&running, extents)?;
        }
        self.put_volume(record)?;
        self.resized(record.id, before.size, record.size)
    }

    fn put_volume(&mut self, record: &VolumeRecord) -> Result<(), Failure> {
        check_volume(record, self.extent)?;
        self.tier(record.home)?;
        let mut refusal = None;
        each::<VolumeRecord>(&*self.volumes, |_, other| {
            let other = other?;
            if other.id != record.id && other.name == record.name {
                refusal = Some(taken("name", &other.name, "volume", other.id.0));
            }
            Ok(())
        })?;
        refused(refusal)?;
        self.write_volume(record)
    }

    fn mark_damaged(&mut self, volume: VolumeId) -> Result<(), Failure> {
        let record: Option<VolumeRecord> = get(&*self.volumes, volume.0)?;
        let mut record = record.ok_or(ArrayError::NoVolume(volume.0))?;
        record.health = Health::Damaged;
        self.write_volume(&record)
    }

    fn write_volume(&mut self, record: &VolumeRecord) -> Result<(), Failure> {
        let value = record.encode();
        self.volumes.insert(record.id.0, &value).map_err(store)?;
        let extents = record.extents(self.extent);
        self.known_volumes.insert(record.id.0, extents);
        Ok(())
    }

    /// Removes a volume without reading its record, so a volume with a corrupt record can be removed.
    fn remove_volume(&mut self, volume: VolumeId) -> Result<(), Failure> {
        if self.volumes.get(volume.0).map_err(store)?.is_none() {
            return Err(unknown("volume", volume.0));
        }
        self.leave_family(volume)?;
        self.volumes.remove(volume.0).map_err(store)?;
        self.known_volumes.remove(&volume.0);
        self.extents.clear(keys_of(volume)).map_err(store)?;
        self.moves.remove(volume.0).map_err(store)?;
        Ok(())
    }

    /// Sets a place; returns true if the extent had a place before.
    fn place(
        &mut self,
        index: usize,
        volume: VolumeId,
        extent: u32,
        at: Location,
    ) -> Result<bool, Failure> {
        self.extent_inside(volume, extent)?;
        let (device, slot) = (at.device.0, at.slot);
        let slots = self.device(at.device)?.slots;
        if slot >= slots {
            return Err(Failure::Refused(Refusal::SlotOutside {
                device,
                slot,
                slots,
            }));
        }
        let highest = self.highest.entry(device).or_insert((slot, index));
        if slot > highest.0 {
            *highest = (slot, index);
        }
        let key = extent_key(volume, extent);
        let before = self
            .extents
            .insert(key, &seal_extent(key, at))
            .map_err(store)?;
        let had_one = before.is_some();
        not_lost(key, before)?;
        Ok(had_one)
    }

    fn vacate(&mut self, volume: VolumeId, extent: u32) -> Result<(), Failure> {
        self.extent_inside(volume, extent)?;
        let key = extent_key(volume, extent);
        let before = self.extents.remove(key).map_err(store)?;
        not_lost(key, before)
    }

    fn set_move(&mut self, record: &MoveRecord) -> Result<(), Failure> {
        let extents = self.volume_extents(record.volume)?;
        check_move(record, extents)?;
        self.device(record.to)?;
        let value = record.encode();
        self.moves.insert(record.volume.0, &value).map_err(store)?;
        Ok(())
    }

    /// Returns the first extent from `from` on that has a place.
    fn first_placed(&self, volume: VolumeId, from: u32) -> Result<Option<u32>, Failure> {
        let keys = extent_key(volume, from)..=*keys_of(volume).end();
        let first = self.extents.range(keys).map_err(store)?.next();
        let first = first.transpose().map_err(store)?;
        Ok(first.map(|(key, _)| split_key(key.value()).1))
    }

    fn tier(&self, id: TierId) -> Result<(), Failure> {
        let record: Option<TierRecord> = get(&*self.tiers, id.0)?;
        record.map(drop).ok_or_else(|| unknown("tier", id.0.into()))
    }

    fn device(&mut self, id: DeviceId) -> Result<&DeviceRecord, Failure> {
        use std::collections::btree_map::Entry;
        match self.known_devices.entry(id.0) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let record = get(&*self.devices, id.0)?;
                let record = record.ok_or_else(|| unknown("device", id.0.into()))?;
                Ok(place.insert(record))
            }
        }
    }

    fn volume_extents(&mut self, id: VolumeId) -> Result<u64, Failure> {
        if let Some(extents) = self.known_volumes.get(&id.0) {
            return Ok(*extents);
        }
        let record: Option<VolumeRecord> = get(&*self.volumes, id.0)?;
        let record = record.ok_or_else(|| unknown("volume", id.0))?;
        let extents = record.extents(self.extent);
        self.known_volumes.insert(id.0, extents);
        Ok(extents)
    }

    fn extent_inside(&mut self, volume: VolumeId, extent: u32) -> Result<(), Failure> {
        let extents = self.volume_extents(volume)?;
        match u64::from(extent) < extents {
            true => Ok(()),
            false => Err(Failure::Refused(Refusal::ExtentOutside {
                volume: volume.0,
                extent,
                extents,
            })),
        }
    }

    /// Returns the families after the changes.
    pub(crate) fn into_families(self) -> Option<Families> {
        self.families
    }

    /// Checks that every slot given to an extent is below its device's mark. The mark may be raised anywhere in the
    /// commit.
    pub(crate) fn check_marks(&mut self) -> Result<(), ArrayError> {
        for (device, (slot, index)) in std::mem::take(&mut self.highest) {
            let record = self
                .device(DeviceId(device))
                .map_err(|f| at_index(index, f))?;
            if slot >= record.high_water {
                return Err(ArrayError::Refused {
                    index,
                    refusal: Refusal::AboveHighWater {
                        device,
                        slot,
                        high_water: record.high_water,
                    },
                });
            }
        }
        Ok(())
    }
}

/// Refuses to replace a record that is corrupt.
fn not_lost(key: u64, before: Option<redb::AccessGuard<'_, ExtentBytes>>) -> Result<(), Failure> {
    match before.map(|value| unseal_extent(key, value.value())) {
        Some(Err(_)) => {
            let (volume, extent) = split_key(key);
            Err(Failure::Refused(Refusal::LostExtent {
                volume: volume.0,
                extent,
            }))
        }
        _ => Ok(()),
    }
}
