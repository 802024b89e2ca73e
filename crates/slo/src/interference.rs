//! Step 2: which workloads disturb one another?
//!
//! Dynamite uses a "statistical correlation between changes in performance metrics" (sec. 5.2) and does not say which. Here:
//!
//! - First differences of the ten-second series. Levels go up and down together through the day alone.
//! - For a pair: the greatest |r| over lags of 0 to 2 samples, of Δrate of one against Δlatency of the other, both ways round,
//!   and of both Δlatencies.
//! - Significance by shifting one workload's series around a circle by every amount: that keeps what each series is like in
//!   itself (its autocorrelation) and goes through the same maximum, so neither needs a formula. Ninety samples have no more
//!   than 85 shifts, too few for the small p-values that many pairs ask for; so a Gumbel distribution, that of maxima, is
//!   fitted to the shifts by its moments, and p is its tail. (Drawing more shifts at random only draws the same ones again.)
//! - Benjamini and Hochberg's step-up over all pairs at 5 % (Journal of the Royal Statistical Society B 57(1), 1995).
//! - Only pairs that share a device, a link or a controller are asked about, where that is known (the paper's footnote 1).
//! - Sets are the connected components.
//!
//! A bare |r| ≥ 0.5 over 30 samples joins every sixth pair of independent white noises, and so thirty workloads into one set.
//!
//! When not to use: with fewer than 60 samples, or where a pair disturbs one another only in their means (no changes to
//! correlate). It says that two disturb one another, not who is to blame.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the test is made of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterferenceConfig {
    /// Changes that are looked at, at most; the latest.
    pub samples: usize,
    /// Fewer changes than this say nothing; at least what leaves twenty shifts.
    pub samples_min: usize,
    /// Greatest lag, samples.
    pub lag_max: usize,
    /// False discoveries that are borne, share of the edges.
    pub false_discovery: f64,
    /// An edge weaker than this is not worth acting on, however significant.
    pub strength_min: f64,
}

impl Default for InterferenceConfig {
    fn default() -> Self {
        Self {
            samples: 90,
            samples_min: 60,
            lag_max: 2,
            false_discovery: 0.05,
            strength_min: 0.3,
        }
    }
}

/// What one workload did, sample by sample, oldest first. Both series of all workloads have one length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Requests per second.
    pub rate: Vec<f64>,
    /// Mean latency, microseconds; where nothing completed, the one before.
    pub latency_us: Vec<f64>,
}

/// One pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The one.
    pub a: usize,
    /// The other, of a higher number.
    pub b: usize,
    /// Greatest |r|, 0..=1.
    pub strength: f64,
    /// Chance of a strength like this between series that have nothing to do with one another.
    pub p: f64,
    /// What was found.
    pub edge: Edge,
}

/// Whether a pair is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// They disturb one another.
    Joined,
    /// Nothing to be seen.
    Apart,
}

/// What was found about all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interference {
    /// Changes that it rests on.
    pub samples: usize,
    /// The pairs that were asked about, in order.
    pub pairs: Vec<Pair>,
    /// Number of each workload's set; sets are numbered by their first member.
    pub set: Vec<usize>,
}

impl Interference {
    /// Whether two are joined by an edge.
    pub fn joined(&self, a: usize, b: usize) -> bool {
        let (a, b) = (a.min(b), a.max(b));
        let mut pairs = self.pairs.iter();
        pairs.any(|p| (p.a, p.b) == (a, b) && p.edge == Edge::Joined)
    }

    /// Everything in the set of `of`, itself included, in order.
    pub fn set_of(&self, of: usize) -> Vec<usize> {
        let all = self.set.iter().enumerate();
        all.filter(|(_, s)| **s == self.set[of])
            .map(|(i, _)| i)
            .collect()
    }
}

/// Looks for interference among `series`. `may` says which pairs share anything.
pub fn interference(
    config: &InterferenceConfig,
    series: &[Series],
    may: impl Fn(usize, usize) -> bool,
) -> Interference {
    let changes: Vec<Changes> = series
        .iter()
        .map(|s| Changes::of(s, config.samples))
        .collect();
    let samples = changes.iter().map(|c| c.rate.len()).min().unwrap_or(0);
    let mut pairs = Vec::new();
    // Fewer shifts than twenty are no distribution.
    let least = 20usize.saturating_add(config.lag_max.saturating_mul(4));
    if samples >= config.samples_min.max(least) {
        for b in 1..series.len() {
            for a in (0..b).filter(|a| may(*a, b)) {
                pairs.push(tested(config, a, b, &changes));
            }
        }
        pairs.sort_by_key(|p| (p.a, p.b));
        step_up(config, &mut pairs);
    }
    let set = components(series.len(), &pairs);
    Interference {
        samples,
        pairs,
        set,
    }
}

/// The strength of one pair alone, without a test: for a series over time (the paper's figure 6b). `None` with too few
/// samples.
pub fn strength(config: &InterferenceConfig, a: &Series, b: &Series) -> Option<f64> {
    let (a, b) = (
        Changes::of(a, config.samples),
        Changes::of(b, config.samples),
    );
    let enough = a.rate.len().min(b.rate.len()) >= config.samples_min.min(config.samples);
    enough.then(|| strongest(&a, &b, 0, config.lag_max))
}

/// First differences with mean 0 and length 1, so that a correlation is a sum of products.
struct Changes {
    rate: Vec<f64>,
    latency: Vec<f64>,
}

impl Changes {
    fn of(series: &Series, samples: usize) -> Self {
        Self {
            rate: unit_differences(&series.rate, samples),
            latency: unit_differences(&series.latency_us, samples),
        }
    }
}

fn unit_differences(values: &[f64], samples: usize) -> Vec<f64> {
    let from = values.len().saturating_sub(samples + 1);
    let mut differences: Vec<f64> = values[from..].windows(2).map(|w| w[1] - w[0]).collect();
    let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
    differences.iter_mut().for_each(|d| *d -= mean);
    let length = differences.iter().map(|d| d * d).sum::<f64>().sqrt();
    // A series that does not change correlates with nothing.
    let scale = if length > 1e-12 { 1.0 / length } else { 0.0 };
    differences.iter_mut().for_each(|d| *d *= scale);
    differences
}

/// Greatest |r| with `b` turned by `shift`, over the lags both ways.
fn strongest(a: &Changes, b: &Changes, shift: usize, lag_max: usize) -> f64 {
    let n = a.rate.len();
    let mut best = 0.0f64;
    for lag in 0..=lag_max.min(n.saturating_sub(1)) {
        for turn in [shift + lag, shift + n - lag] {
            best = best
                .max(turned(&a.rate, &b.latency, turn))
                .max(turned(&a.latency, &b.rate, turn))
                .max(turned(&a.latency, &b.latency, turn));
        }
    }
    best.min(1.0)
}

/// |Σ x(i) · y(i + turn)| around the circle.
fn turned(x: &[f64], y: &[f64], turn: usize) -> f64 {
    let turn = turn % y.len();
    let (front, back) = y.split_at(turn);
    let sum: f64 = x
        .iter()
        .zip(back.iter().chain(front))
        .map(|(x, y)| x * y)
        .sum();
    sum.abs()
}

fn tested(config: &InterferenceConfig, a: usize, b: usize, changes: &[Changes]) -> Pair {
    let (x, y) = (&changes[a], &changes[b]);
    let n = x.rate.len();
    let strength = strongest(x, y, 0, config.lag_max);
    // Shifts within the lags would find the truth again.
    let near = 2 * config.lag_max + 1;
    let shifted = (near..=n - near).map(|shift| scale(strongest(x, y, shift, config.lag_max)));
    let by_chance: Vec<f64> = shifted.collect();
    Pair {
        a,
        b,
        strength,
        p: gumbel_tail(scale(strength), &by_chance),
        edge: Edge::Apart,
    }
}

/// Correlations on a scale without an upper end (Fisher's).
fn scale(r: f64) -> f64 {
    libm::atanh(r.min(0.999_999))
}

/// Chance of `x` or more in the Gumbel distribution with the mean and deviation of `sample`.
fn gumbel_tail(x: f64, sample: &[f64]) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / (n - 1.0);
    if variance < 1e-18 {
        return if x > mean { 0.0 } else { 1.0 };
    }
    let beta = (6.0 * variance).sqrt() / std::f64::consts::PI;
    let z = (x - mean) / beta + EULER;
    -libm::expm1(-libm::exp(-z))
}

/// Benjamini and Hochberg: the greatest k with p(k) ≤ q·k/m; the k least are joined.
fn step_up(config: &InterferenceConfig, pairs: &mut [Pair]) {
    let mut ps: Vec<f64> = pairs.iter().map(|p| p.p).collect();
    ps.sort_by(f64::total_cmp);
    let m = ps.len() as f64;
    let passed = |(k, p): &(usize, &f64)| **p <= config.false_discovery * (*k + 1) as f64 / m;
    let Some((_, limit)) = ps.iter().enumerate().rfind(passed) else {
        return;
    };
    for pair in pairs.iter_mut() {
        if pair.p <= *limit && pair.strength >= config.strength_min {
            pair.edge = Edge::Joined;
        }
    }
}

fn components(n: usize, pairs: &[Pair]) -> Vec<usize> {
    let mut set: Vec<usize> = (0..n).collect();
    // Few workloads and fewer edges: relabelling is plain and quick enough.
    for pair in pairs.iter().filter(|p| p.edge == Edge::Joined) {
        let (low, high) = (set[pair.a].min(set[pair.b]), set[pair.a].max(set[pair.b]));
        set.iter_mut()
            .filter(|s| **s == high)
            .for_each(|s| *s = low);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    /// Noise, white or as a walk with memory.
    fn noise(seed: u64, stream: u64, n: usize, memory: f64) -> Series {
        let mut rng = Rng::new(seed, stream);
        let mut draw = |scale: f64| -> Vec<f64> {
            let mut value = 0.0;
            (0..n)
                .map(|_| {
                    value = memory * value + rng.unit() - 0.5;
                    100.0 + scale * value
                })
                .collect()
        };
        Series {
            rate: draw(50.0),
            latency_us: draw(900.0),
        }
    }

    #[test]
    fn thirty_independent_noises_have_at_most_five_percent_false_edges() {
        for memory in [0.0, 0.8] {
            let (mut edges, mut pairs) = (0, 0);
            for seed in 0..4 {
                let all: Vec<_> = (0..30).map(|i| noise(seed, i, 91, memory)).collect();
                let found = interference(&InterferenceConfig::default(), &all, |_, _| true);
                pairs += found.pairs.len();
                edges += found
                    .pairs
                    .iter()
                    .filter(|p| p.edge == Edge::Joined)
                    .count();
                let largest = (0..30).map(|i| found.set_of(i).len()).max();
                assert!(largest < Some(5), "{largest:?} fused");
            }
            assert_eq!(pairs, 4 * 435);
            assert!(edges * 20 <= pairs, "{edges} of {pairs}");
        }
    }

    #[test]
    fn p_values_of_noise_are_uniform_enough() {
        let all: Vec<_> = (0..30).map(|i| noise(9, i, 91, 0.5)).collect();
        let found = interference(&InterferenceConfig::default(), &all, |_, _| true);
        let below = found.pairs.iter().filter(|p| p.p <= 0.1).count();
        assert!((20..=70).contains(&below), "{below} of 435 at 10 %");
    }

    #[test]
    fn those_that_share_a_queue_are_found_among_those_that_do_not() {
        let mut all: Vec<_> = (0..6).map(|i| noise(3, i, 91, 0.6)).collect();
        // Workload 4 waits for what workload 1 asks for, a sample later.
        for t in 1..91 {
            all[4].latency_us[t] += 60.0 * all[1].rate[t - 1];
        }
        let found = interference(&InterferenceConfig::default(), &all, |_, _| true);
        assert!(found.joined(1, 4), "{found:?}");
        assert_eq!(found.set_of(4), [1, 4]);
        assert_eq!(found.set_of(0), [0]);
    }

    #[test]
    fn a_common_day_does_not_join() {
        // The same slow wave in all levels, with noise of its own in each.
        let mut all: Vec<_> = (0..6).map(|i| noise(5, i, 91, 0.0)).collect();
        for series in &mut all {
            for t in 0..91 {
                let wave = libm::sin(t as f64 / 90.0 * std::f64::consts::PI);
                series.rate[t] += 200.0 * wave;
                series.latency_us[t] += 4000.0 * wave;
            }
        }
        let found = interference(&InterferenceConfig::default(), &all, |_, _| true);
        let edges = found
            .pairs
            .iter()
            .filter(|p| p.edge == Edge::Joined)
            .count();
        assert!(edges <= 1, "{edges}");
    }

    #[test]
    fn only_what_shares_something_is_asked_about() {
        let all: Vec<_> = (0..4).map(|_| noise(1, 7, 91, 0.0)).collect();
        let found = interference(&InterferenceConfig::default(), &all, |a, b| a + b == 3);
        let asked: Vec<_> = found.pairs.iter().map(|p| (p.a, p.b)).collect();
        assert_eq!(asked, [(0, 3), (1, 2)]);
        assert_eq!(found.set, [0, 1, 1, 0]);
    }

    #[test]
    fn too_few_samples_and_flat_lines_say_nothing() {
        let short: Vec<_> = (0..3).map(|_| noise(1, 7, 40, 0.0)).collect();
        let found = interference(&InterferenceConfig::default(), &short, |_, _| true);
        assert!(found.pairs.is_empty());
        let eager = InterferenceConfig {
            samples_min: 0,
            ..InterferenceConfig::default()
        };
        let shorter: Vec<_> = (0..3).map(|_| noise(1, 7, 4, 0.0)).collect();
        assert!(interference(&eager, &shorter, |_, _| true).pairs.is_empty());
        let flat = Series {
            rate: vec![5.0; 91],
            latency_us: vec![5.0; 91],
        };
        let found = interference(
            &InterferenceConfig::default(),
            &[flat.clone(), flat],
            |_, _| true,
        );
        assert_eq!(found.pairs[0].edge, Edge::Apart);
    }
}
