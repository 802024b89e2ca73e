//! Figures 1 to 5, by hour.

use report::{Block, Chart, Mark, XyChart, XySeries};

use super::document::Figures;
use super::job::{ArrayKind, Run, Variant};
use super::published::GROUPS;
use super::result::{GroupResult, HourResult};

/// Makes a line over the hours of a run. Hours without a value are left out.
fn line(
    run: &Run,
    label: String,
    style: usize,
    class: usize,
    of: impl Fn(&GroupResult) -> Option<f64>,
) -> XySeries {
    let hours = run.result.hours.iter();
    let point = |h: &HourResult| Some((f64::from(h.hour), of(&h.classes[class])?));
    XySeries {
        label,
        style,
        mark: Mark::Line,
        points: hours.filter_map(point).collect(),
    }
}

fn chart(title: String, y: &str, series: Vec<XySeries>) -> Chart {
    Chart::Xy(XyChart {
        title,
        x: "hour".into(),
        y: y.into(),
        series,
        marks: vec![(2.0, "measured from here".into())],
    })
}

/// Makes a chart per variant: response times by class.
pub(super) fn responses(
    figures: &Figures<'_>,
    array: ArrayKind,
    customer: &str,
    variants: &[Variant],
) -> Block {
    let charts = variants.iter().filter_map(|v| {
        let (run, _) = figures.run(array, customer, *v)?;
        let lines = (0..3).map(|c| line(run, GROUPS[c].into(), c, c, |g| g.response_mean_ms));
        let title = format!("Response time, {}", v.name());
        Some(chart(title, "ms", lines.collect()))
    });
    Block::Charts(charts.collect())
}

/// Makes a chart per class: share of requests that the cache serves, under two variants.
pub(super) fn cached(figures: &Figures<'_>, customer: &str, variants: [Variant; 2]) -> Block {
    let charts = (0..3).map(|class| {
        let lines = variants.iter().enumerate().filter_map(|(style, v)| {
            let (run, _) = figures.run(ArrayKind::Disks, customer, *v)?;
            let percent = |g: &GroupResult| g.cached_share.map(|s| 100.0 * s);
            Some(line(run, v.name().into(), style, class, percent))
        });
        let title = format!("Served by the cache, {}", GROUPS[class]);
        chart(title, "%", lines.collect())
    });
    Block::Charts(charts.collect())
}

/// Makes a chart per variant: shares of the kinds of devices in the requests of the high group to the back end.
pub(super) fn devices(figures: &Figures<'_>, customer: &str, variants: [Variant; 2]) -> Block {
    let charts = variants.iter().filter_map(|v| {
        let (run, kinds) = figures.run(ArrayKind::Disks, customer, *v)?;
        let lines = kinds.iter().enumerate().map(|(k, kind)| {
            let percent = |g: &GroupResult| g.device_share[k].map(|s| 100.0 * s);
            line(run, kind.clone(), k, 0, percent)
        });
        let title = format!("Devices that serve the high group, {}", v.name());
        Some(chart(title, "%", lines.collect()))
    });
    Block::Charts(charts.collect())
}
