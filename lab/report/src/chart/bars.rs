//! Groups of bars, each with its interval.

use maud::{Markup, html};

use super::axis::linear;
use super::{Frame, LINE_COLORS, px};
use crate::format::significant;

/// Widths of a chart: half of the page and the whole page.
const NARROW_PX: f64 = 580.0;
const WIDE_PX: f64 = 1160.0;
/// Number of bars from which a chart is wide.
const WIDE_FROM: usize = 20;

/// Value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// End of the bar.
    pub value: f64,
    /// Lower and upper end of the whisker, if any.
    pub whisker: Option<(f64, f64)>,
}

/// Chart of groups of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    /// Title.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Name and bars of each series, one bar per group; `None` without a value.
    pub series: Vec<(String, Vec<Option<Bar>>)>,
}

impl BarChart {
    pub(crate) fn bars(&self) -> usize {
        self.groups.len() * self.series.len()
    }

    pub(crate) fn wide(&self) -> bool {
        self.bars() >= WIDE_FROM
    }

    pub(crate) fn render(&self) -> Markup {
        let frame = Frame {
            width: if self.wide() { WIDE_PX } else { NARROW_PX },
            height: 230.0,
            left: 62.0,
            right: 10.0,
            top: 10.0,
            bottom: 26.0,
        };
        let ends = self.series.iter().flat_map(|(_, bars)| {
            bars.iter()
                .flatten()
                .map(|b| b.whisker.map_or(b.value, |w| w.1.max(b.value)))
        });
        let greatest = ends.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let (ticks, to) = linear(greatest, 5, false);
        let y = |v: f64| frame.y1() - frame.plot_height() * (v / to).clamp(0.0, 1.0);
        let group = frame.plot_width() / self.groups.len().max(1) as f64;
        let width = group * 0.84 / self.series.len().max(1) as f64;
        let left =
            |g: usize, s: usize| frame.left + group * g as f64 + group * 0.08 + width * s as f64;
        html! {
            figure class={ @if self.wide() { "chart wide" } @else { "chart" } } {
                figcaption { strong { (self.title) } ", " (self.unit) }
                ul class="legend" {
                    @for (s, (name, _)) in self.series.iter().enumerate() {
                        li { (swatch(&format!("bar-fill s{}", s % LINE_COLORS))) span { (name) } }
                    }
                }
                svg class="figure-plot" viewBox=(frame.view_box()) role="img" aria-label={ (self.title) " in " (self.unit) } {
                    @for tick in &ticks {
                        @let at = y(tick.at);
                        line class="grid" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                        text class="tick" x=(px(frame.left - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (tick.label) }
                    }
                    @for (s, (name, bars)) in self.series.iter().enumerate() {
                        @for (g, bar) in bars.iter().enumerate() {
                            @if let Some(bar) = bar.filter(|b| b.value.is_finite()) {
                                @let x = left(g, s);
                                @let middle = x + width * 0.46;
                                g {
                                    title {
                                        (name) ", " (self.groups[g]) ": " (significant(bar.value)) " " (self.unit)
                                        @if let Some((low, high)) = bar.whisker { " (" (significant(low)) " to " (significant(high)) ")" }
                                    }
                                    rect class={ "bar-fill s" (s % LINE_COLORS) } x=(px(x)) width=(px(width * 0.92))
                                        y=(px(y(bar.value))) height=(px(frame.y1() - y(bar.value))) {}
                                    @if let Some((low, high)) = bar.whisker {
                                        @let (a, b) = (y(low.max(0.0)), y(high));
                                        path class="whisker" d={
                                            "M" (px(middle)) "," (px(a)) "V" (px(b))
                                            "M" (px(middle - 3.0)) "," (px(a)) "h6M" (px(middle - 3.0)) "," (px(b)) "h6"
                                        } {}
                                    }
                                }
                            }
                        }
                    }
                    @for (g, name) in self.groups.iter().enumerate() {
                        text class="tick" x=(px(frame.left + group * (g as f64 + 0.5))) y=(px(frame.y1() + 17.0)) text-anchor="middle" { (name) }
                    }
                    line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
                }
            }
        }
    }
}

/// Renders a filled square for a legend.
pub(crate) fn swatch(class: &str) -> Markup {
    html! {
        svg class="sample" width="12" height="10" viewBox="0 0 12 10" aria-hidden="true" {
            rect class=(class) width="12" height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_a_bar_and_missing_values_are_none() {
        let bar = |v: f64| {
            Some(Bar {
                value: v,
                whisker: Some((0.9 * v, 1.2 * v)),
            })
        };
        let chart = BarChart {
            title: "a < b".into(),
            unit: "MiB/s".into(),
            groups: vec!["x".into(), "y".into()],
            series: vec![
                ("one".into(), vec![bar(3.0), None]),
                ("two".into(), vec![bar(6.0), bar(1.0)]),
            ],
        };
        let text = chart.render().into_string();
        assert_eq!(text.matches("class=\"whisker\"").count(), 3);
        assert_eq!(text.matches("<rect").count(), 3 + 2, "and the legend's");
        assert!(text.contains("a &lt; b") && !text.contains("NaN"), "{text}");
        let empty = BarChart {
            groups: vec![],
            series: vec![],
            ..chart
        };
        assert!(!empty.render().into_string().contains("NaN"));
    }
}
