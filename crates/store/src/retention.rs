//! How long what is kept.

use units::Nanos;

/// Length of the windows that raw ones are rolled up into.
pub const ROLLED_WINDOW: Nanos = Nanos(300 * SECOND_NS);

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

/// How long what is kept, and how much of it. Ages are differences of the controller's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Windows as they were reported; then they are rolled up into [`ROLLED_WINDOW`].
    pub raw: Nanos,
    /// Windows that were rolled up.
    pub rolled: Nanos,
    /// Facts, policy and state of decisions.
    pub inputs: Nanos,
    /// Plans and reports of decisions.
    pub decisions: Nanos,
    /// Events, jobs that ended, outcomes.
    pub past: Nanos,
    /// Events, at most. Those of the audit are forgotten last.
    pub events_max: u64,
    /// Events of a host that are no audit, at most: what a host in trouble can fill the disk with.
    pub share_events_max: u64,
    /// Jobs that ended, at most.
    pub jobs_max: u64,
    /// Outcomes, at most.
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
