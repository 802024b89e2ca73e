//! Published experiments, repeated: what a paper claims beside what is measured here.
//!
//! ```text
//!  Setup ──▶ scenario per seed ──(the caller runs seed × strategy)──▶ RunResult
//!                                                                        │
//!  claims, published values ───────────────▶ Scorecard ◀── figures ◀─────┘
//!                                                └────────────┴──▶ Outcome: JSON, document
//! ```
//!
//! Functions only, without I/O. Published values are data with their source; no value of ours is written down anywhere.
//! Nothing in a setup was chosen by looking at the outcome.

pub mod autotiering;
pub mod dual_period;
pub mod dynamite;
pub mod ops_isolation;
mod page;
pub mod priority_lru;

pub use algo::Interval;
