//! Paper 2: Abashkin, Natanzon and Bachmat, Integrated Caching and Tiering According to Use and QoS Requirements: HR-LRU, Priority-LRU and
//! exchanges of extents behind them, tables I and II and figures 1 to 5.
//!
//! ```text
//!   recordings, intensities ──▶ Setup: four customers, and a modern array ──▶ jobs: seed × array × load, all (cache, back end)
//!                                                                                │  (the caller runs them side by side)
//!   readings: load × mean ──▶ claims, in each ◀── tables, figures ◀──────────────┘
//! ```
//!
//! The paper's traces are a vendor's and private: here customers are made up of recorded requests and measured intensities, and
//! only what holds within a customer is compared, never milliseconds across.

mod array;
mod arrays;
mod charts;
mod claims;
mod customer;
mod document;
mod job;
mod matching;
mod outcome;
mod published;
mod result;
mod scenario;
mod sequence;
mod setup;
mod view;

pub use array::ArrayError;
pub use arrays::Scale;
pub use customer::{Customer, Intensity, Recording, Role, Sources};
pub use document::document;
pub use job::{ArrayKind, Job, JobResult, Load, Run, Variant};
pub use matching::MatchResult;
pub use outcome::{Outcome, Row, SCHEMA, Table, Tables};
pub use result::{ArrayResult, GroupResult, HourResult, WearResult};
pub use setup::{Setup, SetupError};
pub use view::Mean;
