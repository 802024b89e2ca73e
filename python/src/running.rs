//! Simulations on threads, without the interpreter's lock, with progress and signals on the caller's thread.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use runner::inputs::Inputs;
use runner::jobs;
use sim::{Model, RunOptions, RunProgress, RunResult, ScenarioFile, ServedRequest};
use std::path::{Path, PathBuf};
use tables::{RecordBatch, RequestFile, RequestNames};

use crate::error::{error, fault, other};
use crate::interrupt::{Interrupts, LOOK_EVERY};
use crate::strategy::{Failure, PythonStrategy, name_of};
use crate::table::Table;

/// Strategy of a run.
pub enum RunStrategy {
    /// By its name in the scenario or in the registry.
    Native(String),
    /// Object or class in Python.
    Python(String, Py<PyAny>),
}

impl RunStrategy {
    /// Takes a name, an object or class with `decide`, or such an object with its name. `FILE.py:CLASS` is its own name, as on the command
    /// line.
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = given.extract::<String>() {
            if !name.contains(".py:") {
                return Ok(Self::Native(name));
            }
            let module = given.py().import("terrace._source")?;
            let loaded = module.call_method1("load", (&name,))?;
            return Self::of_object(Some(name), &loaded);
        }
        match given.extract::<(String, Bound<'_, PyAny>)>() {
            Ok((name, object)) => Self::of_object(Some(name), &object),
            Err(_) => Self::of_object(None, given),
        }
    }

    fn of_object(name: Option<String>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.hasattr("decide")? {
            return Err(error(
                "a strategy is a name, FILE.py:CLASS, or an object with decide(facts, state, seed)",
            ));
        }
        let name = name.map_or_else(|| name_of(object), Ok)?;
        Ok(Self::Python(name, object.clone().unbind()))
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
    pub fn build(
        &self,
        file: &ScenarioFile,
        interrupts: &Arc<Interrupts>,
    ) -> PyResult<(Box<dyn planner::AnyStrategy>, Failure)> {
        match self {
            Self::Native(name) => {
                let built = file.strategy(name).map_err(fault)?;
                Ok((built, Failure::default()))
            }
            Self::Python(name, object) => Python::attach(|py| {
                let object = object.bind(py);
                let (built, failure) = PythonStrategy::new(name, object, interrupts)?;
                let built: Box<dyn planner::AnyStrategy> = Box::new(planner::HostedStrategy(built));
                Ok((built, failure))
            }),
        }
    }
}

/// One simulation.
pub struct Cell<'a> {
    /// Scenario with the seed.
    pub file: ScenarioFile,
    /// Strategy.
    pub strategy: &'a RunStrategy,
    /// Taker of single requests.
    pub requests: Option<&'a RequestSink>,
}

/// Taker of the requests of one run.
pub struct RequestSink {
    names: OnceLock<RequestNames>,
    to: RequestsTo,
}

/// Place for the requests of one run.
enum RequestsTo {
    /// Memory.
    Kept(Mutex<Vec<RecordBatch>>),
    /// Function, called with a table per window.
    Function(Py<PyAny>),
    /// File, created before the run.
    File(PathBuf, Mutex<Option<RequestFile>>),
}

impl RequestSink {
    /// Takes the caller's argument: None or False, True, a callable or a path.
    pub fn new(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Self>> {
        let Some(given) = given.filter(|g| !g.is_none()) else {
            return Ok(None);
        };
        let to = match given.extract::<bool>() {
            Ok(false) => return Ok(None),
            Ok(true) => RequestsTo::Kept(Mutex::default()),
            Err(_) if given.is_callable() => RequestsTo::Function(given.clone().unbind()),
            Err(_) => RequestsTo::File(given.extract()?, Mutex::default()),
        };
        Ok(Some(Self {
            names: OnceLock::new(),
            to,
        }))
    }

    /// Creates the file, if it is one. A run without requests has an empty one.
    fn begin(&self, model: &Model) -> PyResult<()> {
        self.names.get_or_init(|| RequestNames::new(model));
        if let RequestsTo::File(path, file) = &self.to {
            let created = RequestFile::create(path, model).map_err(other)?;
            *file.lock().unwrap_or_else(PoisonError::into_inner) = Some(created);
        }
        Ok(())
    }

    fn put(
        &self,
        model: &Model,
        requests: &[ServedRequest],
        interrupts: &Interrupts,
    ) -> PyResult<()> {
        let names = self.names.get_or_init(|| RequestNames::new(model));
        match &self.to {
            RequestsTo::Kept(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(names.table(requests));
                Ok(())
            }
            RequestsTo::Function(function) => {
                let table = Table::from(names.table(requests));
                Python::attach(|py| {
                    interrupts.call(py, || function.call1(py, (table,)).map(|_| ()))
                })
            }
            RequestsTo::File(_, file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let written = file.as_mut().map(|f| f.write(requests));
                written.unwrap_or(Ok(())).map_err(other)
            }
        }
    }

    /// Completes the file, if it is one; else returns the table of all requests.
    pub fn close(self) -> PyResult<Option<Table>> {
        match (self.to, self.names.get()) {
            (RequestsTo::Kept(kept), Some(names)) => {
                let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(Some(Table::joined(names.table(&[]), kept)))
            }
            (RequestsTo::File(_, file), _) => {
                let file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
                file.map_or(Ok(()), RequestFile::finish).map_err(other)?;
                Ok(None)
            }
            (RequestsTo::Kept(_), None) | (RequestsTo::Function(_), _) => Ok(None),
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
enum RunFailure {
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
                Err(RunFailure::Raised(raised)) => {
                    first.get_or_insert(raised);
                }
                Err(RunFailure::Stopped) => {}
            }
        }
        match first {
            Some(raised) => Err(raised),
            None => Ok(done),
        }
    }

    fn side_by_side(&self, bar: &Py<PyAny>) -> (Option<PyErr>, Vec<Result<RunResult, RunFailure>>) {
        let stop = AtomicBool::new(false);
        let interrupts = Arc::new(Interrupts::default());
        let mut heard: Option<PyErr> = None;
        let mut reached = vec![(0.0, 0u64); self.cells.len()];
        let mut last = Instant::now();
        let results = jobs::with_timed_events(
            &self.cells,
            |cell, say: &mut dyn FnMut(RunProgress)| {
                let result = self.one(cell, &stop, &interrupts, say);
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            },
            LOOK_EVERY,
            |event| {
                if let Some((i, at)) = event {
                    let share = at.now.as_secs_f64() / at.duration.as_secs_f64();
                    reached[i] = (share.min(1.0), at.requests);
                }
                if last.elapsed() < LOOK_EVERY {
                    return;
                }
                last = Instant::now();
                let share = reached.iter().map(|r| r.0).sum::<f64>() / reached.len() as f64;
                let requests: u64 = reached.iter().map(|r| r.1).sum();
                let looked = Python::attach(|py| {
                    if heard.is_some() {
                        return interrupts.interrupt(py);
                    }
                    py.check_signals()?;
                    bar.call_method1(py, "update", (share, requests))
                        .map(|_| ())
                });
                if let Err(raised) = looked {
                    stop.store(true, Ordering::Relaxed);
                    heard.get_or_insert(raised);
                }
            },
        );
        (heard, results)
    }

    fn one(
        &self,
        cell: &Cell<'_>,
        stop: &AtomicBool,
        interrupts: &Arc<Interrupts>,
        say: &mut dyn FnMut(RunProgress),
    ) -> Result<RunResult, RunFailure> {
        if stop.load(Ordering::Relaxed) {
            return Err(RunFailure::Stopped);
        }
        let raise = RunFailure::Raised;
        let file = &cell.file;
        let loaded = self.inputs.build(self.path, file);
        let loaded = loaded.map_err(|e| raise(fault(e)))?;
        let (strategy, failure) = cell.strategy.build(file, interrupts).map_err(raise)?;
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
                sink.begin(model).map_err(raise)?;
                let put = &mut |requests: &[ServedRequest]| {
                    if let Err(raised) = sink.put(model, requests, interrupts) {
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
            (None, Err(sim::RunError::Stopped)) => Err(RunFailure::Stopped),
            (None, Err(why)) => Err(raise(other(why))),
        }
    }
}
