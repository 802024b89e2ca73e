//! Comparison of passively measured sensitivity with injection: `cargo run --release -p bench -- passive-sensitivity [--json]`.
//!
//! Prints means over seeds 1 to 5 ± half of the range over the seeds. With `--json`, also prints every row.

use sim::{SENSITIVITY_CASES, SensitivityRow, sensitivity_row};

use crate::BenchResult;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// Formats the mean and half of the range. If rows have no value, the number of values follows.
fn over(
    rows: &[SensitivityRow],
    of: impl Fn(&SensitivityRow) -> Option<f64>,
    scale: f64,
    digits: usize,
) -> String {
    let values: Vec<f64> = rows.iter().filter_map(of).map(|v| v * scale).collect();
    if values.is_empty() {
        return "none".into();
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let missing = if values.len() < rows.len() {
        format!(" ({} of {})", values.len(), rows.len())
    } else {
        String::new()
    };
    format!(
        "{mean:.digits$} ± {:.digits$}{missing}",
        (most - least) / 2.0
    )
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let mut all = Vec::new();
    println!(
        "| case | m, injected, steady | m, injected | m, passive | windows | spread, µs | tier | measured, µs | injected, % | passive, % | uncalibrated, % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for case in SENSITIVITY_CASES {
        let rows = SEEDS
            .map(|seed| sensitivity_row(case, seed))
            .collect::<Result<Vec<_>, _>>()?;
        for (i, tier) in rows[0].tiers.iter().enumerate() {
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                case.name,
                over(&rows, |r| r.m_injected_steady, 1.0, 2),
                over(&rows, |r| r.m_injected, 1.0, 2),
                over(&rows, |r| r.m_passive, 1.0, 2),
                over(&rows, |r| r.windows, 1.0, 0),
                over(&rows, |r| r.spread_us, 1.0, 0),
                tier.tier,
                over(&rows, |r| Some(r.tiers[i].measured_us), 1.0, 0),
                over(&rows, |r| Some(r.tiers[i].injected), 100.0, 0),
                over(&rows, |r| r.tiers[i].passive, 100.0, 0),
                over(&rows, |r| Some(r.tiers[i].uncalibrated), 100.0, 0),
            );
        }
        all.extend(rows);
    }
    if args.iter().any(|a| a == "--json") {
        println!(
            "{}",
            serde_json::to_string_pretty(&all).expect("rows are plain data")
        );
    }
    Ok(())
}
