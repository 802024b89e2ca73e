//! Charts as inline SVG: common parts. No script draws them; the script of the page only shows values of points.
//!
//! ```text
//!  title, unit                  legend (colour and dashes)
//!  ┌──────────────────────────┐
//!  │ ticks   gridlines  lines │   px: [`Frame`]
//!  └──────────────────────────┘
//!            time axis
//! ```

mod axis;
mod bars;
mod gantt;
mod line;
mod load;
mod stack;
mod xy;

pub(crate) use axis::{Quantity, time_scale};
pub use bars::{Bar as ValueBar, BarChart};
pub(crate) use gantt::{Bar, BarState, Gantt, Lane};
pub use load::{LoadChart, LoadPanel, LoadSeries};
pub use stack::{Layer, StackChart};
pub use xy::{Mark, XyChart, XySeries};

pub(crate) use line::{Line, LineChart, POINTS_MAX, Reference, Size, sparkline};

use maud::{Markup, html};

/// Number of line colours in the style sheet; further lines repeat them with other dashes.
pub(crate) const LINE_COLORS: usize = 8;

/// Number of tier colours in the style sheet.
pub(crate) const TIER_COLORS: usize = 6;

/// Dash patterns, which distinguish lines without colour. Their number differs from that of the colours: combinations of both
/// distinguish more lines.
const DASHES: [&str; 7] = [
    "none",
    "7 3",
    "2 3",
    "9 3 2 3",
    "14 4",
    "5 2 1 2 1 2",
    "1 5",
];

/// Returns the dash pattern of the n-th line.
fn dashes(style: usize) -> &'static str {
    DASHES[style % DASHES.len()]
}

/// Area of the plot within its image, px.
#[derive(Debug, Clone, Copy)]
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn x1(&self) -> f64 {
        self.width - self.right
    }

    fn y1(&self) -> f64 {
        self.height - self.bottom
    }

    fn plot_width(&self) -> f64 {
        self.x1() - self.left
    }

    fn plot_height(&self) -> f64 {
        self.y1() - self.top
    }

    fn view_box(&self) -> String {
        format!("0 0 {} {}", self.width, self.height)
    }
}

/// Formats a coordinate.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), String::from)
}

/// Renders a sample of a line for a legend.
pub(crate) fn line_sample(style: usize) -> Markup {
    html! {
        svg class="sample" width="34" height="10" viewBox="0 0 34 10" aria-hidden="true" {
            line class={ "line s" (style % LINE_COLORS) } x1="1" y1="5" x2="33" y2="5" stroke-dasharray=(dashes(style)) {}
        }
    }
}

/// Renders the time axis below a frame: gridlines, ticks and name.
fn time_axis(frame: &Frame, end_s: f64, most_ticks: usize, named: bool) -> Markup {
    let scale = time_scale(end_s, most_ticks);
    let x = |s: f64| frame.left + frame.plot_width() * s / end_s;
    html! {
        @for tick in &scale.ticks {
            line class="grid" x1=(px(x(tick.at))) x2=(px(x(tick.at))) y1=(px(frame.top)) y2=(px(frame.y1())) {}
            text class="tick" x=(px(x(tick.at))) y=(px(frame.y1() + 15.0)) text-anchor="middle" { (tick.label) }
        }
        @if named {
            text class="axis-name" x=(px(frame.left + frame.plot_width() / 2.0)) y=(px(frame.y1() + 32.0)) text-anchor="middle" {
                "time, " (scale.unit)
            }
        }
    }
}
