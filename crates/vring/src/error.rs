//! What a guest, or the one who runs it, did that no request can be answered with.

use thiserror::Error;

/// Why a queue, or all of a guest's memory, is not used any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingError {
    /// Bytes that no region of memory holds.
    #[error("{what}: {length} bytes at {address:#x} are outside the guest's memory")]
    Outside {
        /// What should be there.
        what: &'static str,
        /// Its address, of the guest or, for rings, of the one who runs it.
        address: u64,
        /// Its length.
        length: u64,
    },
    /// A ring at an address that it cannot have.
    #[error("{what} at {address:#x} is not aligned")]
    Unaligned {
        /// Which one.
        what: &'static str,
        /// Where.
        address: u64,
    },
    /// Two regions of memory hold the same bytes.
    #[error("regions of memory overlap at {address:#x}")]
    Overlap {
        /// The first such byte.
        address: u64,
    },
    /// A region that is not in its mapping.
    #[error("a region of {length} bytes at {address:#x} exceeds its mapping")]
    Unmapped {
        /// Where it begins.
        address: u64,
        /// Its length.
        length: u64,
    },
    /// A size that no queue has.
    #[error("queue size {0} is not a power of two up to {most}", most = crate::QUEUE_SIZE_MAX)]
    Size(u32),
    /// More requests than the queue has room for.
    #[error("the guest announced {ahead} requests in a queue of {size}")]
    Ahead {
        /// How many it says.
        ahead: u16,
        /// How many there can be.
        size: u16,
    },
    /// A descriptor that the table does not have.
    #[error("descriptor {index} is outside its table of {size}")]
    Index {
        /// Its number.
        index: u16,
        /// How many there are.
        size: u16,
    },
    /// A request that was not answered yet is handed in again.
    #[error("descriptor {0} was submitted again before its request completed")]
    Again(u16),
    /// A chain that is longer than it may be, or has no end.
    #[error("a chain has more than {0} descriptors")]
    Endless(u32),
    /// What the device reads comes after what it writes.
    #[error("readable descriptor {0} follows a writable one")]
    Order(u16),
    /// A table of descriptors that may not be there, or not like this.
    #[error("descriptor {index}: {why}")]
    Table {
        /// The descriptor that names it.
        index: u16,
        /// What is wrong.
        why: &'static str,
    },
    /// A block request without room for its header or its answer.
    #[error(
        "a request with {readable} readable and {writable} writable bytes has no room for its header or status"
    )]
    Headless {
        /// Bytes that the device may read.
        readable: u64,
        /// Bytes that it may write.
        writable: u64,
    },
    /// The memory of requests in flight is of another size or kind.
    #[error("inflight buffer: {0}")]
    InflightBuffer(&'static str),
}
