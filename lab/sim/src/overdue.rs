//! Waiting requests that are older than their volume's objective at the end of a window.
//!
//! The completion time of a request is known when it is issued. So the windows at whose ends it will be late and
//! waiting are also known. They are consecutive, and only the first and the last one are stored. Memory is bounded by
//! windows, for any number of queued requests.

use std::collections::BTreeMap;

use algo::objective::OverdueRequests;
use model::Objective;

use crate::deferred::CompletedRequest;

/// Late requests of one volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateWaiting {
    /// Changes at the ends of future windows: number of late requests and sum of their arrival times.
    changes: BTreeMap<u64, (i64, i128)>,
    /// Totals at the end of the last window.
    count: i64,
    arrivals_ns: i128,
}

impl LateWaiting {
    /// Adds a request that is incomplete at the end of window `next`, the first window that ends in the future.
    #[cold]
    pub(crate) fn put(
        &mut self,
        target: Objective,
        done: CompletedRequest,
        window_ns: u64,
        next: u64,
    ) {
        // The request is late at ends of windows after this time, and waits at ends not after its completion.
        let late_ns = done.arrival_ns.saturating_add(target.latency.0);
        let first = (late_ns / window_ns + 1).max(next);
        let last = done.at_ns / window_ns;
        if first > last {
            return;
        }
        let arrival_ns = i128::from(done.arrival_ns);
        let from = self.changes.entry(first).or_default();
        (from.0, from.1) = (from.0 + 1, from.1 + arrival_ns);
        let until = self.changes.entry(last + 1).or_default();
        (until.0, until.1) = (until.0 - 1, until.1 - arrival_ns);
    }

    /// Returns the late requests at the end of a window. Calls must be in the order of windows.
    pub(crate) fn at(&mut self, end_ns: u64, window_ns: u64) -> OverdueRequests {
        let later = self.changes.split_off(&(end_ns / window_ns + 1));
        for (count, arrivals_ns) in std::mem::replace(&mut self.changes, later).into_values() {
            self.count += count;
            self.arrivals_ns += arrivals_ns;
        }
        let age_ns = i128::from(self.count) * i128::from(end_ns) - self.arrivals_ns;
        OverdueRequests {
            count: self.count.max(0) as u64,
            age_ns: age_ns.max(0) as u128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::SloStatistic;
    use proptest::prelude::*;
    use units::Nanos;

    proptest! {
        #[test]
        fn overdue_requests_match_a_list_as_oracle(requests in prop::collection::vec((0u64..1_000, 0u64..700), 0..60), limit in 1u64..300) {
            const WINDOW: u64 = 100;
            let target = Objective { statistic: SloStatistic::P99, latency: Nanos(limit) };
            let mut late = LateWaiting::default();
            let mut sorted = requests;
            sorted.sort_unstable();
            for end in (1..=20).map(|k| k * WINDOW) {
                for (arrival_ns, more) in sorted.iter().filter(|r| r.0 >= end - WINDOW && r.0 < end) {
                    let done = CompletedRequest { arrival_ns: *arrival_ns, at_ns: arrival_ns + more, bytes: 0 };
                    if done.at_ns >= end {
                        late.put(target, done, WINDOW, end / WINDOW);
                    }
                }
                let mut want = OverdueRequests::default();
                for (arrival, more) in sorted.iter().filter(|r| r.0 < end && r.0 + r.1 >= end) {
                    let _ = more;
                    want.add(target, end - arrival);
                }
                prop_assert_eq!(late.at(end, WINDOW), want);
            }
        }
    }
}
