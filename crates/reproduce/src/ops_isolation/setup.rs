//! What is run, and what came of it.

use serde::Serialize;
use thiserror::Error;

use super::assumptions::assumptions;
use super::cell::{Cell, CellResult};
use super::claims::claims;
use super::figures::Figures;
use crate::dual_period::Claim;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.ops-isolation/2";

/// What is run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Loads are drawn from each.
    pub seeds: Vec<u64>,
    /// Simulated time that counts on a drive of one unit, seconds; faster devices take less.
    pub seconds: u64,
    /// Space of each tenant, MiB.
    pub tenant_mib: u64,
}

/// What makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// No interval from one seed.
    #[error("at least 2 seeds are needed, not {0}: one has no interval")]
    Seeds(u64),
}

impl Setup {
    /// From the first seed on, `seeds` of them; a quick one is shorter and smaller.
    ///
    /// # Errors
    /// With fewer than two seeds.
    pub fn new(seeds: u64, first: u64, quick: bool) -> Result<Self, SetupError> {
        if seeds < 2 {
            return Err(SetupError::Seeds(seeds));
        }
        Ok(Self {
            seeds: (first..first + seeds).collect(),
            seconds: if quick { 300 } else { 1000 },
            tenant_mib: if quick { 64 } else { 256 },
        })
    }

    /// All cells.
    pub fn cells(&self) -> Vec<Cell> {
        let seeds = self.seeds.iter();
        seeds
            .flat_map(|seed| super::cells::cells(self, *seed))
            .collect()
    }
}

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// What was run.
    pub setup: Setup,
    /// Claims, `published` beside `ours`.
    pub scorecard: Vec<Claim>,
    /// The numbers of the figures.
    pub figures: Figures,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// Judges results, which are in the order of [`Setup::cells`].
    pub fn new(version: &str, setup: Setup, results: &[CellResult]) -> Self {
        let figures = Figures::new(results);
        Self {
            schema: SCHEMA,
            version: version.into(),
            scorecard: claims(&figures),
            assumptions: assumptions(&setup),
            figures,
            setup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_refused_and_cells_are_distinct() {
        assert_eq!(Setup::new(1, 1, false), Err(SetupError::Seeds(1)));
        let setup = Setup::new(2, 5, true).unwrap();
        let cells = setup.cells();
        let mut names: Vec<String> = cells.iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cells.len());
        assert_eq!(cells.len() % 2, 0);
    }
}
