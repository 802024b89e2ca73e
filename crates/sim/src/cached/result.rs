//! What a run leaves.

use algo::{Histogram, bucket_value_ns};
use serde::{Deserialize, Serialize};

use super::flash_device::WearResult;

/// Share of the slowest requests that a trimmed mean leaves out.
pub const TRIMMED: f64 = 0.05;

/// A group of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupResult {
    /// Requests.
    pub requests: u64,
    /// Mean response time over all requests, milliseconds; none without requests.
    pub response_mean_ms: Option<f64>,
    /// The same without the slowest requests ([`TRIMMED`]): what a tail in overload does not set. To the precision of the histogram.
    pub response_trimmed_ms: Option<f64>,
    /// Median, milliseconds.
    pub response_p50_ms: Option<f64>,
    /// 95th percentile, milliseconds.
    pub response_p95_ms: Option<f64>,
    /// 99th percentile, milliseconds.
    pub response_p99_ms: Option<f64>,
    /// Share of requests that were satisfied in the cache, 0..=1.
    pub cached_share: Option<f64>,
    /// Share by kind of device of the page requests that reached devices, 0..=1.
    pub device_share: Vec<Option<f64>>,
}

/// Counts of a group while it is measured.
#[derive(Debug, Clone)]
pub(super) struct Group {
    histogram: Histogram,
    requests: u64,
    cached: u64,
    response_ns: f64,
    pub(super) at_devices: Vec<u64>,
}

impl Group {
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            histogram: Histogram::default(),
            requests: 0,
            cached: 0,
            response_ns: 0.0,
            at_devices: vec![0; kinds],
        }
    }

    #[inline]
    pub(super) fn record(&mut self, response_ns: f64, cached: bool) {
        self.histogram.record(response_ns as u64);
        self.requests += 1;
        self.response_ns += response_ns;
        self.cached += u64::from(cached);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.requests += other.requests;
        self.cached += other.cached;
        self.response_ns += other.response_ns;
        for (mine, theirs) in self.at_devices.iter_mut().zip(&other.at_devices) {
            *mine += theirs;
        }
    }

    /// Mean of all but the slowest.
    fn trimmed_ns(&self) -> f64 {
        let counted = ((1.0 - TRIMMED) * self.requests as f64).ceil() as u64;
        let (mut left, mut sum) = (counted, 0.0);
        for (bucket, n) in self.histogram.buckets() {
            let taken = n.min(left);
            left -= taken;
            sum += taken as f64 * bucket_value_ns(bucket) as f64;
        }
        sum / counted.max(1) as f64
    }

    pub(super) fn result(&self) -> GroupResult {
        let n = self.requests;
        let of = |x: f64| (n > 0).then_some(x);
        let quantile = |q| of(self.histogram.quantile_ns(q) as f64 * 1e-6);
        let at_devices: u64 = self.at_devices.iter().sum();
        GroupResult {
            requests: n,
            response_mean_ms: of(self.response_ns / n as f64 * 1e-6),
            response_trimmed_ms: of(self.trimmed_ns() * 1e-6),
            response_p50_ms: quantile(0.5),
            response_p95_ms: quantile(0.95),
            response_p99_ms: quantile(0.99),
            cached_share: of(self.cached as f64 / n as f64),
            device_share: self
                .at_devices
                .iter()
                .map(|n| (at_devices > 0).then(|| *n as f64 / at_devices as f64))
                .collect(),
        }
    }
}

/// One hour.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HourResult {
    /// Number of the hour, from 0.
    pub hour: u32,
    /// By class.
    pub classes: Vec<GroupResult>,
    /// All classes.
    pub total: GroupResult,
    /// Mean priority of the volumes of each class at its end, percent; none under methods without priorities.
    pub priorities: Option<Vec<f64>>,
    /// Exchanges that were decided at its start.
    pub exchanges_planned: u32,
    /// Those of them that were carried out before its end.
    pub exchanges_done: u32,
    /// Mean utilization by requests of the devices of each kind, 0..=1.
    pub utilization: Vec<f64>,
    /// Mean utilization by copies of the devices of each kind, 0..=1.
    pub utilization_copies: Vec<f64>,
}

/// The whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CachedResult {
    /// By class, without the warm-up.
    pub classes: Vec<GroupResult>,
    /// By class, the share of volume-hours whose mean response time was within the class's target, 0..=1.
    pub within_target: Vec<Option<f64>>,
    /// All classes, without the warm-up.
    pub total: GroupResult,
    /// Wear by kind of device, of those whose flash is simulated; all hours.
    pub wear: Vec<WearResult>,
    /// Hour by hour, all of them.
    pub hours: Vec<HourResult>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trimmed_mean_leaves_the_slowest_out() {
        let mut group = Group::new(1);
        assert_eq!(group.result().response_trimmed_ms, None);
        for i in 0..100 {
            let slow = i >= 95;
            group.record(if slow { 1e9 } else { 1e6 }, false);
        }
        let result = group.result();
        let trimmed = result.response_trimmed_ms.unwrap();
        assert!((trimmed - 1.0).abs() < 0.05, "{trimmed}");
        assert!(result.response_mean_ms.unwrap() > 50.0);
        assert!((result.response_p50_ms.unwrap() - 1.0).abs() < 0.05);
    }
}
