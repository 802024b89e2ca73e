//! Miss-ratio curves of LRU caches: exact, sampled, and from working sets.
//!
//! ```text
//!                       ┌─ Exact       every reference                        curve for every size
//!  references ──────────┼─ FixedRate   SHARDS: blocks below a threshold       rate known beforehand
//!  (block, read/write)  ├─ FixedSize   SHARDS: the s_max lowest hashes        memory known beforehand
//!                       ├─ ReuseTimes  AET: histogram of reuse times          cheapest, composable
//!                       └─ WorkingSets distinct blocks per window, Denning    no block is remembered
//!  rates of blocks ─────── che()                                              no references at all
//! ```
//!
//! Blocks are numbers of one fixed size of block. The hash of an address says nothing about pages when requests have mixed
//! sizes, so a request is as many references as it touches pages, and the caller makes them. Sizes of caches are in blocks.
//!
//! All of them are about LRU and, roughly, what behaves like it. Not for ARC, S3-FIFO or anything that looks at frequency: there
//! a small cache has to be simulated on the sampled references.
//!
//! Caches that writes go around (they drop the block they write) see reads only, and forget what is written: such writes are fed
//! with the `invalidate` of each estimator.

mod aet;
mod che;
mod curve;
mod distances;
mod exact;
mod hyperloglog;
mod sampler;
mod shards;
mod shards_size;
mod spread;
#[cfg(test)]
mod tests;
mod wss;

pub use aet::ReuseTimes;
pub use che::{Che, che};
pub use curve::{Confidence, Curve, CurveError};
pub use distances::Distances;
pub use exact::Exact;
pub use hyperloglog::HyperLogLog;
pub use sampler::{MODULUS, SAMPLED_BLOCKS_MIN, Sampler};
pub use shards::FixedRate;
pub use shards_size::FixedSize;
pub use wss::{WorkingSet, WorkingSets};
