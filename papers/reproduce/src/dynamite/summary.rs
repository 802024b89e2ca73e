//! Summary of a variant in numbers.

use serde::Serialize;
use slo::ladder::{RemedyAction, taken};
use slo::{Decision, Sample};
use units::Bytes;

use super::result::CaseSeries;
use super::scenario::{FIO, PEAK_BEGINS_MIN, PEAK_ENDS_MIN, SPIKE_END_MIN, USR1};
use super::variants::{Variant, VariantRun};

/// Mean requests per second of a workload, by phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ByPhase {
    /// Until minute 7.
    pub spike: f64,
    /// From minute 15 to 45.
    pub calm: f64,
    /// From minute 49 to 75.
    pub peak: f64,
    /// From minute 65 to 75.
    pub late_peak: f64,
    /// Best minute from 55 on.
    pub best_minute: f64,
}

/// Summary of one workload of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkloadSummary {
    /// Requests per second.
    pub rate: ByPhase,
    /// 99th percentile of the latency in the peak in milliseconds, from issue to completion.
    pub p99_peak_ms: Option<f64>,
    /// Minutes in violation, out of 120.
    pub violation_min: f64,
    /// Minutes in violation from minute 48 on.
    pub violation_peak_min: f64,
    /// Time at which all of the peak's requests had been issued.
    pub peak_done_min: Option<f64>,
    /// Number of requests not issued at the end.
    pub unserved: u64,
    /// Number of requests that a generator skipped.
    pub left_out: u64,
}

/// Created appliance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplianceSummary {
    /// Workload.
    pub workload: usize,
    /// Cache size.
    pub cache: Bytes,
    /// Memory.
    pub memory: Bytes,
    /// Host.
    pub host: u16,
    /// Time of the order.
    pub ordered_min: f64,
    /// Time from which requests went through it.
    pub routed_min: Option<f64>,
    /// Time from which no objective is violated for two minutes; `None` if there was no such time.
    pub effective_min: Option<f64>,
    /// Time of its removal.
    pub gone_min: Option<f64>,
    /// Hit ratio of reads from minute 65 to 75.
    pub hits: Option<f64>,
}

/// Summary of a variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Variant.
    pub variant: Variant,
    /// USR-1, if it ran.
    pub usr1: Option<WorkloadSummary>,
    /// FIO, if it ran.
    pub fio: Option<WorkloadSummary>,
    /// Last appliance, if there was one.
    pub created: Option<ApplianceSummary>,
    /// Orders and events: minute and text.
    pub events: Vec<(f64, String)>,
}

/// Number of samples in a minute.
const PER_MIN: usize = 6;

/// Returns the samples of a span of minutes.
pub(crate) fn span(samples: &[Sample], from_min: u64, to_min: u64) -> &[Sample] {
    let at = |m: u64| (m as usize * PER_MIN).min(samples.len());
    &samples[at(from_min)..at(to_min)]
}

/// Returns the mean rate.
pub(crate) fn mean_rate(samples: &[Sample]) -> f64 {
    samples.iter().map(Sample::rate_per_s).sum::<f64>() / samples.len().max(1) as f64
}

fn workload(series: &CaseSeries) -> WorkloadSummary {
    let samples = &series.samples;
    let rate = |from, to| mean_rate(span(samples, from, to));
    let minutes = span(samples, 55, 120).chunks(PER_MIN);
    let from_peak = PEAK_BEGINS_MIN as usize * PER_MIN;
    let late = series.standings.iter().skip(from_peak);
    WorkloadSummary {
        rate: ByPhase {
            spike: rate(0, SPIKE_END_MIN),
            calm: rate(15, 45),
            peak: rate(PEAK_BEGINS_MIN + 1, PEAK_ENDS_MIN),
            late_peak: rate(65, PEAK_ENDS_MIN),
            best_minute: minutes.map(mean_rate).fold(0.0, f64::max),
        },
        p99_peak_ms: series.p99_us.map(|us| us / 1e3),
        violation_min: series.violation_minutes(),
        violation_peak_min: late.filter(|s| s.violates()).count() as f64 / PER_MIN as f64,
        peak_done_min: series.caught_up.map(|at| at.as_secs_f64() / 60.0),
        unserved: series.unserved,
        left_out: series.left_out,
    }
}

impl Summary {
    /// Summarizes a run.
    pub(crate) fn new(run: &VariantRun) -> Self {
        let of = |w: usize| {
            let place = run.variant.place_of(w)?;
            Some(workload(&run.result.series[place]))
        };
        Self {
            variant: run.variant,
            usr1: of(USR1),
            fio: of(FIO),
            created: created(run),
            events: run
                .result
                .events
                .iter()
                .map(|e| (e.at_s / 60.0, e.what.clone()))
                .collect(),
        }
    }
}

/// Returns the last decision that led to an appliance.
pub(crate) fn deciding(decisions: &[Decision]) -> Option<&Decision> {
    let appliance = |d: &&Decision| {
        taken(&d.remedies).is_some_and(|r| matches!(r.action, Some(RemedyAction::Appliance { .. })))
    };
    decisions.iter().rfind(appliance)
}

fn created(run: &VariantRun) -> Option<ApplianceSummary> {
    let decision = deciding(&run.result.decisions)?;
    let remedy = taken(&decision.remedies)?;
    let Some(RemedyAction::Appliance {
        workload,
        host,
        cache,
        ..
    }) = remedy.action
    else {
        return None;
    };
    let ordered_min = decision.at.as_secs_f64() / 60.0;
    let name = &run.result.series[workload.index()].name;
    let mut appliances = run.result.appliances.iter();
    let last = appliances.rfind(|a| a.volume == *name);
    let minutes = |s: f64| s / 60.0;
    let routed_min = last.and_then(|a| a.serving_s).map(minutes);
    let w = workload.index();
    let late = span(&run.result.series[w].samples, 65, 75);
    let reads: f64 = late.iter().map(|s| s.reads_per_s).sum();
    let past: f64 = late.iter().map(|s| s.backend_reads_per_s).sum();
    Some(ApplianceSummary {
        workload: w,
        cache,
        memory: remedy.price.memory,
        host: host.0,
        ordered_min,
        routed_min,
        effective_min: routed_min.and_then(|at| effective(run, at)),
        gone_min: last.and_then(|a| a.ended_s).map(minutes),
        hits: (reads > 0.0).then(|| 1.0 - past / reads),
    })
}

/// Returns the first sample from `routed_min` on after which no workload is in violation for two minutes.
fn effective(run: &VariantRun, routed_min: f64) -> Option<f64> {
    const KEPT: usize = 12;
    let from = libm::ceil(routed_min * PER_MIN as f64) as usize;
    let n = run.result.series.iter().map(|s| s.standings.len()).min()?;
    let kept = |i: usize| run.result.series.iter().all(|s| !s.standings[i].violates());
    let found = (from..n.saturating_sub(KEPT)).find(|i| (*i..i + KEPT).all(kept))?;
    Some(found as f64 / PER_MIN as f64)
}
