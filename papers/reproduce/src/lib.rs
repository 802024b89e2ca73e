//! Reproduction of published experiments: claims of papers, compared with measurements.
//!
//! ```text
//!  Setup ──▶ jobs: reading × seed × … ──(the caller runs them in parallel)──▶ results
//!                                                                                │
//!  published claims and values ──▶ claims, reading by reading ◀── figures ◀─────┘
//!                                                └────────────────────┴──▶ Outcome: JSON, document
//! ```
//!
//! Functions only, without I/O. Published values are data with their source; measured values are never stored in the
//! code. No parameter of a setup was chosen by looking at its outcome.

pub mod autotiering;
pub mod claim;
pub mod dual_period;
pub mod dynamite;
pub mod ops_isolation;
mod page;
pub mod priority_lru;
pub mod summary;

pub use algo::Interval;
