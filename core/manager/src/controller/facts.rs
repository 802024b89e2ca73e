//! Facts from reports: names become dense ids, and missing measurements become unknown.

use std::collections::BTreeMap;

use executor::Job;
use model::{
    CalibrationWindow, Device, DeviceFacts, DeviceSpec, ExtentFacts, ExtentHeat, ExtentPlaces,
    Facts, Flow, LatencySummary, MeasuredLoad, Nodes, RunningMove, SloClass, Specialty, Tier,
    Topology, VolumeFacts,
};
use units::{Bytes, ClassId, DeviceId, Nanos, TierId, VmId, VolumeId};

use super::busy::{in_use, placed};
use super::host::{Epoch, HeatSum, Host};
use crate::ManagerError;
use crate::settings::Settings;
use crate::wire::{DeviceIoCounts, Load, LoadOf, VolumeWindow, WindowReport};

/// Least share of an epoch that a load must cover to count for the epoch.
const COVERAGE_MIN: f64 = 0.5;

/// Least size of a volume, bytes: a page of the array.
const SIZE_MIN: u64 = 4096;

/// Facts, with the names of devices.
pub(super) struct HostFacts {
    pub(super) facts: Facts,
    /// Names of the devices by id, with their tiers.
    pub(super) devices: Vec<(String, String)>,
}

/// Gathers the facts about a host at the end of a monitor epoch. `leaves` returns true if a volume must leave a tier.
///
/// # Errors
/// [`ManagerError`], if the report is missing, or a volume is on an unknown device.
pub(super) fn gather(
    host: &Host,
    settings: &Settings,
    now: Nanos,
    placement_due: bool,
    leaves: &dyn Fn(&str, &str) -> bool,
) -> Result<HostFacts, ManagerError> {
    let not_now = ManagerError::NotNow;
    let report = host.report();
    let report = report.ok_or(not_now("its agent has not reported yet"))?;
    let epoch = host.epoch.as_ref();
    let epoch = epoch.ok_or(not_now("its first epoch has not ended"))?;
    let topology = topology(report, settings);
    let undescribed: Vec<String> = undescribed(report, settings).cloned().collect();
    let device_of = |name: &str| {
        let found = topology.devices.iter().position(|d| d.name == name);
        found
            .map(DeviceId::from_index)
            .ok_or_else(|| ManagerError::UnknownDevice(name.into()))
    };
    let length = now.saturating_sub(epoch.began).max(Nanos(1));
    let mut volumes = Vec::with_capacity(report.volumes.len());
    let mut vms = Vms::default();
    let mut classes = settings.classes.clone();
    let mut moves = Vec::new();
    for (i, v) in report.volumes.iter().enumerate() {
        let extents = extents(epoch, v, report, &topology, length);
        // With known extents, the planner finds those that must leave.
        let device = match &extents {
            None => decided_device(v, report, leaves)?,
            Some(_) => main_device(v, report)?,
        };
        let device = device_of(&device)?;
        // A volume on an undescribed tier counts as not measured.
        let tier = &topology.tier(topology.tier_of(device)).name;
        let judged = !undescribed.contains(tier);
        let extents = extents.map(|e| ExtentFacts {
            heat: e.heat.filter(|_| judged),
            ..e
        });
        if let Some(moving) = &v.moving {
            let to = device_of(&moving.device)?;
            let job = active_job(host, &v.name, &moving.device);
            let from = job.map(|j| host.kept.names.of_device(j.order.from));
            moves.push(RunningMove {
                volume: VolumeId::from_index(i),
                from: from.map_or(Ok(device), device_of).unwrap_or(device),
                to,
                // All extents of the job; the array may move only a part now.
                extents: match job {
                    Some(job) => job.order.extents.clone(),
                    None => moving.extents.clone(),
                },
            });
        }
        let allocated: u64 = v.placed.iter().map(|p| p.bytes).sum();
        // Extents cover the size that the guest sees; without them only allocated space counts.
        let size = match &extents {
            None => allocated.max(SIZE_MIN),
            Some(_) => v.size_bytes,
        };
        volumes.push(VolumeFacts {
            name: v.name.clone(),
            vm: vms.id(v.vm.as_ref().unwrap_or(&v.name)),
            class: class(&mut classes, settings, epoch, v, length),
            size: Bytes(size),
            device,
            measured: measured(epoch, &v.name, length).filter(|_| judged),
            calibration: match judged {
                true => calibration(host, &v.name, device),
                false => vec![],
            },
            calibrating: v.calibrating || host.kept.calibrations.iter().any(|c| c.volume == v.name),
            last_moved: host.kept.last_moved.get(&v.name).copied(),
            extents,
        });
    }
    ordered_moves(host, report, &topology, &mut moves);
    let devices = topology
        .devices
        .iter()
        .enumerate()
        .map(|(d, device)| {
            let id = DeviceId::from_index(d);
            let window = report.devices.iter().find(|w| w.name == device.name);
            let window = window.expect("the topology has all devices of the report");
            let arriving = report.volumes.iter().filter_map(|v| {
                let moving = v.moving.as_ref().filter(|m| m.device == device.name)?;
                // The array shows one part of a job of extents at a time.
                let job = active_job(host, &v.name, &device.name);
                let job = job.filter(|j| j.order.extents.is_some());
                let rest = job.map_or(0, |j| j.order.size.0.saturating_sub(j.copied.0));
                Some(moving.left_bytes.max(rest))
            });
            let reserved: u64 = arriving.sum();
            let reserved = reserved + ordered_bytes(host, report, &device.name);
            let io = epoch.devices.get(&device.name);
            let (io, seconds) = io.map_or((DeviceIoCounts::default(), 1.0), |(io, ns)| {
                (*io, (*ns as f64 / 1e9).max(1e-9))
            });
            debug_assert_eq!(topology.tier_of(id), device.tier);
            DeviceFacts {
                used: Bytes(window.used_bytes),
                reserved: Bytes(reserved),
                utilization: in_use(window, &io, &device.spec, seconds),
                read_bytes_per_s: io.read_bytes as f64 / seconds,
                write_bytes_per_s: io.write_bytes as f64 / seconds,
                waf: window.waf,
            }
        })
        .collect();
    let named = named_devices(&topology);
    let nodes = nodes(report, &topology);
    let mut facts = Facts {
        at: now,
        epoch: host.kept.epoch,
        placement_due,
        generation: host.executor.generation(),
        topology,
        classes,
        vms: vms.names,
        volumes,
        devices,
        moves,
        failed: vec![],
        nodes,
    };
    facts.failed = host.failed_moves(now, &facts);
    Ok(HostFacts {
        facts,
        devices: named,
    })
}

/// Nodes of volumes and devices, numbered in the order of devices.
fn nodes(report: &WindowReport, topology: &Topology) -> Nodes {
    let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
    let devices = topology.devices.iter().map(|device| {
        let window = report.devices.iter().find(|w| w.name == device.name)?;
        let node = window.node.as_deref()?;
        let next = u16::try_from(numbers.len()).expect("a report has at most 4,096 devices");
        Some(*numbers.entry(node).or_insert(next))
    });
    let devices: Vec<Option<u16>> = devices.collect();
    if numbers.is_empty() {
        return Nodes::default();
    }
    let volumes = report.volumes.iter();
    let of = |v: &VolumeWindow| numbers.get(v.node.as_deref()?).copied();
    Nodes {
        volumes: volumes.map(of).collect(),
        devices,
    }
}

/// Class of a volume. A volume behind a cache gets its own class, whose objective is the share of the devices.
fn class(
    classes: &mut Vec<SloClass>,
    settings: &Settings,
    epoch: &Epoch,
    v: &VolumeWindow,
    length: Nanos,
) -> ClassId {
    let id = settings.class_id(&v.class);
    let load = epoch.loads.get(&v.name).filter(|l| covers(l.1, length));
    let load = load.map(|(load, _)| load).filter(|l| l.devices.is_some());
    let (Some(load), Some(target)) = (load, classes[id.index()].target) else {
        return id;
    };
    classes.push(SloClass {
        target: load.objective_of_devices(target),
        ..classes[id.index()].clone()
    });
    ClassId::from_index(classes.len() - 1)
}

/// Virtual machines, in the order of their first volumes.
#[derive(Default)]
struct Vms {
    names: Vec<String>,
    ids: BTreeMap<String, VmId>,
}

impl Vms {
    fn id(&mut self, name: &str) -> VmId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = VmId::from_index(self.names.len());
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }
}

/// Places and heat of a volume's extents over the epoch; none if the report has no extents.
fn extents(
    epoch: &Epoch,
    v: &VolumeWindow,
    report: &WindowReport,
    topology: &Topology,
    length: Nanos,
) -> Option<ExtentFacts> {
    let extents = v.extents.as_ref()?;
    let ids: Vec<DeviceId> = report
        .devices
        .iter()
        .map(|d| {
            let found = topology.devices.iter().position(|t| t.name == d.name);
            DeviceId::from_index(found.expect("the topology has all devices of the report"))
        })
        .collect();
    let places = &extents.places;
    let runs = places.runs().iter();
    let covered = |(_, covered_ns): &&(HeatSum, u64)| covers(*covered_ns, length);
    Some(ExtentFacts {
        extent: Bytes(extents.extent_bytes),
        places: ExtentPlaces::of_runs(runs.map(|(n, d)| (*n, d.map(|d| ids[d.index()])))),
        heat: epoch
            .heats
            .get(&v.name)
            .filter(covered)
            .map(|(sum, _)| of_placed(&sum.heat(), places)),
    })
}

/// Requests to extents with a place. Reads of holes use no device.
fn of_placed(heat: &ExtentHeat, places: &ExtentPlaces) -> ExtentHeat {
    let touched = placed(places, heat.touched().iter().copied());
    let placed = touched.filter(|(_, _, device)| device.is_some());
    ExtentHeat::of(placed.map(|(extent, ios, _)| (extent, ios)).collect())
}

/// Returns true if a time covers enough of an epoch.
fn covers(covered_ns: u64, length: Nanos) -> bool {
    covered_ns as f64 >= COVERAGE_MIN * length.as_f64()
}

/// Active job that moves a volume to a device.
fn active_job<'a>(host: &'a Host, volume: &str, to: &str) -> Option<&'a Job> {
    let names = &host.kept.names;
    let mut active = host.executor.jobs().iter().filter(|j| j.state.active());
    active.find(|j| names.of_volume(j.order.volume) == volume && names.of_device(j.order.to) == to)
}

/// Bytes that active jobs will bring to a device and that the array does not show yet.
fn ordered_bytes(host: &Host, report: &WindowReport, device: &str) -> u64 {
    let names = &host.kept.names;
    let shown = |name: &str| {
        let volume = report.volumes.iter().find(|v| v.name == name);
        volume.is_some_and(|v| v.moving.is_some())
    };
    let active = host.executor.jobs().iter().filter(|j| j.state.active());
    active
        .filter(|j| names.of_device(j.order.to) == device)
        .filter(|j| !shown(names.of_volume(j.order.volume)))
        .map(|j| j.order.size.0)
        .sum()
}

/// Adds ordered jobs that the array does not show yet.
fn ordered_moves(
    host: &Host,
    report: &WindowReport,
    topology: &Topology,
    moves: &mut Vec<RunningMove>,
) {
    let names = &host.kept.names;
    for job in host.executor.jobs().iter().filter(|j| j.state.active()) {
        let volume = names.of_volume(job.order.volume);
        let to = names.of_device(job.order.to);
        let v = report.volumes.iter().position(|v| v.name == volume);
        let to = topology.devices.iter().position(|d| d.name == to);
        let from = names.of_device(job.order.from);
        let from = topology.devices.iter().position(|d| d.name == from);
        if let (Some(v), Some(to), Some(from)) = (v, to, from)
            && !moves.iter().any(|m| m.volume.index() == v)
        {
            moves.push(RunningMove {
                volume: VolumeId::from_index(v),
                from: DeviceId::from_index(from),
                to: DeviceId::from_index(to),
                extents: job.order.extents.clone(),
            });
        }
    }
    moves.sort_by_key(|m| m.volume);
}

/// Device of a volume for decisions: the one with most of its bytes, but first a device that it must leave. A cancelled move
/// leaves a volume on two devices; a part on a draining tier has precedence.
fn decided_device(
    volume: &VolumeWindow,
    report: &WindowReport,
    leaves: &dyn Fn(&str, &str) -> bool,
) -> Result<String, ManagerError> {
    let tier_of = |device: &str| {
        report
            .devices
            .iter()
            .find(|d| d.name == device)
            .map(|d| &d.tier)
    };
    let to_leave = volume.placed.iter().filter(|p| {
        p.bytes > 0 && tier_of(&p.device).is_some_and(|tier| leaves(&volume.name, tier))
    });
    match to_leave.max_by_key(|p| p.bytes) {
        Some(place) => Ok(place.device.clone()),
        None => main_device(volume, report),
    }
}

/// Device with most bytes of a volume; for an empty volume, the device with most free space in its home tier.
pub(super) fn main_device(
    volume: &VolumeWindow,
    report: &WindowReport,
) -> Result<String, ManagerError> {
    let most = volume
        .placed
        .iter()
        .rev()
        .filter(|p| p.bytes > 0)
        .max_by_key(|p| p.bytes);
    if let Some(most) = most {
        return Ok(most.device.clone());
    }
    let of_home = report.devices.iter().filter(|d| d.tier == volume.home);
    of_home
        .rev()
        .max_by_key(|d| d.size_bytes.saturating_sub(d.used_bytes))
        .map(|d| d.name.clone())
        .ok_or_else(|| ManagerError::NoDevice {
            volume: volume.name.clone(),
            home: volume.home.clone(),
        })
}

/// Tiers with devices of unknown performance.
pub(super) fn undescribed<'a>(
    report: &'a WindowReport,
    settings: &'a Settings,
) -> impl Iterator<Item = &'a String> {
    report.tiers.iter().filter(|tier| {
        let devices = report.devices.iter().filter(|d| d.tier == **tier);
        !settings.describes(tier, devices)
    })
}

/// Placeholder specification for a device of an undescribed tier: that of the next tier above or below, or any. No decision
/// uses it: the tier accepts no data, and the load of its volumes counts as unknown.
fn stand_in(report: &WindowReport, settings: &Settings, tier: usize) -> DeviceSpec {
    let spec = |name: &String| {
        let mut devices = report.devices.iter().filter(|d| d.tier == *name);
        let emulated = devices.find_map(|d| d.emulate.clone());
        emulated.or_else(|| settings.tiers.get(name).map(|t| t.spec.clone()))
    };
    let (above, below) = report.tiers.split_at(tier);
    let described = above.iter().rev().chain(below).find_map(spec);
    described.unwrap_or_else(|| model::PRESETS[0].spec())
}

/// Names of devices by id, with their tiers.
pub(super) fn named_devices(topology: &Topology) -> Vec<(String, String)> {
    let tier = |d: &Device| topology.tier(d.tier).name.clone();
    let devices = topology.devices.iter();
    devices.map(|d| (d.name.clone(), tier(d))).collect()
}

/// Tiers and devices with their specifications. Devices are ordered by tier, then as in the array.
pub(super) fn topology(report: &WindowReport, settings: &Settings) -> Topology {
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    for (i, name) in report.tiers.iter().enumerate() {
        let tier = TierId::from_index(i);
        let traits = settings.tiers.get(name);
        let mut devices = Vec::new();
        for d in report.devices.iter().filter(|d| d.tier == *name) {
            let mut spec = settings
                .spec_of(d)
                .cloned()
                .unwrap_or_else(|| stand_in(report, settings, i));
            spec.capacity = Bytes(d.size_bytes);
            devices.push(DeviceId::from_index(topology.devices.len()));
            topology.devices.push(Device {
                name: d.name.clone(),
                tier,
                spec,
            });
        }
        let specialty = traits
            .and_then(|t| t.specialty)
            .unwrap_or_else(|| Specialty::for_tier(i, report.tiers.len()));
        topology.tiers.push(Tier {
            name: name.clone(),
            specialty,
            devices,
        });
    }
    topology
}

/// Load of a volume over the epoch; none means unknown.
fn measured(epoch: &Epoch, name: &str, length: Nanos) -> Option<MeasuredLoad> {
    let (load, covered_ns) = epoch.loads.get(name)?;
    if !covers(*covered_ns, length) {
        return None;
    }
    let load = load.on_devices();
    Some(MeasuredLoad {
        window: Nanos(*covered_ns),
        reads: flow(&load.reads),
        writes: flow(&load.writes),
        outstanding: load.in_flight(*covered_ns),
    })
}

fn flow(load: &LoadOf) -> Flow {
    let us = |q: f64| load.quantile_ns(q).unwrap_or(0) as f64 / 1e3;
    Flow {
        ios: load.ios,
        bytes: load.bytes,
        latency: LatencySummary {
            mean_us: load.mean_us().unwrap_or(0.0),
            p50_us: us(0.5),
            p95_us: us(0.95),
            p99_us: us(0.99),
            p999_us: us(0.999),
        },
    }
}

/// Least share of its windows that a session that ended early must have to count.
const SESSION_MIN: f64 = 0.6;

/// Calibration windows since the last decision. The last window of a session is marked, also if the session ended early.
fn calibration(host: &Host, volume: &str, device: DeviceId) -> Vec<CalibrationWindow> {
    let whole = |id: u64, windows: usize| {
        let order = host.kept.calibrations.iter().find(|c| c.id == id);
        order.is_some_and(|o| windows as f64 >= SESSION_MIN * o.steps.len() as f64)
    };
    let results = host.results.iter().filter(|r| r.volume == volume);
    results
        .filter(|r| whole(r.id, r.windows.len()))
        .flat_map(|result| {
            let count = result.windows.len();
            let windows = result.windows.iter().enumerate();
            windows.map(move |(i, w)| CalibrationWindow {
                wanted_us: w.wanted_ns as f64 / 1e3,
                injected_us: w.injected_us,
                duration: Nanos(w.duration_ns),
                reads: w.reads,
                writes: w.writes,
                read_mean_us: w.read_mean_us,
                write_mean_us: w.write_mean_us,
                device,
                last: i + 1 == count,
            })
        })
        .collect()
}

/// Mean latency, microseconds, and request rate of a volume over the epoch.
pub(super) fn latency_and_rate(epoch: &Epoch, name: &str) -> Option<(Option<f64>, f64)> {
    let (load, covered_ns): &(Load, u64) = epoch.loads.get(name)?;
    let iops = load.ios() as f64 / (*covered_ns as f64 / 1e9).max(1e-9);
    Some((load.mean_us(), iops))
}
