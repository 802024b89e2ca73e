//! Removal of devices and tiers, lost devices, and their return.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use array::{Change, DeviceKind, DeviceRecord, Extent, Superblock};
use model::DirectIo;
use units::{Bytes, DeviceId};

use super::underway::ReservedName;
use super::{
    ControlAnswer, ControlServer, DatapathError, NewDevice, NewSource, Result, done, refused,
    tier_named,
};
use crate::device::{Claimant, Device};
use crate::keeper::{Keeper, claim_opened, open_one, settle_direct};
use crate::text::explain;
use crate::worker::Message;

/// Removed devices that are to be wiped.
type RemovedDevices = Vec<(DeviceRecord, Option<Arc<Device>>)>;

impl ControlServer {
    pub(super) fn remove_device(&self, name: &str, accept_loss: bool) -> Result<ControlAnswer> {
        done(self.take_out(name, accept_loss)?)
    }

    fn take_out(&self, name: &str, accept_loss: bool) -> Result<String> {
        let wanted = name.to_owned();
        let record = self.with_keeper(move |keeper| device_named(keeper, &wanted))??;
        // The claim prevents a new device in the same place before this one is wiped.
        let _leaving = self.underway.claim(|_| Ok((record.id, taken(&record))))?;
        let wanted = name.to_owned();
        let (done_line, leaving) =
            self.with_keeper(move |keeper| remove(keeper, &wanted, accept_loss))??;
        Ok(done_line + &wipe(leaving))
    }

    pub(super) fn replace_device(
        &self,
        name: &str,
        new: NewDevice,
        accept_loss: bool,
    ) -> Result<ControlAnswer> {
        let dir = match &new.source {
            NewSource::Dir(dir) => dir.canonicalize().ok(),
            NewSource::Block(_) | NewSource::Nbd(_) => None,
        };
        let wanted = name.to_owned();
        // This check comes before the addition, so that a refusal leaves nothing behind.
        let tier = self.with_keeper(move |keeper| -> Result<String> {
            let record = device_named(keeper, &wanted)?;
            if keeper.devices.contains_key(&record.id) && keeper.holds(record.id) {
                return Err(DatapathError::Refused(format!(
                    "device {wanted:?} is in use: add another device to its tier (`terrace tier add`), move all data off it (`terrace tier drain`, `terrace volume move`), then run `terrace device remove {wanted}`"
                )));
            }
            check_loss(keeper, &record, accept_loss)?;
            check_second(keeper, std::slice::from_ref(&record), dir.as_deref())?;
            let tier = keeper.tiers.iter().find(|t| t.id == record.tier);
            let unknown = || DatapathError::Refused("its tier is unknown".into());
            Ok(tier.ok_or_else(unknown)?.name.clone())
        })??;
        let added = self.bring_in(NewDevice { tier, ..new })?;
        // The state has changed meanwhile, or the map cannot be written. The new device stays useful.
        let removed = self.take_out(name, accept_loss).map_err(|why| {
            why.about(format_args!(
                "{added}, but device {name} could not be removed"
            ))
        })?;
        done(format!("{added}; {removed}"))
    }

    pub(super) fn accept_device(&self, name: &str) -> Result<ControlAnswer> {
        let wanted = name.to_owned();
        let (record, array, extent, dir) = self.with_keeper(move |keeper| {
            let record = device_named(keeper, &wanted)?;
            match keeper.devices.contains_key(&record.id) {
                true => Err(DatapathError::Refused(format!(
                    "device {wanted:?} is already in use"
                ))),
                false => {
                    let (id, extent) = (keeper.map.id(), keeper.map.extent());
                    Ok((record, id, extent, keeper.dir.clone()))
                }
            }
        })??;
        // This runs outside the keeper, because it may take long.
        let opened = open_one(extent, &record);
        let opened = opened.map_err(|not| DatapathError::Refused(not.why))?;
        // The operator accepts the device in its present state, even if another server did not
        // release it.
        let claimant = Claimant::new(dir.as_deref(), true);
        claim_opened(array, extent, &record, &opened, &claimant)?;
        settle_direct(array, extent, &record, &opened);
        self.with_keeper(move |keeper| accept(keeper, &record, opened))??;
        done(format!("accepted device {name} with its present content"))
    }

    pub(super) fn remove_tier(&self, name: &str) -> Result<ControlAnswer> {
        let wanted = name.to_owned();
        let devices = self.with_keeper(move |keeper| of_tier(keeper, &wanted))??;
        let mut claims = vec![];
        for record in &devices {
            claims.push(self.underway.claim(|_| Ok((record.id, taken(record))))?);
        }
        let wanted = name.to_owned();
        let leaving = self.with_keeper(move |keeper| remove_tier(keeper, &wanted, &devices))??;
        let wiped = wipe(leaving);
        done(format!("removed tier {name} and its devices{wiped}"))
    }
}

fn taken(record: &DeviceRecord) -> ReservedName {
    ReservedName {
        name: record.name.clone(),
        path: Some(record.path.clone()),
    }
}

/// Wipes removed devices, and returns the failures as text. Runs outside the keeper, because it may take long.
fn wipe(leaving: RemovedDevices) -> String {
    let one = |(record, device): (DeviceRecord, Option<Arc<Device>>)| {
        let error = device?.disown(&record).err()?;
        Some(format!("; the device cannot be wiped: {}", explain(&error)))
    };
    leaving.into_iter().filter_map(one).collect()
}

/// Accepts a device in its present state.
fn accept(keeper: &mut Keeper, record: &DeviceRecord, opened: (Device, Superblock)) -> Result<()> {
    let id = record.id;
    let now = keeper.records.get(&id);
    if now.is_none_or(|now| (now.kind, &now.path) != (record.kind, &record.path)) {
        return Err(DatapathError::Refused(format!(
            "another command has removed device {:?}",
            record.name
        )));
    }
    if keeper.devices.contains_key(&id) {
        return Ok(()); // the device has returned by itself
    }
    keeper.join(id, opened, true)?;
    if keeper.workers.is_empty() {
        keeper.renew()?; // the next start then expects the device in this state
    }
    if let Some(lost) = keeper.lost.get(&id) {
        return Err(DatapathError::Refused(lost.why.clone()));
    }
    for worker in &keeper.workers {
        worker.send(Message::Device(keeper.devices[&id].clone()));
    }
    Ok(())
}

fn of_tier(keeper: &Keeper, name: &str) -> Result<Vec<DeviceRecord>> {
    let tier = tier_named(keeper, name)?;
    let devices = keeper.records.values().filter(|d| d.tier == tier);
    Ok(devices.cloned().collect())
}

/// Records the change of membership on the other devices. The removal is valid even if that fails.
fn tell_others(keeper: &mut Keeper) {
    if keeper.serves() {
        keeper.renew_or_note();
    }
}

/// Removes a tier and its devices from the array.
fn remove_tier(
    keeper: &mut Keeper,
    name: &str,
    expected: &[DeviceRecord],
) -> Result<RemovedDevices> {
    let tier = tier_named(keeper, name)?;
    let devices = of_tier(keeper, name)?;
    let ids = |of: &[DeviceRecord]| of.iter().map(|d| d.id).collect::<Vec<_>>();
    if ids(&devices) != ids(expected) {
        return Err(DatapathError::Busy(format!(
            "another command has changed the devices of tier {name:?}: try again"
        )));
    }
    for device in &devices {
        let held = holdings(keeper, device.id)?;
        if !held.is_empty() {
            return Err(DatapathError::Refused(format!(
                "device {:?} of the tier holds {}: move this data first (`terrace tier drain {name}`, `terrace volume move`)",
                device.name,
                holdings_text(&held)
            )));
        }
    }
    let mut changes: Vec<Change> = devices.iter().map(|d| Change::RemoveDevice(d.id)).collect();
    changes.push(Change::RemoveTier(tier));
    // The change is atomic: a tier that is the home of volumes keeps all devices.
    check_second(keeper, &devices, None)?;
    keeper
        .commit(&changes)
        .map_err(|e| home_of_volumes(keeper, tier).unwrap_or_else(|| refused(e)))?;
    keeper.tiers.retain(|t| t.id != tier);
    // The devices are removed from the map, so they are removed everywhere, even if wiping them fails.
    let mut leaving = vec![];
    for device in devices {
        let handle = keeper.devices.get(&device.id).cloned();
        keeper.forget(device.id);
        leaving.push((device, handle));
    }
    tell_others(keeper);
    Ok(leaving)
}

/// Returns the error for a tier that is the home of volumes; none without such volumes.
fn home_of_volumes(keeper: &Keeper, tier: units::TierId) -> Option<DatapathError> {
    let home = keeper.volumes.values().filter(|v| v.home == tier);
    let names: Vec<&str> = home.map(|v| v.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        DatapathError::Refused(format!(
            "the tier is the home of {}: move these volumes to another tier with `terrace volume move`",
            names.join(", ")
        ))
    })
}

pub(super) fn device_named(keeper: &Keeper, name: &str) -> Result<DeviceRecord> {
    let all = keeper
        .records
        .values()
        .filter(|d| d.kind != DeviceKind::Gone);
    let found = all.clone().find(|d| d.name == name).cloned();
    found.ok_or_else(|| DatapathError::unknown("device", name, all.map(|d| d.name.as_str())))
}

/// Returns the bytes of each volume that are on a device.
fn holdings(keeper: &Keeper, device: DeviceId) -> Result<BTreeMap<String, Bytes>> {
    let mut held: BTreeMap<String, Bytes> = BTreeMap::new();
    if !keeper.holds(device) {
        return Ok(held);
    }
    for volume in keeper.volumes.values() {
        for extent in keeper.map.extents(volume.id)? {
            if matches!(extent, Extent::At(at) if at.device == device) {
                held.entry(volume.name.clone()).or_default().0 += keeper.map.extent().0;
            }
        }
    }
    Ok(held)
}

fn holdings_text(held: &BTreeMap<String, Bytes>) -> String {
    let each: Vec<String> = held.iter().map(|(v, b)| format!("{b} of {v}")).collect();
    each.join(", ")
}

/// Checks that the data on a device may be lost.
fn check_loss(keeper: &Keeper, record: &DeviceRecord, accept_loss: bool) -> Result<()> {
    let held = holdings(keeper, record.id)?;
    let name = &record.name;
    if held.is_empty() {
        return Ok(());
    }
    if keeper.devices.contains_key(&record.id) {
        return Err(DatapathError::Refused(format!(
            "device {name:?} holds {}: move this data first (`terrace tier drain`, `terrace volume move`)",
            holdings_text(&held)
        )));
    }
    match accept_loss {
        true => Ok(()),
        false => Err(DatapathError::Refused(format!(
            "device {name:?} is lost and holds {}: reconnect the device, or accept the loss of this data with `--accept-loss {name}`",
            holdings_text(&held)
        ))),
    }
}

/// Checks that the map's second copy is not on a disk that leaves, unless a new device is on the same disk (`coming` is its
/// directory).
fn check_second(keeper: &Keeper, leaving: &[DeviceRecord], coming: Option<&Path>) -> Result<()> {
    let second = keeper
        .map
        .health()
        .into_iter()
        .find(|h| h.0 == array::CopyId::Second);
    let Some((_, path, _)) = second else {
        return Ok(());
    };
    let dir = Path::new(&path).parent();
    if coming.is_some() && coming == dir {
        return Ok(());
    }
    let beside =
        |d: &&DeviceRecord| d.kind == DeviceKind::File && Path::new(&d.path).parent() == dir;
    let stays = keeper.records.values().filter(beside);
    let stays = stays
        .filter(|d| leaving.iter().all(|l| l.id != d.id))
        .count();
    match leaving.iter().find(beside) {
        Some(device) if stays == 0 && keeper.devices.contains_key(&device.id) => {
            Err(DatapathError::Refused(format!(
                "the second copy of the map is in the directory of device {:?}, in {path}: move it with `terrace array copy`",
                device.name
            )))
        }
        _ => Ok(()),
    }
}

/// Removes a device from the array, and gives up the data on it if permitted.
fn remove(keeper: &mut Keeper, name: &str, accept_loss: bool) -> Result<(String, RemovedDevices)> {
    let record = device_named(keeper, name)?;
    check_loss(keeper, &record, accept_loss)?;
    let id = record.id;
    // Slots are reserved there, but no extent is stored in them.
    let reserved = keeper.holds(id) && holdings(keeper, id)?.is_empty();
    if reserved || (keeper.holds(id) && keeper.devices.contains_key(&id)) {
        return Err(DatapathError::Refused(format!(
            "device {name:?} is the target of a move or mirror: cancel that first (`terrace volume cancel`, `terrace volume mirror --stop`)"
        )));
    }
    check_second(keeper, std::slice::from_ref(&record), None)?;
    let held = holdings(keeper, id)?;
    if held.is_empty() {
        keeper
            .commit(&[Change::RemoveDevice(id)])
            .map_err(refused)?;
        let handle = keeper.devices.get(&id).cloned();
        keeper.forget(id);
        tell_others(keeper);
        return Ok((format!("removed device {name}"), vec![(record, handle)]));
    }
    // The data on it stays recorded as lost, so that it is not taken for extents that were never written.
    let gone = DeviceRecord {
        name: format!("{name} (given up, {})", id.0),
        kind: DeviceKind::Gone,
        path: format!("given-up:{}", id.0),
        high_water: record.slots,
        emulate: None,
        direct: DirectIo::Off,
        ..record
    };
    let moving = keeper.map.moves()?;
    let to_it = moving.iter().filter(|m| m.to == id);
    let mut changes: Vec<Change> = to_it.map(|m| Change::ClearMove(m.volume)).collect();
    changes.push(Change::SetDevice(gone.clone()));
    keeper.commit(&changes).map_err(refused)?;
    keeper.records.insert(id, gone);
    if let Some(lost) = keeper.lost.get_mut(&id) {
        lost.why = "an operator accepted its loss".into();
        lost.in_use = true;
    }
    keeper.renew_if_served()?;
    let done_line = format!(
        "removed device {name} and lost {}: reads and writes of this data fail until guests trim it",
        holdings_text(&held)
    );
    Ok((done_line, vec![]))
}
