//! Miss-ratio curves of LRU caches: exact, sampled, and from working sets.
//!
//! ```text
//!                       ┌─ Exact       every reference                        curve for every size
//!  references ──────────┼─ FixedRate   SHARDS: blocks below a threshold       rate known beforehand
//!                       ├─ Segment     the same of a part of a trace          parts merge
//!  (block, read/write)  ├─ FixedSize   SHARDS: the s_max lowest hashes        memory known beforehand
//!                       ├─ ReuseTimes  AET: histogram of reuse times          cheapest, composable
//!                       └─ WorkingSets distinct blocks per window, Denning    no block is remembered
//!  rates of blocks ─────── che()                                              no references at all
//! ```
//!
//! Blocks are numbers of one fixed block size. A hash of an address is not sufficient if requests have mixed sizes. So
//! the caller converts a request to one reference per page. Sizes of caches are in blocks.
//!
//! All estimators are for LRU and, roughly, similar policies. They do not apply to ARC, S3-FIFO or other policies with
//! frequency. For those, simulate a small cache on the sampled references.
//!
//! Write-around caches, which drop the written block, see only reads. Pass such writes to the `invalidate` of each
//! estimator.

mod aet;
mod che;
mod curve;
mod distances;
mod exact;
mod hyperloglog;
mod sampler;
mod segment;
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
pub use exact::ExactCurve;
pub use hyperloglog::HyperLogLog;
pub use sampler::{MODULUS, SAMPLED_BLOCKS_MIN, Sampler};
pub use segment::{OtherSample, Segment, SegmentBuilder};
pub use shards::FixedRate;
pub use shards_size::FixedSize;
pub use wss::{WorkingSet, WorkingSets};
