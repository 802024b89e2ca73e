//! Figures as numbers.

use serde::Serialize;
use slo::interference::{InterferenceConfig, Pair, Series, strength};
use units::Bytes;

use super::recorded::RecordedRow;
use super::scenario::{FIO, SYS, USR1};
use super::summary::{deciding, mean_rate};
use super::variants::{Variant, VariantRun};

/// Figure 1: ratio of peak hour to mean hour.
#[derive(Debug, Clone, Serialize)]
pub struct Fig1 {
    /// Published traces and ratios. (More than 20 of 36 traces have 10 or more.)
    pub published: Vec<(&'static str, f64)>,
    /// Given recorded volumes: name, and busiest of twelve equal parts over the mean.
    pub ours: Vec<(String, f64)>,
}

/// Line of figure 5: requests per second, by minute.
#[derive(Debug, Clone, Serialize)]
pub struct Fig5Line {
    /// Variant.
    pub variant: Variant,
    /// Workload.
    pub workload: &'static str,
    /// Rate of each minute.
    pub rate_per_s: Vec<f64>,
}

/// Figure 6.
#[derive(Debug, Clone, Serialize)]
pub struct Fig6 {
    /// Time of the table in minutes.
    pub at_min: Option<f64>,
    /// All pairs, numbered as USR-1, FIO, SYS.
    pub pairs: Vec<Pair>,
    /// Set of each workload.
    pub set: Vec<usize>,
    /// Strength of interference of USR-1 and FIO over time in the co-located run: minute, and largest |r| over six
    /// minutes.
    pub over_time: Vec<(f64, f64)>,
}

/// Curve of figure 7.
#[derive(Debug, Clone, Serialize)]
pub struct Fig7Curve {
    /// Workload.
    pub workload: &'static str,
    /// Time of the curve in minutes.
    pub at_min: f64,
    /// Cache size, estimated and simulated miss ratio.
    pub points: Vec<(Bytes, f64, f64)>,
    /// Largest difference of the two.
    pub error_max: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Dynamism.
    pub fig1: Fig1,
    /// Results.
    pub fig5: Vec<Fig5Line>,
    /// Interference.
    pub fig6: Fig6,
    /// Miss-ratio curves of the co-located run.
    pub fig7: Vec<Fig7Curve>,
}

impl Figures {
    /// Computes the figures from all runs.
    pub(crate) fn new(runs: &[&VariantRun], rows: &[RecordedRow]) -> Self {
        Self {
            fig1: Fig1 {
                published: vec![("USR-1", 6.0), ("SRC1-1", 15.5)],
                ours: rows
                    .iter()
                    .map(|r| (r.name.clone(), r.peak_over_mean))
                    .collect(),
            },
            fig5: runs.iter().flat_map(|r| fig5(r)).collect(),
            fig6: fig6(runs),
            fig7: fig7(runs),
        }
    }
}

/// Returns the run of a variant.
pub(crate) fn run_of<'a>(runs: &[&'a VariantRun], variant: Variant) -> Option<&'a VariantRun> {
    runs.iter().find(|r| r.variant == variant).copied()
}

fn fig5(run: &VariantRun) -> Vec<Fig5Line> {
    let line = |(w, workload): (usize, &'static str)| {
        let place = run.variant.place_of(w)?;
        let samples = &run.result.series[place].samples;
        Some(Fig5Line {
            variant: run.variant,
            workload,
            rate_per_s: samples.chunks(6).map(mean_rate).collect(),
        })
    };
    [(USR1, "USR-1"), (FIO, "FIO")]
        .into_iter()
        .filter_map(line)
        .collect()
}

/// Number of samples per point of figure 6(b), six minutes: about the minimum for the test.
const FIG6_SAMPLES: usize = 36;

fn fig6(runs: &[&VariantRun]) -> Fig6 {
    let reactive = run_of(runs, Variant::Reactive);
    let decision = reactive.and_then(|r| deciding(&r.result.decisions));
    let found = decision
        .and_then(|d| d.interference.clone())
        .unwrap_or_default();
    let config = InterferenceConfig {
        samples: FIG6_SAMPLES,
        samples_min: FIG6_SAMPLES,
        ..InterferenceConfig::default()
    };
    let over_time = run_of(runs, Variant::CoLocated).map_or(Vec::new(), |run| {
        let series = |w: usize, to: usize| {
            let samples = &run.result.series[w].samples[..to];
            let mut last = 0.0;
            Series {
                rate: samples.iter().map(|s| s.rate_per_s()).collect(),
                latency_us: samples
                    .iter()
                    .map(|s| {
                        last = s.latency_us.unwrap_or(last);
                        last
                    })
                    .collect(),
            }
        };
        let n = run.result.series[USR1].samples.len();
        let at = |to: usize| {
            let r = strength(&config, &series(USR1, to), &series(FIO, to))?;
            Some((to as f64 / 6.0, r))
        };
        (FIG6_SAMPLES + 1..=n).step_by(6).filter_map(at).collect()
    });
    Fig6 {
        at_min: decision.map(|d| d.at.as_secs_f64() / 60.0),
        pairs: found.pairs,
        set: found.set,
        over_time,
    }
}

fn fig7(runs: &[&VariantRun]) -> Vec<Fig7Curve> {
    let Some(run) = run_of(runs, Variant::CoLocated) else {
        return Vec::new();
    };
    let curves = run.result.curves.iter().filter(|c| c.workload != SYS);
    curves
        .map(|c| Fig7Curve {
            workload: if c.workload == USR1 { "USR-1" } else { "FIO" },
            at_min: c.at.as_secs_f64() / 60.0,
            points: c.points.clone(),
            error_max: c
                .points
                .iter()
                .map(|p| (p.1 - p.2).abs())
                .fold(0.0, f64::max),
        })
        .collect()
}
