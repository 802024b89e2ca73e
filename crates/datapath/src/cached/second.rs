//! A second level of the cache: pages on a device, which may forget them, lose them or lie.
//!
//! The device is a file on flash, or memory or flash of another host (`terrace cache-node`). It only has bytes: which page is where, and whether its bytes are
//! right, is known here alone, in tables that end with the process. So what is on the device is never believed after it: not after a restart, not after a
//! connection that ended. Each page has a sum, which is compared when it is read.
//!
//! Pages come when an engine has read them, and go when anything changes them; the rules of [`super::VolumeCache`] say when.

use std::ops::{Range, RangeInclusive};

use cache::{CannotKeep, PolicyKind, PolicyOptions, ResidentPages, VolumeNo};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Pass;

/// Places that a policy needs beside its pages.
const BESIDE: u64 = cache::FRAMES_BESIDE as u64;

/// A page's place on the device, as it was when somebody looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    frame: u32,
    version: u32,
}

impl Stored {
    /// The byte of the device's part that it begins at.
    pub fn at(self, page_bytes: u64) -> u64 {
        u64::from(self.frame) * page_bytes
    }

    /// Whether the other page lies right behind it.
    pub fn is_before(self, other: Self) -> bool {
        self.frame.checked_add(1) == Some(other.frame)
    }
}

/// A read of pages that are all there.
#[derive(Debug)]
pub struct StoredRead {
    pub(super) pass: Pass,
    /// The bytes of the volume: whole pages.
    pub bytes: Range<u64>,
    /// Where they are, in order.
    pub places: Vec<Stored>,
}

/// What became of a read from the second level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The bytes are those of the volume.
    Right,
    /// They may not be any more: the engine has to be asked.
    Overtaken,
    /// They are not what was written there: nothing of that device may be believed.
    Wrong,
}

/// How much the second level has, and what it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SecondCounts {
    /// Pages that were read from it.
    pub hits: u64,
    /// Pages that were written to it.
    pub fills: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    sum: u64,
    /// Grows with each page that it is given.
    version: u32,
    /// A write to it is under way: it is given no other page, since two writes may end in any order.
    writing: bool,
    /// Its page was written.
    ready: bool,
}

/// Which pages are on the device of a worker's second level.
#[derive(Debug)]
pub struct SecondLevel {
    pages: ResidentPages,
    frames: Vec<Frame>,
    /// What sums begin with: nobody who has the bytes knows it.
    secret: u64,
    pub(super) counts: SecondCounts,
}

impl SecondLevel {
    /// One with so many places; none where those are fewer than policies need, or more than they count ([`SecondLevel::places`]).
    pub(super) fn new(
        policy: PolicyKind,
        places: u64,
        extent_pages: u32,
        options: &PolicyOptions,
        secret: u64,
    ) -> Result<Option<Self>, CannotKeep> {
        if !Self::places().contains(&places) {
            return Ok(None);
        }
        let pages = (places - BESIDE) as u32;
        let pages = ResidentPages::new(policy, pages, extent_pages, options)?;
        debug_assert_eq!(u64::from(pages.frames()), places);
        Ok(Some(Self {
            frames: vec![Frame::default(); pages.frames() as usize],
            pages,
            secret,
            counts: SecondCounts::default(),
        }))
    }

    /// How many places there can be.
    pub(super) fn places() -> RangeInclusive<u64> {
        BESIDE + 1..=u64::from(cache::CAPACITY_PAGES_MAX)
    }

    /// Bytes of memory for each place, about.
    pub const BYTES_PER_PLACE: u64 = 48;

    fn sum(&self, version: u32, data: &[u8]) -> u64 {
        xxh3_64_with_seed(data, self.secret ^ u64::from(version))
    }

    /// Which pages are there.
    pub fn pages(&self) -> &ResidentPages {
        &self.pages
    }

    /// What it did.
    pub fn counts(&self) -> SecondCounts {
        self.counts
    }

    pub(super) fn pages_mut(&mut self) -> &mut ResidentPages {
        &mut self.pages
    }

    /// The place of a page whose bytes are there.
    pub(super) fn find(&self, volume: VolumeNo, page: u64) -> Option<Stored> {
        let frame = self.pages.find(volume, page)?;
        let Frame { version, ready, .. } = self.frames[frame as usize];
        ready.then_some(Stored { frame, version })
    }

    pub(super) fn touch(&mut self, volume: VolumeNo, stored: Stored) {
        self.pages.touch(volume, stored.frame);
    }

    /// A place for a page that is to be written there now; none where it is there already, or its place is being written to.
    pub(super) fn fill(&mut self, volume: VolumeNo, page: u64, data: &[u8]) -> Option<Stored> {
        if self.pages.find(volume, page).is_some() {
            return None;
        }
        let frame = self.pages.insert(volume, page);
        let Frame {
            version, writing, ..
        } = self.frames[frame as usize];
        if writing {
            self.pages.remove(volume, page);
            return None;
        }
        let version = version.wrapping_add(1);
        self.frames[frame as usize] = Frame {
            sum: self.sum(version, data),
            version,
            writing: true,
            ready: false,
        };
        self.counts.fills += 1;
        Some(Stored { frame, version })
    }

    /// A page was written to its place. One that could not be written ends the second level, so there is no other way.
    pub fn filled(&mut self, stored: Stored) {
        let of = &mut self.frames[stored.frame as usize];
        debug_assert!(of.writing && of.version == stored.version, "{stored:?}");
        (of.writing, of.ready) = (false, true);
    }

    /// What bytes are that were read from a place.
    pub(super) fn judge(&self, stored: Stored, data: &[u8]) -> Answered {
        let of = &self.frames[stored.frame as usize];
        if of.version != stored.version {
            return Answered::Overtaken;
        }
        match of.sum == self.sum(of.version, data) {
            true => Answered::Right,
            false => Answered::Wrong,
        }
    }
}
