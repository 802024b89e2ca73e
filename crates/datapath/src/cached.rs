//! A cache of pages in memory between the guests of a worker's volumes and their engines, sans I/O.
//!
//! ```text
//!   guest ── read ──▶ all its pages there, and no change of them under way? ── yes ──▶ answered from memory
//!     │                                  │ no
//!     │                                  ▼
//!     └─ change ─────────────────────▶ engine ─▶ devices ─▶ answer ─▶ pages are kept (reads, writes through), or go (all else)
//! ```
//!
//! Nothing is ever in memory alone: a write is answered when the engine has answered it, so that losing the cache loses time and no data.
//! Which pages stay is `cache::ResidentPages`, the policies of the simulator. This file has the rules that make what is read from memory what a
//! read of the engine could have said ([`VolumeCache`]); the page on the crash model has them in words.

mod flight;
mod second;
#[cfg(test)]
mod tests;

use std::ops::Range;

use cache::{
    Ageing, CannotKeep, OnHit, PageCounts, PolicyKind, PolicyOptions, RatesConfig, ResidentPages,
    VolumeNo, WriteMode,
};
use thiserror::Error;
use units::{Bytes, Nanos};

use crate::engine::{GuestOp, GuestRequest};
use flight::Flight;
pub use flight::Pass;
pub use second::{Answered, SecondCounts, SecondLevel, Stored, StoredRead};

/// The cache of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSettings {
    /// Memory for pages.
    pub size: Bytes,
    /// Bytes of a page: a power of two from 4 KiB to 256 KiB.
    pub page: Bytes,
    /// Pages of an extent, for policies that look at extents.
    pub extent_pages: u32,
    /// Which pages stay.
    pub policy: PolicyKind,
    /// What policies that look at extents are told.
    pub rates: RatesConfig,
    /// Whether old pages are brought down.
    pub ageing: Ageing,
    /// Where pages go that are hit.
    pub on_hit: OnHit,
    /// Whether what is written is kept ([`WriteMode::WriteThrough`]) or goes ([`WriteMode::WriteAround`]).
    pub writes: WriteMode,
    /// Slices of time, at whose ends priorities change.
    pub slice: Nanos,
    /// Slices after which hit ratios of extents are those of another hour.
    pub slices_per_hour: u32,
}

impl CacheSettings {
    /// A second level of so many bytes below such a cache, with nothing in it.
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

    /// Such a cache under `lru`, with everything else as it is by default.
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

    /// What one of so many workers has of it.
    #[must_use]
    pub fn of_one(self, workers: usize) -> Self {
        let size = self.size.0 / workers.max(1) as u64;
        Self {
            size: Bytes(size),
            ..self
        }
    }
}

/// Why there can be no such cache.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CacheFault {
    /// Not a size of a page.
    #[error("the page size must be a power of two from 4 KiB to 256 KiB, not {0}")]
    Page(Bytes),
    /// Not even a page, or more than a policy counts.
    #[error("the cache share of one worker, {size}, has {pages} pages of {page}; 1 to {most} are allowed", most = cache::CAPACITY_PAGES_MAX - 64)]
    Pages {
        /// The memory.
        size: Bytes,
        /// The page.
        page: Bytes,
        /// Pages.
        pages: u64,
    },
    /// A second level with too little room, or too much.
    #[error("the L2 cache share of one worker, {size}, has {places} pages of {page}; {} to {} are allowed", SecondLevel::places().start(), SecondLevel::places().end())]
    Second {
        /// What a worker has.
        size: Bytes,
        /// The page.
        page: Bytes,
        /// Pages.
        places: u64,
    },
    /// It would be lost with the process.
    #[error(
        "the data path has no write-back cache: unwritten data in memory would be lost in a crash"
    )]
    WriteBack,
    /// The policy.
    #[error(transparent)]
    Keep(#[from] CannotKeep),
}

/// Memory of a worker for pages, and which are there.
#[derive(Debug)]
pub struct CacheMemory {
    pages: ResidentPages,
    page_bytes: u64,
    writes: WriteMode,
    bytes: Vec<u8>,
    second: Option<SecondLevel>,
    /// Frames of the request at hand.
    frames: Vec<u32>,
    /// Times that a volume began to be cached.
    times: u32,
}

impl CacheMemory {
    /// An empty cache. The system gives the memory when it is written first.
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

    /// This second level from now on, which has nothing, and none of the volumes yet ([`VolumeCache::begin_second`]).
    pub fn begin_second(&mut self, level: SecondLevel) {
        self.second = Some(level);
    }

    /// Nothing that is there of any volume may be used any more; volumes are to be told ([`VolumeCache::keep_nothing`]).
    pub fn clear_all(&mut self) {
        self.pages.clear_all();
        if let Some(second) = &mut self.second {
            second.pages_mut().clear_all();
        }
    }

    /// There is no second level any more, and what was there is not to be believed. What volumes have of it is to be ended too
    /// ([`VolumeCache::end_second`]).
    pub fn end_second(&mut self) {
        self.second = None;
    }

    /// The second level, if there is one.
    pub fn second(&self) -> Option<&SecondLevel> {
        self.second.as_ref()
    }

    /// The same, to tell it of writes that ended.
    pub fn second_mut(&mut self) -> Option<&mut SecondLevel> {
        self.second.as_mut()
    }

    /// An hour is over.
    pub fn hour_ended(&mut self) {
        self.pages.hour_ended();
        if let Some(second) = &mut self.second {
            second.pages_mut().hour_ended();
        }
    }

    /// Which pages are there.
    pub fn pages(&self) -> &ResidentPages {
        &self.pages
    }

    /// The same, to end slices and hours and to share it out.
    pub fn pages_mut(&mut self) -> &mut ResidentPages {
        &mut self.pages
    }

    /// Bytes of a page.
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

/// What the cache has to do with one volume.
///
/// What makes a read from memory one that the engine could have answered:
///
/// - A read is answered from memory only while no change of any of its pages is under way; else it could be followed by one of a neighbouring
///   page that the engine answers, and which has seen more, or less, of that change.
/// - What a read found is kept only if no change of its pages was under way when it was passed on, nor came since.
/// - What a write wrote is kept when it has been answered without an error, and no other change of its pages was under way at any time
///   meanwhile: of two at once nobody knows which came last.
/// - Whatever else changes pages takes them out when it is answered, with an error or without: of a write that failed nobody knows what
///   is on the devices, or will be.
/// - A flush that fails takes all pages of the volume out: what the devices have may be older than what was answered. So does whatever happens to
///   the volume beside its guests ([`VolumeCache::forget`]).
#[derive(Debug)]
pub struct VolumeCache {
    volume: VolumeNo,
    /// Its number in the second level, if it is there.
    second: Option<VolumeNo>,
    size: u64,
    flight: Flight,
    /// Nothing of it is kept.
    kept_out: bool,
}

impl VolumeCache {
    /// A volume of so many bytes is cached from now on, with so many requests under way; nothing is kept until those are over, which are told as
    /// [`Pass::NONE`] or what they were given before.
    pub fn new(memory: &mut CacheMemory, size: u64, under_way: usize) -> Result<Self, CannotKeep> {
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

    /// The volume is larger now: its cache begins anew.
    pub fn grew(&mut self, memory: &mut CacheMemory, size: u64) -> Result<(), CannotKeep> {
        self.flight.keep_nothing();
        let pages = size.div_ceil(memory.page_bytes);
        self.volume = memory.pages.replace_volume(self.volume, pages)?;
        self.size = size;
        if let (Some(volume), Some(second)) = (self.second, &mut memory.second) {
            // Where it is too large for that, it has nothing there.
            self.second = second.pages_mut().replace_volume(volume, pages).ok();
        }
        Ok(())
    }

    /// It is not cached any more.
    pub fn end(self, memory: &mut CacheMemory) {
        memory.pages.remove_volume(self.volume);
        if let (Some(volume), Some(second)) = (self.second, &mut memory.second) {
            second.pages_mut().remove_volume(volume);
        }
    }

    /// Its pages may be in the second level from now on.
    pub fn begin_second(&mut self, memory: &mut CacheMemory) -> Result<(), CannotKeep> {
        if let Some(second) = &mut memory.second {
            let pages = self.size.div_ceil(memory.page_bytes);
            self.second = Some(second.pages_mut().add_volume(pages)?);
        }
        Ok(())
    }

    /// Whether its pages may be in a second level.
    pub fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// The second level has ended.
    pub fn end_second(&mut self) {
        self.second = None;
    }

    /// Nothing of it is kept from now on, in memory or in the second level, or it is again.
    pub fn keep_out(&mut self, memory: &mut CacheMemory, out: bool) {
        if out && !self.kept_out {
            self.forget(memory);
        }
        self.kept_out = out;
    }

    /// Whether nothing of it is kept.
    pub fn is_kept_out(&self) -> bool {
        self.kept_out
    }

    /// Its number among the volumes of the worker's cache.
    pub fn volume(&self) -> VolumeNo {
        self.volume
    }

    /// What it found there.
    pub fn counts(&self, memory: &CacheMemory) -> PageCounts {
        memory.pages.counts(self.volume)
    }

    /// Whether a request is within the volume, as it was when it began to be cached.
    fn contains(&self, request: &GuestRequest) -> bool {
        let end = request.offset.checked_add(request.length);
        request.length > 0 && end.is_some_and(|end| end <= self.size)
    }

    fn pages_of(&self, memory: &CacheMemory, request: &GuestRequest) -> Range<u64> {
        let end = request.offset + request.length;
        request.offset / memory.page_bytes..end.div_ceil(memory.page_bytes)
    }

    /// Bytes of a page: fewer where the volume ends in it.
    fn length_of(&self, memory: &CacheMemory, page: u64) -> u64 {
        (self.size - page * memory.page_bytes).min(memory.page_bytes)
    }

    /// Answers a read from memory, if it can be: `copy` is given pieces, with the byte of the request that each begins at.
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

    /// Begins a read of the second level, if it has all pages of what is asked for; [`VolumeCache::stored_over`] is to be told how it ended. It is one
    /// request under way as those are that are passed on: what changes its pages meanwhile overtakes it.
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

    /// A read of the second level is over; none of one that failed. What is right is in memory too from now on.
    pub fn stored_over(
        &mut self,
        memory: &mut CacheMemory,
        read: &StoredRead,
        data: Option<&[u8]>,
    ) -> Answered {
        let kept = self.flight.over(read.pass) == Some(true) && !self.kept_out;
        let (Some(second), Some(data), true) = (&mut memory.second, data, kept) else {
            return Answered::Overtaken;
        };
        let page_bytes = memory.page_bytes as usize;
        for (place, page) in read.places.iter().zip(data.chunks_exact(page_bytes)) {
            match second.judge(*place, page) {
                Answered::Right => {}
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
        Answered::Right
    }

    /// Whether the second level has all pages of these bytes, which lie within the volume.
    pub fn has_stored(&self, memory: &CacheMemory, bytes: &Range<u64>) -> bool {
        let (Some(volume), Some(second)) = (self.second, &memory.second) else {
            return false;
        };
        let mut pages = bytes.start / memory.page_bytes..bytes.end.div_ceil(memory.page_bytes);
        pages.all(|page| second.find(volume, page).is_some())
    }

    /// A read that was passed on for the second level alone is over: memory has no part in it. Whether its pages may be kept there, if it went well.
    pub fn read_aside_over(&mut self, pass: Pass) -> bool {
        self.flight.over(pass) == Some(true) && !self.kept_out
    }

    /// Places in the second level for the pages that a read has read, as many as `room`, which are to be written there now; with the first byte of each in
    /// `data`. Of a read whose pages were kept ([`VolumeCache::over`]).
    pub fn fill(
        &self,
        memory: &mut CacheMemory,
        request: &GuestRequest,
        data: &[u8],
        room: usize,
    ) -> Vec<(Stored, usize)> {
        let (Some(volume), pages) = (self.second, self.pages_of(memory, request)) else {
            return vec![];
        };
        let bytes = memory.page_bytes;
        // A last page that is short is no page there.
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

    /// The whole pages that a read that is not answered from memory is to be made of: offset and length.
    pub fn whole(&self, memory: &CacheMemory, request: &GuestRequest) -> (u64, u64) {
        if self.kept_out || !self.contains(request) {
            return (request.offset, request.length);
        }
        let pages = self.pages_of(memory, request);
        let offset = pages.start * memory.page_bytes;
        let end = (pages.end * memory.page_bytes).min(self.size);
        (offset, end - offset)
    }

    /// A request goes to the engine; [`VolumeCache::over`] is to be told how it ended.
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

    /// A request that was passed on is over. `data` is what a read read or a write wrote, asked for where it is kept; none of one that
    /// failed. Of a read of parts of pages, only whole ones are kept. Whether it was a read whose pages could be.
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

    /// What is under way is not to be kept.
    pub fn keep_nothing(&mut self) {
        self.flight.keep_nothing();
    }

    /// Nothing that is there of the volume may be used any more, nor what is under way be kept.
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

    /// A page that the request has all of is there from now on.
    fn keep(&self, memory: &mut CacheMemory, page: u64, request: &GuestRequest, data: &[u8]) {
        let frame = memory.pages.insert(self.volume, page);
        self.put(memory, frame, page, request, data);
    }

    /// What a request has of a page is what the page's frame has from now on.
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
