//! Outcome of the reproduction as plain data.

use serde::Serialize;
use slo::Decision;

use super::claims::{OfSeed, claims};
use super::figures::{Figures, run_of};
use super::over_seeds::OverSeeds;
use super::readings::FillRate;
use super::recorded::RecordedRow;
use super::summary::{Summary, deciding};
use super::variants::{Setup, Variant, VariantRun};
use crate::claim::{ClaimFinding, Reading, Scorecard};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.dynamite/4";

/// Outcome of the reproduction.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Setup of the runs.
    pub setup: Setup,
    /// Number of simulated requests.
    pub requests: u64,
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// Numbers of the variants over all seeds, reading by reading.
    pub over_seeds: Vec<OverSeeds>,
    /// Numbers of the variants with the first seed, in the first reading.
    pub variants: Vec<Summary>,
    /// Numbers of the figures with the first seed, in the first reading.
    pub figures: Figures,
    /// Decision of the reactive variant with all its evidence, with the first seed.
    pub decision: Option<Decision>,
    /// Decision with all remedies.
    pub ladder: Option<Decision>,
    /// Recorded volumes.
    pub recorded: Vec<RecordedRow>,
    /// Assumptions for details that are not published.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// Creates the outcome from all runs; without runs of the case study if only recordings were run.
    pub fn new(
        version: &str,
        setup: Setup,
        runs: &[VariantRun],
        recorded: Vec<RecordedRow>,
    ) -> Self {
        let studies = setup.studies(runs);
        let mut found: Vec<(Reading, Vec<ClaimFinding>)> = Vec::new();
        let mut over_seeds = Vec::new();
        let mut variants = Vec::new();
        for filling in FillRate::ALL {
            let of = studies.iter().filter(|s| s.filling == filling);
            let seeds: Vec<OfSeed<'_>> = of.map(OfSeed::new).collect();
            found.push((filling.reading(), claims(&seeds)));
            over_seeds.extend(over(filling, &seeds));
            if let (FillRate::Fast, Some(first)) = (filling, seeds.into_iter().next()) {
                variants = first.summaries;
            }
        }
        let first = studies.first().map_or(&[][..], |s| &s.runs);
        let decision = |v| run_of(first, v).and_then(|r| deciding(&r.result.decisions));
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests: runs.iter().map(|r| r.result.requests).sum(),
            scorecard: Scorecard::new(found),
            over_seeds,
            decision: decision(Variant::Reactive).cloned(),
            ladder: decision(Variant::Ladder).cloned(),
            variants,
            figures: Figures::new(first, &recorded),
            recorded,
            assumptions: setup.assumptions(),
            setup,
        }
    }
}

/// Combines every variant of a reading over its seeds.
fn over(filling: FillRate, seeds: &[OfSeed<'_>]) -> Vec<OverSeeds> {
    let first = seeds.first().map_or(&[][..], |s| &s.summaries);
    let one = |summary: &Summary| {
        let same = |s: &&Summary| s.variant == summary.variant;
        let all = seeds.iter().filter_map(|s| s.summaries.iter().find(same));
        OverSeeds::new(filling, summary.variant, &all.collect::<Vec<_>>())
    };
    first.iter().map(one).collect()
}
