//! What is run, and what came of it.

use serde::Serialize;
use thiserror::Error;

use super::cell::{Cell, CellResult};
use super::claims::claims;
use super::figures::Figures;
use crate::dual_period::Claim;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.ops-isolation/1";

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
            .flat_map(|seed| super::cell::cells(self, *seed))
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

fn assumptions(setup: &Setup) -> Vec<String> {
    let mib = setup.tenant_mib;
    [
        "Financial, MSN, Exchange and Proj are stand-ins: mixes of kind, size and skew typical of these traces' families (23, 67, 50 and 15 % reads; \
         4 to 8, 8 to 64, 8 to 32 and 4 to 64 KiB; Zipf 1.0, 0.8, 0.8 and 0.6). The paper captured its own traces while the virtual machines ran.",
        "Loads are closed loops with 16 requests outstanding per virtual machine. The paper does not say how its traces were replayed.",
        "Host weights are start-time fair queueing of bytes in front of the device, without idling. Linux's CFQ of 2014 shares time in slices, \
         idles on disks and not on SSDs with queues; the disk is therefore run with one request at a time, SSDs with 32 tags.",
        "The drive of part 1's measurements is four units of the slides' table on four channels; that of the simulations is one unit, as in the \
         cost formula. Clean: filled once, half of the flash free, too short a run for collection. Aged: overwritten by chance until steady, \
         then by the loads themselves.",
        "The drive of part 2 (Samsung 850 PRO) is eight such units on eight channels with a write buffer of 8 MiB; \"1CH\" is one of them. Erase blocks of these scaled-down drives are a quarter of the slides', so that there are enough of them; the disk is \
         one of 7,200 turns a minute.",
        "\"Dynamically adjust OPS\" is a controller of ours: every 10 s it moves a fiftieth of the spare blocks of the tenant that is best off to the one \
         that is worst off, and the donor's collection is charged to the donor.",
        "Fairness of what: the formula gives the IOPS that a virtual machine gets while the device serves it. Under first come, first served, equal \
         depths give equal IOPS whatever the spare space; both are shown.",
    ]
    .into_iter()
    .map(String::from)
    .chain([format!("Every virtual machine has {mib} MiB: small drives reach a steady state sooner and amplify alike.")])
    .collect()
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
