//! Paper 3: Dynamite (Bairavasundaram and others: Responding Rapidly to Service Level Violations Using Virtual
//! Appliances, 2012), section 7: figures 1 and 5 to 7, and the claims about them.
//!
//! ```text
//!  Setup ──▶ first variants ──▶ peak recorded in the co-located run ──▶ proactive variants
//!                │                                                            │
//!  claims with published values ────────▶ judged ◀── figures ◀────────────────┘
//!                                           └───────────┴──▶ Outcome: JSON, document ◀── recorded volumes
//! ```
//!
//! The traces (MSR Cambridge's usr_1) are not available here: USR-1 is a stand-in built to its published phases.

mod array;
mod case;
mod charts;
mod claims;
mod document;
mod exact;
mod figures;
mod load;
mod outcome;
mod over_seeds;
mod readings;
mod recorded;
mod result;
mod scenario;
mod summary;
mod variants;

pub use array::ArrayModel;
pub use document::document;
pub use figures::Figures;
pub use outcome::{Outcome, SCHEMA};
pub use over_seeds::OverSeeds;
pub use readings::FillRate;
pub use recorded::{RecordedRow, RecordedRun, RecordedVolume, recorded_volumes};
pub use result::{CaseEvent, CaseResult, CaseSeries, CurvePair};
pub use scenario::StandIn;
pub use summary::Summary;
pub use variants::{RunOf, Setup, Study, Variant, VariantRun};
