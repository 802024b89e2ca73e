//! What the figures need of one run.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sim::{DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary, RunResult};

use super::setup::{STRATEGIES, Setup, TIERS};

/// All tiers together, then each.
pub(crate) const GROUPS: [&str; 4] = ["total", TIERS[0], TIERS[1], TIERS[2]];
/// Directions, in the order of arrays.
pub(crate) const DIRECTIONS: [&str; 3] = ["all", "read", "write"];
pub(crate) const ALL: usize = 0;
pub(crate) const READ: usize = 1;
pub(crate) const WRITE: usize = 2;

/// One direction of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metrics {
    pub(crate) iops: f64,
    pub(crate) mib_per_s: f64,
    /// `None` where there was no request.
    pub(crate) latency_us: Option<f64>,
}

/// What was moved, over all of the run or after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) bytes: f64,
    pub(crate) vms: f64,
    pub(crate) volumes: f64,
}

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// By group and direction.
    pub(crate) cells: [[Metrics; 3]; 4],
    /// Of windows that count, all tiers.
    pub(crate) window_iops: Vec<f64>,
    pub(crate) window_mib_per_s: Vec<f64>,
    /// Of migration epochs that count.
    pub(crate) epoch_iops: Vec<f64>,
    /// Over the windows that count, by tier: mean of the windows' mean latencies, reads and writes stacked.
    pub(crate) stacked_latency_us: [f64; 3],
    pub(crate) moved: Moved,
    pub(crate) moved_late: Moved,
    /// Requests that count.
    pub(crate) requests: u64,
    /// Window by window.
    pub(crate) tiers: Vec<TierOverTime>,
}

/// One tier over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is what its name says, per window
pub struct TierOverTime {
    pub tier: String,
    pub read_iops: Vec<f64>,
    pub write_iops: Vec<f64>,
    pub read_mib_per_s: Vec<f64>,
    pub write_mib_per_s: Vec<f64>,
    pub read_mean_us: Vec<f64>,
    pub write_mean_us: Vec<f64>,
}

/// All strategies under one seed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SeedRuns {
    /// In the order of [`STRATEGIES`].
    pub(crate) runs: Vec<Measured>,
}

impl SeedRuns {
    pub(crate) fn of(&self, strategy: &str) -> &Measured {
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

/// The group of a run: all, or a tier.
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

impl Measured {
    /// Of a run with its series.
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

/// Of moves that were started at that time or later.
fn moved(result: &RunResult, from_s: f64) -> Moved {
    let log = &result.move_log;
    let begun: Vec<_> = log
        .iter()
        .filter(|m| m.bytes > 0 && m.started_s.is_some_and(|s| s >= from_s))
        .collect();
    let distinct = |of: fn(&sim::MoveRecord) -> &str| {
        let names: BTreeSet<&str> = begun.iter().map(|m| of(m)).collect();
        names.len() as f64
    };
    Moved {
        bytes: begun.iter().map(|m| m.bytes).sum::<u64>() as f64,
        vms: distinct(|m| &m.vm),
        volumes: distinct(|m| &m.volume),
    }
}
