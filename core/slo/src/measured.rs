//! Measurements derived from samples: rates, costs per request, traits of a workload, and facts for removing its appliance.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::cacheable::Traits;
use crate::curve::Curve;
use crate::load::{Backend, Change, Cost, Place, Resource, Stream, predict};
use crate::placed::ApplianceState;
use crate::removal::RemovalFacts;
use crate::responder::Responder;
use crate::sample::{Sample, WorkloadId};
use crate::site::Knowledge;
use crate::solutions::Temper;

/// Largest number of samples of a present rate: two minutes.
pub(crate) const PRESENT: usize = 12;
/// Smallest number of requests at a resource from which their mean cost is more than noise.
const COSTED_MIN: f64 = 30.0;

/// Last measured cost of a workload's requests on one resource; `None` before enough requests were seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct KnownCost {
    pub(crate) read_s: Option<f64>,
    pub(crate) write_s: Option<f64>,
}

/// Character of a workload's requests, independent of their rate: recorded in one peak and used for the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Habit {
    /// Share of the requests that write, 0..=1.
    pub write_share: f64,
    /// Mean bytes of a read.
    pub read_bytes: f64,
    /// Cost per request, by resource; 0 where too few requests reached it.
    pub costs: Vec<Cost>,
}

impl Habit {
    /// Returns the habit of recorded samples.
    pub fn of(samples: &[Sample], backend: &Backend) -> Self {
        let all = RecentSamples(samples.iter().collect());
        let (reads, writes) = (all.mean(|s| s.reads_per_s), all.mean(|s| s.writes_per_s));
        let cost = |(r, resource): (usize, &Resource)| {
            let [read, write] = all.costs(r, resource.place);
            let seen = |(cost, n): (f64, f64)| if n >= COSTED_MIN { cost } else { 0.0 };
            Cost {
                read_s: seen(read),
                write_s: seen(write),
            }
        };
        Self {
            write_share: writes / (reads + writes).max(1e-9),
            read_bytes: all.mean(|s| s.bytes_read_per_s) / reads.max(1e-9),
            costs: backend.resources.iter().enumerate().map(cost).collect(),
        }
    }

    /// Returns the stream of such requests at a rate. `present` is the stream of now.
    pub(crate) fn stream(&self, present: &Stream, rate_per_s: f64) -> Stream {
        let costs = present.costs.iter().enumerate().map(|(r, known)| {
            let recorded = self.costs.get(r).copied().unwrap_or_default();
            let of = |recorded: f64, known: f64| if recorded > 0.0 { recorded } else { known };
            Cost {
                read_s: of(recorded.read_s, known.read_s),
                write_s: of(recorded.write_s, known.write_s),
            }
        });
        Stream {
            reads_per_s: rate_per_s * (1.0 - self.write_share),
            writes_per_s: rate_per_s * self.write_share,
            read_bytes: self.read_bytes,
            costs: costs.collect(),
            ..present.clone()
        }
    }
}

/// Means over the last samples of one workload.
struct RecentSamples<'a>(Vec<&'a Sample>);

impl<'a> RecentSamples<'a> {
    fn of(history: &'a VecDeque<Sample>, samples: usize) -> Self {
        Self(history.iter().rev().take(samples).collect())
    }

    /// Returns the samples up to the latest one with completions: the load before a stall.
    fn before_stall(history: &'a VecDeque<Sample>, samples: usize) -> Self {
        let stalled = |s: &&Sample| s.rate_per_s() <= 0.0;
        let known = history.iter().rev().skip_while(stalled);
        Self(known.take(samples).collect())
    }

    fn mean(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        self.0.iter().map(|s| of(s)).sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Returns the share of backend reads that miss the backend's memory.
    fn misses(&self) -> f64 {
        let backend_reads = self.mean(|s| s.backend_reads_per_s);
        let hits = self.mean(|s| s.memory_hits.unwrap_or(0.0) * s.backend_reads_per_s)
            / backend_reads.max(1e-9);
        (1.0 - hits).clamp(0.0, 1.0)
    }

    /// Returns for reads and for writes the cost per request on a resource, s, and the number of requests it was measured
    /// on.
    fn costs(&self, r: usize, place: Place) -> [(f64, f64); 2] {
        let busy = |s: &Sample| s.busy.get(r).copied().flatten();
        let known = self.0.iter().copied().filter(|s| busy(s).is_some());
        let known = Self(known.collect());
        if known.0.is_empty() {
            // An unmeasured cost is unknown, not zero; zero requests show that.
            return [(0.0, 0.0); 2];
        }
        let backend_reads = known.mean(|s| s.backend_reads_per_s);
        let gets_there = match place {
            Place::BehindMemory => backend_reads * known.misses(),
            Place::InFront => backend_reads,
        };
        let per = |busy: f64, n: f64| if n > 1e-9 { busy / n } else { 0.0 };
        let seconds = seconds(&known.0);
        let writes = known.mean(|s| s.writes_per_s);
        let reads_took = known.mean(|s| busy(s).map_or(0.0, |b| b.reads));
        let writes_took = known.mean(|s| busy(s).map_or(0.0, |b| b.writes));
        [
            (per(reads_took, gets_there), gets_there * seconds),
            (per(writes_took, writes), writes * seconds),
        ]
    }
}

/// Returns the total duration of samples, s.
fn seconds(samples: &[&Sample]) -> f64 {
    samples.iter().map(|s| s.lasting.as_secs_f64()).sum()
}

impl Responder {
    /// Returns a recorded habit without the costs that do not apply to the present placement: costs on devices that the
    /// workload has left, and on devices between which its reads are now divided.
    pub(crate) fn habit_here(&self, workload: WorkloadId, recorded: &Habit) -> Habit {
        let own = &self.site.workloads[workload.index()].resources;
        let resources = &self.site.backend.resources;
        let is_device = |r: usize| {
            resources
                .get(r)
                .is_some_and(|r| r.place == Place::BehindMemory)
        };
        let known = own.iter().any(|r| is_device(r.index()));
        let copies = self.before_copies(workload);
        let mut habit = recorded.clone();
        for (r, cost) in habit.costs.iter_mut().enumerate() {
            let has_left = known && is_device(r) && !own.iter().any(|own| own.index() == r);
            let shared = copies.as_ref().is_some_and(|c| c.has(r));
            if has_left || shared {
                *cost = Cost::default();
            }
        }
        habit
    }

    /// Stores the costs of requests where enough were seen. They remain known when an appliance serves all reads.
    pub(crate) fn remember_costs(&mut self, w: usize) {
        let present = RecentSamples::of(&self.history[w], self.present());
        for (r, resource) in self.site.backend.resources.iter().enumerate() {
            let [read, write] = present.costs(r, resource.place);
            let known = &mut self.costs[w][r];
            for ((cost, requests), known) in
                [(read, &mut known.read_s), (write, &mut known.write_s)]
            {
                if requests >= COSTED_MIN {
                    *known = Some(cost);
                }
            }
        }
    }

    /// Returns the number of samples of a present rate. It is at most the window of the detector, or load from before the
    /// violation would count.
    fn present(&self) -> usize {
        PRESENT.min(self.config.detect.samples).max(1)
    }

    /// Returns each workload's demand on the backend, from the samples of the last two minutes. The demand of a workload
    /// with queued requests is at least its guaranteed rate.
    pub(crate) fn streams(&self, curve: impl Fn(WorkloadId) -> Option<Curve>) -> Vec<Stream> {
        let one = |(w, history): (usize, &VecDeque<Sample>)| {
            let objective = self.site.workloads[w].objective;
            let mut present = RecentSamples::of(history, self.present());
            let waiting = present.0.iter().filter(|s| s.backlogged()).count();
            let waits = 2 * waiting > present.0.len();
            if waits && present.mean(Sample::rate_per_s) <= 1e-9 {
                // A stalled workload is assumed to have its demand of before the stall.
                present = RecentSamples::before_stall(history, self.present());
            }
            let mut reads = present.mean(|s| s.reads_per_s);
            let mut writes = present.mean(|s| s.writes_per_s);
            let read_bytes = present.mean(|s| s.bytes_read_per_s) / reads.max(1e-9);
            let cost = |(r, known): (usize, &KnownCost)| {
                // Before a cost is known, the few present requests are used.
                let [read, write] = present.costs(r, self.site.backend.resources[r].place);
                Cost {
                    read_s: known.read_s.unwrap_or(read.0),
                    write_s: known.write_s.unwrap_or(write.0),
                }
            };
            let costs = self.costs[w].iter().enumerate().map(cost).collect();
            let passes = if self.served(w) {
                (present.mean(|s| s.backend_reads_per_s) / reads.max(1e-9)).min(1.0)
            } else {
                1.0
            };
            if let (true, Some(promised)) = (waits, objective.rate_min_per_s) {
                let scale = (promised / (reads + writes).max(1e-9)).max(1.0);
                (reads, writes) = (scale * reads, scale * writes);
            }
            Stream {
                workload: WorkloadId(w as u16),
                reads_per_s: reads,
                writes_per_s: writes,
                read_bytes,
                costs,
                pool: self.site.workloads[w].pool,
                passes,
                memory_misses: present.misses(),
                curve: curve(WorkloadId(w as u16)),
                part: self.part_of(WorkloadId(w as u16)),
                objective,
            }
        };
        self.history.iter().enumerate().map(one).collect()
    }

    /// Returns a workload's demand, requests per second, and its number of queued requests. The demand is the completed rate
    /// plus the growth of the queue.
    pub(crate) fn demand(&self, w: usize) -> (f64, u64) {
        let present = RecentSamples::of(&self.history[w], self.present());
        let rate = present.mean(Sample::rate_per_s);
        // The latest comes first.
        let (Some(last), Some(first)) = (present.0.first(), present.0.last()) else {
            return (0.0, 0);
        };
        // The queue lengths are those at the ends of the samples.
        let between = &present.0[..present.0.len() - 1];
        let grows = match between {
            [] => 0.0,
            _ => (last.waiting as f64 - first.waiting as f64) / seconds(between),
        };
        (rate + grows.max(0.0), last.waiting)
    }

    /// Returns true if an appliance serves the workload's requests and is not about to be removed.
    fn served(&self, w: usize) -> bool {
        let appliance = self.appliances[w].as_ref();
        appliance
            .is_some_and(|a| matches!(a.state, ApplianceState::Serving | ApplianceState::Stranded))
    }

    pub(crate) fn traits(&self, w: WorkloadId, stream: &Stream) -> Traits {
        let history = &self.history[w.index()];
        let last: Vec<&Sample> = history.iter().rev().take(self.present()).collect();
        let sequential: Vec<f64> = last.iter().filter_map(|s| s.sequential).collect();
        let rate = stream.reads_per_s + stream.writes_per_s;
        Traits {
            write_share: stream.writes_per_s / rate.max(1e-9),
            sequential: (!sequential.is_empty())
                .then(|| sequential.iter().sum::<f64>() / sequential.len() as f64),
            working_set_peak: history.iter().filter_map(|s| s.working_set).max(),
            curve: stream.curve.clone(),
        }
    }

    pub(crate) fn temper(&self, w: WorkloadId) -> Temper {
        let history = &self.history[w.index()];
        let n = history.len().max(1) as f64;
        let rate = |s: &Sample| s.rate_per_s();
        let mean = history.iter().map(rate).sum::<f64>() / n;
        let last = history.iter().rev().take(self.present());
        let present = last.clone().map(rate).sum::<f64>() / last.count().max(1) as f64;
        let sets = history.iter().filter_map(|s| s.working_set);
        let sets: Vec<f64> = sets.map(Bytes::as_f64).collect();
        let known = sets.len().max(1) as f64;
        let mean_set = sets.iter().sum::<f64>() / known;
        let variance = sets.iter().map(|s| (s - mean_set) * (s - mean_set));
        Temper {
            rate_over_mean: present / mean.max(1e-9),
            working_set_varies: (variance.sum::<f64>() / known).sqrt() / mean_set.max(1.0),
        }
    }

    pub(crate) fn removal_facts(&self, w: WorkloadId, known: &dyn Knowledge) -> RemovalFacts {
        let mut streams = self.streams(|of| known.curve(of));
        // Without the appliance all reads would reach the backend.
        streams[w.index()].passes = 1.0;
        // Only the workload's own resources count, without those that exist only for the test of interference.
        let own = self.site.workloads[w.index()].resources.iter();
        let known = self.site.backend.resources.len();
        let own = own.map(|r| r.index()).filter(|r| *r < known);
        let costs = &self.costs[w.index()];
        let costed = own.clone().all(|r| costs[r].read_s.is_some());
        let without = predict(&self.site.backend, &streams, &Change::None);
        let worst = own.map(|r| without.uses[r]).fold(0.0, f64::max);
        let kept = without.fails.is_none();
        let sample = self.history[w.index()].back().cloned().unwrap_or_default();
        let appliance = self.appliances[w.index()].as_ref();
        let promised = self.site.workloads[w.index()].objective.rate_min_per_s;
        RemovalFacts {
            hits: (sample.reads_per_s > 0.0)
                .then(|| 1.0 - (sample.backend_reads_per_s / sample.reads_per_s).min(1.0)),
            hits_predicted: appliance.map_or(0.0, |a| a.hits_predicted),
            load: promised.map(|p| sample.rate_per_s() / p),
            use_without: costed.then_some(if kept { worst } else { worst.max(1.01) }),
            use_max: self.site.backend.use_max,
        }
    }
}
