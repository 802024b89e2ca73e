//! Result of one run as tables.

use std::path::PathBuf;

use pyo3::prelude::*;
use sim::RunResult;

use crate::error::{error, other};
use crate::json;
use crate::table::Table;

/// Result of a run.
#[pyclass(frozen, name = "Result", module = "terrace")]
pub struct RunTables {
    result: RunResult,
    requests: Option<Py<Table>>,
}

impl RunTables {
    /// Tables of this result.
    pub fn new(py: Python<'_>, result: RunResult, requests: Option<Table>) -> PyResult<Self> {
        let requests = requests.map(|table| Py::new(py, table)).transpose()?;
        Ok(Self { result, requests })
    }

    fn runs(&self) -> &[RunResult] {
        std::slice::from_ref(&self.result)
    }
}

#[pymethods]
impl RunTables {
    /// Name of the scenario.
    #[getter]
    fn scenario(&self) -> &str {
        &self.result.manifest.scenario
    }

    /// Name of the strategy.
    #[getter]
    fn strategy(&self) -> &str {
        &self.result.manifest.strategy
    }

    /// Seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.result.manifest.seed
    }

    /// Summary of the run by group: total, tiers, classes, VMs and volumes.
    #[getter]
    fn groups(&self) -> Table {
        tables::groups(self.runs()).into()
    }

    /// Results over time: a row per group and window.
    #[getter]
    fn windows(&self) -> Table {
        tables::windows(self.runs()).into()
    }

    /// Moves, with reason, prediction and outcome.
    #[getter]
    fn moves(&self) -> Table {
        tables::moves(self.runs()).into()
    }

    /// Decisions: a row per decision and volume; `outcome` is stay, move or held, and `reason` says why.
    #[getter]
    fn decisions(&self) -> Table {
        tables::decisions(self.runs()).into()
    }

    /// Remedies for violations of objectives: a row per violation, with the remedy that was applied or the reasons why each was rejected.
    #[getter]
    fn remedies(&self) -> Table {
        tables::remedies(self.runs()).into()
    }

    /// Tier of each volume at the end.
    #[getter]
    fn final_tiers(&self) -> Table {
        tables::final_tiers(self.runs()).into()
    }

    /// Single requests, if the run kept them: `simulate(requests=True)`.
    #[getter]
    fn requests(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        let kept = self.requests.as_ref().map(|table| table.clone_ref(py));
        kept.ok_or_else(|| error("the run kept no requests: simulate(..., requests=True)"))
    }

    /// Writes a Parquet file per table to a directory, which is created.
    fn to_parquet(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        let requests = directory.join("requests.parquet");
        if self.requests.is_none() && requests.exists() {
            return Err(error(format!(
                "{} is of another result, and this one kept no requests: remove the file, or name another directory",
                requests.display()
            )));
        }
        py.detach(|| {
            let all = tables::RUN_TABLES.map(|(name, of)| (name, of(self.runs())));
            tables::write_tables(&directory, all)
        })
        .map_err(other)?;
        match &self.requests {
            Some(table) => table.get().to_parquet(py, requests),
            None => Ok(()),
        }
    }

    /// The whole result as plain data, as `terrace sim run --full -o json` gives it for one run.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = serde_json::to_value(&self.result).map_err(other)?;
        json::to_python(py, &value)
    }

    fn __str__(&self) -> String {
        report::summary(std::slice::from_ref(&self.result))
    }

    fn __repr__(&self) -> String {
        let manifest = &self.result.manifest;
        format!(
            "<terrace.Result of {} under {}, seed {}>",
            manifest.scenario, manifest.strategy, manifest.seed
        )
    }
}
