//! Tiers and their devices.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use array::{Change, DeviceKind, DeviceRecord, TierRecord};
use model::DirectIo;
use units::{Bytes, DeviceId, TierId};

use super::losses::device_named;
use super::underway::{Claim, ReservedName};
use super::{
    ControlAnswer, ControlServer, DatapathError, DeviceInfo, NewDevice, NewSource, Result,
    TierInfo, done, policy, refused,
};
use crate::device::{Claimant, Device, file_bytes};
use crate::keeper::Keeper;
use crate::text::explain;
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

    /// Adds a device. Long operations run here, concurrently with all others; the keeper only makes the record.
    pub(super) fn add_device(&self, new: NewDevice) -> Result<ControlAnswer> {
        done(self.bring_in(new)?)
    }

    pub(super) fn bring_in(&self, new: NewDevice) -> Result<String> {
        let mut known = None;
        let claim = self.underway.claim(|others| {
            let found = self.with_keeper(|keeper| ArrayState::of(keeper))??;
            let chosen = found.choose(&new.tier, others);
            known = Some(found);
            Ok(chosen)
        })?;
        let known = known.expect("something was chosen");
        let record = known.record(&claim, &new)?;
        let claimant = &known.claimant;
        let (opened, destroyed) =
            Device::format(known.array, known.extent, &record, new.force, claimant)?;
        opened.settle_direct();
        if let Some(why) = opened.direct_refused() {
            let why = DatapathError::Refused(format!("direct I/O is not possible: {why}"));
            return Err(disowned(&opened, &record, why));
        }
        let (wanted, tier) = (record.clone(), new.tier.clone());
        let joined = self.with_keeper(move |keeper| take_in(keeper, wanted, tier, opened))?;
        match joined {
            Ok(()) => {}
            Err(DeviceRefusal::Left(device, why)) => return Err(disowned(&device, &record, why)),
            Err(DeviceRefusal::Stays(why)) => return Err(why),
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
    /// Sets the use of direct I/O. Requests are in flight on the open device, so the setting takes effect at the next
    /// start.
    pub(super) fn set_direct(&self, name: &str, direct: DirectIo) -> Result<ControlAnswer> {
        let wanted = name.to_owned();
        self.with_keeper(move |keeper| {
            may_change(keeper)?;
            let mut record = device_named(keeper, &wanted)?;
            if record.kind.is_remote() {
                return Err(DatapathError::Refused(format!(
                    "device {wanted:?} is an export of another server: direct I/O can only be set on that server"
                )));
            }
            let open = keeper.devices.get(&record.id);
            let cannot = open.and_then(|d| d.direct_impossible());
            if let (DirectIo::On, Some(why)) = (direct, cannot) {
                return Err(DatapathError::Refused(format!("direct I/O is not possible: {why}")));
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

/// State of the array that a new device depends on.
struct ArrayState {
    array: array::ArrayId,
    extent: Bytes,
    claimant: Arc<Claimant>,
    last: Option<DeviceId>,
    names: Vec<String>,
    paths: Vec<String>,
    /// Paths and lengths of devices in files.
    files: Vec<(PathBuf, u64)>,
}

impl ArrayState {
    fn of(keeper: &Keeper) -> Result<Self> {
        // This check runs before the device is prepared, because a later refusal would leave the prepared device behind.
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

    /// Returns a free number and name for a device of a tier.
    fn choose(
        &self,
        tier: &str,
        others: &BTreeMap<DeviceId, ReservedName>,
    ) -> (DeviceId, ReservedName) {
        let last = self.last.max(others.keys().last().copied());
        let id = DeviceId(last.map_or(0, |d| d.0 + 1));
        let taken = |name: &String| {
            self.names.contains(name) || others.values().any(|other| other.name == *name)
        };
        let mut names = (0..).map(|number| format!("{tier}-{number}"));
        let name = names
            .find(|n| !taken(n))
            .expect("there are fewer devices than numbers");
        (id, ReservedName { name, path: None })
    }

    /// Returns the record of a new device. Its tier is set when it is added.
    fn record(&self, claim: &Claim<'_>, new: &NewDevice) -> Result<DeviceRecord> {
        let extent = self.extent;
        let name = claim.name();
        let (kind, path, all) = examine(new, &name)?;
        let size = match (new.size, all) {
            (Some(size), Some(all)) if size.0 > all => {
                return Err(DatapathError::Refused(format!(
                    "{path} has {}, not {size}",
                    Bytes(all)
                )));
            }
            (Some(size), _) => size.0,
            (None, Some(all)) => all,
            (None, None) => {
                return Err(DatapathError::Invalid(
                    "a device in a directory needs a size: give --size".into(),
                ));
            }
        };
        let slots = u32::try_from(size / extent.0);
        let slots = slots.map_err(|_| DatapathError::Invalid("the size is too large".into()))?;
        if slots == 0 {
            return Err(DatapathError::Invalid(format!(
                "{} is less than one extent of {extent}",
                Bytes(size)
            )));
        }
        if self.paths.contains(&path) {
            return Err(DatapathError::Refused(format!(
                "{path} is already a device of this array"
            )));
        }
        if let NewSource::Dir(dir) = &new.source
            && !new.thin
        {
            self.check_fits(dir, array::DATA_START + u64::from(slots) * extent.0)?;
        }
        claim.place(&path)?;
        let direct = match (new.direct, kind.is_remote()) {
            (DirectIo::On, true) => {
                return Err(DatapathError::Refused(format!(
                    "{path} is an export of another server: direct I/O can only be set on that server"
                )));
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

impl ArrayState {
    /// Refuses a file with which the devices on a file system are larger in total than the file system.
    fn check_fits(&self, dir: &Path, length: u64) -> Result<()> {
        let shown = dir.display();
        let stat = rustix::fs::statvfs(dir).map_err(DatapathError::system("inspect", &shown))?;
        let all = stat.f_blocks.saturating_mul(stat.f_frsize);
        let meta = std::fs::metadata(dir).map_err(DatapathError::system("inspect", &shown))?;
        let file_system = meta.dev();
        let beside = self.files.iter().filter(|(path, _)| {
            std::fs::metadata(path).is_ok_and(|there| there.dev() == file_system)
        });
        let promised: u64 = beside.map(|f| f.1).sum();
        let left = all.saturating_sub(promised);
        if length <= left {
            return Ok(());
        }
        let usable = left.saturating_sub(array::DATA_START) / self.extent.0 * self.extent.0;
        Err(DatapathError::Refused(format!(
            "the file system of {shown} has {}, of which other devices of this array may use {}: {} more do not fit. Give --size {} or less, or --thin to accept that writes fail when the file system is full",
            Bytes(all).words(),
            Bytes(promised).words(),
            Bytes(length).words(),
            Bytes(usable)
        )))
    }
}

/// Returns kind and path of a new device, and its size, if known.
fn examine(new: &NewDevice, name: &str) -> Result<(DeviceKind, String, Option<u64>)> {
    let failed = |what, path: &Path| DatapathError::system(what, &path.display());
    Ok(match &new.source {
        NewSource::Dir(dir) => {
            let dir = dir.canonicalize().map_err(failed("use directory", dir))?;
            if !dir.is_dir() {
                return Err(DatapathError::Invalid(format!(
                    "{} is not a directory",
                    dir.display()
                )));
            }
            let path = dir.join(format!("{name}.extents"));
            (DeviceKind::File, path.display().to_string(), None)
        }
        NewSource::Block(device) => {
            let path = device.canonicalize().map_err(failed("use", device))?;
            let file = std::fs::File::open(&path).map_err(failed("open", &path))?;
            let meta = file.metadata().map_err(failed("inspect", &path))?;
            if !std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type()) {
                return Err(DatapathError::Invalid(format!(
                    "{} is not a block device",
                    path.display()
                )));
            }
            let bytes = file_bytes(&file).map_err(failed("measure", &path))?;
            let usable = bytes.saturating_sub(array::DATA_START);
            (DeviceKind::Block, path.display().to_string(), Some(usable))
        }
        NewSource::Nbd(uri) => {
            let parsed: nbd::Uri = uri.parse().map_err(DatapathError::failed)?;
            if let Some(words) = &parsed.tls {
                // A later server reads this URI again, in any working directory.
                let files = [&words.certificates, &words.psk_file];
                if let Some(relative) = files.into_iter().flatten().find(|f| f.is_relative()) {
                    return Err(DatapathError::Invalid(format!(
                        "{uri}: {} must be an absolute path of certificates or keys",
                        relative.display()
                    )));
                }
            }
            let connected = crate::client::connect(&parsed).map_err(DatapathError::failed)?;
            let session = connected.session;
            let needs = [
                (nbd::ExportFlags::SEND_FLUSH, "flush"),
                (nbd::ExportFlags::SEND_FUA, "forced unit access"),
                (nbd::ExportFlags::SEND_WRITE_ZEROES, "write zeroes"),
            ];
            for (flag, what) in needs {
                if !session.export.flags.contains(flag) {
                    return Err(DatapathError::Refused(format!(
                        "{uri} does not support {what}, which a device needs"
                    )));
                }
            }
            let block = session.export.block;
            if block.minimum > 1 || block.maximum < crate::registry::REQUEST_BYTES_MAX {
                return Err(DatapathError::Refused(format!(
                    "{uri} only accepts requests of {} to {} bytes, but guests send 1 to {}",
                    block.minimum,
                    block.maximum,
                    crate::registry::REQUEST_BYTES_MAX
                )));
            }
            let usable = session.export.size.saturating_sub(array::DATA_START);
            (DeviceKind::Nbd, uri.clone(), Some(usable))
        }
    })
}

/// Checks that the map can be changed now, as far as is known.
pub(super) fn may_change(keeper: &Keeper) -> Result<()> {
    if let Some(why) = keeper.not_believed() {
        return Err(DatapathError::Refused(why));
    }
    match keeper.is_held() {
        true => Err(DatapathError::Busy("an earlier change of the map may not be durable yet: try again when `terrace array copies` no longer reports it"
                .into())),
        false => Ok(()),
    }
}

/// Reason why a prepared device is not in use.
enum DeviceRefusal {
    /// The device is not part of the array.
    Left(Arc<Device>, DatapathError),
    /// The device is, or may be, part of the array, and must not be removed.
    Stays(DatapathError),
}

/// Wipes a device that is not added, and returns the reason, with a failure to wipe it.
fn disowned(device: &Device, record: &DeviceRecord, why: DatapathError) -> DatapathError {
    match device.disown(record) {
        Ok(()) => why,
        Err(error) => DatapathError::Refused(format!(
            "{why}; and the device cannot be wiped: {}",
            explain(&error)
        )),
    }
}

/// Adds a prepared device to the array.
fn take_in(
    keeper: &mut Keeper,
    record: DeviceRecord,
    tier: String,
    device: Device,
) -> std::result::Result<(), DeviceRefusal> {
    let device = Arc::new(device);
    let known = keeper.tiers.iter().find(|t| t.name == tier).map(|t| t.id);
    let next = keeper.tiers.last().map_or(0, |t| t.id.0 + 1);
    let id = known.unwrap_or(TierId(next));
    let tier_record = known.is_none().then_some(TierRecord { id, name: tier });
    let record = DeviceRecord { tier: id, ..record };
    let left = |why| DeviceRefusal::Left(device.clone(), why);
    may_change(keeper).map_err(left)?;
    let mut changes: Vec<Change> = tier_record.iter().cloned().map(Change::AddTier).collect();
    changes.push(Change::AddDevice(record.clone()));
    if let Err(error) = keeper.commit(&changes) {
        return Err(match keeper.is_held() {
            true => DeviceRefusal::Stays(refused(error)),
            false => DeviceRefusal::Left(device, refused(error)),
        });
    }
    keeper.tiers.extend(tier_record);
    keeper.add(&record, device.clone());
    // From here on extents may be placed on the device, even if a later step fails.
    for worker in &keeper.workers {
        worker.send(Message::Device(device.clone()));
    }
    // The other devices and the map record the new member before any data is written to it.
    let renewed = keeper.renew_if_served();
    renewed.map_err(|e| DeviceRefusal::Stays(e.into()))?;
    if let Err(why) = keeper.second_by_default() {
        keeper.store_error = Some(format!("the map has no second copy: {why}"));
    }
    match keeper.lost.get(&record.id) {
        Some(lost) => Err(DeviceRefusal::Stays(DatapathError::Refused(format!(
            "device {} was added, but has failed since: {}",
            record.name, lost.why
        )))),
        None => Ok(()),
    }
}
