//! Temporary limits with their end, by the local clock.

use serde::{Deserialize, Serialize};

use crate::wire::Throttle;

/// A [`Throttle`] with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedThrottle {
    /// Maximum requests per second; `None` without this limit.
    pub iops: Option<u64>,
    /// Maximum bytes per second; `None` without this limit.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// End of the limit, nanoseconds.
    pub until_ns: u64,
}

impl TimedThrottle {
    /// Returns the limit with its duration counted from `now_ns`.
    pub fn of(throttle: Throttle, now_ns: u64) -> Self {
        Self {
            iops: throttle.iops,
            bandwidth_bytes_per_s: throttle.bandwidth_bytes_per_s,
            until_ns: now_ns.saturating_add(throttle.lasting_ns),
        }
    }

    /// Returns the limit with its remaining duration, or `None` after its end.
    pub fn left(&self, now_ns: u64) -> Option<Throttle> {
        let lasting_ns = self.until_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        Some(Throttle {
            iops: self.iops,
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s,
            lasting_ns,
        })
    }

    /// Returns true if both have the same limits, whatever their ends.
    pub fn is_to_the_same(&self, other: &Self) -> bool {
        let limits = |l: &Self| (l.iops, l.bandwidth_bytes_per_s);
        limits(self) == limits(other)
    }
}
