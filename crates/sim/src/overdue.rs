//! Requests that wait at the end of a window, and have waited for longer than their volume's objective.
//!
//! When a request completes is known when it is issued. So it is known then at the ends of which windows it will be late and
//! waiting: those are neighbours, and only where they begin and end is written down. Memory is bounded by windows, however many
//! requests are queued.

use std::collections::BTreeMap;

use algo::objective::Overdue;
use model::Objective;

use crate::deferred::Done;

/// Those of one volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateWaiting {
    /// Changes at the ends of windows to come: how many more wait, and their arrivals added up.
    changes: BTreeMap<u64, (i64, i128)>,
    /// As of the end of the last window.
    count: i64,
    arrivals_ns: i128,
}

impl LateWaiting {
    /// A request that is not answered by the end of window `next`, the first whose end is still to come.
    #[cold]
    pub(crate) fn put(&mut self, target: Objective, done: Done, window_ns: u64, next: u64) {
        // Late at the ends of windows that are after this moment, waiting at those not after its completion.
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

    /// Those at the end of a window; ends of windows are asked for in order.
    pub(crate) fn at(&mut self, end_ns: u64, window_ns: u64) -> Overdue {
        let later = self.changes.split_off(&(end_ns / window_ns + 1));
        for (count, arrivals_ns) in std::mem::replace(&mut self.changes, later).into_values() {
            self.count += count;
            self.arrivals_ns += arrivals_ns;
        }
        let age_ns = i128::from(self.count) * i128::from(end_ns) - self.arrivals_ns;
        Overdue {
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
        fn they_are_those_that_a_list_of_all_requests_has(requests in prop::collection::vec((0u64..1_000, 0u64..700), 0..60), limit in 1u64..300) {
            const WINDOW: u64 = 100;
            let target = Objective { statistic: SloStatistic::P99, latency: Nanos(limit) };
            let mut late = LateWaiting::default();
            let mut sorted = requests;
            sorted.sort_unstable();
            for end in (1..=20).map(|k| k * WINDOW) {
                for (arrival_ns, more) in sorted.iter().filter(|r| r.0 >= end - WINDOW && r.0 < end) {
                    let done = Done { arrival_ns: *arrival_ns, at_ns: arrival_ns + more, bytes: 0 };
                    if done.at_ns >= end {
                        late.put(target, done, WINDOW, end / WINDOW);
                    }
                }
                let mut want = Overdue::default();
                for (arrival, more) in sorted.iter().filter(|r| r.0 < end && r.0 + r.1 >= end) {
                    let _ = more;
                    want.add(target, end - arrival);
                }
                prop_assert_eq!(late.at(end, WINDOW), want);
            }
        }
    }
}
