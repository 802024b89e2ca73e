//! What is run, and what came of it.

use serde::Serialize;
use thiserror::Error;

use super::assumptions::assumptions;
use super::cell::{Cell, CellResult};
use super::claims::claims;
use super::figures::Figures;
use super::readings::Way;
use crate::claim::{Found, Reading, Scorecard};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.ops-isolation/3";

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
    #[error("at least 2 seeds are required, not {0}: one seed gives no interval")]
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
            seconds: if quick { 120 } else { 1000 },
            tenant_mib: if quick { 64 } else { 256 },
        })
    }

    /// All cells.
    pub fn cells(&self) -> Vec<Cell> {
        let of_seed = |seed: &u64| {
            let ways = Way::ALL.map(|way| super::cells::cells(self, way, *seed));
            ways.into_iter().flatten()
        };
        self.seeds.iter().flat_map(of_seed).collect()
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
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// The numbers of the figures.
    pub figures: Figures,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// Judges results, which are in the order of [`Setup::cells`].
    pub fn new(version: &str, setup: Setup, results: &[CellResult]) -> Self {
        let figures = Figures::new(&setup.cells(), results);
        let found = found(&figures);
        Self {
            schema: SCHEMA,
            version: version.into(),
            scorecard: Scorecard::new(found),
            assumptions: assumptions(&setup),
            figures,
            setup,
        }
    }
}

/// Way by way, and in each the service first in whose readings everything is asked.
fn found(figures: &Figures) -> Vec<(Reading, Vec<Found>)> {
    let one = |way: Way, service| (way.reading(service), claims(figures, way, service));
    let of_way = |way: Way| {
        way.services()
            .into_iter()
            .map(move |service| one(way, service))
    };
    Way::ALL.into_iter().flat_map(of_way).collect()
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
