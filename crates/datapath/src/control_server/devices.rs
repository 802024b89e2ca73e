//! Tiers and their devices.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use array::{Change, DeviceKind, DeviceRecord, TierRecord};
use model::DirectIo;
use units::{Bytes, DeviceId, TierId};

use super::losses::device_named;
use super::underway::{Claim, Taken};
use super::{
    ControlAnswer, ControlServer, DeviceInfo, NewDevice, NewSource, Result, TierInfo, done, policy,
    refused, text,
};
use crate::device::{Claimant, Device, file_bytes};
use crate::keeper::Keeper;
use crate::worker::Message;

impl ControlServer {
    pub(super) fn tiers(&self) -> Result<ControlAnswer> {
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
                        direct: d.direct,
                        direct_next: keeper.devices.get(&d.id).is_some_and(|device| {
                            device.direct_why().is_some() && device.direct_wanted() != d.direct
                        }),
                        direct_now: keeper.devices.get(&d.id).and_then(|device| {
                            let (direct, why) = device.direct_why()?;
                            Some((direct, why.to_owned()))
                        }),
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
        Ok(ControlAnswer::Tiers {
            tiers,
            overcommit_max,
        })
    }

    /// Adds a device. What may take long is done here, beside whatever else goes on; the keeper makes the record only.
    pub(super) fn add_device(&self, new: NewDevice) -> Result<ControlAnswer> {
        done(self.bring_in(new)?)
    }

    pub(super) fn bring_in(&self, new: NewDevice) -> Result<String> {
        let mut known = None;
        let claim = self.underway.claim(|others| {
            let found = self.with_keeper(|keeper| Known::of(keeper))??;
            let chosen = found.choose(&new.tier, others);
            known = Some(found);
            Ok(chosen)
        })?;
        let known = known.expect("something was chosen");
        let record = known.record(&claim, &new)?;
        let claimant = &known.claimant;
        let formatted = Device::format(known.array, known.extent, &record, new.force, claimant);
        let (opened, destroyed) = formatted.map_err(text)?;
        opened.settle_direct();
        if let Some(why) = opened.direct_refused() {
            let why = format!("direct I/O is not possible: {why}");
            return Err(match opened.disown(&record) {
                Ok(()) => why,
                Err(error) => format!("{why}; and the device cannot be wiped: {}", text(error)),
            });
        }
        let (wanted, tier) = (record.clone(), new.tier.clone());
        let joined = self.with_keeper(move |keeper| take_in(keeper, wanted, tier, opened))?;
        match joined {
            Ok(()) => {}
            Err(NotTaken::Left(device, why)) => {
                return Err(match device.disown(&record) {
                    Ok(()) => why,
                    Err(error) => format!("{why}; and the device cannot be wiped: {}", text(error)),
                });
            }
            Err(NotTaken::Stays(why)) => return Err(why),
        }
        let size = Bytes(u64::from(record.slots) * known.extent.0);
        let destroyed = match destroyed.is_empty() {
            true => String::new(),
            false => format!("; destroyed: {}", destroyed.join("; ")),
        };
        Ok(format!(
            "added device {} ({size}) to tier {}{destroyed}",
            record.name, new.tier
        ))
    }
}

impl ControlServer {
    /// What was asked for earlier is in flight: so it is from the next start on.
    pub(super) fn set_direct(&self, name: &str, direct: DirectIo) -> Result<ControlAnswer> {
        let wanted = name.to_owned();
        self.with_keeper(move |keeper| {
            may_change(keeper)?;
            let mut record = device_named(keeper, &wanted)?;
            if record.kind.is_remote() {
                return Err(format!(
                    "device {wanted:?} is an export of another server: direct I/O can only be set on that server"
                ));
            }
            let open = keeper.devices.get(&record.id);
            let cannot = open.and_then(|d| d.direct_impossible());
            if let (DirectIo::On, Some(why)) = (direct, cannot) {
                return Err(format!("direct I/O is not possible: {why}"));
            }
            record.direct = direct;
            let change = Change::SetDevice(record.clone());
            keeper.commit(&[change]).map_err(refused)?;
            keeper.records.insert(record.id, record);
            Ok(())
        })??;
        done(format!(
            "set direct I/O of device {name} to {direct}, from the next start of the server"
        ))
    }
}

/// What of an array a new device depends on.
struct Known {
    array: array::ArrayId,
    extent: Bytes,
    claimant: Arc<Claimant>,
    last: Option<DeviceId>,
    names: Vec<String>,
    paths: Vec<String>,
    /// Paths of devices in files, and the length of each.
    files: Vec<(PathBuf, u64)>,
}

impl Known {
    fn of(keeper: &Keeper) -> Result<Self> {
        // Before anything is made ready: it would be left behind for a reason that is not its own.
        may_change(keeper)?;
        let (records, extent) = (keeper.records.values(), keeper.map.extent());
        let files = records.clone().filter(|r| r.kind == DeviceKind::File);
        let length = |slots: u32| array::DATA_START + u64::from(slots) * extent.0;
        Ok(Self {
            files: files
                .map(|r| (r.path.clone().into(), length(r.slots)))
                .collect(),
            array: keeper.map.id(),
            extent,
            claimant: keeper.claimant(),
            last: keeper.last_number(),
            names: records.clone().map(|r| r.name.clone()).collect(),
            paths: records.map(|r| r.path.clone()).collect(),
        })
    }

    /// A number and a name for a device of a tier.
    fn choose(&self, tier: &str, others: &BTreeMap<DeviceId, Taken>) -> (DeviceId, Taken) {
        let last = self.last.max(others.keys().last().copied());
        let id = DeviceId(last.map_or(0, |d| d.0 + 1));
        let taken = |name: &String| {
            self.names.contains(name) || others.values().any(|other| other.name == *name)
        };
        let mut names = (0..).map(|number| format!("{tier}-{number}"));
        let name = names
            .find(|n| !taken(n))
            .expect("there are fewer devices than numbers");
        (id, Taken { name, path: None })
    }

    /// The record of a new device. Its tier is known when it is taken in.
    fn record(&self, claim: &Claim<'_>, new: &NewDevice) -> Result<DeviceRecord> {
        let extent = self.extent;
        let name = claim.name();
        let (kind, path, all) = examine(new, &name)?;
        let size = match (new.size, all) {
            (Some(size), Some(all)) if size.0 > all => {
                return Err(format!("{path} has {}, not {size}", Bytes(all)));
            }
            (Some(size), _) => size.0,
            (None, Some(all)) => all,
            (None, None) => {
                return Err("a device in a directory needs a size: give --size".into());
            }
        };
        let slots =
            u32::try_from(size / extent.0).map_err(|_| "the size is too large".to_string())?;
        if slots == 0 {
            return Err(format!(
                "{} is less than one extent of {extent}",
                Bytes(size)
            ));
        }
        if self.paths.contains(&path) {
            return Err(format!("{path} is already a device of this array"));
        }
        if let NewSource::Dir(dir) = &new.source
            && !new.thin
        {
            self.check_fits(dir, array::DATA_START + u64::from(slots) * extent.0)?;
        }
        claim.place(&path)?;
        let direct = match (new.direct, kind.is_remote()) {
            (DirectIo::On, true) => {
                return Err(format!(
                    "{path} is an export of another server: direct I/O can only be set on that server"
                ));
            }
            (_, true) => DirectIo::Off,
            (direct, false) => direct,
        };
        Ok(DeviceRecord {
            id: claim.id,
            tier: TierId(0),
            name,
            kind,
            path,
            slots,
            high_water: if kind.begins_as_zeroes() { 0 } else { slots },
            emulate: new.emulate.clone(),
            direct,
        })
    }
}

impl Known {
    /// Refuses a file with which the devices on a file system are larger than it is.
    fn check_fits(&self, dir: &Path, length: u64) -> Result<()> {
        let shown = dir.display();
        let look = |e: std::io::Error| format!("cannot inspect {shown}: {e}");
        let stat = rustix::fs::statvfs(dir).map_err(|e| look(e.into()))?;
        let all = stat.f_blocks.saturating_mul(stat.f_frsize);
        let file_system = std::fs::metadata(dir).map_err(look)?.dev();
        let beside = self.files.iter().filter(|(path, _)| {
            std::fs::metadata(path).is_ok_and(|there| there.dev() == file_system)
        });
        let promised: u64 = beside.map(|f| f.1).sum();
        let left = all.saturating_sub(promised);
        if length <= left {
            return Ok(());
        }
        let usable = left.saturating_sub(array::DATA_START) / self.extent.0 * self.extent.0;
        Err(format!(
            "the file system of {shown} has {}, of which other devices of this array may use {}: {} more do not fit. Give --size {} or less, or --thin to accept that writes fail when the file system is full",
            Bytes(all).words(),
            Bytes(promised).words(),
            Bytes(length).words(),
            Bytes(usable)
        ))
    }
}

/// What a device is to be on: its kind and path, and how much there is, where that is known.
fn examine(new: &NewDevice, name: &str) -> Result<(DeviceKind, String, Option<u64>)> {
    let io = |what: &str, path: &PathBuf, e: std::io::Error| {
        format!("cannot {what} {}: {e}", path.display())
    };
    Ok(match &new.source {
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
            let meta = file.metadata().map_err(|e| io("inspect", &path, e))?;
            if !std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type()) {
                return Err(format!("{} is not a block device", path.display()));
            }
            let bytes = file_bytes(&file).map_err(|e| io("measure", &path, e))?;
            let usable = bytes.saturating_sub(array::DATA_START);
            (DeviceKind::Block, path.display().to_string(), Some(usable))
        }
        NewSource::Nbd(uri) => {
            let parsed: nbd::Uri = uri.parse().map_err(text)?;
            if let Some(words) = &parsed.tls {
                // It is read again by whoever serves the array, wherever that is started.
                let files = [&words.certificates, &words.psk_file];
                if let Some(relative) = files.into_iter().flatten().find(|f| f.is_relative()) {
                    return Err(format!(
                        "{uri}: {} must be an absolute path of certificates or keys",
                        relative.display()
                    ));
                }
            }
            let session = crate::client::connect(&parsed).map_err(text)?.session;
            let needs = [
                (nbd::ExportFlags::SEND_FLUSH, "flush"),
                (nbd::ExportFlags::SEND_FUA, "forced unit access"),
                (nbd::ExportFlags::SEND_WRITE_ZEROES, "write zeroes"),
            ];
            for (flag, what) in needs {
                if !session.export.flags.contains(flag) {
                    return Err(format!(
                        "{uri} does not support {what}, which a device needs"
                    ));
                }
            }
            let block = session.export.block;
            if block.minimum > 1 || block.maximum < crate::registry::REQUEST_BYTES_MAX {
                return Err(format!(
                    "{uri} only accepts requests of {} to {} bytes, but guests send 1 to {}",
                    block.minimum,
                    block.maximum,
                    crate::registry::REQUEST_BYTES_MAX
                ));
            }
            let usable = session.export.size.saturating_sub(array::DATA_START);
            (DeviceKind::Nbd, uri.clone(), Some(usable))
        }
    })
}

/// Whether the map can be changed now, as far as is known.
pub(super) fn may_change(keeper: &Keeper) -> Result<()> {
    if let Some(why) = keeper.not_believed() {
        return Err(why);
    }
    match keeper.is_held() {
        true => Err(
            "an earlier change of the map may not be durable yet: try again when `terrace array copies` no longer reports it"
                .into(),
        ),
        false => Ok(()),
    }
}

/// Why a device that was made ready is not in use.
enum NotTaken {
    /// It is not the array's.
    Left(Arc<Device>, String),
    /// It is, or may be: what may be in the map is left to it.
    Stays(String),
}

/// Takes a device in that was made ready.
fn take_in(
    keeper: &mut Keeper,
    record: DeviceRecord,
    tier: String,
    device: Device,
) -> std::result::Result<(), NotTaken> {
    let device = Arc::new(device);
    let known = keeper.tiers.iter().find(|t| t.name == tier).map(|t| t.id);
    let next = keeper.tiers.last().map_or(0, |t| t.id.0 + 1);
    let id = known.unwrap_or(TierId(next));
    let tier_record = known.is_none().then_some(TierRecord { id, name: tier });
    let record = DeviceRecord { tier: id, ..record };
    let left = |why| NotTaken::Left(device.clone(), why);
    may_change(keeper).map_err(left)?;
    let mut changes: Vec<Change> = tier_record.iter().cloned().map(Change::AddTier).collect();
    changes.push(Change::AddDevice(record.clone()));
    if let Err(error) = keeper.commit(&changes) {
        return Err(match keeper.is_held() {
            true => NotTaken::Stays(refused(error)),
            false => NotTaken::Left(device, refused(error)),
        });
    }
    let stays = |e| NotTaken::Stays(text(e));
    keeper.tiers.extend(tier_record);
    keeper.add(&record, device.clone());
    // Whatever goes wrong from here on, extents may be placed there.
    for worker in &keeper.workers {
        worker.send(Message::Device(device.clone()));
    }
    // Before anything is written to it, the other devices and the map know that it belongs to them.
    keeper.renew_if_served().map_err(stays)?;
    if let Err(why) = keeper.second_by_default() {
        keeper.store_error = Some(format!("the map has no second copy: {why}"));
    }
    match keeper.lost.get(&record.id) {
        Some(lost) => Err(NotTaken::Stays(format!(
            "device {} was added, but has failed since: {}",
            record.name, lost.why
        ))),
        None => Ok(()),
    }
}
