//! What is to be expected at this hour of this day: the 90th percentile of what the last four such hours asked for, and the
//! zones and the curve recorded in the last of them.
//!
//! So an appliance can be created before its peak. The paper assumes that such knowledge is there (sec. 5, 7.1) and simulates
//! it. When not to use: for loads without a season; with fewer than two occurrences nothing is predicted.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::curve::Curve;
use crate::sample::SAMPLE;
use crate::zones::Zone;

/// How a season is cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeasonalConfig {
    /// After this everything begins again: a week, or a day where days are alike. Whole slots, at least one.
    pub season: Nanos,
    /// Length of a slot; at least ten seconds, a sample.
    pub slot: Nanos,
    /// Occurrences that are remembered; at least one.
    pub occurrences: usize,
    /// Fewer than this predict nothing.
    pub occurrences_min: usize,
    /// Quantile of the remembered ones, 0..=1.
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

/// What is remembered of the last occurrence of a slot, beside its rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Heavy zones.
    pub zones: Vec<Zone>,
    /// Miss ratios.
    pub curve: Option<Curve>,
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
}

/// The seasons of one workload. What is read back is held to what [`Seasonal::new`] and [`Seasonal::remember`] make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Seasonal {
    config: SeasonalConfig,
    slots: BTreeMap<u64, Slot>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Slot {
    rates: VecDeque<f64>,
    recorded: Recorded,
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
        let last = seasonal.number(Nanos(seasonal.config.season.0 - 1));
        for (number, slot) in &stored.slots {
            let sound = slot.rates.iter().all(|r| r.is_finite() && *r >= 0.0);
            if *number > last || slot.rates.len() > seasonal.config.occurrences || !sound {
                return Err(SeasonalError::Slot(*number));
            }
        }
        seasonal.slots = stored.slots;
        Ok(seasonal)
    }
}

/// What was stored is no memory of seasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeasonalError {
    /// Numbers out of their ranges.
    #[error("season, slot, occurrences or quantile out of range")]
    Config,
    /// A slot beyond the season, with more occurrences than are kept, or with rates that are none.
    #[error("slot {0} is beyond the season, or holds what is not kept")]
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

    /// Remembers a slot that has ended: its beginning, the rate that was asked for, and what it touched.
    pub fn remember(&mut self, began: Nanos, rate_per_s: f64, recorded: Recorded) {
        let slot = self.slots.entry(self.number(began)).or_default();
        if slot.rates.len() == self.config.occurrences {
            slot.rates.pop_front();
        }
        slot.rates.push_back(rate_per_s);
        slot.recorded = recorded;
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
        })
    }

    fn number(&self, at: Nanos) -> u64 {
        at.0 % self.config.season.0 / self.config.slot.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const WEEK: u64 = 7 * 24 * HOUR;

    fn hour(week: u64, hour: u64) -> Nanos {
        Nanos::from_secs(week * WEEK + hour * HOUR)
    }

    #[test]
    fn a_weekly_peak_is_expected_from_its_second_occurrence_on() {
        let mut seasonal = Seasonal::new(SeasonalConfig::default());
        let zones = vec![Zone {
            number: 5,
            share: 0.2,
        }];
        for week in 0..6 {
            let now = hour(week, 30);
            let lead = Nanos::from_secs(2 * HOUR);
            let expected = seasonal
                .expect(now, lead, |r| r > 1800.0)
                .map(|e| (e.at, e.rate_per_s));
            let want = match week {
                0 | 1 => None,
                // The 90th percentile of four is their greatest.
                _ => Some((hour(week, 32), 2000.0 + 10.0 * (week - 1) as f64)),
            };
            assert_eq!(expected, want, "week {week}");
            for h in 0..168 {
                let rate = if h == 32 {
                    2000.0 + 10.0 * week as f64
                } else {
                    300.0
                };
                let recorded = Recorded {
                    zones: zones.clone(),
                    curve: None,
                };
                seasonal.remember(hour(week, h), rate, recorded);
            }
        }
        let expected = seasonal.at(hour(9, 32)).unwrap();
        assert_eq!(expected.recorded.zones, zones);
        let early = seasonal.expect(hour(9, 28), Nanos::from_secs(2 * HOUR), |r| r > 1800.0);
        assert!(early.is_none(), "not yet");
    }

    #[test]
    fn slots_of_no_length_and_no_occurrences_are_the_least_there_are() {
        let mut seasonal = Seasonal::new(SeasonalConfig {
            slot: Nanos::ZERO,
            occurrences: 0,
            occurrences_min: 0,
            ..SeasonalConfig::default()
        });
        for rate in [5.0, 7.0] {
            seasonal.remember(hour(0, 3), rate, Recorded::default());
        }
        let found = seasonal.expect(hour(0, 2), Nanos::from_secs(HOUR), |_| true);
        assert_eq!(found.map(|e| e.rate_per_s), Some(7.0));
    }

    #[test]
    fn a_season_is_whole_slots_and_nothing_overflows() {
        let mut seasonal = Seasonal::new(SeasonalConfig {
            season: Nanos::from_secs(5 * HOUR + 1),
            occurrences_min: 1,
            ..SeasonalConfig::default()
        });
        assert_eq!(seasonal.config.season, Nanos::from_secs(6 * HOUR));
        seasonal.remember(hour(0, 5), 5.0, Recorded::default());
        assert_eq!(seasonal.at(hour(0, 11)).unwrap().rate_per_s, 5.0);
        assert_eq!(seasonal.at(hour(0, 6)), None);
        // However far is asked for, one season has all there is.
        let far = Nanos(u64::MAX);
        assert!(seasonal.expect(hour(0, 2), far, |r| r > 6.0).is_none());
        assert!(seasonal.expect(far, far, |_| true).is_none());
        let endless = Seasonal::new(SeasonalConfig {
            season: far,
            ..SeasonalConfig::default()
        });
        let season = endless.config.season.0;
        assert!(season > u64::MAX / 2 && season.is_multiple_of(endless.config.slot.0));
    }

    #[test]
    fn what_is_read_back_is_as_it_was_or_refused() {
        let mut seasonal = Seasonal::new(SeasonalConfig::default());
        for week in 0..6 {
            seasonal.remember(hour(week, 3), 100.0, Recorded::default());
        }
        let text = serde_json::to_string(&seasonal).unwrap();
        let read = |text: &str| serde_json::from_str::<Seasonal>(text);
        assert_eq!(read(&text).unwrap(), seasonal);
        let slot_of = |s| {
            format!(
                "\"slot\":{}",
                serde_json::to_string(&Nanos::from_secs(s)).unwrap()
            )
        };
        let (slot, short) = (slot_of(HOUR), slot_of(1));
        let rates = "[100.0,100.0,100.0,100.0]";
        for (from, to, why) in [
            (&slot[..], &short[..], "out of range"),
            ("\"occurrences\":4", "\"occurrences\":0", "out of range"),
            (
                "\"occurrences_min\":2",
                "\"occurrences_min\":9",
                "out of range",
            ),
            ("\"quantile\":0.9", "\"quantile\":1.5", "out of range"),
            // Four are kept: the fifth would never be dropped.
            (rates, "[1.0,1.0,1.0,1.0,1.0]", "slot 3 "),
            (rates, "[-1.0]", "slot 3 "),
            ("\"3\":", "\"168\":", "slot 168 "),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let error = read(&text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn only_the_last_four_count() {
        let mut seasonal = Seasonal::new(SeasonalConfig::default());
        for week in 0..5 {
            let rate = if week == 0 { 9000.0 } else { 100.0 };
            seasonal.remember(hour(week, 3), rate, Recorded::default());
        }
        assert_eq!(seasonal.at(hour(5, 3)).unwrap().rate_per_s, 100.0);
    }
}
