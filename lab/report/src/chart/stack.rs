//! Charts of stacked layers over time.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::linear;
use super::bars::swatch;
use super::{Frame, TIER_COLORS, px, time_axis};
use crate::format::significant;

#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Name in the legend.
    pub label: String,
    /// Index of the tier, which determines the colour.
    pub tier: usize,
    /// True for the second layer of a tier, which is drawn lighter.
    pub second: bool,
    /// Values, one per window.
    pub values: Vec<f64>,
}

/// Chart of stacked layers over time.
#[derive(Debug, Clone, PartialEq)]
pub struct StackChart {
    /// Title.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Length of a window, seconds.
    pub window_s: f64,
    /// Length of the warm-up, seconds.
    pub warmup_s: f64,
    /// Minimum end of the axis; equal for charts that are compared.
    pub at_least: f64,
    /// Layers from bottom to top.
    pub layers: Vec<Layer>,
}

impl StackChart {
    /// Returns the maximum of the sum of all layers.
    pub fn greatest(&self) -> f64 {
        let windows = self.layers.iter().map(|l| l.values.len()).max();
        (0..windows.unwrap_or(0))
            .map(|w| self.layers.iter().filter_map(|l| l.values.get(w)).sum())
            .fold(0.0, f64::max)
    }

    pub(crate) fn render(&self) -> Markup {
        let frame = Frame {
            width: 360.0,
            height: 190.0,
            left: 56.0,
            right: 10.0,
            top: 8.0,
            bottom: 36.0,
        };
        let windows = self.layers.iter().map(|l| l.values.len()).max();
        let windows = windows.unwrap_or(0);
        let end_s = (windows as f64 * self.window_s).max(1e-9);
        let (ticks, to) = linear(self.greatest().max(self.at_least), 4, false);
        let x = |s: f64| frame.left + frame.plot_width() * (s / end_s).clamp(0.0, 1.0);
        let y = |v: f64| frame.y1() - frame.plot_height() * (v / to).clamp(0.0, 1.0);
        let mut below = vec![0.0; windows];
        let mut areas = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let above: Vec<f64> = (0..windows)
                .map(|w| below[w] + layer.values.get(w).copied().unwrap_or(0.0))
                .collect();
            areas.push(area(&below, &above, self.window_s, &x, &y));
            below = above;
        }
        html! {
            figure class="chart panel" {
                figcaption { strong { (self.title) } ", " (self.unit) }
                svg class="figure-plot" viewBox=(frame.view_box()) role="img" aria-label={ (self.title) " in " (self.unit) " over time, stacked" } {
                    @for (layer, d) in self.layers.iter().zip(&areas) {
                        path class={ "area " (class(layer)) } d=(d) {
                            title { (layer.label) ": mean " (significant(layer.values.iter().sum::<f64>() / windows.max(1) as f64)) " " (self.unit) }
                        }
                    }
                    @for tick in &ticks {
                        @let at = y(tick.at);
                        line class="grid" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(at)) y2=(px(at)) {}
                        text class="tick" x=(px(frame.left - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (tick.label) }
                    }
                    (time_axis(&frame, end_s, 6, true))
                    @if self.warmup_s > 0.0 {
                        line class="reference" x1=(px(x(self.warmup_s))) x2=(px(x(self.warmup_s))) y1=(px(frame.top)) y2=(px(frame.y1())) {
                            title { "end of the warm-up" }
                        }
                    }
                    line class="axis" x1=(px(frame.left)) x2=(px(frame.x1())) y1=(px(frame.y1())) y2=(px(frame.y1())) {}
                }
            }
        }
    }

    /// Renders the legend, once for charts with the same layers.
    pub(crate) fn legend(&self) -> Markup {
        html! {
            ul class="legend" {
                @for layer in &self.layers {
                    li { (swatch(&format!("area {}", class(layer)))) span { (layer.label) } }
                }
            }
        }
    }
}

fn class(layer: &Layer) -> String {
    let second = if layer.second { " second" } else { "" };
    format!("t{}{second}", layer.tier % TIER_COLORS)
}

/// Returns a band from `below` to `above`, in steps: a value is constant during its window.
fn area(
    below: &[f64],
    above: &[f64],
    window_s: f64,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) -> String {
    let mut d = String::new();
    for (w, v) in above.iter().enumerate() {
        let (from, to) = (x(w as f64 * window_s), x((w + 1) as f64 * window_s));
        let command = if w == 0 { 'M' } else { 'L' };
        let _ = write!(d, "{command}{from:.1},{:.1}H{to:.1}", y(*v));
    }
    for (w, v) in below.iter().enumerate().rev() {
        let (from, to) = (x(w as f64 * window_s), x((w + 1) as f64 * window_s));
        let _ = write!(d, "L{to:.1},{:.1}H{from:.1}", y(*v));
    }
    if !d.is_empty() {
        d.push('Z');
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_stacked() {
        let layer = |tier: usize, values: Vec<f64>| Layer {
            label: format!("t{tier}"),
            tier,
            second: false,
            values,
        };
        let chart = StackChart {
            title: "t".into(),
            unit: "u".into(),
            window_s: 1.0,
            warmup_s: 1.0,
            at_least: 0.0,
            layers: vec![layer(0, vec![1.0, 2.0]), layer(1, vec![3.0, 1.0])],
        };
        assert_eq!(chart.greatest(), 4.0);
        let text = chart.render().into_string();
        assert_eq!(text.matches("class=\"area").count(), 2);
        let empty = StackChart {
            layers: vec![],
            ..chart
        };
        assert!(!empty.render().into_string().contains("NaN"));
    }
}
