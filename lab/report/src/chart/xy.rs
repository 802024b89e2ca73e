//! Charts of lines and points over any quantity: distributions, regressions.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::axis::linear;
use super::{Frame, LINE_COLORS, dashes, line_sample, px};
use crate::format::significant;

/// Maximum number of points of a line.
const POINTS_MAX: usize = 400;

/// Area of the plot with its axes.
const FRAME: Frame = Frame {
    width: 580.0,
    height: 262.0,
    left: 60.0,
    right: 16.0,
    top: 12.0,
    bottom: 42.0,
};

/// Height of the title of a standalone image.
const TITLE_PX: f64 = 40.0;
const LEGEND_ROW_PX: f64 = 18.0;
const LEGEND_PER_ROW: usize = 4;

/// Style of a standalone image; a page has its own.
const STYLE: &str = "
.xy-chart { font: 12px system-ui, 'DejaVu Sans', sans-serif; }
.xy-chart .back { fill: #ffffff; } .xy-chart text { fill: #1b1f24; }
.xy-chart .title { font-size: 14px; font-weight: 600; } .xy-chart .tick, .xy-chart .axis-name { fill: #5b6470; }
.xy-chart .grid { stroke: #d5dae1; } .xy-chart .axis { stroke: #5b6470; } .xy-chart .reference { stroke: #5b6470; stroke-dasharray: 4 3; }
.xy-chart .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; } .xy-chart .continued { stroke-opacity: .6; }
.xy-chart .bar-fill { fill: currentColor; } .xy-chart .ring, .xy-chart .cross { fill: none; stroke: currentColor; stroke-width: 1.6; }
.s0 { color: #0072b2; } .s1 { color: #d55e00; } .s2 { color: #009e73; } .s3 { color: #9b5fb8; }
.s4 { color: #b8860b; } .s5 { color: #44505e; } .s6 { color: #c2407a; } .s7 { color: #5a7d1a; }
@media screen and (prefers-color-scheme: dark) {
.xy-chart .back { fill: #14171b; } .xy-chart text { fill: #e6e9ed; } .xy-chart .grid { stroke: #3a414b; } .xy-chart .axis { stroke: #a0a9b5; }
.xy-chart .tick, .xy-chart .axis-name { fill: #a0a9b5; }
.s0 { color: #4aa8e8; } .s1 { color: #ff9248; } .s2 { color: #2fcf9f; } .s3 { color: #cfa0e8; }
.s4 { color: #e6c34a; } .s5 { color: #b4bfcc; } .s6 { color: #f28bb8; } .s7 { color: #a8cf5a; }
}
";

/// Marks of the points of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Solid line.
    Line,
    /// Faint, dashed line for extrapolated values.
    Continued,
    /// Filled circles.
    Dots,
    /// Open circles.
    Rings,
    /// Crosses.
    Crosses,
}

#[derive(Debug, Clone, PartialEq)]
pub struct XySeries {
    /// Name in the legend; none if empty.
    pub label: String,
    /// Number of the colour and dash pattern.
    pub style: usize,
    pub mark: Mark,
    /// Points, in order of x for lines.
    pub points: Vec<(f64, f64)>,
}

/// Chart of two quantities, both from zero.
#[derive(Debug, Clone, PartialEq)]
pub struct XyChart {
    /// Title.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Unit of the vertical axis.
    pub y: String,
    /// Lines and points.
    pub series: Vec<XySeries>,
    /// Vertical reference lines.
    pub marks: Vec<(f64, String)>,
}

impl XyChart {
    pub(crate) fn render(&self) -> Markup {
        html! {
            figure class="chart" {
                figcaption { strong { (self.title) } @if !self.y.is_empty() { ", " (self.y) } }
                ul class="legend" {
                    @for series in self.labelled() {
                        li { (sample(series)) span { (series.label) } }
                    }
                }
                svg class="figure-plot" viewBox=(FRAME.view_box()) role="img" aria-label={ (self.title) " over " (self.x) } {
                    (self.plot())
                }
            }
        }
    }

    /// Renders a standalone SVG document.
    pub fn svg(&self) -> String {
        let rows = self.labelled().count().div_ceil(LEGEND_PER_ROW);
        let top = TITLE_PX + LEGEND_ROW_PX * rows as f64;
        let (width, height) = (FRAME.width, FRAME.height + top);
        let picture = html! {
            svg class="xy-chart" xmlns="http://www.w3.org/2000/svg" role="img" width=(px(width)) height=(px(height))
                viewBox={ "0 0 " (px(width)) " " (px(height)) } aria-label={ (self.title) " over " (self.x) } {
                style { (PreEscaped(STYLE)) }
                rect class="back" x="0" y="0" width=(px(width)) height=(px(height)) {}
                text class="title" x=(px(FRAME.left)) y="20" { (self.title) @if !self.y.is_empty() { ", " (self.y) } }
                @for (i, series) in self.labelled().enumerate() {
                    @let (row, column) = (i / LEGEND_PER_ROW, i % LEGEND_PER_ROW);
                    @let left = FRAME.left + FRAME.plot_width() / LEGEND_PER_ROW as f64 * column as f64;
                    @let at = TITLE_PX + LEGEND_ROW_PX * row as f64;
                    g transform={ "translate(" (px(left)) "," (px(at - 10.0)) ")" } { (sample(series)) }
                    text x=(px(left + 40.0)) y=(px(at)) { (series.label) }
                }
                g transform={ "translate(0," (px(top)) ")" } { (self.plot()) }
            }
        };
        picture.into_string() + "\n"
    }

    fn labelled(&self) -> impl Iterator<Item = &XySeries> {
        self.series.iter().filter(|s| !s.label.is_empty())
    }

    /// Renders gridlines, axes and all series, within [`FRAME`].
    fn plot(&self) -> Markup {
        let frame = FRAME;
        let points = || {
            let all = self.series.iter().flat_map(|s| s.points.iter().copied());
            all.filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        let marks = self.marks.iter().map(|m| m.0);
        let most_x = points().map(|p| p.0).chain(marks).fold(0.0, f64::max);
        let most_y = points().map(|p| p.1).fold(0.0, f64::max);
        let (x_ticks, x_to) = linear(most_x, 8, false);
        let (y_ticks, y_to) = linear(most_y, 5, false);
        let x = |v: f64| frame.left + frame.plot_width() * (v / x_to).clamp(0.0, 1.0);
        let y = |v: f64| frame.y1() - frame.plot_height() * (v / y_to).clamp(0.0, 1.0);
        html! {
            @for tick in &y_ticks {
                @let at = y(tick.at);
                line class="grid" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                text class="tick" x=(px(frame.left - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (tick.label) }
            }
            @for tick in &x_ticks {
                @let at = x(tick.at);
                line class="grid" x1=(px(at)) x2=(px(at)) y1=(px(frame.top)) y2=(px(frame.y1())) {}
                text class="tick" x=(px(at)) y=(px(frame.y1() + 15.0)) text-anchor="middle" { (tick.label) }
            }
            line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
            text class="axis-name" x=(px(frame.left + frame.plot_width() / 2.0)) y=(px(frame.y1() + 34.0)) text-anchor="middle" { (self.x) }
            @for (i, (at, label)) in self.marks.iter().enumerate() {
                @let right = x(*at) > frame.left + frame.plot_width() * 0.3;
                line class="reference" x1=(px(x(*at))) x2=(px(x(*at))) y1=(px(frame.top)) y2=(px(frame.y1())) {}
                text class="tick" x=(px(x(*at) + if right { -4.0 } else { 4.0 })) y=(px(frame.y1() - 8.0 - 13.0 * (self.marks.len() - 1 - i) as f64))
                    text-anchor=(if right { "end" } else { "start" }) { (label) }
            }
            @for series in &self.series {
                (draw(series, &x, &y))
            }
        }
    }
}

fn sample(series: &XySeries) -> Markup {
    match series.mark {
        Mark::Line | Mark::Continued => line_sample(series.style),
        Mark::Dots | Mark::Rings | Mark::Crosses => html! {
            svg class="sample" width="14" height="10" viewBox="0 0 14 10" aria-hidden="true" {
                (point(series, 7.0, 5.0, None))
            }
        },
    }
}

fn draw(series: &XySeries, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> Markup {
    let color = series.style % LINE_COLORS;
    let finite: Vec<(f64, f64)> = series
        .points
        .iter()
        .copied()
        .filter(|(a, b)| a.is_finite() && b.is_finite())
        .collect();
    match series.mark {
        Mark::Line | Mark::Continued => {
            let every = finite.len().div_ceil(POINTS_MAX).max(1);
            let mut d = String::new();
            for (i, (a, b)) in finite.iter().enumerate() {
                if i % every == 0 || i + 1 == finite.len() {
                    let command = if d.is_empty() { 'M' } else { 'L' };
                    let _ = write!(d, "{command}{:.1},{:.1}", x(*a), y(*b));
                }
            }
            let continued = series.mark == Mark::Continued;
            html! {
                path class={ "line s" (color) @if continued { " continued" } } d=(d)
                    stroke-dasharray=(if continued { "4 4" } else { dashes(series.style) }) {}
            }
        }
        Mark::Dots | Mark::Rings | Mark::Crosses => html! {
            @for (a, b) in &finite {
                (point(series, x(*a), y(*b), Some((*a, *b))))
            }
        },
    }
}

fn point(series: &XySeries, x: f64, y: f64, value: Option<(f64, f64)>) -> Markup {
    let class = format!("s{}", series.style % LINE_COLORS);
    let title = value.map(|(a, b)| {
        let (a, b) = (significant(a), significant(b));
        html! { title { (series.label) ": " (a) ", " (b) } }
    });
    html! {
        @match series.mark {
            Mark::Crosses => path class={ "cross " (class) } d={ "M" (px(x - 4.0)) "," (px(y - 4.0)) "l8,8m0,-8l-8,8" } { (title.unwrap_or_default()) },
            Mark::Rings => circle class={ "ring " (class) } cx=(px(x)) cy=(px(y)) r="4" { (title.unwrap_or_default()) },
            _ => circle class={ "bar-fill " (class) } cx=(px(x)) cy=(px(y)) r="3" { (title.unwrap_or_default()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(mark: Mark, points: Vec<(f64, f64)>) -> XySeries {
        XySeries {
            label: "l".into(),
            style: 1,
            mark,
            points,
        }
    }

    #[test]
    fn lines_are_thinned_and_points_are_not() {
        let many: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i), 0.5)).collect();
        let chart = XyChart {
            title: "t".into(),
            x: "x".into(),
            y: "".into(),
            series: vec![
                series(Mark::Line, many),
                series(Mark::Dots, vec![(1.0, 1.0), (f64::NAN, 2.0)]),
                series(Mark::Crosses, vec![(2.0, 1.0)]),
            ],
            marks: vec![(500.0, "here".into())],
        };
        let text = chart.render().into_string();
        assert!(text.matches('L').count() <= POINTS_MAX);
        assert!(!text.contains("NaN") && text.contains("here"));
        assert_eq!(text.matches("<circle").count(), 2, "one and its sample");
        let alone = chart.svg();
        assert!(alone.starts_with("<svg") && alone.contains("xmlns=") && alone.contains("<style>"));
        assert_eq!(alone.matches("<circle").count(), 2);
        assert!(!alone.contains("NaN") && !alone.contains("href"));
    }
}
