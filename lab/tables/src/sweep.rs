//! Tables of sweeps and comparisons: a row per cell, and means over seeds.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use serde_json::Value;
use sim::sweep::{CellRow, MeanRow, Metric, SWEEP_SCHEMA, SweepResult};

use crate::columns::Columns;

/// Returns the tables of a sweep by name.
pub fn sweep(result: &SweepResult) -> [(&'static str, RecordBatch); 2] {
    [("runs", runs(result)), ("means", means(result))]
}

/// Row per cell, with a column per metric.
pub fn runs(result: &SweepResult) -> RecordBatch {
    let rows = || result.cells.iter();
    let settings = rows().map(|r| &r.settings).collect::<Vec<_>>();
    let mut columns = settings_columns(result, &settings)
        .text("strategy", rows().map(|r| Some(&r.strategy)))
        .u64("seed", "", rows().map(|r| Some(r.seed)));
    for metric in &result.metrics {
        let name = metric.name();
        let value = |r: &CellRow| r.metrics.get(name).copied().flatten();
        columns = columns.f64(name, metric.unit(), rows().map(value));
    }
    columns
        .text("error", rows().map(|r| r.error.as_ref()))
        .finish(SWEEP_SCHEMA)
}

/// Row per combination of values, strategy and metric: mean over seeds and 95 % interval (Student's t). Empty with one seed.
pub fn means(result: &SweepResult) -> RecordBatch {
    let of_mean = |row| result.metrics.iter().map(move |m| (row, m));
    let rows: Vec<(&MeanRow, &Metric)> = result.means.iter().flat_map(of_mean).collect();
    let rows = || rows.iter();
    let value = |r: &(&MeanRow, &Metric)| r.0.metrics.get(r.1.name()).copied().flatten();
    let settings = rows().map(|r| &r.0.settings).collect::<Vec<_>>();
    settings_columns(result, &settings)
        .text("strategy", rows().map(|r| Some(&r.0.strategy)))
        .text("metric", rows().map(|r| Some(r.1.name())))
        .text("unit", rows().map(|r| Some(r.1.unit())))
        .f64("mean", "", rows().map(|r| Some(value(r)?.mean)))
        .f64("ci95_low", "", rows().map(|r| Some(value(r)?.ci95_low)))
        .f64("ci95_high", "", rows().map(|r| Some(value(r)?.ci95_high)))
        .u64("seeds", "", rows().map(|r| Some(value(r)?.n as u64)))
        .finish(SWEEP_SCHEMA)
}

/// Returns a column per key that varies: numbers if all its values are, else text.
fn settings_columns(result: &SweepResult, rows: &[&BTreeMap<String, Value>]) -> Columns {
    let mut columns = Columns::default();
    for key in &result.keys {
        let values = || rows.iter().map(|r| r.get(key));
        columns = match values().all(|v| v.is_some_and(Value::is_number)) {
            true => columns.f64(key, "", values().map(|v| v?.as_f64())),
            false => columns.text(key, values().map(|v| v.map(shown))),
        };
    }
    columns
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_units_of_their_metrics() {
        let wanted = [
            ("latency_read_p99_us", "us"),
            ("class[gold].iops", "1/s"),
            ("mib_per_s_read", "MiB/s"),
            ("slo_violation_s", "vol·s"),
            ("rates_violated_s", "vol·s"),
            ("life_years", "years"),
            ("moved_bytes", "B"),
        ];
        let metrics = wanted.map(|(name, _)| Metric::parse(name).unwrap());
        let result = SweepResult {
            schema: SWEEP_SCHEMA,
            version: String::new(),
            scenario: String::new(),
            keys: vec![],
            strategies: vec![],
            seeds: vec![],
            metrics: metrics.into(),
            cells: vec![],
            means: vec![],
        };
        let schema = runs(&result).schema();
        for (name, unit) in wanted {
            let column = schema.field_with_name(name).unwrap();
            assert_eq!(column.metadata()[crate::UNIT], unit, "{name}");
        }
    }
}
