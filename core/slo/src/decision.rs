//! Decision with its evidence, and the steps that lead to it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::cacheable::{Finding, all_kept, cacheable};
use crate::curve::Curve;
use crate::detect::DetectEvidence;
use crate::host::HostFinding;
use crate::interference::{Interference, interference};
use crate::ladder::{
    OtherDevice, Remedy, RemedyAction, RemedyKind, SecondCopies, Situation, SpareOps, hold,
    remedies, taken, unneeded,
};
use crate::load::{Change, Stream, predict};
use crate::reroute::{choose_way, ways};
use crate::responder::Responder;
use crate::sample::{HostId, ResourceId, WorkloadId};
use crate::site::{Forecast, Knowledge, WarmForecast};
use crate::solutions::{Solution, Temper, solutions};
use crate::warm::{Warm, WarmZones, plan};
use crate::zones::Zone;

/// Cause of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum Cause {
    /// An objective is violated.
    Violation {
        affected: WorkloadId,
        /// Numbers of violating and of all samples.
        evidence: DetectEvidence,
    },
    /// An objective is predicted to be violated.
    Forecast {
        /// Workload with the peak.
        workload: WorkloadId,
        at: Nanos,
    },
}

/// Findings of all cacheability rules for one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cacheability {
    pub workload: WorkloadId,
    /// Findings by rule.
    pub findings: Vec<Finding>,
}

/// Workload that uses a large part of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taker {
    pub workload: WorkloadId,
    pub resource: ResourceId,
    /// Share of the resource's time in the last sample.
    pub taken: f64,
}

/// Expected peak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Expected end.
    pub until: Nanos,
    /// Number of earlier peaks that the forecast rests on; 0 if the driver announced it.
    pub seen: usize,
    /// True if an objective would be violated without a remedy.
    pub breaks: bool,
}

/// Decision with all its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub at: Nanos,
    /// Cause of the decision.
    pub cause: Cause,
    /// Peak of a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Peak>,
    /// Interference; `None` for a forecast, which concerns one workload.
    pub interference: Option<Interference>,
    /// Workloads that use a large part of a full resource of the affected workload.
    #[serde(default)]
    pub takers: Vec<Taker>,
    /// Affected and interfering workloads.
    pub set: Vec<WorkloadId>,
    /// Cacheability of each workload of the set.
    pub cacheable: Vec<Cacheability>,
    /// Known miss-ratio curves of the set.
    pub curves: Vec<(WorkloadId, Curve)>,
    /// Inputs of the performance model.
    pub streams: Vec<Stream>,
    /// Predictions for all pairs of workload and cache size.
    pub solutions: Vec<Solution>,
    /// Checked hosts, nearest first.
    pub hosts: Vec<HostFinding>,
    /// Remedies in the order of choice; the first one that is not rejected was taken.
    pub remedies: Vec<Remedy>,
    /// Method to re-route requests, for an appliance.
    pub way: Option<String>,
    /// Warm-up of the appliance.
    pub warm: Option<Warm>,
}

/// Unused capacities that a remedy could use.
struct Spare {
    ops: Vec<SpareOps>,
    copies: Vec<SecondCopies>,
    others: Vec<OtherDevice>,
}

/// Number of workloads above which only pairs with the affected one are tested. A test of all pairs would take seconds.
const ALL_PAIRS_MAX: usize = 64;

impl Responder {
    /// Runs the whole workflow for a violation.
    pub(crate) fn decide(
        &self,
        now: Nanos,
        affected: WorkloadId,
        evidence: DetectEvidence,
        known: &dyn Knowledge,
    ) -> Decision {
        let near = self.site.workloads.len() > ALL_PAIRS_MAX;
        let of_affected = |a: usize, b: usize| a == affected.index() || b == affected.index();
        let share = |a: usize, b: usize| {
            if near && !of_affected(a, b) {
                return false;
            }
            let (a, b) = (&self.site.workloads[a], &self.site.workloads[b]);
            a.resources.iter().any(|r| b.resources.contains(r))
        };
        let found = interference(&self.config.interference, &self.series(), share);
        let takers = self.takers(affected);
        let by_taking = takers.iter().map(|t| t.workload.index());
        let all: BTreeSet<usize> = found
            .set_of(affected.index())
            .into_iter()
            .chain(by_taking)
            .collect();
        let set: Vec<WorkloadId> = all.iter().map(|w| WorkloadId(*w as u16)).collect();
        let a = affected.index();
        let unknown = |w: usize| !all.contains(&w);
        let with_affected =
            |p: &&(usize, usize)| (p.0 == a && unknown(p.1)) || (p.1 == a && unknown(p.0));
        let untested = found.untested.iter().filter(with_affected).count();
        let curve = |w: WorkloadId| known.curve(w);
        let mut streams = self.streams(curve);
        hold(&mut streams, &self.held());
        let cause = Cause::Violation { affected, evidence };
        let spare = self.spare(now, &set, known);
        let mut decision = self.weigh(now, cause, (affected, set, untested), streams, &spare);
        (decision.interference, decision.takers) = (Some(found), takers);
        if let Some(workload) = for_whom(&decision.remedies) {
            let before = known.zones_before(workload);
            let hot = match self.config.warm.zones {
                WarmZones::Latest => known.zones(workload),
                WarmZones::BeforeViolation => before.clone(),
            };
            let present = decision.streams.clone();
            self.prepare(&mut decision, workload, &present, (&hot, &before));
        }
        decision
    }

    /// Returns the share of a resource's time that a workload used in its last sample.
    fn taken(&self, w: usize, r: ResourceId) -> f64 {
        self.taken_ago(w, r, 0)
    }

    /// Returns the same share for the sample `ago` samples earlier.
    fn taken_ago(&self, w: usize, r: ResourceId, ago: usize) -> f64 {
        let sample = self.history[w].iter().rev().nth(ago);
        let busy = sample.and_then(|s| s.busy.get(r.index()).copied().flatten());
        busy.map_or(0.0, |b| b.reads + b.writes)
    }

    /// Returns true if a resource is above its use limit now; its demand may then exceed its capacity.
    fn is_full(&self, r: ResourceId) -> bool {
        self.was_full(r, 0)
    }

    fn was_full(&self, r: ResourceId, ago: usize) -> bool {
        let all = (0..self.history.len()).map(|w| self.taken_ago(w, r, ago));
        all.sum::<f64>() > self.site.backend.use_max
    }

    /// Returns the workloads that use a large part of a full resource of the affected one.
    fn takers(&self, affected: WorkloadId) -> Vec<Taker> {
        let Some(least) = self.config.interference.taken_min else {
            return vec![];
        };
        let workloads = 0..self.history.len();
        let own = self.site.workloads[affected.index()].resources.iter();
        let full = own.filter(|r| self.is_full(**r));
        let of = |r: &ResourceId| {
            let r = *r;
            let takers = workloads.clone().map(move |w| Taker {
                workload: WorkloadId(w as u16),
                resource: r,
                taken: self.taken(w, r),
            });
            takers
                .filter(|t| t.workload != affected && t.taken >= least)
                .collect::<Vec<_>>()
        };
        full.flat_map(of).collect()
    }

    /// Runs the workflow for a forecast, from the cache sizes on, with recorded knowledge.
    pub(crate) fn decide_ahead(
        &self,
        now: Nanos,
        forecast: &Forecast,
        known: &dyn Knowledge,
    ) -> Decision {
        let w = forecast.workload;
        let curve = |of: WorkloadId| match of == w {
            true => forecast.curve.clone().or_else(|| known.curve(of)),
            false => known.curve(of),
        };
        let mut streams = self.streams(curve);
        hold(&mut streams, &self.held());
        let quiet = streams.clone();
        let stream = &mut streams[w.index()];
        let habit = self.habit_here(w, &forecast.habit);
        *stream = habit.stream(stream, forecast.rate_per_s);
        let cause = Cause::Forecast {
            workload: w,
            at: forecast.at,
        };
        let without = predict(&self.site.backend, &streams, &Change::None);
        let spare = self.spare(now, &[w], known);
        let mut decision = self.weigh(now, cause, (w, vec![w], 0), streams, &spare);
        decision.peak = Some(Peak {
            rate_per_s: forecast.rate_per_s,
            until: forecast.until,
            seen: forecast.seen,
            breaks: without.fails.is_some(),
        });
        if without.fails.is_none() {
            decision.remedies = unneeded("all objectives are predicted to be met without it");
        }
        if for_whom(&decision.remedies) == Some(w) {
            // More capacity is unused now than during the peak.
            let zones = (&forecast.zones[..], &forecast.zones[..]);
            self.prepare(&mut decision, w, &quiet, zones);
            if forecast.warm == WarmForecast::Leave {
                decision.warm = Some(Warm::Cold {
                    why: "zones of the forecast are not preloaded (zones = \"leave\")".into(),
                });
            }
        }
        decision
    }

    /// Returns the unused capacities for workloads of the set that do not have the remedy yet.
    fn spare(&self, now: Nanos, set: &[WorkloadId], known: &dyn Knowledge) -> Spare {
        let without = |kind| set.iter().copied().filter(move |w| !self.has(kind, *w));
        let rests = |kind, w: &WorkloadId| {
            let until = self.rests_until.get(&(kind, *w));
            until.is_some_and(|until| now < *until)
        };
        let mirrors = self.allows(RemedyKind::Mirror);
        let moves = self.allows(RemedyKind::Move) && !self.copying();
        Spare {
            ops: without(RemedyKind::OpsShare)
                .filter_map(|w| known.spare_flash(w))
                .collect(),
            copies: without(RemedyKind::Mirror)
                .filter(|w| mirrors && !rests(RemedyKind::Mirror, w))
                .flat_map(|w| known.second_copies(w))
                .collect(),
            // A move ends mirrors, so a workload with a mirror is not moved.
            others: without(RemedyKind::Mirror)
                .filter(|w| moves && !rests(RemedyKind::Move, w))
                .flat_map(|w| known.other_devices(w))
                .collect(),
        }
    }

    /// Evaluates cacheability, sizes, solutions and the ladder for an affected workload, its set and the number of untested
    /// workloads.
    fn weigh(
        &self,
        now: Nanos,
        cause: Cause,
        (affected, set, untested): (WorkloadId, Vec<WorkloadId>, usize),
        streams: Vec<Stream>,
        spare: &Spare,
    ) -> Decision {
        let config = &self.config;
        let cacheable: Vec<Cacheability> = set
            .iter()
            .map(|w| {
                let traits = self.traits(*w, &streams[w.index()]);
                Cacheability {
                    workload: *w,
                    findings: cacheable(&config.rules, &traits, config.sizing.largest()),
                }
            })
            .collect();
        let candidates: Vec<(WorkloadId, Temper)> = cacheable
            .iter()
            // A workload has at most one appliance.
            .filter(|c| all_kept(&c.findings) && self.appliances[c.workload.index()].is_none())
            .filter(|c| self.way(c.workload).is_some())
            .filter(|c| now >= self.rests[c.workload.index()].until)
            .map(|c| (c.workload, self.temper(c.workload)))
            .collect();
        let backend = &self.site.backend;
        let solutions = solutions(backend, &streams, &config.sizing, &candidates);
        let own_hosts: Vec<HostId> = self.site.workloads.iter().map(|w| w.host).collect();
        let failed = self.failed_hosts.iter().filter(|(_, until)| *until > now);
        let avoid: Vec<HostId> = failed.map(|(h, _)| *h).collect();
        let held = self.held();
        let rests = |w: &WorkloadId| now < self.rests[w.index()].until;
        let resting: Vec<WorkloadId> = set.iter().copied().filter(rests).collect();
        let resources = (0..backend.resources.len()).map(|r| ResourceId(r as u16));
        // The demand on a resource is unknown if it was full at any time within the detection window.
        let looked = config.detect.samples;
        let full = resources.filter(|r| (0..looked).any(|ago| self.was_full(*r, ago)));
        let full: Vec<ResourceId> = full.collect();
        let situation = Situation {
            backend,
            streams: &streams,
            affected,
            set: &set,
            solutions: &solutions,
            hosts: &self.site.hosts,
            own_hosts: &own_hosts,
            held: &held,
            avoid: &avoid,
            resting: &resting,
            untested,
            sizing: &config.sizing,
            boot: config.boot,
            ops: &spare.ops,
            full: &full,
            copies: &spare.copies,
            others: &spare.others,
            choice: config.choice,
            weights: &config.price,
        };
        let (remedies, hosts) = remedies(&situation, &config.allowed);
        let curves = streams.iter().filter(|s| set.contains(&s.workload));
        let curves = curves.filter_map(|s| Some((s.workload, s.curve.clone()?)));
        Decision {
            at: now,
            cause,
            peak: None,
            interference: None,
            takers: vec![],
            cacheable,
            curves: curves.collect(),
            set,
            solutions,
            hosts,
            remedies,
            way: None,
            warm: None,
            streams,
        }
    }

    /// Plans warm-up and re-routing of an appliance. `present` is the load during the warm-up; `zones` are the present and
    /// the earlier hot zones.
    fn prepare(
        &self,
        decision: &mut Decision,
        w: WorkloadId,
        present: &[Stream],
        zones: (&[Zone], &[Zone]),
    ) {
        let Some(RemedyAction::Appliance { cache, .. }) =
            taken(&decision.remedies).and_then(|r| r.action.clone())
        else {
            return;
        };
        // Unused capacity of the busiest resource now, in reads of this workload.
        let now = predict(&self.site.backend, present, &Change::None);
        let stream = &present[w.index()];
        let costs = stream.costs.iter().zip(&now.uses);
        let left = costs
            .filter(|(cost, _)| cost.read_s > 0.0)
            .map(|(cost, used)| (1.0 - used).max(0.0) / cost.read_s);
        let spare = left.fold(f64::INFINITY, f64::min);
        let spare = if spare.is_finite() { spare } else { 0.0 };
        decision.warm = Some(plan(&self.config.warm, zones.0, zones.1, cache, spare));
        decision.way = self.way(w);
    }

    fn way(&self, w: WorkloadId) -> Option<String> {
        let ways = ways();
        let (best, _) = choose_way(&ways, &self.site.workloads[w.index()].attachment);
        best.map(|i| ways[i].name().into())
    }
}

/// Returns the workload of the chosen appliance, if one was chosen.
fn for_whom(remedies: &[Remedy]) -> Option<WorkloadId> {
    match taken(remedies)?.action {
        Some(RemedyAction::Appliance { workload, .. }) => Some(workload),
        _ => None,
    }
}
