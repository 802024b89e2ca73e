//! Devices and tiers that leave the array, devices that are lost, and those that are taken back.

use std::collections::BTreeMap;

use array::{Change, DeviceKind, DeviceRecord, Extent};
use units::{Bytes, DeviceId};

use super::devices::add_device;
use super::{Desk, NewDevice, Result, Told, done, refused, text, tier_named};
use crate::keeper::{Keeper, open_one};
use crate::text::unknown;
use crate::worker::Message;

impl Desk {
    pub(super) fn remove_device(&self, name: &str, accept_loss: bool) -> Result<Told> {
        let wanted = name.to_owned();
        let told = self.with_keeper(move |keeper| remove(keeper, &wanted, accept_loss))??;
        done(told)
    }

    pub(super) fn replace_device(
        &self,
        name: &str,
        new: NewDevice,
        accept_loss: bool,
    ) -> Result<Told> {
        let wanted = name.to_owned();
        let told = self.with_keeper(move |keeper| -> Result<String> {
            let record = device_named(keeper, &wanted)?;
            if keeper.devices.contains_key(&record.id) && keeper.holds(record.id) {
                return Err(format!(
                    "device {wanted:?} is in use: add another one to its tier (`terrace tier add`), move everything off this one (`terrace tier drain`, `terrace volume move`), then `terrace device remove {wanted}`"
                ));
            }
            // Before anything is added: what is refused leaves nothing behind.
            check_loss(keeper, &record, accept_loss)?;
            let tier = keeper.tiers.iter().find(|t| t.id == record.tier);
            let tier = tier.ok_or("its tier is not known")?.name.clone();
            let added = add_device(keeper, NewDevice { tier, ..new })?;
            let removed = remove(keeper, &wanted, accept_loss)?;
            Ok(format!("{added}; {removed}"))
        })??;
        done(told)
    }

    pub(super) fn accept_device(&self, name: &str) -> Result<Told> {
        let wanted = name.to_owned();
        let (record, extent) = self.with_keeper(move |keeper| {
            let record = device_named(keeper, &wanted)?;
            match keeper.devices.contains_key(&record.id) {
                true => Err(format!("device {wanted:?} is in use already")),
                false => Ok((record, keeper.map.extent())),
            }
        })??;
        // Not by the keeper: it may take long.
        let opened = open_one(extent, &record).map_err(|not| not.why)?;
        self.with_keeper(move |keeper| -> Result<()> {
            if keeper.devices.contains_key(&record.id) {
                return Ok(()); // it came back by itself
            }
            keeper.join(record.id, opened, true)?;
            if keeper.workers.is_empty() {
                keeper.renew().map_err(text)?; // so that the next start expects it as it is
            }
            if let Some(lost) = keeper.lost.get(&record.id) {
                return Err(lost.why.clone());
            }
            for worker in &keeper.workers {
                worker.send(Message::Device(keeper.devices[&record.id].clone()));
            }
            Ok(())
        })??;
        done(format!("device {name} is in use again, as it is"))
    }

    pub(super) fn remove_tier(&self, name: &str) -> Result<Told> {
        let wanted = name.to_owned();
        self.with_keeper(move |keeper| -> Result<()> {
            let tier = tier_named(keeper, &wanted)?;
            let of_tier = keeper.records.values().filter(|d| d.tier == tier);
            let devices: Vec<DeviceRecord> = of_tier.cloned().collect();
            for device in &devices {
                let held = holdings(keeper, device.id)?;
                if !held.is_empty() {
                    return Err(format!(
                        "device {:?} of the tier holds {}: empty it first (`terrace tier drain {wanted}`, `terrace volume move`)",
                        device.name,
                        told(&held)
                    ));
                }
            }
            let mut changes: Vec<Change> =
                devices.iter().map(|d| Change::RemoveDevice(d.id)).collect();
            changes.push(Change::RemoveTier(tier));
            // All of it or nothing: a tier that volumes call their home stays whole.
            check_second(keeper, &devices)?;
            keeper.commit(&changes).map_err(|e| home_of_volumes(keeper, tier).unwrap_or_else(|| refused(e)))?;
            keeper.tiers.retain(|t| t.id != tier);
            // The map knows nothing of them any more: nor may anything else, whatever becomes of their files.
            let mut handles = vec![];
            for device in &devices {
                handles.push((device, keeper.devices.get(&device.id).cloned()));
                keeper.forget(device.id);
            }
            for (device, handle) in handles {
                if let Some(Err(error)) = handle.map(|h| h.disown(device)) {
                    keeper.store_error = Some(text(error));
                }
            }
            keeper.renew_if_served().map_err(text)
        })??;
        done(format!("tier {name} is gone, and its devices with it"))
    }
}

/// Volumes whose home is a tier, in a sentence; none, none.
fn home_of_volumes(keeper: &Keeper, tier: units::TierId) -> Option<String> {
    let home = keeper.volumes.values().filter(|v| v.home == tier);
    let names: Vec<&str> = home.map(|v| v.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "new extents of {} would go there: `terrace volume move` gives them another home",
            names.join(", ")
        )
    })
}

fn device_named(keeper: &Keeper, name: &str) -> Result<DeviceRecord> {
    let all = keeper
        .records
        .values()
        .filter(|d| d.kind != DeviceKind::Gone);
    let found = all.clone().find(|d| d.name == name).cloned();
    found.ok_or_else(|| unknown("device", name, all.map(|d| d.name.as_str())))
}

/// Bytes of each volume that are on a device.
fn holdings(keeper: &Keeper, device: DeviceId) -> Result<BTreeMap<String, Bytes>> {
    let mut held: BTreeMap<String, Bytes> = BTreeMap::new();
    if !keeper.holds(device) {
        return Ok(held);
    }
    for volume in keeper.volumes.values() {
        for extent in keeper.map.extents(volume.id).map_err(text)? {
            if matches!(extent, Extent::At(at) if at.device == device) {
                held.entry(volume.name.clone()).or_default().0 += keeper.map.extent().0;
            }
        }
    }
    Ok(held)
}

fn told(held: &BTreeMap<String, Bytes>) -> String {
    let each: Vec<String> = held.iter().map(|(v, b)| format!("{b} of {v}")).collect();
    each.join(", ")
}

/// Whether what is on a device may be lost.
fn check_loss(keeper: &Keeper, record: &DeviceRecord, accept_loss: bool) -> Result<()> {
    let held = holdings(keeper, record.id)?;
    let name = &record.name;
    if held.is_empty() {
        return Ok(());
    }
    if keeper.devices.contains_key(&record.id) {
        return Err(format!(
            "device {name:?} holds {}: move it off first (`terrace tier drain`, `terrace volume move`)",
            told(&held)
        ));
    }
    match accept_loss {
        true => Ok(()),
        false => Err(format!(
            "device {name:?} is lost, and holds {}, which would be lost for good: put it back, or say `--accept-loss {name}`",
            told(&held)
        )),
    }
}

/// The map's second copy is not on a disk that leaves.
fn check_second(keeper: &Keeper, leaving: &[DeviceRecord]) -> Result<()> {
    let second = keeper
        .map
        .health()
        .into_iter()
        .find(|h| h.0 == array::CopyId::Second);
    let Some((_, path, _)) = second else {
        return Ok(());
    };
    let dir = std::path::Path::new(&path).parent();
    let beside = |d: &&DeviceRecord| {
        d.kind == DeviceKind::File && std::path::Path::new(&d.path).parent() == dir
    };
    let stays = keeper.records.values().filter(beside);
    let stays = stays
        .filter(|d| leaving.iter().all(|l| l.id != d.id))
        .count();
    match leaving.iter().find(beside) {
        Some(device) if stays == 0 && keeper.devices.contains_key(&device.id) => Err(format!(
            "the second copy of the map is beside device {:?}, in {path}: `terrace array copy` puts it elsewhere",
            device.name
        )),
        _ => Ok(()),
    }
}

fn remove(keeper: &mut Keeper, name: &str, accept_loss: bool) -> Result<String> {
    let record = device_named(keeper, name)?;
    check_loss(keeper, &record, accept_loss)?;
    let id = record.id;
    if keeper.holds(id) && keeper.devices.contains_key(&id) {
        return Err(format!(
            "device {name:?} is the target of a move: cancel that first"
        ));
    }
    check_second(keeper, std::slice::from_ref(&record))?;
    let held = holdings(keeper, id)?;
    if held.is_empty() {
        keeper
            .commit(&[Change::RemoveDevice(id)])
            .map_err(refused)?;
        let handle = keeper.devices.get(&id).cloned();
        keeper.forget(id);
        keeper.renew_if_served().map_err(text)?;
        if let Some(Err(error)) = handle.map(|h| h.disown(&record)) {
            keeper.store_error = Some(text(error));
        }
        return Ok(format!("device {name} is gone"));
    }
    // What was on it stays known as lost: nobody is to take it for something that was never written.
    let gone = DeviceRecord {
        name: format!("{name} (given up, {})", id.0),
        kind: DeviceKind::Gone,
        path: format!("given-up:{}", id.0),
        high_water: record.slots,
        emulate: None,
        ..record
    };
    let moving = keeper.map.moves().map_err(text)?;
    let to_it = moving.iter().filter(|m| m.to == id);
    let mut changes: Vec<Change> = to_it.map(|m| Change::ClearMove(m.volume)).collect();
    changes.push(Change::SetDevice(gone.clone()));
    keeper.commit(&changes).map_err(refused)?;
    keeper.records.insert(id, gone);
    if let Some(lost) = keeper.lost.get_mut(&id) {
        lost.why = "it was given up".into();
        lost.in_use = true;
    }
    keeper.renew_if_served().map_err(text)?;
    Ok(format!(
        "device {name} is given up, and with it {}: reads and writes there fail until it is trimmed",
        told(&held)
    ))
}
