//! Conversion of requests to page references, the input of every simulation of a single cache.
//!
//! ```text
//!   request (volume, offset, length) ──▶ pages it touches ──▶ sampled? ──▶ dense numbers ──▶ references
//! ```
//!
//! Sampling keeps either all references of a page or none, by a hash of its location (Waldspurger, Park, Garthwaite,
//! Ahmad, FAST 2015). A cache of R times the size over a share R of the pages then has about R times the misses of the
//! whole (miniature simulation: Waldspurger, Saemundsson, Ahmad, Park, ATC 2017), for any policy.

use std::sync::Arc;

use algo::mix;

use crate::dense::DenseIds;
use crate::layout::PageLayout;

/// Maximum number of references of a simulation. Protects memory: 8 bytes each.
pub const REFERENCES_MAX: usize = 1 << 31;
/// Size of an extent in bytes: 3.75 MiB, 60 pages of 64 KiB.
pub const EXTENT_BYTES: u64 = 60 << 16;
/// Length of a slice: 5 minutes.
pub const SLICE_NS: u64 = 300_000_000_000;
/// Number of slices in an hour.
pub const SLICES_PER_HOUR: u64 = 12;

const PAGE_BITS: u32 = 48;
const BATCH: usize = 4096;
/// Flag in a reference's part: last one of its request, or of the part of the request in the sample.
const LAST: u32 = 1 << 31;

/// Parameters of the conversion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferencesConfig {
    /// Page size in bytes: a power of two from 512 B to 1 MiB.
    pub page_bytes: u64,
    /// Share of the pages to keep, in (0, 1]; `None` for all.
    pub sample: Option<f64>,
    /// Seed of the sampling hash.
    pub seed: u64,
}

/// Reason requests cannot be converted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReferencesError {
    /// Invalid page size.
    #[error("the page size must be a power of two from 512 B to 1 MiB, not {0} bytes")]
    PageBytes(u64),
    /// Invalid share.
    #[error("the rate of a sample must be above 0 and at most 1, not {0}")]
    Sample(f64),
    /// The trace is too long.
    #[error("more than {REFERENCES_MAX} page references: use larger pages or a sample")]
    TooMany,
    /// The page number is too large.
    #[error("page {page} of volume {volume} exceeds the largest page number")]
    TooFar {
        /// The volume.
        volume: u32,
        /// The page.
        page: u64,
    },
}

/// End of a slice of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceEnd {
    /// Number of references before it.
    pub at: usize,
    /// True if an hour ends with it.
    pub hour: bool,
}

/// References to pages in order of time.
#[derive(Debug, Clone)]
pub struct References {
    config: ReferencesConfig,
    pages: Vec<u32>,
    /// Bytes of the page that the request uses, and a flag for the request's last reference.
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
    /// Returns the page of each reference, 0..[`Self::universe`].
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Returns the number of distinct pages (in the sample).
    pub fn universe(&self) -> u32 {
        self.universe
    }

    /// Returns the number of distinct pages of the whole trace; an estimate if it was sampled.
    pub fn working_set_pages(&self) -> u64 {
        match self.config.sample {
            None => u64::from(self.universe),
            Some(share) => (f64::from(self.universe) / share).round() as u64,
        }
    }

    /// Returns the number of references of the whole trace, sampled or not.
    pub fn references(&self) -> u64 {
        self.seen
    }

    /// Returns the bytes of the whole trace, sampled or not.
    pub fn bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// Returns the number of requests of the whole trace.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the parameters of the conversion.
    pub fn config(&self) -> &ReferencesConfig {
        &self.config
    }

    /// Returns the ends of slices; empty for traces without times.
    pub fn slices(&self) -> &[SliceEnd] {
        &self.slices
    }

    /// Returns the bytes of its page that a reference uses, and true if it is the last one of its request (in a sample,
    /// the last one in the sample). Requests without a page in the sample have no reference.
    #[inline]
    pub fn part(&self, reference: usize) -> (u64, bool) {
        let part = self.parts[reference];
        (u64::from(part & !LAST), part & LAST != 0)
    }

    /// Returns the mapping of pages to extents and volumes.
    pub fn layout(&self) -> PageLayout {
        PageLayout::Tables {
            extent_of: Arc::clone(&self.extent_of),
            volume_of: Arc::clone(&self.volume_of),
        }
    }

    /// Returns the volume of an extent, and its number in it.
    pub fn extent(&self, extent: u32) -> (u32, u64) {
        (
            self.volume_of[extent as usize],
            self.extent_no[extent as usize],
        )
    }

    /// Returns the number of pages that a cache of `pages` has in the simulation: in a sample its share, at least one.
    pub fn scaled(&self, pages: u64) -> u32 {
        let share = self.config.sample.unwrap_or(1.0);
        (pages as f64 * share)
            .round()
            .clamp(1.0, f64::from(crate::CAPACITY_PAGES_MAX)) as u32
    }
}

/// Converter of requests to references.
#[derive(Debug)]
pub struct ReferencesBuilder {
    made: References,
    /// Hashes below this value are kept; `None` for all.
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
    /// Creates a converter without references.
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

    /// Adds a request. `time_ns` counts from the start of the trace and must not decrease; `None` for traces without
    /// times.
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

    /// Returns all references.
    pub fn finish(mut self) -> Result<References, ReferencesError> {
        self.number()?;
        self.made.universe = self.ids.len();
        self.made.extent_of = self.extent_of.into();
        self.made.volume_of = self.volume_of.into();
        Ok(self.made)
    }

    fn end_slices(&mut self, slice: u64) {
        // A gap ends a limited number of slices: two hours without I/O have the same effect as a year.
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
