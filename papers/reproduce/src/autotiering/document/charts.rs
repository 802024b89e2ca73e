//! Charts of the document.

use report::{BarChart, Block, Chart, Layer, Mark, StackChart, ValueBar, XyChart, XySeries};

use crate::Interval;
use crate::autotiering::figures::{Row, TimeSeries};
use crate::autotiering::measured::TierOverTime;
use crate::autotiering::measured::{ALL, DIRECTIONS};
use crate::autotiering::outcome::Outcome;
use crate::autotiering::setup::{FIGURED, TIERS};

fn bar(interval: Option<Interval>, times: f64) -> Option<ValueBar> {
    interval.map(|i| ValueBar {
        value: i.mean * times,
        whisker: Some((i.ci95_low * times, i.ci95_high * times)),
    })
}

pub(super) fn regressions(outcome: &Outcome) -> Block {
    let all = &outcome.figures.fig2;
    let charts = all.iter().map(|r| {
        let from = r
            .points
            .iter()
            .map(|p| p.absolute_us)
            .fold(f64::INFINITY, f64::min);
        let to = r.points.iter().map(|p| p.absolute_us).fold(0.0, f64::max);
        let line = |x: f64| (x, r.m * (x - from) + r.b_us);
        let least = r.tiers.iter().map(|t| t.bare_us).fold(from, f64::min);
        let greatest = r.tiers.iter().map(|t| t.bare_us).fold(to, f64::max);
        let series = |label: &str, style: usize, mark: Mark, points: Vec<(f64, f64)>| XySeries {
            label: label.into(),
            style,
            mark,
            points,
        };
        let on = |of: fn(&crate::autotiering::tsscs::OnTier) -> f64| -> Vec<(f64, f64)> {
            r.tiers.iter().map(|t| (t.bare_us, of(t))).collect()
        };
        Chart::Xy(XyChart {
            title: format!("{} on {}: m = {:.2}", r.volume, r.tier, r.m),
            x: "latency of the idle tier and injected, µs".into(),
            y: "mean latency, µs".into(),
            series: vec![
                series(
                    "window",
                    1,
                    Mark::Dots,
                    r.points
                        .iter()
                        .map(|p| (p.absolute_us, p.mean_us))
                        .collect(),
                ),
                series("", 1, Mark::Line, vec![line(from), line(to)]),
                series("", 1, Mark::Continued, vec![line(least), line(from)]),
                series("", 1, Mark::Continued, vec![line(to), line(greatest)]),
                series(
                    "predicted on a tier",
                    2,
                    Mark::Rings,
                    on(|t| t.predicted_us),
                ),
                series("measured there", 3, Mark::Crosses, on(|t| t.measured_us)),
            ],
            marks: r
                .tiers
                .iter()
                .map(|t| (t.bare_us, t.tier.clone()))
                .collect(),
        })
    });
    Block::Charts(charts.collect())
}

/// Title, unit, factor and accessor of one of the three kinds of bars.
type Kind = (
    &'static str,
    &'static str,
    f64,
    fn(&Row) -> Option<Interval>,
);
const KINDS: [Kind; 3] = [
    ("IOPS", "thousand requests/s", 1e-3, |r| r.iops),
    ("bandwidth", "MiB/s", 1.0, |r| r.mib_per_s),
    ("mean latency", "µs", 1.0, |r| r.latency_mean_us),
];

pub(super) fn fig3(outcome: &Outcome) -> Block {
    let rows = &outcome.figures.fig3;
    let groups: Vec<(&str, &str)> = DIRECTIONS.map(|d| ("total", d)).into();
    let mut charts: Vec<Chart> = KINDS
        .iter()
        .map(|kind| bars(rows, kind, &groups, |_, d| d.into()))
        .collect();
    let normalized: Kind = ("latency over noop's", "ratio", 1.0, |r| r.latency_over_noop);
    charts.push(bars(rows, &normalized, &groups, |_, d| d.into()));
    Block::Charts(charts)
}

pub(super) fn fig4(outcome: &Outcome) -> Block {
    let groups: Vec<(&str, &str)> = TIERS
        .iter()
        .flat_map(|t| DIRECTIONS.iter().skip(ALL + 1).map(move |d| (*t, *d)))
        .collect();
    let charts = KINDS.iter().map(|kind| {
        bars(&outcome.figures.fig4, kind, &groups, |t, d| {
            format!("{t} {d}")
        })
    });
    Block::Charts(charts.collect())
}

fn bars(
    rows: &[Row],
    (title, unit, times, value): &Kind,
    groups: &[(&str, &str)],
    name: impl Fn(&str, &str) -> String,
) -> Chart {
    let of = |strategy: &str, group: &str, direction: &str| {
        let row = rows
            .iter()
            .find(|r| r.strategy == strategy && r.group == group && r.direction == direction)?;
        bar(value(row), *times)
    };
    Chart::Bars(BarChart {
        title: (*title).into(),
        unit: (*unit).into(),
        groups: groups.iter().map(|(g, d)| name(g, d)).collect(),
        series: FIGURED
            .iter()
            .map(|s| {
                (
                    (*s).into(),
                    groups.iter().map(|(g, d)| of(s, g, d)).collect(),
                )
            })
            .collect(),
    })
}

pub(super) fn fig5(outcome: &Outcome) -> Block {
    let all = &outcome.figures.fig5;
    // Each point is a value and the share of windows that do not exceed it.
    let series = |of: fn(&crate::autotiering::figures::Distribution) -> &Vec<f64>, times: f64| {
        all.iter()
            .enumerate()
            .map(|(i, d)| XySeries {
                label: d.strategy.into(),
                style: i,
                mark: Mark::Line,
                points: of(d)
                    .iter()
                    .enumerate()
                    .map(|(p, v)| (v * times, p as f64))
                    .collect(),
            })
            .collect::<Vec<_>>()
    };
    let chart = |title: &str, x: &str, series: Vec<XySeries>, mark: (f64, &str)| {
        Chart::Xy(XyChart {
            title: title.into(),
            x: x.into(),
            y: "% of windows at most".into(),
            series,
            marks: vec![(mark.0, mark.1.into())],
        })
    };
    let mib = crate::autotiering::figures::MIB_PER_S_THRESHOLD;
    Block::Charts(vec![
        chart(
            "IOPS of all tiers",
            "thousand requests/s",
            series(|d| &d.iops_percentiles, 1e-3),
            (100.0, "published p90 of IDT"),
        ),
        chart(
            "bandwidth of all tiers",
            "MiB/s",
            series(|d| &d.mib_per_s_percentiles, 1.0),
            (mib, "published p90"),
        ),
    ])
}

/// Quantity that is stacked.
#[derive(Clone, Copy)]
pub(super) enum StackQuantity {
    Iops,
    MibPerS,
    Latency,
}

impl StackQuantity {
    fn layers(self, t: &TierOverTime) -> [&Vec<f64>; 2] {
        match self {
            StackQuantity::Iops => [&t.read_iops, &t.write_iops],
            StackQuantity::MibPerS => [&t.read_mib_per_s, &t.write_mib_per_s],
            StackQuantity::Latency => [&t.read_mean_us, &t.write_mean_us],
        }
    }
}

pub(super) fn fig6(outcome: &Outcome, over: StackQuantity) -> Block {
    let (name, unit, times) = match over {
        StackQuantity::Iops => ("IOPS", "thousand requests/s", 1e-3),
        StackQuantity::MibPerS => ("bandwidth", "MiB/s", 1.0),
        StackQuantity::Latency => ("mean latencies", "µs", 1.0),
    };
    let chart = |o: &TimeSeries| StackChart {
        title: format!("{}: {name}", o.strategy),
        unit: unit.into(),
        window_s: o.window_s,
        warmup_s: o.warmup_windows as f64 * o.window_s,
        at_least: 0.0,
        layers: o
            .tiers
            .iter()
            .enumerate()
            .flat_map(|(i, t)| {
                let [reads, writes] = over.layers(t);
                [("reads", reads, false), ("writes", writes, true)].map(
                    |(direction, values, second)| Layer {
                        label: format!("{} {direction}", t.tier),
                        tier: i,
                        second,
                        values: values.iter().map(|v| v * times).collect(),
                    },
                )
            })
            .collect(),
    };
    let mut charts: Vec<StackChart> = outcome.figures.fig6.iter().map(chart).collect();
    // One scale for all charts, so areas can be compared.
    let most = charts.iter().map(StackChart::greatest).fold(0.0, f64::max);
    for c in &mut charts {
        c.at_least = most;
    }
    Block::Charts(charts.into_iter().map(Chart::Stack).collect())
}

pub(super) fn fig7(outcome: &Outcome) -> Block {
    let all = &outcome.figures.fig7;
    let one =
        |title: &str,
         unit: &str,
         of: fn(&crate::autotiering::figures::MovedIntervals) -> Option<Interval>| {
            Chart::Bars(BarChart {
                title: title.into(),
                unit: unit.into(),
                groups: vec!["whole run".into(), "after the warm-up".into()],
                series: all
                    .iter()
                    .map(|m| {
                        let bars = vec![bar(of(&m.all), 1.0), bar(of(&m.after_warmup), 1.0)];
                        (m.strategy.into(), bars)
                    })
                    .collect(),
            })
        };
    Block::Charts(vec![
        one("bytes moved", "GiB", |m| m.gib),
        one("VMs moved", "distinct VMs", |m| m.vms),
    ])
}
