//! Tiers and their devices.

use std::path::PathBuf;
use std::sync::PoisonError;

use array::{Change, DeviceKind, DeviceRecord, TierRecord};
use units::{Bytes, DeviceId, TierId};

use super::{
    Desk, DeviceInfo, NewDevice, NewSource, Result, TierInfo, Told, done, policy, refused, text,
};
use crate::device::{Device, file_bytes};
use crate::keeper::Keeper;
use crate::worker::Message;

impl Desk {
    pub(super) fn tiers(&self) -> Result<Told> {
        let limits = self
            .tiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let tiers = self.with_keeper(move |keeper| {
            let extent = keeper.map.extent().0;
            let info = |tier: &TierRecord| {
                let (used, size) = keeper.space(tier.id);
                let of_tier = keeper.records.values().filter(|d| d.tier == tier.id);
                let of_tier = of_tier.filter(|d| d.kind != DeviceKind::Gone);
                let devices = of_tier.map(|d| {
                    let slots = keeper.slots.total(d.id);
                    DeviceInfo {
                        name: d.name.clone(),
                        path: d.path.clone(),
                        used: Bytes(u64::from(slots - keeper.slots.free(d.id)) * extent),
                        size: Bytes(u64::from(slots) * extent),
                        emulated: d.emulate.is_some(),
                        lost: keeper.lost.get(&d.id).map(|l| l.why.clone()),
                    }
                });
                let limit = limits.get(&tier.id).copied().unwrap_or_default();
                TierInfo {
                    name: tier.name.clone(),
                    used,
                    size,
                    provisioned: policy::provisioned(keeper, tier.id),
                    devices: devices.collect(),
                    iops: limit.iops,
                    bandwidth: limit.bandwidth,
                }
            };
            keeper.tiers.iter().map(info).collect()
        })?;
        let overcommit_max = self.allowed().overcommit_max;
        Ok(Told::Tiers {
            tiers,
            overcommit_max,
        })
    }

    pub(super) fn add_device(&self, new: NewDevice) -> Result<Told> {
        done(self.with_keeper(move |keeper| add_device(keeper, new))??)
    }
}

pub(super) fn add_device(keeper: &mut Keeper, new: NewDevice) -> Result<String> {
    let extent = keeper.map.extent();
    let id = DeviceId(keeper.records.keys().last().map_or(0, |d| d.0 + 1));
    let known = keeper.tiers.iter().find(|t| t.name == new.tier);
    let next = keeper.tiers.last().map_or(0, |t| t.id.0 + 1);
    let tier = known.map_or(TierId(next), |t| t.id);
    let tier_record = known.is_none().then(|| TierRecord {
        id: tier,
        name: new.tier.clone(),
    });
    let taken = |name: &String| keeper.records.values().any(|d| d.name == *name);
    let mut names = (0..).map(|number| format!("{}-{number}", new.tier));
    let name = names
        .find(|n| !taken(n))
        .expect("there are fewer devices than numbers");
    let io = |what: &str, path: &PathBuf, e: std::io::Error| {
        format!("cannot {what} {}: {e}", path.display())
    };
    let (kind, path, all) = match &new.source {
        NewSource::Dir(dir) => {
            let dir = dir
                .canonicalize()
                .map_err(|e| io("use directory", dir, e))?;
            if !dir.is_dir() {
                return Err(format!("{} is not a directory", dir.display()));
            }
            let path = dir.join(format!("{name}.extents"));
            (DeviceKind::File, path.display().to_string(), None)
        }
        NewSource::Block(device) => {
            let path = device.canonicalize().map_err(|e| io("use", device, e))?;
            let file = std::fs::File::open(&path).map_err(|e| io("open", &path, e))?;
            let meta = file.metadata().map_err(|e| io("look at", &path, e))?;
            if !std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type()) {
                return Err(format!("{} is not a block device", path.display()));
            }
            let bytes = file_bytes(&file).map_err(|e| io("measure", &path, e))?;
            let usable = bytes.saturating_sub(array::DATA_START);
            (DeviceKind::Block, path.display().to_string(), Some(usable))
        }
        NewSource::Nbd(uri) => {
            let parsed: nbd::Uri = uri.parse().map_err(text)?;
            let (_, session) = crate::client::connect(&parsed).map_err(text)?;
            let needs = [
                (nbd::ExportFlags::SEND_FLUSH, "flush"),
                (nbd::ExportFlags::SEND_FUA, "forced unit access"),
                (nbd::ExportFlags::SEND_WRITE_ZEROES, "write zeroes"),
            ];
            for (flag, what) in needs {
                if !session.export.flags.contains(flag) {
                    return Err(format!("{uri} has no {what}: no device for guests' data"));
                }
            }
            let block = session.export.block;
            if block.minimum > 1 || block.maximum < crate::registry::REQUEST_BYTES_MAX {
                return Err(format!(
                    "{uri} takes requests of {} to {} bytes only: guests' requests have 1 to {}",
                    block.minimum,
                    block.maximum,
                    crate::registry::REQUEST_BYTES_MAX
                ));
            }
            let usable = session.export.size.saturating_sub(array::DATA_START);
            (DeviceKind::Nbd, uri.clone(), Some(usable))
        }
    };
    let size = match (new.size, all) {
        (Some(size), Some(all)) if size.0 > all => {
            return Err(format!("{path} has {}, not {size}", Bytes(all)));
        }
        (Some(size), _) => size.0,
        (None, Some(all)) => all,
        (None, None) => {
            return Err("how much of the directory's filesystem may be used? Give --size".into());
        }
    };
    let slots = u32::try_from(size / extent.0).map_err(|_| "that is too large".to_string())?;
    if slots == 0 {
        return Err(format!(
            "{} is less than one extent of {extent}",
            Bytes(size)
        ));
    }
    let record = DeviceRecord {
        id,
        tier,
        name: name.clone(),
        kind,
        path,
        slots,
        high_water: if kind.begins_as_zeroes() { 0 } else { slots },
        emulate: new.emulate,
    };
    if keeper.records.values().any(|d| d.path == record.path) {
        return Err(format!("{} is a device of this array already", record.path));
    }
    Device::format(keeper.map.id(), extent, &record).map_err(text)?;
    let mut changes: Vec<Change> = tier_record.iter().cloned().map(Change::AddTier).collect();
    changes.push(Change::AddDevice(record.clone()));
    if let Err(error) = keeper.commit(&changes) {
        // What may be in the map all the same is left to it.
        if !keeper.is_held()
            && let Ok(device) = Device::open(extent, &record)
        {
            device.disown(&record).map_err(text)?;
        }
        return Err(refused(error));
    }
    let device = Device::open(extent, &record).map_err(text)?;
    keeper.tiers.extend(tier_record);
    keeper.add(&record, device);
    // Whatever goes wrong from here on, extents may be placed there.
    for worker in &keeper.workers {
        worker.send(Message::Device(keeper.devices[&id].clone()));
    }
    // Before anything is written to it, the other devices and the map know that it belongs to them.
    keeper.renew_if_served().map_err(text)?;
    if let Err(why) = keeper.second_by_default() {
        keeper.store_error = Some(format!("no second copy of the map: {why}"));
    }
    if let Some(lost) = keeper.lost.get(&id) {
        return Err(format!(
            "device {name} was added, and is lost already: {}",
            lost.why
        ));
    }
    let size = Bytes(u64::from(slots) * extent.0);
    Ok(format!("device {name} of {size} is in tier {}", new.tier))
}
