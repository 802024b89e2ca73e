//! Policies, one file each. `registry` has a line for each.

pub(crate) mod arc;
pub(crate) mod belady;
pub(crate) mod clock;
pub(crate) mod fifo;
pub(crate) mod hr_lru;
pub(crate) mod lfu;
pub(crate) mod lirs;
pub(crate) mod lru;
pub(crate) mod priority_lru;
pub(crate) mod s3_fifo;
pub(crate) mod sieve;
pub(crate) mod slru;
pub(crate) mod two_q;
pub(crate) mod w_tinylfu;
