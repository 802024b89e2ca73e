//! Total price of a remedy, which makes different kinds of remedies comparable.
//!
//! ```text
//!  total = seconds until it helps                                        the violation continues for this time
//!        + share that others lose × `others` × `lasting`                 they lose it while the remedy is needed
//!        + GiB of memory × `gib_memory` + CPUs × `cpu`                   of compute servers
//!        + GiB copied × `gib_copied`
//! ```
//!
//! The unit is a second of violation: a remedy with a price of 100 s is as costly as another 100 s of violation. Hence an
//! operator can choose the weights by asking: how much longer may the database be slow to save a GiB of memory, or to leave
//! its neighbour its full rate?
//!
//! Losses of others count as a share of *their* demand, not in requests. A batch job of ten thousand requests per second
//! that loses a tenth loses a tenth, however few requests the affected volume makes. A remedy that would violate another
//! objective is rejected at any price.
//!
//! This comparison is ours; the paper has one kind of remedy. Its limit is that the remaining duration of the violation is
//! unknown: `lasting` is one value for all.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Choice among several sufficient remedies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The first in the fixed order: throttle, cache share, over-provisioning share, mirror, appliance, move.
    Order,
    /// The one with the lowest total price; of equal prices, the first in the fixed order.
    #[default]
    Price,
}

/// Parts of a remedy's price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Time until the remedy takes effect.
    pub effect_after: Nanos,
    /// Virtual CPUs of compute servers.
    pub cpus: u32,
    /// Memory of compute servers.
    pub memory: Bytes,
    pub copied: Bytes,
    /// Requests per second that other workloads lose.
    pub lost_per_s: f64,
    /// Loss of these workloads as a share of their demand, 0..=1.
    #[serde(default)]
    pub lost_share: f64,
}

/// Weights of the parts of a price. A price is in seconds of violation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriceWeights {
    /// Time for which a remedy is expected to be needed. Default: 30 minutes.
    pub lasting: Nanos,
    /// Weight of a complete stop of other workloads, relative to the violation (1). 0 or more. Default: 0.25.
    pub others: f64,
    /// Price of a GiB of a compute server's memory. Default: 10 seconds.
    pub gib_memory: Nanos,
    /// Price of a virtual CPU of a compute server. Default: 10 seconds.
    pub cpu: Nanos,
    /// Price of copying a GiB. Default: 1 second.
    pub gib_copied: Nanos,
}

impl Default for PriceWeights {
    fn default() -> Self {
        Self {
            lasting: Nanos::from_secs(1800),
            others: 0.25,
            gib_memory: Nanos::from_secs(10),
            cpu: Nanos::from_secs(10),
            gib_copied: Nanos::from_secs(1),
        }
    }
}

impl PriceWeights {
    /// Checks the weights.
    ///
    /// # Errors
    /// The invalid key, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self.others.is_finite() && self.others >= 0.0 {
            true => Ok(()),
            false => Err(("price.others", "must be 0 or more")),
        }
    }
}

/// Total price by its parts, in seconds of violation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Time until the remedy takes effect.
    pub until_it_helps_s: f64,
    /// Losses of other workloads.
    pub others_s: f64,
    /// Memory and CPUs of compute servers.
    pub servers_s: f64,
    /// Data to copy.
    pub copied_s: f64,
}

impl Total {
    /// Returns the total of a price.
    pub fn of(price: &Price, weights: &PriceWeights) -> Self {
        let gib = |bytes: Bytes| bytes.as_f64() / Bytes::gib(1).as_f64();
        Self {
            until_it_helps_s: price.effect_after.as_secs_f64(),
            others_s: price.lost_share * weights.others * weights.lasting.as_secs_f64(),
            servers_s: gib(price.memory) * weights.gib_memory.as_secs_f64()
                + f64::from(price.cpus) * weights.cpu.as_secs_f64(),
            copied_s: gib(price.copied) * weights.gib_copied.as_secs_f64(),
        }
    }

    /// Returns the sum of the parts.
    pub fn seconds(&self) -> f64 {
        self.until_it_helps_s + self.others_s + self.servers_s + self.copied_s
    }

    /// Returns the total in ms for comparisons: rounding keeps the last bits of a sum from deciding.
    pub(crate) fn millis(&self) -> u64 {
        (1e3 * self.seconds()).round() as u64
    }
}

/// Prints the total and its parts: `100 s (10 s until it helps, 90 s for losses of others)`.
impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.until_it_helps_s, "until it helps"),
            (self.others_s, "for losses of others"),
            (self.servers_s, "for memory and CPUs"),
            (self.copied_s, "for copies"),
        ];
        let said: Vec<String> = parts
            .iter()
            .filter(|(s, _)| *s >= 0.5)
            .map(|(s, what)| format!("{s:.0} s {what}"))
            .collect();
        write!(f, "{:.0} s", self.seconds())?;
        match said.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", said.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(price: Price) -> Total {
        Total::of(&price, &PriceWeights::default())
    }

    #[test]
    fn price_parts_have_their_configured_weights() {
        let throttle = total(Price {
            effect_after: Nanos::from_secs(10),
            lost_per_s: 400.0,
            lost_share: 0.2,
            ..Price::default()
        });
        assert_eq!(throttle.seconds(), 10.0 + 0.2 * 0.25 * 1800.0);
        let words = "100 s (10 s until it helps, 90 s for losses of others)";
        assert_eq!(throttle.to_string(), words);
        let appliance = total(Price {
            effect_after: Nanos::from_secs(90),
            cpus: 4,
            memory: Bytes::gib(2),
            ..Price::default()
        });
        assert_eq!(appliance.seconds(), 90.0 + 40.0 + 20.0);
        let away = total(Price {
            effect_after: Nanos::from_secs(600),
            copied: Bytes::gib(100),
            ..Price::default()
        });
        assert_eq!(away.seconds(), 700.0);
        assert_eq!(total(Price::default()).to_string(), "0 s");
    }

    #[test]
    fn price_weights_must_be_finite_and_not_negative() {
        for others in [f64::NAN, f64::INFINITY, -1.0] {
            let weights = PriceWeights {
                others,
                ..PriceWeights::default()
            };
            assert_eq!(weights.check().unwrap_err().0, "price.others");
        }
        assert!(PriceWeights::default().check().is_ok());
    }
}
