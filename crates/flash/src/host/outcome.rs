//! What came of it, tenant by tenant.

use algo::Histogram;
use serde::{Deserialize, Serialize};

/// Latency as the host saw it, queueing included, microseconds.
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

/// Of one tenant, over the time that counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantOutcome {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: f64,
    /// What it asked for.
    pub load: String,
    /// Seconds that it was there.
    pub seconds: f64,
    /// Requests answered each second.
    pub iops: f64,
    /// Bytes each second.
    pub bytes_per_s: f64,
    /// Share of reads among the requests.
    pub reads: f64,
    /// Latency of all requests.
    pub latency: Latency,
    /// Share of the time of all units that it took, collection with it.
    pub device_share: f64,
    /// Write amplification of what it wrote.
    pub waf: Option<f64>,
    /// Mean share of valid pages in blocks that its writes had collected.
    pub victim_utilization: Option<f64>,
    /// Its own pages moved by its collections.
    pub moved_own: u64,
    /// Pages of others moved by them.
    pub moved_foreign: u64,
    /// Its pages moved by collections of others.
    pub moved_by_others: u64,
    /// Spare space of its own, as a share of the drive's flash; none where tenants share one pool.
    pub spare_share: Option<f64>,
    /// What became of its objective: rate over objective; none without one in numbers.
    pub met: Option<f64>,
    /// Bytes a second in each window.
    pub series: Vec<f64>,
}

/// Of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Length of what counts, seconds.
    pub seconds: f64,
    /// Length of a window of the series, seconds.
    pub window_s: f64,
    /// By tenant, in the order in which they were given.
    pub tenants: Vec<TenantOutcome>,
    /// Erase blocks that changed their owner.
    pub handed_over: u64,
    /// Device time of that, seconds.
    pub hand_over_s: f64,
    /// Bandwidth of each tenant over that of the tenant with the least weight.
    pub proportionality: Vec<f64>,
    /// Mean of |proportionality / relative weight − 1|.
    pub proportionality_error: f64,
}

/// Rates relative to that of the least weight, and the mean error against relative weights.
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
    fn proportionality_is_relative_to_the_least_weight() {
        let (relative, error) = proportionality(&[2.0, 1.0, 4.0], &[20.0, 10.0, 30.0]);
        assert_eq!(relative, [2.0, 1.0, 3.0]);
        assert!((error - 0.25 / 3.0).abs() < 1e-12);
        assert_eq!(proportionality(&[1.0], &[0.0]).1, 1.0);
    }
}
