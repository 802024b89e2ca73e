//! Published experiments, repeated: what a paper claims beside what is measured here.
//!
//! ```text
//!  Setup ──▶ jobs: reading × seed × … ──(the caller runs them side by side)──▶ results
//!                                                                                │
//!  what is said, published values ──▶ claims, reading by reading ◀── figures ◀───┘
//!                                                └────────────────────┴──▶ Outcome: JSON, document
//! ```
//!
//! Functions only, without I/O. Published values are data with their source; no value of ours is written down anywhere.
//! Nothing in a setup was chosen by looking at the outcome.

pub mod autotiering;
pub mod claim;
pub mod dual_period;
pub mod dynamite;
pub mod ops_isolation;
mod page;
pub mod priority_lru;
pub mod summary;

pub use algo::Interval;
