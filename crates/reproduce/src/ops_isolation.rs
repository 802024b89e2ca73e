//! Paper 4: OPS isolation (Kim, Lee, Noh: Towards SLO Complying SSDs Through OPS Isolation, FAST 2015, and the slides "Toward SLO Complying
//! SSDs Through OPS Isolation" of October 2015, which go beyond it): every figure whose subject is named, and what is said about it.
//!
//! ```text
//!  Setup ──▶ cells: way × experiment × device × mix × seed ──(the caller runs them side by side)──▶ results
//!                                                                                                     │
//!  claims with published values ──────────────────────▶ judged ◀── figures ◀──────────────────────────┘
//!                                                          └───────────┴──▶ Outcome: JSON, document
//! ```
//!
//! The slides print one number (30 %) and the parameters; the bars of their figures have no labels. So the claims are mostly signs.

mod assumptions;
mod cell;
mod cells;
mod claims;
mod device;
mod document;
mod effects;
mod figures;
mod mode;
mod readings;
mod setup;

pub use cell::{Cell, CellResult};
pub use device::Device;
pub use document::document;
pub use effects::{Change, Effect};
pub use figures::{Figures, OfSeed, Row};
pub use mode::{Mode, ServiceMode, SharingMode};
pub use readings::Way;
pub use setup::{Outcome, SCHEMA, Setup, SetupError};
