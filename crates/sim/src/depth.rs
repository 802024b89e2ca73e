//! Requests in flight, integrated over the time of a window: what a data path that counts them would say.
//!
//! ```text
//!   begins in the window and ends in it     its latency
//!   begins in it and ends later             the rest of the window
//!   began before and ends later             all of it: requests in flight at its beginning, but for those that end in it
//!   began before and ends in it             its beginning, instead of its latency
//! ```

use crate::deferred::Done;

/// Those of one volume in the window that is going on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth {
    /// Requests that were in flight when it began and will be when it ends.
    crossing: u64,
    /// Time in it of requests that do not end in it.
    rest_ns: u64,
    /// Latencies that end in it and of which only a part counts,
    whole_ns: u64,
    /// and that part.
    part_ns: u64,
}

impl Depth {
    /// A request that is issued now and not answered by the end of the window.
    #[inline]
    pub(crate) fn crosses(&mut self, done: Done, start_ns: u64, end_ns: u64) {
        self.rest_ns += end_ns - done.arrival_ns.max(start_ns);
    }

    /// Latencies of requests that end in the window and began before it, and how much of them is in it.
    pub(crate) fn began_before(&mut self, whole_ns: u64, part_ns: u64) {
        self.whole_ns += whole_ns;
        self.part_ns += part_ns;
    }

    /// Time of all requests in the window, whose latencies add up to `answered_ns`; another window begins.
    pub(crate) fn end_window(&mut self, window_ns: u64, answered_ns: u64) -> u64 {
        let Self {
            crossing,
            rest_ns,
            whole_ns,
            part_ns,
        } = std::mem::take(self);
        answered_ns.saturating_sub(whole_ns) + part_ns + rest_ns + crossing * window_ns
    }

    /// So many requests are in flight as a window begins, and will be when it ends.
    pub(crate) fn begin_window(&mut self, crossing: u64) {
        self.crossing = crossing;
    }
}
