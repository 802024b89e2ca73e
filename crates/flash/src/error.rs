//! What can be wrong with a drive's description, and what it cannot do.

use thiserror::Error;

/// Why something about a drive was refused. Nothing has changed when one of these is returned.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FlashError {
    /// A number of the description is outside its range.
    #[error("{key} = {value} is outside {range}")]
    Range {
        /// Name of the setting.
        key: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// More pages than 32-bit maps can number.
    #[error(
        "{blocks} erase blocks of {pages} pages exceed the limit of {max} pages per drive: \
         scale the drive down"
    )]
    TooManyPages {
        /// Erase blocks.
        blocks: u64,
        /// Pages in each.
        pages: u64,
        /// Most pages.
        max: u64,
    },
    /// Too few blocks for anything to be collected.
    #[error(
        "the drive is too small: {blocks} erase blocks on each of {lanes} units with a log, at least 8 are required"
    )]
    TooSmall {
        /// Blocks of each lane.
        blocks: u64,
        /// Lanes.
        lanes: u64,
    },
    /// Garbage collection could come to a stop.
    #[error(
        "{blocks} erase blocks hold {data_pages} pages of data: garbage collection needs {needed} spare blocks, the drive has {spare:.2}"
    )]
    SpareTooSmall {
        /// Blocks of the pool.
        blocks: u64,
        /// Pages of data that it has to hold.
        data_pages: u64,
        /// Spare blocks needed.
        needed: u64,
        /// Spare blocks there are.
        spare: f64,
    },
    /// Too few reserve blocks for the streams.
    #[error(
        "{reserve} reserve blocks are too few for {destinations} streams of garbage collection: {needed} are required"
    )]
    ReserveTooSmall {
        /// Reserve blocks given.
        reserve: u32,
        /// Streams that collection writes to in one pool.
        destinations: u32,
        /// Reserve blocks needed.
        needed: u32,
    },
    /// No room for another tenant's data.
    #[error("a tenant of {pages} pages does not fit: the largest free range has {largest} pages")]
    NoSpace {
        /// Pages asked for.
        pages: u64,
        /// Largest range of pages that is free.
        largest: u64,
    },
    /// No room for another tenant's erase blocks.
    #[error("a tenant needs {needed} erase blocks, but only {free} are free")]
    NoBlocks {
        /// Blocks needed.
        needed: u64,
        /// Blocks that belong to nobody.
        free: u64,
    },
    /// All places for tenants are taken.
    #[error("the drive has {max} tenants, which is the limit")]
    TooManyTenants {
        /// Most tenants.
        max: u32,
    },
    /// There is no such tenant.
    #[error("unknown tenant {0}")]
    NoTenant(u16),
    /// Tenants' spare space is more than the drive's.
    #[error(
        "the tenants' over-provisioning takes {taken:.1}% of the flash, but only {spare:.1}% are spare"
    )]
    SpareTaken {
        /// What they take, per cent of the flash.
        taken: f64,
        /// What is spare, per cent.
        spare: f64,
    },
    /// A load that comes faster than it can be served.
    #[error(
        "the drive cannot keep up with rate={rate} of tenant \"{tenant}\": too many requests are queued after {seconds:.3} s"
    )]
    Behind {
        /// Whose load it is.
        tenant: String,
        /// Requests a second.
        rate: f64,
        /// Since the beginning.
        seconds: f64,
    },
    /// Something that only tenants with blocks of their own can do.
    #[error("the tenants share one pool of erase blocks, so no blocks can be transferred")]
    NotIsolated,
    /// Handing over blocks that follow data and shares, or asking for shares where they do not.
    #[error(
        "tenants must either share an address space and the spare blocks, or each have pages and spare blocks"
    )]
    ByShare,
    /// Shares of the spare blocks that are more than all of them.
    #[error("the sum of the over-provisioning shares is {sum}, which exceeds 1")]
    Shares {
        /// Their sum.
        sum: f64,
    },
    /// Too few spare blocks for so many tenants with blocks of their own.
    #[error(
        "{tenants} isolated tenants need {needed} spare erase blocks on each unit with a log, but it has {spare}: \
         use more spare space, fewer tenants, or a smaller scale"
    )]
    SpareForTenants {
        /// Tenants.
        tenants: u32,
        /// Spare blocks of a lane that are needed.
        needed: u64,
        /// Spare blocks of a lane that there are.
        spare: u64,
    },
}
