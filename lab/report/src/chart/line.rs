//! Charts of lines over time, and sparklines.

use std::borrow::Cow;
use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::axis::{Tick, linear, logarithmic};
use super::{Frame, LINE_COLORS, Quantity, dashes, line_sample, px, time_axis};
use crate::format::{shortened, significant};
use crate::series::{Stretch, stretches};

/// Maximum number of points of a line. A longer line is divided into a third as many stretches, each with two points for the
/// band from minimum to maximum and one for the median.
pub(crate) const POINTS_MAX: usize = 600;

/// Maximum number of points of a line in a panel.
const PANEL_POINTS_MAX: usize = 300;

/// Maximum number of stretches of a sparkline.
const SPARK_STRETCHES_MAX: usize = 100;

/// Ratio of the largest to the smallest value above which an axis is logarithmic.
const LOG_FROM_RATIO: f64 = 50.0;

#[derive(Debug, Clone)]
pub struct Line {
    /// Name in the legend.
    pub label: String,
    /// Number of the colour and dash pattern.
    pub style: usize,
    /// Seconds and value; `None` is a gap.
    pub points: Vec<(f64, Option<f64>)>,
}

/// Horizontal reference line.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Position, in the unit of the values.
    pub at: f64,
    /// Label next to the line.
    pub label: String,
}

/// Size of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Half the width of the page.
    Full,
    /// One of several side by side.
    Panel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScaleKind {
    Linear,
    Logarithmic,
}

/// Chart of lines over time.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// Title.
    pub title: String,
    /// Quantity of the values; it determines the unit.
    pub quantity: Quantity,
    pub size: Size,
    pub lines: Vec<Line>,
    /// End of the time axis, seconds.
    pub end_s: f64,
    /// Length of the warm-up, seconds; it does not count in the results.
    pub warmup_s: f64,
    /// Reference line.
    pub reference: Option<Reference>,
    /// Minimum end of the axis.
    pub at_least: f64,
}

struct YAxis {
    kind: ScaleKind,
    ticks: Vec<Tick>,
    from: f64,
    to: f64,
    unit: &'static str,
    one: f64,
}

impl YAxis {
    /// Returns a position from 0 at the lower end to 1 at the upper end.
    fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            ScaleKind::Linear => (value - self.from) / (self.to - self.from),
            ScaleKind::Logarithmic => {
                libm::log10(value.max(self.from) / self.from) / libm::log10(self.to / self.from)
            }
        };
        share.clamp(0.0, 1.0)
    }
}

impl LineChart {
    pub(crate) fn render(&self) -> Markup {
        let most = match self.size {
            Size::Full => POINTS_MAX,
            Size::Panel => PANEL_POINTS_MAX,
        };
        let lines: Vec<DrawnLine<'_>> = self
            .lines
            .iter()
            .map(|l| DrawnLine::new(l, most, self.quantity))
            .collect();
        let values = || {
            self.lines
                .iter()
                .flat_map(|l| l.points.iter().filter_map(|p| p.1))
        };
        let greatest = values().fold(0.0, f64::max);
        let least = values().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let wide = self.quantity == Quantity::Latency && greatest > LOG_FROM_RATIO * least;
        let first = if wide {
            ScaleKind::Logarithmic
        } else {
            ScaleKind::Linear
        };
        let axis = self.axis(first, least, greatest);
        html! {
            figure class={ @if self.size == Size::Panel { "chart panel" } @else { "chart" } } {
                figcaption {
                    strong { (self.title) } ", " (axis.unit)
                    @if wide { " (log scale)" }
                }
                (legend(&self.lines))
                (self.picture(&lines, &axis))
                @if wide && self.size == Size::Full {
                    details class="other-scale" {
                        summary { "Linear scale" }
                        (self.picture(&lines, &self.axis(ScaleKind::Linear, least, greatest)))
                    }
                }
            }
        }
    }

    fn axis(&self, kind: ScaleKind, least: f64, greatest: f64) -> YAxis {
        let greatest = greatest
            .max(self.at_least)
            .max(self.reference.as_ref().map_or(0.0, |r| r.at));
        let (unit, one) = self.quantity.unit(greatest);
        let intervals = if self.size == Size::Panel { 4 } else { 5 };
        let (ticks, from, to) = match kind {
            ScaleKind::Linear => {
                let whole = self.quantity == Quantity::Volumes;
                let (ticks, to) = linear(greatest / one, intervals, whole);
                (ticks, 0.0, to)
            }
            ScaleKind::Logarithmic => logarithmic(least / one, greatest / one),
        };
        YAxis {
            kind,
            ticks,
            from,
            to,
            unit,
            one,
        }
    }

    fn frame(&self) -> Frame {
        match self.size {
            Size::Full => Frame {
                width: 580.0,
                height: 236.0,
                left: 60.0,
                right: 16.0,
                top: 10.0,
                bottom: 40.0,
            },
            Size::Panel => Frame {
                width: 360.0,
                height: 180.0,
                left: 52.0,
                right: 14.0,
                top: 8.0,
                bottom: 36.0,
            },
        }
    }

    fn picture(&self, lines: &[DrawnLine<'_>], axis: &YAxis) -> Markup {
        let frame = self.frame();
        let end_s = if self.end_s > 0.0 { self.end_s } else { 1.0 };
        let x = |s: f64| frame.left + frame.plot_width() * (s / end_s).clamp(0.0, 1.0);
        let y = |v: f64| frame.y1() - frame.plot_height() * axis.place(v / axis.one);
        let warm = x(self.warmup_s);
        let names: Vec<&str> = self.lines.iter().map(|l| l.label.as_str()).collect();
        let empty = self
            .lines
            .iter()
            .all(|l| l.points.iter().all(|p| p.1.is_none()));
        html! {
            svg class="plot" viewBox=(frame.view_box()) role="img" tabindex="0"
                aria-label={ (self.title) " in " (axis.unit) " over time: " (names.join(", ")) }
                data-left=(px(frame.left)) data-right=(px(frame.x1())) data-top=(px(frame.top)) data-bottom=(px(frame.y1()))
                data-end-s=(end_s) data-from=(axis.from) data-to=(axis.to) data-unit=(axis.unit)
                data-log=[(axis.kind == ScaleKind::Logarithmic).then_some("1")] {
                @if self.warmup_s > 0.0 && warm > frame.left {
                    rect class="warmup" x=(px(frame.left)) y=(px(frame.top)) width=(px(warm - frame.left)) height=(px(frame.plot_height())) {
                        title { "warm-up: not counted in the totals" }
                    }
                }
                @for tick in &axis.ticks {
                    @let at = y(tick.at * axis.one);
                    line class="grid" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                    text class="tick" x=(px(frame.left - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (tick.label) }
                }
                (time_axis(&frame, end_s, if self.size == Size::Panel { 6 } else { 11 }, true))
                line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
                @if let Some(reference) = &self.reference {
                    @let at = y(reference.at);
                    line class="reference" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                    text class="tick" x=(px(frame.x1() - 4.0)) y=(px(if at > frame.top + 14.0 { at - 4.0 } else { at + 12.0 })) text-anchor="end" { (reference.label) }
                }
                @for line in lines {
                    @if let Some(bands) = &line.bands {
                        path class={ "band s" (line.style % LINE_COLORS) } d=(band_path(bands, x, y)) {}
                    }
                }
                @for line in lines {
                    path class={ "line s" (line.style % LINE_COLORS) } stroke-dasharray=(dashes(line.style)) d=(path(&line.points, x, y)) {}
                }
                @if empty {
                    text class="tick" x=(px(frame.left + frame.plot_width() / 2.0)) y=(px(frame.top + frame.plot_height() / 2.0)) text-anchor="middle" {
                        "no requests"
                    }
                }
                line class="cursor" x1="-9" x2="-9" y1=(px(frame.top)) y2=(px(frame.y1())) {}
            }
        }
    }
}

/// Line with its drawn points.
struct DrawnLine<'a> {
    style: usize,
    points: Cow<'a, [(f64, Option<f64>)]>,
    /// Bands of a line with more windows than points.
    bands: Option<Vec<Stretch>>,
}

impl<'a> DrawnLine<'a> {
    fn new(line: &'a Line, most: usize, quantity: Quantity) -> Self {
        if line.points.len() <= most {
            return Self {
                style: line.style,
                points: Cow::Borrowed(&line.points),
                bands: None,
            };
        }
        let bands = stretches(&line.points, most / 3);
        // A median of violations would hide most of them.
        let shown = |v: (f64, f64, f64)| {
            if quantity == Quantity::Volumes {
                v.2
            } else {
                v.1
            }
        };
        let points = bands
            .iter()
            .map(|s| (s.at_s, s.values.map(shown)))
            .collect();
        Self {
            style: line.style,
            points: Cow::Owned(points),
            bands: Some(bands),
        }
    }
}

/// Returns the path of the area between minimum and maximum, in one piece per run without a gap.
fn band_path(bands: &[Stretch], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut d = String::new();
    for piece in bands.chunk_by(|a, b| a.values.is_some() == b.values.is_some()) {
        let there = || piece.iter().filter_map(|s| s.values.map(|v| (s.at_s, v)));
        let there_and_back = there()
            .map(|(t, v)| (t, v.2))
            .chain(there().rev().map(|(t, v)| (t, v.0)));
        for (i, (t, v)) in there_and_back.enumerate() {
            let _ = write!(
                d,
                "{}{:.1},{:.1}",
                if i == 0 { 'M' } else { 'L' },
                x(t),
                y(v)
            );
        }
        if there().next().is_some() {
            d.push('Z');
        }
    }
    d
}

fn legend(lines: &[Line]) -> Markup {
    html! {
        ul class="legend" {
            @for line in lines {
                li { (line_sample(line.style)) span title=(line.label) { (shortened(&line.label, 40)) } }
            }
        }
    }
}

/// Short stroke through an isolated value.
const DOT: &str = "m-4,0h8";

/// Returns the path of a line: segments between neighbours, gaps, and dots for isolated values.
fn path(points: &[(f64, Option<f64>)], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut d = String::new();
    let mut alone = false;
    let mut pen_down = false;
    for (t, value) in points {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            if alone {
                d.push_str(DOT);
            }
            (alone, pen_down) = (false, false);
            continue;
        };
        let command = if pen_down { 'L' } else { 'M' };
        let _ = write!(d, "{command}{:.1},{:.2}", x(*t), y(value));
        alone = !pen_down;
        pen_down = true;
    }
    if alone {
        d.push_str(DOT);
    }
    d
}

/// Renders a line without axes, with marks below windows that violated an objective. `title` describes it; its range is added.
pub(crate) fn sparkline(
    values: &[Option<f64>],
    violated: &[bool],
    style: usize,
    title: &str,
) -> Markup {
    let frame = Frame {
        width: 180.0,
        height: 30.0,
        left: 2.0,
        right: 2.0,
        top: 3.0,
        bottom: 7.0,
    };
    let n = values.len().max(1) as f64;
    let points: Vec<(f64, Option<f64>)> = values
        .iter()
        .enumerate()
        .map(|(i, v)| (i as f64 + 0.5, *v))
        .collect();
    // A sparkline shows the maximum of each stretch.
    let worst = stretches(&points, SPARK_STRETCHES_MAX)
        .into_iter()
        .map(|s| (s.at_s, s.values.map(|v| v.2)));
    let worst: Vec<(f64, Option<f64>)> = worst.collect();
    let greatest = values
        .iter()
        .flatten()
        .copied()
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    let x = |i: f64| frame.left + frame.plot_width() * i / n;
    let y = |v: f64| {
        frame.y1()
            - frame.plot_height()
                * if greatest > 0.0 {
                    (v / greatest).clamp(0.0, 1.0)
                } else {
                    0.0
                }
    };
    let mut marks = String::new();
    for stretch in violated
        .iter()
        .enumerate()
        .collect::<Vec<_>>()
        .chunk_by(|a, b| a.1 == b.1)
        .filter(|s| *s[0].1)
    {
        let (from, to) = (
            x(stretch[0].0 as f64),
            x(stretch[stretch.len() - 1].0 as f64 + 1.0),
        );
        let _ = write!(marks, "M{:.1},27H{:.1}", from, to.max(from + 1.0));
    }
    let violated_count = violated.iter().filter(|m| **m).count();
    let range = if greatest > 0.0 {
        format!("; 0 to {} µs", significant(greatest))
    } else {
        String::new()
    };
    let violated_text = if violated_count > 0 {
        format!("; objective violated in {violated_count} windows")
    } else {
        String::new()
    };
    html! {
        svg class="spark" viewBox=(frame.view_box()) width="180" height="30" role="img" aria-label={ (title) (range) (violated_text) } {
            title { (title) (range) (violated_text) }
            line class="grid" x1="2" x2="178" y1=(px(frame.y1())) y2=(px(frame.y1())) {}
            path class={ "line s" (style % LINE_COLORS) } d=(path(&worst, x, y)) {}
            @if !marks.is_empty() { path class="violated" d=(PreEscaped(marks)) {} }
        }
    }
}
