//! Mirrors that a host's volumes could have: the most-read extents, on the device with most idle time.
//!
//! None is offered for volumes behind a cache, where only requests of guests are known and not those of the device, nor for
//! volumes whose requests go to several devices.

use std::collections::BTreeMap;

use model::{DeviceSpec, ExtentRanges, Op};
use planner::mirrors::{
    MirrorDevice, MirrorExtent, MirrorSet, MirrorTerms, MirrorVolume, mirrors, touched,
};
use slo::curve::Curve;
use slo::ladder::{OtherDevice, RemedyKind, SecondCopies, SpareOps};
use slo::load::Cost;
use slo::zones::Zone;
use slo::{CopiesConfig, Knowledge, Promise, ResourceId, WorkloadId};
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};

use super::HostResponder;
use super::moves::{Moves, left_of};
use crate::agent::SPAN_PER_MIRROR;
use crate::controller::busy::{Utilization, placed};
use crate::wire::{DeviceWindow, ExtentAccess, LoadOf, VolumeWindow};

/// Most volumes whose extents are requested: the agent reads all changed counters of each with every window.
const ACCESS_MAX: usize = 64;

/// Least reads of a window from which hot extents are derived.
const READS_MIN: u64 = 100;

/// Sizes of the offered mirrors, in eighths of the extents that fit.
const EIGHTHS: [u64; 4] = [1, 2, 4, 8];

/// Most ranges of extents that an array accepts in one order.
const RANGES_MAX: usize = crate::agent::RANGES_PER_MOVE;

/// Approximate size of the requests of a copy.
const PIECE: Bytes = Bytes(1 << 20);

/// Least share of a volume's requests on one device: the prediction covers only this device.
const ON_ONE: f64 = 0.95;

/// Knowledge of the host, with the mirrors and moves that are possible in this window.
pub(super) struct WithOffers<'a> {
    pub(super) known: &'a dyn Knowledge,
    pub(super) in_use: &'a Utilization<'a>,
    pub(super) resources: &'a BTreeMap<String, ResourceId>,
    /// Windows of volumes, by workload.
    pub(super) volumes: &'a [Option<&'a VolumeWindow>],
    pub(super) terms: CopiesConfig,
    /// Computed only if a move is evaluated.
    pub(super) moves: &'a dyn Fn() -> Option<&'a Moves>,
}

impl Knowledge for WithOffers<'_> {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        self.known.curve(workload)
    }

    fn zones(&self, workload: WorkloadId) -> Vec<Zone> {
        self.known.zones(workload)
    }

    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        self.known.zones_before(workload)
    }

    fn spare_flash(&self, workload: WorkloadId) -> Option<SpareOps> {
        self.known.spare_flash(workload)
    }

    fn second_copies(&self, workload: WorkloadId) -> Vec<SecondCopies> {
        let v = self.volumes.get(workload.index()).copied().flatten();
        v.and_then(|v| self.offers(workload, v)).unwrap_or_default()
    }

    fn other_devices(&self, workload: WorkloadId) -> Vec<OtherDevice> {
        let v = self.volumes.get(workload.index()).copied().flatten();
        let found = v.and_then(|v| Some((v, (self.moves)()?)));
        found.map_or(vec![], |(v, moves)| {
            moves.offers(workload, v, self.in_use, self.resources)
        })
    }
}

impl WithOffers<'_> {
    /// Mirrors of increasing size; none if the access is unknown, or nothing would fit.
    fn offers(&self, workload: WorkloadId, v: &VolumeWindow) -> Option<Vec<SecondCopies>> {
        let mirror = v.mirror.as_ref()?;
        let busy = v.moving.is_some() || v.calibrating || mirror.copies.is_some();
        let access = mirror.access.as_ref()?;
        if busy || v.cache.is_some() {
            return None;
        }
        let (source, extents) = asked(access)?;
        let all: u64 = extents.iter().map(|e| e.reads).sum();
        if all < READS_MIN {
            return None;
        }
        let volume = MirrorVolume {
            volume: VolumeId::from_index(0),
            device: source,
            weight: 1.0,
            extents,
            mirrored: None,
            is_busy: false,
        };
        let devices = self.in_use.report.devices.iter();
        let devices: Vec<MirrorDevice> = devices.map(|d| device(d, self.in_use)).collect();
        let fit = volume.extents.iter().map(|e| e.bytes.0).sum::<u64>();
        let fit = fit.min(self.terms.most.0);
        let mut offers: Vec<SecondCopies> = vec![];
        for eighths in EIGHTHS {
            let terms = MirrorTerms {
                budget: Bytes(fit / 8 * eighths),
                read_share: self.terms.read_share,
                busy: 0.0,
                free: self.terms.free,
            };
            let set = mirrors(&devices, std::slice::from_ref(&volume), &terms).pop();
            let offer = set.and_then(|set| self.offer(workload, v, &volume, set));
            offers.extend(offer.filter(|o| offers.last().is_none_or(|last| last.bytes < o.bytes)));
        }
        Some(offers)
    }

    fn offer(
        &self,
        workload: WorkloadId,
        v: &VolumeWindow,
        of: &MirrorVolume,
        set: MirrorSet,
    ) -> Option<SecondCopies> {
        let ranges = set.extents.ranges().iter().take(RANGES_MAX).copied();
        let extents = ExtentRanges::from_ranges(ranges.collect()).ok()?;
        let span = u64::from(extents.last()? - extents.iter().next()? + 1);
        let extent = of.extents.iter().map(|e| e.bytes.0).max()?;
        if span * extent > SPAN_PER_MIRROR.0 {
            return None;
        }
        let devices = &self.in_use.report.devices;
        let [target, source] = [set.to, of.device].map(|d| &devices[d.index()].name);
        let share = |count: &dyn Fn(&MirrorExtent) -> u64| {
            let all: u64 = of.extents.iter().map(count).sum();
            let own = of.extents.iter().filter(|e| extents.contains(e.extent));
            own.map(count).sum::<u64>() as f64 / all.max(1) as f64
        };
        let bytes = of.extents.iter().filter(|e| extents.contains(e.extent));
        Some(SecondCopies {
            workload,
            from: *self.resources.get(source)?,
            to: *self.resources.get(target)?,
            bytes: bytes.map(|e| e.bytes).sum(),
            reads: share(&|e| e.reads),
            writes: share(&|e| e.writes),
            extents,
            cost: cost(self.in_use.spec(target)?, v)?,
            copy_rate: self.copy_rate(source, target)?,
        })
    }

    /// Expected rate of a copy: the lower of its limit and the devices' bandwidth, reduced by their utilization.
    fn copy_rate(&self, source: &str, target: &str) -> Option<BytesPerSec> {
        let can = |device: &str, op| {
            let taken = self.in_use.spec(device)?.occupancy_s(op, PIECE.as_f64());
            (taken > 0.0).then(|| PIECE.as_f64() / taken)
        };
        let both = can(source, Op::Read)?.min(can(target, Op::Write)?);
        let most = both.min(self.terms.bandwidth.as_f64());
        let used = |device: &str| self.in_use.used(device).unwrap_or(1.0);
        Some(left_of(
            BytesPerSec(most as u64),
            used(source).max(used(target)),
        ))
    }
}

/// Device of nearly all requests of a volume, and the extents there that were requested.
fn asked(access: &ExtentAccess) -> Option<(DeviceId, Vec<MirrorExtent>)> {
    let mut by_device: BTreeMap<DeviceId, Vec<MirrorExtent>> = BTreeMap::new();
    let touched = touched(&access.reads, &access.writes);
    for (extent, [reads, writes], device) in placed(&access.places, touched) {
        if let Some(device) = device {
            by_device.entry(device).or_default().push(MirrorExtent {
                extent,
                bytes: Bytes(access.extent_bytes),
                reads,
                writes,
            });
        }
    }
    let asked = |of: &Vec<MirrorExtent>| of.iter().map(|e| e.reads + e.writes).sum::<u64>();
    let all: u64 = by_device.values().map(asked).sum();
    let most = by_device.into_iter().max_by_key(|(_, of)| asked(of));
    most.filter(|(_, of)| asked(of) as f64 >= ON_ONE * all as f64)
}

/// Device for the planning of mirrors; one of unknown utilization counts as saturated.
fn device(d: &DeviceWindow, in_use: &Utilization<'_>) -> MirrorDevice {
    let known = in_use.used(&d.name).filter(|_| d.connected);
    MirrorDevice {
        utilization: known.unwrap_or(1.0),
        capacity: Bytes(d.size_bytes),
        used: Bytes(d.used_bytes),
    }
}

/// Time that a volume's requests would take on a device, by its specification.
fn cost(target: &DeviceSpec, v: &VolumeWindow) -> Option<Cost> {
    let load = v.load.as_ref()?;
    let of = |op, of: &LoadOf| target.occupancy_s(op, of.bytes as f64 / of.ios.max(1) as f64);
    Some(Cost {
        read_s: of(Op::Read, &load.reads),
        write_s: of(Op::Write, &load.writes),
    })
}

impl HostResponder {
    /// Volumes whose extent counters the next reports must contain. For mirrors: volumes with a violated objective and those on the
    /// same devices. For appliances: all volumes with an objective, since the earlier hot zones must be known.
    pub(super) fn wanted_access(&self) -> Vec<String> {
        let mut names = self.wanted_for_copies();
        for name in self.wanted_for_appliances() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.truncate(ACCESS_MAX);
        names
    }

    fn wanted_for_appliances(&self) -> Vec<String> {
        let responder = &self.responder;
        let nodes = self
            .live
            .as_ref()
            .is_some_and(|l| !l.config.nodes.is_empty() || !l.donors.is_empty());
        if !(nodes && responder.allows(RemedyKind::Appliance)) {
            return vec![];
        }
        let site = responder.site();
        let workloads = (0..).map(WorkloadId).zip(&site.workloads);
        let can = workloads.filter(|(w, of)| {
            let cached = site.backend.memory[of.pool] > Bytes::ZERO;
            responder.is_here(*w) && cached && of.objective != Promise::default()
        });
        can.map(|(_, of)| of.name.clone()).collect()
    }

    fn wanted_for_copies(&self) -> Vec<String> {
        let responder = &self.responder;
        if !responder.allows(RemedyKind::Mirror) {
            return vec![];
        }
        let workloads = responder.site().workloads.iter().enumerate();
        let here = workloads.map(|(w, of)| (WorkloadId(w as u16), of));
        let here = here.filter(|(w, _)| responder.is_here(*w));
        let violated = |w: WorkloadId| responder.standing(w).violates() || responder.is_broken(w);
        let on: Vec<ResourceId> = here
            .clone()
            .filter(|(w, _)| violated(*w))
            .flat_map(|(_, of)| of.resources.iter().copied())
            .collect();
        let beside = here.filter(|(_, of)| of.resources.iter().any(|r| on.contains(r)));
        let without = beside.filter(|(w, _)| !self.mirrors.contains_key(&w.index()));
        let mut without: Vec<_> = without.collect();
        // Stable: volumes with a violated objective first.
        without.sort_by_key(|(w, _)| !violated(*w));
        without.into_iter().map(|(_, of)| of.name.clone()).collect()
    }
}
