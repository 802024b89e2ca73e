//! Hot zones: zones with more than a given share of all accesses.
//!
//! [`algo::LossyCounter`] counts them in memory that does not grow with the number of zones. Each zone with at least the
//! share s is reported, and none below s − ε. A count is at most ε·N too low. ε is a tenth of s.

use std::collections::VecDeque;

use algo::LossyCounter;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Smallest share of the accesses of a hot zone (0.1 %, as in the paper).
pub const SHARE_MIN: f64 = LossyCounter::HOT_SHARE;

/// Zone with its share of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Number of the zone: offset divided by the zone size.
    pub number: u64,
    /// Share of the accesses, 0..=1, at most ε too low.
    pub share: f64,
}

/// Returns the hot zones of a counter ([`LossyCounter::hot_zones`]), hottest first.
pub fn heavy(counter: &LossyCounter) -> Vec<Zone> {
    let all = counter.total().max(1) as f64;
    let zone = |f: algo::Frequent| Zone {
        number: f.zone,
        share: f.count as f64 / all,
    };
    counter.frequent(SHARE_MIN).into_iter().map(zone).collect()
}

/// Length of a window of [`ZoneWindows`]: five minutes.
pub const WINDOW: Nanos = Nanos::from_secs(300);

/// Number of windows that are kept, including the current one.
const WINDOWS: usize = 4;

/// Access counts of zones in windows of [`WINDOW`], for the present and the earlier hot zones.
#[derive(Debug)]
pub struct ZoneWindows {
    /// Elapsed part of the current window.
    passed: Nanos,
    /// Counters of the windows, latest first.
    counters: VecDeque<LossyCounter>,
}

impl Default for ZoneWindows {
    fn default() -> Self {
        Self {
            passed: Nanos::ZERO,
            counters: VecDeque::from([LossyCounter::hot_zones()]),
        }
    }
}

impl ZoneWindows {
    /// Adds accesses to a zone.
    #[inline]
    pub fn add(&mut self, zone: u64, accesses: u64) {
        self.counters[0].add_many(zone, accesses);
    }

    /// Advances by the length of a sample.
    pub fn end_sample(&mut self, lasting: Nanos) {
        self.passed += lasting;
        if self.passed >= WINDOW {
            self.passed = Nanos::ZERO;
            self.counters.push_front(LossyCounter::hot_zones());
            self.counters.truncate(WINDOWS);
        }
    }

    /// Returns the hot zones of the window `ago` windows before the latest one that is at least half over. If it is too long
    /// ago, the oldest window is used. Empty if that is the latest one itself.
    pub fn zones(&self, ago: usize) -> Vec<Zone> {
        let latest = usize::from(self.passed.0 < WINDOW.0 / 2);
        let window = (latest + ago).min(self.counters.len() - 1);
        if ago > 0 && window <= latest {
            return Vec::new();
        }
        heavy(&self.counters[window])
    }
}

/// Similarity of two sets of zones: common zones divided by all zones, 0..=1 (Jaccard). Two empty sets have similarity 1.
pub fn likeness(a: &[Zone], b: &[Zone]) -> f64 {
    let numbers = |zones: &[Zone]| -> std::collections::BTreeSet<u64> {
        zones.iter().map(|z| z.number).collect()
    };
    let (a, b) = (numbers(a), numbers(b));
    let all = a.union(&b).count();
    if all == 0 {
        return 1.0;
    }
    a.intersection(&b).count() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_shares_are_relative_to_all_accesses() {
        let mut counter = LossyCounter::hot_zones();
        assert!(heavy(&counter).is_empty());
        for i in 0..40_000u64 {
            // Zone 7 gets a quarter, zone 9 a twentieth; all other zones are accessed once.
            counter.add(match i % 20 {
                0..5 => 7,
                5 => 9,
                _ => 1000 + i,
            });
        }
        let found = heavy(&counter);
        assert_eq!(found.iter().map(|z| z.number).collect::<Vec<_>>(), [7, 9]);
        assert!((found[0].share - 0.25).abs() < 1e-4 && (found[1].share - 0.05).abs() < 1e-4);
    }

    #[test]
    fn likeness_counts_common_zones() {
        let zones = |numbers: &[u64]| -> Vec<Zone> {
            numbers
                .iter()
                .map(|n| Zone {
                    number: *n,
                    share: 0.1,
                })
                .collect()
        };
        assert_eq!(likeness(&zones(&[1, 2, 3]), &zones(&[2, 3, 4])), 0.5);
        assert_eq!(likeness(&[], &[]), 1.0);
        assert_eq!(likeness(&zones(&[1]), &[]), 0.0);
    }

    #[test]
    fn earlier_hot_zones_are_those_of_ten_minutes_ago() {
        let mut windows = ZoneWindows::default();
        let numbers = |zones: Vec<Zone>| zones.iter().map(|z| z.number).collect::<Vec<_>>();
        let window = |windows: &mut ZoneWindows, zone: u64| {
            for _ in 0..30 {
                windows.add(zone, 1000);
                windows.end_sample(Nanos::from_secs(10));
            }
        };
        assert!(windows.zones(0).is_empty() && windows.zones(2).is_empty());
        window(&mut windows, 1);
        assert_eq!(
            numbers(windows.zones(0)),
            [1],
            "the one that has just begun says nothing"
        );
        assert!(windows.zones(2).is_empty(), "nothing is known of before");
        window(&mut windows, 2);
        window(&mut windows, 3);
        assert_eq!(
            (numbers(windows.zones(0)), numbers(windows.zones(2))),
            (vec![3], vec![1])
        );
        // From its middle on, a window is the latest one.
        (0..15).for_each(|_| {
            windows.add(4, 1000);
            windows.end_sample(Nanos::from_secs(10));
        });
        assert_eq!(
            (numbers(windows.zones(0)), numbers(windows.zones(2))),
            (vec![4], vec![2])
        );
    }
}
