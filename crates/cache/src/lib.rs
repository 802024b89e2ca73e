//! Caches of pages in front of devices: what stays, what goes.

mod lists;
mod policies;
mod policy;
mod position;
mod priorities;
mod rates;
mod segmented;

pub use policies::arc::Arc;
pub use policies::clock::Clock;
pub use policies::fifo::Fifo;
pub use policies::lru::Lru;
pub use policies::s3_fifo::S3Fifo;
pub use policies::sieve::Sieve;
pub use policies::slru::Slru;
pub use policy::{BATCH, CAPACITY_PAGES_MAX, Counts, Outcome, Policy, replay, replay_each};
pub use position::{Position, SEGMENTS};
pub use priorities::{PRIORITY_MAX_PERCENT, PRIORITY_STEP_PERCENT, Priorities, insertion};
pub use rates::{ExtentRates, POSITION_MIN_PERCENT, RatesConfig, UnknownExtent, interval};
pub use segmented::{OnHit, SegmentedLru};
