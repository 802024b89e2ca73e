//! Everything that the reproduction found, as plain data.

use serde::Serialize;
use slo::Decision;

use super::claims::{Claim, claims, merged};
use super::figures::{Figures, run_of};
use super::recorded::RecordedRow;
use super::spread::OverSeeds;
use super::summary::{Summary, deciding};
use super::variants::{Setup, Study, Variant};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.dynamite/2";

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
    /// Variants in numbers, over all seeds.
    pub over_seeds: Vec<OverSeeds>,
    /// Variants in numbers, with the first seed.
    pub variants: Vec<Summary>,
    /// The numbers of the figures, with the first seed.
    pub figures: Figures,
    /// The reactive variant's decision with all its evidence, with the first seed.
    pub decision: Option<Decision>,
    /// The same with the whole ladder.
    pub ladder: Option<Decision>,
    /// Recorded volumes.
    pub recorded: Vec<RecordedRow>,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

impl Outcome {
    /// From all runs; every study has the same variants.
    pub fn new(version: &str, setup: Setup, studies: &[Study], recorded: Vec<RecordedRow>) -> Self {
        let no_runs = Study {
            seed: 0,
            runs: Vec::new(),
        };
        let first = studies.first().unwrap_or(&no_runs);
        let summaries = |study: &Study| study.runs.iter().map(Summary::new).collect();
        let by_seed: Vec<Vec<Summary>> = studies.iter().map(summaries).collect();
        let over_seeds = first.runs.iter().enumerate().map(|(i, run)| {
            let same: Vec<&Summary> = by_seed.iter().map(|s| &s[i]).collect();
            OverSeeds::new(run.variant, &same)
        });
        let judged = |(study, summaries): (&Study, &Vec<Summary>)| {
            let figures = Figures::new(&study.runs, &[]);
            claims(&setup, &study.runs, summaries, &figures)
        };
        let scorecard = match studies {
            [] => merged(&[claims(&setup, &[], &[], &Figures::new(&[], &[]))]),
            _ => merged(&studies.iter().zip(&by_seed).map(judged).collect::<Vec<_>>()),
        };
        let figures = Figures::new(&first.runs, &recorded);
        let decision = |v| {
            run_of(&first.runs, v)
                .and_then(|r| deciding(&r.result.decisions))
                .cloned()
        };
        let all = studies.iter().flat_map(|s| &s.runs);
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests: all.map(|r| r.result.requests).sum(),
            scorecard,
            over_seeds: over_seeds.collect(),
            decision: decision(Variant::Reactive),
            ladder: decision(Variant::Ladder),
            variants: by_seed.into_iter().next().unwrap_or_default(),
            figures,
            recorded,
            assumptions: setup.assumptions(),
            setup,
        }
    }
}
