//! Latency objective of a volume: the control server sets it, the volume's worker reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{Objective, SloStatistic};
use units::Nanos;

/// Value for no objective.
const NONE: u64 = u64::MAX;

/// Objective of one volume.
#[derive(Debug)]
pub struct SharedObjective {
    /// Latency in nanoseconds, or [`NONE`].
    latency_ns: AtomicU64,
    /// Index of its statistic in [`STATISTICS`].
    statistic: AtomicU64,
    /// End of validity; 0 if no objective was ever set.
    holds_until_ns: AtomicU64,
}

/// State of a volume's objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ObjectiveState {
    /// No objective, or none was ever set.
    None,
    Is(Objective),
    /// The validity of the last objective has ended.
    Old,
}

/// Statistics by index.
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
    /// Sets the objective until `until_ns`. A concurrent reader may see a mix of old and new values once.
    pub fn hold_to(&self, target: Option<Objective>, until_ns: u64) {
        let number = |t: Objective| STATISTICS.iter().position(|s| *s == t.statistic);
        let statistic = target.and_then(number).unwrap_or(0);
        self.statistic.store(statistic as u64, Ordering::Relaxed);
        let latency_ns = target.map_or(NONE, |t| t.latency.0);
        self.latency_ns.store(latency_ns, Ordering::Relaxed);
        self.holds_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Returns the objective at this time.
    pub fn read(&self, now_ns: u64) -> ObjectiveState {
        let latency_ns = self.latency_ns.load(Ordering::Relaxed);
        match self.holds_until_ns.load(Ordering::Relaxed) {
            0 => ObjectiveState::None,
            until_ns if until_ns < now_ns => ObjectiveState::Old,
            _ if latency_ns == NONE => ObjectiveState::None,
            _ => ObjectiveState::Is(Objective {
                statistic: STATISTICS[self.statistic.load(Ordering::Relaxed) as usize],
                latency: Nanos(latency_ns),
            }),
        }
    }
}
