//! Cache in front of an array: a read part under any policy, and a smaller write part for data that is not on the
//! devices yet.
//!
//! ```text
//!             read                            write
//!              │                                │ write-back        │ write-through    │ write-around
//!              ▼                                ▼                   ▼                  ▼
//!   read part: hit, or ReadMiss     write part: dirty       read part + Through   Through, dropped here
//!              │ evicted: Dropped               │ oldest, when full or asked
//!              ▼                                ▼
//!            nothing                         Destage
//! ```
//!
//! The cache does no I/O. It appends the required reads and writes as [`Effect`]s, in the order of execution. A dirty
//! page is dropped only by [`PageCache::discard`], when the guest itself discards its content.
//!
//! A written page stays in the read part if it was there. Its position there records its use; the write part is
//! separate, mirrored memory. A destaged page leaves the write part.
//!
//! Not part of this module: the time of destaging (the driver requests it, and a full write part forces it), time, and
//! I/O in flight.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policies::lru::Lru;
use crate::policy::{Outcome, Policy};
use crate::position::Position;

/// Number of pages in an extent of 3.75 MB with pages of 64 KiB, as in the paper on Priority-LRU.
pub const PAGES_PER_EXTENT: u32 = 60;
/// Smallest page in bytes.
pub const PAGE_BYTES_MIN: u64 = 4 << 10;
/// Largest page in bytes.
pub const PAGE_BYTES_MAX: u64 = 256 << 10;

/// Returns true for a valid page size.
pub fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

/// Handling of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// Writes stay in the cache and reach the devices later. A loss of the cache loses them.
    #[default]
    WriteBack,
    /// Writes go to the devices at once, and stay in the cache.
    WriteThrough,
    /// Writes go to the devices at once, and their pages leave the cache.
    WriteAround,
}

/// Size and behaviour of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PageCacheConfig {
    /// Pages of both parts.
    pub pages: u32,
    /// Bytes of a page: a power of two from 4 KiB to 256 KiB.
    pub page_bytes: u64,
    /// Share of the write part, 0..1. The paper gives no value. Used only with write-back.
    pub write_share: f64,
    /// Handling of writes.
    pub write_mode: WriteMode,
}

impl Default for PageCacheConfig {
    fn default() -> Self {
        Self {
            pages: 16_384,
            page_bytes: 64 << 10,
            write_share: 0.2,
            write_mode: WriteMode::WriteBack,
        }
    }
}

/// Reason a configuration is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PageCacheError {
    /// Invalid page size.
    #[error("the page size must be a power of two from 4 KiB to 256 KiB, not {0} bytes")]
    PageBytes(u64),
    /// Invalid share.
    #[error("the share of the write part must be at least 0 and below 1, not {0}")]
    WriteShare(f64),
    /// One of the parts would have no page.
    #[error("{pages} pages with {write} pages for writes leave a part without a page")]
    Pages {
        /// Pages of both parts.
        pages: u32,
        /// Pages of the write part.
        write: u32,
    },
}

impl PageCacheConfig {
    /// Returns the pages of the read part and of the write part.
    pub fn parts(&self) -> Result<(u32, u32), PageCacheError> {
        if !is_page_size(self.page_bytes) {
            return Err(PageCacheError::PageBytes(self.page_bytes));
        }
        if !(0.0..1.0).contains(&self.write_share) {
            return Err(PageCacheError::WriteShare(self.write_share));
        }
        let write = match self.write_mode {
            WriteMode::WriteBack => (f64::from(self.pages) * self.write_share).round() as u32,
            WriteMode::WriteThrough | WriteMode::WriteAround => 0,
        };
        let read = self.pages.saturating_sub(write);
        if read == 0 || (write == 0 && self.write_mode == WriteMode::WriteBack) {
            return Err(PageCacheError::Pages {
                pages: self.pages,
                write,
            });
        }
        Ok((read, write))
    }

    /// Returns the pages that bytes `offset..offset + bytes` touch, counted from the origin of `offset`. Empty for no
    /// bytes or past the end of 64 bits.
    pub fn pages_of(&self, offset: u64, bytes: u64) -> Range<u64> {
        let end = offset.saturating_add(bytes).div_ceil(self.page_bytes);
        offset / self.page_bytes..if bytes == 0 {
            offset / self.page_bytes
        } else {
            end
        }
    }
}

/// Operation for the driver; the order of effects matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Read the page from its device; it is now in the read part.
    ReadMiss {
        /// The page.
        page: u32,
    },
    /// The clean page left the read part: its memory is free.
    Dropped {
        /// The page.
        page: u32,
    },
    /// Write the page to its device; it has left the write part.
    Destage {
        /// The page.
        page: u32,
    },
    /// Write the page to its device as part of the guest's write.
    WriteThrough {
        /// The page.
        page: u32,
    },
}

/// Volume and extent of a request's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Dense number of the volume.
    pub volume: u32,
    /// Dense number of the extent that has all pages of the range.
    pub extent: u32,
}

/// Accesses to pages and their results. A write is a hit if the page was in either part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageCounts {
    /// Number of read hits.
    pub read_hits: u64,
    /// Number of read misses.
    pub read_misses: u64,
    /// Number of write hits.
    pub write_hits: u64,
    /// Number of write misses.
    pub write_misses: u64,
}

impl PageCounts {
    /// Returns the number of all accesses.
    pub fn accesses(&self) -> u64 {
        self.read_hits + self.read_misses + self.write_hits + self.write_misses
    }

    /// Returns the hit ratio of all accesses, 0..=1; `None` without accesses.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.read_hits + self.write_hits;
        (self.accesses() > 0).then(|| hits as f64 / self.accesses() as f64)
    }

    /// Returns the hit ratio of reads, 0..=1; `None` without reads.
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let reads = self.read_hits + self.read_misses;
        (reads > 0).then(|| self.read_hits as f64 / reads as f64)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &PageCounts) {
        self.read_hits += other.read_hits;
        self.read_misses += other.read_misses;
        self.write_hits += other.write_hits;
        self.write_misses += other.write_misses;
    }

    /// Returns the counts since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &PageCounts) -> PageCounts {
        PageCounts {
            read_hits: self.read_hits - earlier.read_hits,
            read_misses: self.read_misses - earlier.read_misses,
            write_hits: self.write_hits - earlier.write_hits,
            write_misses: self.write_misses - earlier.write_misses,
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, write: bool, hit: bool) {
        let counter = match (write, hit) {
            (false, true) => &mut self.read_hits,
            (false, false) => &mut self.read_misses,
            (true, true) => &mut self.write_hits,
            (true, false) => &mut self.write_misses,
        };
        *counter += 1;
    }
}

/// Cache with a read part under policy `P` and a write part under LRU.
#[derive(Debug, Clone)]
pub struct PageCache<P> {
    mode: WriteMode,
    read: P,
    write: Option<Lru>,
    extents: Vec<PageCounts>,
    volumes: Vec<PageCounts>,
}

impl<P: Policy> PageCache<P> {
    /// Creates an empty cache over pages `0..universe`. `policy` creates the read part from its capacity in pages and
    /// the universe.
    pub fn new(
        config: &PageCacheConfig,
        universe: u32,
        extents: u32,
        volumes: u32,
        policy: impl FnOnce(u32, u32) -> P,
    ) -> Result<Self, PageCacheError> {
        let (read, write) = config.parts()?;
        Ok(Self {
            mode: config.write_mode,
            read: policy(read, universe),
            write: (write > 0).then(|| Lru::new(write, universe)),
            extents: vec![PageCounts::default(); extents as usize],
            volumes: vec![PageCounts::default(); volumes as usize],
        })
    }

    /// Reads pages for a guest. A missed page is inserted at `position` in the read part. Returns the number of hits.
    pub fn read(
        &mut self,
        pages: Range<u32>,
        origin: Origin,
        position: Position,
        effects: &mut Vec<Effect>,
    ) -> u32 {
        let mut hits = 0;
        for page in pages {
            let dirty = self.is_dirty(page);
            // A dirty page is read from the write part. A copy in the read part counts as used, but none is created.
            let hit = if dirty && !self.read.contains(page) {
                true
            } else {
                self.through_read_part(page, position, effects, Some(Effect::ReadMiss { page }))
            };
            self.count(origin, false, hit);
            hits += u32::from(hit);
        }
        hits
    }

    /// Writes whole pages for a guest. Returns the number of pages that were in the cache before.
    pub fn write(
        &mut self,
        pages: Range<u32>,
        origin: Origin,
        position: Position,
        effects: &mut Vec<Effect>,
    ) -> u32 {
        let mut hits = 0;
        for page in pages {
            let hit = match (self.mode, &mut self.write) {
                (WriteMode::WriteBack, Some(write)) => {
                    let in_read = self.read.contains(page);
                    if in_read {
                        // Never evicts, because the page is cached.
                        self.read.access_at(page, position);
                    }
                    match write.access(page) {
                        Outcome::Hit => true,
                        Outcome::Miss { evicted } => {
                            effects.extend(evicted.map(|page| Effect::Destage { page }));
                            in_read
                        }
                    }
                }
                (WriteMode::WriteAround, _) => {
                    effects.push(Effect::WriteThrough { page });
                    let was = self.read.remove(page);
                    effects.extend(was.then_some(Effect::Dropped { page }));
                    was
                }
                (WriteMode::WriteThrough | WriteMode::WriteBack, _) => {
                    effects.push(Effect::WriteThrough { page });
                    self.through_read_part(page, position, effects, None)
                }
            };
            self.count(origin, true, hit);
            hits += u32::from(hit);
        }
        hits
    }

    /// Writes a part of a page for a guest, without reading the page. A page that is not cached stays out of the read
    /// part, which has only whole pages. In the write part, which tracks sectors, it counts like a whole page. Returns
    /// true if it was cached.
    pub fn write_partial(
        &mut self,
        page: u32,
        origin: Origin,
        position: Position,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.mode != WriteMode::WriteThrough || self.read.contains(page) {
            return self.write(page..page + 1, origin, position, effects) == 1;
        }
        effects.push(Effect::WriteThrough { page });
        self.count(origin, true, false);
        false
    }

    /// Discards pages whose content the guest no longer needs: they leave both parts, dirty or not.
    pub fn discard(&mut self, pages: Range<u32>, effects: &mut Vec<Effect>) {
        for page in pages {
            if let Some(write) = &mut self.write {
                write.remove(page);
            }
            if self.read.remove(page) {
                effects.push(Effect::Dropped { page });
            }
        }
    }

    /// Destages up to `pages` pages, least recently written first.
    pub fn destage(&mut self, pages: u32, effects: &mut Vec<Effect>) {
        let Some(write) = &mut self.write else {
            return;
        };
        let popped = (0..pages).map_while(|_| write.pop());
        effects.extend(popped.map(|page| Effect::Destage { page }));
    }

    /// Destages all dirty pages.
    pub fn flush(&mut self, effects: &mut Vec<Effect>) {
        self.destage(u32::MAX, effects);
    }

    /// Returns the number of dirty pages.
    pub fn dirty(&self) -> u32 {
        self.write.as_ref().map_or(0, Policy::len)
    }

    /// Returns the maximum number of dirty pages.
    pub fn dirty_max(&self) -> u32 {
        self.write.as_ref().map_or(0, Policy::capacity)
    }

    /// Returns true if a page is dirty.
    #[inline]
    pub fn is_dirty(&self, page: u32) -> bool {
        self.write.as_ref().is_some_and(|w| w.contains(page))
    }

    /// Returns true if a read of a page would hit.
    pub fn contains(&self, page: u32) -> bool {
        self.is_dirty(page) || self.read.contains(page)
    }

    /// Returns the policy of the read part.
    pub fn policy(&self) -> &P {
        &self.read
    }

    /// Returns the policy of the read part, to change its settings.
    pub fn policy_mut(&mut self) -> &mut P {
        &mut self.read
    }

    /// Returns the accesses by extent.
    pub fn extents(&self) -> &[PageCounts] {
        &self.extents
    }

    /// Returns the accesses by volume.
    pub fn volumes(&self) -> &[PageCounts] {
        &self.volumes
    }

    #[inline]
    fn through_read_part(
        &mut self,
        page: u32,
        position: Position,
        effects: &mut Vec<Effect>,
        on_miss: Option<Effect>,
    ) -> bool {
        match self.read.access_at(page, position) {
            Outcome::Hit => true,
            Outcome::Miss { evicted } => {
                effects.extend(evicted.map(|page| Effect::Dropped { page }));
                effects.extend(on_miss);
                false
            }
        }
    }

    #[inline]
    fn count(&mut self, origin: Origin, write: bool, hit: bool) {
        self.extents[origin.extent as usize].count(write, hit);
        self.volumes[origin.volume as usize].count(write, hit);
    }
}
