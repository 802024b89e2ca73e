//! Everything that the reproduction found, as plain data.

use serde::Serialize;
use slo::Decision;

use super::claims::{Claim, claims};
use super::figures::{Figures, run_of};
use super::recorded::RecordedRow;
use super::summary::{Summary, deciding};
use super::variants::{Setup, Variant, VariantRun};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.dynamite/1";

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// What was run.
    pub setup: Setup,
    /// Requests that the results rest on.
    pub requests: u64,
    /// Claims, `published` beside `ours`.
    pub scorecard: Vec<Claim>,
    /// Variants in numbers.
    pub variants: Vec<Summary>,
    /// The numbers of the figures.
    pub figures: Figures,
    /// The reactive variant's decision with all its evidence.
    pub decision: Option<Decision>,
    /// The same with the whole ladder.
    pub ladder: Option<Decision>,
    /// Recorded volumes.
    pub recorded: Vec<RecordedRow>,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// From all runs.
    pub fn new(
        version: &str,
        setup: Setup,
        runs: &[VariantRun],
        recorded: Vec<RecordedRow>,
    ) -> Self {
        let variants: Vec<Summary> = runs.iter().map(Summary::new).collect();
        let figures = Figures::new(runs, &recorded);
        let decision = |v| {
            run_of(runs, v)
                .and_then(|r| deciding(&r.result.decisions))
                .cloned()
        };
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests: runs.iter().map(|r| r.result.requests).sum(),
            scorecard: claims(runs, &variants, &figures),
            decision: decision(Variant::Reactive),
            ladder: decision(Variant::Ladder),
            variants,
            figures,
            recorded,
            assumptions: setup.assumptions(),
            setup,
        }
    }
}
