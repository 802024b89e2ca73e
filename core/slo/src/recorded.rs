//! Record of a peak, and the forecast of the next peak from it.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::curve::Curve;
use crate::load::Backend;
use crate::measured::{Habit, PRESENT};
use crate::sample::{Sample, WorkloadId};
use crate::site::{Forecast, WarmForecast};
use crate::zones::Zone;

/// Record of the last occurrence of a slot, without its rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// Hot zones.
    pub zones: Vec<Zone>,
    /// Miss-ratio curve.
    pub curve: Option<Curve>,
    /// Highest mean rate of twelve consecutive samples (two minutes), or of all if there are fewer, requests per second. A
    /// burst of seconds is no peak to prepare for.
    #[serde(default)]
    pub rate_max_per_s: f64,
    /// Character of its requests.
    #[serde(default)]
    pub habit: Option<Habit>,
}

/// Workload whose peaks are forecast, and parameters of the forecasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookout {
    pub workload: WorkloadId,
    /// Guaranteed rate, requests per second, if there is one.
    pub promised_per_s: Option<f64>,
    /// Lead time before a peak, in which an appliance starts and warms up.
    pub lead: Nanos,
    /// Preloading of the recorded zones.
    pub warm: WarmForecast,
}

/// Forecast of a peak and the time to act on it.
#[derive(Debug, Clone, PartialEq)]
pub struct PeakForecast {
    /// Time at which to call [`crate::Responder::foresee`].
    pub act_at: Nanos,
    /// Forecast to pass to it.
    pub forecast: Forecast,
}

impl SlotRecord {
    /// Records a period from its samples, and from the zones and the curve at its end.
    pub fn of(
        samples: &[Sample],
        backend: &Backend,
        zones: Vec<Zone>,
        curve: Option<Curve>,
    ) -> Self {
        Self {
            zones,
            curve,
            rate_max_per_s: sustained(samples),
            habit: Some(Habit::of(samples, backend)),
        }
    }

    /// Returns the forecast of a peak like this one that starts at `at`, with at least the guaranteed rate. `None` without a
    /// habit.
    pub fn forecast(&self, at: Nanos, lookout: &Lookout) -> Option<Forecast> {
        Some(Forecast {
            workload: lookout.workload,
            at,
            by: at,
            until: at,
            seen: 0,
            rate_per_s: self
                .rate_max_per_s
                .max(lookout.promised_per_s.unwrap_or(0.0)),
            curve: self.curve.clone(),
            zones: self.zones.clone(),
            warm: lookout.warm,
            habit: self.habit.clone()?,
        })
    }

    /// Returns the usefulness for a forecast: `None` without a habit, else true if the record has a curve. Greater is more
    /// useful.
    pub(crate) fn tells(&self) -> Option<bool> {
        self.habit.as_ref().map(|_| self.curve.is_some())
    }

    /// Returns true if all numbers are possible as measurements.
    pub(crate) fn sound(&self) -> bool {
        let amount = |x: f64| x.is_finite() && x >= 0.0;
        let habit = |h: &Habit| {
            let costs = h
                .costs
                .iter()
                .all(|c| amount(c.read_s) && amount(c.write_s));
            (0.0..=1.0).contains(&h.write_share) && amount(h.read_bytes) && costs
        };
        let share = |z: &Zone| (0.0..=1.0).contains(&z.share);
        amount(self.rate_max_per_s)
            && self.habit.as_ref().is_none_or(habit)
            && self.zones.iter().all(share)
    }
}

/// Returns the highest mean rate of two minutes of samples, or of all if there are fewer; 0 without samples.
fn sustained(samples: &[Sample]) -> f64 {
    let n = samples.len().clamp(1, PRESENT);
    let mean = |w: &[Sample]| w.iter().map(Sample::rate_per_s).sum::<f64>() / n as f64;
    samples.windows(n).map(mean).fold(0.0, f64::max)
}
