//! What is remembered of a peak, and the forecast of the next one that is made of it.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::curve::Curve;
use crate::load::Backend;
use crate::measured::{Habit, PRESENT};
use crate::sample::{Sample, WorkloadId};
use crate::site::{Forecast, WarmForecast};
use crate::zones::Zone;

/// What is remembered of the last occurrence of a slot, beside its rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Heavy zones.
    pub zones: Vec<Zone>,
    /// Miss ratios.
    pub curve: Option<Curve>,
    /// The most that it had for two minutes, requests per second: the best mean of twelve samples in a row, or of all where there are
    /// fewer. A burst of seconds is no peak to prepare for.
    #[serde(default)]
    pub rate_max_per_s: f64,
    /// What its requests were like.
    #[serde(default)]
    pub habit: Option<Habit>,
}

/// Whose peaks are looked out for, and what is made of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookout {
    pub workload: WorkloadId,
    /// What it was promised, requests per second, if a rate.
    pub promised_per_s: Option<f64>,
    /// So long before a peak begins it is acted on: an appliance has to boot and to warm up.
    pub lead: Nanos,
    /// Whether recorded zones are read in advance.
    pub warm: WarmForecast,
}

/// A peak that is coming, and when to act on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreseen {
    /// When [`crate::Responder::foresee`] is to be told.
    pub act_at: Nanos,
    /// What it is to be told.
    pub forecast: Forecast,
}

impl Recorded {
    /// Of the samples of a time, and the zones and the curve as its end showed them.
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

    /// The forecast of a peak like this one that begins `at` a time, of no less than was promised; `None` where what requests were like
    /// is not known.
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

    /// Whether a forecast can be made of it, and whether that has a curve: of more use is what sorts later.
    pub(crate) fn tells(&self) -> Option<bool> {
        self.habit.as_ref().map(|_| self.curve.is_some())
    }

    /// Whether its numbers are some that could have been measured.
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

/// The best mean rate of two minutes of samples, or of all where there are fewer; 0 of none.
fn sustained(samples: &[Sample]) -> f64 {
    let n = samples.len().clamp(1, PRESENT);
    let mean = |w: &[Sample]| w.iter().map(Sample::rate_per_s).sum::<f64>() / n as f64;
    samples.windows(n).map(mean).fold(0.0, f64::max)
}
