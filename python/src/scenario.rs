//! Scenarios: from a file, from text or from a dict; runs and comparisons.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use config::Setting;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use runner::inputs::Inputs;
use sim::sweep::Sweep;
use sim::{RunOptions, ScenarioError, ScenarioFile};

use crate::comparison::{self, Comparison, metrics_of};
use crate::error::{ReadException, error, fault, other};
use crate::interrupt::look;
use crate::json;
use crate::results::RunTables;
use crate::running::{Cell, Cells, RequestSink, RunStrategy};
use crate::traces::Trace;

/// Name of a scenario that is not from a file, in errors.
const NO_FILE: &str = "scenario";

/// Scenario: an array, its volumes, their load and the policy.
#[pyclass(frozen, module = "terrace")]
pub struct Scenario {
    file: ScenarioFile,
    path: PathBuf,
    /// Traces that the caller gave, by the name of the file in the scenario.
    given: BTreeMap<String, Arc<trace::LoadedTrace>>,
    /// Read at the first run.
    inputs: Mutex<Inputs>,
}

impl Scenario {
    fn new(
        file: ScenarioFile,
        path: PathBuf,
        given: BTreeMap<String, Arc<trace::LoadedTrace>>,
    ) -> PyResult<Self> {
        if let Some(name) = given
            .keys()
            .find(|name| !file.scenario.traces.iter().any(|t| t.file == **name))
        {
            return Err(error(format!(
                "traces: the scenario has no trace with file = \"{name}\""
            )));
        }
        let mut inputs = Inputs::default();
        for (name, trace) in &given {
            inputs.add_trace(&path, &file, name, trace);
        }
        Ok(Self {
            file,
            path,
            given,
            inputs: Mutex::new(inputs),
        })
    }

    /// Words of the scenario.
    pub fn file(&self) -> &ScenarioFile {
        &self.file
    }

    /// Path; files of the scenario are next to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Files that were read, and traces in memory. Waits without the interpreter's lock, since another thread may be reading them.
    pub fn inputs(&self, py: Python<'_>) -> Inputs {
        let inputs = || self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| inputs().clone())
    }

    /// Refuses what no run of the scenario can be made of.
    pub fn check(&self) -> PyResult<()> {
        if self.file.scenario.counting.is_some() {
            return Err(error(format!(
                "{}: a scenario that is evaluated by counting runs on the command line only",
                self.file.source.file
            )));
        }
        Ok(())
    }

    /// Reads the files of the scenario that were not read before.
    fn read(&self, py: Python<'_>) -> PyResult<Inputs> {
        py.detach(|| read(&self.inputs, &self.path, &self.file).map_err(fault))
    }

    fn simulated(
        &self,
        py: Python<'_>,
        inputs: &Inputs,
        cells: Vec<Cell<'_>>,
        full: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<sim::RunResult>> {
        Cells {
            title: &self.file.scenario.name,
            path: &self.path,
            inputs,
            cells,
            options: RunOptions {
                series: full,
                decisions: full,
                optimum: None,
            },
        }
        .run(py, progress)
    }
}

/// Reads the files of a scenario that were not read before. The caller makes an exception of a fault, which takes the interpreter's lock, only
/// after this lock is free.
pub fn read(
    inputs: &Mutex<Inputs>,
    path: &Path,
    file: &ScenarioFile,
) -> Result<Inputs, ScenarioError> {
    let mut inputs = inputs.lock().unwrap_or_else(PoisonError::into_inner);
    inputs.read(path, file)?;
    Ok(inputs.clone())
}

fn file_of(name: &str, source: &Bound<'_, PyAny>) -> PyResult<ScenarioFile> {
    if let Ok(text) = source.cast::<PyString>() {
        return ScenarioFile::parse(name, text.to_str()?).map_err(fault);
    }
    let dict = source
        .cast::<PyDict>()
        .map_err(|_| error("a scenario is TOML text or a dict; open files with Scenario.open"))?;
    let words = json::from_python("the scenario", dict)?;
    let text = config::write(&words).map_err(|e| error(format!("{name}: {e}")))?;
    ScenarioFile::parse(name, &text).map_err(fault)
}

#[pymethods]
impl Scenario {
    /// Makes a scenario from TOML text or a dict. Files that it names are below `base`; `traces` gives traces in memory for some of them.
    #[new]
    #[pyo3(signature = (source, base = PathBuf::from("."), traces = None))]
    fn of(
        source: &Bound<'_, PyAny>,
        base: PathBuf,
        traces: Option<BTreeMap<String, Bound<'_, Trace>>>,
    ) -> PyResult<Self> {
        let given = traces.unwrap_or_default().into_iter();
        let given = given.map(|(name, t)| (name, Arc::clone(&t.get().loaded)));
        Self::new(
            file_of(NO_FILE, source)?,
            base.join(NO_FILE),
            given.collect(),
        )
    }

    /// Opens a scenario file.
    #[staticmethod]
    fn open(path: PathBuf) -> PyResult<Self> {
        let text = std::fs::read_to_string(&path).map_err(|e| {
            let message = format!("cannot read {}: {e}", path.display());
            match e.kind() {
                std::io::ErrorKind::NotFound => {
                    pyo3::exceptions::PyFileNotFoundError::new_err(message)
                }
                _ => pyo3::exceptions::PyOSError::new_err(message),
            }
        })?;
        let file = ScenarioFile::parse(&path.display().to_string(), &text).map_err(fault)?;
        Self::new(file, path, BTreeMap::new())
    }

    /// Name.
    #[getter]
    fn name(&self) -> &str {
        &self.file.scenario.name
    }

    /// Text in TOML.
    #[getter]
    fn text(&self) -> &str {
        &self.file.source.text
    }

    /// Strategy of `simulate` unless it names another one.
    #[getter]
    fn strategy(&self) -> &str {
        &self.file.scenario.strategy
    }

    /// Strategies of `compare` unless it names others.
    #[getter]
    fn strategies(&self) -> Vec<&str> {
        self.file
            .scenario
            .compare
            .iter()
            .map(String::as_str)
            .collect()
    }

    /// Seed of `simulate` unless it names another one.
    #[getter]
    fn seed(&self) -> u64 {
        self.file.scenario.seed
    }

    fn __repr__(&self) -> String {
        format!("<terrace.Scenario {}>", self.name())
    }

    /// Parts for the same scenario in another process: label of the text in errors, absolute path, text.
    fn _parts(&self) -> PyResult<(&str, PathBuf, &str)> {
        let path = std::path::absolute(&self.path).map_err(other)?;
        Ok((&self.file.source.file, path, &self.file.source.text))
    }

    /// Makes a scenario from the parts of another one; `traces` replaces its files.
    #[staticmethod]
    fn _of_parts(
        label: &str,
        path: PathBuf,
        text: &str,
        traces: BTreeMap<String, Bound<'_, Trace>>,
    ) -> PyResult<Self> {
        let file = ScenarioFile::parse(label, text).map_err(fault)?;
        let given = traces.into_iter();
        let given = given.map(|(name, t)| (name, Arc::clone(&t.get().loaded)));
        Self::new(file, path, given.collect())
    }

    /// Writes the traces of the scenario to a directory in the native format, each named after its content; their names there, by file.
    fn _save_traces(
        &self,
        py: Python<'_>,
        directory: PathBuf,
    ) -> PyResult<BTreeMap<String, String>> {
        let inputs = self.read(py)?;
        py.detach(|| {
            let (loaded, _) = inputs.of(&self.path, &self.file);
            let mut saved = BTreeMap::new();
            for (config, trace) in self.file.scenario.traces.iter().zip(loaded) {
                let name = format!("{}-{}.trc", trace.content_hash, trace.volumes_hash());
                let to = directory.join(&name);
                if !to.exists() {
                    trace::save(trace, &to, &mut |_| look().map_err(ReadException))
                        .map_err(|e| e.0)?;
                }
                saved.insert(config.file.clone(), name);
            }
            Ok(saved)
        })
    }

    /// Returns the scenario with other values at some keys, written as in `terrace sim sweep`, such as "policy.hold" or "tiers[fast].devices".
    fn with_settings(&self, settings: BTreeMap<String, Bound<'_, PyAny>>) -> PyResult<Self> {
        let parsed: PyResult<Vec<(String, Setting)>> = settings
            .iter()
            .map(|(key, value)| {
                let value = json::from_python(key, value)?;
                Ok((key.clone(), Setting::parse(&value.to_string())))
            })
            .collect();
        let parsed = parsed?;
        let pairs: Vec<(&str, &Setting)> = parsed.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let text = self.file.source.with(&pairs).map_err(fault)?.text;
        let file = ScenarioFile::parse(&text.file, &text.text).map_err(fault)?;
        Self::new(file, self.path.clone(), self.given.clone())
    }

    /// Simulates one strategy: a name, or an object or class with `decide(facts, state, seed)`.
    /// `requests`: True keeps all requests as a table; a callable gets a table per measurement window; a path is a file for them: .parquet, .csv or .csv.zst.
    #[pyo3(signature = (strategy = None, seed = None, progress = None, requests = None))]
    fn simulate(
        &self,
        py: Python<'_>,
        strategy: Option<&Bound<'_, PyAny>>,
        seed: Option<u64>,
        progress: Option<&Bound<'_, PyAny>>,
        requests: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RunTables> {
        self.check()?;
        let chosen = match strategy {
            Some(given) => RunStrategy::new(given)?,
            None => RunStrategy::Native(self.file.scenario.strategy.clone()),
        };
        chosen.check(&self.file)?;
        let mut file = self.file.clone();
        file.scenario.seed = seed.unwrap_or(file.scenario.seed);
        let log = RequestSink::new(requests)?;
        let cell = Cell {
            file,
            strategy: &chosen,
            requests: log.as_ref(),
        };
        let results = self.simulated(py, &self.read(py)?, vec![cell], true, progress);
        let result = results?.into_iter().next();
        let result = result.ok_or_else(|| error("the run was stopped"))?;
        let requests = log.map(RequestSink::close).transpose()?;
        RunTables::new(py, result, requests.flatten())
    }

    /// Simulates several strategies with several seeds. With two seeds or more, means have 95 % intervals.
    #[pyo3(signature = (strategies = None, seeds = None, metrics = None, progress = None))]
    fn compare(
        &self,
        py: Python<'_>,
        strategies: Option<Vec<Bound<'_, PyAny>>>,
        seeds: Option<Vec<u64>>,
        metrics: Option<Vec<String>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Comparison> {
        self.check()?;
        let native = || {
            let names = self.file.scenario.compare.iter();
            names.cloned().map(RunStrategy::Native).collect()
        };
        let chosen: Vec<RunStrategy> = match strategies {
            Some(given) => given
                .iter()
                .map(RunStrategy::new)
                .collect::<PyResult<_>>()?,
            None => native(),
        };
        for one in &chosen {
            one.check(&self.file)?;
        }
        let names = chosen.iter().map(|c| c.name().to_owned()).collect();
        let sweep = Sweep::new(self.file.clone(), vec![], names, seeds.unwrap_or_default());
        let sweep = sweep.map_err(other)?;
        let metrics = metrics_of(metrics)?;
        let inputs = self.read(py)?;
        let model = py.detach(|| inputs.build(&self.path, &self.file));
        let model = model.map_err(fault)?.model;
        for metric in &metrics {
            let check = metric.check(&model);
            check.map_err(|e| error(format!("metrics: {e}")))?;
        }
        let of_sweep = sweep.cells();
        let cells: PyResult<Vec<Cell<'_>>> = of_sweep
            .iter()
            .map(|cell| {
                let strategy = chosen.iter().find(|c| c.name() == cell.strategy);
                Ok(Cell {
                    file: sweep.scenario(cell.point, cell.seed).map_err(other)?,
                    strategy: strategy.ok_or_else(|| error("a strategy without a name"))?,
                    requests: None,
                })
            })
            .collect();
        let results = self.simulated(py, &inputs, cells?, false, progress)?;
        comparison::of(&sweep, &of_sweep, metrics, results)
    }
}
