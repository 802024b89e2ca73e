//! Sweeps that are ready to run: every cell is checked, and cells that depend on the same share a run.
//!
//! ```text
//!  sim::sweep::Sweep ─▶ Prepared ─▶ runs ──run_cell──▶ CellResult ─▶ cells::encode ─▶ file
//!                          └────────────── rows, means ◀── values ◀──────────────────────┘
//! ```
//!
//! The caller runs the cells: on threads, or on other machines.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use planner::AnyStrategy;
use serde_json::Value;
use sim::sweep::{Cell, CellResult, CellRow, Metric, SWEEP_SCHEMA, Sweep, SweepResult, means};
use sim::{RunOptions, RunProgress, ScenarioError, ScenarioFile};
use xxhash_rust::xxh3::xxh3_64;

use crate::inputs::Inputs;
use crate::{cells, jobs};

/// Value of each metric.
pub type Values = Vec<Option<f64>>;

/// Strategies of a sweep.
pub trait Strategies {
    /// Returns a new strategy of this name.
    ///
    /// # Errors
    /// A name that does not exist, parameters that do not fit.
    fn build(&self, file: &ScenarioFile, name: &str) -> anyhow::Result<Box<dyn AnyStrategy>>;

    /// Returns everything that decisions under this name depend on, besides facts, state and seed: kind and parameters.
    ///
    /// # Errors
    /// As [`Strategies::build`].
    fn identity(&self, file: &ScenarioFile, name: &str) -> anyhow::Result<(String, Value)>;
}

/// Scenario of a sweep with its files.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Sweep.
    pub sweep: &'a Sweep,
    /// Path of the scenario; its files are next to it.
    pub path: &'a Path,
    /// Files of the scenario, already read.
    pub inputs: &'a Inputs,
}

/// Sweep whose cells can all be built.
pub struct PreparedSweep {
    sweep: Sweep,
    path: PathBuf,
    metrics: Vec<Metric>,
    inputs: Inputs,
    /// Every cell, with the number of its run.
    cells: Vec<(Cell, usize)>,
    /// Runs: the first cell that needs each, and the name of its result. Cells that depend on the same share one.
    runs: Vec<(Cell, String)>,
}

impl PreparedSweep {
    /// Builds all cells once, to find every fault before the first run. `path` is the scenario's. `inputs` has traces in memory.
    ///
    /// # Errors
    /// Faults of a cell's scenario, of its files, of a strategy or of a metric.
    pub fn new(
        sweep: Sweep,
        path: PathBuf,
        metrics: Vec<Metric>,
        mut inputs: Inputs,
        strategies: &dyn Strategies,
    ) -> anyhow::Result<Self> {
        let (mut cells, mut runs) = (Vec::new(), Vec::new());
        let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
        for of_point in sweep.cells().chunk_by(|a, b| a.point == b.point) {
            let point = of_point[0].point;
            let file = sweep.scenario(point, of_point[0].seed)?;
            let blame = |fault| sweep.blame(point, fault);
            inputs.read(&path, &file).map_err(blame)?;
            let loaded = inputs.build(&path, &file).map_err(blame)?;
            for metric in &metrics {
                metric.check(&loaded.model)?;
            }
            for cell in of_point {
                let uses = strategies.identity(&file, &cell.strategy);
                let uses = uses.map_err(|error| match error.downcast::<ScenarioError>() {
                    Ok(fault) => blame(fault).into(),
                    Err(other) => other,
                })?;
                let identity =
                    sweep.identity(&file, cell, uses, &loaded.traces, &loaded.measurements)?;
                let name = cells::name(&identity);
                let run = *by_name.entry(name.clone()).or_insert_with(|| {
                    runs.push((cell.clone(), name));
                    runs.len() - 1
                });
                cells.push((cell.clone(), run));
            }
        }
        Ok(Self {
            sweep,
            path,
            metrics,
            inputs,
            cells,
            runs,
        })
    }

    /// Returns the sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Returns the metrics of each row.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the runs: the first cell that needs each, and the name of its result.
    pub fn runs(&self) -> &[(Cell, String)] {
        &self.runs
    }

    /// Returns the scenario with its files, for [`run_cell`].
    pub fn source(&self) -> Source<'_> {
        Source {
            sweep: &self.sweep,
            path: &self.path,
            inputs: &self.inputs,
        }
    }

    /// Returns a row per cell from the values of each run, or its error.
    pub fn rows<E: ToString>(&self, of_run: impl Fn(usize) -> Result<Values, E>) -> Vec<CellRow> {
        let rows = self.cells.iter().map(|(cell, run)| {
            let name = self.runs[*run].1.clone();
            CellRow::new(&self.sweep, cell, name, &self.metrics, of_run(*run))
        });
        rows.collect()
    }

    /// Returns rows with their means.
    pub fn result(&self, rows: Vec<CellRow>) -> SweepResult {
        let (sweep, metrics) = (&self.sweep, &self.metrics);
        SweepResult {
            schema: SWEEP_SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            scenario: sweep.base().scenario.name.clone(),
            keys: sweep.keys().map(String::from).collect(),
            strategies: sweep.strategies().to_vec(),
            seeds: sweep.seeds().to_vec(),
            means: means(&rows, sweep.seeds().len(), metrics),
            metrics: metrics.clone(),
            cells: rows,
        }
    }
}

/// Runs one cell until `progress` breaks. Another kind of simulation is another case of [`CellResult`]. Returns the name of the result, too.
///
/// # Errors
/// Faults of the scenario and the strategy; those of a run ([`sim::RunError`]).
pub fn run_cell(
    source: Source<'_>,
    cell: &Cell,
    strategies: &dyn Strategies,
    progress: &mut dyn FnMut(RunProgress) -> ControlFlow<()>,
) -> anyhow::Result<(String, CellResult)> {
    let Source {
        sweep,
        path,
        inputs,
    } = source;
    let file = sweep.scenario(cell.point, cell.seed)?;
    let loaded = inputs.build(path, &file)?;
    let strategy = strategies.build(&file, &cell.strategy)?;
    let uses = strategies.identity(&file, &cell.strategy)?;
    // The hash is not that of the text: cells of different texts may share a result.
    let identity = sweep.identity(&file, cell, uses, &loaded.traces, &loaded.measurements)?;
    let scenario_xxh3 = xxh3_64(identity["scenario"].to_string().as_bytes());
    let (model, traces) = (&loaded.model, &loaded.traces);
    let manifest = jobs::manifest(&file, model, &cell.strategy, traces, scenario_xxh3);
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let result = sim::run_while(model, strategy, manifest, options, progress)?;
    Ok((cells::name(&identity), CellResult::Run(Box::new(result))))
}
