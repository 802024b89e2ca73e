//! Outcome of the reproduction as plain data.

use serde::Serialize;
use sim::SensitivityRow;

use super::claims::claims;
use super::figures::Figures;
use super::measured::{RunMeasurements, SeedRuns};
use super::readings::{SCENES, Scene, VIEWS};
use super::setup::{STRATEGIES, Setup};
use super::tsscs::Regression;
use crate::claim::{Scorecard, Value};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.autotiering/2";

/// Outcome of the reproduction.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Setup of the runs.
    pub setup: Setup,
    /// Strategies that were run.
    pub strategies: Vec<&'static str>,
    /// Total number of measured requests.
    pub requests: u64,
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// Every strategy compared with `noop`.
    pub beside_noop: Vec<NoopComparison>,
    /// Numbers of the figures, in the scene of the first reading.
    pub figures: Figures,
    /// Sensitivity without injection, if requested.
    pub passive_sensitivity: Option<Vec<SensitivityRow>>,
    /// Assumptions for details that are not published.
    pub assumptions: Vec<String>,
}

/// Strategy in a scene, compared with `noop` under the same seed. A rival that is worse than `noop` is a weak baseline.
#[derive(Debug, Clone, Serialize)]
pub struct NoopComparison {
    /// Scene.
    pub scene: Scene,
    /// Strategy.
    pub strategy: &'static str,
    /// IOPS of all tiers.
    pub iops: Option<Value>,
    /// Ratio of IOPS to those of `noop`.
    pub iops_over_noop: Option<Value>,
    /// Ratio of mean latency to that of `noop`.
    pub latency_over_noop: Option<Value>,
    /// Moved data, GiB.
    pub gib_moved: Option<Value>,
}

impl Outcome {
    /// Creates the outcome from the runs, in the order of [`Setup::jobs`].
    ///
    /// # Panics
    /// If the number of runs differs from the number of jobs.
    pub fn new(
        version: &str,
        setup: Setup,
        runs: Vec<RunMeasurements>,
        fig2: Vec<Regression>,
        passive_sensitivity: Option<Vec<SensitivityRow>>,
    ) -> Self {
        assert_eq!(runs.len(), setup.jobs().len(), "a run per job");
        let requests = runs.iter().map(|r| r.requests).sum();
        let seeds: Vec<SeedRuns> = runs
            .chunks_exact(STRATEGIES.len())
            .map(|runs| SeedRuns { runs: runs.into() })
            .collect();
        let of = |scene: Scene| -> &[SeedRuns] {
            let at = SCENES.iter().position(|s| *s == scene);
            let from = at.expect("one of the scenes") * setup.seeds.len();
            &seeds[from..][..setup.seeds.len()]
        };
        let found: Vec<_> = VIEWS
            .iter()
            .map(|view| (view.reading(), claims(of(view.scene), *view)))
            .collect();
        Self {
            schema: SCHEMA,
            version: version.into(),
            strategies: STRATEGIES.into(),
            requests,
            scorecard: Scorecard::new(found),
            beside_noop: SCENES
                .into_iter()
                .flat_map(|s| beside_noop(s, of(s)))
                .collect(),
            figures: Figures::new(&setup, of(SCENES[0]), fig2),
            passive_sensitivity,
            assumptions: setup.assumptions(),
            setup,
        }
    }
}

fn beside_noop(scene: Scene, seeds: &[SeedRuns]) -> impl Iterator<Item = NoopComparison> + '_ {
    STRATEGIES.into_iter().map(move |strategy| {
        let all = |r: &SeedRuns, s: &str| r.of(s).cells[0][0];
        let over = |of: fn(&super::measured::Metrics) -> Option<f64>| {
            Value::of_ratios(seeds, |r| {
                Some(of(&all(r, strategy))? / of(&all(r, "noop"))?)
            })
        };
        NoopComparison {
            scene,
            strategy,
            iops: Value::over(seeds, |r| Some(all(r, strategy).iops)),
            iops_over_noop: over(|m| Some(m.iops)),
            latency_over_noop: over(|m| m.latency_us),
            gib_moved: Value::over(seeds, |r| {
                Some(r.of(strategy).moved.bytes / (1u64 << 30) as f64)
            }),
        }
    })
}
