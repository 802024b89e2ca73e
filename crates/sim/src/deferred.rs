//! Requests that complete in a later measurement window than they were issued in.
//!
//! A request counts where it completes: a device that is asked for more than it can do has a queue, not a rate. What
//! completes later is kept by target window, volume or tier, and latency bucket, so that memory is bounded by windows and
//! volumes even when millions of requests are queued.

use std::collections::BTreeMap;

use algo::{WindowHistograms, WindowSums, bucket_of};

/// A request that was served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// When its latency began to count.
    pub(crate) arrival_ns: u64,
    /// When it completes.
    pub(crate) at_ns: u64,
    pub(crate) bytes: u64,
}

/// Counts of one histogram in one later window.
#[derive(Default)]
struct Cell {
    counts: BTreeMap<u32, u32>,
    sums: WindowSums,
    /// Time in that window before they complete, added up.
    within_ns: u64,
}

/// All later windows.
#[derive(Default)]
pub(crate) struct Deferred {
    windows: BTreeMap<u64, BTreeMap<u32, Cell>>,
}

impl Deferred {
    /// One value of histogram `index` that belongs to window `window`, and completes so long after its beginning.
    #[cold]
    pub(crate) fn put(&mut self, window: u64, index: usize, done: Done, within_ns: u64) {
        let latency_ns = done.at_ns - done.arrival_ns;
        let cells = self.windows.entry(window).or_default();
        let cell = cells.entry(index as u32).or_default();
        *cell.counts.entry(bucket_of(latency_ns) as u32).or_default() += 1;
        let sums = &mut cell.sums;
        sums.count += 1;
        sums.sum_ns += latency_ns;
        sums.max_ns = sums.max_ns.max(latency_ns);
        sums.bytes += done.bytes;
        cell.within_ns += within_ns;
    }

    /// Moves everything that belongs to `window` into the live histograms; calls `taken` with index and
    /// sums of each, and the time in the window before they complete.
    pub(crate) fn take(
        &mut self,
        window: u64,
        live: &mut WindowHistograms,
        mut taken: impl FnMut(usize, WindowSums, u64),
    ) {
        for (index, cell) in self.windows.remove(&window).unwrap_or_default() {
            let counts = cell.counts.iter().map(|(b, n)| (*b as usize, *n));
            live.add(index as usize, counts, cell.sums);
            taken(index as usize, cell.sums, cell.within_ns);
        }
    }
}
