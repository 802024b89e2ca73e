//! Paper 0: AutoTiering (Yang et al., IPCCC 2017), Sec. V, Figs. 2 to 7.

mod claims;
mod document;
mod figures;
mod measured;
mod outcome;
mod scorecard;
mod setup;
mod tsscs;

pub use document::document;
pub use figures::Figures;
pub use outcome::{Outcome, SCHEMA};
pub use scorecard::{Cell, Claim, Verdict};
pub use setup::{CORRECTED, LITERAL, STRATEGIES, Setup, SetupError};
pub use tsscs::{Regression, TsscsError, regressions};
