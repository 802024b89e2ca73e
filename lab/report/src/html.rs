//! One page that compares runs: self-contained, offline, complete without scripts.
//!
//! The page contains its styles, charts and script; its content security policy forbids it to load other content. The markup
//! macro escapes all names. Only the style sheet and the script of this crate are inserted without escapes.

mod cells;
mod groups;
mod overview;
mod strategy;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sim::RunResult;

use crate::chart::line_sample;
use crate::format::{long, seconds};
use crate::run::{duration_s, labels};
use crate::verdict::verdict;

pub(crate) const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Results with the values that all sections use.
struct Comparison<'a> {
    results: &'a [RunResult],
    labels: Vec<String>,
    /// End of the longest run, seconds.
    end_s: f64,
    warmup_s: f64,
}

impl<'a> Comparison<'a> {
    fn new(results: &'a [RunResult]) -> Self {
        let most = |of: fn(&RunResult) -> f64| {
            results
                .iter()
                .map(of)
                .filter(|s| s.is_finite())
                .fold(0.0, f64::max)
        };
        Self {
            results,
            labels: labels(results),
            end_s: most(duration_s),
            warmup_s: most(|r| r.manifest.warmup_s),
        }
    }

    fn has_series(&self) -> bool {
        self.results
            .iter()
            .any(|r| r.series.as_ref().is_some_and(|s| !s.groups.is_empty()))
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &'a RunResult, &str)> {
        self.results
            .iter()
            .zip(&self.labels)
            .enumerate()
            .map(|(i, (r, l))| (i, r, l.as_str()))
    }
}

/// Renders a complete HTML document that compares `results`; changes are relative to the first of them.
///
/// The page needs no network and no script: scripts only add tabs and a readout of the charts.
pub fn page(results: &[RunResult], title: &str) -> String {
    let compared = Comparison::new(results);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @if !results.is_empty() { a class="skip" href="#summary" { "Skip to the summary" } }
                (header(&compared, title))
                main {
                    @if results.is_empty() {
                        p { "No results." }
                    } @else {
                        (overview::summary(&compared))
                        (overview::cache(&compared))
                        (overview::mirrors(&compared))
                        (overview::response(&compared))
                        (overview::wear(&compared))
                        (overview::over_time(&compared))
                        (groups::tiers(&compared))
                        (groups::classes(&compared))
                        (strategies(&compared))
                        (manifest(&compared))
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    document.into_string()
}

fn header(compared: &Comparison<'_>, title: &str) -> Markup {
    let distinct = |of: &dyn Fn(&RunResult) -> String| {
        let mut seen = BTreeSet::new();
        let values: Vec<String> = compared
            .results
            .iter()
            .map(of)
            .filter(|v| seen.insert(v.clone()))
            .collect();
        values.join(", ")
    };
    html! {
        header {
            h1 { (title) }
            @if let Some(verdict) = verdict(compared.results) {
                p class="verdict" { strong { "Verdict: " } (verdict) }
            }
            @if !compared.results.is_empty() {
                dl class="facts" {
                    div { dt { "scenario" } dd { (distinct(&|r| r.manifest.scenario.clone())) } }
                    div { dt { "seed" } dd { (distinct(&|r| r.manifest.seed.to_string())) } }
                    div { dt { "duration" } dd { (distinct(&|r| long(duration_s(r)))) } }
                    @if compared.warmup_s > 0.0 {
                        div { dt { "warm-up, not counted" } dd { (distinct(&|r| seconds(r.manifest.warmup_s))) } }
                    }
                    div { dt { "terrace version" } dd { (distinct(&|r| r.manifest.version.clone())) } }
                }
                nav aria-label="Sections" {
                    a href="#summary" { "Summary" }
                    a href="#over-time" { "Over time" }
                    a href="#tiers" { "Tiers" }
                    a href="#classes" { "Classes" }
                    @for (i, _, label) in compared.rows() {
                        a href={ "#strategy-" (i) } { (label) }
                    }
                    a href="#manifest" { "Manifest" }
                }
            }
        }
    }
}

fn strategies(compared: &Comparison<'_>) -> Markup {
    html! {
        section id="strategies" {
            h2 { "Details by strategy" }
            // The script shows the tabs; without it, all strategies are visible one after the other.
            div class="tabs" role="tablist" aria-label="Strategies" hidden {
                @for (i, _, label) in compared.rows() {
                    button type="button" role="tab" id={ "tab-" (i) } aria-controls={ "strategy-" (i) } {
                        (line_sample(i)) (label)
                    }
                }
            }
            @for (i, result, label) in compared.rows() {
                (strategy::panel(compared, i, result, label))
            }
        }
    }
}

fn manifest(compared: &Comparison<'_>) -> Markup {
    html! {
        section id="manifest" {
            details {
                summary { h2 { "Manifest" } span { " inputs that reproduce these runs" } }
                div class="scroll" tabindex="0" role="region" aria-label="Manifest" {
                    table {
                        thead { tr {
                            th { "strategy" } th { "parameters other than defaults" } th { "scenario" }
                            th { "XXH3-64 of the scenario" } th class="n" { "seed" } th class="n" { "duration, s" }
                            th class="n" { "duration after warm-up, s" } th { "version" } th { "schema" }
                        } }
                        tbody {
                            @for (_, r, label) in compared.rows() {
                                tr {
                                    th scope="row" { (label) }
                                    td { code { (r.manifest.strategy_config) } }
                                    td { (r.manifest.scenario) }
                                    td { code { (r.manifest.scenario_xxh3) } }
                                    td class="n" { (r.manifest.seed) }
                                    td class="n" { (cells::plain(r.manifest.duration_s, 1)) }
                                    td class="n" { (cells::plain(r.counted_s, 1)) }
                                    td { (r.manifest.version) }
                                    td { code { (r.schema) } }
                                }
                            }
                        }
                    }
                }
                (traces(compared))
            }
        }
    }
}

fn traces(compared: &Comparison<'_>) -> Markup {
    let mut seen = BTreeSet::new();
    let all = compared.results.iter().flat_map(|r| &r.manifest.traces);
    let traces: Vec<_> = all.filter(|t| seen.insert((&t.file, &t.xxh3))).collect();
    html! {
        @if traces.is_empty() {
            p class="note" { "No traces: simulated clients generated the load." }
        } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Traces" {
                table {
                    thead { tr { th { "trace" } th { "XXH3-128 of its records" } th class="n" { "requests" } } }
                    tbody {
                        @for t in traces {
                            tr { th scope="row" { (t.file) } td { code { (t.xxh3) } } td class="n" { (cells::whole(t.requests)) } }
                        }
                    }
                }
            }
        }
    }
}
