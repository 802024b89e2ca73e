//! Line chart of the 99th percentile over the last windows, with the objective as a dashed line. It uses attributes only,
//! because the content security policy of the page forbids inline styles.

use std::fmt::Write as _;

use manager::view::VolumeView;
use maud::{Markup, PreEscaped, html};
use model::SloStatistic;

use super::words::{duration, number};

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 26.0;
/// Margin for the width of the line.
const EDGE: f64 = 2.0;

/// Renders the chart of a volume.
pub(super) fn sparkline(volume: &VolumeView) -> Markup {
    let values = &volume.p99_us;
    let known = || values.iter().flatten().copied().filter(|v| v.is_finite());
    let greatest = known().fold(0.0, f64::max);
    // The values are 99th percentiles: the objective of another statistic cannot be compared with them.
    let objective = volume.slo.filter(|s| s.statistic == SloStatistic::P99);
    let objective = objective.map(|s| s.target_us).filter(|t| t.is_finite());
    let top = objective.unwrap_or(0.0).max(greatest);
    if known().next().is_none() {
        return html! { span class="faint" { "no load" } };
    }
    let y = |v: f64| HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * if top > 0.0 { v / top } else { 0.0 };
    let x = |i: usize| EDGE + (WIDTH - 2.0 * EDGE) * (i as f64 + 0.5) / values.len() as f64;
    let mut path = String::new();
    let mut after_gap = true;
    for (i, value) in values.iter().enumerate() {
        match value.filter(|v| v.is_finite()) {
            None => after_gap = true,
            Some(v) => {
                // An isolated point becomes a short line.
                let step = if after_gap { 'M' } else { 'L' };
                let _ = write!(path, "{step}{:.1},{:.1}", x(i), y(v));
                if after_gap {
                    path.push_str("h.1");
                }
                after_gap = false;
            }
        }
    }
    let least = known().fold(f64::INFINITY, f64::min);
    let over = duration(volume.window_ns.saturating_mul(values.len() as u64));
    let limit = objective.map_or_else(String::new, |t| format!(", objective {} µs", number(t)));
    let label = format!(
        "p99 over the last {over}: {} to {} µs{limit}",
        number(least),
        number(greatest)
    );
    html! {
        svg class="spark" width="120" height="26" viewBox="0 0 120 26" role="img" aria-label=(label) {
            title { (label) }
            @if let Some(target) = objective {
                line class="objective" x1="0" x2="120" y1=(format!("{:.1}", y(target))) y2=(format!("{:.1}", y(target))) {}
            }
            path class="line" d=(PreEscaped(path)) {}
        }
    }
}
