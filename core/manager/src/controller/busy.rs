//! Utilization of each device and the share of each volume: reported by emulated and simulated devices, estimated for all others.
//!
//! ```text
//!  emulated or simulated device ─▶ as reported, for each volume too
//!  other device of a described tier ─▶ its I/O divided by its rated limits, at most the time in which the kernel saw I/O in progress
//!                                      ─▶ divided among volumes by their requests relative to the same limits; the rest is other I/O
//!  any other                       ─▶ unknown
//! ```
//!
//! The kernel's time alone is not sufficient: a device with parallel requests is never idle long before it is saturated. It only
//! bounds the rating, which ignores sequential requests of disks and devices faster than rated. Slower devices are not detected.

mod asked;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::DeviceSpec;
use slo::ResourceUse;

use crate::settings::Settings;
use crate::wire::{DeviceIoCounts, DeviceWindow, VolumeWindow, WindowReport};
use asked::{WindowRequests, parts};

pub(super) use asked::{MirrorShares, placed};

/// Utilization of a device over a time, 0..=1, from its I/O in that time.
pub(super) fn in_use(
    of: &DeviceWindow,
    io: &DeviceIoCounts,
    spec: &DeviceSpec,
    seconds: f64,
) -> f64 {
    let rated = WindowRequests::of_device(io).takes_s(spec).total();
    let busy_s = match io.busy_ns.map(|ns| ns as f64 / 1e9) {
        Some(own) if of.emulate.is_some() => own,
        // The kernel has no time for some devices: zero with I/O is ignored.
        Some(most) if most > 0.0 => rated.min(most),
        _ => rated,
    };
    (busy_s / seconds).min(1.0)
}

/// Utilization of a report's devices, and the shares of volumes.
pub(super) struct Utilization<'a> {
    pub(super) report: &'a WindowReport,
    /// Devices of the report; none for a device of unknown utilization.
    devices: BTreeMap<&'a str, Option<DeviceUse<'a>>>,
    /// Requests of each volume to each of its devices, where known.
    volumes: BTreeMap<&'a str, BTreeMap<&'a str, Option<WindowRequests>>>,
}

/// Device of known utilization.
struct DeviceUse<'a> {
    spec: &'a DeviceSpec,
    used: f64,
    /// Share of the window for each second of rated request time.
    share_per_s: f64,
}

impl<'a> Utilization<'a> {
    /// Computes the utilization from a report; `copied` returns the requests of a volume that its mirror serves, where known.
    pub(super) fn of(
        report: &'a WindowReport,
        settings: &'a Settings,
        copied: impl Fn(&str) -> Option<MirrorShares<'a>>,
    ) -> Self {
        let volumes: BTreeMap<_, _> = report
            .volumes
            .iter()
            .map(|v| (v.name.as_str(), parts(v, report, copied(&v.name))))
            .collect();
        let seconds = report.window_ns as f64 / 1e9;
        let known = |d: &'a DeviceWindow| {
            let (io, spec) = d.io.as_ref().zip(settings.spec_of(d))?;
            let takes = |asked: &WindowRequests| asked.takes_s(spec).total();
            let parts = volumes.values().filter_map(|v| v.get(d.name.as_str()));
            let volumes_s: f64 = parts.flatten().map(takes).sum();
            // The device's own counts are used, since they include other I/O. Requests of volumes may be merged or not reach it.
            let all_s = takes(&WindowRequests::of_device(io)).max(volumes_s);
            let used = in_use(d, io, spec, seconds);
            Some(DeviceUse {
                spec,
                used,
                share_per_s: if all_s > 0.0 { used / all_s } else { 0.0 },
            })
        };
        let devices = report.devices.iter();
        Self {
            report,
            devices: devices.map(|d| (d.name.as_str(), known(d))).collect(),
            volumes,
        }
    }

    fn known(&self, device: &str) -> Option<&DeviceUse<'a>> {
        self.devices.get(device)?.as_ref()
    }

    /// Utilization of a device, 0..=1; none means unknown.
    pub(super) fn used(&self, device: &str) -> Option<f64> {
        self.known(device).map(|known| known.used)
    }

    /// Specification of a device of known utilization.
    pub(super) fn spec(&self, device: &str) -> Option<&'a DeviceSpec> {
        self.known(device).map(|known| known.spec)
    }

    /// Share of a device or link that a volume used; none means unknown.
    pub(super) fn taken(&self, v: &VolumeWindow, of: &str) -> Option<ResourceUse> {
        let own = v.sample.as_ref();
        if let Some(said) = own.and_then(|s| s.busy.iter().find(|b| b.resource == of)) {
            let share = |ns: u64| ns as f64 / self.report.window_ns as f64;
            return Some(ResourceUse {
                reads: share(said.reads_ns),
                writes: share(said.writes_ns),
            });
        }
        let mut devices = self.report.devices.iter();
        let Some(device) = devices.find(|d| d.name == of) else {
            // A link, or a removed device: volumes that use it report so.
            return own.map(|_| ResourceUse::default());
        };
        let says = device.emulate.is_some() && device.io.is_some_and(|io| io.busy_ns.is_some());
        if own.is_some() && says {
            return Some(ResourceUse::default());
        }
        let known = self.known(of)?;
        match self.volumes.get(v.name.as_str())?.get(of) {
            None => Some(ResourceUse::default()),
            Some(asked) => asked.map(|asked| {
                let takes = asked.takes_s(known.spec);
                ResourceUse {
                    reads: takes.reads * known.share_per_s,
                    writes: takes.writes * known.share_per_s,
                }
            }),
        }
    }
}
