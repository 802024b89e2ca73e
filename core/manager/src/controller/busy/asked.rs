//! Requests of volumes to devices in a window, and the rated device time that they need.

use std::collections::BTreeMap;

use model::{DeviceSpec, ExtentPlaces};
use planner::mirrors::touched;
use units::DeviceId;

use crate::wire::{DeviceIoCounts, Load, LoadOf, VolumeWindow, WindowReport};

/// Requests of a window and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct WindowRequests {
    reads: Flow,
    writes: Flow,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Flow {
    ios: f64,
    bytes: f64,
}

/// Device time, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Takes {
    pub(super) reads: f64,
    pub(super) writes: f64,
}

impl Takes {
    pub(super) fn total(self) -> f64 {
        self.reads + self.writes
    }
}

impl Flow {
    fn of(load: &LoadOf, share: f64) -> Self {
        Self {
            ios: load.ios as f64,
            bytes: load.bytes as f64,
        }
        .times(share)
    }

    fn times(self, share: f64) -> Self {
        Self {
            ios: self.ios * share,
            bytes: self.bytes * share,
        }
    }

    fn plus(self, other: Flow) -> Self {
        Self {
            ios: self.ios + other.ios,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl WindowRequests {
    /// All requests that a device executed.
    pub(super) fn of_device(io: &DeviceIoCounts) -> Self {
        let flow = |ios: u64, bytes: u64| Flow {
            ios: ios as f64,
            bytes: bytes as f64,
        };
        Self {
            reads: flow(io.reads, io.read_bytes),
            writes: flow(io.writes, io.write_bytes),
        }
    }

    fn of(load: &Load, [reads, writes]: [f64; 2]) -> Self {
        Self {
            reads: Flow::of(&load.reads, reads),
            writes: Flow::of(&load.writes, writes),
        }
    }

    /// Device time of the requests: for each direction by the limit that binds.
    pub(super) fn takes_s(&self, spec: &DeviceSpec) -> Takes {
        let of = |flow: Flow, iops: f64, rate: f64| (flow.ios / iops).max(flow.bytes / rate);
        Takes {
            reads: of(self.reads, spec.read_iops, spec.read_bandwidth.as_f64()),
            writes: of(self.writes, spec.write_iops, spec.write_bandwidth.as_f64()),
        }
    }
}

/// Mirror in place, and the shares of a volume's reads and writes that concern it.
#[derive(Debug, Clone, Copy)]
pub(in crate::controller) struct MirrorShares<'a> {
    pub(in crate::controller) from: &'a str,
    pub(in crate::controller) to: &'a str,
    pub(in crate::controller) reads: f64,
    pub(in crate::controller) writes: f64,
}

/// Requests of a volume to each device that it uses; none where unknown. Other devices get none.
pub(super) fn parts<'a>(
    v: &'a VolumeWindow,
    report: &'a WindowReport,
    copied: Option<MirrorShares<'a>>,
) -> BTreeMap<&'a str, Option<WindowRequests>> {
    let copies = v.mirror.as_ref().and_then(|m| m.copies.as_ref());
    let on = v.placed.iter().map(|p| p.device.as_str());
    let to = v.moving.iter().map(|m| m.device.as_str());
    let all = on.chain(to).chain(copies.map(|c| c.device.as_str()));
    let unknown: BTreeMap<&str, Option<WindowRequests>> =
        all.map(|device| (device, None)).collect();
    let Some(load) = v.load.as_ref().filter(|_| v.moving.is_none()) else {
        // Writes of a moving volume go to both devices for a time.
        return unknown;
    };
    let load = load.on_devices();
    let Some(mut parts) = split(v, report, &load) else {
        return unknown;
    };
    if let Some(copies) = copies {
        let Some(ours) = copied.filter(|c| !copies.by_hand && c.to == copies.device) else {
            return unknown;
        };
        let Some(Some(from)) = parts.get_mut(ours.from) else {
            return unknown;
        };
        let reads = from.reads.times(ours.reads * copies.read_share);
        let writes = from.writes.times(ours.writes);
        from.reads = from.reads.plus(reads.times(-1.0));
        let to = parts.entry(ours.to).or_default().get_or_insert_default();
        (to.reads, to.writes) = (to.reads.plus(reads), to.writes.plus(writes));
    }
    parts
}

/// Load of a volume by device: by its extent counters if they are reported; otherwise all of it, if it is on one device.
fn split<'a>(
    v: &'a VolumeWindow,
    report: &'a WindowReport,
    load: &Load,
) -> Option<BTreeMap<&'a str, Option<WindowRequests>>> {
    let extents = by_extents(v, report).unwrap_or_default();
    let all = extents.values().fold([0; 2], |sum, of| add(sum, *of));
    let alone = v.placed.len() == 1;
    let share = |of: u64, all: u64, ios: u64| match (all, ios) {
        (1.., _) => Some(of as f64 / all as f64),
        (0, 0) => Some(0.0),
        (0, _) => alone.then_some(1.0),
    };
    let one = |device: &'a str| {
        let [reads, writes] = extents.get(&Some(device)).copied().unwrap_or_default();
        let shares = [
            share(reads, all[0], load.reads.ios)?,
            share(writes, all[1], load.writes.ios)?,
        ];
        Some((device, Some(WindowRequests::of(load, shares))))
    };
    v.placed.iter().map(|p| one(&p.device)).collect()
}

fn add([a, b]: [u64; 2], [c, d]: [u64; 2]) -> [u64; 2] {
    [a + c, b + d]
}

/// Reads and writes by device and to holes, as guests request them; none if the report has no counters.
fn by_extents<'a>(
    v: &VolumeWindow,
    report: &'a WindowReport,
) -> Option<BTreeMap<Option<&'a str>, [u64; 2]>> {
    let access = v.mirror.as_ref().and_then(|m| m.access.as_ref());
    let (places, ios): (_, Vec<(u32, [u64; 2])>) = match (access, &v.extents) {
        (Some(a), _) => (
            &a.places,
            touched(&a.reads, &a.writes).into_iter().collect(),
        ),
        (None, Some(e)) => {
            let heat = e.heat.as_ref()?.touched().iter();
            let both = |(extent, n): &(u32, u32)| (*extent, [u64::from(*n); 2]);
            (&e.places, heat.map(both).collect())
        }
        (None, None) => return None,
    };
    let mut by_device: BTreeMap<Option<&str>, [u64; 2]> = BTreeMap::new();
    for (_, ios, device) in placed(places, ios) {
        let device = device.map(|d| report.devices[d.index()].name.as_str());
        let sum = by_device.entry(device).or_default();
        *sum = add(*sum, ios);
    }
    Some(by_device)
}

/// Extents in rising order with their devices; extents beyond the volume are left out.
pub(in crate::controller) fn placed<T>(
    places: &ExtentPlaces,
    extents: impl IntoIterator<Item = (u32, T)>,
) -> impl Iterator<Item = (u32, T, Option<DeviceId>)> {
    let mut runs = places.runs().iter();
    let (mut end, mut place) = (0, None);
    extents.into_iter().filter_map(move |(extent, of)| {
        while extent >= end {
            let (count, device) = runs.next()?;
            (end, place) = (end + count, *device);
        }
        Some((extent, of, place))
    })
}
