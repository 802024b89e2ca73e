//! All exchange rates and assumptions, and the variants of an ablation: each rate at zero, half and twice its value, and
//! each part left out.

use std::f64::consts::LN_10;
use std::sync::LazyLock;

use algo::normal_cdf;
use model::{SloClass, SloStatistic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::latency::Latency;

/// Part of the strategy that can be left out, to measure its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A second move that makes room for the first.
    Room,
    /// Learnt corrections of device models.
    Devices,
    /// Deviations of volumes from the model.
    Volumes,
    /// Different epochs: without it, only their mean counts.
    Patterns,
    /// Unmet demand of volumes.
    Demand,
    /// Arrivals of requests: without it, forecasts assume random arrivals.
    Waits,
    /// Search for a target placement: without it, the next bundle is the one with the highest value by itself.
    Target,
    /// Extents: without it, volumes are placed whole.
    Extents,
    /// Limits of harm.
    Harm,
    /// Measured floor: without it, the prediction for a volume may be faster than comparable volumes on the device.
    Floor,
}

impl Part {
    pub(super) const ALL: [Self; 10] = [
        Self::Room,
        Self::Devices,
        Self::Volumes,
        Self::Patterns,
        Self::Demand,
        Self::Waits,
        Self::Target,
        Self::Extents,
        Self::Harm,
        Self::Floor,
    ];
}

/// Exchange rates. The unit is a second of violation of an objective with weight 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Additional cost of a second of violation at e times the objective. It has no cap, so the best way out of an
    /// overloaded device can be found.
    pub excess: f64,
    /// Cost of a second at the objective, relative to zero latency: being faster has almost no value.
    pub faster: f64,
    /// Cost of a second of a volume without objective at e times the latency.
    pub free: f64,
    /// Cost of a second of a volume without objective that is slower than its class permits.
    pub slowed: f64,
    /// Factor by which plans stay below `max_slowdown`, for errors of predictions.
    pub slowdown_margin: f64,
    /// Share by which loads may grow before a volume is harmed.
    pub load_margin: f64,
    /// Requests per second from which a volume without objective counts in full.
    pub free_iops: f64,
    /// Cost of copying a GiB: wear and risk.
    pub gib: f64,
    /// Cost of a GiB of a device's reserve (the space above `headroom_space`) that is in use after a bundle: the wear and
    /// risk of moving as much away and back when room is needed.
    pub reserve: f64,
    /// Overhead of a bundle in seconds, besides its copies, when bundles are compared.
    pub copy_s: f64,
    /// Ratio of realised regret to price that a move needs (γ).
    pub regret: f64,
    /// Factor of the needed regret for a move back to a former device.
    pub returned: f64,
    /// Smallest reduction of the present cost of all volumes by a plan, as a share: below it, nothing moves.
    pub least: f64,
    /// Probability, at any time, that a volume with an objective demands more than ever before ...
    pub surge: f64,
    /// ... by this factor, and at least as much as the median of the volumes with an objective.
    pub surge_factor: f64,
    /// Initial budget for moves in advance, in seconds of all objectives' weight ...
    pub advance_s: f64,
    /// ... and share of time by which it grows.
    pub advance_share: f64,
    /// Largest number of migration epochs for which loads are assumed constant.
    pub horizon_epochs: f64,
    /// Smallest share of the history's epochs in which a bundle must help.
    pub epochs_helped: f64,
    /// Spread of a percentile around its prediction on the present device (sigma of a log-normal distribution).
    pub sigma_here: f64,
    /// Initial spread on other devices.
    pub sigma_there: f64,
    /// Normal quantile of the reported bounds, which should hold nine of ten outcomes. Errors have longer tails than a
    /// normal distribution, whose quantile would be 1.645.
    pub interval_z: f64,
    /// Number of migration epochs after a move in which the volume does not move again without a cause.
    pub rest_epochs: f64,
}

impl Rates {
    /// Returns the first invalid rate and its permitted range.
    pub(super) fn fault(&self) -> Option<(String, &'static str)> {
        let of = serde_json::to_value(self).expect("numbers by name");
        for (name, value) in of.as_object().into_iter().flatten() {
            // A value that is not finite is null in JSON.
            let value = value.as_f64().unwrap_or(-1.0);
            let (holds, what) = match name.as_str() {
                "sigma_here" | "sigma_there" => (value > 0.0, "must be above 0"),
                "surge" => ((0.0..=1.0).contains(&value), "must be between 0 and 1"),
                _ => (value >= 0.0, "must be at least 0"),
            };
            if !holds {
                return Some((format!("rates.{name}"), what));
            }
        }
        None
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            excess: 0.2,
            faster: 0.0005,
            free: 0.05,
            slowed: 2.0,
            slowdown_margin: 1.25,
            load_margin: 0.1,
            free_iops: 50.0,
            gib: 3.0,
            reserve: 6.0,
            copy_s: 20.0,
            regret: 1.0,
            returned: 3.0,
            least: 0.05,
            horizon_epochs: 10.0,
            surge: 0.02,
            surge_factor: 1.5,
            advance_s: 5.0,
            advance_share: 0.01,
            epochs_helped: 0.3,
            sigma_here: 0.25,
            sigma_there: 0.3,
            interval_z: 3.0,
            rest_epochs: 12.0,
        }
    }
}

/// Objective of a class in the form that costs need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    weight: f64,
    /// Objective in microseconds, its logarithm, and its statistic.
    target: Option<(f64, f64, SloStatistic)>,
}

impl Aim {
    pub(super) fn of(class: &SloClass) -> Self {
        Self {
            weight: class.weight,
            target: class.target.map(|t| {
                let us = t.latency.as_micros_f64();
                (us, libm::log(us), t.statistic)
            }),
        }
    }
}

/// Cost of a volume per second, by parts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    /// Weight of its class.
    pub weight: f64,
    /// Probability that its objective is violated.
    pub violated: f64,
    /// Parts of [`Rates::excess`] and [`Rates::faster`].
    pub excess: f64,
    pub faster: f64,
    /// Cost of a volume without objective, including its weight.
    pub free: f64,
}

impl Cost {
    /// Returns the violation of an objective: being faster does not count.
    pub(super) fn of_objective(&self) -> f64 {
        self.weight * (self.violated + self.excess)
    }

    /// Returns the sum of all parts.
    pub(super) fn sum(&self) -> f64 {
        self.weight * (self.violated + self.excess + self.faster) + self.free
    }
}

/// Steps of the table of the normal distribution per unit, and units on either side: the error between steps is below 2e-6.
const CDF_STEPS: f64 = 128.0;
const CDF_UNITS: f64 = 8.0;
static CDF: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let steps = 0..=(2.0 * CDF_UNITS * CDF_STEPS) as usize;
    steps
        .map(|i| normal_cdf(i as f64 / CDF_STEPS - CDF_UNITS))
        .collect()
});

/// Returns the normal distribution from a table: a plan needs a million values.
fn looked_up_cdf(z: f64) -> f64 {
    let at = (z.clamp(-CDF_UNITS, CDF_UNITS) + CDF_UNITS) * CDF_STEPS;
    let i = (at as usize).min(CDF.len() - 2);
    CDF[i] + (at - i as f64) * (CDF[i + 1] - CDF[i])
}

impl Rates {
    /// Returns the cost of a volume of a class per second at this latency. `limit_us` is the mean latency up to which a
    /// volume without objective is not slowed too much, 0 without a limit. `of_stat_ln` is the deviation of the objective's
    /// statistic from the latency's variation (logarithm of a factor), and `sigma` its spread around its prediction.
    pub(super) fn cost(
        &self,
        aim: &Aim,
        l: &Latency,
        of_stat_ln: f64,
        sigma: f64,
        iops: f64,
        limit_us: f64,
    ) -> Cost {
        let weight = aim.weight;
        let Some((target_us, target_ln, statistic)) = aim.target else {
            let mean_ln = libm::log(l.mean_us.max(1e-3));
            let slowed = match limit_us > 0.0 {
                true => {
                    let over_ln = mean_ln - libm::log(limit_us);
                    looked_up_cdf(over_ln / sigma) + self.excess * over_ln.max(0.0)
                }
                false => 0.0,
            };
            let counts = (iops / self.free_iops).min(1.0);
            let slow = self.free * (mean_ln - LN_10).max(0.0) + self.slowed * slowed;
            return Cost {
                weight,
                free: weight * counts * slow,
                ..Cost::default()
            };
        };
        let mean_ln = libm::log(l.mean_us.max(1e-3)) - target_ln;
        let used_ln = mean_ln + l.ratio_ln(statistic) + of_stat_ln;
        let violated = looked_up_cdf(used_ln / sigma);
        Cost {
            weight,
            violated,
            excess: self.excess * used_ln.max(0.0),
            // By the mean, which is as good a measure below the objective.
            faster: self.faster * (l.mean_us / target_us).min(1.0),
            free: 0.0,
        }
    }

    /// Returns the bounds of a prediction for the present device, as factors, for this spread (sigma of a log-normal
    /// distribution).
    pub(super) fn factors(&self, sigma: f64) -> (f64, f64) {
        let wide = libm::exp(self.interval_z * sigma);
        (1.0 / wide, wide)
    }
}

/// Returns the name and the parameters of each variant that an ablation compares with the default.
pub(super) fn variants() -> Vec<(String, Value)> {
    let rates = serde_json::to_value(Rates::default()).expect("numbers by name");
    let numbers = rates.as_object().into_iter().flatten();
    let rate = |name: &str, value: f64| json!({ "rates": { name: value } });
    let mut variants = vec![];
    // Reported bounds have no effect on decisions.
    for (name, value) in numbers.filter(|(name, _)| *name != "interval_z") {
        let value = value.as_f64().expect("rates are numbers");
        for (times, of) in [("0", 0.0), ("1/2", 0.5), ("2", 2.0)] {
            // A spread of zero is invalid.
            if of > 0.0 || !name.starts_with("sigma") {
                variants.push((format!("{name} x {times}"), rate(name, of * value)));
            }
        }
    }
    for part in Part::ALL {
        let name = serde_json::to_value(part).expect("a name");
        let name = name.as_str().expect("a name").to_owned();
        variants.push((format!("without {name}"), json!({ "without": [part] })));
    }
    variants
}
