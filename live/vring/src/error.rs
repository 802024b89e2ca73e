//! Errors in the rings, descriptors and memory of a guest that no request status can report.

use thiserror::Error;

/// Reason why a queue, or a guest's whole memory, is not used any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingError {
    /// An address range outside all memory regions.
    #[error("{what}: {length} bytes at {address:#x} are outside the guest's memory")]
    Outside {
        /// Object that should be at the address.
        what: &'static str,
        /// Address in the guest, or for rings in the process that runs the guest.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A ring at a misaligned address.
    #[error("{what} at {address:#x} is not aligned")]
    Unaligned {
        /// Name of the ring.
        what: &'static str,
        /// Address of the ring.
        address: u64,
    },
    /// Memory regions that overlap.
    #[error("regions of memory overlap at {address:#x}")]
    Overlap {
        /// First common byte.
        address: u64,
    },
    /// A region that exceeds its mapping.
    #[error("a region of {length} bytes at {address:#x} exceeds its mapping")]
    Unmapped {
        /// Start of the region in the guest.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// An invalid queue size.
    #[error("queue size {0} is not a power of two up to {most}", most = crate::QUEUE_SIZE_MAX)]
    Size(u32),
    /// More available requests than queue entries.
    #[error("the guest announced {ahead} requests in a queue of {size}")]
    Ahead {
        /// Number of available requests.
        ahead: u16,
        /// Size of the queue.
        size: u16,
    },
    /// A descriptor index outside the table.
    #[error("descriptor {index} is outside its table of {size}")]
    Index {
        /// Index of the descriptor.
        index: u16,
        /// Size of the table.
        size: u16,
    },
    /// A request that is submitted again before its completion.
    #[error("descriptor {0} was submitted again before its request completed")]
    Again(u16),
    /// A chain that is too long or has a loop.
    #[error("a chain has more than {0} descriptors")]
    Endless(u32),
    /// A readable descriptor after a writable one.
    #[error("readable descriptor {0} follows a writable one")]
    Order(u16),
    /// An invalid indirect table.
    #[error("descriptor {index}: {why}")]
    Table {
        /// Index of the descriptor that refers to it.
        index: u16,
        /// Violated rule.
        why: &'static str,
    },
    /// A block request without room for its header or its status.
    #[error(
        "a request with {readable} readable and {writable} writable bytes has no room for its header or status"
    )]
    Headless {
        /// Number of readable bytes.
        readable: u64,
        /// Number of writable bytes.
        writable: u64,
    },
    /// An inflight buffer of another size or version, or with invalid content.
    #[error("inflight buffer: {0}")]
    InflightBuffer(&'static str),
}
