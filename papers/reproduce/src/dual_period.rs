//! Paper 1: dual-period tier control (Hayashi and Komoda: Data Location Optimization Method to Improve Tiered Storage
//! Performance), section 4: figures 3 to 9 and the claims about them.
//!
//! ```text
//!  Setup ──▶ jobs: construction × condition × seed ──(the caller runs them in parallel)──▶ Grid
//!                                                                                            │
//!  readings: construction × movement I/O ──▶ claims, in each ◀── figures ◀───────────────────┘
//!                                                  └───────────────┴──▶ Outcome: JSON, document
//! ```

mod charts;
mod choice;
mod claims;
mod document;
mod figures;
mod grid;
mod job;
mod method;
mod outcome;
mod queueing;
mod sensitivity;
mod setup;

pub use choice::Choice;
pub use document::document;
pub use figures::Figures;
pub use grid::Grid;
pub use job::{CellScore, Job, JobResult, MethodSet, Purpose};
pub use method::Method;
pub use outcome::{Outcome, SCHEMA};
pub use queueing::{Orders, Queueing, QueueingCell, QueueingDays, QueueingJob, QueueingSetup};
pub use setup::{Conditions, Setup, SetupError};
