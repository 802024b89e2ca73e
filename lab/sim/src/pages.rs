//! Numbering of a volume's pages in a cache.

use std::ops::Range;

use cache::{Effect, Origin, PageCache, Policy, Position};

/// Page numbers of one volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumePages {
    pub(crate) page_bytes: u64,
    pub(crate) volume_bytes: u64,
    /// Number of the volume's first page.
    pub(crate) first: u32,
}

impl VolumePages {
    /// Returns the pages that a request touches.
    #[inline]
    pub(crate) fn of(self, offset: u64, length: u64) -> Range<u32> {
        let end = (offset + length.max(1)).div_ceil(self.page_bytes);
        self.first + (offset / self.page_bytes) as u32..self.first + end as u32
    }

    /// Returns the byte range of pages, up to the volume's end: offset and length.
    #[inline]
    pub(crate) fn bytes(self, pages: Range<u32>) -> (u64, u64) {
        let offset = u64::from(pages.start - self.first) * self.page_bytes;
        let end = u64::from(pages.end - self.first) * self.page_bytes;
        (offset, end.min(self.volume_bytes) - offset)
    }

    /// Returns the range that a read must get from behind the cache, in whole pages (offset and length); `None` for a
    /// hit. `there` tests for cached pages.
    #[inline]
    pub(crate) fn missing(
        self,
        offset: u64,
        length: u64,
        there: impl Fn(u32) -> bool,
    ) -> Option<(u64, u64)> {
        let mut pages = self.of(offset, length);
        let first = pages.clone().find(|p| !there(*p))?;
        let last = pages.rfind(|p| !there(*p)).unwrap_or(first);
        Some(self.bytes(first..last + 1))
    }

    /// Records a write of whole and partial pages.
    #[inline]
    pub(crate) fn write<P: Policy>(
        self,
        cache: &mut PageCache<P>,
        (from, length): (u64, u64),
        origin: impl Fn(u32) -> Origin,
        effects: &mut Vec<Effect>,
    ) {
        let top = Position::TOP;
        for page in self.of(from, length) {
            let (offset, bytes) = self.bytes(page..page + 1);
            if from <= offset && offset + bytes <= from + length {
                cache.write(page..page + 1, origin(page), top, effects);
            } else {
                cache.write_partial(page, origin(page), top, effects);
            }
        }
    }
}
