//! Tables of evaluations of strategies (`terrace bench decisions`).

use arrow_array::RecordBatch;
use decisions::{
    Comparison, DECISIONS_SCHEMA, RatioInterval, RunMetrics, ScenarioRow, StrategyRow,
    StrategyTotals,
};

use crate::columns::Columns;

/// Unit of violations: seconds of each volume, times the weight of its class.
const WEIGHTED: &str = "class-weighted s";

/// Returns the tables of a comparison by name: a row per strategy, per scenario and strategy, and per run.
pub fn comparison(of: &Comparison) -> [(&'static str, RecordBatch); 3] {
    [
        ("totals", totals(of)),
        ("scenarios", scenarios(of)),
        ("runs", runs(of)),
    ]
}

/// Adds a ratio with the ends of its 95 % interval.
fn ratio<'a, T: 'a>(
    columns: Columns,
    name: &str,
    rows: impl Iterator<Item = &'a T> + Clone,
    take: fn(&T) -> Option<RatioInterval>,
) -> Columns {
    let end = |of: fn(RatioInterval) -> f64| rows.clone().map(move |r| take(r).map(of));
    columns
        .f64(name, "", end(|r| r.ratio))
        .f64(&format!("{name}_ci95_low"), "", end(|r| r.ci95_low))
        .f64(&format!("{name}_ci95_high"), "", end(|r| r.ci95_high))
}

fn totals(of: &Comparison) -> RecordBatch {
    let rows = || of.totals.iter();
    let count = |take: fn(&StrategyTotals) -> u64| rows().map(move |t| Some(take(t)));
    let mut columns = Columns::default().text("strategy", rows().map(|t| Some(&t.strategy)));
    columns = ratio(columns, "ratio", rows(), |t| t.ratio);
    columns = ratio(columns, "ratio_bounded", rows(), |t| t.ratio_bounded);
    columns
        .f64("gained", "", rows().map(|t| t.gained))
        .u64("guard_moves", "", count(|t| t.guard_moves))
        .f64(
            "guard_violation",
            WEIGHTED,
            rows().map(|t| t.guard_violation),
        )
        .text("lost", rows().map(|t| Some(t.lost.join(", "))))
        .f64("moves_per_seed", "", rows().map(|t| Some(t.moves)))
        .f64("moved_gib", "GiB", rows().map(|t| Some(t.gib)))
        .u64("returns", "", count(|t| t.returns))
        .u64("returns_caused", "", count(|t| t.returns_caused))
        .u64("moves", "", count(|t| t.moves_all))
        .u64("with_interval", "", count(|t| t.with_interval))
        .u64("held", "", count(|t| t.held))
        .u64("worse", "", count(|t| t.worse))
        .f64("width", "", rows().map(|t| t.width))
        .f64("error_median", "", rows().map(|t| t.error_median))
        .finish(DECISIONS_SCHEMA)
}

fn scenarios(of: &Comparison) -> RecordBatch {
    type Row<'a> = (&'a ScenarioRow, &'a StrategyRow);
    let rows: Vec<Row<'_>> = of.scenarios.iter().flat_map(strategies).collect();
    let rows = || rows.iter();
    let number = |take: fn(&StrategyRow) -> f64| rows().map(move |r| Some(take(r.1)));
    let columns = Columns::default()
        .text("scenario", rows().map(|r| Some(&r.0.scenario)))
        .flag("guard", rows().map(|r| r.0.guard))
        .f64("possible", WEIGHTED, rows().map(|r| Some(r.0.possible)))
        .text("rival", rows().map(|r| Some(&r.0.rival)))
        .text("rival_bounded", rows().map(|r| r.0.rival_bounded.as_ref()))
        .f64("hindsight", WEIGHTED, rows().map(|r| r.0.hindsight))
        .f64("solo", WEIGHTED, rows().map(|r| r.0.solo))
        .text("strategy", rows().map(|r| Some(&r.1.strategy)))
        .f64("violation", WEIGHTED, number(|s| s.violation))
        .f64("excess", WEIGHTED, number(|s| s.excess));
    ratio(columns, "ratio", rows(), |r| r.1.ratio)
        .f64("gained", "", rows().map(|r| r.1.gained))
        .f64("moves", "", number(|s| s.moves))
        .f64("moved_gib", "GiB", number(|s| s.gib))
        .f64("returns", "", number(|s| s.returns))
        .f64("worse", "", number(|s| s.worse))
        .f64("free_mean", "", rows().map(|r| r.1.free_mean))
        .u64("failed", "", rows().map(|r| Some(r.1.failed as u64)))
        .finish(DECISIONS_SCHEMA)
}

fn strategies(scenario: &ScenarioRow) -> Vec<(&ScenarioRow, &StrategyRow)> {
    scenario.strategies.iter().map(|s| (scenario, s)).collect()
}

/// Returns the table of runs: those of each seed without a failed run, in the order of seeds.
fn runs(of: &Comparison) -> RecordBatch {
    type Row<'a> = (&'a str, &'a str, u64, &'a RunMetrics);
    let mut rows: Vec<Row<'_>> = vec![];
    for (scenario, strategy) in of.scenarios.iter().flat_map(strategies) {
        for (i, run) in strategy.runs.iter().enumerate() {
            rows.push((&scenario.scenario, &strategy.strategy, i as u64, run));
        }
    }
    let rows = || rows.iter();
    let number = |take: fn(&RunMetrics) -> f64| rows().map(move |r| Some(take(r.3)));
    let count = |take: fn(&RunMetrics) -> u64| rows().map(move |r| Some(take(r.3)));
    Columns::default()
        .text("scenario", rows().map(|r| Some(r.0)))
        .text("strategy", rows().map(|r| Some(r.1)))
        .u64("run", "", rows().map(|r| Some(r.2)))
        .f64("violation", WEIGHTED, number(|j| j.violation))
        .f64("possible", WEIGHTED, number(|j| j.possible))
        .f64("excess", WEIGHTED, number(|j| j.excess))
        .f64("free_mean_us", "us", rows().map(|r| r.3.free_mean_us))
        .u64("moves", "", count(|j| j.moves))
        .u64("remedies", "", count(|j| j.remedies))
        .u64("moved_bytes", "B", count(|j| j.bytes))
        .u64("returns", "", count(|j| j.returns))
        .u64("returns_caused", "", count(|j| j.returns_caused))
        .u64("worse", "", count(|j| j.worse))
        .u64("held", "", count(|j| j.held))
        .u64("programmed_bytes", "B", rows().map(|r| r.3.programmed))
        .finish(DECISIONS_SCHEMA)
}
