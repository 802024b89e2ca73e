//! Sweeps: a plan of all cells, and a runner of single ones, here or in the process of a worker. `terrace._sweep` calls both.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use config::{Axis, Setting};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runner::cells;
use runner::inputs::Inputs;
use runner::sweeps::{PreparedSweep, Source, Strategies, Values, run_cell};
use serde_json::{Value, json};
use sim::ScenarioFile;
use sim::sweep::{Cell, CellResult, Metric, Sweep};

use crate::comparison::{Comparison, metrics_of};
use crate::error::{error, fault, of_sweep};
use crate::interrupt::Interrupts;
use crate::json;
use crate::running::RunStrategy;
use crate::scenario::{self, Scenario};
use crate::strategy::Failure;

/// Runner of the cells of one sweep. It is made from the same arguments in every process.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct CellRunner {
    sweep: Sweep,
    path: PathBuf,
    inputs: Mutex<Inputs>,
    chosen: Vec<RunStrategy>,
    /// Hash of the source of each strategy in Python, by name.
    sources: BTreeMap<String, String>,
    stop: AtomicBool,
    interrupts: Arc<Interrupts>,
}

/// Strategies of one cell, with the exception of the one that runs.
struct OfCell<'a> {
    runner: &'a CellRunner,
    failure: Mutex<Failure>,
}

impl CellRunner {
    fn chosen(&self, name: &str) -> Option<&RunStrategy> {
        self.chosen.iter().find(|c| c.name() == name)
    }

    fn of_cell(&self) -> OfCell<'_> {
        OfCell {
            runner: self,
            failure: Mutex::default(),
        }
    }
}

impl OfCell<'_> {
    fn failure(&self) -> Failure {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn raised(&self) -> Option<PyErr> {
        let failure = self.failure();
        let mut raised = failure.lock().unwrap_or_else(PoisonError::into_inner);
        raised.take()
    }

    fn has_raised(&self) -> bool {
        let failure = self.failure();
        let raised = failure.lock().unwrap_or_else(PoisonError::into_inner);
        raised.is_some()
    }
}

impl Strategies for OfCell<'_> {
    fn build(
        &self,
        file: &ScenarioFile,
        name: &str,
    ) -> anyhow::Result<Box<dyn planner::AnyStrategy>> {
        let Some(chosen) = self.runner.chosen(name) else {
            anyhow::bail!("the sweep has no strategy {name}");
        };
        let (built, failure) = chosen.build(file, &self.runner.interrupts)?;
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        Ok(built)
    }

    fn identity(&self, file: &ScenarioFile, name: &str) -> anyhow::Result<(String, Value)> {
        match self.runner.chosen(name) {
            Some(RunStrategy::Python(..)) => {
                let source = self.runner.sources.get(name);
                Ok(("python".into(), json!({ "source": source })))
            }
            Some(RunStrategy::Native(_)) | None => {
                file.strategy(name)?;
                Ok(file.parameters(name)?)
            }
        }
    }
}

#[pymethods]
impl CellRunner {
    /// Makes a runner. `grid` has keys with their values; `sources` has the hash of the source of each strategy in Python.
    #[new]
    fn new(
        py: Python<'_>,
        scenario: &Bound<'_, Scenario>,
        grid: Vec<(String, Vec<Bound<'_, PyAny>>)>,
        strategies: Vec<Bound<'_, PyAny>>,
        seeds: Vec<u64>,
        sources: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let scenario = scenario.get();
        scenario.check()?;
        let axes = grid.into_iter().map(|(key, values)| {
            if values.is_empty() {
                return Err(error(format!("grid: {key} has no values")));
            }
            let value =
                |v: &Bound<'_, PyAny>| Ok(Setting::parse(&json::from_python(&key, v)?.to_string()));
            let values = values
                .iter()
                .map(value)
                .collect::<PyResult<Vec<Setting>>>()?;
            Ok(Axis { key, values })
        });
        let axes = axes.collect::<PyResult<Vec<Axis>>>()?;
        let chosen = strategies.iter().map(RunStrategy::new);
        let mut chosen = chosen.collect::<PyResult<Vec<RunStrategy>>>()?;
        if chosen.is_empty() {
            chosen.push(RunStrategy::Native(
                scenario.file().scenario.strategy.clone(),
            ));
        }
        for one in &chosen {
            one.check(scenario.file())?;
        }
        let names = chosen.iter().map(|c| c.name().to_owned()).collect();
        let sweep = Sweep::new(scenario.file().clone(), axes, names, seeds).map_err(of_sweep)?;
        Ok(Self {
            sweep,
            path: scenario.path().to_owned(),
            inputs: Mutex::new(scenario.inputs(py)),
            chosen,
            sources,
            stop: AtomicBool::new(false),
            interrupts: Arc::default(),
        })
    }

    /// Runs one cell. Returns the name of its result and the content of the result's file.
    fn run<'py>(
        &self,
        py: Python<'py>,
        point: usize,
        strategy: String,
        seed: u64,
    ) -> PyResult<(String, Bound<'py, PyBytes>)> {
        let cell = Cell {
            point,
            strategy,
            seed,
        };
        let (name, bytes) = py.detach(|| self.result(&cell))?;
        Ok((name, PyBytes::new(py, &bytes)))
    }

    /// Ends all runs at their next window, or in their strategy, and all later ones at once.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.interrupts.interrupt(py)
    }
}

impl CellRunner {
    fn result(&self, cell: &Cell) -> PyResult<(String, Vec<u8>)> {
        let file = self
            .sweep
            .scenario(cell.point, cell.seed)
            .map_err(of_sweep)?;
        let inputs = scenario::read(&self.inputs, &self.path, &file).map_err(fault)?;
        let source = Source {
            sweep: &self.sweep,
            path: &self.path,
            inputs: &inputs,
        };
        let strategies = self.of_cell();
        let start = Instant::now();
        let ran = run_cell(source, cell, &strategies, &mut |_| match self
            .stop
            .load(Ordering::Relaxed)
            || strategies.has_raised()
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let took_s = start.elapsed().as_secs_f64();
        if let Some(raised) = strategies.raised() {
            return Err(raised);
        }
        let (name, result) = ran.map_err(|e| error(format!("{e:#}")))?;
        let bytes = cells::encode(&name, &result, took_s);
        Ok((name, bytes.map_err(|e| error(format!("{e:#}")))?))
    }
}

/// All cells of a sweep, each checked before anything runs.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct SweepPlan {
    prepared: PreparedSweep,
}

#[pymethods]
impl SweepPlan {
    /// Checks all cells.
    #[new]
    fn new(
        py: Python<'_>,
        runner: &Bound<'_, CellRunner>,
        metrics: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let runner = runner.get();
        let metrics = metrics_of(metrics)?;
        let prepared = py.detach(|| {
            let inputs = runner.inputs.lock();
            let inputs = inputs.unwrap_or_else(PoisonError::into_inner).clone();
            let (sweep, path) = (runner.sweep.clone(), runner.path.clone());
            PreparedSweep::new(sweep, path, metrics, inputs, &runner.of_cell())
        });
        let prepared = prepared.map_err(|e| match e.downcast() {
            Ok(of) => of_sweep(of),
            Err(e) => error(format!("{e:#}")),
        })?;
        Ok(Self { prepared })
    }

    /// Runs that the cells need: point, strategy, seed, name of the result, and a label for messages.
    fn runs(&self) -> Vec<(usize, String, u64, String, String)> {
        let sweep = self.prepared.sweep();
        let runs = self.prepared.runs().iter().map(|(cell, name)| {
            let settings = sim::sweep::label(&sweep.varying(cell.point));
            let blank = if settings.is_empty() { "" } else { ", " };
            let label = format!("{settings}{blank}{}, seed {}", cell.strategy, cell.seed);
            let strategy = cell.strategy.clone();
            (cell.point, strategy, cell.seed, name.clone(), label)
        });
        runs.collect()
    }

    /// Returns the reason that this is not the content of the file of that result; None if it is.
    #[staticmethod]
    fn fault_of(py: Python<'_>, name: &str, content: &[u8]) -> Option<String> {
        let decoded = py.detach(|| cells::decode::<CellResult>(name, content));
        decoded.err().map(|e| e.to_string())
    }

    /// Puts results side by side: for each run the content of its file, or the text of its error.
    fn compare(&self, py: Python<'_>, results: Vec<RunContent>) -> PyResult<Comparison> {
        let runs = self.prepared.runs();
        if results.len() != runs.len() {
            let (given, needed) = (results.len(), runs.len());
            return Err(error(format!("{given} results for {needed} runs")));
        }
        let metrics: &[Metric] = self.prepared.metrics();
        let values: Vec<Result<Values, String>> = py.detach(|| {
            let values = runs.iter().zip(results).map(|((_, name), content)| {
                let bytes = match content {
                    RunContent::Bytes(bytes) => bytes,
                    RunContent::Error(why) => return Err(why),
                };
                let (result, _) =
                    cells::decode::<CellResult>(name, &bytes).map_err(|e| e.to_string())?;
                Ok(result.values(metrics))
            });
            values.collect()
        });
        let rows = self.prepared.rows(|run| values[run].clone());
        Ok(Comparison::new(self.prepared.result(rows)))
    }
}

/// Outcome of a run.
#[derive(FromPyObject)]
pub enum RunContent {
    /// Text of its error.
    Error(String),
    /// Content of the result's file.
    Bytes(Vec<u8>),
}
