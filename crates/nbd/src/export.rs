//! What is served, and what a handshake agrees on.

use std::ops::Range;
use std::sync::Arc;

use crate::dirty_ranges::DirtyRanges;

/// Id that a server of this crate gives to `base:allocation`.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// What a client may do with an export: the transmission flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportFlags(pub u16);

impl ExportFlags {
    /// The flags mean something; a server always sets it.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Writes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// Flush is supported.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// Forced unit access is supported.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// Seeks cost something.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// Trim is supported.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// Write zeroes is supported.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// Reads may ask not to be fragmented. Only with structured replies: a handshake without them clears it.
    pub const SEND_DF: Self = Self(1 << 7);
    /// Several connections see one another's writes and flushes.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// Cache is supported.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// Write zeroes may ask to fail rather than to be slow.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// Whether all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

/// Sizes of requests, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; a power of two.
    pub minimum: u32,
    /// Requests of this size and alignment are fast.
    pub preferred: u32,
    /// Longest read or write. A longer write cannot be skipped sensibly and ends the connection.
    pub maximum: u32,
}

impl BlockSizes {
    /// What a client assumes that was told nothing.
    pub const UNKNOWN: Self = Self {
        minimum: 1,
        preferred: 4096,
        maximum: 32 << 20,
    };

    /// Whether the sizes make sense: powers of two, in order.
    pub fn sound(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.preferred.is_power_of_two()
            && self.minimum <= self.preferred
            && self.minimum <= self.maximum
    }

    /// Longest read or write that ends at a multiple of the minimum, if it begins at one.
    pub fn longest(&self) -> u32 {
        self.maximum / self.minimum * self.minimum
    }

    /// The read that brings bytes from `offset` on: `length` of them, or as many as the sizes
    /// allow, and those around them up to multiples of the minimum. An export of `size` bytes may
    /// end before such a multiple.
    pub fn request(&self, offset: u64, length: u64, size: u64) -> AlignedRead {
        let minimum = u64::from(self.minimum);
        let from = offset / minimum * minimum;
        let end = offset.saturating_add(length);
        let aligned = end.checked_next_multiple_of(minimum).unwrap_or(end);
        let to = if end > size { end } else { aligned.min(size) };
        let to = to.min(from + u64::from(self.longest()));
        AlignedRead {
            offset: from,
            length: (to - from) as u32,
            before: (offset - from) as usize,
            bytes: (end.min(to) - offset) as usize,
        }
    }
}

/// A read of the sizes that a server allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedRead {
    /// First byte of the export.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Bytes before those that are wanted.
    before: usize,
    /// Bytes that are wanted.
    bytes: usize,
}

impl AlignedRead {
    /// The wanted ones among its bytes.
    pub fn wanted(&self) -> Range<usize> {
        self.before..self.before + self.bytes
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Something served under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Its name; at most 4096 bytes.
    pub name: String,
    /// For people; empty when there is nothing to say. More than 4096 bytes are cut.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// What a client may do with it.
    pub flags: ExportFlags,
    /// Sizes of requests.
    pub block: BlockSizes,
}

/// The server's view of what it serves.
pub trait Exports {
    /// The export of that name; what the empty name means is the implementor's choice.
    fn find(&self, name: &str) -> Option<Export>;
    /// Everything that a client may know of, in the order in which it is told.
    fn list(&self) -> Vec<Export>;
    /// Names of what it is known since when an export has changed.
    fn known_since(&self, _export: &str) -> Vec<String> {
        vec![]
    }
    /// What has changed of an export since one of them.
    fn changed_since(&self, _export: &str, _since: &str) -> Option<Arc<DirtyRanges>> {
        None
    }
}

/// What was negotiated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The export, with the flags that hold in this session.
    pub export: Export,
    /// Whether replies are structured.
    pub structured: bool,
    /// Id of `base:allocation`, when it was negotiated for this export.
    pub allocation_context: Option<u32>,
    /// Ids of contexts that say what has changed, and what they say; [`DIRTY_MAX`] at most.
    pub dirty: DirtyContexts,
}

/// Contexts that say what has changed, by their ids.
pub type DirtyContexts = Vec<(u32, Arc<DirtyRanges>)>;

/// Contexts that say what has changed that a client may select. Bounds its replies, and what is kept for it.
pub const DIRTY_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(minimum: u32, maximum: u32) -> BlockSizes {
        BlockSizes {
            minimum,
            preferred: minimum.max(4096),
            maximum,
        }
    }

    #[test]
    fn reads_are_cut_at_the_maximum_and_widened_to_the_minimum() {
        let read = |sizes: BlockSizes, offset, length| {
            let read = sizes.request(offset, length, 1 << 20);
            (read.offset, read.length, read.wanted())
        };
        assert_eq!(read(BlockSizes::UNKNOWN, 7, 5), (7, 5, 0..5));
        let small = sizes(512, 65536);
        assert_eq!(read(small, 0, 1 << 20), (0, 65536, 0..65536));
        assert_eq!(read(small, 512, 512), (512, 512, 0..512));
        let large = sizes(4096, 10_000);
        assert_eq!(large.longest(), 8192);
        assert_eq!(read(large, 512, 1024), (0, 4096, 512..1536));
        assert_eq!(read(large, 512, 16384), (0, 8192, 512..8192));
        assert_eq!(read(large, 4000, 200), (0, 8192, 4000..4200));
        // The end of an export that is no multiple; and requests that a server refuses as they are.
        assert_eq!(large.request(8192, 600, 9000).length, 808);
        assert_eq!(large.request(8192, 808, 9000).length, 808);
        assert_eq!(large.request(8192, 4096, 9000).length, 4096);
    }

    #[test]
    fn every_byte_of_a_range_is_wanted_once() {
        for (minimum, maximum) in [(1, 4096), (512, 512), (4096, 65536), (65536, 65536)] {
            let sizes = sizes(minimum, maximum);
            for (offset, length) in [(0, 200_000), (511, 70_000), (4097, 1), (65535, 2)] {
                let (mut at, end) = (offset, offset + length);
                while at < end {
                    let read = sizes.request(at, end - at, 1 << 20);
                    assert!(
                        read.length <= maximum && read.offset.is_multiple_of(u64::from(minimum))
                    );
                    assert_eq!(read.offset + read.wanted().start as u64, at);
                    assert!(!read.wanted().is_empty());
                    at += read.wanted().len() as u64;
                }
                assert_eq!(at, end);
            }
        }
    }
}
