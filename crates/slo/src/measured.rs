//! What the samples say: rates, what a request costs, traits of a workload, and whether its appliance is worth its place.

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

/// Samples that a present rate is the mean of, at most: two minutes.
pub(crate) const PRESENT: usize = 12;
/// Requests that got to a resource within the present, below which their mean cost there is noise.
const COSTED_MIN: f64 = 30.0;

/// What a workload's requests were last seen to cost on one resource; `None` while too few were seen there.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct KnownCost {
    pub(crate) read_s: Option<f64>,
    pub(crate) write_s: Option<f64>,
}

/// What a workload's requests are like, whatever their number: recorded in one peak for the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Habit {
    /// Share of the requests that write, 0..=1.
    pub write_share: f64,
    /// Mean bytes of a read.
    pub read_bytes: f64,
    /// By resource; 0 where too few requests got there to tell.
    pub costs: Vec<Cost>,
}

impl Habit {
    /// Of recorded samples.
    pub fn of(samples: &[Sample], backend: &Backend) -> Self {
        let all = Present(samples.iter().collect());
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

    /// The stream of such requests at a rate, where `present` is that of now.
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
struct Present<'a>(Vec<&'a Sample>);

impl<'a> Present<'a> {
    fn of(history: &'a VecDeque<Sample>, samples: usize) -> Self {
        Self(history.iter().rev().take(samples).collect())
    }

    /// The last ones up to the latest in which something completed: what requests were like before all of them stood still.
    fn before_stall(history: &'a VecDeque<Sample>, samples: usize) -> Self {
        let stalled = |s: &&Sample| s.rate_per_s() <= 0.0;
        let known = history.iter().rev().skip_while(stalled);
        Self(known.take(samples).collect())
    }

    fn mean(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        self.0.iter().map(|s| of(s)).sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Share of the reads at the backend that miss its memory.
    fn misses(&self) -> f64 {
        let backend_reads = self.mean(|s| s.backend_reads_per_s);
        let hits = self.mean(|s| s.memory_hits.unwrap_or(0.0) * s.backend_reads_per_s)
            / backend_reads.max(1e-9);
        (1.0 - hits).clamp(0.0, 1.0)
    }

    /// Cost on a resource and the requests that it is the mean of: of a read, of a write.
    fn costs(&self, r: usize, place: Place) -> [(f64, f64); 2] {
        let busy = |s: &Sample| s.busy.get(r).copied().flatten();
        let known = self.0.iter().copied().filter(|s| busy(s).is_some());
        let known = Self(known.collect());
        if known.0.is_empty() {
            // Not measured is not free.
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

/// How long samples are together.
fn seconds(samples: &[&Sample]) -> f64 {
    samples.iter().map(|s| s.lasting.as_secs_f64()).sum()
}

impl Responder {
    /// What a workload's requests were like, as far as that says anything of where its data is now: of devices that it has left, and of those
    /// between which its reads are shared now, what they cost then is not what they cost.
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

    /// Remembers what requests cost, where enough of them were seen: an appliance that hits always leaves nothing to measure.
    pub(crate) fn remember_costs(&mut self, w: usize) {
        let present = Present::of(&self.history[w], self.present());
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

    /// Samples that a present rate is the mean of: no more than those in which a violation is seen, or what was before it would count.
    fn present(&self) -> usize {
        PRESENT.min(self.config.detect.samples).max(1)
    }

    /// What each workload asks of the backend, from the samples of the last two minutes. One whose requests wait would ask for
    /// more: at least for what it was promised.
    pub(crate) fn streams(&self, curve: impl Fn(WorkloadId) -> Option<Curve>) -> Vec<Stream> {
        let one = |(w, history): (usize, &VecDeque<Sample>)| {
            let objective = self.site.workloads[w].objective;
            let mut present = Present::of(history, self.present());
            let waiting = present.0.iter().filter(|s| s.backlogged()).count();
            let waits = 2 * waiting > present.0.len();
            if waits && present.mean(Sample::rate_per_s) <= 1e-9 {
                // Who gets nothing at all still asks for what it asked for.
                present = Present::before_stall(history, self.present());
            }
            let mut reads = present.mean(|s| s.reads_per_s);
            let mut writes = present.mean(|s| s.writes_per_s);
            let read_bytes = present.mean(|s| s.bytes_read_per_s) / reads.max(1e-9);
            let cost = |(r, known): (usize, &KnownCost)| {
                // What is not known yet is taken from the few that there are.
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

    /// What a workload asks for, requests per second, and how many wait: what it gets, and by how much what waits behind it grows.
    pub(crate) fn demand(&self, w: usize) -> (f64, u64) {
        let present = Present::of(&self.history[w], self.present());
        let rate = present.mean(Sample::rate_per_s);
        // The latest comes first.
        let (Some(last), Some(first)) = (present.0.first(), present.0.last()) else {
            return (0.0, 0);
        };
        // From the end of the first to the end of the last.
        let between = &present.0[..present.0.len() - 1];
        let grows = match between {
            [] => 0.0,
            _ => (last.waiting as f64 - first.waiting as f64) / seconds(between),
        };
        (rate + grows.max(0.0), last.waiting)
    }

    /// Whether its requests go through an appliance and will go on to.
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
        // Without it all its reads would get there.
        streams[w.index()].passes = 1.0;
        // Of resources that it does not use it is not asked; nor of those that only tell who could interfere.
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
