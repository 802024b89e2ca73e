//! The cache in front of an array: a read part under any policy, and a smaller write part for what is not on the devices yet.
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
//! The cache does nothing itself: what has to be read and written is pushed as [`Effect`]s, in the order in which it has
//! to be done. Dirty pages are never dropped but by [`PageCache::discard`], when the guest itself gives up what is in them.
//!
//! A page that is written stays in the read part if it was there: its place there is what is known of its use, and the write
//! part is mirrored memory of its own. A page that is destaged leaves the write part.
//!
//! Not here: when to destage (the driver asks, and a full write part forces it), time, and what happens to I/O under way.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policies::lru::Lru;
use crate::policy::{Outcome, Policy};
use crate::position::Position;

/// Pages of an extent of 3.75 MB if pages have 64 KiB, as in the paper on Priority-LRU.
pub const PAGES_PER_EXTENT: u32 = 60;
/// Smallest page, bytes.
pub const PAGE_BYTES_MIN: u64 = 4 << 10;
/// Largest page, bytes.
pub const PAGE_BYTES_MAX: u64 = 256 << 10;

/// Whether a page may have so many bytes.
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
    /// Share of the write part, 0..1. The paper does not give one. Without effect unless writes are written back.
    pub write_share: f64,
    /// What happens to writes.
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

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PageCacheError {
    /// Not a size of a page.
    #[error("the page size must be a power of two from 4 KiB to 256 KiB, not {0} bytes")]
    PageBytes(u64),
    /// Not a share.
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
    /// Pages of the read and of the write part.
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

    /// The pages that bytes `offset..offset + bytes` lie in, counted from the start of whatever `offset` counts from. None
    /// for no bytes or past the end of 64 bits.
    pub fn pages_of(&self, offset: u64, bytes: u64) -> Range<u64> {
        let end = offset.saturating_add(bytes).div_ceil(self.page_bytes);
        offset / self.page_bytes..if bytes == 0 {
            offset / self.page_bytes
        } else {
            end
        }
    }
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Read the page from its device; it is in the read part from now on.
    ReadMiss {
        /// The page.
        page: u32,
    },
    /// The page was clean and is not in the read part any more: its memory is free.
    Dropped {
        /// The page.
        page: u32,
    },
    /// Write the page to its device; it is not in the write part any more.
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

/// Whose pages a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Dense number of the volume.
    pub volume: u32,
    /// Dense number of the extent that all pages of the range lie in.
    pub extent: u32,
}

/// Accesses to pages and what they found. A write is a hit if the page was in either part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageCounts {
    /// Reads that found their page.
    pub read_hits: u64,
    /// Reads that did not.
    pub read_misses: u64,
    /// Writes that found their page.
    pub write_hits: u64,
    /// Writes that did not.
    pub write_misses: u64,
}

impl PageCounts {
    /// Accesses of all kinds.
    pub fn accesses(&self) -> u64 {
        self.read_hits + self.read_misses + self.write_hits + self.write_misses
    }

    /// Share of accesses that found their page, 0..=1; none without accesses.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.read_hits + self.write_hits;
        (self.accesses() > 0).then(|| hits as f64 / self.accesses() as f64)
    }

    /// Share of reads that found their page, 0..=1; none without reads.
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let reads = self.read_hits + self.read_misses;
        (reads > 0).then(|| self.read_hits as f64 / reads as f64)
    }

    /// Adds others.
    pub fn add(&mut self, other: &PageCounts) {
        self.read_hits += other.read_hits;
        self.read_misses += other.read_misses;
        self.write_hits += other.write_hits;
        self.write_misses += other.write_misses;
    }

    /// What was counted since an earlier reading of the same counts.
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

/// The cache: a read part under policy `P`, and a write part under LRU.
#[derive(Debug, Clone)]
pub struct PageCache<P> {
    mode: WriteMode,
    read: P,
    write: Option<Lru>,
    extents: Vec<PageCounts>,
    volumes: Vec<PageCounts>,
}

impl<P: Policy> PageCache<P> {
    /// An empty cache over pages `0..universe`, whose read part is what `policy` makes of its capacity in pages and the universe.
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

    /// A guest reads pages. A page that is missed begins at `position` in the read part. Returns the pages that were hit.
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
            // What is dirty is served from there; a copy in the read part counts as used, none is made.
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

    /// A guest writes pages, whole ones. Returns the pages that were in the cache before.
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
                        // Never evicts: it is there.
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

    /// A guest writes a part of a page, which is not read for it: one that is not there stays out of the read part, which has whole
    /// pages only, and is as good as whole in the write part, which keeps track of sectors. Returns whether it was there.
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

    /// The guest gives up what is in pages: they leave both parts, dirty or not.
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

    /// Destages up to `pages` pages, those that were not written for the longest time first.
    pub fn destage(&mut self, pages: u32, effects: &mut Vec<Effect>) {
        let Some(write) = &mut self.write else {
            return;
        };
        let popped = (0..pages).map_while(|_| write.pop());
        effects.extend(popped.map(|page| Effect::Destage { page }));
    }

    /// Destages all that is dirty.
    pub fn flush(&mut self, effects: &mut Vec<Effect>) {
        self.destage(u32::MAX, effects);
    }

    /// Pages that are dirty.
    pub fn dirty(&self) -> u32 {
        self.write.as_ref().map_or(0, Policy::len)
    }

    /// Pages that may be dirty at once.
    pub fn dirty_max(&self) -> u32 {
        self.write.as_ref().map_or(0, Policy::capacity)
    }

    /// Whether a page is dirty.
    #[inline]
    pub fn is_dirty(&self, page: u32) -> bool {
        self.write.as_ref().is_some_and(|w| w.contains(page))
    }

    /// Whether a read of a page would hit.
    pub fn contains(&self, page: u32) -> bool {
        self.is_dirty(page) || self.read.contains(page)
    }

    /// The read part.
    pub fn policy(&self) -> &P {
        &self.read
    }

    /// The read part, for what its policy wants to be told.
    pub fn policy_mut(&mut self) -> &mut P {
        &mut self.read
    }

    /// Accesses by extent.
    pub fn extents(&self) -> &[PageCounts] {
        &self.extents
    }

    /// Accesses by volume.
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
