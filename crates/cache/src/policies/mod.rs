//! One file for each policy; `registry` has a line for each.

pub(crate) mod arc;
pub(crate) mod clock;
pub(crate) mod fifo;
pub(crate) mod hr_lru;
pub(crate) mod lru;
pub(crate) mod priority_lru;
pub(crate) mod s3_fifo;
pub(crate) mod sieve;
pub(crate) mod slru;
