//! Setup and outcome of the reproduction.

use serde::Serialize;
use thiserror::Error;

use super::assumptions::assumptions;
use super::cell::{Cell, CellResult};
use super::claims::claims;
use super::figures::Figures;
use super::readings::Way;
use crate::claim::{ClaimFinding, Reading, Scorecard};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.ops-isolation/3";

/// Setup of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Seeds of the loads.
    pub seeds: Vec<u64>,
    /// Counted simulated time on a drive of one unit, in seconds; faster devices use less.
    pub seconds: u64,
    /// Space of each tenant in MiB.
    pub tenant_mib: u64,
}

/// Invalid setup.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// One seed gives no interval.
    #[error("at least 2 seeds are required, not {0}: one seed gives no interval")]
    Seeds(u64),
}

impl Setup {
    /// Creates a setup with `seeds` seeds from the first one on. A quick one is shorter and smaller.
    ///
    /// # Errors
    /// Fewer than two seeds.
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

    /// Returns all cells.
    pub fn cells(&self) -> Vec<Cell> {
        let of_seed = |seed: &u64| {
            let ways = Way::ALL.map(|way| super::cells::cells(self, way, *seed));
            ways.into_iter().flatten()
        };
        self.seeds.iter().flat_map(of_seed).collect()
    }
}

/// Outcome of the reproduction.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Setup of the runs.
    pub setup: Setup,
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// Numbers of the figures.
    pub figures: Figures,
    /// Assumptions for details that are not published.
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

/// Returns the results by way of running. In each way, the service in whose reading all claims are judged comes first.
fn found(figures: &Figures) -> Vec<(Reading, Vec<ClaimFinding>)> {
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
    fn single_seed_is_refused_and_cells_are_distinct() {
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
