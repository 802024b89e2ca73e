//! How much of each device is in use, and who takes it: as devices say it that know, and estimated of all others.
//!
//! ```text
//!  an emulated or simulated device ─▶ what it says, of each volume too
//!  another one of a described tier ─▶ what its I/O makes of its rated caps, at most the time in which the kernel saw any under way
//!                                      ─▶ dealt out to volumes by what their requests make of the same caps; the rest is others'
//!  any other                       ─▶ unknown
//! ```
//!
//! The kernel's time alone is no measure: a device that works on many requests at once is never idle long before it is full. It is a bound of the rating,
//! which knows neither sequential requests of disks nor a device that does more than it is rated at. What neither knows is a device that does less.

mod asked;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::DeviceSpec;
use slo::Busy;

use crate::settings::Settings;
use crate::wire::{DeviceIoCounts, DeviceWindow, VolumeWindow, WindowReport};
use asked::{Asked, parts};

pub(super) use asked::{Copied, placed};

/// Share of a time that a device was in use, 0..=1, by its I/O in that time.
pub(super) fn in_use(
    of: &DeviceWindow,
    io: &DeviceIoCounts,
    spec: &DeviceSpec,
    seconds: f64,
) -> f64 {
    let rated = Asked::of_device(io).takes_s(spec).total();
    let busy_s = match io.busy_ns.map(|ns| ns as f64 / 1e9) {
        Some(own) if of.emulate.is_some() => own,
        // Some devices' time is not kept: none while they work is no time.
        Some(most) if most > 0.0 => rated.min(most),
        _ => rated,
    };
    (busy_s / seconds).min(1.0)
}

/// A report's devices and who takes how much of them.
pub(super) struct InUse<'a> {
    pub(super) report: &'a WindowReport,
    /// All of the report's; those of which nothing is known have none.
    devices: BTreeMap<&'a str, Option<Known<'a>>>,
    /// By volume: what it asks of the devices that it uses, where that is known.
    volumes: BTreeMap<&'a str, BTreeMap<&'a str, Option<Asked>>>,
}

/// A device of which it is known how much of it is in use.
struct Known<'a> {
    spec: &'a DeviceSpec,
    used: f64,
    /// Share of the window for each second that requests take by the rating.
    share_per_s: f64,
}

impl<'a> InUse<'a> {
    /// As a report tells; `copied` says which of a volume's requests second copies are there for, where that is known.
    pub(super) fn of(
        report: &'a WindowReport,
        settings: &'a Settings,
        copied: impl Fn(&str) -> Option<Copied<'a>>,
    ) -> Self {
        let volumes: BTreeMap<_, _> = report
            .volumes
            .iter()
            .map(|v| (v.name.as_str(), parts(v, report, copied(&v.name))))
            .collect();
        let seconds = report.window_ns as f64 / 1e9;
        let known = |d: &'a DeviceWindow| {
            let (io, spec) = d.io.as_ref().zip(settings.spec_of(d))?;
            let takes = |asked: &Asked| asked.takes_s(spec).total();
            let parts = volumes.values().filter_map(|v| v.get(d.name.as_str()));
            let volumes_s: f64 = parts.flatten().map(takes).sum();
            // What the device did itself counts: it has others' requests, too. Some of volumes' may have been joined, or never came that far.
            let all_s = takes(&Asked::of_device(io)).max(volumes_s);
            let used = in_use(d, io, spec, seconds);
            Some(Known {
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

    fn known(&self, device: &str) -> Option<&Known<'a>> {
        self.devices.get(device)?.as_ref()
    }

    /// Share of the window that a device was in use, 0..=1; none is unknown.
    pub(super) fn used(&self, device: &str) -> Option<f64> {
        self.known(device).map(|known| known.used)
    }

    /// What a device can do, where it is known how much of it is in use.
    pub(super) fn spec(&self, device: &str) -> Option<&'a DeviceSpec> {
        self.known(device).map(|known| known.spec)
    }

    /// What a volume took of a device or a link; none is unknown.
    pub(super) fn taken(&self, v: &VolumeWindow, of: &str) -> Option<Busy> {
        let own = v.sample.as_ref();
        if let Some(said) = own.and_then(|s| s.busy.iter().find(|b| b.resource == of)) {
            let share = |ns: u64| ns as f64 / self.report.window_ns as f64;
            return Some(Busy {
                reads: share(said.reads_ns),
                writes: share(said.writes_ns),
            });
        }
        let mut devices = self.report.devices.iter();
        let Some(device) = devices.find(|d| d.name == of) else {
            // A link, or a device that has gone: who takes any of it says so.
            return own.map(|_| Busy::default());
        };
        let says = device.emulate.is_some() && device.io.is_some_and(|io| io.busy_ns.is_some());
        if own.is_some() && says {
            return Some(Busy::default());
        }
        let known = self.known(of)?;
        match self.volumes.get(v.name.as_str())?.get(of) {
            None => Some(Busy::default()),
            Some(asked) => asked.map(|asked| {
                let takes = asked.takes_s(known.spec);
                Busy {
                    reads: takes.reads * known.share_per_s,
                    writes: takes.writes * known.share_per_s,
                }
            }),
        }
    }
}
