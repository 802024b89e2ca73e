//! Requests that complete in a later measurement window than they were issued in.
//!
//! A request counts where it completes: a device with more requests than it can serve has a queue, not a higher rate.
//! Later completions are kept by target window, volume or tier, and latency bucket. This bounds memory by windows and
//! volumes, even with millions of queued requests.

use std::collections::BTreeMap;

use algo::{WindowHistograms, WindowSums, bucket_of};

/// Completed request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompletedRequest {
    /// Start of its latency.
    pub(crate) arrival_ns: u64,
    /// Time of its completion.
    pub(crate) at_ns: u64,
    pub(crate) bytes: u64,
}

/// Buckets stored together. Requests that complete in one later window have latencies of similar size.
const PAGE: usize = 64;

/// Counts of one histogram in one later window.
struct Cell {
    index: u32,
    /// Pages of buckets with counts, by page number.
    pages: Vec<(u16, [u32; PAGE])>,
    sums: WindowSums,
    /// Sum of the times between the start of that window and the completions.
    within_ns: u64,
}

impl Cell {
    fn new(index: usize) -> Self {
        Self {
            index: index as u32,
            pages: Vec::new(),
            sums: WindowSums::default(),
            within_ns: 0,
        }
    }

    #[inline]
    fn put(&mut self, bucket: usize, latency_ns: u64, bytes: u64, within_ns: u64) {
        let number = (bucket / PAGE) as u16;
        let page = match self.pages.iter().rposition(|p| p.0 == number) {
            Some(page) => page,
            None => {
                self.pages.push((number, [0; PAGE]));
                self.pages.len() - 1
            }
        };
        self.pages[page].1[bucket % PAGE] += 1;
        let sums = &mut self.sums;
        sums.count += 1;
        sums.sum_ns += latency_ns;
        sums.max_ns = sums.max_ns.max(latency_ns);
        sums.bytes += bytes;
        self.within_ns += within_ns;
    }

    fn counts(&self) -> impl Iterator<Item = (usize, u32)> {
        self.pages.iter().flat_map(|(number, counts)| {
            let first = usize::from(*number) * PAGE;
            let counts = counts.iter().enumerate().filter(|(_, n)| **n > 0);
            counts.map(move |(b, n)| (first + b, *n))
        })
    }
}

/// Counts of one later window.
#[derive(Default)]
struct WindowCounts {
    /// 1 + index in `cells`, by histogram; 0 for none.
    place: Vec<u32>,
    cells: Vec<Cell>,
}

impl WindowCounts {
    #[inline]
    fn cell(&mut self, index: usize) -> &mut Cell {
        if index >= self.place.len() {
            self.place.resize(index + 1, 0);
        }
        if self.place[index] == 0 {
            self.cells.push(Cell::new(index));
            self.place[index] = self.cells.len() as u32;
        }
        &mut self.cells[self.place[index] as usize - 1]
    }
}

/// Counts of all later windows.
#[derive(Default)]
pub(crate) struct DeferredCounts {
    windows: BTreeMap<u64, WindowCounts>,
}

impl DeferredCounts {
    /// Adds one value to each of the given histograms. It belongs to window `window` and completes `within_ns` after
    /// its start.
    #[inline(never)]
    pub(crate) fn put<const N: usize>(
        &mut self,
        window: u64,
        indices: [usize; N],
        done: CompletedRequest,
        within_ns: u64,
    ) {
        let latency_ns = done.at_ns - done.arrival_ns;
        let bucket = bucket_of(latency_ns);
        let later = self.windows.entry(window).or_default();
        for index in indices {
            let cell = later.cell(index);
            cell.put(bucket, latency_ns, done.bytes, within_ns);
        }
    }

    /// Moves the counts of `window` into the live histograms. Calls `taken` with the index and sums of each histogram,
    /// and with the time between the start of the window and the completions.
    pub(crate) fn take(
        &mut self,
        window: u64,
        live: &mut WindowHistograms,
        mut taken: impl FnMut(usize, WindowSums, u64),
    ) {
        let mut cells = self.windows.remove(&window).unwrap_or_default().cells;
        cells.sort_unstable_by_key(|c| c.index);
        for cell in cells {
            live.add(cell.index as usize, cell.counts(), cell.sums);
            taken(cell.index as usize, cell.sums, cell.within_ns);
        }
    }
}
