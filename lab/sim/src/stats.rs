//! Measurements of a run. The inner loop counts per volume and tier; all other groups are summed at the end of each
//! window.

use algo::objective::excess;
use algo::{Histogram, WindowHistograms};
use manager::wire::{DevicesLoad, Load, LoadOf};
use model::Objective;
use units::Nanos;
use volume::Slack;

use crate::deferred::{CompletedRequest, DeferredCounts};
use crate::depth::Depth;
use crate::intervals::{IntervalCounts, Intervals};
use crate::overdue::LateWaiting;
use crate::result::{DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary};
use crate::stretch::{StretchCounts, Stretches};
use crate::{Model, VolumeModel};

/// Names of the cache and the appliances in the list of tiers.
pub(crate) const CACHE: &str = "cache";
pub(crate) const APPLIANCES: &str = "appliances";

const READS: usize = 0;
const WRITES: usize = 1;

/// Latencies of a group of volumes, for the current window and for the whole run.
#[derive(Clone, Default)]
struct Group {
    window: [Histogram; 2],
    window_bytes: [u64; 2],
    total: [Histogram; 2],
    total_bytes: [u64; 2],
    violation_ns: u64,
    /// Sum of the excess over the objective, in windows. All windows have the same length.
    excess: f64,
    series: GroupSeries,
}

pub(crate) struct Stats {
    window_ns: u64,
    warmup_ns: u64,
    volumes: usize,
    /// Histograms in this order: volumes; tiers, with the cache and the appliances last, and repeated for each class if
    /// results are kept by stretches; volumes as seen by devices behind a cache. Reads and writes alternate.
    live: WindowHistograms,
    /// Index in `live` of each volume's first tier.
    tiers_of: Vec<u32>,
    /// Index in `live` of the first volume as seen by devices.
    on_devices: usize,
    stretches: Option<Box<StretchCounts>>,
    intervals: Option<Box<IntervalCounts>>,
    /// Injected latency in the window, by volume and direction.
    injected_ns: Vec<u64>,
    /// Count and total latency of requests issued since the start, by volume and direction.
    issued: Vec<(u64, u64)>,
    /// Requests that complete in a later window.
    deferred: DeferredCounts,
    /// Requests that were issued and incomplete at the end of the last window, by volume.
    in_flight: Vec<u64>,
    /// Those of `in_flight` that complete in the current window.
    completing: Vec<u64>,
    /// End of the current window.
    end_ns: u64,
    depth: Vec<Depth>,
    /// Loads of the last complete window, by volume.
    loads: Vec<Load>,
    /// Groups in this order: total, tiers, classes, VMs, volumes.
    groups: Vec<Group>,
    class_of: Vec<usize>,
    vm_of: Vec<usize>,
    /// Number of tiers, including the cache and the appliances.
    tiers: usize,
    /// Indexes of cache and appliances among the tiers, if the scenario has them.
    cache: Option<usize>,
    appliances: Option<usize>,
    tells_devices: bool,
    classes: usize,
    targets: Vec<Option<Objective>>,
    /// Use of each volume's objective in the last complete window.
    slack: Vec<Slack>,
    /// Count and total latency of requests in the window that waited for devices behind a cache, by volume.
    waited: Vec<(u64, u64)>,
    /// Response time divided by the objective in the last complete window, by volume.
    over_target: Vec<Option<f64>>,
    /// Requests that have waited for longer than their volume's objective, by volume.
    late: Vec<LateWaiting>,
    pub(crate) counted_ns: u64,
}

impl Stats {
    pub(crate) fn new(model: &Model) -> Self {
        let volumes = model.volumes.len();
        let own = model.topology.tiers.len();
        let cache = model.cache.as_ref().map(|_| own);
        let with_cache = own + usize::from(cache.is_some());
        let appliances = model.servers.as_ref().map(|_| with_cache);
        let tiers = with_cache + usize::from(appliances.is_some());
        let apart = cache.is_some() || appliances.is_some();
        let classes = model.classes.len();
        let answering = model.topology.tiers.iter().map(|t| t.name.clone());
        let answering = answering
            .chain(cache.map(|_| CACHE.to_string()))
            .chain(appliances.map(|_| APPLIANCES.to_string()));
        let stretches = StretchCounts::new(model, answering.collect()).map(Box::new);
        let apart_by_class = stretches.is_some();
        let first_tier = |v: &VolumeModel| match apart_by_class {
            true => volumes + v.class.index() * tiers,
            false => volumes,
        };
        let on_devices = volumes + if apart_by_class { classes } else { 1 } * tiers;
        let names = std::iter::once((GroupKind::Total, "total".to_string()))
            .chain(
                model
                    .topology
                    .tiers
                    .iter()
                    .map(|t| (GroupKind::Tier, t.name.clone())),
            )
            .chain(cache.map(|_| (GroupKind::Tier, CACHE.to_string())))
            .chain(appliances.map(|_| (GroupKind::Tier, APPLIANCES.to_string())))
            .chain(
                model
                    .classes
                    .iter()
                    .map(|c| (GroupKind::Class, c.name.clone())),
            )
            .chain(model.vms.iter().map(|v| (GroupKind::Vm, v.clone())))
            .chain(
                model
                    .volumes
                    .iter()
                    .map(|v| (GroupKind::Volume, v.name.clone())),
            );
        let groups = names
            .map(|(kind, name)| Group {
                series: GroupSeries {
                    kind,
                    name,
                    ..GroupSeries::default()
                },
                ..Group::default()
            })
            .collect();
        Self {
            window_ns: model.window.0,
            warmup_ns: model.warmup.0,
            volumes,
            live: WindowHistograms::new((on_devices + if apart { volumes } else { 0 }) * 2),
            tiers_of: model.volumes.iter().map(|v| first_tier(v) as u32).collect(),
            on_devices,
            stretches,
            intervals: None,
            injected_ns: vec![0; volumes * 2],
            issued: vec![(0, 0); volumes * 2],
            deferred: DeferredCounts::default(),
            in_flight: vec![0; volumes],
            completing: vec![0; volumes],
            end_ns: model.window.0,
            depth: vec![Depth::default(); volumes],
            slack: vec![Slack::Unbound; volumes],
            waited: vec![(0, 0); volumes],
            over_target: vec![None; volumes],
            loads: vec![Load::default(); volumes],
            groups,
            class_of: model.volumes.iter().map(|v| v.class.index()).collect(),
            vm_of: model.volumes.iter().map(|v| v.vm.index()).collect(),
            tiers,
            cache,
            appliances,
            tells_devices: apart,
            classes,
            targets: model
                .volumes
                .iter()
                .map(|v| model.classes[v.class.index()].target)
                .collect(),
            late: vec![LateWaiting::default(); volumes],
            counted_ns: 0,
        }
    }

    /// Starts to keep latencies of volumes by interval.
    pub(crate) fn keep_intervals(&mut self) {
        let counts = IntervalCounts::new(self.volumes, self.window_ns);
        self.intervals = Some(Box::new(counts));
    }

    /// Returns the latencies by interval; empty if they were not kept.
    pub(crate) fn take_intervals(&mut self) -> Intervals {
        let counts = self.intervals.take();
        counts.map(|c| c.finish()).unwrap_or_default()
    }

    /// Records one request that is issued now. It counts in the window in which it completes.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        volume: usize,
        tier: usize,
        dir: usize,
        done: CompletedRequest,
    ) {
        let latency_ns = done.at_ns - done.arrival_ns;
        if !self.tells_devices {
            self.count_issued(volume, dir, latency_ns);
        }
        let of_volume = volume * 2 + dir;
        let of_tier = (self.tiers_of[volume] as usize + tier) * 2 + dir;
        if done.at_ns < self.end_ns {
            self.live.record(of_volume, latency_ns, done.bytes);
            self.live.record(of_tier, latency_ns, done.bytes);
        } else {
            let window = done.at_ns / self.window_ns;
            let within_ns = done.at_ns % self.window_ns;
            self.deferred
                .put(window, [of_volume, of_tier], done, within_ns);
            self.in_flight[volume] += 1;
            self.depth[volume].crosses(done, self.end_ns - self.window_ns, self.end_ns);
            if let Some(target) = self.targets[volume] {
                let next = self.end_ns / self.window_ns;
                self.late[volume].put(target, done, self.window_ns, next);
            }
        }
    }

    #[inline]
    fn count_issued(&mut self, volume: usize, dir: usize, latency_ns: u64) {
        let issued = &mut self.issued[volume * 2 + dir];
        issued.0 += 1;
        issued.1 += latency_ns;
    }

    /// Returns the index of the cache among the tiers.
    pub(crate) fn cache(&self) -> Option<usize> {
        self.cache
    }

    /// Returns the index of the appliances among the tiers.
    pub(crate) fn appliances(&self) -> Option<usize> {
        self.appliances
    }

    /// Returns true if device latencies are counted separately from guest latencies.
    #[inline]
    pub(crate) fn tells_devices(&self) -> bool {
        self.tells_devices
    }

    /// Records one request that is issued to devices now, of a volume behind a cache. The latency excludes injected
    /// latency, which is a separate argument. `waits` is true if the guest waits for the request.
    #[inline]
    pub(crate) fn record_on_devices(
        &mut self,
        volume: usize,
        dir: usize,
        done: CompletedRequest,
        injected_ns: u64,
        waits: bool,
    ) {
        let latency_ns = done.at_ns - done.arrival_ns;
        self.count_issued(volume, dir, latency_ns + injected_ns);
        if waits {
            let waited = &mut self.waited[volume];
            *waited = (waited.0 + 1, waited.1 + latency_ns + injected_ns);
        }
        let index = (self.on_devices + volume) * 2 + dir;
        if done.at_ns < self.end_ns {
            self.live.record(index, latency_ns, done.bytes);
        } else {
            let (window, within_ns) = (done.at_ns / self.window_ns, done.at_ns % self.window_ns);
            self.deferred.put(window, [index], done, within_ns);
        }
    }

    /// Returns for every volume the number of requests completed in the last complete window, and their response time
    /// divided by the objective.
    pub(crate) fn over_target(&self) -> impl Iterator<Item = (u64, Option<f64>)> {
        let loads = self.loads.iter().map(Load::ios);
        loads.zip(self.over_target.iter().copied())
    }

    /// Records the issue of a request that was held since `arrival_ns`. Time before the current window is not counted
    /// in it.
    pub(crate) fn was_held(&mut self, volume: usize, arrival_ns: u64, done_ns: u64) {
        let start_ns = self.end_ns - self.window_ns;
        if arrival_ns < start_ns && done_ns < self.end_ns {
            self.depth[volume].began_before(start_ns - arrival_ns, 0);
        }
    }

    /// Records the latency injected into one request.
    #[inline]
    pub(crate) fn record_injected(&mut self, volume: usize, dir: usize, injected_ns: u64) {
        self.injected_ns[volume * 2 + dir] += injected_ns;
    }

    /// Returns the count and total latency of requests issued to a volume since the start. Behind a cache, these are
    /// the requests to devices.
    pub(crate) fn issued(&self, volume: usize, dir: usize) -> (u64, u64) {
        self.issued[volume * 2 + dir]
    }

    /// Returns the number of a volume's requests that were outstanding at the end of the last window.
    pub(crate) fn in_flight(&self, volume: usize) -> u64 {
        self.in_flight[volume]
    }

    /// Ends a window at `end_ns`. `tier_of` is the present tier of each volume; `held` has the arrival times of
    /// requests that a move holds.
    pub(crate) fn end_window<H: Iterator<Item = u64>>(
        &mut self,
        end_ns: u64,
        tier_of: impl Fn(usize) -> usize,
        held: impl Fn(usize) -> H,
    ) {
        let start_ns = end_ns.saturating_sub(self.window_ns);
        let counts = start_ns >= self.warmup_ns;
        if counts {
            self.counted_ns += end_ns - start_ns;
        }
        for v in 0..self.volumes {
            self.in_flight[v] -= std::mem::take(&mut self.completing[v]);
            self.end_window_of_volume(v, counts, tier_of(v), end_ns, held(v));
        }
        if let Some(stretches) = &mut self.stretches {
            stretches.count(counts);
        }
        for cell in 0..self.on_devices - self.volumes {
            let (class, t) = (cell / self.tiers, cell % self.tiers);
            for dir in [READS, WRITES] {
                let group = &mut self.groups[1 + t];
                let index = (self.volumes + cell) * 2 + dir;
                let (sums, _) = self.live.drain_into(index, &mut [&mut group.window[dir]]);
                group.window_bytes[dir] += sums.bytes;
                if let Some(stretches) = &mut self.stretches {
                    stretches.add_answered(class, t, sums.count);
                }
            }
        }
        if let Some(stretches) = &mut self.stretches {
            let classes = &self.groups[1 + self.tiers..][..self.classes];
            for (class, group) in classes.iter().enumerate() {
                group.window.iter().for_each(|w| stretches.add(class, w));
            }
        }
        if counts && let Some(intervals) = &mut self.intervals {
            let first = self.groups.len() - self.volumes;
            for (v, group) in self.groups[first..].iter().enumerate() {
                group.window.iter().for_each(|w| intervals.add(v, w));
            }
            intervals.end_window();
        }
        let seconds = Nanos(self.window_ns).as_secs_f64();
        for group in &mut self.groups {
            for dir in [READS, WRITES] {
                let series = if dir == READS {
                    &mut group.series.reads
                } else {
                    &mut group.series.writes
                };
                series.push(&group.window[dir], group.window_bytes[dir], seconds);
                if counts {
                    group.total[dir].merge(&group.window[dir]);
                    group.total_bytes[dir] += group.window_bytes[dir];
                }
                group.window[dir].clear();
                group.window_bytes[dir] = 0;
            }
        }
        // Adds requests that were issued earlier and complete in the new window.
        let Self {
            deferred,
            live,
            completing,
            depth,
            ..
        } = self;
        deferred.take(end_ns / self.window_ns, live, |index, sums, within_ns| {
            if let Some(volume) = completing.get_mut(index / 2) {
                *volume += sums.count;
                depth[index / 2].began_before(sums.sum_ns, within_ns);
            }
        });
        let ends = self.in_flight.iter().zip(completing);
        for (depth, (in_flight, completing)) in depth.iter_mut().zip(ends) {
            depth.begin_window(*in_flight - *completing);
        }
        self.end_ns = end_ns + self.window_ns;
    }

    fn end_window_of_volume(
        &mut self,
        v: usize,
        counts: bool,
        tier: usize,
        end_ns: u64,
        held: impl Iterator<Item = u64>,
    ) {
        let own = self.groups.len() - self.volumes + v;
        let vm = 1 + self.tiers + self.classes + self.vm_of[v];
        let class = 1 + self.tiers + self.class_of[v];
        let [mut reads, mut writes] = [LoadOf::default(), LoadOf::default()];
        for (dir, of) in [(READS, &mut reads), (WRITES, &mut writes)] {
            let i = v * 2 + dir;
            if self.live.sums(i).count == 0 {
                continue;
            }
            let [all, c, m, o] = self
                .groups
                .get_disjoint_mut([0, class, vm, own])
                .expect("four different groups");
            let mut groups = [all, c, m, o];
            let mut windows = groups.each_mut().map(|g| &mut g.window[dir]);
            let (sums, buckets) = self.live.drain_into(i, &mut windows);
            for group in groups {
                group.window_bytes[dir] += sums.bytes;
            }
            let held_ns = std::mem::take(&mut self.injected_ns[i]);
            *of = LoadOf {
                ios: sums.count,
                bytes: sums.bytes,
                sum_ns: sums.sum_ns,
                // Injected latency counts at the issue of a request, its total latency at its completion.
                held_ns: held_ns.min(sums.sum_ns),
                buckets,
            };
        }
        let devices = self.tells_devices().then(|| self.take_on_devices(v));
        let (mut late, mut waited_ns) = (self.late[v].at(end_ns, self.window_ns), 0);
        for arrival_ns in held {
            let age_ns = end_ns - arrival_ns;
            waited_ns += age_ns.min(self.window_ns);
            if let Some(target) = self.targets[v] {
                late.add(target, age_ns);
            }
        }
        let answered_ns = reads.sum_ns + writes.sum_ns;
        let depth_ns = self.depth[v].end_window(self.window_ns, answered_ns);
        let load = &mut self.loads[v];
        *load = Load {
            reads,
            writes,
            errors: 0,
            depth_ns: depth_ns + waited_ns,
            waiting: late.as_buckets(),
            devices,
        };
        let judged = self.targets[v].map(|target| (target, load.against(target)));
        let violated = judged.is_some_and(|(_, judged)| judged.violated);
        let late = judged.and_then(|(target, judged)| {
            Some(excess(
                judged.statistic_ns? as f64 / target.latency.0 as f64,
            ))
        });
        let held_ns = load.reads.held_ns + load.writes.held_ns;
        let used = judged.and_then(|(target, judged)| {
            // Devices do not cause injected latency. With injected latency, only the mean of the rest is known.
            let without_ns = (answered_ns - held_ns).checked_div(load.reads.ios + load.writes.ios);
            let used_ns = if held_ns > 0 {
                without_ns
            } else {
                judged.statistic_ns
            };
            Some(Slack::Used(used_ns? as f32 / target.latency.0 as f32))
        });
        self.slack[v] = used.unwrap_or(Slack::Unbound);
        self.over_target[v] = judged.and_then(|(target, judged)| {
            Some(judged.statistic_ns? as f64 / target.latency.0 as f64)
        });
        for group in [0, 1 + tier, class, vm, own] {
            let group = &mut self.groups[group];
            group.series.violating_now(violated);
            if violated && counts {
                group.violation_ns += self.window_ns;
                group.excess += late.unwrap_or(0.0);
            }
        }
    }

    /// Takes a volume's load on devices behind a cache in the window that ends.
    fn take_on_devices(&mut self, v: usize) -> DevicesLoad {
        let [reads, writes] = [READS, WRITES].map(|dir| {
            let index = (self.on_devices + v) * 2 + dir;
            if self.live.sums(index).count == 0 {
                return LoadOf::default();
            }
            let (sums, buckets) = self.live.drain_into(index, &mut []);
            LoadOf {
                ios: sums.count,
                bytes: sums.bytes,
                sum_ns: sums.sum_ns,
                held_ns: 0,
                buckets,
            }
        });
        let (waited_ios, waited_ns) = std::mem::take(&mut self.waited[v]);
        DevicesLoad {
            reads,
            writes,
            waited_ios,
            waited_ns,
        }
    }

    /// Returns the use of a volume's objective in the last complete window.
    pub(crate) fn slack(&self, volume: usize) -> Slack {
        self.slack[volume]
    }

    /// Takes a volume's load of the last complete window. Of the waiting requests, the load includes only those that
    /// have waited for longer than the objective allows, at their mean age.
    pub(crate) fn take_load(&mut self, volume: usize) -> Load {
        std::mem::take(&mut self.loads[volume])
    }

    /// Returns true if a stretch of results ends at this time.
    pub(crate) fn ends_stretch(&self, now_ns: u64) -> bool {
        self.stretches.as_ref().is_some_and(|s| s.ends_at(now_ns))
    }

    /// Ends the stretch. `priorities` has the mean cache priority of each class.
    pub(crate) fn end_stretch(&mut self, now_ns: u64, priorities: &[Option<f64>]) {
        if let Some(stretches) = &mut self.stretches {
            stretches.end(now_ns, priorities);
        }
    }

    /// Returns all stretches at the end of the run.
    pub(crate) fn take_stretches(
        &mut self,
        end_ns: u64,
        priorities: &[Option<f64>],
    ) -> Option<Stretches> {
        let stretches = self.stretches.take()?;
        Some(stretches.finish(end_ns, priorities))
    }

    /// Returns all summaries and series at the end of the run.
    pub(crate) fn finish(self, model: &Model) -> (Vec<GroupSummary>, Vec<GroupSeries>) {
        let seconds = Nanos(self.counted_ns).as_secs_f64();
        let has_target = |kind: GroupKind, name: &str| match kind {
            GroupKind::Class => model
                .classes
                .iter()
                .any(|c| c.name == name && c.target.is_some()),
            GroupKind::Volume => model
                .volumes
                .iter()
                .any(|v| v.name == name && model.classes[v.class.index()].target.is_some()),
            _ => model.classes.iter().any(|c| c.target.is_some()),
        };
        let mut summaries = Vec::new();
        let mut series = Vec::new();
        for group in self.groups {
            let mut all = group.total[READS].clone();
            all.merge(&group.total[WRITES]);
            let bytes = group.total_bytes[READS] + group.total_bytes[WRITES];
            let (kind, name) = (group.series.kind, group.series.name.clone());
            let objective = has_target(kind, &name);
            summaries.push(GroupSummary {
                kind,
                reads: DirectionSummary::new(
                    &group.total[READS],
                    group.total_bytes[READS],
                    seconds,
                ),
                writes: DirectionSummary::new(
                    &group.total[WRITES],
                    group.total_bytes[WRITES],
                    seconds,
                ),
                all: DirectionSummary::new(&all, bytes, seconds),
                slo_violation_s: objective.then(|| Nanos(group.violation_ns).as_secs_f64()),
                slo_excess_s: objective.then(|| group.excess * Nanos(self.window_ns).as_secs_f64()),
                name,
            });
            series.push(group.series);
        }
        (summaries, series)
    }
}

impl DirectionSeries {
    fn push(&mut self, latencies: &Histogram, bytes: u64, seconds: f64) {
        let s = latencies.summary();
        let tenth = |us: f64| (us * 10.0).round() / 10.0;
        self.iops.push(tenth(latencies.count() as f64 / seconds));
        self.mib_per_s
            .push(((bytes as f64 / (1u64 << 20) as f64 / seconds) * 1e3).round() / 1e3);
        self.mean_us.push(tenth(s.mean_us));
        self.p50_us.push(tenth(s.p50_us));
        self.p95_us.push(tenth(s.p95_us));
        self.p99_us.push(tenth(s.p99_us));
        self.p999_us.push(tenth(s.p999_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::bucket_of;
    use algo::objective::{CompletedRequests, OverdueRequests, misses};
    use model::SloStatistic;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const WINDOW: u64 = 100 * MS;

    fn one_volume(target: Objective) -> Stats {
        let kinds = [
            GroupKind::Total,
            GroupKind::Tier,
            GroupKind::Class,
            GroupKind::Vm,
            GroupKind::Volume,
        ];
        let group = |kind| Group {
            series: GroupSeries {
                kind,
                ..GroupSeries::default()
            },
            ..Group::default()
        };
        Stats {
            window_ns: WINDOW,
            warmup_ns: 0,
            volumes: 1,
            live: WindowHistograms::new(4),
            tiers_of: vec![1],
            on_devices: 2,
            stretches: None,
            intervals: None,
            injected_ns: vec![0; 2],
            issued: vec![(0, 0); 2],
            deferred: DeferredCounts::default(),
            in_flight: vec![0],
            completing: vec![0],
            end_ns: WINDOW,
            depth: vec![Depth::default()],
            loads: vec![Load::default()],
            groups: kinds.map(group).into(),
            class_of: vec![0],
            vm_of: vec![0],
            tiers: 1,
            cache: None,
            appliances: None,
            tells_devices: false,
            classes: 1,
            targets: vec![Some(target)],
            slack: vec![Slack::Unbound],
            waited: vec![(0, 0)],
            over_target: vec![None],
            late: vec![LateWaiting::default()],
            counted_ns: 0,
        }
    }

    /// Returns the judgement of a live manager on the same requests, which it receives as histograms of latencies and
    /// ages.
    fn live(target: Objective, requests: &[(u64, u64)], end: u64) -> bool {
        let (mut answered, mut waiting) = (Histogram::default(), Histogram::default());
        for (arrival, latency) in requests.iter().filter(|r| r.0 < end) {
            let done = arrival + latency;
            if done >= end {
                waiting.record(end - arrival);
            } else if done >= end - WINDOW {
                answered.record(*latency);
            }
        }
        let answered = CompletedRequests::of_buckets(target, answered.buckets(), answered.sum_ns());
        misses(
            target,
            answered,
            OverdueRequests::of_buckets(target, waiting.buckets()),
        )
    }

    proptest! {
        // Times are on a grid, so no histogram bucket contains values on both sides of the objective.
        #[test]
        fn simulated_and_live_violations_are_equal(
            mut requests in prop::collection::vec((0u64..200, 1u64..120), 0..200),
            held in prop::collection::vec(0u64..200, 0..3),
        ) {
            requests.iter_mut().for_each(|r| *r = (r.0 * 5 * MS, r.1 * 5 * MS));
            requests.sort_unstable();
            for statistic in [SloStatistic::P95, SloStatistic::P99] {
                let target = Objective { statistic, latency: Nanos(42 * MS) };
                prop_assert_ne!(bucket_of(40 * MS), bucket_of(42 * MS));
                let mut stats = one_volume(target);
                let mut next = requests.iter().peekable();
                for end in (1..=16).map(|k| k * WINDOW) {
                    while let Some((arrival_ns, latency)) = next.next_if(|r| r.0 < end) {
                        let done = CompletedRequest { arrival_ns: *arrival_ns, at_ns: arrival_ns + latency, bytes: 512 };
                        stats.record(0, 0, READS, done);
                    }
                    // A move holds some requests for ever.
                    let held = held.iter().map(|at| at * 5 * MS).filter(|at| *at < end);
                    let mut all = requests.clone();
                    all.extend(held.clone().map(|at| (at, 1 << 40)));
                    stats.end_window(end, |_| 0, |_| held.clone());
                    let said = *stats.groups[4].series.violating.last().unwrap() > 0;
                    prop_assert_eq!(said, live(target, &all, end), "{:?} at {}", statistic, end);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn time_in_flight_matches_a_list_as_oracle(mut requests in prop::collection::vec((0u64..1_000, 0u64..700), 0..60)) {
            let target = Objective { statistic: SloStatistic::P99, latency: Nanos(MS) };
            let mut stats = one_volume(target);
            requests.iter_mut().for_each(|r| *r = (r.0 * MS, r.1 * MS));
            requests.sort_unstable();
            let mut next = requests.iter().peekable();
            for end in (1..=20).map(|k| k * WINDOW) {
                let start = end - WINDOW;
                while let Some((arrival_ns, latency)) = next.next_if(|r| r.0 < end) {
                    let done = CompletedRequest { arrival_ns: *arrival_ns, at_ns: arrival_ns + latency, bytes: 512 };
                    stats.record(0, 0, READS, done);
                }
                stats.end_window(end, |_| 0, |_| std::iter::empty());
                let want: u64 = requests
                    .iter()
                    .map(|(at, more)| (at + more).min(end).saturating_sub((*at).max(start)))
                    .sum();
                prop_assert_eq!(stats.take_load(0).depth_ns, want);
            }
        }
    }

    #[test]
    fn hanging_device_violates_the_objective_in_each_window() {
        let target = Objective {
            statistic: SloStatistic::P99,
            latency: Nanos(2 * MS),
        };
        let mut stats = one_volume(target);
        let stuck = CompletedRequest {
            arrival_ns: WINDOW + MS,
            at_ns: 4 * WINDOW + 50 * MS,
            bytes: 512,
        };
        for end in (1..=6).map(|k| k * WINDOW) {
            if end == 2 * WINDOW {
                stats.record(0, 0, READS, stuck);
            }
            stats.end_window(end, |_| 0, |_| std::iter::empty());
        }
        // The request completes late, in the fifth window.
        assert_eq!(stats.groups[4].series.violating, [0, 1, 1, 1, 1, 0]);
    }
}
