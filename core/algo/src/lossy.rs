//! Zones with more than a given share of all accesses, found in one pass with bounded memory.

use std::collections::BTreeMap;

/// Lossy counting (Manku and Motwani, VLDB 2002, section 4.2): counts of zones that are never too high and at most ε·N
/// too low, in at most (1/ε)·log(ε·N) entries.
///
/// No frequent zone is missed: every zone with a share of at least `support` is in [`LossyCounter::frequent`], and no
/// zone with a share below `support` − ε. For the K hottest zones independent of their share, see
/// [`crate::HeatSketch`]. The counter never forgets; for the present hot set, count in windows.
#[derive(Debug, Clone)]
pub struct LossyCounter {
    epsilon: f64,
    /// Accesses per bucket: 1/ε.
    width: u64,
    total: u64,
    /// Count of each zone, and the maximum by which it is too low.
    entries: BTreeMap<u64, (u64, u64)>,
}

/// Frequent zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frequent {
    /// Zone.
    pub zone: u64,
    /// Lower bound of its accesses.
    pub count: u64,
    /// Upper bound of its accesses.
    pub count_max: u64,
}

impl LossyCounter {
    /// Share of the accesses above which a zone is worth prefetching into a cache.
    pub const HOT_SHARE: f64 = 0.001;

    /// Creates a counter whose counts are at most `epsilon` of all accesses too low; `epsilon` is clamped to 1e-9..=1.
    pub fn new(epsilon: f64) -> Self {
        // NaN becomes the coarsest value.
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

    /// Creates a counter for zones with more than 0.1 % of all accesses, with a tenth of that as error.
    pub fn hot_zones() -> Self {
        Self::new(Self::HOT_SHARE / 10.0)
    }

    /// Counts an access to `zone`.
    #[inline]
    pub fn add(&mut self, zone: u64) {
        self.add_many(zone, 1);
    }

    /// Counts consecutive accesses to `zone`.
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

    /// Returns the number of all accesses.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of remembered zones.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the zones with a share of at least `support`, and perhaps some that lack up to ε; most frequent first,
    /// then by number.
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

    /// Returns skewed loads, uniform ones, and a scan behind a hot set.
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
    fn lossy_counter_respects_its_error_bounds() {
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
    fn invalid_error_is_clamped() {
        for epsilon in [f64::NAN, -1.0, 0.0, 7.0] {
            let mut counter = LossyCounter::new(epsilon);
            (0..10).for_each(|_| counter.add(3));
            assert_eq!(counter.total(), 10);
        }
    }

    #[test]
    fn bulk_addition_equals_single_additions() {
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
