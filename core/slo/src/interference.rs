//! Step 2: search for workloads that disturb each other.
//!
//! Dynamite uses a "statistical correlation between changes in performance metrics" (sec. 5.2) and does not specify it. We
//! use [`algo::interference`]: rank correlations of changes at lags of some samples, compared with circular shifts of the
//! same series, for all pairs together. This module selects the samples and the pairs to test, and returns the evidence.
//! Where the resources are known, only pairs that share a device, link or controller are tested (the paper's footnote 1).
//!
//! When not to use: with fewer than 60 samples, or if workloads disturb each other only in their means, without changes to
//! correlate. An edge shows that two workloads interfere, not which one is the cause.

use algo::{InterferenceRule, MeasuredSeries};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Test for interference between workloads: correlation of changes, and measured use of full resources.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterferenceConfig {
    /// Largest number of latest changes that are compared. Default: 180.
    pub samples: usize,
    /// Smallest number of changes for a result, large enough for comparison with shifted series. Default: 60.
    pub samples_min: usize,
    /// Largest lag between cause and effect, samples. Default: 2.
    pub lag_max: usize,
    /// Accepted share of false results among all found pairs, 0 to 1. Default: 0.05.
    pub false_discovery: f64,
    /// Smallest strength of a correlation that counts, 0 to 1, however significant it is. Default: 0.3.
    pub strength_min: f64,
    /// Share of a full resource, 0 to 1, that makes a workload a cause for all others on it, whatever its
    /// correlations. Default: 0.1. With null, which TOML cannot express, only correlations count, as in Dynamite.
    pub taken_min: Option<f64>,
}

impl Default for InterferenceConfig {
    fn default() -> Self {
        Self {
            samples: 180,
            samples_min: 60,
            lag_max: 2,
            false_discovery: 0.05,
            strength_min: 0.3,
            taken_min: Some(0.1),
        }
    }
}

impl InterferenceConfig {
    fn rule(&self) -> InterferenceRule {
        InterferenceRule {
            lag_max: self.lag_max,
            // One change fewer than samples.
            samples_min: self.samples_min.saturating_add(1),
            false_discovery: self.false_discovery,
            correlation_min: self.strength_min,
            ..InterferenceRule::default()
        }
    }

    /// Returns the latest samples of a workload.
    fn latest<'a>(&self, series: &'a Series) -> MeasuredSeries<'a> {
        let last = |values: &'a [f64]| {
            let from = values.len().saturating_sub(self.samples.saturating_add(1));
            &values[from..]
        };
        MeasuredSeries {
            iops: last(&series.rate),
            latency: last(&series.latency_us),
        }
    }
}

/// Load and latency of one workload, sample by sample, oldest first. All series of all workloads have the same length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Requests per second.
    pub rate: Vec<f64>,
    /// Mean latency, µs. A sample without completions repeats the previous value.
    pub latency_us: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub a: usize,
    /// Index of the other workload, above `a`.
    pub b: usize,
    /// Largest absolute correlation over all lags, 0..=1.
    pub strength: f64,
    /// Lag of `b` behind `a` at that correlation, samples; negative if `a` follows `b`.
    #[serde(default)]
    pub lag: i32,
    /// Probability of at least this strength between unrelated series.
    pub p: f64,
    /// Result of the test.
    pub edge: Edge,
}

/// Result of the test of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// The workloads interfere.
    Joined,
    /// No interference was found.
    Apart,
}

/// Interference among all workloads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interference {
    /// Number of changes per series.
    pub samples: usize,
    /// Tested pairs, in order.
    pub pairs: Vec<Pair>,
    /// Pairs that could not be tested, because of too few samples or no changes. Their interference is unknown.
    #[serde(default)]
    pub untested: Vec<(usize, usize)>,
    /// Number of each workload's set; sets are numbered by their first member.
    pub set: Vec<usize>,
}

impl Interference {
    /// Returns true if two workloads interfere directly.
    pub fn joined(&self, a: usize, b: usize) -> bool {
        let (a, b) = (a.min(b), a.max(b));
        let mut pairs = self.pairs.iter();
        pairs.any(|p| (p.a, p.b) == (a, b) && p.edge == Edge::Joined)
    }

    /// Returns the members of the set of `of`, including itself, in order.
    pub fn set_of(&self, of: usize) -> Vec<usize> {
        let all = self.set.iter().enumerate();
        all.filter(|(_, s)| **s == self.set[of])
            .map(|(i, _)| i)
            .collect()
    }
}

/// Tests for interference among `series`. `may` returns true for pairs that share a resource.
pub fn interference(
    config: &InterferenceConfig,
    series: &[Series],
    may: impl Fn(usize, usize) -> bool,
) -> Interference {
    let latest: Vec<MeasuredSeries<'_>> = series.iter().map(|s| config.latest(s)).collect();
    let shortest = latest.iter().map(|s| s.iops.len()).min().unwrap_or(0);
    let found = algo::interference(&latest, may, &config.rule());
    let mut set: Vec<usize> = (0..series.len()).collect();
    for members in &found.sets {
        members.iter().for_each(|w| set[*w] = members[0]);
    }
    let pair = |p: &algo::PairTest| Pair {
        a: p.a,
        b: p.b,
        strength: p.correlation.abs().min(1.0),
        lag: p.lag,
        p: p.p,
        edge: if p.edge { Edge::Joined } else { Edge::Apart },
    };
    Interference {
        samples: shortest.saturating_sub(1),
        pairs: found.pairs.iter().map(pair).collect(),
        untested: found.untested,
        set,
    }
}

/// Returns the strength of a single pair, without a significance test: for a plot over time (the paper's figure 6b). `None`
/// with too few samples or without changes.
pub fn strength(config: &InterferenceConfig, a: &Series, b: &Series) -> Option<f64> {
    let (a, b) = (config.latest(a), config.latest(b));
    algo::interference_strength(&a, &b, &config.rule())
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    /// Distribution of the samples of an independent workload.
    #[derive(Debug, Clone, Copy)]
    enum Noise {
        /// Gaussian around a level.
        Gaussian,
        /// Lognormal, with spikes of a hundred times the level.
        Spikes,
    }

    fn noise(kind: Noise, seed: u64, stream: u64, n: usize) -> Series {
        let mut rng = Rng::new(seed, stream);
        let mut draw = |level: f64| -> Vec<f64> {
            let mut one = || {
                let normal = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
                match kind {
                    Noise::Gaussian => level * (1.0 + 0.1 * normal),
                    Noise::Spikes => level * libm::exp(2.0 * normal),
                }
            };
            (0..n).map(|_| one()).collect()
        };
        Series {
            rate: draw(500.0),
            latency_us: draw(4000.0),
        }
    }

    fn found(all: &[Series]) -> Interference {
        interference(&InterferenceConfig::default(), all, |_, _| true)
    }

    fn edges(found: &Interference) -> usize {
        let joined = found.pairs.iter().filter(|p| p.edge == Edge::Joined);
        joined.count()
    }

    #[test]
    fn independent_workloads_have_only_chance_edges() {
        for kind in [Noise::Gaussian, Noise::Spikes] {
            let (mut joined, mut pairs, mut cases) = (0, 0, 0);
            for seed in 0..20 {
                let all: Vec<_> = (0..30).map(|i| noise(kind, seed, i, 91)).collect();
                let found = found(&all);
                pairs += found.pairs.len();
                joined += edges(&found);
                cases += usize::from(edges(&found) > 0);
            }
            println!("{kind:?}: edges in {cases} of 20 cases, {joined} of {pairs} pairs");
            assert_eq!(pairs, 20 * 435);
            assert!(joined * 20 <= pairs, "{kind:?}: {joined} of {pairs}");
            // The expectation is one case at 5 % false discoveries; five or more have a probability of 0.3 %.
            assert!(cases <= 4, "{kind:?}: edges in {cases} of 20 cases");
        }
    }

    #[test]
    fn workloads_that_share_a_queue_are_found() {
        for kind in [Noise::Gaussian, Noise::Spikes] {
            let (mut found_it, mut others) = (0, 0);
            for seed in 0..20 {
                let mut all: Vec<_> = (0..6).map(|i| noise(kind, seed, i, 91)).collect();
                // The latency of workload 4 follows the rate of workload 1 with a lag of one sample.
                for t in 1..91 {
                    all[4].latency_us[t] += 40.0 * all[1].rate[t - 1];
                }
                let found = found(&all);
                others += edges(&found);
                if !found.joined(1, 4) {
                    continue;
                }
                (found_it, others) = (found_it + 1, others - 1);
                let pair = found.pairs.iter().find(|p| (p.a, p.b) == (1, 4)).unwrap();
                assert_eq!(pair.lag, 1, "b follows a by one");
                assert!(found.joined(4, 1) && found.set_of(4).starts_with(&[1]));
                let alone = strength(&InterferenceConfig::default(), &all[1], &all[4]);
                assert_eq!(alone, Some(pair.strength));
            }
            assert!(found_it >= 19, "{kind:?}: found in {found_it} of 20");
            // A twentieth of all edges are false on average.
            assert!(others <= 4, "{kind:?}: {others} false edges");
        }
    }

    #[test]
    fn common_daily_cycle_causes_no_edges() {
        let mut cases = 0;
        for seed in 0..40 {
            // All levels follow the same wave, a day's rise and fall within a quarter of an hour, each with independent
            // noise.
            let mut all: Vec<_> = (0..6)
                .map(|i| noise(Noise::Gaussian, seed, i, 91))
                .collect();
            for series in &mut all {
                for t in 0..91 {
                    let wave = libm::sin(t as f64 / 90.0 * std::f64::consts::PI);
                    series.rate[t] += 700.0 * wave;
                    series.latency_us[t] += 5600.0 * wave;
                }
            }
            cases += usize::from(edges(&found(&all)) > 0);
        }
        // The expectation is two cases; seven or more have a probability of 0.4 %.
        assert!(cases <= 6, "edges in {cases} of 40 cases");
    }

    #[test]
    fn significant_but_weak_pair_is_not_joined() {
        let mut all: Vec<_> = (0..2).map(|i| noise(Noise::Gaussian, 8, i, 91)).collect();
        for t in 0..91 {
            all[1].latency_us[t] += 40.0 * all[0].rate[t];
        }
        let strict = InterferenceConfig {
            strength_min: 0.999,
            ..InterferenceConfig::default()
        };
        let found = interference(&strict, &all, |_, _| true);
        assert!(found.pairs[0].p < 0.05 && found.pairs[0].edge == Edge::Apart);
        assert_eq!(found.set, [0, 1]);
    }

    #[test]
    fn only_pairs_with_shared_resources_are_tested() {
        let same = noise(Noise::Gaussian, 1, 7, 91);
        let all = vec![same; 4];
        let config = InterferenceConfig::default();
        let found = interference(&config, &all, |a, b| a + b == 3);
        let asked: Vec<_> = found.pairs.iter().map(|p| (p.a, p.b)).collect();
        assert_eq!(asked, [(0, 3), (1, 2)]);
        assert_eq!(found.set, [0, 1, 1, 0]);
    }

    #[test]
    fn short_or_constant_series_are_untested() {
        let of = |n| -> Vec<_> { (0..3).map(|i| noise(Noise::Gaussian, 1, i, n)).collect() };
        let short = found(&of(40));
        assert!(short.pairs.is_empty() && short.untested.len() == 3);
        assert_eq!((short.samples, short.set), (39, vec![0, 1, 2]));
        // A test needs shifts even if the configuration requires no samples.
        let eager = InterferenceConfig {
            samples_min: 0,
            ..InterferenceConfig::default()
        };
        for n in [0, 1, 4] {
            let found = interference(&eager, &of(n), |_, _| true);
            assert_eq!((found.pairs.len(), found.untested.len()), (0, 3));
            assert_eq!(strength(&eager, &of(n)[0], &of(n)[1]), None);
        }
        let flat = Series {
            rate: vec![5.0; 91],
            latency_us: vec![5.0; 91],
        };
        let still = found(&[flat.clone(), flat.clone()]);
        assert_eq!((still.pairs.len(), still.untested), (0, vec![(0, 1)]));
        assert_eq!(found(&[]), Interference::default());
    }

    #[test]
    fn evidence_without_lags_is_readable() {
        let text = r#"{"samples":90,"pairs":[{"a":0,"b":1,"strength":0.5,"p":0.01,"edge":"joined"}],"set":[0,0]}"#;
        let old: Interference = serde_json::from_str(text).unwrap();
        assert!(old.joined(1, 0) && old.untested.is_empty());
    }
}
