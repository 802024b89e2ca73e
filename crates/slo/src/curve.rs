//! Miss-ratio curves: how many reads get past a cache of a given size.
//!
//! A curve can be had from working-set sizes, which a storage system measures anyway: with s(T) the mean number of distinct
//! bytes in a window of T references, a cache of s(T) bytes misses with the slope of s at T (Denning and Schwartz, CACM 15(3),
//! 1972). The paper builds its curves from working-set sizes and leaves the method out (sec. 5.2); this is a
//! reconstruction, the same function as AET's (Hu et al., USENIX ATC 2016).
//!
//! When not to use: for policies other than LRU, or before a few times as many references as the cache has pages.

use serde::{Deserialize, Serialize};
use units::Bytes;

/// Miss ratios by cache size: 1 at size 0, straight lines between points, flat after the last one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<(Bytes, f64)>,
}

impl Curve {
    /// From points in any order; where a larger cache would miss more, it is taken to miss as much as the smaller one.
    pub fn new(mut points: Vec<(Bytes, f64)>) -> Self {
        points.sort_by_key(|p| p.0);
        points.dedup_by_key(|p| p.0);
        let mut least = 1.0f64;
        for (_, ratio) in &mut points {
            least = least.min(ratio.clamp(0.0, 1.0));
            *ratio = least;
        }
        Self { points }
    }

    /// From mean working sets: (references in a window, distinct bytes in it), windows growing. Bytes are of `page` each.
    ///
    /// Slopes are made to fall by pooling neighbours that rise.
    pub fn from_working_sets(sets: &[(f64, f64)], page: Bytes) -> Self {
        // (bytes at the middle of the window, misses per reference, weight)
        let mut pools: Vec<(f64, f64, f64)> = Vec::new();
        for pair in sets.windows(2) {
            let ((t0, s0), (t1, s1)) = (pair[0], pair[1]);
            if t1 <= t0 {
                continue;
            }
            let slope = (s1 - s0) / (t1 - t0) / page.as_f64();
            pools.push(((s0 + s1) / 2.0, slope.clamp(0.0, 1.0), t1 - t0));
            while let [.., a, b] = pools[..] {
                if b.1 <= a.1 {
                    break;
                }
                let weight = a.2 + b.2;
                let mean = |x: f64, y: f64| (x * a.2 + y * b.2) / weight;
                let pooled = (mean(a.0, b.0), mean(a.1, b.1), weight);
                pools.truncate(pools.len() - 2);
                pools.push(pooled);
            }
        }
        let points = pools.iter().map(|p| (Bytes(p.0 as u64), p.1)).collect();
        Self::new(points)
    }

    /// Miss ratio of a cache of `size`, 0..=1.
    pub fn at(&self, size: Bytes) -> f64 {
        let after = self.points.partition_point(|p| p.0 <= size);
        let before = match after.checked_sub(1) {
            Some(i) => self.points[i],
            None => (Bytes::ZERO, 1.0),
        };
        let Some(next) = self.points.get(after) else {
            return before.1;
        };
        let share = (size - before.0).as_f64() / (next.0 - before.0).as_f64();
        before.1 + share * (next.1 - before.1)
    }

    /// The points.
    pub fn points(&self) -> &[(Bytes, f64)] {
        &self.points
    }

    /// What an empty cache holds after `seconds` of reads of `bytes_per_s`: it fills by what it misses. In bytes.
    pub(crate) fn held_after(&self, seconds: f64, bytes_per_s: f64) -> f64 {
        let mut left = seconds;
        let (mut c, mut m) = (0.0, 1.0);
        for (size, ratio) in &self.points {
            let (c1, m1) = (size.as_f64(), *ratio);
            if c1 <= c {
                m = m1;
                continue;
            }
            if bytes_per_s * m <= 0.0 {
                return c;
            }
            let slope = (m1 - m) / (c1 - c);
            // dc/dt = rate · m(c), with m straight in c.
            let takes = if slope.abs() < 1e-18 {
                (c1 - c) / (bytes_per_s * m)
            } else if m1 <= 0.0 {
                f64::INFINITY
            } else {
                libm::log(m1 / m) / (slope * bytes_per_s)
            };
            if takes >= left {
                return if slope.abs() < 1e-18 {
                    c + bytes_per_s * m * left
                } else {
                    c + m * (libm::exp(slope * bytes_per_s * left) - 1.0) / slope
                };
            }
            left -= takes;
            (c, m) = (c1, m1);
        }
        c + bytes_per_s * m * left
    }
}

/// How long ago each reference's page was last referenced, in references: what working sets are computed from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReuseTimes {
    /// By logarithmic bucket.
    counts: Vec<u64>,
    /// First references, and those after a write took the page out of the cache.
    cold: u64,
}

/// Buckets per doubling.
const PARTS: u32 = 8;
const BUCKETS: usize = 40 * PARTS as usize;

impl Default for ReuseTimes {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            cold: 0,
        }
    }
}

impl ReuseTimes {
    /// Counts a reference to a page that was referenced `ago` references before; `None` for one not in any cache.
    pub fn record(&mut self, ago: Option<u64>) {
        match ago {
            None => self.cold += 1,
            Some(ago) => self.counts[bucket_of(ago.max(1))] += 1,
        }
    }

    /// References counted.
    pub fn total(&self) -> u64 {
        self.cold + self.counts.iter().sum::<u64>()
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.cold += other.cold;
        let pairs = self.counts.iter_mut().zip(&other.counts);
        pairs.for_each(|(a, b)| *a += b);
    }

    /// Mean working sets for growing windows, up to the longest reuse seen: (references, bytes).
    pub fn working_sets(&self, page: Bytes) -> Vec<(f64, f64)> {
        let total = self.total() as f64;
        if total == 0.0 {
            return Vec::new();
        }
        let last = self.counts.iter().rposition(|c| *c > 0).unwrap_or(0);
        let mut longer = total;
        let (mut t, mut s) = (0.0, 0.0);
        let mut sets = vec![(0.0, 0.0)];
        for (bucket, count) in self.counts[..=last].iter().enumerate() {
            let end = bucket_end(bucket);
            if end <= t {
                continue;
            }
            // s(T) adds up P(reuse time > t); within a bucket that falls in a straight line.
            let after = longer - *count as f64;
            s += (end - t) * (longer + after) / (2.0 * total);
            (t, longer) = (end, after);
            sets.push((t, s * page.as_f64()));
        }
        sets
    }

    /// The curve of an LRU cache of pages of `page` bytes.
    pub fn curve(&self, page: Bytes) -> Curve {
        Curve::from_working_sets(&self.working_sets(page), page)
    }
}

fn bucket_of(ago: u64) -> usize {
    let octave = ago.ilog2();
    let part = if octave >= 3 {
        (ago >> (octave - 3)) & 7
    } else {
        (ago << (3 - octave)) & 7
    };
    ((octave * PARTS) as usize + part as usize).min(BUCKETS - 1)
}

/// References up to the end of a bucket.
fn bucket_end(bucket: usize) -> f64 {
    let (octave, part) = (bucket as u32 / PARTS, bucket as u32 % PARTS);
    libm::ldexp(1.0 + f64::from(part + 1) / f64::from(PARTS), octave as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::{Popularity, Rng};
    use std::collections::BTreeMap;

    #[test]
    fn lines_between_points_and_flat_ends() {
        let curve = Curve::new(vec![
            (Bytes(200), 0.6),
            (Bytes(100), 0.5),
            (Bytes(300), 0.1),
        ]);
        assert_eq!(curve.at(Bytes(0)), 1.0);
        assert_eq!(curve.at(Bytes(50)), 0.75);
        assert_eq!(curve.at(Bytes(200)), 0.5, "never rises");
        assert!((curve.at(Bytes(250)) - 0.3).abs() < 1e-12);
        assert_eq!(curve.at(Bytes(900)), 0.1);
        assert_eq!(Curve::default().at(Bytes(5)), 1.0);
    }

    /// An LRU stack, slow and obvious: distance of each reference.
    fn exact(references: &[u64], size: usize) -> f64 {
        let mut stack: Vec<u64> = Vec::new();
        let mut misses = 0;
        for page in references {
            match stack.iter().position(|p| p == page) {
                Some(depth) => {
                    misses += usize::from(depth >= size);
                    stack.remove(depth);
                }
                None => misses += 1,
            }
            stack.insert(0, *page);
        }
        misses as f64 / references.len() as f64
    }

    #[test]
    fn working_sets_give_the_curve_of_an_lru_cache() {
        let popularity = Popularity::new(1000, 0.9);
        let mut rng = Rng::new(1, 1);
        let references: Vec<u64> = (0..40_000)
            .map(|_| popularity.page(rng.next_u64()))
            .collect();
        let mut reuse = ReuseTimes::default();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (now, page) in references.iter().enumerate() {
            let now = now as u64;
            reuse.record(last.insert(*page, now).map(|then| now - then));
        }
        let curve = reuse.curve(Bytes(4096));
        for size in [20, 50, 100, 200, 400, 800] {
            let (ours, want) = (
                curve.at(Bytes(4096 * size)),
                exact(&references, size as usize),
            );
            assert!((ours - want).abs() < 0.02, "size {size}: {ours} {want}");
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        let mut before = 0;
        for ago in 1..5000u64 {
            let bucket = bucket_of(ago);
            assert!(bucket >= before);
            assert!(ago as f64 <= bucket_end(bucket) + 1e-9, "{ago}");
            before = bucket;
        }
    }

    #[test]
    fn filling_follows_the_misses() {
        // Uniform reads over 1000 bytes: held = 1000 (1 − e^(−t·rate/1000)).
        let points = (1..=1000).map(|c| (Bytes(c), 1.0 - c as f64 / 1000.0));
        let curve = Curve::new(points.collect());
        for t in [1.0, 5.0, 20.0] {
            let want = 1000.0 * (1.0 - libm::exp(-t * 100.0 / 1000.0));
            let held = curve.held_after(t, 100.0);
            assert!((held - want).abs() < 1.0, "{t}: {held} {want}");
        }
    }
}
