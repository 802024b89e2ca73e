//! L2 cache: pages on a device that may forget them, lose them or return wrong data.
//!
//! The device is a file on flash, or memory or flash of another host (`terrace cache-node`). It stores only bytes.
//! Tables in this process have the places and checksums of the pages, and end with the process. The content of the
//! device is therefore never trusted after a restart or after a broken connection. The checksum of each page is
//! verified at each read.
//!
//! Pages are added after an engine has read them, and removed by any change; [`super::VolumeCache`] has the rules.

use std::ops::{Range, RangeInclusive};

use cache::{CachePartError, PolicyKind, PolicyOptions, ResidentPages, VolumeNo};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Pass;

/// Places that a policy needs in addition to its pages.
const BESIDE: u64 = cache::FRAMES_BESIDE as u64;

/// Place of a page on the device, at the time of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPage {
    frame: u32,
    version: u32,
}

impl StoredPage {
    /// Returns the offset of the place in the device's part.
    pub fn at(self, page_bytes: u64) -> u64 {
        u64::from(self.frame) * page_bytes
    }

    /// Returns true if the other place directly follows this one.
    pub fn is_before(self, other: Self) -> bool {
        self.frame.checked_add(1) == Some(other.frame)
    }
}

/// Read of pages that the L2 cache has completely.
#[derive(Debug)]
pub struct StoredRead {
    pub(super) pass: Pass,
    /// Byte range in the volume: whole pages.
    pub bytes: Range<u64>,
    /// Places of the pages, in order.
    pub places: Vec<StoredPage>,
}

/// Result of a read of the L2 cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L2ReadResult {
    /// The data is that of the volume.
    Right,
    /// The data may be outdated: the engine must serve the read.
    Overtaken,
    /// The data differs from the data written there: nothing on the device may be trusted.
    Wrong,
}

/// Counters of the L2 cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SecondCounts {
    /// Pages read from it.
    pub hits: u64,
    /// Pages written to it.
    pub fills: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    sum: u64,
    /// Number of pages that have used the frame.
    version: u32,
    /// True while a write to the frame is in flight. The frame gets no other page meanwhile, because two writes may
    /// complete in any order.
    writing: bool,
    /// True once the page has been written.
    ready: bool,
}

/// L2 cache of a worker: index of the pages on its device.
#[derive(Debug)]
pub struct SecondLevel {
    pages: ResidentPages,
    frames: Vec<Frame>,
    /// Seed of the checksums, unknown to the owner of the device.
    secret: u64,
    pub(super) counts: SecondCounts,
}

impl SecondLevel {
    /// Creates an L2 cache with this number of places; `None` if the number is not in [`SecondLevel::places`].
    pub(super) fn new(
        policy: PolicyKind,
        places: u64,
        extent_pages: u32,
        options: &PolicyOptions,
        secret: u64,
    ) -> Result<Option<Self>, CachePartError> {
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

    /// Returns the valid numbers of places.
    pub(super) fn places() -> RangeInclusive<u64> {
        BESIDE + 1..=u64::from(cache::CAPACITY_PAGES_MAX)
    }

    /// Approximate memory per place in bytes.
    pub const BYTES_PER_PLACE: u64 = 48;

    fn sum(&self, version: u32, data: &[u8]) -> u64 {
        xxh3_64_with_seed(data, self.secret ^ u64::from(version))
    }

    /// Returns the index of the pages.
    pub fn pages(&self) -> &ResidentPages {
        &self.pages
    }

    /// Returns the counters.
    pub fn counts(&self) -> SecondCounts {
        self.counts
    }

    pub(super) fn pages_mut(&mut self) -> &mut ResidentPages {
        &mut self.pages
    }

    /// Returns the place of a page that has been written.
    pub(super) fn find(&self, volume: VolumeNo, page: u64) -> Option<StoredPage> {
        let frame = self.pages.find(volume, page)?;
        let Frame { version, ready, .. } = self.frames[frame as usize];
        ready.then_some(StoredPage { frame, version })
    }

    pub(super) fn touch(&mut self, volume: VolumeNo, stored: StoredPage) {
        self.pages.touch(volume, stored.frame);
    }

    /// Allocates a place for a page, which the caller writes now. `None` if the page has a place already, or if its
    /// place has a write in flight.
    pub(super) fn fill(&mut self, volume: VolumeNo, page: u64, data: &[u8]) -> Option<StoredPage> {
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
        Some(StoredPage { frame, version })
    }

    /// Completes the write of a page. A failed write ends the L2 cache, so it is not reported here.
    pub fn filled(&mut self, stored: StoredPage) {
        let of = &mut self.frames[stored.frame as usize];
        debug_assert!(of.writing && of.version == stored.version, "{stored:?}");
        (of.writing, of.ready) = (false, true);
    }

    /// Verifies the data that was read from a place.
    pub(super) fn judge(&self, stored: StoredPage, data: &[u8]) -> L2ReadResult {
        let of = &self.frames[stored.frame as usize];
        if of.version != stored.version {
            return L2ReadResult::Overtaken;
        }
        match of.sum == self.sum(of.version, data) {
            true => L2ReadResult::Right,
            false => L2ReadResult::Wrong,
        }
    }
}
