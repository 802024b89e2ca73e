//! The latency objective of a volume, as the control server says it and the volume's worker reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{Objective, SloStatistic};
use units::Nanos;

/// No latency.
const NONE: u64 = u64::MAX;

/// One volume's.
#[derive(Debug)]
pub struct SharedObjective {
    /// Latency in nanoseconds, or [`NONE`].
    latency_ns: AtomicU64,
    /// Number of its statistic.
    statistic: AtomicU64,
    /// How long what was said holds; 0 if nothing was.
    holds_until_ns: AtomicU64,
}

/// What is known of what a volume was promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Promised {
    /// Nothing, or nobody has ever said anything of it.
    None,
    Is(Objective),
    /// What was said does not hold any more.
    Old,
}

/// Statistics by number.
const STATISTICS: [SloStatistic; 3] = [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99];

impl Default for SharedObjective {
    fn default() -> Self {
        Self {
            latency_ns: AtomicU64::new(NONE),
            statistic: AtomicU64::new(0),
            holds_until_ns: AtomicU64::new(0),
        }
    }
}

impl SharedObjective {
    /// Says what it is until then. Whoever reads it meanwhile may take parts of what was said before, once.
    pub fn hold_to(&self, target: Option<Objective>, until_ns: u64) {
        let number = |t: Objective| STATISTICS.iter().position(|s| *s == t.statistic);
        let statistic = target.and_then(number).unwrap_or(0);
        self.statistic.store(statistic as u64, Ordering::Relaxed);
        let latency_ns = target.map_or(NONE, |t| t.latency.0);
        self.latency_ns.store(latency_ns, Ordering::Relaxed);
        self.holds_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn read(&self, now_ns: u64) -> Promised {
        let latency_ns = self.latency_ns.load(Ordering::Relaxed);
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
}
