//! Sections of the tiers, with small panels, and of the service classes.

use maud::{Markup, html};
use sim::{GroupKind, RunResult};

use super::Comparison;
use super::cells::{LoadTable, Loads};
use super::overview::lines;
use crate::chart::{Line, LineChart, Quantity, Reference, Size, line_sample};
use crate::format::{fixed, gib, grouped};
use crate::series;
use crate::tables::{group_names, kind_name};

/// Maximum number of tiers with panels.
const TIERS_SHOWN_MAX: usize = 8;

/// Used space and utilization of the devices of a tier over time.
struct TierOverTime {
    used_gib: Vec<Option<f64>>,
    utilization: Vec<Option<f64>>,
    capacity_gib: f64,
}

fn tier_over_time(result: &RunResult, tier: &str) -> Option<(f64, TierOverTime)> {
    let over_time = result.series.as_ref()?;
    let devices: Vec<_> = over_time
        .devices
        .iter()
        .filter(|d| d.tier == tier)
        .collect();
    let windows = devices.iter().map(|d| d.used_bytes.len()).max()?;
    let count = devices.len() as f64;
    let used = |i: usize| {
        devices
            .iter()
            .map(|d| gib(d.used_bytes.get(i).copied().unwrap_or(0)))
            .sum::<f64>()
    };
    let busy = |i: usize| {
        devices
            .iter()
            .map(|d| d.utilization.get(i).copied().unwrap_or(0.0))
            .sum::<f64>()
            / count
    };
    let tier = TierOverTime {
        used_gib: (0..windows).map(|i| Some(used(i))).collect(),
        utilization: (0..windows).map(|i| Some(busy(i))).collect(),
        capacity_gib: devices.iter().map(|d| gib(d.capacity_bytes)).sum(),
    };
    Some((over_time.window_s, tier))
}

fn device_lines(
    compared: &Comparison<'_>,
    tier: &str,
    of: fn(TierOverTime) -> Vec<Option<f64>>,
) -> Vec<Line> {
    let line = |(i, result, label): (usize, &RunResult, &str)| {
        let (window_s, over_time) = tier_over_time(result, tier)?;
        Some(Line {
            label: label.into(),
            style: i,
            points: series::points(&of(over_time), window_s),
        })
    };
    compared.rows().filter_map(line).collect()
}

pub(super) fn tiers(compared: &Comparison<'_>) -> Markup {
    let names = group_names(compared.results, GroupKind::Tier);
    html! {
        section id="tiers" {
            h2 { "Tiers" }
            (load_table(compared, GroupKind::Tier, Loads::Tiers))
            @if compared.has_series() {
                @if names.len() > TIERS_SHOWN_MAX {
                    p class="note" { "Panels for the first " (TIERS_SHOWN_MAX) " of " (names.len()) " tiers; the table has all tiers." }
                }
                p class="note" { "Each panel has its own scale. The utilization of a tier is the mean of the busy time shares of its devices." }
                @for name in names.iter().take(TIERS_SHOWN_MAX) {
                    h3 { "Tier " (name) }
                    div class="panels" { (panels(compared, name)) }
                }
            }
        }
    }
}

fn panels(compared: &Comparison<'_>, tier: &str) -> Markup {
    let panel = |title: &str, quantity: Quantity, lines: Vec<Line>| LineChart {
        title: title.into(),
        quantity,
        size: Size::Panel,
        lines,
        end_s: compared.end_s,
        warmup_s: compared.warmup_s,
        reference: None,
        at_least: 0.0,
    };
    let capacity = compared
        .results
        .iter()
        .filter_map(|r| tier_over_time(r, tier))
        .map(|(_, t)| t.capacity_gib);
    let capacity = capacity.fold(0.0, f64::max);
    let reference = (capacity > 0.0).then(|| Reference {
        at: capacity,
        label: format!("capacity {} GiB", grouped(&fixed(capacity, 1))),
    });
    let of_group = |of| lines(compared, GroupKind::Tier, tier, of);
    html! {
        (panel("Requests", Quantity::Iops, of_group(series::iops)).render())
        (panel("Throughput", Quantity::MibPerS, of_group(series::mib_per_s)).render())
        (panel("Mean latency of reads", Quantity::Latency, of_group(|g| series::measured(&g.reads, &g.reads.mean_us))).render())
        (panel("Mean latency of writes", Quantity::Latency, of_group(|g| series::measured(&g.writes, &g.writes.mean_us))).render())
        (LineChart { reference, ..panel("Used and reserved space", Quantity::Gib, device_lines(compared, tier, |t| t.used_gib)) }.render())
        (LineChart { at_least: 1.0, ..panel("Utilization", Quantity::Share, device_lines(compared, tier, |t| t.utilization)) }.render())
    }
}

pub(super) fn classes(compared: &Comparison<'_>) -> Markup {
    html! {
        section id="classes" {
            h2 { "Service classes" }
            (load_table(compared, GroupKind::Class, Loads::Volumes))
        }
    }
}

fn load_table(compared: &Comparison<'_>, kind: GroupKind, loads: Loads) -> Markup {
    let kind_name = kind_name(kind);
    let first = &compared.results[0];
    let loads = LoadTable {
        loads,
        runs: compared.results.len(),
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Loads and latencies by " (kind_name) " and strategy" } {
            table {
                (loads.head(&[kind_name, "strategy"]))
                @for name in group_names(compared.results, kind) {
                    @let baseline = first.of_kind(kind).find(|g| g.name == name);
                    @let rows: Vec<_> = compared.rows().filter_map(|(i, r, l)| Some((i, l, r.of_kind(kind).find(|g| g.name == name)?))).collect();
                    tbody {
                        @for (n, (i, label, group)) in rows.iter().enumerate() {
                            tr {
                                @if n == 0 { th scope="rowgroup" rowspan=(rows.len()) { (name) } }
                                th scope="row" { (line_sample(*i)) (label) }
                                (loads.row(group, baseline.filter(|_| *i > 0)))
                            }
                        }
                    }
                }
            }
        }
    }
}
