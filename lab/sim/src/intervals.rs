//! Latencies of every volume by interval, from which percentiles over any period of a run are computed.
//!
//! A run keeps them only on request ([`crate::run_with_intervals`]), since they take more memory than everything else in a result.

use algo::{Histogram, bucket_quantile_ns, merged_buckets};

/// Minimum length of an interval, nanoseconds.
const INTERVAL_MIN_NS: u64 = 60_000_000_000;

/// Latencies of all requests of a volume that completed in one interval, or in several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntervalLatencies {
    /// Number of requests.
    pub requests: u64,
    /// Sum of their latencies, nanoseconds.
    pub sum_ns: u128,
    /// Their number by bucket ([`algo::bucket_of`]), ascending.
    pub buckets: Vec<(u16, u64)>,
}

impl IntervalLatencies {
    fn of(histogram: &Histogram) -> Self {
        Self {
            requests: histogram.count(),
            sum_ns: histogram.sum_ns(),
            buckets: histogram.sparse(),
        }
    }

    /// Adds the latencies of another interval.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.sum_ns += other.sum_ns;
        self.buckets = merged_buckets(&self.buckets, &other.buckets);
    }

    /// Returns the mean, microseconds; `None` without requests.
    pub fn mean_us(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns as f64 / self.requests as f64 / 1e3)
    }

    /// Returns the 99th percentile, microseconds; `None` without requests.
    pub fn p99_us(&self) -> Option<f64> {
        bucket_quantile_ns(&self.buckets, 0.99).map(|ns| ns as f64 / 1e3)
    }
}

/// Latencies of all volumes over a run, without its warm-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intervals {
    /// Length of an interval, nanoseconds: a minute, or a window where that is longer.
    pub length_ns: u64,
    /// By volume, then by interval; the last interval may be shorter.
    pub volumes: Vec<Vec<IntervalLatencies>>,
}

/// Intervals of a run in progress.
pub(crate) struct IntervalCounts {
    windows_per_interval: u64,
    windows: u64,
    current: Vec<Histogram>,
    done: Intervals,
}

impl IntervalCounts {
    pub(crate) fn new(volumes: usize, window_ns: u64) -> Self {
        let windows_per_interval = INTERVAL_MIN_NS.div_ceil(window_ns.max(1)).max(1);
        Self {
            windows_per_interval,
            windows: 0,
            current: vec![Histogram::default(); volumes],
            done: Intervals {
                length_ns: windows_per_interval * window_ns,
                volumes: vec![vec![]; volumes],
            },
        }
    }

    /// Adds a window's latencies of one volume and direction.
    pub(crate) fn add(&mut self, volume: usize, window: &Histogram) {
        self.current[volume].merge(window);
    }

    /// Ends a window, after [`IntervalCounts::add`].
    pub(crate) fn end_window(&mut self) {
        self.windows += 1;
        if self.windows == self.windows_per_interval {
            self.end_interval();
        }
    }

    fn end_interval(&mut self) {
        self.windows = 0;
        for (current, done) in self.current.iter_mut().zip(&mut self.done.volumes) {
            done.push(IntervalLatencies::of(current));
            current.clear();
        }
    }

    pub(crate) fn finish(mut self) -> Intervals {
        if self.windows > 0 {
            self.end_interval();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_to_the_entire_run() {
        let window_ns = 25_000_000_000;
        let mut counts = IntervalCounts::new(1, window_ns);
        let mut whole = Histogram::default();
        for window in 1..=7u64 {
            let mut latencies = Histogram::default();
            (1..=100).for_each(|i| latencies.record(window * i * 1_000));
            whole.merge(&latencies);
            counts.add(0, &latencies);
            counts.end_window();
        }
        let intervals = counts.finish();
        assert_eq!(
            intervals.length_ns,
            3 * window_ns,
            "a minute and no part of a window"
        );
        let volume = &intervals.volumes[0];
        let requests: Vec<u64> = volume.iter().map(|i| i.requests).collect();
        assert_eq!(requests, [300, 300, 100]);
        let mut sum = IntervalLatencies::default();
        volume.iter().for_each(|i| sum.add(i));
        assert_eq!(sum, IntervalLatencies::of(&whole));
        let p99_us = sum.p99_us().unwrap();
        assert!((p99_us / (whole.quantile_ns(0.99) as f64 / 1e3) - 1.0).abs() < 0.01);
        assert_eq!(IntervalLatencies::default().mean_us(), None);
    }
}
