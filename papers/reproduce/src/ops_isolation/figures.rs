//! Numbers of the figures over seeds.

use algo::Interval;
use serde::Serialize;

use super::cell::{Cell, CellResult};
use super::device::Device;
use super::effects::{Effect, effects};
use super::mode::Mode;
use super::readings::Way;
use crate::claim::Value;

/// Result of one seed, for comparisons with the same seed in another mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfSeed {
    /// Seed.
    pub seed: u64,
    /// Bandwidth of each tenant relative to the one with the smallest weight.
    pub proportionality: Vec<f64>,
    /// Mean of |proportionality / relative weight − 1|.
    pub error: f64,
    /// Total requests per second.
    pub iops: f64,
}

/// Result of one combination over all seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Arrival process of requests.
    pub way: Way,
    /// Experiment.
    pub experiment: &'static str,
    /// Device.
    pub device: Device,
    /// Sharing of the device, and service.
    pub mode: Mode,
    /// Name of the mix.
    pub mix: String,
    /// Loads and weights.
    pub tenants: Vec<(&'static str, f64)>,
    /// Bandwidth of each tenant relative to the one with the smallest weight.
    pub proportionality: Vec<Value>,
    /// Mean of |proportionality / relative weight − 1|.
    pub error: Value,
    /// Total requests per second.
    pub iops: Value,
    /// Write amplification; 0 for a disk.
    pub waf: Value,
    /// Share of the tenant's own pages among the pages that its collections moved; `None` if nothing was moved.
    pub own_share: Vec<Option<Value>>,
    /// Pages of other tenants moved by each tenant's collections.
    pub moved_foreign: Vec<Value>,
    /// 99th percentile of each tenant's latency in milliseconds.
    pub latency_p99_ms: Vec<Value>,
    /// Spare space of each tenant at the end, as a share of the flash.
    pub spare_share: Vec<Option<Value>>,
    /// Mean over windows of |share of bandwidth − its mean| of the tenant with the largest weight.
    pub unsteadiness: Value,
    /// Results by seed.
    pub by_seed: Vec<OfSeed>,
    /// Bandwidth of each tenant over time with the first seed: MiB/s in each window.
    pub series: Vec<Vec<f64>>,
    /// Length of a window in seconds.
    pub window_s: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Rows in the order of the runs.
    pub rows: Vec<Row>,
    /// Separate effects of sharing and service, by mix.
    pub effects: Vec<Effect>,
}

/// Returns mean and interval of one value per seed.
pub(super) fn over_seeds(values: &[f64]) -> Value {
    Value {
        mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
        interval: Interval::of(values),
    }
}

fn maybe(values: &[Option<f64>]) -> Option<Value> {
    let all: Option<Vec<f64>> = values.iter().copied().collect();
    all.map(|all| over_seeds(&all))
}

impl Row {
    /// Compares a quantity by seed in two rows with the same loads.
    pub(super) fn paired(&self, other: &Self, of: impl Fn(&OfSeed, &OfSeed) -> f64) -> Value {
        let pairs = self.by_seed.iter().zip(&other.by_seed);
        let values: Vec<f64> = pairs
            .filter(|(a, b)| a.seed == b.seed)
            .map(|(a, b)| of(a, b))
            .collect();
        over_seeds(&values)
    }
}

impl Figures {
    /// Groups the seeds of each combination.
    pub(super) fn new(cells: &[Cell], results: &[CellResult]) -> Self {
        fn kind(cell: &Cell) -> impl PartialEq {
            (
                cell.way,
                cell.experiment,
                cell.device,
                cell.mode,
                cell.mix.clone(),
            )
        }
        let runs: Vec<Run<'_>> = cells.iter().zip(results).collect();
        let mut rows = Vec::new();
        let mut done = vec![false; runs.len()];
        for (i, (first, _)) in runs.iter().enumerate() {
            if done[i] {
                continue;
            }
            let mut seeds = Vec::new();
            for (j, other) in runs.iter().enumerate().skip(i) {
                if kind(first) == kind(other.0) {
                    done[j] = true;
                    seeds.push(*other);
                }
            }
            rows.push(row(&seeds));
        }
        Self {
            effects: effects(&rows),
            rows,
        }
    }

    pub(super) fn row(
        &self,
        way: Way,
        experiment: &str,
        device: Device,
        mode: Mode,
        mix: &str,
    ) -> Option<&Row> {
        let mut rows = self.rows.iter().filter(|r| r.way == way);
        rows.find(|r| {
            r.experiment == experiment && r.device == device && r.mode == mode && r.mix == mix
        })
    }

    /// Returns the rows of an experiment in the first way of running.
    pub(super) fn of(&self, experiment: &str) -> Vec<&Row> {
        let first = self.rows.iter().filter(|r| r.way == Way::ALL[0]);
        first.filter(|r| r.experiment == experiment).collect()
    }
}

/// Cell with its result.
type Run<'a> = (&'a Cell, &'a CellResult);

fn row(seeds: &[Run<'_>]) -> Row {
    let (cell, first) = seeds[0];
    let n = cell.tenants.len();
    let over = |of: &dyn Fn(&CellResult) -> f64| {
        let values: Vec<f64> = seeds.iter().map(|(_, s)| of(s)).collect();
        over_seeds(&values)
    };
    let each = |of: &dyn Fn(&CellResult, usize) -> f64| -> Vec<Value> {
        (0..n).map(|t| over(&|s| of(s, t))).collect()
    };
    let each_maybe = |of: &dyn Fn(&CellResult, usize) -> Option<f64>| -> Vec<Option<Value>> {
        (0..n)
            .map(|t| maybe(&seeds.iter().map(|(_, s)| of(s, t)).collect::<Vec<_>>()))
            .collect()
    };
    let all_iops = |s: &CellResult| s.outcome.tenants.iter().map(|t| t.iops).sum();
    let of_seed = |(cell, s): &Run<'_>| OfSeed {
        seed: cell.seed,
        proportionality: s.outcome.proportionality.clone(),
        error: s.outcome.proportionality_error,
        iops: all_iops(s),
    };
    let mib = f64::from(1 << 20);
    Row {
        way: cell.way,
        experiment: cell.experiment,
        device: cell.device,
        mode: cell.mode,
        mix: cell.mix.clone(),
        tenants: cell.tenants.clone(),
        proportionality: each(&|s, t| s.outcome.proportionality[t]),
        error: over(&|s| s.outcome.proportionality_error),
        iops: over(&all_iops),
        waf: over(&|s| s.waf.unwrap_or(0.0)),
        own_share: each_maybe(&|s, t| {
            let t = &s.outcome.tenants[t];
            let all = t.moved_own + t.moved_foreign;
            (all > 0).then(|| t.moved_own as f64 / all as f64)
        }),
        moved_foreign: each(&|s, t| s.outcome.tenants[t].moved_foreign as f64),
        latency_p99_ms: each(&|s, t| s.outcome.tenants[t].latency.p99_us / 1e3),
        spare_share: each_maybe(&|s, t| s.outcome.tenants[t].spare_share),
        unsteadiness: over(&unsteadiness),
        by_seed: seeds.iter().map(of_seed).collect(),
        series: first
            .outcome
            .tenants
            .iter()
            .map(|t| t.series.iter().map(|b| b / mib).collect())
            .collect(),
        window_s: first.outcome.window_s,
    }
}

/// Returns the variation of the largest tenant's share of the bandwidth from window to window.
fn unsteadiness(result: &CellResult) -> f64 {
    let tenants = &result.outcome.tenants;
    let Some(greatest) = tenants.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)) else {
        return 0.0;
    };
    let shares: Vec<f64> = (0..greatest.series.len())
        .filter_map(|w| {
            let all: f64 = tenants.iter().map(|t| t.series[w]).sum();
            (all > 0.0).then(|| greatest.series[w] / all)
        })
        .collect();
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    shares.iter().map(|s| (s - mean).abs()).sum::<f64>() / shares.len().max(1) as f64
}
