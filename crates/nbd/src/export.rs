//! What is served, and what a handshake agrees on.

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
