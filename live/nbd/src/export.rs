//! Exports, and the result of a handshake.

use std::ops::Range;
use std::sync::Arc;

use crate::dirty_ranges::DirtyRanges;

/// Id of `base:allocation` in this crate's server.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// Transmission flags of an export: its permitted operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportFlags(pub u16);

impl ExportFlags {
    /// The flags are valid; a server always sets it.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Writes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// Flush is supported.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// Forced unit access is supported.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// Seeks are slow.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// Trim is supported.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// Write zeroes is supported.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// Reads may require an unfragmented reply. A handshake without structured replies clears it.
    pub const SEND_DF: Self = Self(1 << 7);
    /// All connections see the writes and flushes of each other.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// Cache is supported.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// A write of zeroes may require to fail rather than be slow.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// Returns true if all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these flags and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Returns these flags without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

/// Limits and granularity of requests, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Divisor of offsets and lengths, a power of two.
    pub minimum: u32,
    /// Size and alignment of fast requests.
    pub preferred: u32,
    /// Longest read or write. A longer write cannot be skipped at a reasonable cost and ends the connection.
    pub maximum: u32,
}

impl BlockSizes {
    /// Sizes that a client assumes if the server sends none.
    pub const UNKNOWN: Self = Self {
        minimum: 1,
        preferred: 4096,
        maximum: 32 << 20,
    };

    /// Returns true if the sizes are powers of two and in order.
    pub fn sound(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.preferred.is_power_of_two()
            && self.minimum <= self.preferred
            && self.minimum <= self.maximum
    }

    /// Returns the longest aligned read or write.
    pub fn longest(&self) -> u32 {
        self.maximum / self.minimum * self.minimum
    }

    /// Returns an aligned read for the bytes from `offset` on: `length` bytes, or as many as fit one request. The read is
    /// extended to multiples of the minimum size. An export of `size` bytes may end at any byte.
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

/// Read that obeys the block sizes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedRead {
    /// Offset of its first byte in the export.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Bytes before the requested ones.
    before: usize,
    /// Number of requested bytes.
    bytes: usize,
}

impl AlignedRead {
    /// Returns the position of the requested bytes in the read.
    pub fn wanted(&self) -> Range<usize> {
        self.before..self.before + self.bytes
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Export of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Name, at most 4096 bytes.
    pub name: String,
    /// Description for operators; may be empty. It is truncated to 4096 bytes.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Permitted operations.
    pub flags: ExportFlags,
    /// Limits and granularity of requests.
    pub block: BlockSizes,
}

/// Exports of a server.
pub trait Exports {
    /// Returns the export of this name. The implementor chooses the meaning of the empty name.
    fn find(&self, name: &str) -> Option<Export>;
    /// Returns all exports that a client may list, in order.
    fn list(&self) -> Vec<Export>;
    /// Returns the names of the snapshots since which changes of an export are known.
    fn known_since(&self, _export: &str) -> Vec<String> {
        vec![]
    }
    /// Returns the changed ranges of an export since a snapshot.
    fn changed_since(&self, _export: &str, _since: &str) -> Option<Arc<DirtyRanges>> {
        None
    }
}

/// Result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The export, with the flags that apply in this session.
    pub export: Export,
    /// True if replies are structured.
    pub structured: bool,
    /// Id of `base:allocation`, if it was negotiated for this export.
    pub allocation_context: Option<u32>,
    /// Negotiated contexts of changed ranges, at most [`DIRTY_MAX`].
    pub dirty: DirtyContexts,
}

/// Contexts of changed ranges, by id.
pub type DirtyContexts = Vec<(u32, Arc<DirtyRanges>)>;

/// Largest number of contexts of changed ranges that a client may select. Bounds its replies and its memory in the server.
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
    fn reads_are_split_at_the_maximum_and_aligned_to_the_minimum() {
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
        // An unaligned end of the export, and requests that a server would refuse without alignment.
        assert_eq!(large.request(8192, 600, 9000).length, 808);
        assert_eq!(large.request(8192, 808, 9000).length, 808);
        assert_eq!(large.request(8192, 4096, 9000).length, 4096);
    }

    #[test]
    fn each_byte_of_a_range_is_requested_once() {
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
