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

/// Buckets that are kept together: what completes in one later window has latencies of much the same size.
const PAGE: usize = 64;

/// Counts of one histogram in one later window.
struct Cell {
    index: u32,
    /// By page number, the pages of buckets that have counts.
    pages: Vec<(u16, [u32; PAGE])>,
    sums: WindowSums,
    /// Time in that window before they complete, added up.
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

/// One later window.
#[derive(Default)]
struct Later {
    /// By histogram, one more than its place among the cells; 0 for none.
    place: Vec<u32>,
    cells: Vec<Cell>,
}

impl Later {
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

/// All later windows.
#[derive(Default)]
pub(crate) struct Deferred {
    windows: BTreeMap<u64, Later>,
}

impl Deferred {
    /// One value of each of those histograms that belongs to window `window`, and completes so long after its beginning.
    #[inline(never)]
    pub(crate) fn put<const N: usize>(
        &mut self,
        window: u64,
        indices: [usize; N],
        done: Done,
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

    /// Moves everything that belongs to `window` into the live histograms; calls `taken` with index and
    /// sums of each, and the time in the window before they complete.
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
