//! Timeline of moves, one row per volume: its tier is a thin line, copies are bars in the colour of the target.

use maud::{Markup, html};

use super::{Frame, TIER_COLORS, px, time_axis};
use crate::format::shortened;

const ROW_PX: f64 = 24.0;
const WIDTH_PX: f64 = 1200.0;
/// Maximum number of characters of a volume's name next to the timeline.
const NAME_CHARS_MAX: usize = 26;
/// Approximate width of a character of a bar's label, px.
const CHAR_PX: f64 = 6.2;

/// State of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarState {
    Done,
    NotDone,
    UnderWay,
}

/// Copy of a move.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) planned_s: f64,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// Index of the target tier.
    pub(crate) tier: usize,
    pub(crate) state: BarState,
    pub(crate) label: String,
    /// Tooltip, also for screen readers.
    pub(crate) title: String,
}

/// Row of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) name: String,
    /// Start, end, index of the tier.
    pub(crate) stays: Vec<(f64, f64, usize)>,
    pub(crate) bars: Vec<Bar>,
}

/// Timeline.
pub(crate) struct Gantt<'a> {
    pub(crate) tiers: &'a [&'a str],
    pub(crate) lanes: Vec<Lane>,
    pub(crate) end_s: f64,
}

impl Gantt<'_> {
    pub(crate) fn render(&self) -> Markup {
        let height = self.lanes.len() as f64 * ROW_PX + 52.0;
        let frame = Frame {
            width: WIDTH_PX,
            height,
            left: 190.0,
            right: 20.0,
            top: 8.0,
            bottom: 44.0,
        };
        let end_s = if self.end_s > 0.0 { self.end_s } else { 1.0 };
        html! {
            figure class="chart gantt" {
                figcaption { strong { "Moves over time" } }
                ul class="legend" {
                    @for (i, tier) in self.tiers.iter().enumerate() {
                        li {
                            (sample(html! { rect class={ "bar t" (i % TIER_COLORS) } x="1" y="1" width="32" height="10" rx="2" {} }))
                            span { "to " (tier) }
                        }
                    }
                    li { (sample(html! { line class="stay t0" x1="1" y1="6" x2="33" y2="6" {} })) "current tier" }
                    li { (sample(html! { line class="waiting" x1="1" y1="6" x2="33" y2="6" {} })) "planned, not started" }
                    li { (sample(html! { rect class="bar t0 hollow" x="2" y="1" width="30" height="10" rx="2" {} })) "failed, cancelled or still running" }
                }
                div class="scroll" {
                    svg class="gantt-plot" viewBox=(frame.view_box()) role="img" aria-label="Moves over time, one row per volume; the table below lists them" {
                        (time_axis(&frame, end_s, 12, true))
                        @for (row, lane) in self.lanes.iter().enumerate() {
                            (render_lane(lane, &frame, end_s, frame.top + (row as f64 + 0.5) * ROW_PX))
                        }
                        line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
                    }
                }
            }
        }
    }
}

fn sample(of: Markup) -> Markup {
    html! { svg class="sample" width="34" height="12" viewBox="0 0 34 12" aria-hidden="true" { (of) } }
}

fn render_lane(lane: &Lane, frame: &Frame, end_s: f64, y: f64) -> Markup {
    let x = |s: f64| frame.left + frame.plot_width() * (s / end_s).clamp(0.0, 1.0);
    html! {
        text class="lane" x=(px(frame.left - 10.0)) y=(px(y + 4.0)) text-anchor="end" {
            title { (lane.name) }
            (shortened(&lane.name, NAME_CHARS_MAX))
        }
        @for (from, to, tier) in &lane.stays {
            line class={ "stay t" (tier % TIER_COLORS) } x1=(px(x(*from))) x2=(px(x(*to))) y1=(px(y)) y2=(px(y)) {}
        }
        @for bar in &lane.bars {
            @let width = (x(bar.to_s) - x(bar.from_s)).max(3.0);
            g class="move" tabindex="0" role="img" aria-label=(bar.title) {
                title { (bar.title) }
                @if bar.from_s > bar.planned_s {
                    line class="waiting" x1=(px(x(bar.planned_s))) x2=(px(x(bar.from_s))) y1=(px(y)) y2=(px(y)) {}
                }
                @let hollow = if bar.state == BarState::Done { "" } else { " hollow" };
                rect class={ "bar t" (bar.tier % TIER_COLORS) (hollow) } x=(px(x(bar.from_s))) y=(px(y - 7.0)) width=(px(width)) height="14" rx="2" {}
            }
        }
        @for (i, bar) in lane.bars.iter().enumerate() {
            @let start = x(bar.to_s).max(x(bar.from_s) + 3.0) + 4.0;
            @let room = lane.bars.get(i + 1).map_or(frame.x1(), |next| x(next.planned_s.min(next.from_s)) - 4.0);
            @let width = bar.label.chars().count() as f64 * CHAR_PX;
            // The label is next to the bar, in a hollow bar, or omitted: it must not cover a neighbour.
            @if start + width <= room {
                text class="bar-label" x=(px(start)) y=(px(y - 3.0)) aria-hidden="true" { (bar.label) }
            } @else if bar.state != BarState::Done && width + 12.0 <= x(bar.to_s) - x(bar.from_s) {
                text class="bar-label" x=(px(x(bar.from_s) + 6.0)) y=(px(y + 4.0)) aria-hidden="true" { (bar.label) }
            }
        }
    }
}
