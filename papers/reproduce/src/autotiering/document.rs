//! Outcome as a document: tables for a terminal, tables and charts for a page.

mod charts;
mod tables;

use report::{Block, Document};

use super::outcome::Outcome;
use super::setup::WARMUP_EPOCHS;
use crate::page::{self, section};

/// Returns the whole document.
pub fn document(outcome: &Outcome) -> Document {
    let setup = &outcome.setup;
    let seeds: Vec<String> = setup.seeds.iter().map(u64::to_string).collect();
    let mut sections = page::scorecard(&outcome.scorecard);
    sections.extend([
        section(
            "noop",
            "Gain over strategies and weak baselines",
            vec![
                Block::Text("Every strategy compared with noop, which makes no moves, under the same seed. A gain over a rival that is worse than noop means little. Means over the seeds ± half of the 95 % interval; ratios are averaged by logarithms.".into()),
                tables::beside_noop(outcome),
            ],
        ),
        section(
            "fig2",
            "Fig. 2: sensitivity to the tier's speed",
            vec![
                Block::Text("Each volume is calibrated on one tier and predicted on the other tiers; then it runs alone on each tier for the true latency. Latencies in µs, first seed.".into()),
                tables::regressions(outcome),
                charts::regressions(outcome),
            ],
        ),
        section(
            "fig3",
            "Fig. 3: all tiers",
            vec![
                Block::Text("Figures show the workloads of the first reading. Means over the seeds ± half of the 95 % interval, relative to noop under the same seed; 1 is the result without moves.".into()),
                tables::rows(&outcome.figures.fig3, false),
                charts::fig3(outcome),
            ],
        ),
        section(
            "fig4",
            "Fig. 4: tier by tier",
            vec![tables::rows(&outcome.figures.fig4, true), charts::fig4(outcome)],
        ),
        section(
            "fig5",
            "Fig. 5: distribution over windows",
            vec![
                Block::Text("Absolute thresholds depend on the hardware. In the paper, 90 % of IDT's windows are below 100 K IOPS and 1,200 MB/s; the last three columns use IDT's own 90th percentile instead.".into()),
                tables::distributions(outcome),
                charts::fig5(outcome),
            ],
        ),
        section(
            "fig6",
            "Fig. 6: over time",
            vec![
                Block::Text(format!("First seed. The dashed line ends the warm-up of {WARMUP_EPOCHS} epochs of {} s. Latencies are stacked as in the paper, although sums of means over tiers mean little.", number(setup.epoch_s(), 1))),
                charts::fig6(outcome, charts::StackQuantity::Iops),
                charts::fig6(outcome, charts::StackQuantity::MibPerS),
                charts::fig6(outcome, charts::StackQuantity::Latency),
            ],
        ),
        section(
            "fig7",
            "Fig. 7: moved data",
            vec![tables::migrations(outcome), charts::fig7(outcome)],
        ),
    ]);
    if let Some(rows) = &outcome.passive_sensitivity {
        sections.push(section(
            "passive",
            "Sensitivity without injection",
            vec![
                Block::Text("Not in the paper: slopes from natural variation compared with slopes from injection, and the error of the latency that each predicts on other tiers.".into()),
                tables::passive(rows),
            ],
        ));
    }
    sections.push(section(
        "assumptions",
        "Unpublished details and assumptions",
        vec![Block::List(outcome.assumptions.clone())],
    ));
    sections.push(page::numbers(&outcome.scorecard.claims));
    Document {
        title: "AutoTiering (paper 0), Sec. V, repeated".into(),
        facts: vec![
            ("seeds".into(), seeds.join(", ")),
            ("scale".into(), format!("time and sizes / {}", setup.scale)),
            (
                "epochs".into(),
                format!("{WARMUP_EPOCHS} of warm-up, {} measured", setup.epochs),
            ),
            (
                "measured requests".into(),
                format!("{:.0} million", outcome.requests as f64 / 1e6),
            ),
            ("terrace version".into(), outcome.version.clone()),
        ],
        sections,
    }
}

/// Formats a number with this many digits after the point.
fn number(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let text = format!("{value:.digits$}");
    // Avoid "-0.0".
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| matches!(b, b'0' | b'.')) => rest.into(),
        _ => text,
    }
}
