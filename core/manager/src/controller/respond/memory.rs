//! Memory cache of a live host, as its responder knows it: size of each cache, shares of volumes, and the requested curves.

use std::collections::BTreeMap;

use slo::curve::Curve;
use slo::ladder::RemedyKind;
use slo::zones::Zone;
use slo::{Knowledge, Responder, WorkloadId};
use units::Bytes;

use super::HostResponder;
use super::accessed::ZoneAccesses;
use super::live::LiveState;
use crate::wire::{CacheWindow, Warm, WindowReport};

/// Most curves that are requested: the agent reads the counters of each volume with every window.
const CURVES_MAX: usize = 64;

/// Curves and zones of volumes in one report.
#[derive(Debug, Default)]
pub(super) struct ReportedCurves {
    curves: BTreeMap<WorkloadId, Curve>,
    /// Mean bytes of a read divided by the page size, at most 1.
    of_page: BTreeMap<WorkloadId, f64>,
    pub(super) accessed: ZoneAccesses,
}

impl ReportedCurves {
    /// Warm-up in pages: it is planned in reads of the guest's size, and the array reads whole pages.
    pub(super) fn in_pages(&self, workload: WorkloadId, mut warm: Warm) -> Warm {
        if let Warm::Zones {
            rate_per_s: Some(rate),
            ..
        } = &mut warm
        {
            let share = self.of_page.get(&workload).copied().unwrap_or(1.0);
            *rate = (*rate * share).max(1.0);
        }
        warm
    }
}

impl Knowledge for ReportedCurves {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        self.curves.get(&workload).cloned()
    }

    fn zones(&self, workload: WorkloadId) -> Vec<Zone> {
        self.accessed.zones(workload, 0)
    }

    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        self.accessed.zones(workload, 2)
    }
}

fn curve(cache: &CacheWindow) -> Option<Curve> {
    let points = cache.curve.as_ref()?.iter();
    let points = points.map(|p| (Bytes(p.bytes), p.miss_ratio));
    Some(Curve::new(points.collect()))
}

/// Updates the caches of a host from a report. A volume without a cache belongs to an empty one.
pub(super) fn follow(responder: &mut Responder, live: &mut LiveState, report: &WindowReport) {
    let mut memory: Vec<Bytes> = vec![];
    for cache in report.volumes.iter().filter_map(|v| v.cache.as_ref()) {
        let pool = cache.pool as usize;
        if memory.len() <= pool {
            memory.resize(pool + 1, Bytes::ZERO);
        }
        memory[pool] = Bytes(cache.pool_bytes);
    }
    let none = memory.len();
    memory.push(Bytes::ZERO);
    responder.memory(memory);
    live.known.curves.clear();
    live.known.of_page.clear();
    for v in &report.volumes {
        let Some(w) = live.numbers.get(&v.name).copied() else {
            continue;
        };
        let cache = v.cache.as_ref();
        let pool = cache.map_or(none, |c| c.pool as usize);
        responder.kept_in(w, pool, cache.and_then(|c| c.given_bytes).map(Bytes));
        if let (Some(load), Some(cache)) = (&v.load, cache) {
            let mean = load.reads.bytes as f64 / load.reads.ios.max(1) as f64;
            let share = (mean / cache.page_bytes.max(1) as f64).min(1.0);
            live.known.of_page.insert(w, share);
        }
        live.known
            .curves
            .extend(cache.and_then(curve).map(|curve| (w, curve)));
    }
}

impl HostResponder {
    /// Volumes whose curves the next reports must contain: those with a violated objective, an expected peak or a share, and all
    /// others in the same cache.
    pub(super) fn wanted_curves(&self) -> Vec<String> {
        let Some(live) = &self.live else {
            return vec![];
        };
        let responder = &self.responder;
        let by_curves = [RemedyKind::MemoryShare, RemedyKind::Appliance];
        if !by_curves.iter().any(|kind| responder.allows(*kind)) {
            return vec![];
        }
        let site = responder.site();
        let pool = |w: &WorkloadId| site.workloads[w.index()].pool;
        let violated = |w: &&WorkloadId| {
            responder.standing(**w).violates()
                || responder.is_broken(**w)
                || responder.is_near_peak(**w)
                || self.parts.contains_key(&w.index())
                || self.known.values().any(|(of, _)| *of == w.index())
        };
        let asked = live.numbers.values().filter(violated);
        let pools: Vec<usize> = asked.map(pool).collect();
        let with_them = live.numbers.iter().filter(|(_, w)| {
            pools.contains(&pool(w)) && site.backend.memory[pool(w)] > Bytes::ZERO
        });
        let names = with_them.map(|(name, _)| name.clone());
        names.take(CURVES_MAX).collect()
    }
}
