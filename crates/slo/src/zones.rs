//! Heavily accessed zones: those with more than a given share of all accesses.
//!
//! Counted by [`algo::LossyCounter`], in memory that does not grow with their number: every zone of the share s is reported, none below
//! s − ε is, and a count is at most ε·N too low. ε is a tenth of s.

use std::collections::VecDeque;

use algo::LossyCounter;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Share of the accesses from which a zone is heavily accessed (the paper's 0.1 %).
pub const SHARE_MIN: f64 = LossyCounter::HOT_SHARE;

/// A zone and its share of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Its number: offset over the size of a zone.
    pub number: u64,
    /// Share of the accesses, 0..=1; at most ε too low.
    pub share: f64,
}

/// Heavily accessed zones of what `counter` ([`LossyCounter::hot_zones`]) has seen, the heaviest first.
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

/// Windows that are kept, the one that goes on included.
const WINDOWS: usize = 4;

/// Accesses to zones, in windows of [`WINDOW`]: which are heavily accessed now, and which were before.
#[derive(Debug)]
pub struct ZoneWindows {
    /// How much of the latest is over.
    passed: Nanos,
    /// The latest first.
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
    /// So many accesses to a zone.
    #[inline]
    pub fn add(&mut self, zone: u64, accesses: u64) {
        self.counters[0].add_many(zone, accesses);
    }

    /// A sample of so long is over.
    pub fn end_sample(&mut self, lasting: Nanos) {
        self.passed += lasting;
        if self.passed >= WINDOW {
            self.passed = Nanos::ZERO;
            self.counters.push_front(LossyCounter::hot_zones());
            self.counters.truncate(WINDOWS);
        }
    }

    /// Heavy zones of the window `ago` windows before the latest one that has enough in it, or of the oldest that there is; none
    /// where that is the latest itself.
    pub fn zones(&self, ago: usize) -> Vec<Zone> {
        let latest = usize::from(self.passed.0 < WINDOW.0 / 2);
        let window = (latest + ago).min(self.counters.len() - 1);
        if ago > 0 && window <= latest {
            return Vec::new();
        }
        heavy(&self.counters[window])
    }
}

/// How alike two sets of zones are: common ones over all, 0..=1 (Jaccard). Two empty sets are alike.
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
    fn shares_are_of_all_accesses() {
        let mut counter = LossyCounter::hot_zones();
        assert!(heavy(&counter).is_empty());
        for i in 0..40_000u64 {
            // Zone 7 has a quarter, zone 9 a twentieth, the rest are seen once each.
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
    fn what_was_hot_before_is_that_of_ten_minutes_ago() {
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
        // From the middle of a window on it is the latest.
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
