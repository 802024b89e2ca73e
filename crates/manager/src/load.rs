//! Sums and differences of measured loads, and what can be said of one.

use algo::{bucket_value_ns, buckets_since};
use model::SloStatistic;

use crate::wire::{Load, LoadOf};

impl LoadOf {
    /// What was added since an earlier reading of the same counters; none if something went backwards.
    pub fn since(&self, earlier: &LoadOf) -> Option<LoadOf> {
        Some(LoadOf {
            ios: self.ios.checked_sub(earlier.ios)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            sum_ns: self.sum_ns.checked_sub(earlier.sum_ns)?,
            held_ns: self.held_ns.checked_sub(earlier.held_ns)?,
            buckets: buckets_since(&self.buckets, &earlier.buckets)?,
        })
    }

    /// Adds another one.
    pub fn add(&mut self, other: &LoadOf) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.sum_ns += other.sum_ns;
        self.held_ns += other.held_ns;
        self.buckets = merged(&self.buckets, &other.buckets);
    }

    /// Mean latency without what was injected, microseconds; none without requests.
    pub fn mean_us(&self) -> Option<f64> {
        let own_ns = self.sum_ns.saturating_sub(self.held_ns);
        (self.ios > 0).then(|| own_ns as f64 / self.ios as f64 / 1e3)
    }

    /// Mean latency as the guest sees it, microseconds; none without requests.
    pub fn guest_mean_us(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.sum_ns as f64 / self.ios as f64 / 1e3)
    }

    /// The latency that a share `q` of the requests does not exceed, as the guest sees it; none without requests.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        quantile_ns(&self.buckets, q)
    }
}

impl Load {
    /// What was added since an earlier reading of the same counters; none if something went backwards.
    pub fn since(&self, earlier: &Load) -> Option<Load> {
        Some(Load {
            reads: self.reads.since(&earlier.reads)?,
            writes: self.writes.since(&earlier.writes)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            depth_ns: self.depth_ns.checked_sub(earlier.depth_ns)?,
        })
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Load) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.errors += other.errors;
        self.depth_ns += other.depth_ns;
    }

    /// Requests.
    pub fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    /// Mean latency of all requests without what was injected, microseconds; none without requests.
    pub fn mean_us(&self) -> Option<f64> {
        let own_ns = (self.reads.sum_ns + self.writes.sum_ns)
            .saturating_sub(self.reads.held_ns + self.writes.held_ns);
        (self.ios() > 0).then(|| own_ns as f64 / self.ios() as f64 / 1e3)
    }

    /// Mean delay that was injected into a request, microseconds; 0 without requests.
    pub fn held_mean_us(&self) -> f64 {
        let held_ns = self.reads.held_ns + self.writes.held_ns;
        held_ns as f64 / self.ios().max(1) as f64 / 1e3
    }

    /// The latency that a share `q` of all requests does not exceed, as the guest sees it; none without requests.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        quantile_ns(&merged(&self.reads.buckets, &self.writes.buckets), q)
    }

    /// A statistic of the latency of all requests as the guest sees it; none without requests.
    pub fn statistic_ns(&self, statistic: SloStatistic) -> Option<u64> {
        match statistic {
            SloStatistic::Mean => {
                let sum_ns = self.reads.sum_ns + self.writes.sum_ns;
                (self.ios() > 0).then(|| sum_ns / self.ios())
            }
            SloStatistic::P95 => self.quantile_ns(0.95),
            SloStatistic::P99 => self.quantile_ns(0.99),
        }
    }
}

/// Two sparse histograms as one.
fn merged(a: &[(u16, u64)], b: &[(u16, u64)]) -> Vec<(u16, u64)> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let next = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x.0 == y.0 => {
                (i, j) = (i + 1, j + 1);
                (x.0, x.1 + y.1)
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

fn quantile_ns(buckets: &[(u16, u64)], q: f64) -> Option<u64> {
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

    fn of(values: &[u64]) -> LoadOf {
        let mut load = LoadOf::default();
        for v in values {
            load.add(&LoadOf {
                ios: 1,
                bytes: 4096,
                sum_ns: *v,
                held_ns: 0,
                buckets: vec![(algo::bucket_of(*v) as u16, 1)],
            });
        }
        load
    }

    proptest! {
        #[test]
        fn sums_and_differences_undo_one_another(a in prop::collection::vec(0u64..1 << 40, 0..60), b in prop::collection::vec(0u64..1 << 40, 0..60)) {
            let (first, second) = (of(&a), of(&b));
            let mut both = first.clone();
            both.add(&second);
            prop_assert_eq!(both.since(&first), Some(second.clone()));
            prop_assert_eq!(both.since(&second), Some(first.clone()));
            if !b.is_empty() {
                prop_assert_eq!(first.since(&both), None);
            }
            let mut all = algo::Histogram::default();
            a.iter().chain(&b).for_each(|v| all.record(*v));
            for q in [0.5, 0.95, 0.99] {
                let (ours, theirs) = (both.quantile_ns(q).unwrap_or(0), all.quantile_ns(q));
                // The other one knows the largest value, and cuts there.
                prop_assert!(ours >= theirs && ours as f64 <= theirs as f64 * 1.016 + 128.0, "{ours} {theirs}");
            }
        }
    }

    #[test]
    fn injected_latency_is_not_the_volumes_own() {
        let mut load = Load {
            reads: of(&[1_000_000, 3_000_000]),
            ..Load::default()
        };
        load.reads.held_ns = 1_000_000;
        assert_eq!(load.mean_us(), Some(1500.0));
        assert_eq!(load.reads.guest_mean_us(), Some(2000.0));
        assert_eq!(load.held_mean_us(), 500.0);
        assert_eq!(load.statistic_ns(SloStatistic::Mean), Some(2_000_000));
        assert_eq!(Load::default().statistic_ns(SloStatistic::P99), None);
    }
}
