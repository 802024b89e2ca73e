//! Everything that the reproduction found, as plain data.

use serde::Serialize;
use sim::{RunResult, SensitivityRow};

use super::figures::Figures;
use super::measured::{Measured, SeedRuns};
use super::scorecard::{Claim, scorecard};
use super::setup::{STRATEGIES, Setup};
use super::tsscs::Regression;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.autotiering/1";

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// What was run.
    pub setup: Setup,
    /// Under which strategies.
    pub strategies: Vec<&'static str>,
    /// Requests that the results rest on.
    pub requests: u64,
    /// Claims, `published` beside `ours`.
    pub scorecard: Vec<Claim>,
    /// The numbers of the figures.
    pub figures: Figures,
    /// Sensitivity without injection, where it was asked for.
    pub passive_sensitivity: Option<Vec<SensitivityRow>>,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// From the runs, seed by seed in the order of [`STRATEGIES`].
    ///
    /// # Panics
    /// If there are not as many runs as seeds times strategies.
    pub fn new(
        version: &str,
        setup: Setup,
        runs: &[RunResult],
        fig2: Vec<Regression>,
        passive_sensitivity: Option<Vec<SensitivityRow>>,
    ) -> Self {
        assert_eq!(
            runs.len(),
            setup.seeds.len() * STRATEGIES.len(),
            "a run per seed and strategy"
        );
        let seeds: Vec<SeedRuns> = runs
            .chunks_exact(STRATEGIES.len())
            .map(|runs| SeedRuns {
                runs: runs.iter().map(|r| Measured::new(r, &setup)).collect(),
            })
            .collect();
        Self {
            schema: SCHEMA,
            version: version.into(),
            strategies: STRATEGIES.into(),
            requests: runs.iter().map(|r| r.total().all.ios).sum(),
            scorecard: scorecard(&seeds),
            figures: Figures::new(&seeds, &runs[..STRATEGIES.len()], fig2),
            passive_sensitivity,
            assumptions: setup.assumptions(),
            setup,
        }
    }
}
