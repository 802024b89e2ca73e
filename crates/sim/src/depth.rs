//! Requests in flight, integrated over the time of a window: what a data path that counts them would say.
//!
//! Most requests begin and end in one window, and add their latency. The others are known when they are issued: the rest of that
//! window, the whole of those in between, and the beginning of the last one. Memory is bounded by windows.

use std::collections::BTreeMap;

use crate::deferred::Done;

/// Those of one volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth {
    /// By window to come: how many more cross all of it, and time in it of those that end in it.
    later: BTreeMap<u64, (i64, u64)>,
    /// Requests that cross all of the window that is going on.
    crossing: i64,
    /// Time in the window that is going on, of requests that do not end in it.
    rest_ns: u64,
    /// Time before the window that is going on, of requests that end in it.
    before_ns: u64,
}

impl Depth {
    /// A request that is not answered by the end of the window that it is issued in.
    #[cold]
    pub(crate) fn crosses(&mut self, done: Done, end_ns: u64, window_ns: u64) {
        let from_ns = done.arrival_ns.max(end_ns.saturating_sub(window_ns));
        self.rest_ns += end_ns - from_ns;
        let (next, last) = (end_ns / window_ns, done.at_ns / window_ns);
        self.later.entry(last).or_default().1 += done.at_ns - last * window_ns;
        if next < last {
            self.later.entry(next).or_default().0 += 1;
            self.later.entry(last).or_default().0 -= 1;
        }
    }

    /// So much of the latencies that end in this window was before it.
    #[cold]
    pub(crate) fn waited(&mut self, before_ns: u64) {
        self.before_ns += before_ns;
    }

    /// Time of all requests in the window of that number, whose latencies add up to `answered_ns`.
    pub(crate) fn end_window(&mut self, window: u64, window_ns: u64, answered_ns: u64) -> u64 {
        let mut ends_ns = 0;
        while let Some(entry) = self.later.first_entry().filter(|e| *e.key() <= window) {
            let (more, time_ns) = entry.remove();
            self.crossing += more;
            ends_ns += time_ns;
        }
        let own_ns = answered_ns.saturating_sub(std::mem::take(&mut self.before_ns));
        let crossing_ns = self.crossing.max(0) as u64 * window_ns;
        own_ns + std::mem::take(&mut self.rest_ns) + crossing_ns + ends_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_what_a_list_of_all_requests_says(requests in prop::collection::vec((0u64..1_000, 0u64..700), 0..60)) {
            const WINDOW: u64 = 100;
            let mut sorted = requests;
            sorted.sort_unstable();
            let mut depth = Depth::default();
            for window in 0..20 {
                let (start, end) = (window * WINDOW, (window + 1) * WINDOW);
                for (arrival_ns, more) in sorted.iter().filter(|r| r.0 >= start && r.0 < end) {
                    let done = Done { arrival_ns: *arrival_ns, at_ns: arrival_ns + more, bytes: 0 };
                    if done.at_ns >= end {
                        depth.crosses(done, end, WINDOW);
                    }
                }
                // As the histograms have it: whole latencies of what ends here.
                let ended = sorted.iter().filter(|r| r.0 + r.1 >= start && r.0 + r.1 < end);
                let answered: u64 = ended.clone().map(|r| r.1).sum();
                let earlier: u64 = ended.filter(|r| r.0 < start).map(|r| r.1).sum();
                depth.waited(earlier);
                let want: u64 = sorted
                    .iter()
                    .map(|(at, more)| (at + more).min(end).saturating_sub((*at).max(start)))
                    .sum();
                prop_assert_eq!(depth.end_window(window, WINDOW, answered), want);
            }
        }
    }
}
