//! Requests as references to pages: what every simulation of a cache by itself begins with.
//!
//! ```text
//!   request (volume, offset, length) ──▶ pages it touches ──▶ sampled? ──▶ dense numbers ──▶ references
//! ```
//!
//! Sampling keeps a page with all its references or not at all, by a hash of where it is (Waldspurger, Park, Garthwaite, Ahmad, FAST
//! 2015). A cache of R times the size over a share R of the pages then misses about R times as often as the whole
//! (miniature simulation: Waldspurger, Saemundsson, Ahmad, Park, ATC 2017), for any policy.

use std::sync::Arc;

use algo::mix;

use crate::dense::DenseIds;
use crate::layout::PageLayout;

/// References a simulation may have. Protects memory: 8 bytes each.
pub const REFERENCES_MAX: usize = 1 << 31;
/// Bytes of an extent: 3.75 MiB, 60 pages of 64 KiB.
pub const EXTENT_BYTES: u64 = 60 << 16;
/// A slice: 5 minutes.
pub const SLICE_NS: u64 = 300_000_000_000;
/// Slices of an hour.
pub const SLICES_PER_HOUR: u64 = 12;

const PAGE_BITS: u32 = 48;
const BATCH: usize = 4096;
/// In a reference's part: the last one of its request, or of what a sample has of it.
const LAST: u32 = 1 << 31;

/// How requests become references.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferencesConfig {
    /// Bytes of a page: a power of two from 512 B to 1 MiB.
    pub page_bytes: u64,
    /// Share of the pages that is kept, in (0, 1]; none: all.
    pub sample: Option<f64>,
    /// Of the hash that samples.
    pub seed: u64,
}

/// Why requests are not made references of.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReferencesError {
    /// Not a size of a page.
    #[error("the page size must be a power of two from 512 B to 1 MiB, not {0} bytes")]
    PageBytes(u64),
    /// Not a share.
    #[error("the rate of a sample must be above 0 and at most 1, not {0}")]
    Sample(f64),
    /// The trace is too long.
    #[error("more than {REFERENCES_MAX} page references: use larger pages or a sample")]
    TooMany,
    /// A page that lies too far out to have a number.
    #[error("page {page} of volume {volume} exceeds the largest page number")]
    TooFar {
        /// The volume.
        volume: u32,
        /// The page.
        page: u64,
    },
}

/// Where slices of time end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceEnd {
    /// References before it.
    pub at: usize,
    /// Whether an hour ends with it.
    pub hour: bool,
}

/// References to pages in order of time.
#[derive(Debug, Clone)]
pub struct References {
    config: ReferencesConfig,
    pages: Vec<u32>,
    /// Bytes that the request wants of the page, and whether it is the request's last.
    parts: Vec<u32>,
    slices: Vec<SliceEnd>,
    extent_of: Arc<[u32]>,
    volume_of: Arc<[u32]>,
    /// By extent: its number in its volume.
    extent_no: Vec<u64>,
    universe: u32,
    seen: u64,
    seen_bytes: u64,
    requests: u64,
}

impl References {
    /// By reference: its page, 0..[`Self::universe`].
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Pages that occur (in the sample).
    pub fn universe(&self) -> u32 {
        self.universe
    }

    /// Pages that occur in all of the trace: of a sample, an estimate.
    pub fn working_set_pages(&self) -> u64 {
        match self.config.sample {
            None => u64::from(self.universe),
            Some(share) => (f64::from(self.universe) / share).round() as u64,
        }
    }

    /// References of all of the trace, sampled or not.
    pub fn references(&self) -> u64 {
        self.seen
    }

    /// Bytes of all of the trace, sampled or not.
    pub fn bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// Requests of all of the trace.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// How the requests became references.
    pub fn config(&self) -> &ReferencesConfig {
        &self.config
    }

    /// Where slices end; none in traces without times.
    pub fn slices(&self) -> &[SliceEnd] {
        &self.slices
    }

    /// Bytes that a reference wants of its page, and whether it is the last of its request; in a sample, the last of those that
    /// are in it. Requests none of which is in the sample have no reference.
    #[inline]
    pub fn part(&self, reference: usize) -> (u64, bool) {
        let part = self.parts[reference];
        (u64::from(part & !LAST), part & LAST != 0)
    }

    /// Which page belongs to which extent and volume.
    pub fn layout(&self) -> PageLayout {
        PageLayout::Tables {
            extent_of: Arc::clone(&self.extent_of),
            volume_of: Arc::clone(&self.volume_of),
        }
    }

    /// The volume of an extent, and its number in it.
    pub fn extent(&self, extent: u32) -> (u32, u64) {
        (
            self.volume_of[extent as usize],
            self.extent_no[extent as usize],
        )
    }

    /// Pages that a cache of `pages` has in the simulation: in a sample its share, at least one.
    pub fn scaled(&self, pages: u64) -> u32 {
        let share = self.config.sample.unwrap_or(1.0);
        (pages as f64 * share)
            .round()
            .clamp(1.0, f64::from(crate::CAPACITY_PAGES_MAX)) as u32
    }
}

/// Makes references of requests.
#[derive(Debug)]
pub struct ReferencesBuilder {
    made: References,
    /// Hashes below this are kept; none: all.
    keep_below: Option<u64>,
    page_shift: u32,
    pages_per_extent: u64,
    ids: DenseIds,
    extents: DenseIds,
    extent_of: Vec<u32>,
    volume_of: Vec<u32>,
    keys: Vec<u64>,
    slice: u64,
}

impl ReferencesBuilder {
    /// None yet.
    pub fn new(config: ReferencesConfig) -> Result<Self, ReferencesError> {
        if !config.page_bytes.is_power_of_two() || !(512..=1 << 20).contains(&config.page_bytes) {
            return Err(ReferencesError::PageBytes(config.page_bytes));
        }
        let keep_below = match config.sample {
            None => None,
            Some(share) if share > 0.0 && share <= 1.0 => Some((share * (u64::MAX as f64)) as u64),
            Some(share) => return Err(ReferencesError::Sample(share)),
        };
        Ok(Self {
            made: References {
                config,
                pages: Vec::new(),
                parts: Vec::new(),
                slices: Vec::new(),
                extent_of: Arc::from([]),
                volume_of: Arc::from([]),
                extent_no: Vec::new(),
                universe: 0,
                seen: 0,
                seen_bytes: 0,
                requests: 0,
            },
            keep_below,
            page_shift: config.page_bytes.trailing_zeros(),
            pages_per_extent: (EXTENT_BYTES / config.page_bytes).max(1),
            ids: DenseIds::new(),
            extents: DenseIds::new(),
            extent_of: Vec::new(),
            volume_of: Vec::new(),
            keys: Vec::with_capacity(BATCH),
            slice: 0,
        })
    }

    /// Takes a request. `time_ns` counts from the start of the trace and does not fall; none if the trace has no times.
    pub fn push(
        &mut self,
        time_ns: Option<u64>,
        volume: u32,
        offset_bytes: u64,
        length_bytes: u32,
    ) -> Result<(), ReferencesError> {
        if length_bytes == 0 {
            return Ok(());
        }
        if let Some(slice) = time_ns.map(|t| t / SLICE_NS).filter(|s| *s > self.slice) {
            self.number()?;
            self.end_slices(slice);
        }
        let end = offset_bytes.saturating_add(u64::from(length_bytes));
        let (first, last) = (
            offset_bytes >> self.page_shift,
            (end - 1) >> self.page_shift,
        );
        if last >> PAGE_BITS != 0 || volume >> 16 != 0 {
            return Err(ReferencesError::TooFar { volume, page: last });
        }
        self.made.requests += 1;
        self.made.seen += last - first + 1;
        self.made.seen_bytes += u64::from(length_bytes);
        let parts_before = self.made.parts.len();
        for page in first..=last {
            let key = u64::from(volume) << PAGE_BITS | page;
            if let Some(below) = self.keep_below
                && mix(self.made.config.seed, key) > below
            {
                continue;
            }
            let from = offset_bytes.max(page << self.page_shift);
            // The end of the last page may be 2^64.
            let page_last = (page << self.page_shift) | ((1 << self.page_shift) - 1);
            let bytes = (end - 1).min(page_last) - from + 1;
            self.made.parts.push(bytes as u32);
            self.keys.push(key);
        }
        if let Some(part) = self.made.parts[parts_before..].last_mut() {
            *part |= LAST;
        }
        if self.keys.len() >= BATCH {
            self.number()?;
        }
        Ok(())
    }

    /// All of them.
    pub fn finish(mut self) -> Result<References, ReferencesError> {
        self.number()?;
        self.made.universe = self.ids.len();
        self.made.extent_of = self.extent_of.into();
        self.made.volume_of = self.volume_of.into();
        Ok(self.made)
    }

    fn end_slices(&mut self, slice: u64) {
        // A gap ends as many slices as matter to anyone: two hours without I/O are as good as a year.
        let from = self.slice.max(slice.saturating_sub(3 * SLICES_PER_HOUR));
        for ended in from..slice {
            self.made.slices.push(SliceEnd {
                at: self.made.pages.len(),
                hour: (ended + 1).is_multiple_of(SLICES_PER_HOUR),
            });
        }
        self.slice = slice;
    }

    fn number(&mut self) -> Result<(), ReferencesError> {
        let from = self.made.pages.len();
        if from + self.keys.len() > REFERENCES_MAX
            || !self.ids.number(&self.keys, &mut self.made.pages)
        {
            return Err(ReferencesError::TooMany);
        }
        for (key, page) in self.keys.iter().zip(&self.made.pages[from..]) {
            if *page as usize == self.extent_of.len() {
                let volume = key >> PAGE_BITS;
                let no = (key & ((1 << PAGE_BITS) - 1)) / self.pages_per_extent;
                let extent = self.extents.number_of(volume << PAGE_BITS | no);
                if extent as usize == self.volume_of.len() {
                    self.volume_of.push(volume as u32);
                    self.made.extent_no.push(no);
                }
                self.extent_of.push(extent);
            }
        }
        self.keys.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
