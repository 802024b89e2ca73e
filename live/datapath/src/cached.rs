//! Page cache in memory, between the guests of a worker's volumes and their engines. Sans I/O.
//!
//! ```text
//!   guest ── read ──▶ all pages in memory, and no change of them in flight? ── yes ──▶ reply from memory
//!     │                                  │ no
//!     │                                  ▼
//!     └─ change ─────────────────────▶ engine ─▶ devices ─▶ reply ─▶ pages are cached (reads, write-through) or removed (all else)
//! ```
//!
//! The cache holds only copies: a write is acknowledged after the engine has completed it. Losing the cache therefore
//! costs time but no data. `cache::ResidentPages` chooses the resident pages; the simulator uses the same policies.
//! This file has the rules that keep replies from memory consistent with replies of the engine ([`VolumeCache`]). The
//! page on the crash model explains them.

mod flight;
mod second;
#[cfg(test)]
mod tests;

use std::ops::Range;

use cache::{
    Ageing, CachePartError, OnHit, PageCounts, PolicyKind, PolicyOptions, RatesConfig,
    ResidentPages, VolumeNo, WriteMode,
};
use thiserror::Error;
use units::{Bytes, Nanos};

use crate::engine::{GuestOp, GuestRequest};
use flight::Flight;
pub use flight::Pass;
pub use second::{L2ReadResult, SecondCounts, SecondLevel, StoredPage, StoredRead};

/// Settings of the cache of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSettings {
    /// Memory for pages.
    pub size: Bytes,
    /// Bytes of a page: a power of two from 4 KiB to 256 KiB.
    pub page: Bytes,
    /// Pages of an extent, for policies that rate extents.
    pub extent_pages: u32,
    /// Policy that chooses the resident pages.
    pub policy: PolicyKind,
    /// Input rates of policies that rate extents.
    pub rates: RatesConfig,
    /// Ageing of old pages.
    pub ageing: Ageing,
    /// Position to which a hit moves a page.
    pub on_hit: OnHit,
    /// Written pages are cached ([`WriteMode::WriteThrough`]) or removed ([`WriteMode::WriteAround`]).
    pub writes: WriteMode,
    /// Length of a time slice. Priorities change at the end of a slice.
    pub slice: Nanos,
    /// Slices per hour. Hit ratios of extents are kept by hour.
    pub slices_per_hour: u32,
}

impl CacheSettings {
    /// Creates an empty L2 cache of `size` bytes below this cache.
    ///
    /// # Errors
    /// [`CacheFault`].
    pub fn second_level(&self, size: Bytes, secret: u64) -> Result<SecondLevel, CacheFault> {
        let places = size.0 / self.page.0;
        let (policy, extent_pages) = (self.policy, self.extent_pages);
        let level = SecondLevel::new(policy, places, extent_pages, &self.options(), secret)?;
        level.ok_or(CacheFault::Second {
            size,
            page: self.page,
            places,
        })
    }

    fn options(&self) -> PolicyOptions {
        PolicyOptions {
            rates: self.rates,
            ageing: self.ageing,
            on_hit: self.on_hit,
            ..PolicyOptions::default()
        }
    }

    /// Returns settings with policy `lru` and defaults for everything else.
    #[must_use]
    pub fn of(size: Bytes, page: Bytes) -> Self {
        Self {
            size,
            page,
            extent_pages: cache::PAGES_PER_EXTENT,
            policy: PolicyKind::Lru,
            rates: RatesConfig::default(),
            ageing: Ageing::default(),
            on_hit: OnHit::default(),
            writes: WriteMode::WriteThrough,
            slice: Nanos::from_secs(300),
            slices_per_hour: 12,
        }
    }

    /// Returns the settings of one of `workers` workers: its share of the memory.
    #[must_use]
    pub fn of_one(self, workers: usize) -> Self {
        let size = self.size.0 / workers.max(1) as u64;
        Self {
            size: Bytes(size),
            ..self
        }
    }
}

/// Reason why a cache cannot be created.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CacheFault {
    /// Invalid page size.
    #[error("the page size must be a power of two from 4 KiB to 256 KiB, not {0}")]
    Page(Bytes),
    /// Less than one page, or more pages than a policy can count.
    #[error("the cache share of one worker, {size}, has {pages} pages of {page}; 1 to {most} are allowed", most = cache::CAPACITY_PAGES_MAX - 64)]
    Pages {
        /// Memory of the worker.
        size: Bytes,
        /// Page size.
        page: Bytes,
        /// Number of pages.
        pages: u64,
    },
    /// L2 cache that is too small or too large.
    #[error("the L2 cache share of one worker, {size}, has {places} pages of {page}; {} to {} are allowed", SecondLevel::places().start(), SecondLevel::places().end())]
    Second {
        /// Share of one worker.
        size: Bytes,
        /// Page size.
        page: Bytes,
        /// Number of pages.
        places: u64,
    },
    /// Write-back mode: unwritten data would be lost with the process.
    #[error(
        "the data path has no write-back cache: unwritten data in memory would be lost in a crash"
    )]
    WriteBack,
    /// Error of the policy.
    #[error(transparent)]
    Keep(#[from] CachePartError),
}

/// Page memory of a worker, with its index.
#[derive(Debug)]
pub struct CacheMemory {
    pages: ResidentPages,
    page_bytes: u64,
    writes: WriteMode,
    bytes: Vec<u8>,
    second: Option<SecondLevel>,
    /// Frames of the current request.
    frames: Vec<u32>,
    /// Number of times that a volume was added to the cache.
    times: u32,
}

impl CacheMemory {
    /// Creates an empty cache. The system allocates the memory at the first write to it.
    pub fn new(settings: &CacheSettings) -> Result<Self, CacheFault> {
        let page = settings.page.0;
        if !cache::is_page_size(page) {
            return Err(CacheFault::Page(settings.page));
        }
        if settings.writes == WriteMode::WriteBack {
            return Err(CacheFault::WriteBack);
        }
        let pages = settings.size.0 / page;
        if pages == 0 || pages > u64::from(cache::CAPACITY_PAGES_MAX) - 64 {
            return Err(CacheFault::Pages {
                size: settings.size,
                page: settings.page,
                pages,
            });
        }
        let pages = ResidentPages::new(
            settings.policy,
            pages as u32,
            settings.extent_pages,
            &settings.options(),
        )?;
        Ok(Self {
            bytes: vec![0; pages.frames() as usize * page as usize],
            pages,
            page_bytes: page,
            writes: settings.writes,
            second: None,
            frames: Vec::new(),
            times: 0,
        })
    }

    /// Attaches an empty L2 cache. Volumes do not use it before [`VolumeCache::begin_second`].
    pub fn begin_second(&mut self, level: SecondLevel) {
        self.second = Some(level);
    }

    /// Discards all pages of all volumes. The caller must also call [`VolumeCache::keep_nothing`] for each volume.
    pub fn clear_all(&mut self) {
        self.pages.clear_all();
        if let Some(second) = &mut self.second {
            second.pages_mut().clear_all();
        }
    }

    /// Detaches the L2 cache and its content. The caller must also call [`VolumeCache::end_second`] for each volume.
    pub fn end_second(&mut self) {
        self.second = None;
    }

    /// Returns the L2 cache, if one is attached.
    pub fn second(&self) -> Option<&SecondLevel> {
        self.second.as_ref()
    }

    /// Returns the L2 cache mutably, to report completed writes to it.
    pub fn second_mut(&mut self) -> Option<&mut SecondLevel> {
        self.second.as_mut()
    }

    /// Ends an hour of the policies.
    pub fn hour_ended(&mut self) {
        self.pages.hour_ended();
        if let Some(second) = &mut self.second {
            second.pages_mut().hour_ended();
        }
    }

    /// Returns the index of resident pages.
    pub fn pages(&self) -> &ResidentPages {
        &self.pages
    }

    /// Returns the index mutably, to end slices and hours and to set shares.
    pub fn pages_mut(&mut self) -> &mut ResidentPages {
        &mut self.pages
    }

    /// Returns the page size in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn frame(&self, frame: u32) -> &[u8] {
        let at = frame as usize * self.page_bytes as usize;
        &self.bytes[at..at + self.page_bytes as usize]
    }

    fn frame_mut(&mut self, frame: u32) -> &mut [u8] {
        let at = frame as usize * self.page_bytes as usize;
        &mut self.bytes[at..at + self.page_bytes as usize]
    }
}

/// Cache state of one volume.
///
/// A read from memory must return what the engine could have returned. These rules ensure it:
///
/// - A read is served from memory only while no change of its pages is in flight. Otherwise the engine could serve a
///   later read of a neighbouring page with more, or less, of that change.
/// - The data of a read is cached only if no change of its pages was in flight when the read began, and none began
///   since.
/// - The data of a write is cached after the write succeeded, if no other change of its pages was in flight at any
///   time meanwhile. The order of two concurrent changes is unknown.
/// - All other changes remove their pages when they complete, with or without an error. After a failed write, the
///   present and future content of the devices is unknown.
/// - A failed flush removes all pages of the volume: the devices may hold older data than the acknowledged writes.
///   Every change of the volume that is not a guest's request does the same ([`VolumeCache::forget`]).
#[derive(Debug)]
pub struct VolumeCache {
    volume: VolumeNo,
    /// Number of the volume in the L2 cache, if it uses one.
    second: Option<VolumeNo>,
    size: u64,
    flight: Flight,
    /// True if the volume is excluded from caching.
    kept_out: bool,
}

impl VolumeCache {
    /// Starts to cache a volume of `size` bytes with `under_way` requests in flight. Nothing is cached before these
    /// requests have completed. Their completions are reported with [`Pass::NONE`] or with their earlier pass.
    pub fn new(
        memory: &mut CacheMemory,
        size: u64,
        under_way: usize,
    ) -> Result<Self, CachePartError> {
        let pages = size.div_ceil(memory.page_bytes);
        let volume = memory.pages.add_volume(pages)?;
        memory.times += 1;
        Ok(Self {
            volume,
            second: None,
            size,
            flight: Flight::new(memory.times, under_way),
            kept_out: false,
        })
    }

    /// Adapts to a larger volume. Its cache becomes empty.
    pub fn grew(&mut self, memory: &mut CacheMemory, size: u64) -> Result<(), CachePartError> {
        self.flight.keep_nothing();
        let pages = size.div_ceil(memory.page_bytes);
        self.volume = memory.pages.replace_volume(self.volume, pages)?;
        self.size = size;
        if let (Some(volume), Some(second)) = (self.second, &mut memory.second) {
            // A volume that is too large for the L2 cache has no pages there.
            self.second = second.pages_mut().replace_volume(volume, pages).ok();
        }
        Ok(())
    }

    /// Stops caching the volume.
    pub fn end(self, memory: &mut CacheMemory) {
        memory.pages.remove_volume(self.volume);
        if let (Some(volume), Some(second)) = (self.second, &mut memory.second) {
            second.pages_mut().remove_volume(volume);
        }
    }

    /// Lets the L2 cache store pages of this volume.
    pub fn begin_second(&mut self, memory: &mut CacheMemory) -> Result<(), CachePartError> {
        if let Some(second) = &mut memory.second {
            let pages = self.size.div_ceil(memory.page_bytes);
            self.second = Some(second.pages_mut().add_volume(pages)?);
        }
        Ok(())
    }

    /// Returns true if the L2 cache may store pages of this volume.
    pub fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// Ends the use of the L2 cache.
    pub fn end_second(&mut self) {
        self.second = None;
    }

    /// Excludes the volume from memory and L2 cache, or includes it again.
    pub fn keep_out(&mut self, memory: &mut CacheMemory, out: bool) {
        if out && !self.kept_out {
            self.forget(memory);
        }
        self.kept_out = out;
    }

    /// Returns true if the volume is excluded from caching.
    pub fn is_kept_out(&self) -> bool {
        self.kept_out
    }

    /// Number of the volume in the worker's cache.
    pub fn volume(&self) -> VolumeNo {
        self.volume
    }

    /// Returns the hit counters of the volume.
    pub fn counts(&self, memory: &CacheMemory) -> PageCounts {
        memory.pages.counts(self.volume)
    }

    /// Returns true if a request lies within the volume, by the size that the cache knows.
    fn contains(&self, request: &GuestRequest) -> bool {
        let end = request.offset.checked_add(request.length);
        request.length > 0 && end.is_some_and(|end| end <= self.size)
    }

    fn pages_of(&self, memory: &CacheMemory, request: &GuestRequest) -> Range<u64> {
        let end = request.offset + request.length;
        request.offset / memory.page_bytes..end.div_ceil(memory.page_bytes)
    }

    /// Returns the bytes of a page: fewer for a last page that the volume ends in.
    fn length_of(&self, memory: &CacheMemory, page: u64) -> u64 {
        (self.size - page * memory.page_bytes).min(memory.page_bytes)
    }

    /// Serves a read from memory if possible. `copy` receives pieces of data, each with its offset in the request.
    #[inline]
    pub fn read(
        &mut self,
        memory: &mut CacheMemory,
        request: &GuestRequest,
        mut copy: impl FnMut(usize, &[u8]),
    ) -> bool {
        if self.kept_out || !self.contains(request) {
            return false;
        }
        let pages = self.pages_of(memory, request);
        if self.flight.changes(&pages) {
            return false;
        }
        memory.frames.clear();
        for page in pages.clone() {
            match memory.pages.find(self.volume, page) {
                Some(frame) => memory.frames.push(frame),
                None => return false,
            }
        }
        let mut done = 0;
        for (page, i) in pages.zip(0..) {
            let frame = memory.frames[i];
            let begin = (request.offset + done as u64 - page * memory.page_bytes) as usize;
            let length = (memory.page_bytes as usize - begin).min(request.length as usize - done);
            copy(done, &memory.frame(frame)[begin..begin + length]);
            done += length;
            memory.pages.touch(self.volume, frame);
            memory.pages.count(self.volume, false, true);
        }
        true
    }

    /// Starts a read of the L2 cache if it has all pages of the request. The caller must report the end to
    /// [`VolumeCache::stored_over`]. The read counts as a request in flight: a change of its pages overtakes it, as
    /// it overtakes requests to the engine.
    pub fn read_stored(
        &mut self,
        memory: &mut CacheMemory,
        request: &GuestRequest,
    ) -> Option<StoredRead> {
        let volume = self.second?;
        if self.kept_out || !self.contains(request) {
            return None;
        }
        let (pages, page_bytes) = (self.pages_of(memory, request), memory.page_bytes);
        if self.flight.changes(&pages) {
            return None;
        }
        let second = memory.second.as_mut()?;
        let places = pages.clone().map(|page| second.find(volume, page));
        let places = places.collect::<Option<Vec<_>>>()?;
        places.iter().for_each(|p| second.touch(volume, *p));
        Some(StoredRead {
            bytes: pages.start * page_bytes..pages.end * page_bytes,
            pass: self.flight.begin_read(pages),
            places,
        })
    }

    /// Completes a read of the L2 cache; `data` is `None` if it failed. Correct data is also cached in memory.
    pub fn stored_over(
        &mut self,
        memory: &mut CacheMemory,
        read: &StoredRead,
        data: Option<&[u8]>,
    ) -> L2ReadResult {
        let kept = self.flight.over(read.pass) == Some(true) && !self.kept_out;
        let (Some(second), Some(data), true) = (&mut memory.second, data, kept) else {
            return L2ReadResult::Overtaken;
        };
        let page_bytes = memory.page_bytes as usize;
        for (place, page) in read.places.iter().zip(data.chunks_exact(page_bytes)) {
            match second.judge(*place, page) {
                L2ReadResult::Right => {}
                other => return other,
            }
        }
        second.counts.hits += read.places.len() as u64;
        let whole = GuestRequest {
            op: GuestOp::Read,
            offset: read.bytes.start,
            length: read.bytes.end - read.bytes.start,
            fua: false,
        };
        for page in self.pages_of(memory, &whole) {
            memory.pages.count(self.volume, false, false);
            self.keep(memory, page, &whole, data);
        }
        L2ReadResult::Right
    }

    /// Returns true if the L2 cache has all pages of these bytes, which lie within the volume.
    pub fn has_stored(&self, memory: &CacheMemory, bytes: &Range<u64>) -> bool {
        let (Some(volume), Some(second)) = (self.second, &memory.second) else {
            return false;
        };
        let mut pages = bytes.start / memory.page_bytes..bytes.end.div_ceil(memory.page_bytes);
        pages.all(|page| second.find(volume, page).is_some())
    }

    /// Completes a read that serves only the L2 cache and bypasses memory. Returns true if its pages may be stored
    /// there, provided that the read succeeded.
    pub fn read_aside_over(&mut self, pass: Pass) -> bool {
        self.flight.over(pass) == Some(true) && !self.kept_out
    }

    /// Returns places in the L2 cache for the pages of a read, at most `room`, each with the offset of its page in
    /// `data`. The caller writes the pages there now. Call it only for a read that [`VolumeCache::over`] reported as
    /// cached.
    pub fn fill(
        &self,
        memory: &mut CacheMemory,
        request: &GuestRequest,
        data: &[u8],
        room: usize,
    ) -> Vec<(StoredPage, usize)> {
        let (Some(volume), pages) = (self.second, self.pages_of(memory, request)) else {
            return vec![];
        };
        let bytes = memory.page_bytes;
        // The L2 cache has no short last pages.
        let full = |page: &u64| {
            self.length_of(memory, *page) == bytes && self.covers(memory, *page, request)
        };
        let pages: Vec<u64> = pages.filter(full).collect();
        let Some(second) = &mut memory.second else {
            return vec![];
        };
        let mut places = vec![];
        for page in pages {
            if places.len() == room {
                break;
            }
            let at = (page * bytes - request.offset) as usize;
            if let Some(stored) = second.fill(volume, page, &data[at..at + bytes as usize]) {
                places.push((stored, at));
            }
        }
        places
    }

    /// Extends a read that memory cannot serve to whole pages. Returns offset and length.
    pub fn whole(&self, memory: &CacheMemory, request: &GuestRequest) -> (u64, u64) {
        if self.kept_out || !self.contains(request) {
            return (request.offset, request.length);
        }
        let pages = self.pages_of(memory, request);
        let offset = pages.start * memory.page_bytes;
        let end = (pages.end * memory.page_bytes).min(self.size);
        (offset, end - offset)
    }

    /// Registers a request that goes to the engine. The caller must report its end to [`VolumeCache::over`].
    #[inline]
    pub fn pass(&mut self, memory: &CacheMemory, request: &GuestRequest) -> Pass {
        if !self.contains(request) {
            return self.flight.begin_other();
        }
        let pages = self.pages_of(memory, request);
        match request.op {
            GuestOp::Read => self.flight.begin_read(pages),
            GuestOp::Flush => self.flight.begin_other(),
            GuestOp::Write | GuestOp::Trim | GuestOp::Zero | GuestOp::ZeroAllocated => {
                self.flight.begin_change(pages)
            }
        }
    }

    /// Completes a request of [`VolumeCache::pass`]. `data` is the data of a read or, if writes are cached, of a
    /// write; it is `None` if the request failed. A read caches only the pages that it covers completely. Returns
    /// true for a read whose pages may be cached.
    pub fn over(
        &mut self,
        memory: &mut CacheMemory,
        pass: Pass,
        request: &GuestRequest,
        data: Option<&[u8]>,
    ) -> bool {
        let kept = self.flight.over(pass);
        if request.op == GuestOp::Flush && data.is_none() {
            self.forget(memory);
        }
        let Some(kept) = kept else {
            return false;
        };
        let data = data.filter(|_| !self.kept_out);
        let pages = self.pages_of(memory, request);
        if request.op != GuestOp::Read
            && let (Some(volume), Some(second)) = (self.second, &mut memory.second)
        {
            second.pages_mut().remove_range(volume, pages.clone());
        }
        match request.op {
            GuestOp::Read => {
                for page in pages {
                    let found = memory.pages.find(self.volume, page);
                    memory.pages.count(self.volume, false, found.is_some());
                    match (found, data) {
                        (_, None) => {}
                        (Some(frame), Some(_)) => memory.pages.touch(self.volume, frame),
                        (None, Some(data)) if kept && self.covers(memory, page, request) => {
                            self.keep(memory, page, request, data);
                        }
                        (None, Some(_)) => {}
                    }
                }
            }
            GuestOp::Write
                if memory.writes == WriteMode::WriteThrough && kept && data.is_some() =>
            {
                let data = data.expect("it is some");
                for page in pages {
                    let found = memory.pages.find(self.volume, page);
                    memory.pages.count(self.volume, true, found.is_some());
                    if let Some(frame) = found {
                        memory.pages.touch(self.volume, frame);
                        self.put(memory, frame, page, request, data);
                    } else if self.covers(memory, page, request) {
                        self.keep(memory, page, request, data);
                    }
                }
            }
            GuestOp::Write => {
                for page in pages {
                    let was = memory.pages.remove(self.volume, page);
                    memory.pages.count(self.volume, true, was);
                }
            }
            _ => memory.pages.remove_range(self.volume, pages),
        }
        request.op == GuestOp::Read && kept && data.is_some()
    }

    /// Excludes the data of all requests in flight from caching.
    pub fn keep_nothing(&mut self) {
        self.flight.keep_nothing();
    }

    /// Discards all pages of the volume, and excludes the data of all requests in flight from caching.
    pub fn forget(&mut self, memory: &mut CacheMemory) {
        self.flight.keep_nothing();
        memory.pages.clear(self.volume);
        if let (Some(volume), Some(second)) = (self.second, &mut memory.second) {
            second.pages_mut().clear(volume);
        }
    }

    fn covers(&self, memory: &CacheMemory, page: u64, request: &GuestRequest) -> bool {
        let begin = page * memory.page_bytes;
        let end = begin + self.length_of(memory, page);
        request.offset <= begin && end <= request.offset + request.length
    }

    /// Caches a page that the request covers completely.
    fn keep(&self, memory: &mut CacheMemory, page: u64, request: &GuestRequest, data: &[u8]) {
        let frame = memory.pages.insert(self.volume, page);
        self.put(memory, frame, page, request, data);
    }

    /// Copies the request's part of a page into the page's frame.
    fn put(
        &self,
        memory: &mut CacheMemory,
        frame: u32,
        page: u64,
        request: &GuestRequest,
        data: &[u8],
    ) {
        let begin = page * memory.page_bytes;
        let from = request.offset.max(begin);
        let to = (request.offset + request.length).min(begin + memory.page_bytes);
        let source = (from - request.offset) as usize..(to - request.offset) as usize;
        let target = (from - begin) as usize..(to - begin) as usize;
        memory.frame_mut(frame)[target].copy_from_slice(&data[source]);
    }
}
