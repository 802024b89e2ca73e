//! Monotonic counters of one volume. Readers subtract two readings.
//!
//! ```text
//!   Counts at t0 ──┐
//!                  ├──▶ later.since(&earlier) = requests from t0 to t1, or None if measuring restarted in between
//!   Counts at t1 ──┘
//! ```

use algo::{Histogram, buckets_since};
use serde::{Deserialize, Serialize};

/// Requests of a volume's guests since the start of measuring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Start of measuring, in nanoseconds of the server's monotonic clock. Counters with different starts cannot be
    /// subtracted.
    pub since_ns: u64,
    pub reads: DirectionCounts,
    /// Writes, trims, zeroes and flushes. The last three add no bytes.
    pub writes: DirectionCounts,
    /// Requests that failed. They count nowhere else.
    pub errors: u64,
    /// Requests in flight now.
    pub outstanding: u32,
    /// Ages of the requests in flight: number of requests by bucket of their age, non-empty buckets only, ascending.
    /// Older servers omit it.
    #[serde(default)]
    pub waiting: Vec<(u16, u64)>,
    /// Integral of the requests in flight over time, in request-nanoseconds. Divided by the elapsed time, it is the
    /// mean queue depth. Saturates at the largest value of its type.
    pub depth_ns: u64,
    /// Reads that a cache served, from memory or its L2 cache. No device of a tier took part in them. They are
    /// included in `reads`.
    #[serde(default, skip_serializing_if = "DirectionCounts::is_empty")]
    pub from_memory: DirectionCounts,
    /// Arrival pattern of the requests. Older servers omit it.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
}

/// Arrival pattern of a volume's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Number of requests.
    pub all: u64,
    /// Reads and writes that began at the end of the previous one.
    pub sequential: u64,
    /// Time with at least one request in flight, in nanoseconds.
    pub occupied_ns: u64,
}

impl Arrivals {
    /// Returns the difference to an earlier reading; `None` if a counter decreased.
    pub fn since(&self, earlier: &Arrivals) -> Option<Arrivals> {
        Some(Arrivals {
            all: self.all.checked_sub(earlier.all)?,
            sequential: self.sequential.checked_sub(earlier.sequential)?,
            occupied_ns: self.occupied_ns.checked_sub(earlier.occupied_ns)?,
        })
    }
}

/// Successful requests of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounts {
    /// Number of requests.
    pub ios: u64,
    pub bytes: u64,
    /// Sum of latencies in nanoseconds, as the guest sees them: including limits and delays.
    pub sum_ns: u64,
    /// Part of `sum_ns` for which a latency session delayed replies, in nanoseconds, as measured.
    pub held_ns: u64,
    /// Requests by bucket of their latency, non-empty buckets only, ascending. [`algo::bucket_value_ns`] returns a
    /// bucket's latency.
    pub buckets: Vec<(u16, u64)>,
}

impl Counts {
    /// Returns the difference to an earlier reading. Start and requests in flight are those of `self`.
    ///
    /// `None` if the two cannot be subtracted: measuring restarted in between, or a counter decreased.
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
    /// Returns true if no request was counted.
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

    /// Returns the difference to an earlier reading; `None` if a counter decreased.
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
    fn difference_of_two_readings_is_a_window() {
        let a = counts(7, &[(3, 1), (9, 5)], 100);
        let b = counts(7, &[(1, 2), (3, 1), (9, 6), (20, 4)], 400);
        let window = b.since(&a).unwrap();
        assert_eq!(window, counts(7, &[(1, 2), (9, 1), (20, 4)], 300));
        let nothing = a.since(&a).unwrap();
        assert_eq!(nothing.reads, DirectionCounts::default());
        assert_eq!((nothing.outstanding, nothing.depth_ns), (3, 0));
    }

    #[test]
    fn unrelated_or_decreasing_readings_have_no_difference() {
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
    fn overflowing_sums_saturate() {
        assert_eq!(saturated(u128::from(u64::MAX) + 1), u64::MAX);
        assert_eq!(saturated(5), 5);
    }
}
