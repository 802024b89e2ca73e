//! Comparisons: a row per strategy and seed, and means over seeds with their intervals, as `terrace sim sweep` computes them.

use std::path::PathBuf;

use pyo3::prelude::*;
use sim::RunResult;
use sim::sweep::{
    Cell, CellResult, CellRow, DEFAULT_METRICS, Metric, SWEEP_SCHEMA, Sweep, SweepResult, means,
};

use crate::error::{error, other};
use crate::json;
use crate::table::Table;

/// Strategies side by side.
#[pyclass(frozen, module = "terrace")]
pub struct Comparison {
    result: SweepResult,
}

/// Parses names of metrics; without names, the usual ones.
pub fn metrics_of(names: Option<Vec<String>>) -> PyResult<Vec<Metric>> {
    let names = names.unwrap_or_else(|| DEFAULT_METRICS.map(String::from).to_vec());
    let parse = |name: &String| Metric::parse(name).map_err(|e| error(format!("metrics: {e}")));
    names.iter().map(parse).collect()
}

impl Comparison {
    /// Comparison with these rows.
    pub fn new(result: SweepResult) -> Self {
        Self { result }
    }
}

/// Puts results side by side, in the order of the cells.
pub fn of(
    sweep: &Sweep,
    cells: &[Cell],
    metrics: Vec<Metric>,
    results: Vec<RunResult>,
) -> PyResult<Comparison> {
    if results.len() != cells.len() {
        return Err(error("the comparison was stopped"));
    }
    let rows: Vec<CellRow> = cells
        .iter()
        .zip(results)
        .map(|(cell, result)| {
            let values = CellResult::Run(Box::new(result)).values(&metrics);
            CellRow::new(
                sweep,
                cell,
                String::new(),
                &metrics,
                Ok::<_, String>(values),
            )
        })
        .collect();
    let result = SweepResult {
        schema: SWEEP_SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        scenario: sweep.base().scenario.name.clone(),
        keys: vec![],
        strategies: sweep.strategies().to_vec(),
        seeds: sweep.seeds().to_vec(),
        means: means(&rows, sweep.seeds().len(), &metrics),
        metrics,
        cells: rows,
    };
    Ok(Comparison { result })
}

#[pymethods]
impl Comparison {
    /// Row per strategy and seed, with a column per metric.
    #[getter]
    fn runs(&self) -> Table {
        tables::runs(&self.result).into()
    }

    /// Row per strategy and metric: mean over seeds and 95 % interval (Student's t). Empty with one seed.
    #[getter]
    fn means(&self) -> Table {
        tables::means(&self.result).into()
    }

    /// The comparison as plain data, as `terrace sim sweep -o json` gives it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = serde_json::to_value(&self.result).map_err(other)?;
        json::to_python(py, &value)
    }

    /// The comparison as text in JSON, as `terrace sim sweep -o json` prints it: the same bytes for the same results.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.result).map_err(other)
    }

    /// Writes `runs.parquet` and `means.parquet` to a directory, which is created.
    fn to_parquet(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        py.detach(|| tables::write_tables(&directory, tables::sweep(&self.result)))
            .map_err(other)
    }

    fn __str__(&self) -> String {
        report::sweep(&self.result)
    }

    fn __repr__(&self) -> String {
        self.__str__()
    }
}
