//! What was asked for more often than a share of all: found in one pass, in bounded memory.

use std::collections::BTreeMap;

/// Lossy counting (Manku and Motwani, VLDB 2002, section 4.2): counts of zones that are never too high and too low by ε·N at most,
/// in at most (1/ε)·log(ε·N) entries.
///
/// Nothing that is frequent is missed: every zone with a share of at least `support` is among [`LossyCounter::frequent`], and none whose
/// share is below `support` − ε. Not for the K hottest whatever their share: see [`crate::HeatSketch`]. It counts all that ever
/// was; for a hot set of now, count in windows.
#[derive(Debug, Clone)]
pub struct LossyCounter {
    epsilon: f64,
    /// Accesses per bucket: 1/ε.
    width: u64,
    total: u64,
    /// Count, and by how much it is too low at most.
    entries: BTreeMap<u64, (u64, u64)>,
}

/// A zone that was asked for often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frequent {
    /// Which.
    pub zone: u64,
    /// How often at least.
    pub count: u64,
    /// How often at most.
    pub count_max: u64,
}

impl LossyCounter {
    /// Zones with more than this share of the accesses are worth warming a cache with.
    pub const HOT_SHARE: f64 = 0.001;

    /// Counts that are too low by `epsilon` of all accesses at most; it is brought into 1e-9..=1.
    pub fn new(epsilon: f64) -> Self {
        // A number that is none becomes the coarsest.
        let epsilon = if epsilon.is_nan() {
            1.0
        } else {
            epsilon.clamp(1e-9, 1.0)
        };
        Self {
            epsilon,
            width: (1.0 / epsilon).ceil() as u64,
            total: 0,
            entries: BTreeMap::new(),
        }
    }

    /// For zones of more than 0.1 % of all accesses, with a tenth of that as error.
    pub fn hot_zones() -> Self {
        Self::new(Self::HOT_SHARE / 10.0)
    }

    /// An access to `zone`.
    #[inline]
    pub fn add(&mut self, zone: u64) {
        self.add_many(zone, 1);
    }

    /// So many accesses to `zone`, one after the other.
    pub fn add_many(&mut self, zone: u64, accesses: u64) {
        let mut left = accesses;
        while left > 0 {
            let bucket = self.total / self.width + 1;
            let now = left.min(self.width - self.total % self.width);
            (self.total, left) = (self.total + now, left - now);
            self.entries.entry(zone).or_insert((0, bucket - 1)).0 += now;
            if self.total.is_multiple_of(self.width) {
                self.entries
                    .retain(|_, (count, violated)| *count + *violated > bucket);
            }
        }
    }

    /// Accesses in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Zones that are remembered.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Zones with a share of at least `support`, and perhaps some that lack up to ε of it; most frequent first, then by number.
    pub fn frequent(&self, support: f64) -> Vec<Frequent> {
        let least = (support - self.epsilon) * self.total as f64;
        let mut frequent: Vec<Frequent> = self
            .entries
            .iter()
            .filter(|(_, (count, _))| *count as f64 >= least)
            .map(|(zone, (count, violated))| Frequent {
                zone: *zone,
                count: *count,
                count_max: count + violated,
            })
            .collect();
        frequent.sort_by_key(|f| (std::cmp::Reverse(f.count), f.zone));
        frequent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Popularity, Rng};

    /// Skewed loads, even ones, and a scan behind a hot set.
    fn loads() -> Vec<Vec<u64>> {
        let mut loads = vec![];
        for (seed, theta) in [(1, 0.0), (2, 0.7), (3, 1.0), (4, 1.3)] {
            let (popularity, mut rng) = (Popularity::new(200_000, theta), Rng::new(seed, 0));
            loads.push(
                (0..300_000)
                    .map(|_| popularity.page(rng.next_u64()))
                    .collect(),
            );
        }
        loads.push(
            (0..300_000)
                .map(|i| if i % 3 == 0 { i % 300 } else { i })
                .collect(),
        );
        loads
    }

    #[test]
    fn what_is_promised_holds() {
        for (no, load) in loads().into_iter().enumerate() {
            let mut counter = LossyCounter::hot_zones();
            let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
            let epsilon = 1e-4;
            let mut entries_max = 0;
            for (i, zone) in load.iter().enumerate() {
                counter.add(*zone);
                *truth.entry(*zone).or_default() += 1;
                entries_max = entries_max.max(counter.entries());
                let bound =
                    libm::log((epsilon * (i + 1) as f64).max(std::f64::consts::E)) / epsilon;
                assert!(
                    counter.entries() as f64 <= bound + 1.0 / epsilon,
                    "load {no}"
                );
            }
            let n = load.len() as f64;
            assert!(entries_max as f64 <= libm::log(epsilon * n) / epsilon + 1.0 / epsilon);
            let frequent = counter.frequent(LossyCounter::HOT_SHARE);
            for f in &frequent {
                let real = truth[&f.zone];
                assert!(f.count <= real && real <= f.count_max);
                assert!((real - f.count) as f64 <= epsilon * n);
                assert!(real as f64 >= (LossyCounter::HOT_SHARE - epsilon) * n);
            }
            for (zone, real) in &truth {
                let found = frequent.iter().any(|f| f.zone == *zone);
                assert!(
                    found || (*real as f64) < LossyCounter::HOT_SHARE * n,
                    "load {no}"
                );
            }
            assert!(frequent.is_sorted_by_key(|f| std::cmp::Reverse(f.count)));
        }
    }

    #[test]
    fn an_odd_error_is_brought_into_its_range() {
        for epsilon in [f64::NAN, -1.0, 0.0, 7.0] {
            let mut counter = LossyCounter::new(epsilon);
            (0..10).for_each(|_| counter.add(3));
            assert_eq!(counter.total(), 10);
        }
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let mut rng = Rng::new(7, 1);
        let (mut one, mut many) = (LossyCounter::new(0.01), LossyCounter::new(0.01));
        for _ in 0..400 {
            let (zone, count) = (rng.below(30) * rng.below(30), rng.below(300));
            (0..count).for_each(|_| one.add(zone));
            many.add_many(zone, count);
            assert_eq!((one.total(), &one.entries), (many.total(), &many.entries));
        }
        assert!(one.entries() > 10);
    }
}
