//! Outcome of the reproduction as plain data.

use serde::Serialize;
use trace::conditions::Construction;

use super::choice::{CONSTRUCTIONS, Choice};
use super::claims::claims;
use super::figures::Figures;
use super::grid::Grid;
use super::job::JobResult;
use super::queueing::{Queueing, QueueingCell, QueueingSetup};
use super::sensitivity::Sensitivity;
use super::setup::Setup;
use crate::claim::Scorecard;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.dual-period/2";

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
    /// Numbers of the figures.
    pub figures: Figures,
    /// Results of `adaptive-period` and the other methods over all conditions and shares of the fast tier.
    pub standings: Vec<MethodComparison>,
    /// Sensitivity of the result to unpublished parameters.
    pub sensitivity: Sensitivity,
    /// Cells of the queueing simulation; `None` if it was not requested.
    pub queueing: Option<Queueing>,
    /// Assumptions for details that are not published.
    pub assumptions: Vec<String>,
}

/// Comparison of one method with the best of the paper's in each cell of the grid.
#[derive(Debug, Clone, Serialize)]
pub struct MethodComparison {
    /// Construction of conditions B to G.
    pub construction: Construction,
    /// Method.
    pub method: String,
    /// Number of cells of the grid: conditions times shares of the fast tier.
    pub cells: usize,
    /// Cells in which it beats the best of the paper's fourteen methods, chosen in hindsight for each cell.
    pub beats_best_fixed: usize,
    /// Geometric mean of its total relative to that of the best of the fourteen.
    pub over_best_fixed: f64,
    /// Number of cells in which it beats the best proposed method.
    pub beats_best_proposed: usize,
    /// Geometric mean of its total relative to that of the best proposed method.
    pub over_best_proposed: f64,
    /// Geometric mean of its total relative to that of L = 24 h.
    pub over_24h: f64,
    /// Worst of its totals relative to the best of the fourteen, and its cell.
    pub worst: (f64, String),
}

impl Outcome {
    /// Creates the outcome from the results of all jobs of the setup, and from cells of the queueing simulation, if
    /// any.
    pub fn new(
        version: &str,
        setup: Setup,
        results: Vec<JobResult>,
        queueing: Option<(QueueingSetup, Vec<QueueingCell>)>,
    ) -> Self {
        let grid = Grid::new(results);
        let found: Vec<_> = Choice::all()
            .into_iter()
            .map(|choice| (choice.reading(), claims(grid.view(choice))))
            .collect();
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests: grid.requests(),
            scorecard: Scorecard::new(found),
            figures: Figures::new(&setup, &grid),
            standings: CONSTRUCTIONS
                .into_iter()
                .flat_map(|construction| standings(&setup, &grid, construction))
                .collect(),
            sensitivity: Sensitivity::new(&grid),
            queueing: queueing.map(|(setup, cells)| Queueing::new(setup, cells, &grid)),
            assumptions: setup.assumptions(),
            setup,
        }
    }
}

/// Compares every method over the whole grid of a construction, first seed, best first.
fn standings(setup: &Setup, grid: &Grid, construction: Construction) -> Vec<MethodComparison> {
    let view = grid.view(Choice::of(construction));
    let cells: Vec<_> = setup
        .conditions
        .iter()
        .flat_map(|name| setup.fast_shares.iter().map(move |share| (name, *share)))
        .map(|(name, share)| (format!("{name} at {share} %"), view.at(name, share)[0]))
        .collect();
    let mean = |ratios: &[f64]| {
        let logs: f64 = ratios.iter().map(|r| libm::log(*r)).sum();
        libm::exp(logs / ratios.len() as f64)
    };
    let standing = |method: super::Method| {
        let over = |base: &dyn Fn(&super::grid::GridCell<'_>) -> f64| -> Vec<f64> {
            cells
                .iter()
                .map(|(_, at)| at.total(method) / base(at))
                .collect()
        };
        let fixed = over(&|at| at.best_fixed().1);
        let proposed = over(&|at| at.best_proposed().1);
        let day = over(&|at| at.total(super::Method::Existing(24)));
        let worst = fixed.iter().zip(&cells).min_by(|a, b| a.0.total_cmp(b.0));
        let beats = |ratios: &[f64]| ratios.iter().filter(|r| **r > 1.0).count();
        MethodComparison {
            construction,
            method: method.name(),
            cells: cells.len(),
            beats_best_fixed: beats(&fixed),
            over_best_fixed: mean(&fixed),
            beats_best_proposed: beats(&proposed),
            over_best_proposed: mean(&proposed),
            over_24h: mean(&day),
            worst: worst
                .map(|(r, (name, _))| (*r, name.clone()))
                .expect("there are cells"),
        }
    };
    let mut all: Vec<MethodComparison> = super::Method::all().into_iter().map(standing).collect();
    all.sort_by(|a, b| b.over_best_fixed.total_cmp(&a.over_best_fixed));
    all
}
