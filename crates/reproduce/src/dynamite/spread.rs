//! Several seeds: a variant's numbers with their least and most.

use serde::Serialize;

use super::summary::{Created, Summary, WorkloadSummary};
use super::variants::Variant;

/// A number over the seeds that have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Least.
    pub least: f64,
    /// Most.
    pub most: f64,
    /// Seeds that have it.
    pub n: usize,
}

impl Spread {
    /// Of those that are there; `None` for none.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().flatten().collect();
        let n = values.len();
        (n > 0).then(|| Self {
            mean: values.iter().sum::<f64>() / n as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            n,
        })
    }
}

/// A variant over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverSeeds {
    /// Which.
    pub variant: Variant,
    /// USR-1's requests per second in the peak.
    pub usr1_peak: Option<Spread>,
    /// FIO's.
    pub fio_peak: Option<Spread>,
    /// USR-1's 99th percentile of latency in the peak, milliseconds.
    pub usr1_p99_ms: Option<Spread>,
    /// FIO's.
    pub fio_p99_ms: Option<Spread>,
    /// USR-1's minutes in violation.
    pub usr1_violation_min: Option<Spread>,
    /// FIO's.
    pub fio_violation_min: Option<Spread>,
    /// Of both, from the peak on.
    pub violation_peak_min: Option<Spread>,
    /// When all of the peak's requests had been issued.
    pub peak_done_min: Option<Spread>,
    /// The last appliance's cache.
    pub cache_gib: Option<Spread>,
    /// When it was ordered.
    pub ordered_min: Option<Spread>,
    /// From when on nothing was violated.
    pub effective_min: Option<Spread>,
    /// When it was gone.
    pub gone_min: Option<Spread>,
}

impl OverSeeds {
    /// One variant's summaries, by seed.
    pub(super) fn new(variant: Variant, by_seed: &[&Summary]) -> Self {
        let usr1 = |get: fn(&WorkloadSummary) -> Option<f64>| {
            Spread::of(by_seed.iter().map(|s| s.usr1.as_ref().and_then(get)))
        };
        let fio = |get: fn(&WorkloadSummary) -> Option<f64>| {
            Spread::of(by_seed.iter().map(|s| s.fio.as_ref().and_then(get)))
        };
        let made = |get: fn(&Created) -> Option<f64>| {
            Spread::of(by_seed.iter().map(|s| s.created.as_ref().and_then(get)))
        };
        let late = |w: &Option<WorkloadSummary>| w.map_or(0.0, |w| w.violation_peak_min);
        Self {
            variant,
            usr1_peak: usr1(|w| Some(w.rate.peak)),
            fio_peak: fio(|w| Some(w.rate.peak)),
            usr1_p99_ms: usr1(|w| w.p99_peak_ms),
            fio_p99_ms: fio(|w| w.p99_peak_ms),
            usr1_violation_min: usr1(|w| Some(w.violation_min)),
            fio_violation_min: fio(|w| Some(w.violation_min)),
            violation_peak_min: Spread::of(
                by_seed.iter().map(|s| Some(late(&s.usr1) + late(&s.fio))),
            ),
            peak_done_min: usr1(|w| w.peak_done_min),
            cache_gib: made(|c| Some(c.cache.as_mib_f64() / 1024.0)),
            ordered_min: made(|c| Some(c.ordered_min)),
            effective_min: made(|c| c.effective_min),
            gone_min: made(|c| c.gone_min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_those_that_are_there() {
        let found = Spread::of([Some(2.0), None, Some(5.0)]);
        let want = Spread {
            mean: 3.5,
            least: 2.0,
            most: 5.0,
            n: 2,
        };
        assert_eq!(found, Some(want));
        assert_eq!(Spread::of([None, None]), None);
    }
}
