//! What a sweep leaves behind: a row per cell, and means over seeds.

use std::collections::BTreeMap;

use algo::Interval;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cell, Metric, Sweep};
use crate::{RUN_SCHEMA, RunResult};

/// Name and version of the layout of [`SweepResult`].
pub const SWEEP_SCHEMA: &str = "terrace.sim.sweep/1";

/// What a cell leaves: a case for each kind of simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellResult {
    /// Request by request.
    Run(Box<RunResult>),
}

impl CellResult {
    /// Name and version of the result's layout; `None` if it is one that this program does not read.
    pub fn schema(&self) -> Option<&'static str> {
        match self {
            Self::Run(result) => (result.schema == RUN_SCHEMA).then_some(RUN_SCHEMA),
        }
    }

    /// Its values of the metrics.
    pub fn values(&self, metrics: &[Metric]) -> Vec<Option<f64>> {
        match self {
            Self::Run(result) => metrics.iter().map(|m| m.of_run(result)).collect(),
        }
    }
}

/// All rows.
#[derive(Debug, Clone, Serialize)]
pub struct SweepResult {
    /// [`SWEEP_SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Keys that vary, in their order.
    pub keys: Vec<String>,
    /// Strategies.
    pub strategies: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Metrics, in their order.
    pub metrics: Vec<Metric>,
    /// A row per cell.
    pub cells: Vec<CellRow>,
    /// Means over seeds, a row per point and strategy; empty with one seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub means: Vec<MeanRow>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellRow {
    /// Name of its result's file, without extension: the same for cells that do not differ in what they depend on.
    pub cell: String,
    /// Value of every key that varies.
    pub settings: BTreeMap<String, Value>,
    /// Strategy.
    pub strategy: String,
    /// Seed.
    pub seed: u64,
    /// By name; null where there is no value.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The seeds of a point and a strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeanRow {
    /// Value of every key that varies.
    pub settings: BTreeMap<String, Value>,
    /// Strategy.
    pub strategy: String,
    /// By name; null unless every seed has a value.
    pub metrics: BTreeMap<String, Option<Interval>>,
}

impl CellRow {
    /// Of a cell, and the values of the metrics or why there are none. `name` is that of its result.
    pub fn new(
        sweep: &Sweep,
        cell: &Cell,
        name: String,
        metrics: &[Metric],
        values: Result<Vec<Option<f64>>, String>,
    ) -> Self {
        let settings = sweep.settings(cell.point).into_iter();
        let (values, error) = match values {
            Ok(values) => (values, None),
            Err(why) => (vec![None; metrics.len()], Some(why)),
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

/// Means over seeds of rows in the order of [`Sweep::cells`]; none with one seed.
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
