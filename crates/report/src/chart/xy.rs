//! Lines and points over any quantity: distributions, regressions.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::linear;
use super::{Frame, LINE_COLORS, dashes, line_sample, px};
use crate::format::significant;

/// Points of one line at most.
const POINTS_MAX: usize = 400;

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Joined.
    Line,
    /// Joined, faint and dashed: what was not measured but drawn on.
    Continued,
    /// A filled circle each.
    Dots,
    /// An open circle each.
    Rings,
    /// A cross each.
    Crosses,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct XySeries {
    /// In the legend; none if empty.
    pub label: String,
    /// Colour and dashes.
    pub style: usize,
    /// How it is drawn.
    pub mark: Mark,
    /// The points, in order of x for lines.
    pub points: Vec<(f64, f64)>,
}

/// A chart with two quantities, both from zero.
#[derive(Debug, Clone, PartialEq)]
pub struct XyChart {
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Unit of the vertical axis.
    pub y: String,
    /// Lines and points.
    pub series: Vec<XySeries>,
    /// Vertical lines that values are held against.
    pub marks: Vec<(f64, String)>,
}

impl XyChart {
    pub(crate) fn render(&self) -> Markup {
        let frame = Frame {
            width: 580.0,
            height: 262.0,
            left: 60.0,
            right: 16.0,
            top: 12.0,
            bottom: 42.0,
        };
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
            figure class="chart" {
                figcaption { strong { (self.title) } @if !self.y.is_empty() { ", " (self.y) } }
                ul class="legend" {
                    @for series in self.series.iter().filter(|s| !s.label.is_empty()) {
                        li { (sample(series)) span { (series.label) } }
                    }
                }
                svg class="figure-plot" viewBox=(frame.view_box()) role="img" aria-label={ (self.title) " over " (self.x) } {
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
    }
}
