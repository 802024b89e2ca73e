//! Load of a volume by hour of the day.
//!
//! A load that repeats every day has not changed when it rises in the morning, and a placement for it must suit the whole
//! day. Each hour has a mean over days, in which older days count less. So 24 entries hold a cycle for more than a week.
//! Loads that do not repeat have no such entries.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::history::Sample;

const HOUR_NS: u64 = 3_600_000_000_000;
const HOURS: usize = 24;
/// Smallest number of known hours.
const KNOWN_MIN: usize = 20;
/// Weight that the mean of an hour and the error keep after one more day.
const KEEPS: f64 = 0.7;
/// Largest mean error (logarithm of a factor) of a load that repeats.
const REPEATS: f64 = 0.5;
/// Requests per second that are added to both sides of a ratio: an idle volume has no ratios.
const IDLE_IOPS: f64 = 1.0;

/// Mean load in one hour of the day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Hour {
    iops: [f32; 2],
    bytes: [f32; 2],
}

/// Loads by hour of the day.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Day {
    hours: Vec<Option<Hour>>,
    /// Mean absolute error of the hours when they came again; `None` before any did.
    error: Option<f64>,
    /// Number of the present hour since time 0, with the sums of its samples and their number.
    now: u64,
    sums: Sums,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    iops: [f64; 2],
    bytes: [f64; 2],
    samples: f64,
}

impl Day {
    /// Adds a sample of this time. `hidden` is the volume's demand divided by its measured rate, above 1 on a full device.
    pub(super) fn add(&mut self, at: Nanos, sample: &Sample, hidden: f64) {
        let hour = at.0.saturating_sub(1) / HOUR_NS;
        if hour != self.now {
            self.end_hour();
            self.now = hour;
        }
        for d in 0..2 {
            let iops = hidden * sample.iops[d];
            self.sums.iops[d] += iops;
            self.sums.bytes[d] += iops * sample.bytes[d];
        }
        self.sums.samples += 1.0;
    }

    /// Moves the sums of the present hour to its mean.
    fn end_hour(&mut self) {
        let sums = std::mem::take(&mut self.sums);
        if sums.samples == 0.0 {
            return;
        }
        let mean = |d: usize| sums.iops[d] / sums.samples;
        let bytes = |d: usize| match sums.iops[d] > 0.0 {
            true => sums.bytes[d] / sums.iops[d],
            false => 4096.0,
        };
        self.hours.resize(HOURS, None);
        let kept = &mut self.hours[(self.now % HOURS as u64) as usize];
        let old = kept.unwrap_or_default();
        let keeps = kept.map_or(0.0, |_| KEEPS);
        if kept.is_some() {
            let error = ratio_ln(mean(0) + mean(1), total(&old));
            let before = self.error.unwrap_or(error);
            let weight = (1.0 - KEEPS) / HOURS as f64;
            self.error = Some(before + weight * (error - before));
        }
        let of = |old: f32, new: f64| (keeps * f64::from(old) + (1.0 - keeps) * new) as f32;
        *kept = Some(Hour {
            iops: [of(old.iops[0], mean(0)), of(old.iops[1], mean(1))],
            bytes: [of(old.bytes[0], bytes(0)), of(old.bytes[1], bytes(1))],
        });
    }

    /// Returns true if the load repeats every day, by the known hours.
    pub(super) fn repeats(&self) -> bool {
        let known = self.hours.iter().flatten().count();
        known >= KNOWN_MIN && self.error.is_none_or(|error| error <= REPEATS)
    }

    /// Returns true if this load is usual for this time of day.
    pub(super) fn expected(&self, at: Nanos, iops: f64) -> bool {
        let hour = (at.0.saturating_sub(1) / HOUR_NS % HOURS as u64) as usize;
        let known = self.hours.get(hour).copied().flatten();
        self.repeats() && known.is_some_and(|h| ratio_ln(iops, total(&h)) <= REPEATS)
    }

    /// Returns the hours of a day as samples without latencies, `None` for unknown hours; empty for a load that does not
    /// repeat.
    pub(super) fn samples(&self) -> Vec<Option<Sample>> {
        if !self.repeats() {
            return vec![];
        }
        let sample = |h: &Hour| Sample {
            epoch: 0,
            iops: h.iops.map(f64::from),
            bytes: h.bytes.map(f64::from),
            stat_us: None,
            mean_us: None,
            outstanding: 0.0,
            held_up: false,
            disturbed: true,
        };
        let hours = self.hours.iter();
        hours.map(|h| h.as_ref().map(sample)).collect()
    }
}

fn total(hour: &Hour) -> f64 {
    f64::from(hour.iops[0]) + f64::from(hour.iops[1])
}

/// Absolute logarithm of the ratio of two rates.
fn ratio_ln(a: f64, b: f64) -> f64 {
    libm::log((a + IDLE_IOPS) / (b + IDLE_IOPS)).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(iops: f64) -> Sample {
        Sample {
            epoch: 0,
            iops: [iops, 0.0],
            bytes: [4096.0; 2],
            stat_us: None,
            mean_us: None,
            outstanding: 0.0,
            held_up: false,
            disturbed: false,
        }
    }

    /// Returns the state after four samples per hour of a load by hour since the start.
    fn after(hours: u64, load: impl Fn(u64) -> f64) -> Day {
        let mut day = Day::default();
        for quarter in 0..4 * hours {
            let at = Nanos((quarter + 1) * HOUR_NS / 4);
            day.add(at, &sample(load(quarter / 4)), 1.0);
        }
        day
    }

    fn office(hour: u64) -> f64 {
        match hour % 24 {
            8..18 => 500.0,
            _ => 10.0,
        }
    }

    #[test]
    fn daily_cycle_is_expected_from_the_second_day_and_a_new_load_is_not() {
        let at = |day: u64, hour: u64| Nanos((day * 24 + hour) * HOUR_NS + HOUR_NS / 2);
        let first = after(12, office);
        assert!(!first.repeats() && first.samples().is_empty());
        let day = after(25, office);
        assert!(day.expected(at(1, 9), 480.0));
        assert!(!day.expected(at(1, 3), 480.0));
        let known: Vec<Sample> = day.samples().into_iter().flatten().collect();
        let busy = known.iter().filter(|s| s.total() > 400.0).count();
        assert_eq!((known.len(), busy), (24, 10));
    }

    #[test]
    fn cycle_outlives_a_week_without_measurements() {
        let mut day = after(72, office);
        let later = Nanos(10 * 24 * HOUR_NS + 9 * HOUR_NS + 1);
        assert!(day.expected(later, 500.0));
        day.add(later, &sample(500.0), 1.0);
        assert!(day.repeats());
    }

    #[test]
    fn load_without_a_cycle_is_not_stored() {
        let random = |hour: u64| if hour % 7 < 3 { 900.0 } else { 5.0 };
        let day = after(24 * 5, random);
        assert!(!day.repeats(), "{:?}", day.error);
    }
}
