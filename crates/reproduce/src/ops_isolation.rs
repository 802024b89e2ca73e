//! Paper 4: OPS isolation (Kim, Lee, Noh: Towards SLO Complying SSDs Through OPS Isolation, FAST 2015, and the slides "Toward SLO Complying
//! SSDs Through OPS Isolation" of October 2015, which go beyond it): every figure whose subject is named, and what is said about it.
//!
//! ```text
//!  Setup ──▶ cells: experiment × device × mix × seed ──(the caller runs them side by side)──▶ results
//!                                                                                               │
//!  claims with published values ──────────────────────▶ judged ◀── figures ◀────────────────────┘
//!                                                          └───────────┴──▶ Outcome: JSON, document
//! ```
//!
//! The slides print one number (30 %) and the parameters; the bars of their figures have no labels. So the claims are mostly signs.

mod cell;
mod claims;
mod document;
mod figures;
mod setup;

pub use cell::{Cell, CellResult, Device, Mode};
pub use document::document;
pub use figures::{Figures, Row};
pub use setup::{Outcome, SCHEMA, Setup, SetupError};
