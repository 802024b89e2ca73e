//! How worn the array's SSDs are by what was written, and by whom: results of runs with flash inside devices.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::device::SimDevice;
use crate::engine::Simulation;
use crate::flash_device::{Since, Written, waf};

const DAY_S: f64 = 86_400.0;

/// Wear in the time that counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WearSummary {
    /// Devices with flash inside, in the array's order.
    pub devices: Vec<DeviceWear>,
    /// Tenants: VMs that wrote, or were moved, to such devices.
    pub vms: Vec<VmWear>,
}

impl WearSummary {
    /// Bytes programmed on all devices.
    pub fn programmed_bytes(&self) -> u64 {
        self.devices.iter().map(|d| d.flash_bytes).sum()
    }

    /// Write amplification of all devices together; none if nothing was written.
    pub fn waf(&self) -> Option<f64> {
        let written = self.devices.iter().map(|d| d.guest_bytes + d.copied_bytes);
        waf(self.programmed_bytes(), written.sum())
    }

    /// Years that the first device to wear out lasts; none if nothing was erased.
    pub fn life_years(&self) -> Option<f64> {
        let years = self.devices.iter().filter_map(|d| d.years);
        years.min_by(f64::total_cmp)
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceWear {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// Write amplification: bytes programmed for each byte that guests and moves wrote (a page that is written in part is programmed
    /// whole); none if nothing was written.
    pub waf: Option<f64>,
    /// Bytes that guests wrote.
    pub guest_bytes: u64,
    /// Bytes that moves wrote.
    pub copied_bytes: u64,
    /// Bytes programmed, those of garbage collection with them.
    pub flash_bytes: u64,
    /// How often its capacity was written by the host in a day, at this rate.
    pub drive_writes_per_day: f64,
    /// Years that its blocks last at this rate, perfectly levelled; none if nothing was erased.
    pub years: Option<f64>,
}

/// One VM, over all these devices. What is programmed is borne in proportion to the pages that are written: in one pool of erase blocks
/// garbage collection has no other owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmWear {
    /// Its name.
    pub vm: String,
    /// Bytes that its guest wrote.
    pub guest_bytes: u64,
    /// Bytes that moves of its volumes wrote.
    pub copied_bytes: u64,
    /// Bytes programmed for both: its part of each device's.
    pub flash_bytes: u64,
    /// How often the capacity of these devices together was written for it in a day, at this rate.
    pub drive_writes_per_day: f64,
}

impl Simulation<'_> {
    /// None without such devices.
    pub(crate) fn wear(&self) -> Option<WearSummary> {
        let seconds = Nanos(self.world.stats.counted_ns).as_secs_f64();
        let found = self.world.devices.iter().enumerate();
        let found: Vec<(usize, Since)> = found
            .filter_map(|(d, device)| match device {
                SimDevice::Flash(flash) => Some((d, flash.counted(seconds))),
                SimDevice::Queue(_) => None,
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
            let sum = |of: fn(&Written) -> u64| since.written.iter().map(of).sum::<u64>();
            DeviceWear {
                name: device.name.clone(),
                tier: topology.tier(device.tier).name.clone(),
                waf: waf(since.flash_bytes, since.bytes()),
                guest_bytes: sum(|w| w.guest),
                copied_bytes: sum(|w| w.copied),
                flash_bytes: since.flash_bytes,
                drive_writes_per_day: per_day(since.bytes(), device.spec.capacity.0),
                years: since.years,
            }
        });
        let together = found.iter();
        let together = together.map(|(d, _)| topology.devices[*d].spec.capacity.0);
        let capacity: u64 = together.sum();
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
            for (_, since) in &found {
                let all: u64 = since.written.iter().map(|w| w.pages).sum();
                for (volume, written) in self.model.volumes.iter().zip(&since.written) {
                    if volume.vm.index() == vm {
                        wear.guest_bytes += written.guest;
                        wear.copied_bytes += written.copied;
                        let share = written.pages as f64 / all.max(1) as f64;
                        flash += share * since.flash_bytes as f64;
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
        })
    }
}
