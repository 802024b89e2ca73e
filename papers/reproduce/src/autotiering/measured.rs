//! Data of one run that the figures need.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sim::{DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary, RunResult};

use super::setup::{STRATEGIES, Setup, TIERS};

/// Groups: all tiers together, then each tier.
pub(crate) const GROUPS: [&str; 4] = ["total", TIERS[0], TIERS[1], TIERS[2]];
/// Directions, in the order of the arrays below.
pub(crate) const DIRECTIONS: [&str; 3] = ["all", "read", "write"];
pub(crate) const ALL: usize = 0;
pub(crate) const READ: usize = 1;
pub(crate) const WRITE: usize = 2;

/// Metrics of one direction of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metrics {
    pub(crate) iops: f64,
    pub(crate) mib_per_s: f64,
    /// Mean latency, microseconds; `None` without requests.
    pub(crate) latency_us: Option<f64>,
}

/// Moved data, over the whole run or after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MovedData {
    pub(crate) bytes: f64,
    pub(crate) vms: f64,
    pub(crate) volumes: f64,
}

/// Measurements of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunMeasurements {
    /// Metrics by group and direction.
    pub(crate) cells: [[Metrics; 3]; 4],
    /// IOPS of all tiers, per measured window.
    pub(crate) window_iops: Vec<f64>,
    pub(crate) window_mib_per_s: Vec<f64>,
    /// Mean IOPS of all tiers, per measured migration epoch.
    pub(crate) epoch_iops: Vec<f64>,
    /// Sum of the latencies of reads and writes by tier; each is the mean over the measured windows of their mean latencies.
    pub(crate) stacked_latency_us: [f64; 3],
    pub(crate) moved: MovedData,
    pub(crate) moved_late: MovedData,
    /// Number of measured requests.
    pub(crate) requests: u64,
    /// Series over all windows, by tier.
    pub(crate) tiers: Vec<TierOverTime>,
}

/// Time series of one tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names describe the series; each has a value per window
pub struct TierOverTime {
    pub tier: String,
    pub read_iops: Vec<f64>,
    pub write_iops: Vec<f64>,
    pub read_mib_per_s: Vec<f64>,
    pub write_mib_per_s: Vec<f64>,
    pub read_mean_us: Vec<f64>,
    pub write_mean_us: Vec<f64>,
}

/// Runs of all strategies under one seed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SeedRuns {
    /// Runs in the order of [`STRATEGIES`].
    pub(crate) runs: Vec<RunMeasurements>,
}

impl SeedRuns {
    pub(crate) fn of(&self, strategy: &str) -> &RunMeasurements {
        let at = STRATEGIES.iter().position(|s| *s == strategy);
        &self.runs[at.expect("one of the strategies")]
    }
}

impl From<&DirectionSummary> for Metrics {
    fn from(s: &DirectionSummary) -> Self {
        Self {
            iops: s.iops,
            mib_per_s: s.mib_per_s,
            latency_us: (s.ios > 0).then_some(s.mean_us),
        }
    }
}

/// Returns the series of a group: all tiers, or one.
fn series_of<'a>(result: &'a RunResult, group: &str) -> Option<&'a GroupSeries> {
    let kind = kind(group);
    let groups = &result.series.as_ref()?.groups;
    groups.iter().find(|g| g.kind == kind && g.name == group)
}

fn summary_of<'a>(result: &'a RunResult, group: &str) -> Option<&'a GroupSummary> {
    result.of_kind(kind(group)).find(|g| g.name == group)
}

fn kind(group: &str) -> GroupKind {
    if group == GROUPS[0] {
        GroupKind::Total
    } else {
        GroupKind::Tier
    }
}

impl RunMeasurements {
    /// Extracts the measurements of a run with its series.
    pub fn new(result: &RunResult, setup: &Setup) -> Self {
        let mut out = Self {
            requests: result.total().all.ios,
            tiers: TIERS.map(|tier| over_time(result, tier)).into(),
            ..Self::default()
        };
        for (cells, group) in out.cells.iter_mut().zip(GROUPS) {
            if let Some(s) = summary_of(result, group) {
                *cells = [(&s.all).into(), (&s.reads).into(), (&s.writes).into()];
            }
        }
        let late = setup.warmup_windows();
        if let Some(total) = series_of(result, GROUPS[0]) {
            let both = |reads: &[f64], writes: &[f64]| -> Vec<f64> {
                let sums = reads.iter().zip(writes).map(|(r, w)| r + w);
                sums.skip(late).collect()
            };
            out.window_iops = both(&total.reads.iops, &total.writes.iops);
            out.window_mib_per_s = both(&total.reads.mib_per_s, &total.writes.mib_per_s);
            out.epoch_iops = out
                .window_iops
                .chunks_exact(setup.windows_per_epoch())
                .map(|w| w.iter().sum::<f64>() / w.len() as f64)
                .collect();
        }
        for (stacked, tier) in out.stacked_latency_us.iter_mut().zip(TIERS) {
            let Some(series) = series_of(result, tier) else {
                continue;
            };
            for direction in [&series.reads, &series.writes] {
                let counted = &direction.mean_us[late.min(direction.mean_us.len())..];
                *stacked += counted.iter().sum::<f64>() / counted.len().max(1) as f64;
            }
        }
        out.moved = moved(result, 0.0);
        out.moved_late = moved(result, result.manifest.warmup_s);
        out
    }
}

fn over_time(result: &RunResult, tier: &str) -> TierOverTime {
    let none = DirectionSeries::default();
    let series = series_of(result, tier);
    let (reads, writes) = series.map_or((&none, &none), |s| (&s.reads, &s.writes));
    TierOverTime {
        tier: tier.into(),
        read_iops: reads.iops.clone(),
        write_iops: writes.iops.clone(),
        read_mib_per_s: reads.mib_per_s.clone(),
        write_mib_per_s: writes.mib_per_s.clone(),
        read_mean_us: reads.mean_us.clone(),
        write_mean_us: writes.mean_us.clone(),
    }
}

/// Sums up the moves that started at `from_s` or later and copied data.
fn moved(result: &RunResult, from_s: f64) -> MovedData {
    let log = &result.move_log;
    let begun: Vec<_> = log
        .iter()
        .filter(|m| m.bytes > 0 && m.started_s.is_some_and(|s| s >= from_s))
        .collect();
    let distinct = |of: fn(&sim::MoveRecord) -> &str| {
        let names: BTreeSet<&str> = begun.iter().map(|m| of(m)).collect();
        names.len() as f64
    };
    MovedData {
        bytes: begun.iter().map(|m| m.bytes).sum::<u64>() as f64,
        vms: distinct(|m| &m.vm),
        volumes: distinct(|m| &m.volume),
    }
}
