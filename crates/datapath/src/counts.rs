//! Counters of one volume that only grow, for whoever reads them now and then and subtracts.
//!
//! ```text
//!   Counts at t0 ──┐
//!                  ├──▶ later.since(&earlier) = what happened from t0 to t1, or None: measuring began anew in between
//!   Counts at t1 ──┘
//! ```

use algo::{Histogram, buckets_since};
use serde::{Deserialize, Serialize};

/// What a volume's guests did since measuring began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// When measuring began, in nanoseconds of the server's monotonic clock. Counters of different beginnings cannot be
    /// subtracted.
    pub since_ns: u64,
    pub reads: DirectionCounts,
    /// Writes; trims, zeroes and flushes too, without bytes.
    pub writes: DirectionCounts,
    /// Requests that were answered with an error. They count nowhere else.
    pub errors: u64,
    /// Requests in flight now.
    pub outstanding: u32,
    /// How long they have waited: requests by bucket of their age, those buckets with any, ascending. An older server does not say.
    #[serde(default)]
    pub waiting: Vec<(u16, u64)>,
    /// Integral of the requests in flight over time, in request-nanoseconds: divided by the time that passed, the mean
    /// queue depth. Stays at the largest number that there is room for.
    pub depth_ns: u64,
    /// Of the reads, those that a cache answered, from memory or its second level: no device of a tier had anything to do with them.
    #[serde(default, skip_serializing_if = "DirectionCounts::is_empty")]
    pub from_memory: DirectionCounts,
    /// How requests came. An older server does not say.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
}

/// How the requests of a volume came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Requests.
    pub all: u64,
    /// Reads and writes that began where the one before ended.
    pub sequential: u64,
    /// Time with at least one request in flight, in nanoseconds.
    pub occupied_ns: u64,
}

impl Arrivals {
    /// What happened between an earlier reading and this one; `None` when a counter went backwards.
    pub fn since(&self, earlier: &Arrivals) -> Option<Arrivals> {
        Some(Arrivals {
            all: self.all.checked_sub(earlier.all)?,
            sequential: self.sequential.checked_sub(earlier.sequential)?,
            occupied_ns: self.occupied_ns.checked_sub(earlier.occupied_ns)?,
        })
    }
}

/// Requests of one direction that were answered without an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounts {
    /// Requests.
    pub ios: u64,
    pub bytes: u64,
    /// Sum of their latencies in nanoseconds, as the guest sees them: with limits and delays.
    pub sum_ns: u64,
    /// How much of it answers were held back by a latency session, in nanoseconds, as measured.
    pub held_ns: u64,
    /// Requests by bucket of their latency, those buckets with any, ascending. [`algo::bucket_value_ns`] has a bucket's
    /// latency.
    pub buckets: Vec<(u16, u64)>,
}

impl Counts {
    /// What happened between an earlier reading and this one. Beginning and requests in flight are this one's.
    ///
    /// `None` when the two cannot be subtracted: measuring began anew in between, or a counter went backwards.
    pub fn since(&self, earlier: &Counts) -> Option<Counts> {
        if self.since_ns != earlier.since_ns {
            return None;
        }
        Some(Counts {
            since_ns: self.since_ns,
            reads: self.reads.since(&earlier.reads)?,
            writes: self.writes.since(&earlier.writes)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            outstanding: self.outstanding,
            waiting: self.waiting.clone(),
            depth_ns: self.depth_ns.checked_sub(earlier.depth_ns)?,
            from_memory: self.from_memory.since(&earlier.from_memory)?,
            arrivals: match (&self.arrivals, &earlier.arrivals) {
                (Some(now), Some(old)) => Some(now.since(old)?),
                _ => None,
            },
        })
    }
}

impl DirectionCounts {
    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.ios == 0
    }

    pub(crate) fn of(latency: &Histogram, bytes: u64, held_ns: u128) -> Self {
        Self {
            ios: latency.count(),
            bytes,
            sum_ns: saturated(latency.sum_ns()),
            held_ns: saturated(held_ns),
            buckets: latency.sparse(),
        }
    }

    /// What happened between an earlier reading and this one; `None` when a counter went backwards.
    pub fn since(&self, earlier: &DirectionCounts) -> Option<DirectionCounts> {
        Some(DirectionCounts {
            ios: self.ios.checked_sub(earlier.ios)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            sum_ns: self.sum_ns.checked_sub(earlier.sum_ns)?,
            held_ns: self.held_ns.checked_sub(earlier.held_ns)?,
            buckets: buckets_since(&self.buckets, &earlier.buckets)?,
        })
    }
}

pub(crate) fn saturated(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(buckets: &[(u16, u64)]) -> DirectionCounts {
        let ios = buckets.iter().map(|b| b.1).sum();
        DirectionCounts {
            ios,
            bytes: ios * 512,
            sum_ns: ios * 1000,
            held_ns: ios * 10,
            buckets: buckets.to_vec(),
        }
    }

    fn counts(since_ns: u64, buckets: &[(u16, u64)], depth_ns: u64) -> Counts {
        Counts {
            since_ns,
            reads: reads(buckets),
            errors: depth_ns / 100,
            outstanding: 3,
            depth_ns,
            ..Counts::default()
        }
    }

    #[test]
    fn two_readings_make_a_window() {
        let a = counts(7, &[(3, 1), (9, 5)], 100);
        let b = counts(7, &[(1, 2), (3, 1), (9, 6), (20, 4)], 400);
        let window = b.since(&a).unwrap();
        assert_eq!(window, counts(7, &[(1, 2), (9, 1), (20, 4)], 300));
        let nothing = a.since(&a).unwrap();
        assert_eq!(nothing.reads, DirectionCounts::default());
        assert_eq!((nothing.outstanding, nothing.depth_ns), (3, 0));
    }

    #[test]
    fn what_cannot_be_subtracted_is_not() {
        let a = counts(7, &[(3, 1), (9, 5)], 100);
        assert_eq!(counts(8, &[(3, 1), (9, 6)], 200).since(&a), None);
        let backwards = [
            counts(7, &[(3, 1), (9, 5)], 99),
            counts(7, &[(3, 9), (9, 4)], 100),
            counts(7, &[(9, 9)], 100),
            counts(7, &[(3, 9)], 100),
        ];
        for now in backwards {
            assert_eq!(now.since(&a), None, "{now:?}");
        }
        let mut fewer = a.clone();
        fewer.writes.held_ns = 1;
        assert_eq!(a.since(&fewer), None);
    }

    #[test]
    fn sums_that_do_not_fit_stay_at_the_largest() {
        assert_eq!(saturated(u128::from(u64::MAX) + 1), u64::MAX);
        assert_eq!(saturated(5), 5);
    }
}
