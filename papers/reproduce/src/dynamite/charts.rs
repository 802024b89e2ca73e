//! Figures as charts.

use report::{Block, Chart, Mark, XyChart, XySeries};

use super::outcome::Outcome;
use super::variants::Variant;

fn line(label: &str, style: usize, mark: Mark, points: Vec<(f64, f64)>) -> XySeries {
    XySeries {
        label: label.into(),
        style,
        mark,
        points,
    }
}

/// Figure 5: requests per second over time.
pub(super) fn fig5(outcome: &Outcome, title: &str, workload: &str, variants: &[Variant]) -> Chart {
    let series = variants.iter().enumerate().filter_map(|(style, variant)| {
        let lines = &outcome.figures.fig5;
        let found = lines
            .iter()
            .find(|l| l.variant == *variant && l.workload == workload)?;
        let points = found.rate_per_s.iter().enumerate();
        let points = points.map(|(minute, rate)| (minute as f64 + 0.5, *rate));
        Some(line(variant.name(), style, Mark::Line, points.collect()))
    });
    Chart::Xy(XyChart {
        title: format!("{title}: {workload}"),
        x: "minute".into(),
        y: "IOPS".into(),
        series: series.collect(),
        marks: vec![(48.0, "48".into()), (75.0, "75".into())],
    })
}

/// Figure 6(b).
pub(super) fn fig6(outcome: &Outcome) -> Block {
    let points = outcome.figures.fig6.over_time.clone();
    Block::Charts(vec![Chart::Xy(XyChart {
        title: "USR-1 and FIO, co-located: strength of interference".into(),
        x: "minute".into(),
        y: "greatest |r|".into(),
        series: vec![line("over the last six minutes", 0, Mark::Line, points)],
        marks: vec![(48.0, "48".into()), (75.0, "75".into())],
    })])
}

/// Figure 7, for each time of drawn curves.
pub(super) fn fig7(outcome: &Outcome) -> Block {
    let mut times: Vec<f64> = outcome.figures.fig7.iter().map(|c| c.at_min).collect();
    times.dedup();
    let chart = |at: f64| {
        let mut series = Vec::new();
        let curves = outcome.figures.fig7.iter().filter(|c| c.at_min == at);
        for (i, curve) in curves.enumerate() {
            let gib = |p: &(units::Bytes, f64, f64)| p.0.as_mib_f64() / 1024.0;
            let estimated = curve.points.iter().map(|p| (gib(p), p.1)).collect();
            let simulated = curve.points.iter().map(|p| (gib(p), p.2)).collect();
            let label = |what: &str| format!("{} {what}", curve.workload);
            series.push(line(&label("estimated"), 2 * i, Mark::Line, estimated));
            series.push(line(&label("simulated"), 2 * i + 1, Mark::Rings, simulated));
        }
        Chart::Xy(XyChart {
            title: format!("Miss ratios at minute {at:.0}"),
            x: "cache, GiB".into(),
            y: "miss ratio".into(),
            series,
            marks: vec![],
        })
    };
    Block::Charts(times.into_iter().map(chart).collect())
}
