//! Pages of volumes that come and go, and the frame of memory that each cached one has.
//!
//! ```text
//!   (volume, page) ─▶ number ─▶ index ─▶ frame ─▶ policy of the volume's part        insert, touch, remove: by frame
//!                                          └────▶ bytes, kept by the driver at frame × page size
//! ```
//!
//! What a policy is told as a page is the number of its frame, so that all tables are as large as the cache and not as the volumes behind it.
//! A frame is another page's once its page is gone: only policies that remember nothing of pages that are not cached can be told so
//! ([`PolicyKind::remembers`]). Pages of a volume have numbers in a row, by extents, as in a simulated cache, so that policies that look at
//! extents see the same ones.
//!
//! Not here: the bytes, and whether they may be used ([`ResidentPages`] is told of what is read and written after the fact).

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

/// No page, and no volume.
const NONE: u32 = u32::MAX;

/// Why volumes or parts cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotKeep {
    /// The policy would mix up pages.
    #[error("{0} remembers evicted pages, which a cache of a live array does not support")]
    Remembers(PolicyKind),
    /// A part cannot be made another size, nor the others to make room for it.
    #[error("{0} cannot change its size at run time, which cache shares require")]
    NoResize(PolicyKind),
    /// Too many pages behind the cache.
    #[error("the cached volumes exceed the limit of {} pages: use larger pages", NONE - 1)]
    TooManyPages,
    /// Each part has tables as large as those of the whole cache.
    #[error("the cache has {} parts already, which is the limit", PARTS_MAX - 1)]
    TooManyParts,
    /// More than the whole cache.
    #[error(
        "parts of {asked} pages do not fit into a cache of {all} pages, which must keep one page for other volumes"
    )]
    TooLarge {
        /// Pages of all parts that were given, with the new one.
        asked: u64,
        /// Pages of the cache.
        all: u32,
    },
}

/// A volume behind the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeNo(u32);

impl VolumeNo {
    /// Its number among volumes, as policies with priorities have it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone)]
struct Volume {
    first_page: u32,
    extents: u32,
    /// Its own part, or its home.
    part: usize,
    /// The part that it is in with others where it has none of its own.
    home: usize,
    counts: PageCounts,
    /// Pages that are cached.
    cached: u32,
}

/// A part of the cache that several volumes can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartNo(usize);

/// A part of the cache: what all volumes share that are in no other, one volume's, or that of several.
#[derive(Debug, Clone)]
struct Part {
    policy: AnyPolicy,
    /// Pages that were given to it; 0 when it was taken back, and for the part that is shared.
    given: u32,
}

/// Which pages of which volumes are cached, and where.
#[derive(Debug, Clone)]
pub struct ResidentPages {
    kind: PolicyKind,
    options: PolicyOptions,
    pages: u32,
    extent_pages: u32,
    index: Index,
    /// By frame: its page; of free ones the next free one.
    page_of: Vec<u32>,
    first_free: u32,
    /// The first is shared.
    parts: Vec<Part>,
    volumes: Vec<Option<Volume>>,
    /// By extent: its volume.
    volume_of: Vec<u32>,
    /// Number of cached pages, by extent.
    cached_in: Vec<u32>,
}

/// Parts there may be: each takes tables as large as the whole cache's.
const PARTS_MAX: usize = 64;

/// Frames that there are beside the pages of a cache.
pub const FRAMES_BESIDE: u32 = PARTS_MAX as u32;

impl ResidentPages {
    /// An empty cache of `pages` pages under a policy, with so many pages in an extent (at least one). `options` without a layout.
    pub fn new(
        kind: PolicyKind,
        pages: u32,
        extent_pages: u32,
        options: &PolicyOptions,
    ) -> Result<Self, CannotKeep> {
        if kind.remembers() {
            return Err(CannotKeep::Remembers(kind));
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
        // A policy says what has to go after the new page is in: each part needs a frame more than it has pages.
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

    /// Frames that the driver has to have memory for.
    pub fn frames(&self) -> u32 {
        self.pages + FRAMES_BESIDE
    }

    /// Pages that fit.
    pub fn capacity(&self) -> u32 {
        self.pages
    }

    /// Pages that are cached.
    pub fn len(&self) -> u32 {
        self.parts.iter().map(|p| p.policy.len()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|p| p.policy.memory_bytes());
        let extents = self.volume_of.capacity() + self.cached_in.capacity();
        let tables = self.page_of.capacity() + extents;
        parts.sum::<usize>() + self.index.memory_bytes() + tables * size_of::<u32>()
    }

    /// A volume of so many pages is behind the cache from now on; nothing of it is there.
    pub fn add_volume(&mut self, pages: u64) -> Result<VolumeNo, CannotKeep> {
        let extents = pages.div_ceil(u64::from(self.extent_pages)).max(1);
        let first = self.free_extents(extents);
        let end = (first + extents) * u64::from(self.extent_pages);
        if end >= u64::from(NONE) {
            return Err(CannotKeep::TooManyPages);
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

    /// A volume is not behind the cache any more: its pages go, and so does its part.
    pub fn remove_volume(&mut self, volume: VolumeNo) {
        // First: what goes is not to push out what others have where it would be without a part.
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

    /// A volume has so many pages from now on, and nothing of it is there; it keeps its part and what was counted of it.
    pub fn replace_volume(&mut self, volume: VolumeNo, pages: u64) -> Result<VolumeNo, CannotKeep> {
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

    /// The frame of a page; none if it is not cached.
    #[inline]
    pub fn find(&self, volume: VolumeNo, page: u64) -> Option<u32> {
        let number = self.of(volume).first_page + page as u32;
        self.index.find(number, &self.page_of)
    }

    /// A cached page, by its frame, is used.
    #[inline]
    pub fn touch(&mut self, volume: VolumeNo, frame: u32) {
        let extent = self.page_of[frame as usize] / self.extent_pages;
        let part = self.of(volume).part;
        let outcome = self.parts[part].policy.access_in(frame, extent);
        debug_assert!(outcome.is_hit(), "it has a frame");
    }

    /// The frame for a page that is to be cached now; the one that it has, if it is.
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

    /// Drops a page; whether it was cached.
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

    /// Drops all pages of a range. Looks up pages only in extents with cached pages, so the cost depends on the cached pages and not on the
    /// length of the range.
    pub fn remove_range(&mut self, volume: VolumeNo, mut pages: Range<u64>) {
        while let Some(cached) = self.next_cached(volume, &pages) {
            pages.start = cached.end;
            for page in cached {
                self.remove(volume, page);
            }
        }
    }

    /// The pages of a range that are in its first extent with cached pages; none if nothing of the range can be cached.
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

    /// Drops all pages of a volume. It takes as long as a look at every frame.
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

    /// Drops all pages of all volumes, in one look at every frame.
    pub fn clear_all(&mut self) {
        for frame in 0..self.frames() {
            let part = self.parts.iter().position(|p| p.policy.contains(frame));
            if let Some(part) = part {
                self.parts[part].policy.remove(frame);
                self.free(frame);
            }
        }
    }

    /// Whether there can be parts, which come and go while it runs.
    ///
    /// # Errors
    /// [`CannotKeep::NoResize`].
    pub fn can_have_parts(&self) -> Result<(), CannotKeep> {
        match self.kind.can_resize() {
            true => Ok(()),
            false => Err(CannotKeep::NoResize(self.kind)),
        }
    }

    /// Gives a volume a part of its own of so many pages, at least one, or makes it another size; what it has in the part that it was in comes
    /// along, as far as it fits. In which order it was used is not known any more.
    pub fn give_part(&mut self, volume: VolumeNo, pages: u32) -> Result<(), CannotKeep> {
        let own = self.own_part(volume);
        let part = self.sized(own, pages)?;
        if own.is_none() {
            self.change_part(volume, part);
        }
        self.fit_shared();
        Ok(())
    }

    /// Takes a volume's own part back, if it has one: its pages are again where it is without, as far as they fit.
    pub fn take_part_back(&mut self, volume: VolumeNo) {
        let known = self.volumes[volume.index()].is_some();
        let Some(part) = known.then(|| self.own_part(volume)).flatten() else {
            return;
        };
        self.parts[part].given = 0;
        self.fit_shared();
        self.change_part(volume, self.of(volume).home);
    }

    /// A part of so many pages, at least one, for volumes that are put in it.
    pub fn new_part(&mut self, pages: u32) -> Result<PartNo, CannotKeep> {
        let part = self.sized(None, pages)?;
        self.fit_shared();
        Ok(PartNo(part))
    }

    /// Makes a part for several volumes another size.
    pub fn resize_part(&mut self, part: PartNo, pages: u32) -> Result<(), CannotKeep> {
        self.sized(Some(part.0), pages)?;
        self.fit_shared();
        Ok(())
    }

    /// Ends a part for several volumes: whoever is in it shares with all from now on.
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

    /// Puts a volume in a part with others, or in what all share. Its pages come along as far as they fit, unless it has a part of its own: then
    /// it is there after that.
    pub fn put_in(&mut self, volume: VolumeNo, part: Option<PartNo>) {
        let home = part.map_or(0, |p| p.0);
        let own = self.own_part(volume).is_some();
        if !own && self.of(volume).part != home {
            self.change_part(volume, home);
        }
        self.of_mut(volume).home = home;
    }

    /// Pages of the part that a volume was given for itself; none if it shares one.
    pub fn part(&self, volume: VolumeNo) -> Option<u32> {
        let own = self.own_part(volume);
        own.map(|part| self.parts[part].given)
    }

    /// Pages of the part that it is in with others; none where it has one for itself, or shares with all.
    pub fn shared_part(&self, volume: VolumeNo) -> Option<u32> {
        let part = self.of(volume).part;
        let shared = part > 0 && self.own_part(volume).is_none();
        shared.then(|| self.parts[part].given)
    }

    /// Pages of a volume that are cached.
    pub fn cached(&self, volume: VolumeNo) -> u32 {
        self.of(volume).cached
    }

    /// Accesses of a volume.
    pub fn counts(&self, volume: VolumeNo) -> PageCounts {
        self.of(volume).counts
    }

    /// The priority of a volume, percent; none under policies without.
    pub fn priority(&self, volume: VolumeNo) -> Option<i32> {
        let part = self.of(volume).part;
        self.parts[part].policy.priority(volume.0)
    }

    /// A slice is over: by volume, the response time since the hour began over the objective; none without I/O in the slice.
    pub fn slice_ended(&mut self, over_target: &[Option<f64>]) {
        for part in &mut self.parts {
            part.policy.prioritize(over_target);
            part.policy.slice_ended();
        }
    }

    /// An hour is over.
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

    /// This part, or a new one, with so many pages. What all share is to be fitted after it.
    fn sized(&mut self, part: Option<usize>, pages: u32) -> Result<usize, CannotKeep> {
        self.can_have_parts()?;
        let pages = pages.max(1);
        let others = self.parts.iter().enumerate();
        let others = others.filter(|(p, _)| Some(*p) != part);
        let given: u64 = others.map(|(_, part)| u64::from(part.given)).sum();
        let asked = given + u64::from(pages);
        let free = self.parts.iter().skip(1).position(|p| p.given == 0);
        if part.is_none() && free.is_none() && self.parts.len() == PARTS_MAX {
            return Err(CannotKeep::TooManyParts);
        }
        if asked >= u64::from(self.pages) {
            let all = self.pages;
            return Err(CannotKeep::TooLarge { asked, all });
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
        // An extent that is nobody's is never asked for.
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

    /// The first of so many extents in a row that are nobody's.
    fn free_extents(&self, extents: u64) -> u64 {
        let mut run = 0;
        for (extent, volume) in self.volume_of.iter().enumerate() {
            run = if *volume == NONE { run + 1 } else { 0 };
            if run == extents {
                return extent as u64 + 1 - extents;
            }
        }
        // Those at the end are the beginning of a longer row.
        self.volume_of.len() as u64 - run
    }

    /// A frame that has its page is in a part from now on.
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

    /// A frame that no policy knows any more is free.
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

    /// What nobody was given is shared.
    fn fit_shared(&mut self) {
        let given: u32 = self.parts.iter().map(|p| p.given).sum();
        self.resize(0, self.pages - given);
    }

    /// Makes a part another size; pages that do not fit any more go.
    fn resize(&mut self, part: usize, pages: u32) {
        let policy = &mut self.parts[part].policy;
        let mut evicted = Vec::new();
        let could = policy.resize(pages, &mut |frame| evicted.push(frame));
        assert!(could, "it is asked before");
        evicted.into_iter().for_each(|frame| self.free(frame));
    }
}
