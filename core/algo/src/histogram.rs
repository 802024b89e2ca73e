//! Latency histograms with a bounded relative error.
//!
//! ```text
//!   value in units of 128 ns:  0 1 2 … 63 | 64 … 127 | 128, 130 … 254 | 256, 260 … 508 | …
//!                              exact units  64 buckets  64 buckets       64 buckets
//! ```
//!
//! From 8.2 us on, the width of a bucket is at most 1/64 of its value. A quantile is reported as the middle of its
//! bucket, so it is within 0.8 % of the true one. Values past 19 hours go into the last bucket. Means are exact sums.
//! [`WindowHistograms`] is the compact form for an inner loop; [`Histogram`] adds up windows.

use model::LatencySummary;

const UNIT_SHIFT: u32 = 7;
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
const OCTAVES: usize = 34;

/// Number of buckets.
pub const BUCKETS: usize = SUB * OCTAVES;

/// Returns the bucket of a value in nanoseconds.
#[inline]
pub fn bucket_of(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    let top = 63 - (units | (SUB as u64 - 1)).leading_zeros();
    let shift = (top + 1).saturating_sub(SUB_BITS + 1);
    // Below 2 * SUB units the shift is zero and the bucket is the unit itself.
    let index = ((shift as usize) << SUB_BITS) + (units >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// Returns the middle of a bucket in nanoseconds.
pub fn bucket_value_ns(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let units = (bucket as u64) - (u64::from(shift) << SUB_BITS);
    let low = (units << shift) << UNIT_SHIFT;
    low + (1u64 << (shift + UNIT_SHIFT)) / 2
}

/// Sums of one histogram of a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowSums {
    /// Number of values.
    pub count: u64,
    /// Sum of the values, nanoseconds.
    pub sum_ns: u64,
    /// Largest value, nanoseconds.
    pub max_ns: u64,
    /// Sum of the second quantity that [`WindowHistograms::record`] takes: bytes.
    pub bytes: u64,
}

/// One histogram per index for the present window, in one block of memory.
#[derive(Debug, Clone)]
pub struct WindowHistograms {
    counts: Vec<u32>,
    sums: Vec<WindowSums>,
}

impl WindowHistograms {
    /// Creates `n` empty histograms.
    pub fn new(n: usize) -> Self {
        Self {
            counts: vec![0; n * BUCKETS],
            sums: vec![WindowSums::default(); n],
        }
    }

    /// Counts one value of `bytes` in histogram `index`.
    #[inline]
    pub fn record(&mut self, index: usize, ns: u64, bytes: u64) {
        self.counts[index * BUCKETS + bucket_of(ns)] += 1;
        let sums = &mut self.sums[index];
        sums.count += 1;
        sums.sum_ns += ns;
        sums.max_ns = sums.max_ns.max(ns);
        sums.bytes += bytes;
    }

    /// Adds counts from elsewhere, by bucket, with their sums.
    pub fn add(
        &mut self,
        index: usize,
        counts: impl Iterator<Item = (usize, u32)>,
        more: WindowSums,
    ) {
        for (bucket, n) in counts {
            self.counts[index * BUCKETS + bucket] += n;
        }
        let sums = &mut self.sums[index];
        sums.count += more.count;
        sums.sum_ns += more.sum_ns;
        sums.max_ns = sums.max_ns.max(more.max_ns);
        sums.bytes += more.bytes;
    }

    /// Returns the sums of histogram `index` in this window.
    #[inline]
    pub fn sums(&self, index: usize) -> WindowSums {
        self.sums[index]
    }

    /// Adds histogram `index` to each of `totals` and clears it. Returns its sums and its non-zero counts by bucket, in
    /// ascending order.
    pub fn drain_into(
        &mut self,
        index: usize,
        totals: &mut [&mut Histogram],
    ) -> (WindowSums, Vec<(u16, u64)>) {
        let mut buckets = Vec::new();
        let sums = std::mem::take(&mut self.sums[index]);
        if sums.count == 0 {
            return (sums, buckets);
        }
        let counts = &mut self.counts[index * BUCKETS..(index + 1) * BUCKETS];
        for (bucket, n) in counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            let n = u64::from(std::mem::take(n));
            buckets.push((bucket as u16, n));
            for total in totals.iter_mut() {
                total.counts[bucket] += n;
            }
        }
        for total in totals.iter_mut() {
            total.count += sums.count;
            total.sum_ns += u128::from(sums.sum_ns);
            total.max_ns = total.max_ns.max(sums.max_ns);
        }
        (sums, buckets)
    }
}

/// Counts over any number of windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        for (sum, n) in self.counts.iter_mut().zip(other.used()) {
            *sum += n;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Clears all counts.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
            (self.count, self.sum_ns, self.max_ns) = (0, 0, 0);
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact mean in microseconds; 0 without values.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum_ns as f64 / self.count as f64 / 1e3
        }
    }

    /// Returns the buckets up to that of the largest value; the others are empty.
    fn used(&self) -> &[u64] {
        match self.count {
            0 => &[],
            _ => &self.counts[..=bucket_of(self.max_ns)],
        }
    }

    /// Returns the buckets with values, ascending, and the number of values in each. [`bucket_value_ns`] has the middle
    /// of a bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.used().iter().copied();
        counts.enumerate().filter(|(_, n)| *n > 0)
    }

    /// Returns the buckets with values as sparse counts, for storage and transfer: there are some thousand buckets.
    pub fn sparse(&self) -> Vec<(u16, u64)> {
        self.buckets().map(|(b, n)| (b as u16, n)).collect()
    }

    /// Returns the exact sum of the values in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the sum of the values in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Returns the value that a share `q` of all values does not exceed, in nanoseconds; 0 without values.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank && *n > 0 {
                return bucket_value_ns(bucket).min(self.max_ns);
            }
        }
        0
    }

    /// Returns mean and the usual percentiles in microseconds, in one pass.
    pub fn summary(&self) -> LatencySummary {
        let mut out = [0.0; 4];
        if self.count > 0 {
            let ranks = [0.5, 0.95, 0.99, 0.999]
                .map(|q: f64| ((q * self.count as f64).ceil() as u64).max(1));
            let (mut seen, mut next) = (0, 0);
            for (bucket, n) in self.counts.iter().enumerate() {
                seen += n;
                while next < 4 && seen >= ranks[next] {
                    out[next] = bucket_value_ns(bucket).min(self.max_ns) as f64 / 1e3;
                    next += 1;
                }
                if next == 4 {
                    break;
                }
            }
        }
        LatencySummary {
            mean_us: self.mean_us(),
            p50_us: out[0],
            p95_us: out[1],
            p99_us: out[2],
            p999_us: out[3],
        }
    }
}

/// Returns the increase of sparse counts by bucket since an earlier reading, without zeroes; both ascend. `None` if a
/// count decreased.
pub fn buckets_since(now: &[(u16, u64)], earlier: &[(u16, u64)]) -> Option<Vec<(u16, u64)>> {
    let mut left = earlier.iter().copied().peekable();
    let mut differences = vec![];
    for (bucket, n) in now.iter().copied() {
        let before = left.next_if(|b| b.0 == bucket).map_or(0, |b| b.1);
        let more = n.checked_sub(before)?;
        if more > 0 {
            differences.push((bucket, more));
        }
    }
    // Remaining buckets have disappeared.
    left.next().is_none().then_some(differences)
}

/// Merges two sparse counts by bucket; all ascend.
pub fn merged_buckets(a: &[(u16, u64)], b: &[(u16, u64)]) -> Vec<(u16, u64)> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let next = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x.0 == y.0 => {
                (i, j) = (i + 1, j + 1);
                (x.0, x.1.saturating_add(y.1))
            }
            (Some(x), Some(y)) if x.0 > y.0 => {
                j += 1;
                *y
            }
            (Some(x), _) => {
                i += 1;
                *x
            }
            (None, Some(y)) => {
                j += 1;
                *y
            }
            (None, None) => unreachable!("one of them goes on"),
        };
        out.push(next);
    }
    out
}

/// Returns the value that a share `q` of sparse counts does not exceed, in nanoseconds; `None` without values.
pub fn bucket_quantile_ns(buckets: &[(u16, u64)], q: f64) -> Option<u64> {
    let count: u64 = buckets.iter().map(|b| b.1).sum();
    let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
    let mut seen = 0;
    buckets.iter().find_map(|(bucket, n)| {
        seen += n;
        (seen >= rank).then(|| bucket_value_ns(usize::from(*bucket)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_value_is_within_its_width(ns in 0u64..70_000_000_000_000) {
            let middle = bucket_value_ns(bucket_of(ns));
            let tolerance = (ns / 128).max(64);
            prop_assert!(middle.abs_diff(ns) <= tolerance, "{ns} -> {middle}");
        }

        #[test]
        fn buckets_are_ordered(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!(bucket_of(a.min(b)) <= bucket_of(a.max(b)));
        }

        #[test]
        fn quantiles_match_a_sorted_list(mut values in prop::collection::vec(1_000u64..10_000_000_000, 1..400)) {
            let mut h = Histogram::default();
            let mut windows = WindowHistograms::new(2);
            let mut twice = Histogram::default();
            for v in &values {
                windows.record(1, *v, 10);
            }
            let (sums, buckets) = windows.drain_into(1, &mut [&mut h, &mut twice]);
            prop_assert_eq!(sums.bytes, 10 * values.len() as u64);
            let counted: Vec<_> = buckets.iter().map(|(b, n)| (usize::from(*b), *n)).collect();
            prop_assert_eq!(counted, h.buckets().collect::<Vec<_>>());
            prop_assert_eq!(&h, &twice);
            prop_assert_eq!(windows.drain_into(1, &mut [&mut h]), (WindowSums::default(), vec![]));
            values.sort_unstable();
            let summary = h.summary();
            for (q, got) in [(0.5, summary.p50_us), (0.95, summary.p95_us), (0.99, summary.p99_us), (0.999, summary.p999_us)] {
                let rank = ((q * values.len() as f64).ceil() as usize).max(1);
                let want = values[rank - 1] as f64 / 1e3;
                prop_assert!((got - want).abs() <= want / 100.0 + 0.1, "{q}: {got} {want}");
                prop_assert_eq!(h.quantile_ns(q) as f64 / 1e3, got);
            }
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64 / 1e3;
            prop_assert!((summary.mean_us - mean).abs() < 1e-6 * mean);
        }
    }

    #[test]
    fn nonempty_buckets_are_listed_in_order() {
        let mut h = Histogram::default();
        assert_eq!(h.buckets().count(), 0);
        for ns in [5_000_000, 0, 130, 140, u64::MAX / 4] {
            h.record(ns);
        }
        let want = [(0, 1), (1, 2), (bucket_of(5_000_000), 1), (BUCKETS - 1, 1)];
        assert_eq!(h.buckets().collect::<Vec<_>>(), want);
        assert_eq!(h.sum_ns(), u128::from(5_000_270 + u64::MAX / 4));
        let mut more = Histogram::default();
        more.record(130);
        h.merge(&more);
        more.merge(&h);
        assert_eq!(more.buckets().nth(1), Some((1, 4)));
        assert_eq!(more.buckets().map(|b| b.1).sum::<u64>(), more.count());
        h.clear();
        assert_eq!(h.buckets().count(), 0);
    }

    #[test]
    fn smallest_and_largest_values_are_handled() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(Histogram::default().summary(), LatencySummary::default());
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }
}
