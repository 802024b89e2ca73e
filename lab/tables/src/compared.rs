//! Tables of comparisons of strategies on one scenario: distance from the optimum, and evaluations by counting.

use arrow_array::RecordBatch;
use sim::counting::{COUNTING_SCHEMA, CountingResult, CountingRow, Score};
use sim::optimum::{Optimality, StrategyOptimality};

use crate::columns::Columns;

/// Layout of [`optimality`].
pub const OPTIMALITY_SCHEMA: &str = "terrace.run.optimality/1";

/// Row per scenario and strategy: values of its decisions and of the best ones, in units of the objective. Scenarios have their names.
pub fn optimality(of: &[(String, Optimality)]) -> RecordBatch {
    type Row<'a> = (&'a str, &'a Optimality, &'a StrategyOptimality);
    let mut rows: Vec<Row<'_>> = vec![];
    for (scenario, all) in of {
        rows.extend(all.strategies.iter().map(|s| (scenario.as_str(), all, s)));
    }
    let rows = || rows.iter();
    let best = |take: fn(&Optimality) -> f64| rows().map(move |r| Some(take(r.1)));
    Columns::default()
        .text("scenario", rows().map(|r| Some(r.0)))
        .text("objective", rows().map(|r| Some(&r.1.objective)))
        .text("strategy", rows().map(|r| Some(&r.2.strategy)))
        .f64("value", "", rows().map(|r| r.2.value))
        .f64("gained", "", rows().map(|r| r.2.gained))
        .f64("predicted", "", rows().map(|r| r.2.predicted))
        .f64("prediction_gap", "", rows().map(|r| r.2.prediction_gap))
        .f64("stay", "", best(|o| o.stay))
        .f64("chain", "", best(|o| o.chain))
        .f64("best", "", best(|o| o.best))
        .f64("bound", "", best(|o| o.bound))
        .finish(OPTIMALITY_SCHEMA)
}

/// Row per load, size of the fast tier and method.
pub fn counted(of: &[CountingResult]) -> RecordBatch {
    type Row<'a> = (&'a str, &'a CountingRow);
    let rows: Vec<Row<'_>> = of.iter().flat_map(named).collect();
    let rows = || rows.iter();
    let number = |take: fn(Score) -> f64| rows().map(move |r| r.1.score.map(take));
    let count = |take: fn(Score) -> u64| rows().map(move |r| r.1.score.map(take));
    Columns::default()
        .text("scenario", rows().map(|r| Some(r.0)))
        .text("load", rows().map(|r| Some(&r.1.load)))
        .u64("extents", "", rows().map(|r| Some(r.1.extents.into())))
        .u64("intervals", "", rows().map(|r| Some(r.1.intervals as u64)))
        .u64("requests", "", rows().map(|r| Some(r.1.requests)))
        .f64(
            "fast_tier_share",
            "",
            rows().map(|r| Some(r.1.fast_tier_share)),
        )
        .text("strategy", rows().map(|r| Some(&r.1.strategy)))
        .flag("knows_the_future", rows().map(|r| r.1.knows_the_future))
        .f64("fast_share", "", number(|s| s.fast_share))
        .f64("movement", "", number(|s| s.movement))
        .f64("storage", "", number(|s| s.storage))
        .f64("total", "", number(|s| s.total))
        .u64("extents_moved", "", count(|s| s.extents_moved))
        .u64("bytes_moved", "B", count(|s| s.bytes_moved))
        .u64("distinct_moved", "", count(|s| s.distinct_moved.into()))
        .finish(COUNTING_SCHEMA)
}

fn named(result: &CountingResult) -> Vec<(&str, &CountingRow)> {
    let rows = result.rows.iter();
    rows.map(|row| (result.scenario.as_str(), row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_without_results_have_columns_and_no_rows() {
        let runs = crate::RUN_TABLES.map(|(_, of)| of(&[]));
        for table in runs.into_iter().chain([optimality(&[]), counted(&[])]) {
            assert_eq!(table.num_rows(), 0);
            assert!(table.num_columns() > 3);
        }
    }
}
