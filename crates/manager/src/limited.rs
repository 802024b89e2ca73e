//! Limits for a time, with the time when they end, by the clock of whoever keeps them.

use serde::{Deserialize, Serialize};

use crate::wire::Throttle;

/// A [`Throttle`] and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// Requests per second.
    pub iops: Option<u64>,
    /// Bytes per second.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// When it ends.
    pub until_ns: u64,
}

impl Limited {
    /// From now on.
    pub fn of(throttle: Throttle, now_ns: u64) -> Self {
        Self {
            iops: throttle.iops,
            bandwidth_bytes_per_s: throttle.bandwidth_bytes_per_s,
            until_ns: now_ns.saturating_add(throttle.lasting_ns),
        }
    }

    /// The rest of it; none if it is over.
    pub fn left(&self, now_ns: u64) -> Option<Throttle> {
        let lasting_ns = self.until_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        Some(Throttle {
            iops: self.iops,
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s,
            lasting_ns,
        })
    }

    /// Whether both are to the same, whenever they end.
    pub fn is_to_the_same(&self, other: &Self) -> bool {
        let limits = |l: &Self| (l.iops, l.bandwidth_bytes_per_s);
        limits(self) == limits(other)
    }
}
