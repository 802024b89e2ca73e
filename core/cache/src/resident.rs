//! Pages of volumes that are added and removed at run time, and a frame of memory for each cached page.
//!
//! ```text
//!   (volume, page) ─▶ number ─▶ index ─▶ frame ─▶ policy of the volume's part        insert, touch, remove: by frame
//!                                          └────▶ bytes, kept by the driver at frame × page size
//! ```
//!
//! A policy receives frame numbers as page numbers, so its tables are as large as the cache, not as the volumes behind
//! it. A frame is reused for another page after its page is evicted. So only policies without memory of evicted pages
//! are allowed ([`PolicyKind::remembers`]). Pages of a volume have consecutive numbers by extents, as in a simulated
//! cache. So policies with extents see the same extents.
//!
//! Not part of this module: the bytes, and whether they may be used. The driver reports reads and writes to
//! [`ResidentPages`] after the fact.

mod index;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::huge;
use crate::layout::PageLayout;
use crate::page_cache::PageCounts;
use crate::policy::{Outcome, Policy};
use crate::registry::{AnyPolicy, PolicyKind, PolicyOptions};
use index::Index;

/// Number for no page and no volume.
const NONE: u32 = u32::MAX;

/// Reason volumes or parts cannot be cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CachePartError {
    /// The policy would confuse pages.
    #[error("{0} remembers evicted pages, which a cache of a live array does not support")]
    Remembers(PolicyKind),
    /// The part, or the others that must make room for it, cannot change size.
    #[error("{0} cannot change its size at run time, which cache shares require")]
    NoResize(PolicyKind),
    /// The volumes behind the cache have too many pages.
    #[error("the cached volumes exceed the limit of {} pages: use larger pages", NONE - 1)]
    TooManyPages,
    /// The number of parts is at its limit. Each part has tables as large as those of the whole cache.
    #[error("the cache has {} parts already, which is the limit", PARTS_MAX - 1)]
    TooManyParts,
    /// The parts exceed the whole cache.
    #[error(
        "parts of {asked} pages do not fit into a cache of {all} pages, which must keep one page for other volumes"
    )]
    TooLarge {
        /// Pages of all given parts, including the new one.
        asked: u64,
        /// Pages of the cache.
        all: u32,
    },
}

/// Number of a volume behind the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeNo(u32);

impl VolumeNo {
    /// Returns its number among volumes, as used by policies with priorities.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone)]
struct Volume {
    first_page: u32,
    extents: u32,
    /// Own part, or home.
    part: usize,
    /// Part that it shares with others while it has no own part.
    home: usize,
    counts: PageCounts,
    /// Number of cached pages.
    cached: u32,
}

/// Number of a part of the cache that several volumes can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartNo(usize);

/// Part of the cache: the common part of all volumes without another one, the part of one volume, or that of several.
#[derive(Debug, Clone)]
struct Part {
    policy: AnyPolicy,
    /// Pages given to the part; 0 after its return, and for the common part.
    given: u32,
}

/// Cached pages of volumes and their frames.
#[derive(Debug, Clone)]
pub struct ResidentPages {
    kind: PolicyKind,
    options: PolicyOptions,
    pages: u32,
    extent_pages: u32,
    index: Index,
    /// By frame: its page; for a free frame, the next free one.
    page_of: Vec<u32>,
    first_free: u32,
    /// Parts; the first one is the common part.
    parts: Vec<Part>,
    volumes: Vec<Option<Volume>>,
    /// Volume of each extent.
    volume_of: Vec<u32>,
    /// Number of cached pages, by extent.
    cached_in: Vec<u32>,
}

/// Maximum number of parts. The tables of each are as large as those of the whole cache.
const PARTS_MAX: usize = 64;

/// Number of frames beyond the pages of a cache.
pub const FRAMES_BESIDE: u32 = PARTS_MAX as u32;

impl ResidentPages {
    /// Creates an empty cache of `pages` pages under a policy, with `extent_pages` pages per extent (at least one). The
    /// layout in `options` is ignored.
    pub fn new(
        kind: PolicyKind,
        pages: u32,
        extent_pages: u32,
        options: &PolicyOptions,
    ) -> Result<Self, CachePartError> {
        if kind.remembers() {
            return Err(CachePartError::Remembers(kind));
        }
        let mut new = Self {
            kind,
            options: options.clone(),
            pages,
            extent_pages: extent_pages.max(1),
            index: Index::new(pages + FRAMES_BESIDE),
            page_of: Vec::new(),
            first_free: NONE,
            parts: Vec::new(),
            volumes: Vec::new(),
            volume_of: Vec::new(),
            cached_in: Vec::new(),
        };
        // A policy reports the evicted page after inserting the new one, so each part needs one frame more than its
        // pages.
        let frames = new.frames();
        new.page_of = huge::with_capacity(frames as usize);
        let next = |next| if next == frames { NONE } else { next };
        new.page_of.extend((1..=frames).map(next));
        new.first_free = 0;
        let shared = new.policy(pages);
        new.parts.push(Part {
            policy: shared,
            given: 0,
        });
        Ok(new)
    }

    /// Returns the number of frames for which the driver must have memory.
    pub fn frames(&self) -> u32 {
        self.pages + FRAMES_BESIDE
    }

    /// Returns the capacity in pages.
    pub fn capacity(&self) -> u32 {
        self.pages
    }

    /// Returns the number of cached pages.
    pub fn len(&self) -> u32 {
        self.parts.iter().map(|p| p.policy.len()).sum()
    }

    /// Returns true if no page is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|p| p.policy.memory_bytes());
        let extents = self.volume_of.capacity() + self.cached_in.capacity();
        let tables = self.page_of.capacity() + extents;
        parts.sum::<usize>() + self.index.memory_bytes() + tables * size_of::<u32>()
    }

    /// Adds a volume of `pages` pages. None of its pages is cached.
    pub fn add_volume(&mut self, pages: u64) -> Result<VolumeNo, CachePartError> {
        let extents = pages.div_ceil(u64::from(self.extent_pages)).max(1);
        let first = self.free_extents(extents);
        let end = (first + extents) * u64::from(self.extent_pages);
        if end >= u64::from(NONE) {
            return Err(CachePartError::TooManyPages);
        }
        let no = match self.volumes.iter().position(Option::is_none) {
            Some(no) => no,
            None => {
                self.volumes.push(None);
                self.volumes.len() - 1
            }
        };
        let (first, extents) = (first as usize, extents as usize);
        if self.volume_of.len() < first + extents {
            self.volume_of.resize(first + extents, NONE);
            self.cached_in.resize(first + extents, 0);
        }
        self.volume_of[first..first + extents].fill(no as u32);
        self.volumes[no] = Some(Volume {
            first_page: first as u32 * self.extent_pages,
            extents: extents as u32,
            part: 0,
            home: 0,
            counts: PageCounts::default(),
            cached: 0,
        });
        self.relayout();
        Ok(VolumeNo(no as u32))
    }

    /// Removes a volume, its cached pages and its part.
    pub fn remove_volume(&mut self, volume: VolumeNo) {
        // First, because otherwise its pages could evict those of others when it loses its part.
        self.clear(volume);
        self.take_part_back(volume);
        let Some(v) = self.volumes[volume.index()].take() else {
            return;
        };
        let first = (v.first_page / self.extent_pages) as usize;
        let extents = first..first + v.extents as usize;
        self.volume_of[extents.clone()].fill(NONE);
        for part in &mut self.parts {
            part.policy.forget(volume.0, extents.clone());
        }
    }

    /// Changes the size of a volume and drops its cached pages. It keeps its part and its counts.
    pub fn replace_volume(
        &mut self,
        volume: VolumeNo,
        pages: u64,
    ) -> Result<VolumeNo, CachePartError> {
        let (part, counts) = (self.part(volume), self.counts(volume));
        let home = self.of(volume).home;
        self.remove_volume(volume);
        let volume = self.add_volume(pages)?;
        let new = self.of_mut(volume);
        (new.part, new.home, new.counts) = (home, home, counts);
        if let Some(part) = part {
            self.give_part(volume, part)?;
        }
        Ok(volume)
    }

    /// Counts an access to a page by its result.
    #[inline]
    pub fn count(&mut self, volume: VolumeNo, write: bool, hit: bool) {
        self.of_mut(volume).counts.count(write, hit);
    }

    /// Returns the frame of a page; `None` if it is not cached.
    #[inline]
    pub fn find(&self, volume: VolumeNo, page: u64) -> Option<u32> {
        let number = self.of(volume).first_page + page as u32;
        self.index.find(number, &self.page_of)
    }

    /// Records the use of a cached page, by its frame.
    #[inline]
    pub fn touch(&mut self, volume: VolumeNo, frame: u32) {
        let extent = self.page_of[frame as usize] / self.extent_pages;
        let part = self.of(volume).part;
        let outcome = self.parts[part].policy.access_in(frame, extent);
        debug_assert!(outcome.is_hit(), "it has a frame");
    }

    /// Inserts a page and returns its frame. A cached page keeps its frame.
    pub fn insert(&mut self, volume: VolumeNo, page: u64) -> u32 {
        let number = self.of(volume).first_page + page as u32;
        if let Some(frame) = self.index.find(number, &self.page_of) {
            return frame;
        }
        let frame = self.first_free;
        self.first_free = self.page_of[frame as usize];
        self.page_of[frame as usize] = number;
        self.index.insert(number, frame, &self.page_of);
        self.cached_in[(number / self.extent_pages) as usize] += 1;
        let v = self.of_mut(volume);
        v.cached += 1;
        let part = v.part;
        self.enter(part, frame);
        frame
    }

    /// Drops a page; returns true if it was cached.
    pub fn remove(&mut self, volume: VolumeNo, page: u64) -> bool {
        let Some(frame) = self.find(volume, page) else {
            return false;
        };
        let part = self.of(volume).part;
        let was = self.parts[part].policy.remove(frame);
        debug_assert!(was, "it has a frame");
        self.free(frame);
        true
    }

    /// Drops all pages of a range. Looks up pages only in extents with cached pages, so the cost depends on the cached
    /// pages and not on the length of the range.
    pub fn remove_range(&mut self, volume: VolumeNo, mut pages: Range<u64>) {
        while let Some(cached) = self.next_cached(volume, &pages) {
            pages.start = cached.end;
            for page in cached {
                self.remove(volume, page);
            }
        }
    }

    /// Returns the part of a range in its first extent with cached pages; `None` if no page of the range can be cached.
    fn next_cached(&self, volume: VolumeNo, pages: &Range<u64>) -> Option<Range<u64>> {
        let v = self.of(volume);
        if v.cached == 0 || pages.is_empty() {
            return None;
        }
        let (length, first) = (
            u64::from(self.extent_pages),
            v.first_page / self.extent_pages,
        );
        let mut extents = pages.start / length..pages.end.div_ceil(length);
        let extent = extents.find(|e| self.cached_in[first as usize + *e as usize] > 0)?;
        let whole = extent * length..(extent + 1) * length;
        Some(pages.start.max(whole.start)..pages.end.min(whole.end))
    }

    /// Drops all pages of a volume, in a scan of all frames.
    pub fn clear(&mut self, volume: VolumeNo) {
        let Some(v) = &self.volumes[volume.index()] else {
            return;
        };
        if v.cached == 0 {
            return;
        }
        let (first, part) = (v.first_page, v.part);
        for frame in self.frames_of(volume) {
            self.parts[part].policy.remove(frame);
            self.free(frame);
        }
        debug_assert_eq!(self.of(volume).cached, 0, "from page {first} on");
    }

    /// Drops all pages of all volumes, in one scan of all frames.
    pub fn clear_all(&mut self) {
        for frame in 0..self.frames() {
            let part = self.parts.iter().position(|p| p.policy.contains(frame));
            if let Some(part) = part {
                self.parts[part].policy.remove(frame);
                self.free(frame);
            }
        }
    }

    /// Checks that parts can be created and removed at run time.
    ///
    /// # Errors
    /// [`CachePartError::NoResize`].
    pub fn can_have_parts(&self) -> Result<(), CachePartError> {
        match self.kind.can_resize() {
            true => Ok(()),
            false => Err(CachePartError::NoResize(self.kind)),
        }
    }

    /// Gives a volume its own part of `pages` pages, at least one, or changes the size of its part. Cached pages move
    /// along as far as they fit, but the order of their use is lost.
    pub fn give_part(&mut self, volume: VolumeNo, pages: u32) -> Result<(), CachePartError> {
        let own = self.own_part(volume);
        let part = self.sized(own, pages)?;
        if own.is_none() {
            self.change_part(volume, part);
        }
        self.fit_shared();
        Ok(())
    }

    /// Takes a volume's own part back, if it has one. Its pages move to the part that it shares, as far as they fit.
    pub fn take_part_back(&mut self, volume: VolumeNo) {
        let known = self.volumes[volume.index()].is_some();
        let Some(part) = known.then(|| self.own_part(volume)).flatten() else {
            return;
        };
        self.parts[part].given = 0;
        self.fit_shared();
        self.change_part(volume, self.of(volume).home);
    }

    /// Creates a part of `pages` pages, at least one, for volumes that are put in it.
    pub fn new_part(&mut self, pages: u32) -> Result<PartNo, CachePartError> {
        let part = self.sized(None, pages)?;
        self.fit_shared();
        Ok(PartNo(part))
    }

    /// Changes the size of a part for several volumes.
    pub fn resize_part(&mut self, part: PartNo, pages: u32) -> Result<(), CachePartError> {
        self.sized(Some(part.0), pages)?;
        self.fit_shared();
        Ok(())
    }

    /// Removes a part for several volumes. Its volumes move to the common part.
    pub fn end_part(&mut self, part: PartNo) {
        self.parts[part.0].given = 0;
        self.fit_shared();
        for no in 0..self.volumes.len() {
            let of = self.volumes[no].as_ref();
            if of.is_some_and(|v| v.home == part.0) {
                self.put_in(VolumeNo(no as u32), None);
            }
        }
    }

    /// Puts a volume in a part with others, or in the common part. Its pages move along as far as they fit. A volume
    /// with its own part moves only after that part is taken back.
    pub fn put_in(&mut self, volume: VolumeNo, part: Option<PartNo>) {
        let home = part.map_or(0, |p| p.0);
        let own = self.own_part(volume).is_some();
        if !own && self.of(volume).part != home {
            self.change_part(volume, home);
        }
        self.of_mut(volume).home = home;
    }

    /// Returns the pages of a volume's own part; `None` if it shares a part.
    pub fn part(&self, volume: VolumeNo) -> Option<u32> {
        let own = self.own_part(volume);
        own.map(|part| self.parts[part].given)
    }

    /// Returns the pages of the part that a volume shares with some others; `None` if it has its own part or uses the
    /// common part.
    pub fn shared_part(&self, volume: VolumeNo) -> Option<u32> {
        let part = self.of(volume).part;
        let shared = part > 0 && self.own_part(volume).is_none();
        shared.then(|| self.parts[part].given)
    }

    /// Returns the number of cached pages of a volume.
    pub fn cached(&self, volume: VolumeNo) -> u32 {
        self.of(volume).cached
    }

    /// Returns the accesses of a volume.
    pub fn counts(&self, volume: VolumeNo) -> PageCounts {
        self.of(volume).counts
    }

    /// Returns the priority of a volume in percent; `None` under policies without priorities.
    pub fn priority(&self, volume: VolumeNo) -> Option<i32> {
        let part = self.of(volume).part;
        self.parts[part].policy.priority(volume.0)
    }

    /// Ends a slice. `over_target` has, by volume, the response time since the start of the hour divided by the
    /// objective; `None` without I/O in the slice.
    pub fn slice_ended(&mut self, over_target: &[Option<f64>]) {
        for part in &mut self.parts {
            part.policy.prioritize(over_target);
            part.policy.slice_ended();
        }
    }

    /// Ends an hour.
    pub fn hour_ended(&mut self) {
        self.parts.iter_mut().for_each(|p| p.policy.hour_ended());
    }

    fn of(&self, volume: VolumeNo) -> &Volume {
        let volume = &self.volumes[volume.index()];
        volume.as_ref().expect("it is behind the cache")
    }

    fn of_mut(&mut self, volume: VolumeNo) -> &mut Volume {
        let volume = &mut self.volumes[volume.index()];
        volume.as_mut().expect("it is behind the cache")
    }

    fn own_part(&self, volume: VolumeNo) -> Option<usize> {
        let v = self.of(volume);
        (v.part != v.home).then_some(v.part)
    }

    /// Resizes a part, or creates one. The caller must fit the common part afterwards.
    fn sized(&mut self, part: Option<usize>, pages: u32) -> Result<usize, CachePartError> {
        self.can_have_parts()?;
        let pages = pages.max(1);
        let others = self.parts.iter().enumerate();
        let others = others.filter(|(p, _)| Some(*p) != part);
        let given: u64 = others.map(|(_, part)| u64::from(part.given)).sum();
        let asked = given + u64::from(pages);
        let free = self.parts.iter().skip(1).position(|p| p.given == 0);
        if part.is_none() && free.is_none() && self.parts.len() == PARTS_MAX {
            return Err(CachePartError::TooManyParts);
        }
        if asked >= u64::from(self.pages) {
            let all = self.pages;
            return Err(CachePartError::TooLarge { asked, all });
        }
        let part = match (part, free) {
            (Some(part), _) => part,
            (None, Some(free)) => free + 1,
            (None, None) => {
                let policy = self.policy(pages);
                self.parts.push(Part { policy, given: 0 });
                self.parts.len() - 1
            }
        };
        self.parts[part].given = pages;
        self.resize(part, pages);
        Ok(part)
    }

    fn policy(&self, pages: u32) -> AnyPolicy {
        let options = PolicyOptions {
            layout: match self.kind.looks_at_extents() {
                true => self.layout(),
                false => PageLayout::default(),
            },
            ..self.options.clone()
        };
        AnyPolicy::with_options(self.kind, pages, self.frames(), &options)
    }

    fn layout(&self) -> PageLayout {
        // An extent without a volume is never used.
        let volume_of = self
            .volume_of
            .iter()
            .map(|v| if *v == NONE { 0 } else { *v });
        PageLayout::Volumes {
            pages_per_extent: self.extent_pages,
            volume_of: volume_of.collect::<Arc<[u32]>>(),
        }
    }

    fn relayout(&mut self) {
        if !self.kind.looks_at_extents() {
            return;
        }
        let layout = self.layout();
        for part in &mut self.parts {
            part.policy.relayout(&layout);
        }
    }

    /// Returns the first of `extents` consecutive extents without a volume.
    fn free_extents(&self, extents: u64) -> u64 {
        let mut run = 0;
        for (extent, volume) in self.volume_of.iter().enumerate() {
            run = if *volume == NONE { run + 1 } else { 0 };
            if run == extents {
                return extent as u64 + 1 - extents;
            }
        }
        // Free extents at the end are the start of a longer run.
        self.volume_of.len() as u64 - run
    }

    /// Enters a frame with its page into a part.
    fn enter(&mut self, part: usize, frame: u32) {
        let extent = self.page_of[frame as usize] / self.extent_pages;
        match self.parts[part].policy.access_in(frame, extent) {
            Outcome::Hit => unreachable!("it was free"),
            Outcome::Miss { evicted } => {
                if let Some(evicted) = evicted {
                    self.free(evicted);
                }
            }
        }
    }

    /// Frees a frame that no policy uses any more.
    fn free(&mut self, frame: u32) {
        let page = self.page_of[frame as usize];
        let extent = (page / self.extent_pages) as usize;
        self.cached_in[extent] -= 1;
        let volume = self.volume_of[extent];
        self.of_mut(VolumeNo(volume)).cached -= 1;
        self.index.remove(page, &self.page_of);
        self.page_of[frame as usize] = self.first_free;
        self.first_free = frame;
    }

    fn frames_of(&self, volume: VolumeNo) -> Vec<u32> {
        let v = self.of(volume);
        let numbers = v.first_page..v.first_page + v.extents * self.extent_pages;
        let part = &self.parts[v.part].policy;
        let frames = self.page_of.iter().enumerate();
        // The link of a free frame may look like a page.
        let own =
            frames.filter(|(frame, page)| numbers.contains(page) && part.contains(*frame as u32));
        own.map(|(frame, _)| frame as u32).collect()
    }

    fn change_part(&mut self, volume: VolumeNo, to: usize) {
        let from = self.of(volume).part;
        let frames = self.frames_of(volume);
        self.of_mut(volume).part = to;
        for frame in frames {
            self.parts[from].policy.remove(frame);
            self.enter(to, frame);
        }
    }

    /// Gives the common part all pages that are not given to others.
    fn fit_shared(&mut self) {
        let given: u32 = self.parts.iter().map(|p| p.given).sum();
        self.resize(0, self.pages - given);
    }

    /// Changes the size of a part and evicts the pages that no longer fit.
    fn resize(&mut self, part: usize, pages: u32) {
        let policy = &mut self.parts[part].policy;
        let mut evicted = Vec::new();
        let could = policy.resize(pages, &mut |frame| evicted.push(frame));
        assert!(could, "it is asked before");
        evicted.into_iter().for_each(|frame| self.free(frame));
    }
}
