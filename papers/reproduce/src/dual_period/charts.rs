//! Charts of figures 3 to 9.

use trace::conditions::Construction;

use report::{BarChart, Block, Chart, Mark, ValueBar, XyChart, XySeries};

use super::figures::{OnA, axis};
use super::method::Method;
use super::outcome::Outcome;
use super::setup::FAST_SHARES;
use crate::claim::Value;

fn bar(value: &Value) -> Option<ValueBar> {
    Some(ValueBar {
        value: value.mean,
        whisker: value.interval.map(|i| (i.ci95_low, i.ci95_high)),
    })
}

pub(super) fn fig3(outcome: &Outcome) -> Block {
    let lines = outcome
        .figures
        .fig3
        .iter()
        .enumerate()
        .map(|(style, l)| XySeries {
            label: format!("{}, k = {}", l.condition, l.k),
            style,
            mark: Mark::Line,
            points: l
                .points
                .iter()
                .map(|(x, y, _)| (100.0 * x, 100.0 * y))
                .collect(),
        });
    let published = outcome.figures.fig3.iter().flat_map(|l| &l.points);
    let published = XySeries {
        label: "published".into(),
        style: 0,
        mark: Mark::Rings,
        points: published
            .filter_map(|(x, _, p)| p.map(|p| (100.0 * x, 100.0 * p)))
            .collect(),
    };
    Block::Charts(vec![Chart::Xy(XyChart {
        title: "Share of I/Os on the hottest pages".into(),
        x: "share of pages, %".into(),
        y: "%".into(),
        series: lines.chain(std::iter::once(published)).collect(),
        marks: vec![],
    })])
}

fn on_a(outcome: &Outcome, share: u8, method: Method) -> &OnA {
    let rows = outcome.figures.fig4_to_7.iter();
    let mut found = rows.filter(|r| r.fast_share_percent == share && r.method == method);
    found.next().expect("every method is in the figure")
}

/// Methods of the paper and the adaptive one of this project, along the axis of figures 4 and 5.
fn columns() -> Vec<Method> {
    axis().into_iter().chain([Method::Adaptive]).collect()
}

fn by_method(
    outcome: &Outcome,
    title: &str,
    unit: &str,
    of: fn(&OnA) -> &Value,
    times: f64,
) -> Chart {
    let scaled = |value: &Value| {
        bar(value).map(|b| ValueBar {
            value: times * b.value,
            whisker: b.whisker.map(|(low, high)| (times * low, times * high)),
        })
    };
    let shares = [5u8, 10, 20, 30];
    let series = shares.map(|share| {
        let bars = columns()
            .into_iter()
            .map(|m| scaled(of(on_a(outcome, share, m))));
        (format!("fast tier {share} %"), bars.collect())
    });
    let short = |m: Method| match m {
        Method::Existing(h) => format!("L {h} h"),
        Method::Proposed(c) => format!("C {c} %"),
        other => other.name(),
    };
    Chart::Bars(BarChart {
        title: title.into(),
        unit: unit.into(),
        groups: columns().into_iter().map(short).collect(),
        series: series.into(),
    })
}

fn total(row: &OnA) -> &Value {
    &row.total_over_24h
}

fn movement(row: &OnA) -> &Value {
    &row.movement
}

pub(super) fn fig4(outcome: &Outcome) -> Block {
    Block::Charts(vec![by_method(
        outcome,
        "Total performance, condition A",
        "% of L = 24 h",
        total,
        100.0,
    )])
}

pub(super) fn fig5(outcome: &Outcome) -> Block {
    Block::Charts(vec![by_method(
        outcome,
        "Movement, condition A",
        "% of application I/Os",
        movement,
        100.0,
    )])
}

/// Figures 6 and 7.
pub(super) fn fig6_and_7(outcome: &Outcome) -> Block {
    let gains = outcome
        .figures
        .fig8_and_9
        .iter()
        .filter(|i| i.condition == "A");
    let gains: Vec<_> = gains.collect();
    let percent = |v: &Value| {
        Some(ValueBar {
            value: 100.0 * (1.0 + v.mean),
            whisker: v
                .interval
                .map(|i| (100.0 * (1.0 + i.ci95_low), 100.0 * (1.0 + i.ci95_high))),
        })
    };
    let fig6 = Chart::Bars(BarChart {
        title: "Over the best existing method, condition A".into(),
        unit: "%".into(),
        groups: FAST_SHARES.map(|s| format!("{s} %")).into(),
        series: vec![
            (
                "best proposed".into(),
                gains.iter().map(|g| percent(&g.total_gain)).collect(),
            ),
            (
                "adaptive, over the best of both".into(),
                gains.iter().map(|g| percent(&g.adaptive.1)).collect(),
            ),
        ],
    });
    let points = |of: &dyn Fn(Method) -> bool| {
        let methods = Method::all().into_iter().filter(|m| of(*m));
        let rows = methods.map(|m| on_a(outcome, 30, m));
        let mut points: Vec<(f64, f64)> = rows
            .map(|r| (100.0 * r.movement.mean, 100.0 * r.total_over_24h.mean))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let series = |label: &str, style: usize, mark: Mark, points: Vec<(f64, f64)>| XySeries {
        label: label.into(),
        style,
        mark,
        points,
    };
    let fig7 = Chart::Xy(XyChart {
        title: "Total performance and movement at 30 %, condition A".into(),
        x: "movement, % of application I/Os".into(),
        y: "% of L = 24 h".into(),
        series: vec![
            series(
                "existing",
                0,
                Mark::Dots,
                points(&|m| matches!(m, Method::Existing(_))),
            ),
            series(
                "proposed",
                1,
                Mark::Dots,
                points(&|m| matches!(m, Method::Proposed(_))),
            ),
            series(
                "adaptive",
                2,
                Mark::Crosses,
                points(&|m| m == Method::Adaptive),
            ),
            series(
                "published",
                3,
                Mark::Rings,
                vec![(7.15, 137.0), (14.3, 129.0)],
            ),
        ],
        marks: vec![],
    });
    Block::Charts(vec![fig6, fig7])
}

/// Figures 8 and 9 for one share of the fast tier.
pub(super) fn fig8_and_9(outcome: &Outcome, construction: Construction, share: u8) -> Block {
    let cycles = ["1h", "3h", "6h", "12h", "not-move"];
    let chart = |title: &str, of: fn(&super::figures::Improvement) -> &Value| {
        let series = ["B", "C", "D", "E", "F", "G"].map(|letter| {
            let bars = cycles.map(|cycle| {
                let name = format!("{letter}-{cycle}");
                let rows = outcome.figures.fig8_and_9.iter();
                let mut found = rows.filter(|r| {
                    (r.construction, &r.condition, r.fast_share_percent)
                        == (construction, &name, share)
                });
                let value = of(found.next()?);
                Some(ValueBar {
                    value: 100.0 * (1.0 + value.mean),
                    whisker: value
                        .interval
                        .map(|i| (100.0 * (1.0 + i.ci95_low), 100.0 * (1.0 + i.ci95_high))),
                })
            });
            (letter.to_string(), bars.into())
        });
        Chart::Bars(BarChart {
            title: format!("{title}, {}, fast tier {share} %", construction.name()),
            unit: "%".into(),
            groups: cycles.map(String::from).into(),
            series: series.into(),
        })
    };
    Block::Charts(vec![
        chart(
            "Storage performance, best proposed over best existing",
            |i| &i.storage_gain,
        ),
        chart("Total performance, best proposed over best existing", |i| {
            &i.total_gain
        }),
        chart(
            "Total performance, adaptive over the best of the fourteen",
            |i| &i.adaptive.1,
        ),
    ])
}
