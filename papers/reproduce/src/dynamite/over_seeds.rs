//! Numbers of a variant over several seeds, with their intervals.

use serde::Serialize;

use super::readings::FillRate;
use super::summary::{ApplianceSummary, Summary, WorkloadSummary};
use super::variants::Variant;
use crate::claim::Value;

/// Numbers of a variant over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverSeeds {
    /// Fill rate of caches.
    pub reading: FillRate,
    /// Variant.
    pub variant: Variant,
    /// USR-1's requests per second in the peak.
    pub usr1_peak: Option<Value>,
    /// FIO's requests per second in the peak.
    pub fio_peak: Option<Value>,
    /// USR-1's 99th percentile of latency in the peak, in milliseconds.
    pub usr1_p99_ms: Option<Value>,
    /// FIO's 99th percentile of latency in the peak, in milliseconds.
    pub fio_p99_ms: Option<Value>,
    /// USR-1's minutes in violation.
    pub usr1_violation_min: Option<Value>,
    /// FIO's minutes in violation.
    pub fio_violation_min: Option<Value>,
    /// Minutes in violation of both, from the peak on.
    pub violation_peak_min: Option<Value>,
    /// Time at which all of the peak's requests had been issued.
    pub peak_done_min: Option<Value>,
    /// Cache size of the last appliance.
    pub cache_gib: Option<Value>,
    /// Time of its order.
    pub ordered_min: Option<Value>,
    /// Time from which on no objective was violated.
    pub effective_min: Option<Value>,
    /// Time of its removal.
    pub gone_min: Option<Value>,
}

impl OverSeeds {
    /// Combines one variant's summaries, by seed. A value that one seed lacks is omitted.
    pub(super) fn new(reading: FillRate, variant: Variant, by_seed: &[&Summary]) -> Self {
        let usr1 = |get: fn(&WorkloadSummary) -> Option<f64>| {
            Value::over(by_seed, |s| s.usr1.as_ref().and_then(get))
        };
        let fio = |get: fn(&WorkloadSummary) -> Option<f64>| {
            Value::over(by_seed, |s| s.fio.as_ref().and_then(get))
        };
        let made = |get: fn(&ApplianceSummary) -> Option<f64>| {
            Value::over(by_seed, |s| s.created.as_ref().and_then(get))
        };
        let late = |w: &Option<WorkloadSummary>| w.map_or(0.0, |w| w.violation_peak_min);
        Self {
            reading,
            variant,
            usr1_peak: usr1(|w| Some(w.rate.peak)),
            fio_peak: fio(|w| Some(w.rate.peak)),
            usr1_p99_ms: usr1(|w| w.p99_peak_ms),
            fio_p99_ms: fio(|w| w.p99_peak_ms),
            usr1_violation_min: usr1(|w| Some(w.violation_min)),
            fio_violation_min: fio(|w| Some(w.violation_min)),
            violation_peak_min: Value::over(by_seed, |s| Some(late(&s.usr1) + late(&s.fio))),
            peak_done_min: usr1(|w| w.peak_done_min),
            cache_gib: made(|c| Some(c.cache.as_mib_f64() / 1024.0)),
            ordered_min: made(|c| Some(c.ordered_min)),
            effective_min: made(|c| c.effective_min),
            gone_min: made(|c| c.gone_min),
        }
    }
}
