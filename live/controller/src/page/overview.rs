//! Overview: state of the controller, problems, hosts and tiers.

use client::body::goal_name;
use manager::view::{HostState, HostView, StatusView, TierView};
use maud::{Markup, html};
use model::Mode;
use model::TierState;

use super::data::PageData;
use super::words::{bytes, count, counted, duration, mib_per_s, percent};
use super::{OrderButton, Viewer};

/// Renders the overview.
pub(super) fn part(shown: &PageData, viewer: Viewer) -> Markup {
    let status = &shown.status;
    html! {
        div id="overview" {
            (facts(status, viewer))
            (problems(status))
            (hosts(&status.hosts))
            (tiers(shown))
        }
    }
}

fn facts(status: &StatusView, viewer: Viewer) -> Markup {
    let trust = &status.trust;
    html! {
        dl class="facts" {
            div { dt { "state" } dd {
                @if status.paused { span class="mark bad" { "paused" } } @else { span class="mark good" { "running" } }
                " " (pause(status.paused, viewer))
            } }
            div { dt { "strategy" } dd { (status.strategy) } }
            @for (goal, mode) in &status.modes {
                div { dt { (goal_name(*goal)) " moves" } dd { (mode_name(*mode)) } }
            }
            div { dt { "predictions" } dd {
                @if trust.trusted { "trusted" } @else { span class="bad" { "not trusted" } }
                @if let Some(error) = trust.error_median {
                    span class="faint" { ", median error " (percent(error)) " over " (counted(trust.outcomes, "move", "moves")) }
                }
            } }
            div { dt { "automatic moves" } dd { (status.automatic_moves()) } }
            div { dt { "volumes" } dd {
                (count(status.volumes))
                @if status.slo_violated > 0 { span class="bad" { ", " (count(status.slo_violated)) " violated their objective in the last window" } }
                @if status.unknown > 0 { span class="faint" { ", load of " (count(status.unknown)) " unknown" } }
            } }
            div { dt { "waiting for approval" } dd { (counted(status.proposed, "move", "moves")) } }
            div { dt { "approved or running" } dd { (counted(status.jobs, "job", "jobs")) } }
            div { dt { "version" } dd { (status.version) } }
        }
        @if let Some(why) = &trust.why { p class="note" { "Predictions: " (why) } }
    }
}

fn pause(paused: bool, viewer: Viewer) -> Markup {
    let (text, path, label) = match paused {
        true => ("Resume", "/v1/resume", "Resume moves"),
        false => (
            "Pause",
            "/v1/pause",
            "Pause moves: no new moves start on any host",
        ),
    };
    let order = OrderButton {
        id: "pause".into(),
        text,
        label: label.into(),
        method: "POST",
        path: path.into(),
        body: serde_json::json!({}),
    };
    order.button(viewer)
}

fn problems(status: &StatusView) -> Markup {
    html! {
        @if status.problems.is_empty() {
            p class="well" { "No problems." }
        } @else {
            ul class="problems" aria-label="Problems" {
                @for problem in &status.problems {
                    li {
                        span class="mark bad" { (problem.kind) } " " (problem.what)
                        span class="faint" { ", for " (duration(status.at_ns.saturating_sub(problem.since_ns))) }
                        @if let Some(undecided) = &problem.undecided { br; span class="faint" { "no decisions on: " (undecided) } }
                    }
                }
            }
        }
    }
}

fn hosts(hosts: &[HostView]) -> Markup {
    html! {
        @if hosts.is_empty() { p class="note" { "No agent has registered yet." } }
        ul class="hosts" aria-label="Hosts" {
            @for host in hosts {
                li {
                    b { (host.name) } " "
                    @match host.state {
                        HostState::Live => span class="mark good" { "live" },
                        HostState::Late => span class="mark bad" { "late" },
                        HostState::Lost => span class="mark bad" { "lost" },
                    }
                    span class="faint" {
                        @if let Some(age) = host.age_ns { " last report " (duration(age)) " ago" }
                        @if host.generation > 0 { ", plan " (host.generation) }
                        @if let Some(next) = host.next_decision_ns { ", next decision in " (duration(next)) }
                        @if let Some(lends) = &host.lends {
                            ", lends "
                            @for (n, (store, all, lent)) in lends.stores().enumerate() {
                                @if n > 0 { " and " }
                                (bytes(all)) " of " (store.word()) " (" (bytes(lent)) " in use)"
                            }
                            @for (n, of) in lends.to.iter().enumerate() {
                                @if n == 0 { " to " } @else { ", " }
                                (of.to) @if let Some(volume) = &of.volume { " for " (volume) }
                            }
                        }
                    }
                    @if let Some(problem) = &host.problem { span class="bad" { " " (problem) } }
                }
            }
        }
    }
}

fn tiers(shown: &PageData) -> Markup {
    let several = shown.status.hosts.len() > 1;
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Tiers" {
            table {
                thead { tr {
                    @if several { th scope="col" { "host" } }
                    th scope="col" { "tier" } th scope="col" { "state" } th scope="col" class="wide" { "space used" }
                    th scope="col" class="wide" { "utilization" }
                    th scope="col" class="n" { "reads" br; span class="unit" { "MiB/s" } }
                    th scope="col" class="n" { "writes" br; span class="unit" { "MiB/s" } }
                    th scope="col" class="n" { "volumes" }
                } }
                tbody { @for tier in &shown.tiers { (row(tier, several)) } }
            }
        }
    }
}

fn row(tier: &TierView, several: bool) -> Markup {
    let used = share(tier.used_bytes, tier.size_bytes);
    let used_text = format!(
        "{} of {} ({})",
        bytes(tier.used_bytes),
        bytes(tier.size_bytes),
        percent(used)
    );
    let gone: Vec<&str> = tier
        .devices
        .iter()
        .filter(|d| !d.connected)
        .map(|d| &*d.name)
        .collect();
    html! {
        tr {
            @if several { td { (tier.host) } }
            th scope="row" { (tier.name) }
            td {
                @match tier.state {
                    TierState::Open => "open",
                    TierState::Cordoned => span class="mark" { "cordoned" },
                    TierState::Draining => span class="mark" { "draining" },
                }
                @if !tier.described { " " span class="bad" { "no device description" } }
                @if !gone.is_empty() { " " span class="bad" { "cannot reach " (gone.join(", ")) } }
            }
            td { (bar(used, "used")) " " (used_text) }
            td { @match tier.utilization {
                Some(u) => { (bar(u, "busy")) " " (percent(u)) },
                None => span class="faint" { "unknown" },
            } }
            td class="n" { (mib_per_s(tier.read_bytes_per_s)) }
            td class="n" { (mib_per_s(tier.write_bytes_per_s)) }
            td class="n" { (count(tier.volumes)) }
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// Renders a bar. Screen readers skip it, because the text next to it gives the same number.
fn bar(share: f64, class: &str) -> Markup {
    let width = format!("{:.1}%", share.clamp(0.0, 1.0) * 100.0);
    html! {
        svg class={ "bar " (class) } width="110" height="10" aria-hidden="true" {
            rect class="back" width="100%" height="100%" {}
            rect class="fill" width=(width) height="100%" {}
        }
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Recommend => "recommend",
        Mode::Partial => "partial",
        Mode::Auto => "auto",
    }
}
