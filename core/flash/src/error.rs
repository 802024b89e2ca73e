//! Errors in the description and use of a drive.

use thiserror::Error;

/// Reason an operation on a drive was refused. A refused operation changes nothing.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FlashError {
    /// A number of the description is out of range.
    #[error("{key} = {value} is outside {range}")]
    Range {
        /// Name of the setting.
        key: &'static str,
        /// Given value.
        value: f64,
        /// Allowed range.
        range: &'static str,
    },
    /// The drive has more pages than 32-bit maps can number.
    #[error(
        "{blocks} erase blocks of {pages} pages exceed the limit of {max} pages per drive: \
         scale the drive down"
    )]
    TooManyPages {
        /// Number of erase blocks.
        blocks: u64,
        /// Number of pages in each.
        pages: u64,
        /// Maximum number of pages.
        max: u64,
    },
    /// The drive has too few blocks for garbage collection.
    #[error(
        "the drive is too small: {blocks} erase blocks on each of {lanes} units with a log, at least 8 are required"
    )]
    TooSmall {
        /// Number of blocks of each lane.
        blocks: u64,
        /// Number of lanes.
        lanes: u64,
    },
    /// Garbage collection could stop for lack of spare blocks.
    #[error(
        "{blocks} erase blocks hold {data_pages} pages of data: garbage collection needs {needed} spare blocks, the drive has {spare:.2}"
    )]
    SpareTooSmall {
        /// Number of blocks of the pool.
        blocks: u64,
        /// Number of pages of data in the pool.
        data_pages: u64,
        /// Number of spare blocks needed.
        needed: u64,
        /// Number of spare blocks available.
        spare: f64,
    },
    /// The streams need more reserve blocks.
    #[error(
        "{reserve} reserve blocks are too few for {destinations} streams of garbage collection: {needed} are required"
    )]
    ReserveTooSmall {
        /// Number of reserve blocks given.
        reserve: u32,
        /// Number of streams that collection writes to in one pool.
        destinations: u32,
        /// Number of reserve blocks needed.
        needed: u32,
    },
    /// The data of another tenant does not fit.
    #[error("a tenant of {pages} pages does not fit: the largest free range has {largest} pages")]
    NoSpace {
        /// Number of pages requested.
        pages: u64,
        /// Size of the largest free range, in pages.
        largest: u64,
    },
    /// The erase blocks of another tenant do not fit.
    #[error("a tenant needs {needed} erase blocks, but only {free} are free")]
    NoBlocks {
        /// Number of blocks needed.
        needed: u64,
        /// Number of blocks without an owner.
        free: u64,
    },
    /// The maximum number of tenants is reached.
    #[error("the drive has {max} tenants, which is the limit")]
    TooManyTenants {
        /// Maximum number of tenants.
        max: u32,
    },
    /// The tenant does not exist.
    #[error("unknown tenant {0}")]
    NoTenant(u16),
    /// The spare space of the tenants exceeds that of the drive.
    #[error(
        "the tenants' over-provisioning takes {taken:.1}% of the flash, but only {spare:.1}% are spare"
    )]
    SpareTaken {
        /// Spare space of the tenants, per cent of the flash.
        taken: f64,
        /// Spare space of the drive, per cent of the flash.
        spare: f64,
    },
    /// The load arrives faster than the drive can serve it.
    #[error(
        "the drive cannot keep up with rate={rate} of tenant \"{tenant}\": too many requests are queued after {seconds:.3} s"
    )]
    Behind {
        /// Tenant of the load.
        tenant: String,
        /// Requests per second.
        rate: f64,
        /// Time since the start.
        seconds: f64,
    },
    /// The operation requires tenants with blocks of their own.
    #[error("the tenants share one pool of erase blocks, so no blocks can be transferred")]
    NotIsolated,
    /// The operation does not fit the mode of the drive: transfer of blocks that follow data and shares, or shares on a
    /// drive without them.
    #[error(
        "tenants must either share an address space and the spare blocks, or each have pages and spare blocks"
    )]
    ByShare,
    /// The shares of the spare blocks add up to more than 1.
    #[error("the sum of the over-provisioning shares is {sum}, which exceeds 1")]
    Shares {
        /// Sum of the shares.
        sum: f64,
    },
    /// The drive has too few spare blocks for this number of isolated tenants.
    #[error(
        "{tenants} isolated tenants need {needed} spare erase blocks on each unit with a log, but it has {spare}: \
         use more spare space, fewer tenants, or a smaller scale"
    )]
    SpareForTenants {
        /// Number of tenants.
        tenants: u32,
        /// Number of spare blocks per lane that are needed.
        needed: u64,
        /// Number of spare blocks per lane that are available.
        spare: u64,
    },
    /// The maps or lists of the drive are inconsistent. Only [`Ftl::verify`](crate::ftl::Ftl::verify) finds it.
    #[error("{part} {number} {fault}")]
    Inconsistent {
        /// `tenant`, `page`, `block` or `pool`.
        part: &'static str,
        /// Number of the part.
        number: usize,
        /// Fault of the part.
        fault: String,
    },
}
