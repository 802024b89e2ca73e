//! Measurements of disks during a trial, from the windows in the controller's history.

use manager::store::{FlowSummary, HistoryPoint};
use serde::Serialize;

/// Number of windows of an epoch of a trial. Plans and predictions use the last epoch.
pub const EPOCH_WINDOWS: usize = 4;

/// Measurements of a disk during the observation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskSeen {
    /// Name of the disk.
    pub volume: String,
    pub tier: String,
    /// r/s
    pub reads_per_s: f64,
    /// w/s
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Mean latency of reads, microseconds; none without reads.
    pub read_mean_us: Option<f64>,
    /// Mean latency of writes, microseconds; none without writes.
    pub write_mean_us: Option<f64>,
    /// Mean latency of all requests, microseconds; none without any.
    pub mean_us: Option<f64>,
    /// 5th and 95th percentile of the means of windows, microseconds.
    pub windows_us: Option<(f64, f64)>,
    /// Length of a window, seconds.
    pub window_s: f64,
    /// Number of measured windows.
    pub windows: u32,
    /// Number of windows with a mean above the objective.
    pub windows_above: u32,
    /// Spread of the means of epochs: standard deviation of their logarithms; none for fewer than three epochs.
    pub epochs_sigma: Option<f64>,
    /// Mean latency in the last epoch, microseconds.
    pub last_us: Option<f64>,
    /// Requests per second in the last epoch.
    pub last_per_s: f64,
    /// Windows, oldest first.
    #[serde(skip)]
    pub series: Vec<WindowSeen>,
}

/// A window of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowSeen {
    /// Middle, seconds since the start of the observation.
    pub at_s: f64,
    /// Requests per second.
    pub per_s: f64,
    /// Mean latency, microseconds; none without requests.
    pub mean_us: Option<f64>,
}

/// Sums of requests, bytes and latencies.
#[derive(Clone, Copy, Default)]
struct Sum {
    ios: f64,
    bytes: f64,
    us: f64,
}

impl Sum {
    fn add(&mut self, flow: &FlowSummary) {
        self.ios += flow.ios as f64;
        self.bytes += flow.bytes as f64;
        self.us += flow.ios as f64 * flow.mean_ns as f64 / 1e3;
    }

    fn of<'a>(flows: impl Iterator<Item = &'a FlowSummary>) -> Self {
        let mut sum = Self::default();
        flows.for_each(|flow| sum.add(flow));
        sum
    }

    fn mean_us(&self) -> Option<f64> {
        (self.ios > 0.0).then(|| self.us / self.ios)
    }
}

fn both(points: &[HistoryPoint]) -> Sum {
    Sum::of(
        points
            .iter()
            .flat_map(|p| [&p.summary.reads, &p.summary.writes]),
    )
}

fn seconds(points: &[HistoryPoint]) -> f64 {
    points.iter().map(|p| p.window_ns as f64 / 1e9).sum()
}

/// A disk's windows, oldest first, summed up; they are held against an objective for the mean.
pub fn seen(volume: &str, tier: &str, points: &[HistoryPoint], latency_us: f64) -> DiskSeen {
    let time_s = seconds(points).max(1e-9);
    let reads = Sum::of(points.iter().map(|p| &p.summary.reads));
    let writes = Sum::of(points.iter().map(|p| &p.summary.writes));
    let window = |p: &HistoryPoint| both(std::slice::from_ref(p)).mean_us();
    let mut means: Vec<f64> = points.iter().filter_map(window).collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = means.len().checked_sub(1)?;
        Some(means[(last as f64 * share).round() as usize])
    };
    // From the end: the last epoch is the one that the plan was made from.
    let epochs = points.rchunks_exact(EPOCH_WINDOWS);
    let epochs: Vec<f64> = epochs.filter_map(|e| both(e).mean_us()).collect();
    let last = &points[points.len().saturating_sub(EPOCH_WINDOWS)..];
    let began_ns = points
        .first()
        .map_or(0, |p| p.at_ns.saturating_sub(p.window_ns));
    let series = points.iter().map(|p| {
        let middle_ns = p.at_ns.saturating_sub(began_ns) as f64 - p.window_ns as f64 / 2.0;
        let sum = both(std::slice::from_ref(p));
        let per_s = sum.ios / (p.window_ns as f64 / 1e9).max(1e-9);
        WindowSeen {
            at_s: middle_ns / 1e9,
            per_s,
            mean_us: sum.mean_us(),
        }
    });
    DiskSeen {
        volume: volume.into(),
        tier: tier.into(),
        reads_per_s: reads.ios / time_s,
        writes_per_s: writes.ios / time_s,
        read_bytes_per_s: reads.bytes / time_s,
        write_bytes_per_s: writes.bytes / time_s,
        read_mean_us: reads.mean_us(),
        write_mean_us: writes.mean_us(),
        mean_us: both(points).mean_us(),
        windows_us: at(0.05).zip(at(0.95)),
        window_s: points.last().map_or(0.0, |p| p.window_ns as f64 / 1e9),
        windows: points.len() as u32,
        windows_above: means.iter().filter(|us| **us > latency_us).count() as u32,
        epochs_sigma: spread(&epochs),
        last_us: both(last).mean_us(),
        last_per_s: both(last).ios / seconds(last).max(1e-9),
        series: series.collect(),
    }
}

/// Standard deviation of logarithms; of two values it would say next to nothing.
fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| libm::log(v.max(1e-3))).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let squares: f64 = logs.iter().map(|l| (l - mean) * (l - mean)).sum();
    Some((squares / (n - 1.0)).sqrt())
}
