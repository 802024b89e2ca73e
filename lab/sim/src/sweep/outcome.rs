//! Result of a sweep: a row per cell, and means over seeds.

use std::collections::BTreeMap;

use algo::Interval;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cell, Metric, Sweep};
use crate::{RUN_SCHEMA, RunResult};

/// Name and version of the schema of [`SweepResult`].
pub const SWEEP_SCHEMA: &str = "terrace.sim.sweep/1";

/// Result of a cell, by kind of simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellResult {
    /// Simulation of all requests.
    Run(Box<RunResult>),
}

impl CellResult {
    /// Returns name and version of the result's schema; `None` if this program cannot read it.
    pub fn schema(&self) -> Option<&'static str> {
        match self {
            Self::Run(result) => (result.schema == RUN_SCHEMA).then_some(RUN_SCHEMA),
        }
    }

    /// Returns the values of the metrics.
    pub fn values(&self, metrics: &[Metric]) -> Vec<Option<f64>> {
        match self {
            Self::Run(result) => metrics.iter().map(|m| m.of_run(result)).collect(),
        }
    }
}

/// Results of all cells.
#[derive(Debug, Clone, Serialize)]
pub struct SweepResult {
    /// [`SWEEP_SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Keys that vary, in order.
    pub keys: Vec<String>,
    /// Strategies.
    pub strategies: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Metrics, in order.
    pub metrics: Vec<Metric>,
    /// A row per cell.
    pub cells: Vec<CellRow>,
    /// Means over seeds, a row per point and strategy; empty with one seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub means: Vec<MeanRow>,
}

/// Result of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellRow {
    /// Name of the result's file without extension. Cells with equal identities have the same file.
    pub cell: String,
    /// Value of every varied key.
    pub settings: BTreeMap<String, Value>,
    /// Strategy.
    pub strategy: String,
    /// Seed.
    pub seed: u64,
    /// Values by metric; null without a value.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Reason of a missing result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Means over the seeds of a point and a strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeanRow {
    /// Value of every varied key.
    pub settings: BTreeMap<String, Value>,
    /// Strategy.
    pub strategy: String,
    /// Means by metric; null unless every seed has a value.
    pub metrics: BTreeMap<String, Option<Interval>>,
}

impl CellRow {
    /// Creates the row of a cell from its metrics, or from the reason that they are missing. `name` is that of its
    /// result.
    pub fn new(
        sweep: &Sweep,
        cell: &Cell,
        name: String,
        metrics: &[Metric],
        values: Result<Vec<Option<f64>>, impl ToString>,
    ) -> Self {
        let settings = sweep.settings(cell.point).into_iter();
        let (values, error) = match values {
            Ok(values) => (values, None),
            Err(why) => (vec![None; metrics.len()], Some(why.to_string())),
        };
        Self {
            cell: name,
            settings: settings.map(|(k, v)| (k.to_owned(), v.json())).collect(),
            strategy: cell.strategy.clone(),
            seed: cell.seed,
            metrics: metrics
                .iter()
                .map(|m| m.name().to_owned())
                .zip(values)
                .collect(),
            error,
        }
    }
}

/// Returns the means over seeds, for rows in the order of [`Sweep::cells`]; empty with one seed.
pub fn means(rows: &[CellRow], seeds: usize, metrics: &[Metric]) -> Vec<MeanRow> {
    if seeds < 2 {
        return vec![];
    }
    let of = |rows: &[CellRow], name: &str| Interval::over(rows, |r| *r.metrics.get(name)?);
    let mean = |rows: &[CellRow]| MeanRow {
        settings: rows[0].settings.clone(),
        strategy: rows[0].strategy.clone(),
        metrics: metrics
            .iter()
            .map(|m| (m.name().to_owned(), of(rows, m.name())))
            .collect(),
    };
    rows.chunks_exact(seeds).map(mean).collect()
}
