//! Retention periods and limits of stored data.

use units::Nanos;

/// Length of rolled-up windows.
pub const ROLLED_WINDOW: Nanos = Nanos(300 * SECOND_NS);

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

/// Retention periods and limits. Ages are differences of the controller's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age of raw windows at which they are rolled up into [`ROLLED_WINDOW`].
    pub raw: Nanos,
    /// Age of rolled-up windows at which they are deleted.
    pub rolled: Nanos,
    /// Age at which facts, policy and state of decisions are deleted.
    pub inputs: Nanos,
    /// Age at which plans and reports of decisions are deleted.
    pub decisions: Nanos,
    /// Age at which events, ended jobs and outcomes are deleted.
    pub past: Nanos,
    /// Largest number of events. Audit events are deleted last.
    pub events_max: u64,
    /// Largest number of events of one host, without audit events. Bounds the disk space of a host in trouble.
    pub share_events_max: u64,
    /// Largest number of ended jobs.
    pub jobs_max: u64,
    /// Largest number of outcomes.
    pub outcomes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            raw: Nanos(7 * DAY_NS),
            rolled: Nanos(400 * DAY_NS),
            inputs: Nanos(7 * DAY_NS),
            decisions: Nanos(90 * DAY_NS),
            past: Nanos(400 * DAY_NS),
            events_max: 1_000_000,
            share_events_max: 50_000,
            jobs_max: 200_000,
            outcomes_max: 200_000,
        }
    }
}
