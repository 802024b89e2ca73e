//! Sections about all volumes: the summary and the charts over time.

use maud::{Markup, html};
use sim::{GroupKind, GroupSeries};

use super::Comparison;
use super::cells::{self, ImprovementDirection, LoadTable, Loads, changed, plain};
use crate::chart::{Line, LineChart, POINTS_MAX, Quantity, Size, line_sample};
use crate::format::gib;
use crate::series::{self, Values};
use crate::tables::{Align, Column};
use crate::wear::Rows;

pub(super) fn summary(compared: &Comparison<'_>) -> Markup {
    let first = &compared.results[0];
    let loads = LoadTable {
        loads: Loads::Total,
        runs: compared.results.len(),
    };
    html! {
        section id="summary" {
            h2 { "Summary" }
            @if compared.results.len() > 1 {
                p class="note" { "Changes are relative to the first run, " strong { (compared.labels[0]) } ". Moves include the warm-up; loads, latencies and violations do not." }
            }
            div class="scroll" tabindex="0" role="region" aria-label="Loads and latencies by strategy" {
                table {
                    (loads.head(&["strategy"]))
                    tbody {
                        @for (i, r, label) in compared.rows() {
                            tr {
                                th scope="row" { (line_sample(i)) (label) }
                                (loads.row(r.total(), (i > 0).then(|| first.total())))
                            }
                        }
                    }
                }
            }
            div class="scroll" tabindex="0" role="region" aria-label="Objectives and moves by strategy" {
                table class="narrow" {
                    thead { tr {
                        th scope="col" { "strategy" }
                        th class="n" scope="col" { "SLO violation" br; span class="unit" { "volume-seconds" } }
                        @if compared.results.len() > 1 { th class="n" scope="col" { "SLO violation" br; span class="unit" { "vs first" } } }
                        th class="n" scope="col" { "finished moves" }
                        th class="n" scope="col" { "failed or cancelled moves" }
                        th class="n" scope="col" { "running moves" br; span class="unit" { "at the end" } }
                        th class="n" scope="col" { "copied data" br; span class="unit" { "GiB" } }
                        th class="n" scope="col" { "moved volumes" }
                        th class="n" scope="col" { "moved VMs" }
                    } }
                    tbody {
                        @for (i, r, label) in compared.rows() {
                            @let violated = r.total().slo_violation_s;
                            tr {
                                th scope="row" { (line_sample(i)) (label) }
                                td class="n" { (cells::maybe(violated, 1)) }
                                @if compared.results.len() > 1 {
                                    (changed(first.total().slo_violation_s.filter(|_| i > 0), violated, ImprovementDirection::Lower))
                                }
                                td class="n" { (cells::whole(r.moves.done)) }
                                td class="n" { (cells::whole(r.moves.not_done)) }
                                td class="n" { (cells::whole(r.moves.under_way)) }
                                td class="n" { (plain(gib(r.moves.bytes), 2)) }
                                td class="n" { (cells::whole(r.moves.volumes)) }
                                td class="n" { (cells::whole(r.moves.vms)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the wear of devices with a flash model; nothing without such devices.
pub(super) fn wear(compared: &Comparison<'_>) -> Markup {
    let Some(tables) = crate::wear::rows(compared.results) else {
        return html! {};
    };
    html! {
        section id="wear" {
            h2 { "Wear" }
            p class="note" {
                "Devices with a flash model. Programmed bytes are the bytes that guests and moves wrote, times the write amplification \
                 factor (WAF) of garbage collection. The lifetime in years assumes perfect wear levelling and this write rate."
                @if tables.len() > 2 {
                    " Garbage collection is charged to the tenant that caused it. The over-provisioning of a tenant is the mean flash that it owned in addition to its data."
                }
            }
            @for rows in tables { (narrow("Wear", &rows)) }
        }
    }
}

/// Renders the hit ratios of the cache in front of the devices; nothing without a cache.
pub(super) fn cache(compared: &Comparison<'_>) -> Markup {
    let Some(tables) = crate::cache::rows(compared.results) else {
        return html! {};
    };
    html! {
        section id="cache" {
            h2 { "Cache" }
            p class="note" {
                "The cache is in front of all tiers. The table counts pages, not requests: the cache serves a request if all its pages hit; such requests are in the tier \"cache\" below. Strategies only see requests that reach the devices."
            }
            @for rows in tables { (narrow("Cache", &rows)) }
        }
    }
}

/// Renders the mirrored extents; nothing if mirrors are off.
pub(super) fn mirrors(compared: &Comparison<'_>) -> Markup {
    let Some(rows) = crate::mirrors::rows(compared.results) else {
        return html! {};
    };
    html! {
        section id="mirrors" {
            h2 { "Mirrored extents" }
            p class="note" {
                "Read-mostly extents with a second copy on another device: writes go to both copies, reads to the faster one."
            }
            @if rows.1.is_empty() { p { "No extents were mirrored." } } @else { (narrow("Mirrored extents", &rows)) }
        }
    }
}

/// Renders the remedies for SLO violations; nothing if remedies are off.
pub(super) fn response(compared: &Comparison<'_>) -> Markup {
    let Some(tables) = crate::response::rows(compared.results) else {
        return html! {};
    };
    html! {
        section id="remedies" {
            h2 { "Remedies for SLO violations" }
            p class="note" {
                "Remedies in addition to the moves of the strategy: each lasting violation with its remedy, or the reason why no remedy was taken. The tier \"appliances\" below counts the reads that caching appliances serve."
            }
            @for rows in tables.iter().filter(|t| !t.1.is_empty()) { (narrow("Remedies", rows)) }
            @if tables[..2].iter().all(|t| t.1.is_empty()) { p { (crate::response::no_remedies(compared.results)) } }
        }
    }
}

/// Renders a table with the class `narrow`.
fn narrow(label: &str, (columns, rows): &Rows) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(label) {
            table class="narrow" {
                thead { tr { @for c in columns {
                    th class=[class(c)] scope="col" {
                        (c.name) @if !c.unit.is_empty() { br; span class="unit" { (c.unit) } }
                    }
                } } }
                tbody { @for row in rows { tr {
                    @for (cell, c) in row.iter().zip(columns) { td class=[class(c)] { (cell) } }
                } } }
            }
        }
    }
}

/// Returns the class that aligns numbers to the right.
fn class(column: &Column) -> Option<&'static str> {
    (column.align == Align::Number).then_some("n")
}

/// Returns one line per run for a statistic of a group.
pub(super) fn lines(
    compared: &Comparison<'_>,
    kind: GroupKind,
    name: &str,
    of: fn(&GroupSeries) -> Values,
) -> Vec<Line> {
    let line = |(i, result, label): (usize, &sim::RunResult, &str)| {
        let over_time = result.series.as_ref()?;
        let group = series::group(over_time, kind, name)?;
        Some(Line {
            label: label.into(),
            style: i,
            points: series::points(&of(group), over_time.window_s),
        })
    };
    compared.rows().filter_map(line).collect()
}

/// Number of windows of the longest run.
fn longest(compared: &Comparison<'_>) -> usize {
    let groups = compared
        .results
        .iter()
        .filter_map(|r| r.series.as_ref())
        .flat_map(|s| &s.groups);
    groups.map(series::windows).max().unwrap_or(0)
}

pub(super) fn over_time(compared: &Comparison<'_>) -> Markup {
    let has_objective = compared
        .results
        .iter()
        .any(|r| r.total().slo_violation_s.is_some());
    let chart = |title: &str, quantity: Quantity, of: fn(&GroupSeries) -> Values| {
        LineChart {
            title: title.into(),
            quantity,
            size: Size::Full,
            lines: lines(compared, GroupKind::Total, "total", of),
            end_s: compared.end_s,
            warmup_s: compared.warmup_s,
            reference: None,
            at_least: 0.0,
        }
        .render()
    };
    let violating: fn(&GroupSeries) -> Values = |g| {
        (0..series::windows(g))
            .map(|i| Some(f64::from(g.violating.get(i).copied().unwrap_or(0))))
            .collect()
    };
    html! {
        section id="over-time" {
            h2 { "Over time" }
            @if compared.has_series() {
                @let window_s = compared.results.iter().find_map(|r| r.series.as_ref()).map_or(0.0, |s| s.window_s);
                p class="note" {
                    "All volumes together, one value per window of " (crate::format::seconds(window_s))
                    ". Point at a chart, or focus it and use the arrow keys, to read values."
                    @if compared.warmup_s > 0.0 { " The shaded start is the warm-up." }
                    @if longest(compared) > POINTS_MAX {
                        " The runs have " (cells::whole(longest(compared) as u64)) " windows, more than a chart can show. Lines show the "
                        "median of neighbouring windows (the maximum for violations); bands show their minimum and maximum."
                    }
                }
                div class="charts" {
                    (chart("Requests", Quantity::Iops, series::iops))
                    (chart("Throughput", Quantity::MibPerS, series::mib_per_s))
                    (chart("Mean latency, reads and writes", Quantity::Latency, series::mean_us))
                    (chart("p99 latency of reads", Quantity::Latency, |g| series::measured(&g.reads, &g.reads.p99_us)))
                    (chart("p99 latency of writes", Quantity::Latency, |g| series::measured(&g.writes, &g.writes.p99_us)))
                    @if has_objective {
                        (chart("Volumes that violated their objective", Quantity::Volumes, violating))
                    }
                }
                @if !has_objective { p class="note" { "No service class has a latency objective, so violations are not shown." } }
            } @else {
                p class="note" { "These runs have no results over time." }
            }
        }
    }
}
