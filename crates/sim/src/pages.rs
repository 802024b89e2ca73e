//! Pages of a volume in a cache, by number.

use std::ops::Range;

use cache::{Effect, Origin, PageCache, Policy, Position};

/// Where the pages of one volume are numbered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumePages {
    pub(crate) page_bytes: u64,
    pub(crate) volume_bytes: u64,
    /// The number of its first page.
    pub(crate) first: u32,
}

impl VolumePages {
    /// Pages that a request touches.
    #[inline]
    pub(crate) fn of(self, offset: u64, length: u64) -> Range<u32> {
        let end = (offset + length.max(1)).div_ceil(self.page_bytes);
        self.first + (offset / self.page_bytes) as u32..self.first + end as u32
    }

    /// The bytes of pages, up to the volume's end: offset and length.
    #[inline]
    pub(crate) fn bytes(self, pages: Range<u32>) -> (u64, u64) {
        let offset = u64::from(pages.start - self.first) * self.page_bytes;
        let end = u64::from(pages.end - self.first) * self.page_bytes;
        (offset, end.min(self.volume_bytes) - offset)
    }

    /// What a read has to have from behind a cache that says which pages it has: offset and length, in whole pages; none where it hits.
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

    /// A write, of whole pages and of parts of them.
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
