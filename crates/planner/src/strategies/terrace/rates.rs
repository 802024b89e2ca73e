//! All exchange rates and assumptions in one place, and what an ablation changes: each at nothing, half and twice its value, and each part left out.

use std::f64::consts::LN_10;
use std::sync::LazyLock;

use algo::normal_cdf;
use model::{SloClass, SloStatistic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::latency::Latency;

/// A part that can be left out, to see what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A second move that makes room for the first.
    Room,
    /// What devices turned out to be, against what is told of them.
    Devices,
    /// How volumes differ from the model.
    Volumes,
    /// Epochs that differ: without it there is only their mean.
    Patterns,
    /// What volumes ask for beyond what they get.
    Demand,
    /// How requests come in: without it forecasts take all of them to wait as those that come at random.
    Waits,
    /// The placement that is looked for first: without it the next bundle is the one that is worth most by itself.
    Target,
    /// Extents: without it volumes are placed whole.
    Extents,
    /// Limits of harm.
    Harm,
    /// Measured floor: without it a volume may be predicted to be faster on a device than comparable volumes are there.
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

/// What is worth what; seconds are those in which an objective of weight 1 is missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// A second at e times the objective, beside the second itself: without a cap, so that a device that is far beyond what it can do shows which
    /// way out is.
    pub excess: f64,
    /// A second at the objective against one at no latency: faster earns next to nothing.
    pub faster: f64,
    /// A second of a volume without objective at e times the latency.
    pub free: f64,
    /// A second of a volume without objective that is slower than its class permits.
    pub slowed: f64,
    /// Factor by which plans stay below `max_slowdown`, for errors of predictions.
    pub slowdown_margin: f64,
    /// Share by which loads may grow before a volume is harmed.
    pub load_margin: f64,
    /// Requests per second from which a volume without objective counts in full.
    pub free_iops: f64,
    /// Wear and risk of copying a GiB.
    pub gib: f64,
    /// A GiB of a device's reserve (what `headroom_space` leaves) that is in use after a bundle: what it costs, in wear and risk, to
    /// move as much away and back when room is needed.
    pub reserve: f64,
    /// Seconds that a bundle takes besides its copies, when bundles are held against one another.
    pub copy_s: f64,
    /// Realised regret that a price needs (γ).
    pub regret: f64,
    /// The same as a multiple of that for a move back to where the volume was.
    pub returned: f64,
    /// Share of the present cost of all volumes that a plan has to save: within it of the best, nothing moves.
    pub least: f64,
    /// Chance, at any time, that a volume with an objective asks for more than it ever has ...
    pub surge: f64,
    /// ... by this factor; and at least for as much as the others with an objective do on average (median).
    pub surge_factor: f64,
    /// Seconds of all objectives' weight that may be spent at first on moves for what has not been missed yet ...
    pub advance_s: f64,
    /// ... and share of time by which that grows.
    pub advance_share: f64,
    /// Migration epochs for which loads are taken to stay as they are, at most.
    pub horizon_epochs: f64,
    /// Share of the history's epochs in which a bundle has to help.
    pub epochs_helped: f64,
    /// Spread of a percentile about its prediction where the volume is (sigma of a log-normal).
    pub sigma_here: f64,
    /// The same elsewhere, at first.
    pub sigma_there: f64,
    /// Normal quantile of the bounds that are told, which are to hold nine of ten outcomes: errors have longer tails than a normal distribution, whose
    /// own would be 1.645.
    pub interval_z: f64,
    /// Migration epochs after a move in which its volume goes nowhere else without a cause.
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

/// What a class asks for, as costs need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    weight: f64,
    /// The objective, microseconds, its logarithm, and the statistic that it is of.
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

/// What a volume costs per second, by its parts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    /// Weight of its class.
    pub weight: f64,
    /// Chance that its objective is missed.
    pub violated: f64,
    /// See [`Rates::excess`] and [`Rates::faster`].
    pub excess: f64,
    pub faster: f64,
    /// Of a volume without objective, with its weight.
    pub free: f64,
}

impl Cost {
    /// How much of an objective is missed: being faster than it does not count.
    pub(super) fn of_objective(&self) -> f64 {
        self.weight * (self.violated + self.excess)
    }

    /// All of it.
    pub(super) fn sum(&self) -> f64 {
        self.weight * (self.violated + self.excess + self.faster) + self.free
    }
}

/// Steps of the table of the normal distribution by unit, and the units on either side: between steps it is off by less than 2e-6.
const CDF_STEPS: f64 = 128.0;
const CDF_UNITS: f64 = 8.0;
static CDF: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let steps = 0..=(2.0 * CDF_UNITS * CDF_STEPS) as usize;
    steps
        .map(|i| normal_cdf(i as f64 / CDF_STEPS - CDF_UNITS))
        .collect()
});

/// The normal distribution, looked up: a plan asks for it a million times.
fn looked_up_cdf(z: f64) -> f64 {
    let at = (z.clamp(-CDF_UNITS, CDF_UNITS) + CDF_UNITS) * CDF_STEPS;
    let i = (at as usize).min(CDF.len() - 2);
    CDF[i] + (at - i as f64) * (CDF[i + 1] - CDF[i])
}

impl Rates {
    /// What a volume of a class costs per second at this latency; `limit_us` is the mean latency up to which a volume without objective is not
    /// slowed too much, 0 for none; `of_stat_ln` is how far the objective's statistic is from what the latency's
    /// variation says (logarithm of a factor), `sigma` its spread about its prediction.
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
            // By the mean, which says as much of what is fast enough anyway.
            faster: self.faster * (l.mean_us / target_us).min(1.0),
            free: 0.0,
        }
    }

    /// Bounds of a prediction where the volume is, as factors, for this spread (sigma of a log-normal).
    pub(super) fn factors(&self, sigma: f64) -> (f64, f64) {
        let wide = libm::exp(self.interval_z * sigma);
        (1.0 / wide, wide)
    }
}

/// Parameters of every variant that an ablation holds against the strategy as it is, by what is changed.
pub(super) fn variants() -> Vec<(String, Value)> {
    let rates = serde_json::to_value(Rates::default()).expect("numbers by name");
    let numbers = rates.as_object().into_iter().flatten();
    let rate = |name: &str, value: f64| json!({ "rates": { name: value } });
    let mut variants = vec![];
    // Bounds that are told decide nothing.
    for (name, value) in numbers.filter(|(name, _)| *name != "interval_z") {
        let value = value.as_f64().expect("rates are numbers");
        for (times, of) in [("0", 0.0), ("1/2", 0.5), ("2", 2.0)] {
            // A spread of nothing is no spread.
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
