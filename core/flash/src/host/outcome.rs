//! Results of a run per tenant.

use algo::Histogram;
use serde::{Deserialize, Serialize};

/// Latency as the host sees it, including queueing, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl From<&Histogram> for Latency {
    fn from(h: &Histogram) -> Self {
        let s = h.summary();
        Self {
            mean_us: s.mean_us,
            p50_us: s.p50_us,
            p95_us: s.p95_us,
            p99_us: s.p99_us,
            p999_us: s.p999_us,
        }
    }
}

/// Result of one tenant over the counted time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantOutcome {
    /// Name.
    pub name: String,
    /// Weight.
    pub weight: f64,
    /// Load.
    pub load: String,
    /// Time in seconds that the tenant was present.
    pub seconds: f64,
    /// Requests completed per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Share of reads among the requests.
    pub reads: f64,
    /// Latency of all requests.
    pub latency: Latency,
    /// Share of the time of all units that the tenant used, including garbage collection.
    pub device_share: f64,
    /// Write amplification of its writes.
    pub waf: Option<f64>,
    /// Mean share of valid pages in blocks that its writes caused to be collected.
    pub victim_utilization: Option<f64>,
    /// Its own pages moved by its collections.
    pub moved_own: u64,
    /// Pages of other tenants moved by its collections.
    pub moved_foreign: u64,
    /// Its pages moved by collections of other tenants.
    pub moved_by_others: u64,
    /// Its own spare space, as a share of the drive's flash; `None` if tenants share one pool.
    pub spare_share: Option<f64>,
    /// Ratio of rate to objective; `None` without a numeric objective.
    pub met: Option<f64>,
    /// Bytes per second in each window.
    pub series: Vec<f64>,
}

/// Result of all tenants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Length of the counted time, in seconds.
    pub seconds: f64,
    /// Length of a window of the series, in seconds.
    pub window_s: f64,
    /// Results of the tenants, in the order of the plans.
    pub tenants: Vec<TenantOutcome>,
    /// Number of erase blocks that changed their owner.
    pub handed_over: u64,
    /// Device time of these transfers, in seconds.
    pub hand_over_s: f64,
    /// Bandwidth of each tenant relative to that of the tenant with the smallest weight.
    pub proportionality: Vec<f64>,
    /// Mean of |proportionality / relative weight − 1|.
    pub proportionality_error: f64,
}

/// Returns the rates relative to that of the smallest weight, and their mean error against relative weights.
pub fn proportionality(weights: &[f64], rates: &[f64]) -> (Vec<f64>, f64) {
    let least = (0..weights.len()).min_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    let Some(least) = least.filter(|i| rates[*i] > 0.0) else {
        return (vec![0.0; rates.len()], 1.0);
    };
    let relative: Vec<f64> = rates.iter().map(|r| r / rates[least]).collect();
    let errors = relative.iter().zip(weights);
    let sum: f64 = errors
        .map(|(p, w)| (p / (w / weights[least]) - 1.0).abs())
        .sum();
    let error = sum / weights.len() as f64;
    (relative, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportionality_is_relative_to_the_smallest_weight() {
        let (relative, error) = proportionality(&[2.0, 1.0, 4.0], &[20.0, 10.0, 30.0]);
        assert_eq!(relative, [2.0, 1.0, 3.0]);
        assert!((error - 0.25 / 3.0).abs() < 1e-12);
        assert_eq!(proportionality(&[1.0], &[0.0]).1, 1.0);
    }
}
