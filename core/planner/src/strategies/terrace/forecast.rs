//! Forecast of loads and violations, from measurements of volumes and devices: for any volumes on any device.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use model::{DeviceSpec, Facts, SloClass, SloStatistic};

use super::TerraceConfig;
use super::floor::Floors;
use super::history::{EPOCHS, History, REQUESTS_MIN, Sample};
use super::latency::{Arrivals, DeviceLoad, Latency, Load, Use};
use super::learned::LearnedValues;
use super::patterns::Patterns;
use super::rates::{Aim, Cost, Part};

/// Largest deviation of a volume's measurements from the model on its present device: a factor.
const HERE_MAX: f64 = 5.0;
/// Squared variation up to which every percentile rises with it.
const CV2_RISES: f64 = 10.0;
/// Requests per second below which a volume counts as silent.
const SURGE_IOPS_MIN: f64 = 1.0;

/// Volume in the epochs of one pattern.
#[derive(Debug, Clone, Copy, Default)]
struct TypicalLoad {
    /// Demand of the volume.
    load: Load,
    /// Mean and the objective's statistic, if known, on its present device, microseconds; `None` without measurements free
    /// of copies.
    here: Option<(f64, Option<f64>)>,
    /// Measured over modelled on its present device: a factor of the mean, and the logarithm of a factor of the statistic
    /// over the mean.
    differs_here: Option<(f64, f64)>,
    /// True if its present device is full.
    full_here: bool,
}

/// Prediction for a volume next to others on a device: its cost, its latency, the deviation of the objective's statistic
/// from the latency's variation (logarithm of a factor), and the spread of both.
#[derive(Debug, Clone, Copy)]
pub(super) struct DevicePrediction {
    pub cost: Cost,
    pub latency: Latency,
    pub of_stat_ln: f64,
    pub sigma: f64,
    /// Demanded share of the device's time.
    pub rho: f64,
}

/// Returns the distinct specifications of devices, and the kind of each device.
fn kinds(facts: &Facts) -> (Vec<&DeviceSpec>, Vec<usize>) {
    let mut specs: Vec<&DeviceSpec> = vec![];
    let mut kind = |spec| match specs.iter().position(|s| *s == spec) {
        Some(kind) => kind,
        None => {
            specs.push(spec);
            specs.len() - 1
        }
    };
    let devices = facts.topology.devices.iter();
    let kinds = devices.map(|d| kind(&d.spec)).collect();
    (specs, kinds)
}

/// Forecast from the history of an array.
pub(super) struct Forecast<'a> {
    pub(super) facts: &'a Facts,
    histories: &'a [&'a History],
    config: &'a TerraceConfig,
    /// Measured over modelled latency by device; `factors` has measured over predicted use.
    pub(super) slower: Vec<f64>,
    pub(super) factors: Vec<f64>,
    /// Arrivals of requests by volume; `differs` has each volume's deviation from the model on other devices, as in
    /// [`TypicalLoad::differs_here`].
    arrivals: Vec<Arrivals>,
    differs: Vec<(f64, f64)>,
    /// Objectives by class.
    aims: Vec<Aim>,
    /// Kind of each device: devices of one kind have the same specification.
    kinds: Vec<usize>,
    /// Spread of predictions for other devices.
    pub(super) sigma_there: f64,
    /// Patterns of the hours of the day, if any load repeats, and of the epochs of the history.
    pub(super) patterns: Patterns,
    /// Typical values by volume and pattern.
    typical: Vec<TypicalLoad>,
    /// Use of a device by its specification, by volume, kind and pattern.
    uses: Vec<Use>,
    /// Use by volume and kind, mean over the epochs; `surge_uses` has the use in a surge.
    mean_uses: Vec<Use>,
    surge_uses: Vec<Use>,
    /// Demand of volumes in a surge; zero without objectives.
    surges: Vec<Load>,
    /// Mean latency with every volume at its original place, by volume and pattern, microseconds; 0 for volumes without a limit of slowdown.
    reference_us: Vec<f64>,
    /// Measured limits of predictions for other devices.
    pub(super) floors: Floors,
}

impl<'a> Forecast<'a> {
    pub(super) fn new(
        facts: &'a Facts,
        histories: &'a [&'a History],
        learned: &LearnedValues,
        config: &'a TerraceConfig,
    ) -> Self {
        let devices = 0..facts.topology.devices.len();
        let known = config.has(Part::Devices);
        let usage = |d| if known { learned.usage(facts, d) } else { 1.0 };
        let slower = |d| {
            if known {
                learned.latency(facts, d)
            } else {
                1.0
            }
        };
        let hidden = |h: &History, s: &Sample| match config.has(Part::Demand) {
            true => h.hidden(s),
            false => 1.0,
        };
        let last = facts.epoch;
        let first = (last + 1).saturating_sub(EPOCHS as u64);
        // Hours of the day come first, if any load repeats every day. Loads that do not repeat are assumed to stay as they
        // are now.
        let days: Vec<Vec<Option<Sample>>> = histories.iter().map(|h| h.day.samples()).collect();
        let hours = days.iter().map(Vec::len).max().unwrap_or(0);
        // Epochs before a change count as the first epoch after it: only the continuing load matters.
        fn samples<'s>(
            (h, day): (&&'s History, &'s Vec<Option<Sample>>),
            hours: usize,
            epochs: RangeInclusive<u64>,
        ) -> Vec<Option<&'s Sample>> {
            let (oldest, newest) = (h.samples.first(), h.samples.last());
            let at = |e: u64| h.samples.iter().find(|s| s.epoch == e).or(oldest);
            let by_hour = (0..hours).map(|hour| {
                let known = day.get(hour).and_then(Option::as_ref);
                known.or(newest)
            });
            by_hour.chain(epochs.map(at)).collect()
        }
        let each = histories.iter().zip(&days);
        let samples: Vec<_> = each.map(|of| samples(of, hours, first..=last)).collect();
        let factors: Vec<f64> = devices.clone().map(usage).collect();
        let (specs, kinds) = kinds(facts);
        let at: Vec<usize> = facts.volumes.iter().map(|v| v.device.index()).collect();
        let used = |e: usize| {
            let of = histories.iter().zip(&samples).zip(&at);
            let share = |((h, own), d): ((&&History, &Vec<Option<&Sample>>), &usize)| {
                own[e].map_or(0.0, |s| {
                    let spec = &facts.topology.devices[*d].spec;
                    hidden(h, s) * Use::of(spec, &s.load(), h.depth(), factors[*d]).share
                })
            };
            of.map(share).collect()
        };
        let uses: Vec<Vec<f64>> = (0..hours + (last - first) as usize + 1).map(used).collect();
        let patterns = match config.has(Part::Patterns) {
            true => Patterns::of(&uses, &at),
            false => Patterns::one(uses.len()),
        };
        let mut typical = Vec::with_capacity(histories.len() * patterns.len());
        let mut uses = Vec::with_capacity(histories.len() * specs.len() * patterns.len());
        for (h, own) in histories.iter().zip(&samples) {
            let from = typical.len();
            typical.extend((0..patterns.len()).map(|p| {
                let of_pattern = own.iter().zip(&patterns.of).filter(|(_, of)| **of == p);
                TypicalLoad::of(|s| hidden(h, s), of_pattern.filter_map(|(s, _)| *s))
            }));
            for spec in &specs {
                let of = |t: &TypicalLoad| Use::of(spec, &t.load, h.depth(), 1.0);
                uses.extend(typical[from..].iter().map(of));
            }
        }
        let mut forecast = Self {
            facts,
            histories,
            config,
            slower: devices.map(slower).collect(),
            factors,
            arrivals: histories
                .iter()
                .map(|h| match config.has(Part::Waits) {
                    true => learned.arrivals(h.queue()),
                    false => Arrivals::at_random(),
                })
                .collect(),
            differs: histories
                .iter()
                .map(|h| match config.has(Part::Volumes) {
                    // Half of the deviation is attributed to the device.
                    true => (libm::exp(h.differs().0 / 2.0), h.differs().1 / 2.0),
                    false => (1.0, 0.0),
                })
                .collect(),
            aims: facts.classes.iter().map(Aim::of).collect(),
            kinds,
            sigma_there: learned.sigma(config.rates.sigma_there),
            patterns,
            typical,
            uses,
            mean_uses: vec![],
            surge_uses: vec![],
            surges: vec![],
            reference_us: vec![],
            floors: Floors::default(),
        };
        forecast.look_ahead(&specs);
        forecast.look_here(learned);
        forecast.reference_us = forecast.at_original_places();
        forecast
    }

    /// Returns the mean latencies of volumes with a limit of slowdown, with every volume at its original place: the
    /// reference of that limit.
    fn at_original_places(&self) -> Vec<f64> {
        let facts = self.facts;
        let mut reference_us = vec![0.0; self.typical.len()];
        let limited = |v: &usize| {
            let class = self.class(*v);
            class.target.is_none() && class.max_slowdown.is_some() && class.weight > 0.0
        };
        if !self.config.has(Part::Harm) || !(0..self.histories.len()).any(|v| limited(&v)) {
            return reference_us;
        }
        let devices = facts.topology.devices.iter().enumerate();
        let named: BTreeMap<&str, usize> = devices.map(|(d, of)| (of.name.as_str(), d)).collect();
        let mut there = vec![vec![]; facts.topology.devices.len()];
        for (v, volume) in facts.volumes.iter().enumerate() {
            let original = self.histories[v].original();
            let original = original.and_then(|name| named.get(name).copied());
            there[original.unwrap_or(volume.device.index())].push(v);
        }
        for (d, volumes) in there.iter().enumerate() {
            let limited: Vec<usize> = volumes.iter().copied().filter(limited).collect();
            for p in (0..self.patterns.len()).filter(|_| !limited.is_empty()) {
                let busy = self.busy(d, p, volumes, 0.0);
                for v in &limited {
                    let us = self
                        .beside(*v, d, p, &busy)
                        .map_or(0.0, |b| b.latency.mean_us);
                    reference_us[v * self.patterns.len() + p] = us;
                }
            }
        }
        reference_us
    }

    /// Returns the mean latency with every volume at its original place; 0 for a volume without a limit of slowdown.
    pub(super) fn reference_us(&self, v: usize, p: usize) -> f64 {
        self.reference_us
            .get(v * self.patterns.len() + p)
            .copied()
            .unwrap_or(0.0)
    }

    /// Returns the requests per second of a volume in a pattern.
    pub(super) fn iops(&self, v: usize, p: usize) -> f64 {
        self.typical[v * self.patterns.len() + p].load.total()
    }

    /// Computes the deviations of volumes from the model on their present devices.
    fn look_here(&mut self, learned: &LearnedValues) {
        let facts = self.facts;
        self.floors = Floors::new(facts.topology.devices.len(), self.patterns.len());
        let bounded = self.config.has(Part::Floor);
        let mut here = vec![vec![]; facts.topology.devices.len()];
        for (v, volume) in facts.volumes.iter().enumerate() {
            here[volume.device.index()].push(v);
        }
        let limit = |x: f64| x.clamp(1.0 / HERE_MAX, HERE_MAX);
        for (d, volumes) in here.iter().enumerate() {
            for p in 0..self.patterns.len() {
                let busy = self.busy(d, p, volumes, 0.0);
                self.floors.see_device(d, p, busy);
                for v in volumes {
                    let wait = busy.wait(&self.use_at(*v, d, p), &self.arrivals[*v]);
                    let target = self.class(*v).target;
                    let statistic = target.map_or(SloStatistic::Mean, |t| t.statistic);
                    let t = &mut self.typical[v * self.patterns.len() + p];
                    let spec = &facts.topology.devices[d].spec;
                    let model = Latency::of(spec, &t.load, busy.rho, wait);
                    let modelled = model.mean_us * self.slower[d];
                    let window = facts.volumes[*v]
                        .measured
                        .map_or(0.0, |m| m.window.as_secs_f64());
                    let enough = t.load.total() * window >= REQUESTS_MIN as f64;
                    if let Some((mean, _)) = t.here.filter(|_| bounded && enough) {
                        let at = (d, p, self.kinds[d]);
                        self.floors.see(at, spec, &t.load, mean, &model);
                    }
                    let measured = t.here.filter(|_| model.mean_us > 0.0);
                    let measured = measured.filter(|_| self.config.has(Part::Volumes));
                    t.differs_here = measured.map(|(mean, stat)| {
                        let of_mean = limit(mean / modelled);
                        let most = libm::log(HERE_MAX);
                        // An unknown percentile is assumed to be as modelled.
                        let of_stat_ln = stat.map_or(0.0, |stat| {
                            libm::log(stat / (modelled * of_mean)) - model.ratio_ln(statistic)
                        });
                        (of_mean, of_stat_ln.clamp(-most, most))
                    });
                    t.full_here = busy.full();
                }
            }
        }
        let devices = &facts.topology.devices;
        self.floors.settle(devices, &learned.landed, facts.epoch);
    }

    /// Computes the demand of volumes in a surge: a multiple of their present demand, and at least the median of volumes
    /// with an objective.
    fn look_ahead(&mut self, specs: &[&DeviceSpec]) {
        let patterns = &self.patterns;
        let mean = |v: usize| {
            let mut load = Load::default();
            let typical = &self.typical[v * patterns.len()..];
            for (share, t) in patterns.share.iter().zip(typical) {
                for d in 0..2 {
                    load.iops[d] += share * t.load.iops[d];
                    load.bytes[d] = load.bytes[d].max(t.load.bytes[d]);
                }
            }
            load
        };
        let means: Vec<Load> = (0..self.histories.len()).map(mean).collect();
        let mut usual: Vec<Load> = (0..means.len())
            .filter(|v| self.class(*v).target.is_some())
            .map(|v| means[v])
            .filter(|load| load.total() >= SURGE_IOPS_MIN)
            .collect();
        usual.sort_by(|a, b| a.total().total_cmp(&b.total()));
        let usual = usual.get(usual.len() / 2).copied().unwrap_or_default();
        let surge = |(v, own): (usize, &Load)| {
            if self.class(v).target.is_none() {
                return Load::default();
            }
            let like = match own.total() >= SURGE_IOPS_MIN {
                true => own,
                false => &usual,
            };
            let total = usual
                .total()
                .max(own.total() * self.config.rates.surge_factor.max(1.0));
            let times = total / like.total().max(1e-9);
            Load {
                iops: like.iops.map(|iops| times * iops),
                bytes: like.bytes,
            }
        };
        self.surges = means.iter().enumerate().map(surge).collect();
        for v in 0..means.len() {
            let depth = self.histories[v].depth();
            for (k, spec) in specs.iter().enumerate() {
                let mut mean = Use::default();
                let of_kind = &self.uses[(v * specs.len() + k) * patterns.len()..];
                for (share, own) in patterns.share.iter().zip(of_kind) {
                    mean = mean.plus(own, *share);
                }
                self.mean_uses.push(mean);
                let surge = Use::of(spec, &self.surges[v], depth, 1.0);
                self.surge_uses.push(surge);
            }
        }
    }

    /// Returns the sum of the violations per second of each volume of a device if it surged by itself. Violations of the
    /// others are not counted.
    pub(super) fn surge_cost(&self, d: usize, volumes: &[usize]) -> f64 {
        let sum = self.mean_sum(d, volumes);
        let without = |v: usize| sum.plus(&self.mean_use(v, d), -1.0);
        volumes
            .iter()
            .map(|v| self.surged(*v, d, without(*v)))
            .sum()
    }

    /// Returns the use of a device by a volume, mean over the epochs.
    pub(super) fn mean_use(&self, v: usize, d: usize) -> Use {
        self.of_kind(&self.mean_uses, v, d)
    }

    /// Returns the sum of the mean uses of these volumes.
    pub(super) fn mean_sum(&self, d: usize, volumes: &[usize]) -> Use {
        let of = |v: &usize| self.mean_use(*v, d);
        volumes
            .iter()
            .fold(Use::default(), |sum, v| sum.plus(&of(v), 1.0))
    }

    /// Returns the violation of a volume that surges next to others with this use.
    pub(super) fn surged(&self, v: usize, d: usize, others: Use) -> f64 {
        let surge = &self.surges[v];
        if surge.total() <= 0.0 {
            return 0.0;
        }
        let others = others.at_least_nothing();
        let own = self.of_kind(&self.surge_uses, v, d);
        let busy = DeviceLoad::of_sum(others.plus(&own, 1.0));
        let wait = busy.wait(&own, &self.arrivals[v]);
        let model = Latency::of(&self.facts.topology.devices[d].spec, surge, busy.rho, wait);
        let (of_mean, of_stat_ln) = self.differs[v];
        let latency = model.times(self.slower[d] * of_mean);
        let (aim, sigma) = (self.aim(v), self.sigma_there);
        let rates = &self.config.rates;
        let cost = rates.cost(aim, &latency, of_stat_ln, sigma, surge.total(), 0.0);
        cost.sum()
    }

    /// Returns an entry of `uses` for a volume and the kind of a device, corrected for the device.
    fn of_kind(&self, uses: &[Use], v: usize, d: usize) -> Use {
        let kinds = uses.len() / self.histories.len();
        uses[v * kinds + self.kinds[d]].on_slower(self.factors[d])
    }

    fn aim(&self, v: usize) -> &Aim {
        &self.aims[self.facts.volumes[v].class.index()]
    }

    /// Returns the bytes of a volume.
    pub(super) fn size(&self, v: usize) -> i128 {
        i128::from(self.facts.volumes[v].size.0)
    }

    pub(super) fn class(&self, v: usize) -> &'a SloClass {
        &self.facts.classes[self.facts.volumes[v].class.index()]
    }

    /// Returns the pattern of the newest epoch.
    pub(super) fn newest(&self) -> usize {
        self.patterns.of.last().copied().unwrap_or(0)
    }

    pub(super) fn use_at(&self, v: usize, d: usize, p: usize) -> Use {
        let kinds = self.uses.len() / self.typical.len();
        let of_kind = self.uses[(v * kinds + self.kinds[d]) * self.patterns.len() + p];
        of_kind.on_slower(self.factors[d])
    }

    /// Returns the use of a device by these volumes in a pattern.
    pub(super) fn sum_at(&self, d: usize, p: usize, volumes: &[usize]) -> Use {
        volumes.iter().fold(Use::default(), |sum, v| {
            sum.plus(&self.use_at(*v, d, p), 1.0)
        })
    }

    /// Returns the load of a device in a pattern with these volumes on it, plus `more` of its time.
    pub(super) fn busy(&self, d: usize, p: usize, volumes: &[usize], more: f64) -> DeviceLoad {
        DeviceLoad::of(volumes.iter().map(|v| self.use_at(*v, d, p)), more)
    }

    /// Returns the cost of a volume per second on a device with this load, and its mean latency.
    pub(super) fn cost(&self, v: usize, d: usize, p: usize, busy: &DeviceLoad) -> (f64, f64) {
        let parts = self.beside(v, d, p, busy);
        parts.map_or((0.0, 0.0), |b| (b.cost.sum(), b.latency.mean_us))
    }

    /// Returns the cost by parts, with the prediction; `None` for a volume without requests.
    pub(super) fn beside(
        &self,
        v: usize,
        d: usize,
        p: usize,
        busy: &DeviceLoad,
    ) -> Option<DevicePrediction> {
        let facts = self.facts;
        let t = &self.typical[v * self.patterns.len() + p];
        let total = t.load.total();
        if total <= 0.0 {
            return None;
        }
        let volume = &facts.volumes[v];
        let spec = &facts.topology.devices[d].spec;
        let own = self.use_at(v, d, p);
        let modelled =
            |b: &DeviceLoad| Latency::of(spec, &t.load, b.rho, b.wait(&own, &self.arrivals[v]));
        let model = modelled(busy);
        let ((of_mean, of_stat_ln), sigma) = self.differs_on(v, d, p, busy.full());
        let mut latency = model.times(self.slower[d] * of_mean);
        if volume.device.index() != d {
            let at = (d, p);
            latency = self
                .floors
                .raised(at, spec, &t.load, latency, &model, modelled);
        }
        let rates = &self.config.rates;
        let most = self.class(v).max_slowdown.unwrap_or(0.0);
        let limit_us = most * self.reference_us(v, p);
        Some(DevicePrediction {
            cost: rates.cost(self.aim(v), &latency, of_stat_ln, sigma, total, limit_us),
            latency,
            of_stat_ln,
            sigma,
            rho: busy.rho,
        })
    }

    /// Returns the deviation of a volume from the model on a device that is full or not, and the spread of predictions
    /// there.
    fn differs_on(&self, v: usize, d: usize, p: usize, full: bool) -> ((f64, f64), f64) {
        let t = &self.typical[v * self.patterns.len() + p];
        // The measured deviation from the model holds only on the volume's own device and in the same regime (queued or not).
        let same = self.facts.volumes[v].device.index() == d && t.full_here == full;
        match t.differs_here.filter(|_| same) {
            Some(here) => (here, self.config.rates.sigma_here),
            None if full => ((1.0, 0.0), self.sigma_there),
            None => (self.differs[v], self.sigma_there),
        }
    }

    /// Returns an upper bound of the probability that a volume violates its objective on its present device, at any use of
    /// the device between these two. For a log-normal distribution, a percentile rises with the mean at equal variance, and
    /// with the variance.
    pub(super) fn violated_at_most(
        &self,
        (v, d, p): (usize, usize, usize),
        least: &DeviceLoad,
        most: &DeviceLoad,
    ) -> f64 {
        let t = &self.typical[v * self.patterns.len() + p];
        let total = t.load.total();
        if total <= 0.0 {
            return 0.0;
        }
        let spec = &self.facts.topology.devices[d].spec;
        let own = self.use_at(v, d, p);
        let model = Latency::largest(spec, &t.load, (least, most), &own, &self.arrivals[v]);
        if most.full() || model.cv2 > CV2_RISES {
            return 1.0;
        }
        let ((of_mean, of_stat_ln), sigma) = self.differs_on(v, d, p, false);
        let latency = model.times(self.slower[d] * of_mean);
        let rates = &self.config.rates;
        let cost = rates.cost(self.aim(v), &latency, of_stat_ln, sigma, total, 0.0);
        cost.violated
    }

    /// Returns the costs of all volumes on a device by pattern, with these volumes on it and `more` of its time in use.
    pub(super) fn device_cost(&self, d: usize, volumes: &[usize], more: f64) -> Vec<f64> {
        (0..self.patterns.len())
            .map(|p| {
                let busy = self.busy(d, p, volumes, more);
                volumes.iter().map(|v| self.cost(*v, d, p, &busy).0).sum()
            })
            .collect()
    }
}

impl TypicalLoad {
    /// Returns the typical values of a volume's samples in a pattern.
    fn of<'s>(
        hidden: impl Fn(&Sample) -> f64,
        samples: impl Iterator<Item = &'s Sample> + Clone,
    ) -> Self {
        let mut typical = Self::default();
        let (mut n, mut bytes) = (0.0, [0.0; 2]);
        for s in samples.clone() {
            n += 1.0;
            let hidden = hidden(s);
            for (d, of_direction) in bytes.iter_mut().enumerate() {
                let asked = hidden * s.iops[d];
                typical.load.iops[d] += asked;
                *of_direction += asked * s.bytes[d];
            }
        }
        if n == 0.0 {
            return typical;
        }
        for (d, bytes) in bytes.into_iter().enumerate() {
            let asked = typical.load.iops[d];
            typical.load.bytes[d] = if asked > 0.0 { bytes / asked } else { 4096.0 };
            typical.load.iops[d] = asked / n;
        }
        let (mut mean, mut stat, mut known) = (0.0, Some(0.0), 0.0);
        for s in samples.filter(|s| !s.disturbed) {
            if let Some(m) = s.mean_us {
                (mean, known) = (mean + m, known + 1.0);
                stat = stat.zip(s.stat_us).map(|(sum, of)| sum + of);
            }
        }
        typical.here = (known > 0.0).then(|| (mean / known, stat.map(|sum| sum / known)));
        typical
    }
}
