//! Paper 4: OPS isolation (Kim, Lee, Noh: Towards SLO Complying SSDs Through OPS Isolation, FAST 2015, and the slides
//! "Toward SLO Complying SSDs Through OPS Isolation" of October 2015, which contain more): every figure with a named
//! subject, and the claims about it.
//!
//! ```text
//!  Setup ──▶ cells: way × experiment × device × mix × seed ──(the caller runs them in parallel)──▶ results
//!                                                                                                    │
//!  claims with published values ──────────────────────▶ judged ◀── figures ◀─────────────────────────┘
//!                                                          └───────────┴──▶ Outcome: JSON, document
//! ```
//!
//! The slides print one number (30 %) and the parameters. The bars of their figures have no labels, so most claims are
//! signs.

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
