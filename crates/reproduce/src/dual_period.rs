//! Paper 1: dual-period tier control (Hayashi and Komoda: Data Location Optimization Method to Improve Tiered Storage
//! Performance), section 4: figures 3 to 9 and what is said about them.
//!
//! ```text
//!  Setup ──▶ jobs: condition × seed ──(the caller runs them side by side)──▶ Grid
//!                                                                             │
//!  claims with published values ──────────────▶ judged ◀── figures ◀──────────┘
//!                                                  └───────────┴──▶ Outcome: JSON, document
//! ```

mod charts;
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

pub use claims::{Claim, Measure, Outlook, Rule};
pub(crate) use claims::{claim, measure, near};
pub use document::document;
pub(crate) use document::{found, value};
pub use figures::Figures;
pub use grid::{Grid, Value};
pub use job::{CellScore, Job, JobResult, Purpose};
pub use method::Method;
pub use outcome::{Outcome, SCHEMA};
pub use queueing::{Orders, Queueing, QueueingCell, QueueingDays, QueueingJob, QueueingSetup};
pub use setup::{Setup, SetupError};
