//! Seasonal expectation of a workload's load: for an hour of the week, the 90th percentile of the rates in the last four
//! such hours. Zones and curve are those of the last such hour; if it has no curve, the latest known one is used.
//!
//! Hence an appliance can be created before its peak: [`SeasonRecord::forecast`] makes the input of
//! [`crate::Responder::foresee`]. The paper assumes that such knowledge exists (sec. 5, 7.1) and simulates it. When not to
//! use: for loads without a season. With fewer than two occurrences nothing is predicted.
//!
//! ```text
//!  rate ▲            ┌───┐ expected rate of the peak
//!       │        ┌───┘   └───┐ ◀─ consecutive slots that matter are one peak
//!       │  ──┬───┘           └─────
//!       └────┴───┴───┴───┴───┴───┴──▶ slots
//!    lead ◀──▶ start: the forecast's time
//! ```

use std::collections::BTreeMap;
use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

pub use crate::recorded::{Lookout, PeakForecast, SlotRecord};
use crate::sample::SAMPLE;

/// Season, its slots, and the history that forecasts use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeasonalConfig {
    /// Length of the season, a multiple of `slot`: a week, or a day if all days are alike. Default: 7 days.
    pub season: Nanos,
    /// Length of a slot of the season, a multiple of the window and at least 10 seconds. Default: 1 hour.
    pub slot: Nanos,
    /// Number of latest occurrences of each slot that are remembered, at least 1. Default: 4.
    pub occurrences: usize,
    /// Smallest number of occurrences for a forecast, at least 1. Default: 2.
    pub occurrences_min: usize,
    /// Quantile of the remembered rates that is expected, 0 to 1. Default: 0.9.
    pub quantile: f64,
}

impl Default for SeasonalConfig {
    fn default() -> Self {
        Self {
            season: Nanos::from_secs(7 * 24 * 3600),
            slot: Nanos::from_secs(3600),
            occurrences: 4,
            occurrences_min: 2,
            quantile: 0.9,
        }
    }
}

/// Expected load of a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedLoad<'a> {
    /// Start of the slot.
    pub at: Nanos,
    /// Expected demand, requests per second.
    pub rate_per_s: f64,
    /// Record of its last occurrence.
    pub recorded: &'a SlotRecord,
    /// Number of occurrences that the expectation rests on.
    pub seen: usize,
}

/// Recorded season of one workload. Deserialized values must satisfy the rules of [`SeasonRecord::new`] and
/// [`SeasonRecord::remember`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredSeason")]
pub struct SeasonRecord {
    config: SeasonalConfig,
    slots: BTreeMap<u64, Slot>,
}

/// Recorded slot of the season.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Rates of its occurrences, oldest first, requests per second.
    pub rates: VecDeque<f64>,
    /// Record of its last occurrence.
    pub recorded: SlotRecord,
    /// Age of the curve in occurrences; 0 if the last occurrence had one.
    #[serde(default)]
    pub curve_age: usize,
}

/// Serialized form, unchecked.
#[derive(Deserialize)]
struct StoredSeason {
    config: SeasonalConfig,
    slots: BTreeMap<u64, Slot>,
}

impl TryFrom<StoredSeason> for SeasonRecord {
    type Error = SeasonalError;

    fn try_from(stored: StoredSeason) -> Result<Self, SeasonalError> {
        let mut seasonal = SeasonRecord::new(stored.config);
        if seasonal.config != stored.config {
            return Err(SeasonalError::Config);
        }
        for (number, slot) in stored.slots {
            seasonal.recall(number, slot)?;
        }
        Ok(seasonal)
    }
}

/// Reason why stored seasons are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeasonalError {
    /// Values of the configuration out of range.
    #[error("season, slot, occurrences or quantile out of range")]
    Config,
    /// A slot beyond the season, with too many occurrences, or with rates, shares or costs that are impossible.
    #[error("slot {0} is outside the season, or has invalid values")]
    Slot(u64),
}

impl SeasonRecord {
    /// Creates an empty season. Values out of range are limited to their range.
    pub fn new(mut config: SeasonalConfig) -> Self {
        config.slot = config.slot.max(SAMPLE);
        // The season must have whole slots: part of a slot would be recorded as another one.
        let slots = config.season.0.div_ceil(config.slot.0).max(1);
        let whole = slots.checked_mul(config.slot.0);
        config.season = Nanos(whole.unwrap_or(u64::MAX / config.slot.0 * config.slot.0));
        config.occurrences = config.occurrences.max(1);
        config.occurrences_min = config.occurrences_min.clamp(1, config.occurrences);
        // NaN becomes the most careful quantile.
        config.quantile = if config.quantile.is_nan() {
            1.0
        } else {
            config.quantile.clamp(0.0, 1.0)
        };
        Self {
            config,
            slots: BTreeMap::new(),
        }
    }

    /// Records a slot that has ended: its start, its rate and its record. A slot with impossible numbers (NaN, infinite or
    /// negative values, shares above 1) is dropped: once stored, one of them would make the whole season unreadable.
    pub fn remember(&mut self, began: Nanos, rate_per_s: f64, recorded: SlotRecord) {
        if !sound(rate_per_s) || !recorded.sound() {
            return;
        }
        let slot = self.slots.entry(self.number(began)).or_default();
        if slot.rates.len() == self.config.occurrences {
            slot.rates.pop_front();
        }
        slot.rates.push_back(rate_per_s);
        let before = std::mem::replace(&mut slot.recorded, recorded);
        let is_known = slot.recorded.curve.is_some();
        slot.curve_age = if is_known {
            0
        } else {
            slot.curve_age.saturating_add(1)
        };
        if !is_known && slot.curve_age < self.config.occurrences {
            slot.recorded.curve = before.curve;
        }
    }

    /// Returns the recorded slot with this number.
    pub fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(&number)
    }

    /// Restores a recorded slot, in place of the present one.
    ///
    /// # Errors
    /// A slot that is not part of this season, or has impossible values.
    pub fn recall(&mut self, number: u64, slot: Slot) -> Result<(), SeasonalError> {
        let last = self.number(Nanos(self.config.season.0 - 1));
        let measured = slot.rates.iter().all(|r| sound(*r)) && slot.recorded.sound();
        if number > last || slot.rates.len() > self.config.occurrences || !measured {
            return Err(SeasonalError::Slot(number));
        }
        self.slots.insert(number, slot);
        Ok(())
    }

    /// Returns the first slot that starts after `now`, at most `within` (up to a season) later, and satisfies `matters`.
    pub fn expect(
        &self,
        now: Nanos,
        within: Nanos,
        matters: impl Fn(f64) -> bool,
    ) -> Option<ExpectedLoad<'_>> {
        let slot_ns = self.config.slot.0;
        let until = now.0.saturating_add(within.0.min(self.config.season.0));
        let mut at = (now.0 / slot_ns).checked_add(1)?.checked_mul(slot_ns)?;
        while at <= until {
            let expected = self.at(Nanos(at));
            if let Some(expected) = expected.filter(|e| matters(e.rate_per_s)) {
                return Some(expected);
            }
            at = at.checked_add(slot_ns)?;
        }
        None
    }

    /// Returns the expectation for the slot that contains `at`.
    pub fn at(&self, at: Nanos) -> Option<ExpectedLoad<'_>> {
        let slot = self.slots.get(&self.number(at))?;
        if slot.rates.len() < self.config.occurrences_min {
            return None;
        }
        let mut rates: Vec<f64> = slot.rates.iter().copied().collect();
        rates.sort_by(f64::total_cmp);
        let rank = libm::ceil(self.config.quantile * rates.len() as f64) as usize;
        Some(ExpectedLoad {
            at: Nanos(at.0 / self.config.slot.0 * self.config.slot.0),
            rate_per_s: rates[rank.clamp(1, rates.len()) - 1],
            recorded: &slot.recorded,
            seen: slot.rates.len(),
        })
    }

    /// Returns the mean of all slots' expected rates; 0 without any.
    pub fn mean_per_s(&self) -> f64 {
        let slots = self.slots.keys();
        let expected = slots.filter_map(|n| self.at(Nanos(n * self.config.slot.0)));
        let (sum, n) = expected.fold((0.0, 0u32), |(sum, n), e| (sum + e.rate_per_s, n + 1));
        sum / f64::from(n.max(1))
    }

    /// Returns the configuration, with its values limited to their ranges.
    pub fn config(&self) -> &SeasonalConfig {
        &self.config
    }

    /// Returns the next peak that starts after `now`, at most `within` (up to a season) later. The result has the forecast
    /// for [`crate::Responder::foresee`] and the time to act on it.
    ///
    /// A peak consists of consecutive slots whose rate `matters`; a peak that has started is not returned. Its rate is the
    /// largest of three: the expected rates of its slots, their highest two-minute rates, and the guaranteed rate. The
    /// guaranteed rate is included because a workload in violation had a higher demand than its measured rate. Zones, curve
    /// and habit are those of the busiest slot that has a curve, or without curves of the busiest slot with a habit. The
    /// peak counts as started when its first slot ends. `None` without such a peak or without a recorded habit.
    pub fn forecast(
        &self,
        now: Nanos,
        within: Nanos,
        lookout: &Lookout,
        matters: impl Fn(f64) -> bool,
    ) -> Option<PeakForecast> {
        let slot_ns = self.config.slot.0;
        let matters_at = |at: u64| self.at(Nanos(at)).filter(|e| matters(e.rate_per_s));
        let until = now.0.saturating_add(within.0.min(self.config.season.0));
        let mut from = now;
        let begins = loop {
            let next = self.expect(from, Nanos(until.saturating_sub(from.0)), &matters)?;
            let goes_on = |before: u64| matters_at(before).is_some();
            if !next.at.0.checked_sub(slot_ns).is_some_and(goes_on) {
                break next.at;
            }
            from = next.at;
        };
        let slots = (0..self.config.season.0 / slot_ns).map(|i| begins.0.checked_add(i * slot_ns));
        let peak: Vec<ExpectedLoad<'_>> = slots.map_while(|at| matters_at(at?)).collect();
        let telling = peak.iter().filter(|e| e.recorded.tells().is_some());
        let busiest = telling.max_by(|a, b| {
            let rates = a.rate_per_s.total_cmp(&b.rate_per_s);
            let curves = a.recorded.tells().cmp(&b.recorded.tells());
            curves.then(rates).then(b.at.cmp(&a.at))
        })?;
        let mut forecast = busiest.recorded.forecast(begins, lookout)?;
        forecast.by = Nanos(begins.0.saturating_add(slot_ns));
        let lasts = slot_ns.saturating_mul(peak.len() as u64);
        forecast.until = Nanos(begins.0.saturating_add(lasts));
        forecast.seen = peak.first().map_or(0, |slot| slot.seen);
        for slot in &peak {
            let most = slot.rate_per_s.max(slot.recorded.rate_max_per_s);
            forecast.rate_per_s = forecast.rate_per_s.max(most);
        }
        Some(PeakForecast {
            act_at: Nanos(begins.0.saturating_sub(lookout.lead.0)).max(now),
            forecast,
        })
    }

    /// Returns the number of the slot that contains a time.
    pub fn number(&self, at: Nanos) -> u64 {
        at.0 % self.config.season.0 / self.config.slot.0
    }
}

/// Returns true if a rate is possible as a measurement.
fn sound(rate_per_s: f64) -> bool {
    rate_per_s.is_finite() && rate_per_s >= 0.0
}

#[cfg(test)]
#[path = "seasonal_tests.rs"]
mod tests;
