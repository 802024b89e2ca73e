//! Comparisons: a row per strategy and seed, and means over seeds with their intervals, as `terrace sim sweep` computes them.

use pyo3::prelude::*;
use sim::RunResult;
use sim::sweep::{Cell, CellResult, CellRow, Metric, SWEEP_SCHEMA, Sweep, SweepResult, means};

use crate::error::{error, other};
use crate::json;
use crate::table::{Columns, Table};

/// Strategies side by side.
#[pyclass(frozen, module = "terrace")]
pub struct Comparison {
    result: SweepResult,
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
            CellRow::new(sweep, cell, String::new(), &metrics, Ok(values))
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
    fn runs(&self) -> PyResult<Table> {
        let rows = || self.result.cells.iter();
        let mut columns = Columns::default()
            .text("strategy", rows().map(|r| Some(&r.strategy)))
            .u64("seed", "", rows().map(|r| Some(r.seed)));
        for metric in &self.result.metrics {
            let name = metric.name();
            let value = |r: &CellRow| r.metrics.get(name).copied().flatten();
            columns = columns.f64(name, "", rows().map(value));
        }
        columns.finish(SWEEP_SCHEMA)
    }

    /// Row per strategy and metric: mean over seeds and 95 % interval (Student's t). Empty with one seed.
    #[getter]
    fn means(&self) -> PyResult<Table> {
        let rows = || {
            self.result.means.iter().flat_map(|r| {
                let metrics = self.result.metrics.iter();
                metrics.map(move |m| (r, m.name(), r.metrics.get(m.name()).copied().flatten()))
            })
        };
        Columns::default()
            .text("strategy", rows().map(|r| Some(&r.0.strategy)))
            .text("metric", rows().map(|r| Some(r.1)))
            .f64("mean", "", rows().map(|r| Some(r.2?.mean)))
            .f64("ci95_low", "", rows().map(|r| Some(r.2?.ci95_low)))
            .f64("ci95_high", "", rows().map(|r| Some(r.2?.ci95_high)))
            .u64("seeds", "", rows().map(|r| Some(r.2?.n as u64)))
            .finish(SWEEP_SCHEMA)
    }

    /// The comparison as plain data, as `terrace sim sweep -o json` gives it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = serde_json::to_value(&self.result).map_err(other)?;
        json::to_python(py, &value)
    }

    fn __str__(&self) -> String {
        report::sweep(&self.result)
    }

    fn __repr__(&self) -> String {
        self.__str__()
    }
}
