//! Latency over load: measured points and a fitted curve, one panel per direction, as one standalone image.
//!
//! The image contains its colours and can be a file or a part of a page. Viewers without dark mode show the light colours.

use std::fmt::Write;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::axis::{linear, logarithmic};
use super::{DASHES, Frame, Quantity, px};
use crate::format::shortened;

const PANEL_WIDTH_PX: f64 = 560.0;
const PANEL_HEIGHT_PX: f64 = 400.0;
/// Space above a plot for the title of the panel and the name of the axis.
const TOP_PX: f64 = 52.0;
const LEGEND_ROW_PX: f64 = 20.0;
const LEGEND_COLUMN_PX: f64 = 128.0;
const LEGEND_PER_ROW: usize = 4;
/// Height of the title of the image.
const TITLE_PX: f64 = 38.0;
const RADIUS_PX: f64 = 4.0;

const STYLE: &str = "
.load-chart { font: 12px system-ui, 'DejaVu Sans', sans-serif; color: #1b1f24; }
.load-chart .back { fill: #ffffff; } .load-chart text { fill: #1b1f24; } .load-chart .faint { fill: #5b6470; }
.load-chart .grid { stroke: #d5dae1; stroke-width: 1; } .load-chart .axis { stroke: #5b6470; stroke-width: 1; }
.load-chart .full { stroke: #5b6470; stroke-width: 1; stroke-dasharray: 4 3; }
.load-chart .title { font-size: 16px; font-weight: 600; } .load-chart .panel { font-size: 13px; font-weight: 600; }
.load-chart path { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .load-chart circle { stroke-width: 1.5; fill-opacity: .35; }
.load-chart .c0 { stroke: #0072b2; fill: #0072b2; } .load-chart .c1 { stroke: #d55e00; fill: #d55e00; }
.load-chart .c2 { stroke: #009e73; fill: #009e73; } .load-chart .c3 { stroke: #9b5fb8; fill: #9b5fb8; }
.load-chart .c4 { stroke: #b8860b; fill: #b8860b; } .load-chart .c5 { stroke: #44505e; fill: #44505e; }
.load-chart path.c0, .load-chart path.c1, .load-chart path.c2, .load-chart path.c3, .load-chart path.c4, .load-chart path.c5 { fill: none; }
@media screen and (prefers-color-scheme: dark) {
.load-chart .back { fill: #14171b; } .load-chart text { fill: #e6e9ed; } .load-chart .faint { fill: #a0a9b5; }
.load-chart .grid { stroke: #3a414b; } .load-chart .axis, .load-chart .full { stroke: #a0a9b5; }
.load-chart .c0 { stroke: #4aa8e8; fill: #4aa8e8; } .load-chart .c1 { stroke: #ff9248; fill: #ff9248; }
.load-chart .c2 { stroke: #2fcf9f; fill: #2fcf9f; } .load-chart .c3 { stroke: #cfa0e8; fill: #cfa0e8; }
.load-chart .c4 { stroke: #e6c34a; fill: #e6c34a; } .load-chart .c5 { stroke: #b4bfcc; fill: #b4bfcc; }
}
";
const COLORS: usize = 6;

/// Measured points and the fitted curve.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSeries {
    /// Name in the legend.
    pub label: String,
    /// Utilization of the device, 0..=1 or slightly above, and latency in microseconds.
    pub points: Vec<(f64, f64)>,
    /// The same for the curve.
    pub curve: Vec<(f64, f64)>,
}

/// Series of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPanel {
    /// Title above the plot.
    pub title: String,
    /// Lines of the legend, in the order of colours.
    pub series: Vec<LoadSeries>,
}

/// Image of latency over load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadChart {
    /// Title of the image.
    pub title: String,
    /// Panels side by side; panels without points are omitted.
    pub panels: Vec<LoadPanel>,
}

impl LoadChart {
    /// Renders a standalone SVG document.
    pub fn svg(&self) -> String {
        self.picture().into_string() + "\n"
    }

    /// Renders an offline HTML page. `tables` are titles and plain-text tables below the image.
    pub fn page(&self, tables: &[(&str, String)]) -> String {
        const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
        const PAGE: &str = "
            :root { color-scheme: light dark; }
            body { margin: 1.5rem; background: #ffffff; color: #1b1f24; font: 14px/1.45 system-ui, sans-serif; }
            svg { width: 100%; max-width: 1160px; height: auto; } pre { overflow-x: auto; font-size: 12px; }
            @media screen and (prefers-color-scheme: dark) { body { background: #14171b; color: #e6e9ed; } }";
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (self.title) }
                    style { (PreEscaped(PAGE)) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        (self.picture())
                        @for (title, text) in tables {
                            h2 { (title) }
                            pre { (text) }
                        }
                    }
                }
            }
        };
        document.into_string()
    }

    fn picture(&self) -> Markup {
        let panels: Vec<&LoadPanel> = self
            .panels
            .iter()
            .filter(|p| p.series.iter().any(|s| !s.points.is_empty()))
            .collect();
        let rows = panels
            .iter()
            .map(|p| p.series.len().div_ceil(LEGEND_PER_ROW))
            .max()
            .unwrap_or(0);
        let top = TITLE_PX + LEGEND_ROW_PX * rows as f64;
        let width = PANEL_WIDTH_PX * panels.len().max(1) as f64;
        let height = top + PANEL_HEIGHT_PX;
        let names: Vec<&str> = panels.iter().map(|p| p.title.as_str()).collect();
        html! {
            svg class="load-chart" xmlns="http://www.w3.org/2000/svg" role="img"
                width=(px(width)) height=(px(height)) viewBox={ "0 0 " (px(width)) " " (px(height)) }
                aria-label={ (self.title) ": latency over load, measured and fitted: " (names.join(", ")) } {
                style { (PreEscaped(STYLE)) }
                rect class="back" width=(px(width)) height=(px(height)) {}
                text class="title" x="16" y="24" { (shortened(&self.title, 90)) }
                @if panels.is_empty() { text class="faint" x="16" y=(px(top + 40.0)) { "no points" } }
                @for (i, panel) in panels.iter().enumerate() {
                    g transform={ "translate(" (px(PANEL_WIDTH_PX * i as f64)) " " (px(TITLE_PX)) ")" } {
                        (panel.render(LEGEND_ROW_PX * rows as f64))
                    }
                }
            }
        }
    }
}

impl LoadPanel {
    /// Renders a panel. `legend_px` is the maximum height of the legends of all panels.
    fn render(&self, legend_px: f64) -> Markup {
        let frame = Frame {
            width: PANEL_WIDTH_PX,
            height: legend_px + PANEL_HEIGHT_PX,
            left: 66.0,
            right: 20.0,
            top: legend_px + TOP_PX - 18.0,
            bottom: 50.0,
        };
        let all = || self.series.iter().flat_map(|s| s.points.iter());
        let right = all().map(|p| p.0).fold(1.0, f64::max) * 1.02;
        let least = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let greatest = all().map(|p| p.1).fold(0.0, f64::max);
        let (unit, one) = Quantity::Latency.unit(greatest);
        let (ticks, from, to) = logarithmic(0.9 * least / one, 1.1 * greatest / one);
        let y = |us: f64| {
            let share = libm::log10((us / one).max(from * 0.5) / from) / libm::log10(to / from);
            frame.y1() - frame.plot_height() * share
        };
        let x = |load: f64| frame.left + frame.plot_width() * (load / right).max(0.0);
        html! {
            text class="panel" x=(px(frame.left)) y=(px(12.0)) { (self.title) }
            @for (i, series) in self.series.iter().enumerate() {
                @let at_x = frame.left + LEGEND_COLUMN_PX * (i % LEGEND_PER_ROW) as f64;
                @let at_y = 12.0 + LEGEND_ROW_PX * (i / LEGEND_PER_ROW + 1) as f64;
                path class={ "c" (i % COLORS) } stroke-dasharray=(DASHES[i % DASHES.len()]) d={ "M" (px(at_x)) "," (px(at_y - 4.0)) "h26" } {}
                circle class={ "c" (i % COLORS) } cx=(px(at_x + 13.0)) cy=(px(at_y - 4.0)) r=(px(RADIUS_PX)) {}
                text x=(px(at_x + 32.0)) y=(px(at_y)) { (shortened(&series.label, 14)) }
            }
            text class="faint" x=(px(frame.left - 50.0)) y=(px(frame.top - 8.0)) { "mean latency, " (unit) " (log scale)" }
            @for tick in &ticks {
                @let at = y(tick.at * one);
                line class="grid" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                text class="faint" x=(px(frame.left - 6.0)) y=(px(at + 4.0)) text-anchor="end" { (tick.label) }
            }
            @for tick in linear(right * 100.0, 5, true).0.iter().filter(|t| t.at <= right * 100.0) {
                @let at = x(tick.at / 100.0);
                line class="grid" x1=(px(at)) x2=(px(at)) y1=(px(frame.top)) y2=(px(frame.y1())) {}
                text class="faint" x=(px(at)) y=(px(frame.y1() + 17.0)) text-anchor="middle" { (tick.label) }
            }
            line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
            line class="full" x1=(px(x(1.0))) x2=(px(x(1.0))) y1=(px(frame.top)) y2=(px(frame.y1())) {}
            text class="faint" x=(px(frame.left + frame.plot_width() / 2.0)) y=(px(frame.y1() + 36.0)) text-anchor="middle" {
                "load: utilization of the device, %"
            }
            @for (i, series) in self.series.iter().enumerate() {
                path class={ "c" (i % COLORS) } stroke-dasharray=(DASHES[i % DASHES.len()])
                    d=(path(&series.curve, &x, &y, &frame)) {}
            }
            @for (i, series) in self.series.iter().enumerate() {
                @for (load, us) in &series.points {
                    circle class={ "c" (i % COLORS) } cx=(px(x(*load))) cy=(px(y(*us))) r=(px(RADIUS_PX)) {
                        title { (series.label) ": " (format!("{:.1} % load, {:.1} µs", load * 100.0, us)) }
                    }
                }
            }
        }
    }
}

/// Returns the part of a curve within the frame.
fn path(
    curve: &[(f64, f64)],
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
    frame: &Frame,
) -> String {
    let mut d = String::new();
    let inside = curve
        .iter()
        .map(|(load, us)| (x(*load), y(*us)))
        .filter(|(x, y)| *x <= frame.x1() && (frame.top..=frame.y1()).contains(y));
    for (i, (x, y)) in inside.enumerate() {
        let _ = write!(d, "{}{x:.1},{y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> LoadChart {
        let series = |label: &str, base: f64| LoadSeries {
            label: label.into(),
            points: vec![(0.1, base), (0.5, 1.5 * base), (1.03, 9.0 * base)],
            curve: (0..100)
                .map(|i| f64::from(i) / 100.0)
                .map(|u| (u, base / (1.0 - u)))
                .collect(),
        };
        LoadChart {
            title: "disk <one> & two".into(),
            panels: vec![
                LoadPanel {
                    title: "reads".into(),
                    series: vec![series("4 KiB", 80.0), series("1 MiB", 900.0)],
                },
                LoadPanel {
                    title: "writes".into(),
                    series: vec![],
                },
            ],
        }
    }

    #[test]
    fn points_are_drawn_inside_the_picture() {
        let svg = chart().svg();
        let circles = svg.matches("<circle").count();
        assert_eq!(
            circles,
            2 * 3 + 2,
            "three points and a sample in the legend each"
        );
        let numbers = |attribute: &str| -> Vec<f64> {
            svg.split(&format!(" {attribute}=\""))
                .skip(1)
                .map(|s| s.split('"').next().unwrap().parse().unwrap())
                .collect()
        };
        assert!(
            numbers("cx")
                .iter()
                .all(|x| (0.0..=PANEL_WIDTH_PX).contains(x))
        );
        assert!(
            numbers("cy")
                .iter()
                .all(|y| (0.0..=PANEL_HEIGHT_PX + TITLE_PX).contains(y))
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("disk &lt;one&gt; &amp; two") && !svg.contains("<one>"));
        assert!(
            !svg.contains("writes"),
            "a panel without points is left out"
        );
        assert!(svg.contains("µs (log scale)") || svg.contains("ms (log scale)"));
    }

    #[test]
    fn higher_load_is_to_the_right_and_higher_latency_above() {
        let svg = chart().svg();
        let at: Vec<(f64, f64)> = svg
            .split("<circle")
            .skip(3)
            .map(|c| {
                let of = |name: &str| {
                    c.split(&format!(" {name}=\""))
                        .nth(1)
                        .unwrap()
                        .split('"')
                        .next()
                        .unwrap()
                        .parse()
                        .unwrap()
                };
                (of("cx"), of("cy"))
            })
            .collect();
        assert!(at[0].0 < at[1].0 && at[1].0 < at[2].0, "{at:?}");
        assert!(at[0].1 > at[1].1 && at[1].1 > at[2].1, "{at:?}");
    }

    #[test]
    fn page_loads_no_resources_and_escapes_its_tables() {
        let page = chart().page(&[("Points", "a < b\n".into())]);
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("default-src 'none'"));
        assert!(page.contains("a &lt; b") && page.contains("<svg"));
        assert!(!page.contains("src=") && !page.contains("href="));
        let empty = LoadChart {
            title: "t".into(),
            panels: vec![],
        };
        assert!(empty.svg().contains("no points"));
    }
}
