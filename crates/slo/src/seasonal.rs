//! What is to be expected at this hour of this day: the 90th percentile of what the last four such hours asked for, and the
//! zones and the curve recorded in the last of them. Where none was known in the last one, the curve is that of the last one of them that had any.
//!
//! So an appliance can be created before its peak: [`Seasonal::forecast`] makes of it what [`crate::Responder::foresee`] takes. The
//! paper assumes that such knowledge is there (sec. 5, 7.1) and simulates it. When not to use: for loads without a season; with fewer
//! than two occurrences nothing is predicted.
//!
//! ```text
//!  rate ▲            ┌───┐ the most of it
//!       │        ┌───┘   └───┐ ◀─ slots that matter are one peak
//!       │  ──┬───┘           └─────
//!       └────┴───┴───┴───┴───┴───┴──▶ slots
//!    lead ◀──▶ begins: the forecast's time
//! ```

use std::collections::BTreeMap;
use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

pub use crate::recorded::{Foreseen, Lookout, Recorded};
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

/// A slot that is expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected<'a> {
    /// When it begins.
    pub at: Nanos,
    /// What it will ask for, requests per second.
    pub rate_per_s: f64,
    /// What its last occurrence touched.
    pub recorded: &'a Recorded,
    /// Occurrences that it rests on.
    pub seen: usize,
}

/// The seasons of one workload. What is read back is held to what [`Seasonal::new`] and [`Seasonal::remember`] make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Seasonal {
    config: SeasonalConfig,
    slots: BTreeMap<u64, Slot>,
}

/// A slot of the season as it is remembered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Of its occurrences, the oldest first: requests per second.
    pub rates: VecDeque<f64>,
    /// Of its last one.
    pub recorded: Recorded,
    /// Occurrences since the one that the curve is of: where there is nothing that tells of one, it is of an earlier one.
    #[serde(default)]
    pub curve_age: usize,
}

/// The text form, not yet looked at.
#[derive(Deserialize)]
struct Stored {
    config: SeasonalConfig,
    slots: BTreeMap<u64, Slot>,
}

impl TryFrom<Stored> for Seasonal {
    type Error = SeasonalError;

    fn try_from(stored: Stored) -> Result<Self, SeasonalError> {
        let mut seasonal = Seasonal::new(stored.config);
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
    /// Numbers out of their ranges.
    #[error("season, slot, occurrences or quantile out of range")]
    Config,
    /// A slot beyond the season, with more occurrences than are kept, or with rates, shares or costs that are none.
    #[error("slot {0} is outside the season, or has invalid values")]
    Slot(u64),
}

impl Seasonal {
    /// With nothing remembered. Numbers out of their ranges are brought into them.
    pub fn new(mut config: SeasonalConfig) -> Self {
        config.slot = config.slot.max(SAMPLE);
        // Whole slots: a part of one would be remembered as another.
        let slots = config.season.0.div_ceil(config.slot.0).max(1);
        let whole = slots.checked_mul(config.slot.0);
        config.season = Nanos(whole.unwrap_or(u64::MAX / config.slot.0 * config.slot.0));
        config.occurrences = config.occurrences.max(1);
        config.occurrences_min = config.occurrences_min.clamp(1, config.occurrences);
        // What is no number becomes the most careful one.
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

    /// Remembers a slot that has ended: its beginning, the rate that was asked for, and what it touched. Of numbers that cannot have
    /// been measured (no number, or below nothing; shares above 1) the whole slot is dropped: one of them, stored, would make all
    /// that is remembered unreadable.
    pub fn remember(&mut self, began: Nanos, rate_per_s: f64, recorded: Recorded) {
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

    /// A slot as it is remembered.
    pub fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(&number)
    }

    /// Takes a slot in that was remembered before, in place of what is known of it.
    ///
    /// # Errors
    /// It is none of this season, or holds what is not kept.
    pub fn recall(&mut self, number: u64, slot: Slot) -> Result<(), SeasonalError> {
        let last = self.number(Nanos(self.config.season.0 - 1));
        let measured = slot.rates.iter().all(|r| sound(*r)) && slot.recorded.sound();
        if number > last || slot.rates.len() > self.config.occurrences || !measured {
            return Err(SeasonalError::Slot(number));
        }
        self.slots.insert(number, slot);
        Ok(())
    }

    /// The first slot that begins after `now` and not after `now + within` (a season at most) and satisfies `matters`.
    pub fn expect(
        &self,
        now: Nanos,
        within: Nanos,
        matters: impl Fn(f64) -> bool,
    ) -> Option<Expected<'_>> {
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

    /// What is expected of the slot that `at` lies in.
    pub fn at(&self, at: Nanos) -> Option<Expected<'_>> {
        let slot = self.slots.get(&self.number(at))?;
        if slot.rates.len() < self.config.occurrences_min {
            return None;
        }
        let mut rates: Vec<f64> = slot.rates.iter().copied().collect();
        rates.sort_by(f64::total_cmp);
        let rank = libm::ceil(self.config.quantile * rates.len() as f64) as usize;
        Some(Expected {
            at: Nanos(at.0 / self.config.slot.0 * self.config.slot.0),
            rate_per_s: rates[rank.clamp(1, rates.len()) - 1],
            recorded: &slot.recorded,
            seen: slot.rates.len(),
        })
    }

    /// What is expected of all slots of which anything is, on average; 0 where nothing is.
    pub fn mean_per_s(&self) -> f64 {
        let slots = self.slots.keys();
        let expected = slots.filter_map(|n| self.at(Nanos(n * self.config.slot.0)));
        let (sum, n) = expected.fold((0.0, 0u32), |(sum, n), e| (sum + e.rate_per_s, n + 1));
        sum / f64::from(n.max(1))
    }

    /// How it is cut, its numbers brought into their ranges.
    pub fn config(&self) -> &SeasonalConfig {
        &self.config
    }

    /// The next peak that begins after `now` and not after `now + within` (a season at most), with all that [`crate::Responder::foresee`] needs to
    /// prepare for it, and when that is to be done.
    ///
    /// A peak is slots in a row whose rate `matters`; one that has begun is none to come. It is expected to ask for the most that
    /// any of its slots is expected to, that their last occurrences had for two minutes or that was promised: who was not served
    /// in full had asked for more than he got. Zones, curve and what requests are like are those of its busiest slot that has
    /// them; without any that has a curve there is none. It is taken to have begun when its first slot is over. `None` without such a
    /// peak, or where nothing of what requests were like was recorded.
    pub fn forecast(
        &self,
        now: Nanos,
        within: Nanos,
        lookout: &Lookout,
        matters: impl Fn(f64) -> bool,
    ) -> Option<Foreseen> {
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
        let peak: Vec<Expected<'_>> = slots.map_while(|at| matters_at(at?)).collect();
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
        Some(Foreseen {
            act_at: Nanos(begins.0.saturating_sub(lookout.lead.0)).max(now),
            forecast,
        })
    }

    /// The number of the slot that a time lies in.
    pub fn number(&self, at: Nanos) -> u64 {
        at.0 % self.config.season.0 / self.config.slot.0
    }
}

/// Whether a rate is one that could have been measured.
fn sound(rate_per_s: f64) -> bool {
    rate_per_s.is_finite() && rate_per_s >= 0.0
}

#[cfg(test)]
#[path = "seasonal_tests.rs"]
mod tests;
