//! Harm: how much slower volumes become than under `noop` with the same seed.
//!
//! ```text
//!  run   ─▶ mean, p99 of the run and of every ten minutes ─┐
//!  noop  ─▶ the same                                       ─┴─▶ ratios per volume ─▶ worst, shares within 2x and 3x
//! ```
//!
//! A volume counts in a run if it has [`REQUESTS_MIN`] requests there or under `noop`. The worst ten minutes are those with the
//! highest ratio to the same ten minutes under `noop`. A load step therefore does not count as harm.

use serde::{Deserialize, Serialize};
use sim::{GroupKind, IntervalLatencies, Intervals, Model, RunResult};

/// Requests from which a volume counts in a run.
pub const REQUESTS_MIN: u64 = 1_000;
/// Length of the stretches that are compared besides whole runs, nanoseconds.
const STRETCH_NS: u64 = 600_000_000_000;
/// Requests that a stretch needs in both runs: fewer have no 99th percentile.
const STRETCH_REQUESTS_MIN: u64 = 100;
/// Ratio of a volume that got no request done while it did under `noop`: JSON has no infinity.
const STARVED: f64 = 1e9;

/// Mean and 99th percentile of a volume's latency over those under `noop`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    /// Ratio of the means.
    pub mean: f64,
    /// Ratio of the 99th percentiles.
    pub p99: f64,
}

impl Slowdown {
    /// Compares the latencies of two runs; `None` if `noop` completed no request.
    fn of(own: &IntervalLatencies, noop: &IntervalLatencies) -> Option<Self> {
        let (noop_mean, noop_p99) = (noop.mean_us()?, noop.p99_us()?);
        let ratio = |own: Option<f64>, noop: f64| {
            own.map_or(STARVED, |own| (own / noop.max(1e-3)).min(STARVED))
        };
        Some(Self {
            mean: ratio(own.mean_us(), noop_mean),
            p99: ratio(own.p99_us(), noop_p99),
        })
    }
}

/// A volume in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeHarm {
    /// Name of the volume.
    pub volume: String,
    /// True if the class of the volume has an objective.
    pub has_objective: bool,
    /// Slowdown over the whole run.
    pub run: Slowdown,
    /// Slowdown over the worst ten minutes, chosen separately for mean and 99th percentile; `None` if no ten minutes have enough
    /// requests.
    pub worst: Option<Slowdown>,
}

/// Latencies under `noop`, the reference of harm.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline(Intervals);

impl Baseline {
    /// Takes the latencies of a run under `noop`.
    pub fn new(intervals: Intervals) -> Self {
        Self(intervals)
    }

    /// Returns the slowdown of each volume with enough requests under `noop` itself: 1 for all.
    pub fn of_noop(&self, model: &Model) -> Vec<VolumeHarm> {
        self.harm(model, &self.0)
    }

    /// Slowdown of each volume with enough requests in a run.
    pub fn harm(&self, model: &Model, own: &Intervals) -> Vec<VolumeHarm> {
        let pairs = own.volumes.iter().zip(&self.0.volumes);
        let of = |(v, (own_parts, noop_parts)): (
            &sim::VolumeModel,
            (&Vec<IntervalLatencies>, &Vec<IntervalLatencies>),
        )| {
            let (own_all, noop_all) = (sum(own_parts), sum(noop_parts));
            if own_all.requests.max(noop_all.requests) < REQUESTS_MIN {
                return None;
            }
            Some(VolumeHarm {
                volume: v.name.clone(),
                has_objective: model.classes[v.class.index()].target.is_some(),
                run: Slowdown::of(&own_all, &noop_all)?,
                worst: worst(own_parts, noop_parts, own.length_ns),
            })
        };
        model.volumes.iter().zip(pairs).filter_map(of).collect()
    }
}

fn sum(parts: &[IntervalLatencies]) -> IntervalLatencies {
    let mut sum = IntervalLatencies::default();
    parts.iter().for_each(|p| sum.add(p));
    sum
}

/// Highest ratios over all stretches of ten minutes; a stretch starts with each interval.
fn worst(
    own: &[IntervalLatencies],
    noop: &[IntervalLatencies],
    length_ns: u64,
) -> Option<Slowdown> {
    let intervals = STRETCH_NS.div_ceil(length_ns.max(1)).max(1) as usize;
    let count = own.len().min(noop.len());
    let intervals = intervals.min(count).max(1);
    let mut most: Option<Slowdown> = None;
    for first in 0..=count.saturating_sub(intervals) {
        let stretch = first..(first + intervals).min(count);
        let [own, noop] = [sum(&own[stretch.clone()]), sum(&noop[stretch])];
        // A stretch in which the volume got nothing done is harm, not a stretch without data.
        let enough = noop.requests >= STRETCH_REQUESTS_MIN
            && (own.requests >= STRETCH_REQUESTS_MIN || own.requests == 0);
        let Some(ratio) = Slowdown::of(&own, &noop).filter(|_| enough) else {
            continue;
        };
        most = Some(most.map_or(ratio, |m| Slowdown {
            mean: m.mean.max(ratio.mean),
            p99: m.p99.max(ratio.p99),
        }));
    }
    most
}

/// Mean latency of each volume of a run, microseconds; `None` for volumes with too few requests.
pub fn means_us(run: &RunResult) -> Vec<Option<f64>> {
    run.of_kind(GroupKind::Volume)
        .map(|g| (g.all.ios >= REQUESTS_MIN).then_some(g.all.mean_us))
        .collect()
}

/// Distribution of one ratio over many volume-runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Highest ratio.
    pub worst: f64,
    /// Share of volume-runs at most twice as slow as under `noop`.
    pub within_2x: f64,
    /// Share of volume-runs at most three times as slow.
    pub within_3x: f64,
    /// Scenario and volume of the highest ratio.
    pub worst_of: String,
}

impl Spread {
    /// Summarizes ratios, each with its scenario and volume.
    fn of(ratios: &[(f64, String)]) -> Option<Self> {
        let (worst, worst_of) = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let within =
            |most: f64| ratios.iter().filter(|r| r.0 <= most).count() as f64 / ratios.len() as f64;
        Some(Self {
            worst: *worst,
            within_2x: within(2.0),
            within_3x: within(3.0),
            worst_of: worst_of.clone(),
        })
    }
}

/// Harm to volumes of one kind over many runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HarmTotals {
    /// Number of volume-runs with enough requests.
    pub volume_runs: u64,
    /// Slowdown of the mean over the run.
    pub mean: Spread,
    /// Slowdown of the 99th percentile over the run.
    pub p99: Spread,
    /// Slowdown of the mean over the worst ten minutes.
    pub mean_worst: Spread,
    /// Slowdown of the 99th percentile over the worst ten minutes.
    pub p99_worst: Spread,
}

impl HarmTotals {
    /// Summarizes volumes with, or without, an objective, each with its scenario; `None` without such a volume.
    pub(crate) fn of<'a>(
        volumes: impl Iterator<Item = (&'a str, &'a VolumeHarm)>,
        has_objective: bool,
    ) -> Option<Self> {
        let of_kind: Vec<(&str, &VolumeHarm)> = volumes
            .filter(|(_, v)| v.has_objective == has_objective)
            .collect();
        let spread = |value: &dyn Fn(&VolumeHarm) -> Option<f64>| {
            let named = |(scenario, v): &(&str, &VolumeHarm)| {
                Some((value(v)?, format!("{scenario}: {}", v.volume)))
            };
            let ratios: Vec<(f64, String)> = of_kind.iter().filter_map(named).collect();
            Spread::of(&ratios)
        };
        Some(Self {
            volume_runs: of_kind.len() as u64,
            mean: spread(&|v| Some(v.run.mean))?,
            p99: spread(&|v| Some(v.run.p99))?,
            mean_worst: spread(&|v| Some(v.worst?.mean)).unwrap_or_default(),
            p99_worst: spread(&|v| Some(v.worst?.p99)).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use algo::Histogram;

    use super::*;

    /// Returns a minute with this number of requests of one latency.
    fn minute(requests: u64, us: u64) -> IntervalLatencies {
        let mut h = Histogram::default();
        (0..requests).for_each(|_| h.record(us * 1_000));
        IntervalLatencies {
            requests,
            sum_ns: h.sum_ns(),
            buckets: h.sparse(),
        }
    }

    const MINUTE_NS: u64 = 60_000_000_000;

    #[test]
    fn worst_ten_minutes_are_compared_with_the_same_ten_of_noop() {
        let noop: Vec<_> = (0..30).map(|_| minute(100, 100)).collect();
        let mut own = noop.clone();
        own[12..22].fill(minute(100, 800));
        let found = worst(&own, &noop, MINUTE_NS).unwrap();
        assert!((found.mean - 8.0).abs() < 0.1, "{found:?}");
        let whole = Slowdown::of(&sum(&own), &sum(&noop)).unwrap();
        assert!((whole.mean - 10.0 / 3.0).abs() < 0.05, "{whole:?}");
        // A load step in both runs is no harm.
        assert!((worst(&own, &own, MINUTE_NS).unwrap().mean - 1.0).abs() < 1e-9);
        // Too few requests for a percentile.
        let few: Vec<_> = (0..30).map(|_| minute(5, 100)).collect();
        assert_eq!(worst(&few, &few, MINUTE_NS), None);
    }

    #[test]
    fn volume_without_progress_is_harmed_most() {
        let noop: Vec<_> = (0..10).map(|_| minute(200, 100)).collect();
        let own: Vec<_> = (0..10).map(|_| minute(0, 0)).collect();
        assert_eq!(worst(&own, &noop, MINUTE_NS).unwrap().mean, STARVED);
        assert_eq!(Slowdown::of(&sum(&noop), &sum(&own)), None);
    }

    #[test]
    fn volumes_with_and_without_objective_are_counted_separately() {
        let harm = |has_objective, mean| VolumeHarm {
            volume: format!("v{mean}"),
            has_objective,
            run: Slowdown { mean, p99: 1.0 },
            worst: None,
        };
        let all = [
            harm(true, 0.5),
            harm(false, 1.0),
            harm(false, 2.5),
            harm(false, 40.0),
        ];
        let of = |kind| HarmTotals::of(all.iter().map(|h| ("s", h)), kind).unwrap();
        let (aimed, free) = (of(true), of(false));
        assert_eq!((aimed.volume_runs, aimed.mean.worst), (1, 0.5));
        assert_eq!((free.volume_runs, free.mean.worst), (3, 40.0));
        assert_eq!(free.mean.worst_of, "s: v40");
        assert!((free.mean.within_2x - 1.0 / 3.0).abs() < 1e-9);
        assert!((free.mean.within_3x - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(HarmTotals::of(std::iter::empty(), true), None);
    }
}
