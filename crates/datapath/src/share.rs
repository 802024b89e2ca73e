//! What a volume's worker and the sharer of its tier tell one another: counts up, limits and the objective down. Limits are read for each
//! request.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{Objective, SloStatistic};
use units::{BytesPerSec, Iops, Nanos};
use volume::Limits;

/// No limit.
const NONE: u64 = u64::MAX;

/// One volume's part.
#[derive(Debug)]
pub struct Share {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests per second as the bits of an `f64`, or [`NONE`].
    iops: AtomicU64,
    bandwidth: AtomicU64,
    /// Latency of the objective in nanoseconds, or [`NONE`].
    objective_ns: AtomicU64,
    /// Number of its statistic.
    statistic: AtomicU64,
    /// How long what was said of the objective holds; 0 if nothing was.
    holds_until_ns: AtomicU64,
}

/// What is known of what a volume was promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Promised {
    /// Nothing, or nobody has ever said anything of it.
    None,
    /// It is this.
    Is(Objective),
    /// What was said does not hold any more.
    Old,
}

/// Statistics by number.
const STATISTICS: [SloStatistic; 3] = [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99];

impl Default for Share {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            iops: AtomicU64::new(NONE),
            bandwidth: AtomicU64::new(NONE),
            objective_ns: AtomicU64::new(NONE),
            statistic: AtomicU64::new(0),
            holds_until_ns: AtomicU64::new(0),
        }
    }
}

impl Share {
    /// A request of so many bytes wants to be served.
    #[inline]
    pub fn arrived(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Requests and bytes up to now.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.requests.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// Sets the limits.
    pub fn limit(&self, limits: Limits) {
        let iops = limits.iops.map_or(NONE, |i| i.0.to_bits());
        let bandwidth = limits.bandwidth.map_or(NONE, |b| b.0);
        self.iops.store(iops, Ordering::Relaxed);
        self.bandwidth.store(bandwidth, Ordering::Relaxed);
    }

    /// Says what the objective is until then. Whoever reads it meanwhile may take parts of what was said before, once.
    pub fn hold_to(&self, target: Option<Objective>, until_ns: u64) {
        let number = |t: Objective| STATISTICS.iter().position(|s| *s == t.statistic);
        let statistic = target.and_then(number).unwrap_or(0);
        self.statistic.store(statistic as u64, Ordering::Relaxed);
        let latency_ns = target.map_or(NONE, |t| t.latency.0);
        self.objective_ns.store(latency_ns, Ordering::Relaxed);
        self.holds_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// The objective now.
    pub fn objective(&self, now_ns: u64) -> Promised {
        let latency_ns = self.objective_ns.load(Ordering::Relaxed);
        match self.holds_until_ns.load(Ordering::Relaxed) {
            0 => Promised::None,
            until_ns if until_ns < now_ns => Promised::Old,
            _ if latency_ns == NONE => Promised::None,
            _ => Promised::Is(Objective {
                statistic: STATISTICS[self.statistic.load(Ordering::Relaxed) as usize],
                latency: Nanos(latency_ns),
            }),
        }
    }

    /// The limits now.
    #[inline]
    pub fn limits(&self) -> Limits {
        let iops = self.iops.load(Ordering::Relaxed);
        let bandwidth = self.bandwidth.load(Ordering::Relaxed);
        Limits {
            iops: (iops != NONE).then(|| Iops(f64::from_bits(iops))),
            bandwidth: (bandwidth != NONE).then_some(BytesPerSec(bandwidth)),
        }
    }
}
