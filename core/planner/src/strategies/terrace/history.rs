//! History of a volume: its load by epoch since the last change.

use std::sync::LazyLock;

use model::{DeviceSpec, Facts, Flow, LatencySummary, MeasuredLoad, Op, SloStatistic, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::day::Day;
use super::latency::{Latency, Load, Use, Wait};
use super::learned::{DeviceNow, LearnedValues};
use super::residuals::Cell;

/// Largest number of epochs in a history.
pub(super) const EPOCHS: usize = 16;
/// Share by which a load must differ from its usual value ...
const CHANGE: f64 = 0.25;
/// ... for this number of epochs to count as changed.
const CHANGE_EPOCHS: usize = 3;
/// Requests per second below which a load does not change.
const CHANGE_IOPS_MIN: f64 = 5.0;
/// Number of reversals of a load within [`TURNS_WITHIN`] above which it alternates: earlier epochs then continue to count.
const TURNS: usize = 2;
/// Period in which reversals are counted, monitor epochs.
const TURNS_WITHIN: u64 = 80;
/// Use of a device from which closed-loop volumes may demand more than they get.
const FULL: f64 = 0.93;
/// Use of a device up to which latencies describe the device and not its queue.
pub(super) const CALM: f64 = 0.9;
/// Weight that the known demand of a volume keeps after an epoch on a full device.
const DEMAND_KEEPS: f64 = 0.99;
/// Number of monitor epochs after a move in which the move counts as the cause of a change of load.
const AFTER_MOVE: u64 = 4;
/// Smallest assumed number of requests in flight, for a volume that never had to wait.
pub(super) const DEPTH_MIN: f64 = 3.0;
/// Share of its requests in flight below which a volume is not limited by their number.
const DEPTH_USED: f64 = 0.8;
/// Requests in flight from which a volume on a full device counts as held up, however many it had before.
const DEPTH_HELD: f64 = 16.0;
/// Exponent for the hidden demand of a volume on a full device without other knowledge: its demand exceeds its rate by this
/// power of its slowdown against the idle device ...
const HIDDEN_POWER: f64 = 0.3;
/// ... and at most by this factor.
const HIDDEN_MAX: f64 = 12.0;
/// Smallest number of requests in an epoch whose latency counts.
pub(super) const REQUESTS_MIN: u64 = 20;
/// Number of epochs with stored queue lengths (own requests that one request waited behind).
const QUEUES: usize = 5;
/// Weight that a volume's known deviation from the model keeps after one more epoch.
const DIFFERS_KEEPS: f64 = 0.7;

/// Measurements of one monitor epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Number of the epoch.
    pub epoch: u64,
    /// Requests per second, reads and writes.
    pub iops: [f64; 2],
    /// Mean bytes of reads and writes.
    pub bytes: [f64; 2],
    /// Statistic of the objective, microseconds; `None` for an idle volume, and without known percentiles.
    pub stat_us: Option<f64>,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// Requests in flight, on average.
    pub outstanding: f64,
    /// True if the device was full and the volume had as many requests in flight as ever: its demand may exceed its rate.
    pub held_up: bool,
    /// True if the sample does not describe the volume on its present device: a copy ran on the device, the volume was on
    /// another one, or other volumes have changed.
    pub disturbed: bool,
}

impl Sample {
    /// Returns the measured values, without an interpretation.
    pub(super) fn of(epoch: u64, m: &MeasuredLoad) -> Self {
        let seconds = m.window.as_secs_f64();
        Self {
            epoch,
            iops: [m.reads.ios as f64 / seconds, m.writes.ios as f64 / seconds],
            bytes: [m.mean_bytes(Op::Read), m.mean_bytes(Op::Write)],
            stat_us: None,
            mean_us: m.latency_mean_us(),
            outstanding: m.outstanding,
            held_up: false,
            disturbed: false,
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.iops[0] + self.iops[1]
    }

    pub(super) fn load(&self) -> Load {
        Load {
            iops: self.iops,
            bytes: self.bytes,
        }
    }
}

/// Ordered move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OrderedMove {
    at: Nanos,
    /// Source device.
    from: String,
    to: String,
    /// Predicted mean latency, and the cell of similar predictions.
    predicted: Option<(f64, Cell)>,
    /// True if the outcome was compared with the prediction.
    seen: bool,
    /// True if the move made room for another volume.
    makes_room: bool,
}

/// Order of a move.
pub(super) struct Order<'a> {
    pub at: Nanos,
    pub from: &'a str,
    pub to: &'a str,
    pub predicted: Option<(f64, Cell)>,
    /// True if the move makes room for another volume.
    pub makes_room: bool,
}

impl OrderedMove {
    /// Returns true if the volume was on its target for all of the last epoch.
    fn made(&self, facts: &Facts, v: &VolumeFacts) -> bool {
        let here = &facts.topology.device(v.device).name;
        let window = v.measured.map_or(Nanos::ZERO, |m| m.window);
        let since = v.last_moved.filter(|at| *at >= self.at);
        *here == self.to && since.is_some_and(|at| at + window <= facts.at)
    }
}

/// A volume's history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct History {
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Load by hour of the day.
    pub day: Day,
    /// Epochs of changes of load, newest last, with true for a rise.
    changes: Vec<(u64, bool)>,
    /// Requests per second that the volume would issue without any full device, as far as known.
    demand: f64,
    /// True if it was measured without a full device.
    seen_free: bool,
    /// Requests that it keeps in flight when it has to wait.
    depth: f64,
    /// Logarithms of measured over modelled values on a calm device: of the mean, and of the objective's statistic over the
    /// mean.
    differs: Option<(f64, f64)>,
    /// Number of its own requests that one request waited behind, on average, in recent epochs.
    queues: Vec<f64>,
    /// Device in the last epoch.
    device: String,
    /// Device that the operator, a pin or the initial placement chose last.
    original: String,
    planned: Option<OrderedMove>,
    /// Devices that moves took it from, with the times, oldest first.
    left: Vec<(Nanos, String)>,
}

/// Shares of requests that take longer than the known quantiles.
const ABOVE: [f64; 5] = [0.95, 0.5, 0.05, 0.01, 0.001];
/// Logarithms of each share but the last, and of the next share over it.
static ABOVE_LN: LazyLock<[(f64, f64); 4]> = LazyLock::new(|| {
    let ln = |i: usize| (libm::log(ABOVE[i]), libm::log(ABOVE[i + 1] / ABOVE[i]));
    std::array::from_fn(ln)
});

/// Latency distribution by some quantiles; logarithms are interpolated.
struct Quantiles {
    us: [f64; 5],
    /// Logarithms of each quantile over the previous one.
    steps_ln: [f64; 4],
}

impl Quantiles {
    fn of(l: &LatencySummary) -> Self {
        let (median, p95) = (l.p50_us.max(1e-3), l.p95_us.max(1e-3));
        // Below the median, the distribution is assumed to be symmetric.
        let low = median * median / p95.max(median);
        let us = [low, median, p95, l.p99_us, l.p999_us];
        let step = |i: usize| libm::log(us[i + 1] / us[i]).max(1e-9);
        Self {
            us,
            steps_ln: std::array::from_fn(step),
        }
    }

    /// Returns the share of requests with a longer latency.
    fn share_above(&self, us: f64) -> f64 {
        if us < self.us[0] {
            return 1.0;
        }
        let Some(i) = (0..4).find(|i| us < self.us[i + 1]) else {
            return 0.0;
        };
        let at = libm::log(us / self.us[i]) / self.steps_ln[i];
        let (from_ln, by_ln) = ABOVE_LN[i];
        libm::exp(from_ln + at.clamp(0.0, 1.0) * by_ln)
    }
}

/// Returns the objective's statistic of reads and writes together, or the mean without an objective; `None` without known
/// percentiles.
fn stat_us(m: &MeasuredLoad, statistic: SloStatistic) -> Option<f64> {
    let mean = m.latency_mean_us()?;
    let (above, of): (f64, fn(&LatencySummary) -> f64) = match statistic {
        SloStatistic::Mean => return Some(mean),
        SloStatistic::P95 => (0.05, |l| l.p95_us),
        SloStatistic::P99 => (0.01, |l| l.p99_us),
    };
    let unknown = |f: &Flow| f.ios > 0 && f.latency.mean_us > 0.0 && of(&f.latency) <= 0.0;
    if unknown(&m.reads) || unknown(&m.writes) {
        return None;
    }
    let reads = m.read_share();
    let (read, write) = (of(&m.reads.latency), of(&m.writes.latency));
    if m.reads.ios == 0 || m.writes.ios == 0 {
        return Some(if m.reads.ios > 0 { read } else { write });
    }
    // The result lies between the statistics of reads and writes.
    let (mut low, mut high) = (read.min(write).max(1e-3), read.max(write).max(1e-3));
    let [of_reads, of_writes] = [&m.reads, &m.writes].map(|f| Quantiles::of(&f.latency));
    for _ in 0..12 {
        let middle = libm::sqrt(low * high);
        let share =
            reads * of_reads.share_above(middle) + (1.0 - reads) * of_writes.share_above(middle);
        match share > above {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(high)
}

impl History {
    /// Returns a copy with space for exactly one more epoch: one exists per volume.
    pub(super) fn continued(&self) -> Self {
        let mut samples = Vec::with_capacity(EPOCHS + 1);
        samples.extend_from_slice(&self.samples);
        Self {
            samples,
            day: self.day.clone(),
            changes: self.changes.clone(),
            queues: self.queues.clone(),
            device: self.device.clone(),
            original: self.original.clone(),
            planned: self.planned.clone(),
            left: self.left.clone(),
            ..*self
        }
    }

    /// Adds the last epoch, with the condition of its device.
    pub(super) fn absorb(
        &mut self,
        facts: &Facts,
        v: &VolumeFacts,
        now: &DeviceNow,
        learned: &mut LearnedValues,
    ) {
        let busy = &now.busy;
        let name = &facts.topology.device(v.device).name;
        if self.device != *name {
            if self.planned.as_ref().is_none_or(|p| p.to != *name) {
                self.original.clone_from(name);
            }
            self.device.clone_from(name);
            self.samples.iter_mut().for_each(|s| s.disturbed = true);
        }
        let Some(m) = v.measured.filter(|_| !v.calibrating) else {
            return;
        };
        if self.samples.last().is_some_and(|s| s.epoch >= facts.epoch) {
            return;
        }
        let target = facts.classes[v.class.index()].target;
        let statistic = target.map_or(SloStatistic::Mean, |t| t.statistic);
        let device = v.device.index();
        let spec = &facts.topology.devices[device].spec;
        let known = m.ios() >= REQUESTS_MIN;
        self.depth = m.outstanding.max(self.depth * DEMAND_KEEPS);
        let full = busy.rho > FULL;
        if !now.disturbed && self.samples.last().is_some_and(|s| s.disturbed) {
            // Other volumes were on its device then.
            self.samples.iter_mut().for_each(|s| s.disturbed = true);
        }
        let sample = Sample {
            stat_us: stat_us(&m, statistic).filter(|_| m.ios() > 0),
            held_up: full && m.outstanding >= DEPTH_USED * self.depth().min(DEPTH_HELD),
            disturbed: now.disturbed,
            ..Sample::of(facts.epoch, &m)
        };
        let load = sample.load();
        // If the volume is not held up, its demand is its rate; otherwise its demand is at least its rate.
        let slow = now.slower;
        let bare = Latency::of(spec, &load, 0.0, Wait::default()).mean_us * slow;
        let slower = sample.mean_us.unwrap_or(0.0) / bare.max(1e-3);
        let hidden = libm::pow(slower.max(1.0), HIDDEN_POWER).min(HIDDEN_MAX);
        let kept = self.demand * DEMAND_KEEPS;
        self.demand = match (sample.held_up, self.seen_free) {
            (true, false) => (sample.total() * hidden).max(kept),
            (true, true) => sample.total().max(kept),
            // During a copy, some of its requests may have been held up on another device.
            (false, _) if now.disturbed => sample.total().max(kept),
            (false, _) => sample.total(),
        };
        self.seen_free |= !full && known && !now.disturbed;
        let moved = v
            .last_moved
            .is_some_and(|at| facts.at.saturating_sub(at).0 <= AFTER_MOVE * m.window.0);
        let own_doing = moved || full || self.samples.iter().any(|s| s.held_up);
        if known && !sample.disturbed && busy.rho < CALM {
            self.look_at_model(spec, statistic, &sample, now, learned);
        }
        let expected = self.day.expected(facts.at, sample.total());
        self.day.add(facts.at, &sample, self.hidden(&sample));
        self.push(sample, expected, own_doing);
        self.look_at_outcome(facts, v, &sample, known, learned);
    }

    /// Learns from an epoch on a calm device: the waiting of its requests, and its deviation from the model.
    fn look_at_model(
        &mut self,
        spec: &DeviceSpec,
        statistic: SloStatistic,
        sample: &Sample,
        now: &DeviceNow,
        learned: &mut LearnedValues,
    ) {
        let Some(mean) = sample.mean_us.filter(|us| *us > 0.0) else {
            return;
        };
        let (busy, load) = (&now.busy, sample.load());
        let own = Use::of(spec, &load, self.depth(), now.usage);
        let plain = Latency::of(spec, &load, busy.rho, Wait::default()).mean_us;
        let waits_s = (mean / now.slower - plain) * 1e-6;
        self.queues.push(learned.waited(busy, &own, waits_s));
        if self.queues.len() > QUEUES {
            self.queues.remove(0);
        }
        let wait = busy.wait(&own, &learned.arrivals(self.queue()));
        let modelled = Latency::of(spec, &load, busy.rho, wait);
        let of_mean = libm::log(mean / (modelled.mean_us * now.slower));
        // An unknown percentile is assumed to be as modelled.
        let of_stat = sample.stat_us.map_or(0.0, |stat| {
            libm::log(stat / mean) - modelled.ratio_ln(statistic)
        });
        let seen = (of_mean.clamp(-1.0, 1.0), of_stat.clamp(-1.0, 1.0));
        let kept = |before: f64, seen: f64| DIFFERS_KEEPS * before + (1.0 - DIFFERS_KEEPS) * seen;
        self.differs = Some(match self.differs {
            Some(before) => (kept(before.0, seen.0), kept(before.1, seen.1)),
            None => seen,
        });
    }

    /// Adds a sample. A load that is `expected` at this time of day has not changed. With `own_doing`, a move or a full
    /// device counts as the cause of a change.
    pub(super) fn push(&mut self, sample: Sample, expected: bool, own_doing: bool) {
        self.samples.push(sample);
        if !expected {
            self.look_for_change(sample.epoch, own_doing);
        }
        if self.samples.len() > EPOCHS {
            self.samples.remove(0);
        }
    }

    fn look_for_change(&mut self, epoch: u64, own_doing: bool) {
        let n = self.samples.len();
        if n < CHANGE_EPOCHS + 2 {
            return;
        }
        let (before, after) = self.samples.split_at(n - CHANGE_EPOCHS);
        let mut rates: Vec<f64> = before.iter().map(Sample::total).collect();
        rates.sort_by(f64::total_cmp);
        // The median: a past burst is no change.
        let usual = rates[rates.len() / 2];
        let differs = |s: &Sample| {
            let by = s.total() - usual;
            (by.abs() > CHANGE * usual.max(s.total()) && by.abs() > CHANGE_IOPS_MIN)
                .then_some(by > 0.0)
        };
        let first = differs(&after[0]);
        if first.is_none() || after.iter().any(|s| differs(s) != first) {
            return;
        }
        if own_doing {
            // Faster or slower responses change the rate of requests; the load has not changed.
            self.samples.drain(..n - CHANGE_EPOCHS);
            return;
        }
        // A long change is found in several epochs; it counts once.
        let rose = first == Some(true);
        let last = self.changes.last();
        if last.is_none_or(|c| epoch - c.0 > CHANGE_EPOCHS as u64 || c.1 != rose) {
            self.changes.push((epoch, rose));
        }
        self.changes.retain(|c| epoch - c.0 <= TURNS_WITHIN);
        if self.turns().len() <= TURNS {
            self.samples.drain(..n - CHANGE_EPOCHS);
        }
    }

    /// Returns the first change of each run of changes in one direction, oldest first: a load that keeps rising has changed
    /// once.
    fn turns(&self) -> Vec<u64> {
        let mut turns = vec![];
        let mut rose = None;
        for (epoch, up) in &self.changes {
            if rose != Some(*up) {
                turns.push(*epoch);
            }
            rose = Some(*up);
        }
        turns
    }

    /// Compares a prediction with its outcome, if that is known now.
    fn look_at_outcome(
        &mut self,
        facts: &Facts,
        v: &VolumeFacts,
        sample: &Sample,
        known: bool,
        learned: &mut LearnedValues,
    ) {
        let Some(planned) = &mut self.planned else {
            return;
        };
        let here = &facts.topology.device(v.device).name;
        let moving = facts
            .moves
            .iter()
            .any(|m| facts.volumes[m.volume.index()].name == v.name);
        // A move that waits for its turn may still begin, until the next plan.
        if *here != planned.to && !moving && facts.placement_due {
            self.planned = None;
            return;
        }
        // A prediction is for the time after the plan. During other moves from or to the device, it cannot be compared.
        if !planned.made(facts, v) || planned.seen || sample.disturbed {
            return;
        }
        planned.seen = true;
        if known {
            learned.landed.note(here, sample);
        }
        if let (Some((predicted, cell)), Some(observed)) = (&planned.predicted, sample.mean_us)
            && known
            && observed > 0.0
        {
            learned.outcome(libm::log(observed / predicted), cell);
        }
    }

    /// Records an ordered move, and forgets the devices that the volume left before `since`.
    pub(super) fn planned(&mut self, order: Order<'_>, since: Nanos) {
        let Order {
            at,
            from,
            to,
            predicted,
            makes_room,
        } = order;
        self.left.retain(|(at, _)| *at >= since);
        self.left.push((at, from.into()));
        self.planned = Some(OrderedMove {
            at,
            from: from.into(),
            to: to.into(),
            predicted,
            seen: false,
            makes_room,
        });
    }

    /// Returns the devices that moves since `since` took it from.
    pub(super) fn left(&self, since: Nanos) -> impl Iterator<Item = &str> {
        let left = self.left.iter().filter(move |(at, _)| *at >= since);
        left.map(|(_, device)| device.as_str())
    }

    /// Returns the device that the operator, a pin or the initial placement chose last; `None` for a volume without
    /// measurements.
    pub(super) fn original(&self) -> Option<&str> {
        Some(self.original.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns true if its last move made room for another volume.
    pub(super) fn made_room(&self) -> bool {
        self.planned.as_ref().is_some_and(|p| p.makes_room)
    }

    /// Returns the epoch of its last change of load, the first of a run in one direction; `None` if unknown or if the load
    /// alternates, because its next change is then usual.
    pub(super) fn changed(&self) -> Option<u64> {
        match self.turns().len() > TURNS {
            true => None,
            false => self.turns().last().copied(),
        }
    }

    /// Returns the sample of an epoch, if it is the newest one.
    pub(super) fn newest_of(&self, epoch: u64) -> Option<&Sample> {
        self.samples.last().filter(|s| s.epoch == epoch)
    }

    /// Returns the device in the newest epoch.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Returns the number of its own requests that one request waits behind, if known.
    pub(super) fn queue(&self) -> Option<f64> {
        // The median: a burst that fills its device does not describe other devices.
        let mut queues = self.queues.clone();
        queues.sort_by(f64::total_cmp);
        queues.get((queues.len().max(1) - 1) / 2).copied()
    }

    /// Returns its deviation from the model without full devices: logarithms of factors of the mean, and of the objective's
    /// statistic over the mean.
    pub(super) fn differs(&self) -> (f64, f64) {
        self.differs.unwrap_or_default()
    }

    /// Returns its demand over its rate in an epoch.
    pub(super) fn hidden(&self, s: &Sample) -> f64 {
        match s.held_up && s.total() > 0.0 {
            true => (self.demand / s.total()).clamp(1.0, HIDDEN_MAX),
            false => 1.0,
        }
    }

    /// Returns the largest known number of requests in flight.
    pub(super) fn depth(&self) -> f64 {
        self.depth.max(DEPTH_MIN)
    }

    /// Returns the order time and the source of its last move, unless that never began.
    pub(super) fn sent(&self) -> Option<(Nanos, &str)> {
        self.planned.as_ref().map(|p| (p.at, p.from.as_str()))
    }
}
