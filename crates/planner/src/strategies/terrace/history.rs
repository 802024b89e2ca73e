//! What is known of a volume: its load, epoch by epoch, since it last changed.

use std::sync::LazyLock;

use model::{DeviceSpec, Facts, Flow, LatencySummary, Measured, Op, SloStatistic, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::day::Day;
use super::latency::{Latency, Load, Use, Wait};
use super::learned::{DeviceNow, Learned};
use super::residuals::Cell;

/// Epochs that are kept.
pub(super) const EPOCHS: usize = 16;
/// A load that differs by this share from what it was ...
const CHANGE: f64 = 0.25;
/// ... for so many epochs has changed.
const CHANGE_EPOCHS: usize = 3;
/// Requests per second below which a load does not change.
const CHANGE_IOPS_MIN: f64 = 5.0;
/// Whose load turned round this often within [`TURNS_WITHIN`] takes turns: what it did before goes on counting.
const TURNS: usize = 2;
/// Monitor epochs.
const TURNS_WITHIN: u64 = 80;
/// Use of a device from which who waits for it may ask for more than it gets.
const FULL: f64 = 0.93;
/// Use of a device up to which latencies say what it is, and not who waits for it.
pub(super) const CALM: f64 = 0.9;
/// What an epoch on a full device leaves of what was known of a volume's demand.
const DEMAND_KEEPS: f64 = 0.99;
/// Monitor epochs after a move in which a load changes for that.
const AFTER_MOVE: u64 = 4;
/// Requests in flight of a volume that never had to wait.
pub(super) const DEPTH_MIN: f64 = 3.0;
/// Share of its requests in flight below which a volume is not held up by their number.
const DEPTH_USED: f64 = 0.8;
/// Requests in flight from which a volume on a full device is held up, however many it once had.
const DEPTH_HELD: f64 = 16.0;
/// A volume on a full device, of which nothing else is known, is taken to ask for more than it gets by this power of how much slower its
/// answers are than those of the idle device ...
const HIDDEN_POWER: f64 = 0.3;
/// ... and at most by this factor.
const HIDDEN_MAX: f64 = 12.0;
/// Requests from which an epoch says something about latency.
pub(super) const REQUESTS_MIN: u64 = 20;
/// Epochs of which it is kept how many of its own requests one waited behind.
const QUEUES: usize = 5;
/// What an epoch keeps of how a volume differs from what the model says.
const DIFFERS_KEEPS: f64 = 0.7;

/// One monitor epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Its number.
    pub epoch: u64,
    /// Requests per second, reads and writes.
    pub iops: [f64; 2],
    /// Their mean bytes.
    pub bytes: [f64; 2],
    /// The objective's statistic, microseconds; none for an idle volume, and where percentiles are not known.
    pub stat_us: Option<f64>,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// Requests in flight, on average.
    pub outstanding: f64,
    /// Whether its device was full and it had as much in flight as it ever has: then it may have asked for more than it got.
    pub held_up: bool,
    /// Whether a copy was going on on its device, or it was on another one, or others were on it: what it is like here now is not known by it.
    pub disturbed: bool,
}

impl Sample {
    /// What was measured; what it means is not known yet.
    pub(super) fn of(epoch: u64, m: &Measured) -> Self {
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

/// A move that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Planned {
    at: Nanos,
    /// The device that it is from, and the one that it is for.
    from: String,
    to: String,
    /// Mean latency that was predicted, and what predictions are like it.
    predicted: Option<(f64, Cell)>,
    /// Whether it was seen to have come true, or not.
    seen: bool,
    /// Whether it made room for another volume.
    makes_room: bool,
}

/// A move as it is asked for.
pub(super) struct Order<'a> {
    pub at: Nanos,
    pub from: &'a str,
    pub to: &'a str,
    pub predicted: Option<(f64, Cell)>,
    /// Whether it makes room for another volume.
    pub makes_room: bool,
}

impl Planned {
    /// Whether the volume has been where it was to go for all of the epoch that has just ended.
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
    /// In order of time.
    pub samples: Vec<Sample>,
    /// Its load by hour of the day.
    pub day: Day,
    /// Epochs at which its load changed and whether it rose, newest last.
    changes: Vec<(u64, bool)>,
    /// Requests per second that it would make where nothing is full, as far as is known.
    demand: f64,
    /// Whether it was ever seen where nothing was full.
    seen_free: bool,
    /// Requests that it keeps in flight where it has to wait.
    depth: f64,
    /// Logarithms of measured over modelled, where its device was calm: of the mean, and of the objective's statistic over the mean.
    differs: Option<(f64, f64)>,
    /// Its own requests that one of them waited behind, on average, in epochs of late.
    queues: Vec<f64>,
    /// The device that it was on.
    device: String,
    /// The device that the operator, a pin or the initial placement chose last.
    original: String,
    planned: Option<Planned>,
    /// Devices that moves took it from, and when, oldest first.
    left: Vec<(Nanos, String)>,
}

/// Shares of requests that take longer than the known quantiles.
const ABOVE: [f64; 5] = [0.95, 0.5, 0.05, 0.01, 0.001];
/// Logarithms of each of them but the last, and of the next one over it.
static ABOVE_LN: LazyLock<[(f64, f64); 4]> = LazyLock::new(|| {
    let ln = |i: usize| (libm::log(ABOVE[i]), libm::log(ABOVE[i + 1] / ABOVE[i]));
    std::array::from_fn(ln)
});

/// Latencies of which some quantiles are known; logarithms are interpolated.
struct Quantiles {
    us: [f64; 5],
    /// Logarithms of each over the one before.
    steps_ln: [f64; 4],
}

impl Quantiles {
    fn of(l: &LatencySummary) -> Self {
        let (median, p95) = (l.p50_us.max(1e-3), l.p95_us.max(1e-3));
        // Below the median: as far as above it.
        let low = median * median / p95.max(median);
        let us = [low, median, p95, l.p99_us, l.p999_us];
        let step = |i: usize| libm::log(us[i + 1] / us[i]).max(1e-9);
        Self {
            us,
            steps_ln: std::array::from_fn(step),
        }
    }

    /// The share of requests that take longer.
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

/// The objective's statistic of reads and writes together, the mean without an objective; `None` where percentiles are not known.
fn stat_us(m: &Measured, statistic: SloStatistic) -> Option<f64> {
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
    // It lies between those of the two.
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
    /// A copy for one epoch more, with room for that and no more: there is one per volume.
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

    /// The epoch that has just ended, and what its device was like.
    pub(super) fn absorb(
        &mut self,
        facts: &Facts,
        v: &VolumeFacts,
        now: &DeviceNow,
        learned: &mut Learned,
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
            // Others were on its device, then.
            self.samples.iter_mut().for_each(|s| s.disturbed = true);
        }
        let sample = Sample {
            stat_us: stat_us(&m, statistic).filter(|_| m.ios() > 0),
            held_up: full && m.outstanding >= DEPTH_USED * self.depth().min(DEPTH_HELD),
            disturbed: now.disturbed,
            ..Sample::of(facts.epoch, &m)
        };
        let load = sample.load();
        // What it gets where it is not held up is what it asks for; elsewhere it is at least that.
        let slow = now.slower;
        let bare = Latency::of(spec, &load, 0.0, Wait::default()).mean_us * slow;
        let slower = sample.mean_us.unwrap_or(0.0) / bare.max(1e-3);
        let hidden = libm::pow(slower.max(1.0), HIDDEN_POWER).min(HIDDEN_MAX);
        let kept = self.demand * DEMAND_KEEPS;
        self.demand = match (sample.held_up, self.seen_free) {
            (true, false) => (sample.total() * hidden).max(kept),
            (true, true) => sample.total().max(kept),
            // While a copy goes on some of its requests may have been held up elsewhere.
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

    /// What an epoch on a calm device says of how it waits, and of how it differs from the model.
    fn look_at_model(
        &mut self,
        spec: &DeviceSpec,
        statistic: SloStatistic,
        sample: &Sample,
        now: &DeviceNow,
        learned: &mut Learned,
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
        // An unknown percentile is taken to be as modelled.
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

    /// One more epoch. A load that was `expected` at this time of day has not changed. `own_doing` says that a change would be that of a
    /// move, or of a device that was full.
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
        // The median: a burst that is over is no change either.
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
            // Faster or slower answers change what is asked for: no change of the load.
            self.samples.drain(..n - CHANGE_EPOCHS);
            return;
        }
        // While it changes it changes with every look: one change.
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

    /// The first change of each run of changes in one direction, oldest first: one that goes on rising has changed once.
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

    /// A prediction that can be looked at now.
    fn look_at_outcome(
        &mut self,
        facts: &Facts,
        v: &VolumeFacts,
        sample: &Sample,
        known: bool,
        learned: &mut Learned,
    ) {
        let Some(planned) = &mut self.planned else {
            return;
        };
        let here = &facts.topology.device(v.device).name;
        let moving = facts
            .moves
            .iter()
            .any(|m| facts.volumes[m.volume.index()].name == v.name);
        // One that waits for its turn may still begin, until the next plan.
        if *here != planned.to && !moving && facts.placement_due {
            self.planned = None;
            return;
        }
        // A prediction is for the time after the plan: while other moves go on from or to the device, it says nothing.
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
        self.planned = Some(Planned {
            at,
            from: from.into(),
            to: to.into(),
            predicted,
            seen: false,
            makes_room,
        });
    }

    /// Devices that moves since then took it from.
    pub(super) fn left(&self, since: Nanos) -> impl Iterator<Item = &str> {
        let left = self.left.iter().filter(move |(at, _)| *at >= since);
        left.map(|(_, device)| device.as_str())
    }

    /// The device that the operator, a pin or the initial placement chose last; none for what was never measured.
    pub(super) fn original(&self) -> Option<&str> {
        Some(self.original.as_str()).filter(|name| !name.is_empty())
    }

    /// Whether its last move made room for another volume.
    pub(super) fn made_room(&self) -> bool {
        self.planned.as_ref().is_some_and(|p| p.makes_room)
    }

    /// When its load last changed, if that is known, the first of changes in one direction; and if it is no load that takes turns: then the next one is no news.
    pub(super) fn changed(&self) -> Option<u64> {
        match self.turns().len() > TURNS {
            true => None,
            false => self.turns().last().copied(),
        }
    }

    /// What was measured in an epoch, if it is the newest one.
    pub(super) fn newest_of(&self, epoch: u64) -> Option<&Sample> {
        self.samples.last().filter(|s| s.epoch == epoch)
    }

    /// The device that it was on in the newest epoch.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Its own requests that one of them waits behind, as far as is known.
    pub(super) fn queue(&self) -> Option<f64> {
        // The median: a burst in which its device is full says nothing of another device.
        let mut queues = self.queues.clone();
        queues.sort_by(f64::total_cmp);
        queues.get((queues.len().max(1) - 1) / 2).copied()
    }

    /// How it differs from the model where nothing is full: logarithms of factors of the mean, and of the objective's statistic over the mean.
    pub(super) fn differs(&self) -> (f64, f64) {
        self.differs.unwrap_or_default()
    }

    /// What it would ask for over what it got in an epoch.
    pub(super) fn hidden(&self, s: &Sample) -> f64 {
        match s.held_up && s.total() > 0.0 {
            true => (self.demand / s.total()).clamp(1.0, HIDDEN_MAX),
            false => 1.0,
        }
    }

    /// Requests in flight at most, as far as is known.
    pub(super) fn depth(&self) -> f64 {
        self.depth.max(DEPTH_MIN)
    }

    /// When its last move was asked for, if that came to be, and where it came from.
    pub(super) fn sent(&self) -> Option<(Nanos, &str)> {
        self.planned.as_ref().map(|p| (p.at, p.from.as_str()))
    }
}
