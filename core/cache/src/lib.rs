//! Page caches in front of devices: insertion and eviction.
//!
//! ```text
//!   requests ──▶ PageCache ──▶ effects: read, destage, write through
//!                 │ read part: any Policy      ExtentRates ─┐
//!                 └ write part: dirty pages    Priorities ──┴─▶ insertion ─▶ Position of a missed page
//!
//!   references ──▶ replay(policy)              hits and misses of one cache
//!              ──▶ StackSizes                  of LRU caches of many sizes, in one pass
//! ```
//!
//! ```text
//!   volumes that are added and removed ──▶ ResidentPages    a frame per cached page, for policies without memory of others
//! ```
//!
//! Pages have dense numbers (`u32`), assigned by a caller that knows volumes and offsets. So a policy needs 4 bytes per
//! page number and no hashing. A policy is one file in `policies` and one line in the registry. All policies are
//! sans-io: they read no device and no clock, and the driver ends slices and hours.
//!
//! Not part of this crate: placement, latency, and the choice of an extent for a page.

#![warn(missing_docs)]

mod dense;
mod evaluate;
mod huge;
mod layout;
mod lists;
mod page_cache;
mod policies;
mod policy;
mod position;
mod priorities;
mod rates;
mod references;
mod registry;
mod resident;
mod segmented;
mod stack;
mod switches;

pub use dense::{DENSE_MAX, DenseIds};
pub use evaluate::{
    EvaluateOptions, Evaluation, ResponseTimes, Tally, evaluate, evaluate_optimum, evaluate_stack,
};
pub use layout::PageLayout;
pub use page_cache::{
    Effect, Origin, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PAGES_PER_EXTENT, PageCache, PageCacheConfig,
    PageCacheError, PageCounts, WriteMode, is_page_size,
};
pub use policies::arc::Arc;
pub use policies::belady::{Belady, TooManyReferences};
pub use policies::clock::Clock;
pub use policies::fifo::Fifo;
pub use policies::hr_lru::HrLru;
pub use policies::lfu::Lfu;
pub use policies::lirs::Lirs;
pub use policies::lru::Lru;
pub use policies::priority_lru::PriorityLru;
pub use policies::s3_fifo::S3Fifo;
pub use policies::sieve::Sieve;
pub use policies::slru::Slru;
pub use policies::two_q::TwoQ;
pub use policies::w_tinylfu::WTinyLfu;
pub use policy::{BATCH, CAPACITY_PAGES_MAX, Counts, Outcome, Policy, replay, replay_each};
pub use position::{Position, SEGMENTS};
pub use priorities::{PRIORITY_MAX_PERCENT, PRIORITY_STEP_PERCENT, Priorities, insertion};
pub use rates::{ExtentRates, POSITION_MIN_PERCENT, RatesConfig, UnknownExtent, interval};
pub use references::{
    EXTENT_BYTES, REFERENCES_MAX, References, ReferencesBuilder, ReferencesConfig, ReferencesError,
    SLICE_NS, SLICES_PER_HOUR, SliceEnd,
};
pub use registry::{AnyPolicy, PolicyEntry, PolicyKind, PolicyOptions, REGISTRY, UnknownPolicy};
pub use resident::{CachePartError, FRAMES_BESIDE, PartNo, ResidentPages, VolumeNo};
pub use segmented::SegmentedLru;
pub use stack::{STACK_SIZES_MAX, StackSizes};
pub use switches::{Ageing, OnHit};
