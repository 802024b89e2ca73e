//! Methods that were evaluated by counting: a table for each load, and comma-separated values.

use sim::counting::{CountingResult, CountingRow};

use crate::format::{NONE, fixed};
use crate::tables::{number, printable, table, words};

/// A table for each load. `vs best` is against the best method of the same size of fast tier that does not know the future.
pub fn counting(result: &CountingResult) -> String {
    let mut out = String::new();
    let mut loads: Vec<&str> = result.rows.iter().map(|r| r.load.as_str()).collect();
    loads.dedup();
    for load in loads {
        let rows: Vec<&CountingRow> = result.rows.iter().filter(|r| r.load == load).collect();
        let first = rows[0];
        out += &format!(
            "{}: {} extents of {}, {} requests in {} intervals of {}\n",
            printable(load),
            first.extents,
            result.extent,
            first.requests,
            first.intervals,
            result.counting.interval
        );
        out += &of_load(&rows);
        out.push('\n');
    }
    out
}

fn of_load(rows: &[&CountingRow]) -> String {
    let columns = [
        number("fast tier", "%"),
        words("method"),
        number("fast I/Os", "%"),
        number("movement", "% of I/Os"),
        number("storage", "× slow tier"),
        number("total", "× slow tier"),
        number("vs best", "%"),
        number("moved", "extents"),
        number("share", "short, %"),
    ];
    let cells = rows.iter().map(|row| {
        let best = rows
            .iter()
            .filter(|r| r.fast_tier_share == row.fast_tier_share && !r.knows_the_future)
            .filter_map(|r| r.score.map(|s| s.total))
            .fold(f64::NAN, f64::max);
        let value = |of: &dyn Fn(&sim::counting::Score) -> Option<f64>, digits| {
            let value = row.score.as_ref().and_then(of);
            value.map_or_else(|| NONE.into(), |v| fixed(v, digits))
        };
        vec![
            fixed(row.fast_tier_share * 100.0, 0),
            row.strategy.clone(),
            value(&|s| Some(s.fast_share * 100.0), 1),
            value(&|s| Some(s.movement * 100.0), 1),
            value(&|s| Some(s.storage), 3),
            value(&|s| Some(s.total), 3),
            value(&|s| Some((s.total / best - 1.0) * 100.0), 1),
            value(&|s| Some(s.extents_moved as f64), 0),
            value(&|s| s.share.map(|c| c * 100.0), 0),
        ]
    });
    table(&columns, cells.collect())
}

/// A line for each row.
pub fn counting_csv(result: &CountingResult) -> String {
    let mut out = String::from(
        "scenario,load,extents,intervals,requests,fast_tier_share,strategy,knows_the_future,fast_share,movement,storage,total,extents_moved,bytes_moved,distinct_moved\n",
    );
    for row in &result.rows {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let score = row.score.map_or_else(
            || ",,,,,,".to_string(),
            |s| {
                format!(
                    "{},{},{},{},{},{},{}",
                    s.fast_share,
                    s.movement,
                    s.storage,
                    s.total,
                    s.extents_moved,
                    s.bytes_moved,
                    s.distinct_moved
                )
            },
        );
        out += &format!(
            "{},{},{},{},{},{},{},{},{score}\n",
            quoted(&result.scenario),
            quoted(&row.load),
            row.extents,
            row.intervals,
            row.requests,
            row.fast_tier_share,
            quoted(&row.strategy),
            row.knows_the_future,
        );
    }
    out
}
