//! A live host's cache in memory, as its responder knows it: what its parts hold, who is kept in which, and curves of those of whom one is asked for.

use std::collections::BTreeMap;

use slo::curve::Curve;
use slo::ladder::RemedyKind;
use slo::zones::Zone;
use slo::{Knowledge, Responder, WorkloadId};
use units::Bytes;

use super::Responding;
use super::accessed::Accessed;
use super::live::Live;
use crate::wire::{CacheWindow, Warm, WindowReport};

/// Curves that are asked for at most: of each the counters of a volume are read with every window.
const CURVES_MAX: usize = 64;

/// What one report says of volumes beside their windows.
#[derive(Debug, Default)]
pub(super) struct Reported {
    curves: BTreeMap<WorkloadId, Curve>,
    /// Bytes of a read over those of a page of the cache, 1 at most.
    of_page: BTreeMap<WorkloadId, f64>,
    pub(super) accessed: Accessed,
}

impl Reported {
    /// A warm-up as the array carries it out: it is planned in reads like the guest's, and reads whole pages.
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

impl Knowledge for Reported {
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

/// Takes in what a report says of the host's caches. Volumes that are not cached are kept in one that holds nothing.
pub(super) fn follow(responder: &mut Responder, live: &mut Live, report: &WindowReport) {
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

impl Responding {
    /// Volumes whose curves the next reports are to tell: of those whose objective is missed, whose peak is near, or who have a part, and of all
    /// who are kept with them.
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
