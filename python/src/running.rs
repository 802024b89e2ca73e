//! Simulations on threads, without the interpreter's lock, with progress and signals on the caller's thread.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use runner::inputs::Inputs;
use runner::jobs;
use sim::{Model, RunOptions, RunProgress, RunResult, ScenarioFile, ServedRequest};
use std::path::Path;

use crate::error::{error, fault, other};
use crate::requests::RequestNames;
use crate::strategy::{Failure, PythonStrategy, name_of};
use crate::table::Table;

/// Time between two looks at signals and two updates of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Strategy of a run.
pub enum Chosen {
    /// By its name in the scenario or in the registry.
    Native(String),
    /// Object or class in Python.
    Python(String, Py<PyAny>),
}

impl Chosen {
    /// Takes a name, or an object or class with `decide`.
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = given.extract::<String>() {
            if !name.contains(".py:") {
                return Ok(Self::Native(name));
            }
            let module = given.py().import("terrace._source")?;
            return Self::new(&module.call_method1("load", (name,))?);
        }
        if !given.hasattr("decide")? {
            return Err(error(
                "a strategy is a name, FILE.py:CLASS, or an object with decide(facts, state, seed)",
            ));
        }
        Ok(Self::Python(name_of(given)?, given.clone().unbind()))
    }

    /// Name in results.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(name) | Self::Python(name, _) => name,
        }
    }

    /// Refuses a native strategy that does not exist or does not suit the scenario.
    pub fn check(&self, file: &ScenarioFile) -> PyResult<()> {
        match self {
            Self::Native(name) => file.strategy(name).map(|_| ()).map_err(fault),
            Self::Python(..) => Ok(()),
        }
    }

    /// Returns a new strategy, with the place of its first exception.
    pub fn build(&self, file: &ScenarioFile) -> PyResult<(Box<dyn planner::AnyStrategy>, Failure)> {
        match self {
            Self::Native(name) => {
                let built = file.strategy(name).map_err(fault)?;
                Ok((built, Failure::default()))
            }
            Self::Python(_, object) => Python::attach(|py| {
                let (built, failure) = PythonStrategy::new(object.bind(py))?;
                Ok((Box::new(built) as Box<dyn planner::AnyStrategy>, failure))
            }),
        }
    }
}

/// One simulation.
pub struct Cell<'a> {
    /// Scenario with the seed.
    pub file: ScenarioFile,
    /// Strategy.
    pub strategy: &'a Chosen,
    /// Taker of single requests.
    pub requests: Option<&'a RequestSink>,
}

/// Taker of the requests of one run.
pub struct RequestSink {
    names: OnceLock<RequestNames>,
    /// Python's end; tables are kept without one.
    to: Option<Py<PyAny>>,
    kept: Mutex<Vec<Table>>,
}

impl RequestSink {
    /// Takes the caller's argument: None or False, True, a callable or a path.
    pub fn new(given: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Option<Self>> {
        let Some(given) = given.filter(|g| !g.is_none()) else {
            return Ok(None);
        };
        let to = match given.extract::<bool>() {
            Ok(false) => return Ok(None),
            Ok(true) => None,
            Err(_) => {
                let files = py.import("terrace._files")?;
                Some(files.call_method1("sink", (given,))?.unbind())
            }
        };
        Ok(Some(Self {
            names: OnceLock::new(),
            to,
            kept: Mutex::default(),
        }))
    }

    fn put(&self, model: &Model, requests: &[ServedRequest]) -> PyResult<()> {
        let names = self.names.get_or_init(|| RequestNames::new(model));
        let table = names.table(requests)?;
        match &self.to {
            Some(to) => Python::attach(|py| to.call_method1(py, "put", (table,)).map(|_| ())),
            None => {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(table);
                Ok(())
            }
        }
    }

    /// Completes the file, if it is one; else returns the table of all requests.
    pub fn close(self, py: Python<'_>) -> PyResult<Option<Table>> {
        let kept = self.kept.into_inner();
        let kept = kept.unwrap_or_else(PoisonError::into_inner);
        match (self.to, self.names.get()) {
            (Some(to), _) => to.call_method0(py, "close").map(|_| None),
            (None, Some(names)) => names.joined(kept).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Simulations of one scenario.
pub struct Cells<'a> {
    /// Name for the progress.
    pub title: &'a str,
    /// Path of the scenario; its files are next to it.
    pub path: &'a Path,
    /// Files of the scenario, already read.
    pub inputs: &'a Inputs,
    /// Simulations, in the order of the results.
    pub cells: Vec<Cell<'a>>,
    /// Parts of the results that are kept.
    pub options: RunOptions,
}

/// Reason that a simulation has no result.
enum Ended {
    Raised(PyErr),
    /// Another one failed, or a signal arrived.
    Stopped,
}

impl Cells<'_> {
    /// Runs all of them, as many at once as there are cores. `progress` is the caller's argument: None, a boolean or a callable.
    pub fn run(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<RunResult>> {
        let bar = py
            .import("terrace._progress")?
            .call_method1("bar", (progress, self.title))?
            .unbind();
        let (heard, results) = py.detach(|| self.side_by_side(&bar));
        bar.call_method0(py, "close")?;
        if let Some(raised) = heard {
            return Err(raised);
        }
        let mut done = Vec::new();
        let mut first = None;
        for result in results {
            match result {
                Ok(result) => done.push(result),
                Err(Ended::Raised(raised)) => {
                    first.get_or_insert(raised);
                }
                Err(Ended::Stopped) => {}
            }
        }
        match first {
            Some(raised) => Err(raised),
            None => Ok(done),
        }
    }

    fn side_by_side(&self, bar: &Py<PyAny>) -> (Option<PyErr>, Vec<Result<RunResult, Ended>>) {
        let stop = AtomicBool::new(false);
        let mut heard: Option<PyErr> = None;
        let mut reached = vec![(0.0, 0u64); self.cells.len()];
        let mut last = Instant::now();
        let results = jobs::with_events(
            &self.cells,
            |cell, say: &mut dyn FnMut(RunProgress)| {
                let result = self.one(cell, &stop, say);
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            },
            |i, at: RunProgress| {
                let share = at.now.as_secs_f64() / at.duration.as_secs_f64();
                reached[i] = (share.min(1.0), at.requests);
                if heard.is_some() || last.elapsed() < LOOK_EVERY {
                    return;
                }
                last = Instant::now();
                let share = reached.iter().map(|r| r.0).sum::<f64>() / reached.len() as f64;
                let requests: u64 = reached.iter().map(|r| r.1).sum();
                let looked = Python::attach(|py| {
                    py.check_signals()?;
                    bar.call_method1(py, "update", (share, requests))
                });
                if let Err(raised) = looked {
                    stop.store(true, Ordering::Relaxed);
                    heard = Some(raised);
                }
            },
        );
        (heard, results)
    }

    fn one(
        &self,
        cell: &Cell<'_>,
        stop: &AtomicBool,
        say: &mut dyn FnMut(RunProgress),
    ) -> Result<RunResult, Ended> {
        if stop.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        let raise = Ended::Raised;
        let file = &cell.file;
        let loaded = self.inputs.build(self.path, file);
        let loaded = loaded.map_err(|e| raise(fault(e)))?;
        let (strategy, failure) = cell.strategy.build(file).map_err(raise)?;
        let model = &loaded.model;
        let text = xxhash_rust::xxh3::xxh3_64(file.source.text.as_bytes());
        let manifest = jobs::manifest(file, model, cell.strategy.name(), &loaded.traces, text);
        let failed = || {
            failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        };
        let progress = &mut |at: RunProgress| {
            say(at);
            let raised = failure.lock().unwrap_or_else(PoisonError::into_inner);
            match stop.load(Ordering::Relaxed) || raised.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let result = match cell.requests {
            None => sim::run_while(model, strategy, manifest, self.options, progress),
            Some(sink) => {
                let put = &mut |requests: &[ServedRequest]| {
                    if let Err(raised) = sink.put(model, requests) {
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(raised);
                    }
                };
                sim::run_with_requests(model, strategy, manifest, self.options, put, progress)
            }
        };
        match (failed(), result) {
            (Some(raised), _) => Err(raise(raised)),
            (None, Ok(result)) => Ok(result),
            (None, Err(sim::RunError::Stopped)) => Err(Ended::Stopped),
            (None, Err(why)) => Err(raise(other(why))),
        }
    }
}
