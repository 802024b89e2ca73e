//! Integral of the outstanding requests over the time of a window, as a data path measures it.
//!
//! ```text
//!   begins and ends in the window           its latency
//!   begins in it and ends later             the rest of the window
//!   began before and ends later             the whole window: requests outstanding at its beginning, without those that end in it
//!   began before and ends in it             time since the beginning of the window, instead of its latency
//! ```

use crate::deferred::CompletedRequest;

/// Outstanding requests of one volume in the current window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth {
    /// Requests that are outstanding at the start and at the end of the window.
    crossing: u64,
    /// Time in the window of requests that do not end in it.
    rest_ns: u64,
    /// Latencies of requests that end in the window and count only in part.
    whole_ns: u64,
    /// Part of these latencies within the window.
    part_ns: u64,
}

impl Depth {
    /// Adds a request that is issued now and does not complete in the window.
    #[inline]
    pub(crate) fn crosses(&mut self, done: CompletedRequest, start_ns: u64, end_ns: u64) {
        self.rest_ns += end_ns - done.arrival_ns.max(start_ns);
    }

    /// Adds the latencies of requests that end in the window and began before it, and the part of these latencies
    /// within the window.
    pub(crate) fn began_before(&mut self, whole_ns: u64, part_ns: u64) {
        self.whole_ns += whole_ns;
        self.part_ns += part_ns;
    }

    /// Ends a window in which the latencies of completed requests add up to `answered_ns`. Returns the integral of
    /// outstanding requests.
    pub(crate) fn end_window(&mut self, window_ns: u64, answered_ns: u64) -> u64 {
        let Self {
            crossing,
            rest_ns,
            whole_ns,
            part_ns,
        } = std::mem::take(self);
        answered_ns.saturating_sub(whole_ns) + part_ns + rest_ns + crossing * window_ns
    }

    /// Starts a window. `crossing` requests are outstanding at its start and at its end.
    pub(crate) fn begin_window(&mut self, crossing: u64) {
        self.crossing = crossing;
    }
}
