//! Paper 0: AutoTiering (Yang et al., IPCCC 2017), Sec. V, Figs. 2 to 7.

mod claims;
mod document;
mod figures;
mod measured;
mod outcome;
mod readings;
mod setup;
mod tsscs;

pub use document::document;
pub use figures::Figures;
pub use measured::{RunMeasurements, TierOverTime};
pub use outcome::{NoopComparison, Outcome, SCHEMA};
pub use readings::{NOMINAL, SCENES, Scene};
pub use setup::{CORRECTED, Job, LITERAL, MOVES_CHARGED, PATIENT, STRATEGIES, Setup, SetupError};
pub use tsscs::{Regression, TsscsError, regressions};
