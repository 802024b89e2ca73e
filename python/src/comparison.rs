//! Comparisons: a row per strategy and seed, and means over seeds with their intervals, as `terrace sim sweep` computes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::Value;
use sim::RunResult;
use sim::sweep::{
    Cell, CellResult, CellRow, DEFAULT_METRICS, Metric, SWEEP_SCHEMA, Sweep, SweepResult, means,
};

use crate::error::{error, other};
use crate::json;
use crate::table::{Columns, Table};

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

    /// Adds a column per key that varies: numbers if all its values are, else text.
    fn settings<'a>(
        &'a self,
        mut columns: Columns,
        rows: &dyn Fn() -> Box<dyn Iterator<Item = &'a BTreeMap<String, Value>> + 'a>,
    ) -> Columns {
        for key in &self.result.keys {
            let all_numbers = rows().all(|r| r.get(key).is_some_and(Value::is_number));
            columns = match all_numbers {
                true => columns.f64(key, "", rows().map(|r| r.get(key)?.as_f64())),
                false => columns.text(key, rows().map(|r| r.get(key).map(shown))),
            };
        }
        columns
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
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
        let settings = self.settings(Columns::default(), &|| {
            Box::new(rows().map(|r| &r.settings))
        });
        let mut columns = settings
            .text("strategy", rows().map(|r| Some(&r.strategy)))
            .u64("seed", "", rows().map(|r| Some(r.seed)));
        for metric in &self.result.metrics {
            let name = metric.name();
            let value = |r: &CellRow| r.metrics.get(name).copied().flatten();
            columns = columns.f64(name, "", rows().map(value));
        }
        columns = columns.text("error", rows().map(|r| r.error.as_ref()));
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
        self.settings(Columns::default(), &|| {
            Box::new(rows().map(|r| &r.0.settings))
        })
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

    /// The comparison as text in JSON, as `terrace sim sweep -o json` prints it: the same bytes for the same results.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.result).map_err(other)
    }

    /// Writes `runs.parquet` and `means.parquet` to a directory, which is created. Needs pyarrow.
    fn to_parquet(slf: &Bound<'_, Self>, directory: PathBuf) -> PyResult<()> {
        let files = slf.py().import("terrace._files")?;
        files.call_method1("write_tables", (slf, ["runs", "means"], directory))?;
        Ok(())
    }

    fn __str__(&self) -> String {
        report::sweep(&self.result)
    }

    fn __repr__(&self) -> String {
        self.__str__()
    }
}
