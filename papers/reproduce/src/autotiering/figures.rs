//! Numbers of figures 2 to 7. Those of figures 3, 4, 5 and 7 are means over seeds with intervals, per strategy.

use serde::Serialize;

use super::measured::{DIRECTIONS, GROUPS, Metrics, MovedData, SeedRuns, TierOverTime};
use super::setup::{FIGURED, Setup};
use super::tsscs::Regression;
use crate::Interval;

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Regression lines of three volumes, first seed.
    pub fig2: Vec<Regression>,
    /// Metrics of all tiers together.
    pub fig3: Vec<Row>,
    /// Metrics of each tier.
    pub fig4: Vec<Row>,
    /// Distribution over windows.
    pub fig5: Vec<Distribution>,
    /// Time series, first seed.
    pub fig6: Vec<TimeSeries>,
    /// Moved data.
    pub fig7: Vec<Migration>,
}

/// Values of one strategy, group and direction.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Strategy.
    pub strategy: &'static str,
    /// `total` or a tier.
    pub group: &'static str,
    /// `all`, `read` or `write`.
    pub direction: &'static str,
    /// Requests per second.
    pub iops: Option<Interval>,
    /// MiB per second.
    pub mib_per_s: Option<Interval>,
    /// Mean latency in microseconds; `None` if a seed had no such request.
    pub latency_mean_us: Option<Interval>,
    /// Ratio of IOPS to those of `noop` under the same seed.
    pub iops_over_noop: Option<Interval>,
    /// Ratio of bandwidth to that of `noop` under the same seed.
    pub mib_per_s_over_noop: Option<Interval>,
    /// Ratio of mean latency to that of `noop` under the same seed: the normalized latency of Fig. 3(c).
    pub latency_over_noop: Option<Interval>,
}

/// Published IOPS thresholds of Fig. 5.
pub(crate) const IOPS_THRESHOLDS: [f64; 2] = [100e3, 125e3];
/// Published bandwidth threshold of Fig. 5: 1,200 MB/s in MiB/s.
pub(crate) const MIB_PER_S_THRESHOLD: f64 = 1200e6 / (1 << 20) as f64;
/// 125 K over 100 K: the second threshold if the first is IDT's 90th percentile.
pub(crate) const SECOND_THRESHOLD: f64 = IOPS_THRESHOLDS[1] / IOPS_THRESHOLDS[0];

/// Distribution of one strategy's windows.
#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    /// Strategy.
    pub strategy: &'static str,
    /// Share of windows above 100 K IOPS, as published; depends on the hardware.
    pub share_above_100k_iops: Option<Interval>,
    /// Share of windows above 125 K IOPS.
    pub share_above_125k_iops: Option<Interval>,
    /// Share of windows above 1,200 MB/s.
    pub share_above_1200_mb_per_s: Option<Interval>,
    /// Share of windows above IDT's own 90th percentile of IOPS under the same seed, which corresponds to 100 K in the paper.
    pub share_above_idt_p90_iops: Option<Interval>,
    /// Share of windows above 1.25 times that percentile, which corresponds to 125 K in the paper.
    pub share_above_idt_p90_iops_x1_25: Option<Interval>,
    /// Share of windows above IDT's own 90th percentile of bandwidth, which corresponds to 1,200 MB/s in the paper.
    pub share_above_idt_p90_mib_per_s: Option<Interval>,
    /// Percentiles 0 to 100 of IOPS over the windows of all seeds.
    pub iops_percentiles: Vec<f64>,
    /// Percentiles 0 to 100 of bandwidth, MiB/s, over the windows of all seeds.
    pub mib_per_s_percentiles: Vec<f64>,
}

/// Time series of one strategy.
#[derive(Debug, Clone, Serialize)]
pub struct TimeSeries {
    /// Strategy.
    pub strategy: &'static str,
    /// Seed.
    pub seed: u64,
    /// Length of a window in simulated seconds.
    pub window_s: f64,
    /// Number of warm-up windows, which do not count.
    pub warmup_windows: usize,
    /// Series by tier.
    pub tiers: Vec<TierOverTime>,
}

/// Data moved by one strategy.
#[derive(Debug, Clone, Serialize)]
pub struct Migration {
    /// Strategy.
    pub strategy: &'static str,
    /// Moves of the whole run.
    pub all: MovedIntervals,
    /// Moves that started after the warm-up.
    pub after_warmup: MovedIntervals,
}

/// Intervals of the moved amounts.
#[derive(Debug, Clone, Serialize)]
pub struct MovedIntervals {
    /// Bytes copied, in GiB.
    pub gib: Option<Interval>,
    /// Number of distinct VMs with a moved volume.
    pub vms: Option<Interval>,
    /// Number of distinct moved volumes.
    pub volumes: Option<Interval>,
    /// Mean of the copied data, relative to the strategy that copies most: the normalization of Fig. 7.
    pub gib_normalized: f64,
    /// Mean number of moved VMs, relative to the strategy that moves most VMs.
    pub vms_normalized: f64,
}

impl Figures {
    pub(crate) fn new(setup: &Setup, seeds: &[SeedRuns], fig2: Vec<Regression>) -> Self {
        let rows = |groups: &[usize]| -> Vec<Row> {
            let strategies = || 0..FIGURED.len();
            let each = groups.iter().flat_map(|g| {
                (0..DIRECTIONS.len()).flat_map(move |d| strategies().map(move |s| (s, *g, d)))
            });
            each.map(|(s, g, d)| row(seeds, s, g, d)).collect()
        };
        let mut fig7: Vec<Migration> = (0..FIGURED.len())
            .map(|s| Migration {
                strategy: FIGURED[s],
                all: moved(seeds, |r| r.runs[s].moved),
                after_warmup: moved(seeds, |r| r.runs[s].moved_late),
            })
            .collect();
        normalize(&mut fig7, |m| &mut m.all);
        normalize(&mut fig7, |m| &mut m.after_warmup);
        Self {
            fig2,
            fig3: rows(&[0]),
            fig4: rows(&[1, 2, 3]),
            fig5: (0..FIGURED.len()).map(|s| distribution(seeds, s)).collect(),
            fig6: (0..FIGURED.len())
                .map(|s| TimeSeries {
                    strategy: FIGURED[s],
                    seed: setup.seeds[0],
                    window_s: setup.window_s(),
                    warmup_windows: setup.warmup_windows(),
                    tiers: seeds[0].runs[s].tiers.clone(),
                })
                .collect(),
            fig7,
        }
    }
}

fn row(seeds: &[SeedRuns], s: usize, g: usize, d: usize) -> Row {
    let of = |value: fn(&Metrics) -> Option<f64>| {
        Interval::over(seeds, |r| value(&r.runs[s].cells[g][d]))
    };
    let over = |value: fn(&Metrics) -> Option<f64>| {
        Interval::over(seeds, |r| {
            let noop = value(&r.of("noop").cells[g][d])?;
            Some(value(&r.runs[s].cells[g][d])? / noop)
        })
    };
    Row {
        strategy: FIGURED[s],
        group: GROUPS[g],
        direction: DIRECTIONS[d],
        iops: of(|m| Some(m.iops)),
        mib_per_s: of(|m| Some(m.mib_per_s)),
        latency_mean_us: of(|m| m.latency_us),
        iops_over_noop: over(|m| Some(m.iops)),
        mib_per_s_over_noop: over(|m| Some(m.mib_per_s)),
        latency_over_noop: over(|m| m.latency_us),
    }
}

/// Returns the share of values above a threshold; `None` without values.
pub(crate) fn share_above(values: &[f64], threshold: f64) -> Option<f64> {
    let above = values.iter().filter(|v| **v > threshold).count();
    (!values.is_empty()).then(|| above as f64 / values.len() as f64)
}

/// Returns the smallest value that at least the share `q` of all values do not exceed.
pub(crate) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

fn percentiles(values: &[f64]) -> Vec<f64> {
    (0..=100)
        .filter_map(|p| quantile(values, f64::from(p) / 100.0))
        .collect()
}

fn distribution(seeds: &[SeedRuns], s: usize) -> Distribution {
    let iops = |t: f64| Interval::over(seeds, |r| share_above(&r.runs[s].window_iops, t));
    let normalized = |times: f64| {
        Interval::over(seeds, |r| {
            let p90 = quantile(&r.of("idt").window_iops, 0.9)?;
            share_above(&r.runs[s].window_iops, times * p90)
        })
    };
    let all = |of: fn(&super::measured::RunMeasurements) -> &Vec<f64>| -> Vec<f64> {
        seeds.iter().flat_map(|r| of(&r.runs[s]).clone()).collect()
    };
    Distribution {
        strategy: FIGURED[s],
        share_above_100k_iops: iops(IOPS_THRESHOLDS[0]),
        share_above_125k_iops: iops(IOPS_THRESHOLDS[1]),
        share_above_1200_mb_per_s: Interval::over(seeds, |r| {
            share_above(&r.runs[s].window_mib_per_s, MIB_PER_S_THRESHOLD)
        }),
        share_above_idt_p90_iops: normalized(1.0),
        share_above_idt_p90_iops_x1_25: normalized(SECOND_THRESHOLD),
        share_above_idt_p90_mib_per_s: Interval::over(seeds, |r| {
            let p90 = quantile(&r.of("idt").window_mib_per_s, 0.9)?;
            share_above(&r.runs[s].window_mib_per_s, p90)
        }),
        iops_percentiles: percentiles(&all(|m| &m.window_iops)),
        mib_per_s_percentiles: percentiles(&all(|m| &m.window_mib_per_s)),
    }
}

fn moved(seeds: &[SeedRuns], of: impl Fn(&SeedRuns) -> MovedData) -> MovedIntervals {
    MovedIntervals {
        gib: Interval::over(seeds, |r| Some(of(r).bytes / (1u64 << 30) as f64)),
        vms: Interval::over(seeds, |r| Some(of(r).vms)),
        volumes: Interval::over(seeds, |r| Some(of(r).volumes)),
        gib_normalized: 0.0,
        vms_normalized: 0.0,
    }
}

fn normalize(all: &mut [Migration], of: fn(&mut Migration) -> &mut MovedIntervals) {
    let mean = |i: &Option<Interval>| i.map_or(0.0, |i| i.mean);
    let (mut gib, mut vms) = (0.0_f64, 0.0_f64);
    for m in all.iter_mut() {
        gib = gib.max(mean(&of(m).gib));
        vms = vms.max(mean(&of(m).vms));
    }
    let share = |v: f64, most: f64| if most > 0.0 { v / most } else { 0.0 };
    for m in all.iter_mut() {
        let over = of(m);
        over.gib_normalized = share(mean(&over.gib), gib);
        over.vms_normalized = share(mean(&over.vms), vms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_the_shares_above_them() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.2), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 1.0), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(share_above(&values, 3.0), Some(0.4));
        assert_eq!(share_above(&values, 0.0), Some(1.0));
        assert_eq!(share_above(&[], 0.0), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let p90 = quantile(&hundred, 0.9).unwrap();
        assert_eq!(share_above(&hundred, p90), Some(0.1));
        assert_eq!(percentiles(&hundred).len(), 101);
    }
}
