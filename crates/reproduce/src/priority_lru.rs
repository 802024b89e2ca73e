//! Paper 2: Abashkin, Natanzon and Bachmat, Integrated Caching and Tiering According to Use and QoS Requirements: HR-LRU, Priority-LRU and
//! exchanges of extents behind them, tables I and II and figures 1 to 5.
//!
//! ```text
//!   recordings, intensities ──▶ Setup: four customers, and a modern array ──▶ jobs: array × (cache, back end)
//!                                                                                │  (the caller runs them side by side)
//!   published tables ─────────────▶ claims, judged ◀── rows, figures ◀───────────┘
//! ```
//!
//! The paper's traces are a vendor's and private: here customers are made up of recorded requests and measured intensities, and
//! only what holds within a customer is compared, never milliseconds across.

mod charts;
mod claims;
mod customer;
mod document;
mod job;
mod outcome;
mod published;
mod setup;

pub use claims::{Claim, Expected};
pub use customer::{Customer, Intensity, Recording, Role, Sources};
pub use document::document;
pub use job::{Job, JobResult, Variant};
pub use outcome::{Outcome, SCHEMA};
pub use setup::{Setup, SetupError};
