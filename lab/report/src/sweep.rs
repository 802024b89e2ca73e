//! Tables of sweeps: a row per cell, as text and as comma-separated values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use sim::sweep::{Metric, SweepResult};

use crate::csv;
use crate::format::{NONE, fixed};
use crate::tables::{Align, Column, number, printable, table, words};

/// Renders a row per cell; with several seeds, a row of means per point and strategy.
pub fn sweep(result: &SweepResult) -> String {
    let (cells, seeds) = (result.cells.len(), result.seeds.len());
    let means = match seeds {
        0 | 1 => String::new(),
        n => format!(", means over {n} seeds ± half of their 95 % interval (Student's t)"),
    };
    let rows = match result.means.is_empty() {
        true => result
            .cells
            .iter()
            .map(|c| {
                let value = |m: &Metric| one(m, c.metrics.get(m.name()).copied().flatten());
                row(result, &c.settings, &c.strategy, value)
            })
            .collect(),
        false => result
            .means
            .iter()
            .map(|r| {
                let value = |m: &Metric| match r.metrics.get(m.name()).copied().flatten() {
                    None => NONE.into(),
                    Some(i) => format!("{} ± {}", one(m, Some(i.mean)), one(m, Some(i.half()))),
                };
                row(result, &r.settings, &r.strategy, value)
            })
            .collect(),
    };
    let same = result.keys.iter().filter(|key| !varies(result, key));
    let same: Vec<String> = result.cells.first().map_or(vec![], |cell| {
        same.map(|key| format!("{key}={}", setting(&cell.settings, key)))
            .collect()
    });
    format!(
        "sweep of {}{}{}: {cells} {}{means}\n\n{}",
        result.scenario,
        if same.is_empty() { "" } else { " with " },
        printable(&same.join(", ")),
        if cells == 1 { "cell" } else { "cells" },
        table(&columns(result), rows)
    )
}

/// Returns true if a key has several values. Keys with one value are not columns.
fn varies(result: &SweepResult, key: &str) -> bool {
    let mut values = result.cells.iter().map(|c| c.settings.get(key));
    let first = values.next();
    values.any(|v| Some(v) != first)
}

/// Returns the columns: keys that vary, strategy, metrics.
fn columns(result: &SweepResult) -> Vec<Column> {
    let keys = result.keys.iter().filter(|key| varies(result, key));
    let keys = keys.map(|key| {
        let of = |s: &&BTreeMap<String, Value>| s.get(key).is_some_and(Value::is_number);
        let numbers = result.cells.iter().map(|c| &c.settings).all(|s| of(&s));
        // The key takes two lines, because keys are long and their values are short.
        let names_end = key.rfind(']').map_or(0, |i| i + 1);
        let (table, name) = match key[names_end..].rfind('.') {
            Some(dot) => key.split_at(names_end + dot),
            None => (key.as_str(), ""),
        };
        Column {
            name: Cow::Owned(table.to_owned()),
            unit: Cow::Owned(name.to_owned()),
            align: if numbers { Align::Number } else { Align::Words },
        }
    });
    let metrics = result.metrics.iter().map(|m| {
        let (title, unit) = m.title();
        match m.group() {
            None => number(title, unit),
            Some(group) => Column {
                name: Cow::Owned(format!("{group} {title}")),
                ..number("", unit)
            },
        }
    });
    keys.chain([words("strategy")]).chain(metrics).collect()
}

fn row(
    result: &SweepResult,
    settings: &BTreeMap<String, Value>,
    strategy: &str,
    value: impl Fn(&Metric) -> String,
) -> Vec<String> {
    let keys = result.keys.iter().filter(|key| varies(result, key));
    let keys = keys.map(|key| setting(settings, key));
    let metrics = result.metrics.iter().map(value);
    keys.chain([strategy.to_owned()]).chain(metrics).collect()
}

fn one(metric: &Metric, value: Option<f64>) -> String {
    value.map_or_else(
        || NONE.into(),
        |v| {
            let (value, digits) = metric.shown(v);
            fixed(value, digits)
        },
    )
}

/// Formats a value as on a command line: text without quotes.
fn setting(settings: &BTreeMap<String, Value>, key: &str) -> String {
    match settings.get(key) {
        None => NONE.into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Renders a row per cell: keys that vary, `strategy`, `seed`, and the metrics in their units; empty for unknown values.
pub fn sweep_csv(result: &SweepResult) -> String {
    let mut out = String::new();
    let keys = result.keys.iter().cloned();
    let names = result.metrics.iter().map(|m| m.name().to_owned());
    let header = keys.chain(["strategy".into(), "seed".into()]).chain(names);
    csv::row(&mut out, header.collect());
    for cell in &result.cells {
        let keys = result.keys.iter().map(|key| setting(&cell.settings, key));
        let values = result
            .metrics
            .iter()
            .map(|m| csv::number(cell.metrics.get(m.name()).copied().flatten()));
        let own = [cell.strategy.clone(), cell.seed.to_string()];
        csv::row(&mut out, keys.chain(own).chain(values).collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use sim::sweep::{CellRow, SWEEP_SCHEMA, means};

    use super::*;

    fn result(seeds: &[u64]) -> SweepResult {
        let names = ["class[gold].latency_p99_us", "moved_bytes"];
        let metrics: Vec<Metric> = names.iter().map(|n| Metric::parse(n).unwrap()).collect();
        let rows = [(1, "60s"), (4, "2m, about")]
            .into_iter()
            .flat_map(|(n, epoch)| {
                seeds.iter().map(move |seed| CellRow {
                    cell: "0".into(),
                    settings: BTreeMap::from([
                        ("tiers[fast].devices".to_owned(), n.into()),
                        ("extent".to_owned(), epoch.into()),
                        ("window".to_owned(), "5s".into()),
                    ]),
                    strategy: "noop".into(),
                    seed: *seed,
                    metrics: BTreeMap::from([
                        (names[0].to_owned(), (n > 1).then_some((n + seed) as f64)),
                        (names[1].to_owned(), Some((n << 30) as f64)),
                    ]),
                    error: None,
                })
            });
        let cells: Vec<CellRow> = rows.collect();
        SweepResult {
            schema: SWEEP_SCHEMA,
            version: "0".into(),
            scenario: "s".into(),
            keys: ["tiers[fast].devices", "extent", "window"]
                .map(Into::into)
                .into(),
            strategies: vec!["noop".into()],
            seeds: seeds.to_vec(),
            means: means(&cells, seeds.len(), &metrics),
            metrics,
            cells,
        }
    }

    #[test]
    fn single_seed_has_a_row_per_cell_and_several_have_means() {
        insta::assert_snapshot!(format!(
            "{}\n{}",
            sweep(&result(&[1])),
            sweep(&result(&[1, 2, 3]))
        ));
        insta::assert_snapshot!(sweep_csv(&result(&[1, 2])));
    }
}
