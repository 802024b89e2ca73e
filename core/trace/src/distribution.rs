//! Distributions in the output of `info`: exact request sizes, and latencies within half a percent.

use std::collections::BTreeMap;

use serde::Serialize;

/// Largest number of distinct sizes. Protects memory from a trace of random lengths; real ones have hundreds.
const SIZES_MAX: usize = 1 << 20;
/// Limit in sectors below which whole-sector sizes are counted in an array.
const DENSE_SECTORS: usize = 2048;
const SECTOR_BYTES: u32 = 512;

/// Sizes of requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeStats {
    /// Mean in bytes.
    pub mean_bytes: f64,
    /// Median in bytes (the lower one of two); `null` if there are more than a million different sizes.
    pub p50_bytes: Option<u32>,
    /// Largest in bytes.
    pub max_bytes: u32,
}

#[derive(Debug)]
pub(crate) struct Sizes {
    dense: Vec<u64>,
    others: BTreeMap<u32, u64>,
    overflowed: bool,
    count: u64,
    sum: u128,
    max: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        let dense = vec![0; DENSE_SECTORS];
        Self {
            dense,
            others: BTreeMap::new(),
            overflowed: false,
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Sizes {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.count += 1;
        self.sum += u128::from(bytes);
        self.max = self.max.max(bytes);
        let sectors = (bytes / SECTOR_BYTES) as usize;
        if bytes.is_multiple_of(SECTOR_BYTES) && sectors < DENSE_SECTORS {
            self.dense[sectors] += 1;
        } else if self.others.len() < SIZES_MAX || self.others.contains_key(&bytes) {
            *self.others.entry(bytes).or_default() += 1;
        } else {
            self.overflowed = true;
        }
    }

    /// Returns the statistics; `None` without requests.
    pub(crate) fn stats(&self) -> Option<SizeStats> {
        if self.count == 0 {
            return None;
        }
        let mean_bytes = self.sum as f64 / self.count as f64;
        Some(SizeStats {
            mean_bytes,
            p50_bytes: self.median(),
            max_bytes: self.max,
        })
    }

    fn median(&self) -> Option<u32> {
        if self.overflowed {
            return None;
        }
        let mut all = self.others.clone();
        all.extend(
            self.dense
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(i, n)| (i as u32 * SECTOR_BYTES, *n)),
        );
        let rank = self.count.div_ceil(2);
        let mut below = 0;
        all.into_iter().find_map(|(bytes, n)| {
            below += n;
            (below >= rank).then_some(bytes)
        })
    }
}

/// Latencies of a trace's requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyStats {
    /// Number of requests with a known latency.
    pub requests: u64,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// 99th percentile in microseconds, at most 0.4 % too high.
    pub p99_us: f64,
}

/// Bits below the leading bit of a value that a bucket keeps: 256 buckets per power of two.
const BUCKET_BITS: u32 = 8;

#[derive(Debug, Default)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Latencies {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Returns the statistics; `None` without latencies.
    pub(crate) fn stats(&self) -> Option<LatencyStats> {
        if self.count == 0 {
            return None;
        }
        let rank = self.count - self.count / 100;
        let mut below = 0;
        let p99 = self.buckets.iter().position(|n| {
            below += n;
            below >= rank
        });
        let p99_us = largest_in(p99.unwrap_or(0)).min(self.max) as f64 / 1e3;
        Some(LatencyStats {
            requests: self.count,
            mean_us: self.sum as f64 / self.count as f64 / 1e3,
            p99_us,
        })
    }
}

/// Returns the bucket of a value: linear below 2^9, then 2^8 buckets for each power of two.
fn bucket_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BUCKET_BITS + 1);
    ((u64::from(shift) << BUCKET_BITS) + (ns >> shift)) as usize
}

/// Returns the largest value of a bucket.
fn largest_in(bucket: usize) -> u64 {
    let shift = (bucket >> BUCKET_BITS).saturating_sub(1) as u32;
    let low = bucket as u64 - (u64::from(shift) << BUCKET_BITS);
    (low << shift) | ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_is_half_a_percent_wide(ns in any::<u64>()) {
            let top = largest_in(bucket_of(ns));
            prop_assert!(top >= ns && top - ns <= ns / 256, "{ns} {top}");
            prop_assert_eq!(bucket_of(top), bucket_of(ns));
        }

        #[test]
        fn median_matches_a_sorted_list(mut sizes in prop::collection::vec(1..10_000u32, 1..60)) {
            let mut counted = Sizes::default();
            sizes.iter().for_each(|s| counted.add(*s / 2 * 256 + s % 3));
            sizes.iter_mut().for_each(|s| *s = *s / 2 * 256 + *s % 3);
            sizes.sort_unstable();
            prop_assert_eq!(counted.stats().unwrap().p50_bytes, Some(sizes[(sizes.len() - 1) / 2]));
        }
    }

    #[test]
    fn p99_has_one_percent_of_values_above_it() {
        let mut latencies = Latencies::default();
        (1..=100).for_each(|us| latencies.add(us * 100));
        let stats = latencies.stats().unwrap();
        assert!((stats.p99_us - 9.9).abs() < 0.04, "{stats:?}");
        assert_eq!(stats.mean_us, 5.05);
        let mut one = Latencies::default();
        one.add(1_000_001);
        assert_eq!(
            one.stats().unwrap().p99_us,
            1000.001,
            "never above the largest"
        );
    }
}
