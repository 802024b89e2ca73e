//! Wear of the array's SSDs by cause, in results of runs with flash models.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::device::SimDevice;
use crate::engine::Simulation;
use crate::flash_device::{DriveCounters, VolumeBytes, waf};

const DAY_S: f64 = 86_400.0;

/// Wear in the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WearSummary {
    /// Devices with a flash model, in the array's order.
    pub devices: Vec<DeviceWear>,
    /// VMs that wrote to such devices or were moved to them.
    pub vms: Vec<VmWear>,
    /// Tenants of such devices, by device, if the scenario has any.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tenants: Vec<TenantWear>,
}

impl WearSummary {
    /// Returns the programmed bytes of all devices.
    pub fn programmed_bytes(&self) -> u64 {
        self.devices.iter().map(|d| d.flash_bytes).sum()
    }

    /// Returns the write amplification of all devices together; `None` if nothing was written.
    pub fn waf(&self) -> Option<f64> {
        let written = self.devices.iter().map(|d| d.guest_bytes + d.copied_bytes);
        waf(self.programmed_bytes(), written.sum())
    }

    /// Returns the bytes programmed for a tenant on all devices.
    pub fn programmed_bytes_of(&self, tenant: &str) -> u64 {
        self.of_tenant(tenant).map(|t| t.flash_bytes).sum()
    }

    /// Returns the write amplification of a tenant on all devices; `None` if nothing was written for it.
    pub fn waf_of(&self, tenant: &str) -> Option<f64> {
        let written = self.of_tenant(tenant);
        let written = written.map(|t| t.guest_bytes + t.copied_bytes);
        waf(self.programmed_bytes_of(tenant), written.sum())
    }

    fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = &TenantWear> {
        self.tenants.iter().filter(move |t| t.tenant == tenant)
    }

    /// Returns the lifetime of the first device to wear out, years; `None` if nothing was erased.
    pub fn life_years(&self) -> Option<f64> {
        let years = self.devices.iter().filter_map(|d| d.years);
        years.min_by(f64::total_cmp)
    }
}

/// Wear of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceWear {
    /// Name of the device.
    pub name: String,
    /// Tier of the device.
    pub tier: String,
    /// Write amplification: programmed bytes per byte written by guests and moves; `None` if nothing was written. A
    /// partial write programs the whole page.
    pub waf: Option<f64>,
    /// Bytes that guests wrote.
    pub guest_bytes: u64,
    /// Bytes that guests wrote, by class of the volume.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub classes: Vec<ClassWritten>,
    /// Bytes that moves wrote.
    pub copied_bytes: u64,
    /// Programmed bytes, including garbage collection.
    pub flash_bytes: u64,
    /// Host writes per day at this rate, as a multiple of the capacity.
    pub drive_writes_per_day: f64,
    /// Lifetime of its blocks at this rate with perfect wear levelling, years; `None` if nothing was erased.
    pub years: Option<f64>,
}

/// Bytes that guests of a class wrote to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassWritten {
    /// Name of the class.
    pub class: String,
    /// Bytes written.
    pub guest_bytes: u64,
}

/// Wear by one tenant on one device. Tenants without data are included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantWear {
    /// Name of the device.
    pub device: String,
    /// Name of the tenant.
    pub tenant: String,
    /// Write amplification: programmed bytes per byte written for it; `None` if nothing was written.
    pub waf: Option<f64>,
    /// Bytes that guests of its volumes wrote.
    pub guest_bytes: u64,
    /// Bytes that moves of its volumes wrote.
    pub copied_bytes: u64,
    /// Bytes programmed for both, by garbage collection that the tenant caused (including pages of others that it
    /// moved), and by garbage collection that freed the tenant's own blocks for others.
    pub flash_bytes: u64,
    /// Bytes of other tenants among them, moved because of this tenant's writes.
    pub moved_foreign_bytes: u64,
    /// Own bytes that were moved by garbage collection that other tenants caused.
    pub moved_by_others_bytes: u64,
    /// Mean flash space beyond its data, over windows; `None` if tenants own no erase blocks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub over_provisioned_bytes: Option<u64>,
    /// The same space as a share of all spare space of the device, including unused capacity, 0..=1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub over_provisioned_share: Option<f64>,
}

/// Wear by one VM over all these devices. Programmed bytes are divided in proportion to written pages, on each device
/// and within each of its tenants, because garbage collection in one pool of erase blocks has no other owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmWear {
    /// Name of the VM.
    pub vm: String,
    /// Bytes that its guest wrote.
    pub guest_bytes: u64,
    /// Bytes that moves of its volumes wrote.
    pub copied_bytes: u64,
    /// Bytes programmed for both: the VM's share of each device.
    pub flash_bytes: u64,
    /// Writes per day for the VM at this rate, as a multiple of the capacity of these devices together.
    pub drive_writes_per_day: f64,
}

impl Simulation<'_> {
    /// Returns the wear summary; `None` without such devices.
    pub(crate) fn wear(&self) -> Option<WearSummary> {
        let seconds = Nanos(self.world.stats.counted_ns).as_secs_f64();
        let found = self.world.devices.iter().enumerate();
        let found: Vec<(usize, DriveCounters)> = found
            .filter_map(|(d, device)| match device {
                SimDevice::Flash(flash) => Some((d, flash.counted(seconds))),
                SimDevice::Queue(_) | SimDevice::Disks(_) => None,
            })
            .collect();
        if found.is_empty() {
            return None;
        }
        let days = seconds / DAY_S;
        let per_day = |bytes: u64, capacity: u64| match days > 0.0 {
            true => bytes as f64 / capacity.max(1) as f64 / days,
            false => 0.0,
        };
        let topology = &self.model.topology;
        let devices = found.iter().map(|(d, since)| {
            let device = &topology.devices[*d];
            let sum = |of: fn(&VolumeBytes) -> u64| since.written.iter().map(of).sum::<u64>();
            DeviceWear {
                name: device.name.clone(),
                tier: topology.tier(device.tier).name.clone(),
                waf: waf(since.flash_bytes, since.bytes()),
                guest_bytes: sum(|w| w.guest),
                classes: self.written_by_class(since),
                copied_bytes: sum(|w| w.copied),
                flash_bytes: since.flash_bytes,
                drive_writes_per_day: per_day(since.bytes(), device.spec.capacity.0),
                years: since.years,
            }
        });
        let together = found.iter();
        let together = together.map(|(d, _)| topology.devices[*d].spec.capacity.0);
        let capacity: u64 = together.sum();
        let tenants = found
            .iter()
            .flat_map(|(d, since)| self.tenant_wear(*d, since));
        let tenants = tenants.collect();
        let names = self.model.vms.iter().enumerate();
        let vms = names.filter_map(|(vm, name)| {
            let mut wear = VmWear {
                vm: name.clone(),
                guest_bytes: 0,
                copied_bytes: 0,
                flash_bytes: 0,
                drive_writes_per_day: 0.0,
            };
            let mut flash = 0.0;
            for (d, since) in &found {
                let borne = self.borne_by_tenants(*d, since);
                let volumes = self.model.volumes.iter().zip(&since.written);
                for (v, (volume, written)) in volumes.enumerate() {
                    if volume.vm.index() == vm {
                        wear.guest_bytes += written.guest;
                        wear.copied_bytes += written.copied;
                        let (pages, bytes) = borne[self.tenant_on(*d, v)];
                        let share = written.pages as f64 / pages.max(1) as f64;
                        flash += share * bytes as f64;
                    }
                }
            }
            let host = wear.guest_bytes + wear.copied_bytes;
            wear.flash_bytes = flash as u64;
            wear.drive_writes_per_day = per_day(host, capacity);
            (host > 0).then_some(wear)
        });
        Some(WearSummary {
            devices: devices.collect(),
            vms: vms.collect(),
            tenants,
        })
    }

    /// Returns the bytes that guests of each class wrote, in the scenario's order.
    fn written_by_class(&self, since: &DriveCounters) -> Vec<ClassWritten> {
        let class = |class: &model::SloClass| ClassWritten {
            class: class.name.clone(),
            guest_bytes: 0,
        };
        let mut classes: Vec<ClassWritten> = self.model.classes.iter().map(class).collect();
        for (volume, written) in self.model.volumes.iter().zip(&since.written) {
            classes[volume.class.index()].guest_bytes += written.guest;
        }
        classes
    }

    /// Returns the number of a volume's tenant on a device; 0 without tenants.
    fn tenant_on(&self, device: usize, volume: usize) -> usize {
        let flash = self.model.flash[device].as_ref();
        let tenants = flash.and_then(|f| f.tenants.as_ref());
        tenants.map_or(0, |t| usize::from(t.of_volume[volume]))
    }

    /// Returns for each tenant of a device the pages written for it and the programmed bytes.
    fn borne_by_tenants(&self, device: usize, since: &DriveCounters) -> Vec<(u64, u64)> {
        let mut out = vec![(0, since.flash_bytes)];
        if !since.tenants.is_empty() {
            out = since.tenants.iter().map(|t| (0, t.flash_bytes)).collect();
        }
        for (v, written) in since.written.iter().enumerate() {
            out[self.tenant_on(device, v)].0 += written.pages;
        }
        out
    }

    /// Returns the wear of those tenants of a device that have volumes or activity.
    fn tenant_wear(&self, device: usize, since: &DriveCounters) -> Vec<TenantWear> {
        let flash = self.model.flash[device].as_ref();
        let Some(tenants) = flash.and_then(|f| f.tenants.as_ref()) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for (t, (name, done)) in tenants.names.iter().zip(&since.tenants).enumerate() {
            let own = since.written.iter().enumerate();
            let own = own.filter(|(v, _)| usize::from(tenants.of_volume[*v]) == t);
            let own: Vec<&VolumeBytes> = own.map(|(_, w)| w).collect();
            let owned = done.ops.filter(|o| o.bytes > 0);
            if own.is_empty() && owned.is_none() {
                continue;
            }
            let sum = |of: fn(&VolumeBytes) -> u64| own.iter().map(|w| of(w)).sum::<u64>();
            out.push(TenantWear {
                device: self.model.topology.devices[device].name.clone(),
                tenant: name.clone(),
                waf: waf(done.flash_bytes, sum(VolumeBytes::bytes)),
                guest_bytes: sum(|w| w.guest),
                copied_bytes: sum(|w| w.copied),
                flash_bytes: done.flash_bytes,
                moved_foreign_bytes: done.foreign_bytes,
                moved_by_others_bytes: done.by_others_bytes,
                over_provisioned_bytes: done.ops.map(|o| o.bytes),
                over_provisioned_share: done.ops.map(|o| o.share),
            });
        }
        out
    }
}
