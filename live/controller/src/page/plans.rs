//! Recommendations: the newest plan of each host, with its reasons and the rejected moves.

use client::body::goal_name;
use manager::view::{MoveState, PlanState, PlanView, PlannedMove};
use maud::{Markup, html};
use model::ScoreColumn;
use serde_json::json;

use super::data::PageData;
use super::words::{NONE, ago, bytes, counted, duration, number, signed_percent};
use super::{OrderButton, Viewer};

/// Renders the plans.
pub(super) fn part(shown: &PageData, viewer: Viewer) -> Markup {
    html! {
        div id="plans" {
            @if shown.plans.is_empty() { p class="note" { "No plan yet." } }
            @for plan in &shown.plans { (one(plan, shown.status.at_ns, viewer)) }
        }
    }
}

fn one(plan: &PlanView, now_ns: u64, viewer: Viewer) -> Markup {
    let waiting = plan
        .moves
        .iter()
        .filter(|m| matches!(m.state, MoveState::Proposed { .. }))
        .count();
    html! {
        div class="plan-head" {
            h3 { "Plan " (plan.generation) " of " (plan.host) }
            span class="faint" { (plan.strategy) ", made " (ago(now_ns, plan.at_ns)) ", " (counted(plan.staying, "volume stays", "volumes stay")) }
            @if plan.state == PlanState::Superseded { span class="mark" { "superseded" } }
            @if waiting > 0 {
                span class="actions" {
                    (order("Approve all", "apply", plan, None).button(viewer))
                    (order("Reject all", "reject", plan, None).button(viewer))
                }
            }
        }
        @if plan.moves.is_empty() { p class="note" { "This plan has no moves." } } @else { (moves(plan, viewer)) }
        @if !plan.held.is_empty() { (held(plan)) }
        @if !plan.notes.is_empty() { ul class="note" { @for note in &plan.notes { li { (note) } } } }
    }
}

/// Builds the button for the move `of`, or for all moves that wait for approval if `of` is none.
fn order<'a>(
    text: &'a str,
    what: &str,
    plan: &PlanView,
    of: Option<&PlannedMove>,
) -> OrderButton<'a> {
    let (which, body, label) = match of {
        Some(m) => (
            m.position.to_string(),
            json!({ "host": plan.host, "moves": [m.position] }),
            format!("{text}: {} from {} to {}", m.volume, m.from_tier, m.to_tier),
        ),
        None => (
            "all".into(),
            json!({ "host": plan.host }),
            format!("{text} moves of plan {} of {}", plan.generation, plan.host),
        ),
    };
    OrderButton {
        id: format!("{what}-{}-{}-{which}", plan.host, plan.generation),
        text,
        label,
        method: "POST",
        path: format!("/v1/plans/{}/{what}", plan.generation),
        body,
    }
}

fn moves(plan: &PlanView, viewer: Viewer) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Moves of plan " (plan.generation) " of " (plan.host) } {
            table {
                thead { tr {
                    th scope="col" { "volume" } th scope="col" { "move" } th scope="col" { "goal" }
                    th scope="col" class="reason" { "reason" }
                    th scope="col" class="n" { "predicted mean latency" br; span class="unit" { "before → after, µs" } }
                    th scope="col" class="n" { "size of copy" } th scope="col" class="n" { "copy time" }
                    th scope="col" { "state" } th scope="col" { "orders" }
                } }
                tbody { @for m in &plan.moves { (row(plan, m, viewer)) } }
            }
        }
    }
}

fn row(plan: &PlanView, m: &PlannedMove, viewer: Viewer) -> Markup {
    let latency = match (m.before_us, m.after_us) {
        (None, None) => NONE.into(),
        (before, after) => {
            let text = |v: Option<f64>| v.map_or_else(|| NONE.into(), number);
            format!("{} → {}", text(before), text(after))
        }
    };
    let change = m.before_us.zip(m.after_us).map(|(b, a)| a / b - 1.0);
    let after: Vec<String> = m
        .after_moves
        .iter()
        .filter_map(|p| plan.moves.iter().find(|o| o.position == *p))
        .map(PlannedMove::subject)
        .collect();
    let by_hand = m.by_hand.as_deref();
    html! {
        tr {
            th scope="row" { (m.volume) @if let Some(extents) = &m.extents { br; span class="faint" { (counted(extents.count(), "extent", "extents")) } } }
            td { (m.from_tier) " → " (m.to_tier) br; span class="faint" { (m.from) " → " (m.to) } }
            td { (goal_name(m.goal)) }
            td class="reason" { (m.reason) @if !after.is_empty() { br; span class="faint" { "after " (after.join(", ")) } } @if let Some(why) = &m.doubt { br; span class="faint" { "doubtful: " (why) } } (scored(plan, m)) }
            td class="n" { (latency) @if let Some(change) = change { br; span class="faint" { (signed_percent(change)) } } }
            td class="n" { (bytes(m.bytes)) }
            td class="n" { (duration(m.duration_ns)) }
            td class="state" { @match &m.state {
                MoveState::Proposed { .. } if by_hand.is_some() => { span class="mark" { "by hand" } br; span class="faint" { (by_hand.unwrap_or_default()) } },
                MoveState::Proposed { why } => { span class="mark" { "proposed" } br; span class="faint" { (why) } },
                MoveState::Approved => span class="mark good" { "approved" },
                MoveState::Running => span class="mark good" { "running" },
                MoveState::Done => span class="mark good" { "done" },
                MoveState::Ended { why } => { span class="mark bad" { "ended" } br; span class="faint" { (why) } },
            } }
            td class="actions" { @if matches!(m.state, MoveState::Proposed { .. }) {
                @if by_hand.is_none() { (order("Approve", "apply", plan, Some(m)).button(viewer)) }
                (order("Reject", "reject", plan, Some(m)).button(viewer))
            } }
        }
    }
}

/// Renders the parts of the tiers' scores that decided a move; nothing if the strategy gives no scores.
fn scored(plan: &PlanView, m: &PlannedMove) -> Markup {
    let weighed = || m.scored.iter().filter_map(|o| Some((o, o.parts.as_ref()?)));
    let Some((_, first)) = weighed().next() else {
        return html! {};
    };
    let cell =
        |v: Option<f64>, digits: usize| v.map_or_else(|| NONE.into(), |v| format!("{v:.digits$}"));
    let heading = |c: &ScoreColumn| match c.unit {
        "" => c.name.to_owned(),
        unit => format!("{} ({unit})", c.name),
    };
    html! {
        details id={ "score-" (plan.host) "-" (m.position) } {
            summary { "parts of the scores" }
            table {
                thead { tr {
                    th scope="col" { "tier" }
                    @for c in first.columns() { th scope="col" class="n" { (heading(&c)) } }
                    th scope="col" class="n" { "score" }
                    @for c in first.predictions() { th scope="col" class="n" { (heading(&c)) } }
                } }
                tbody { @for (option, parts) in weighed() {
                    tr {
                        th scope="row" { (option.tier) }
                        @for c in parts.columns() { td class="n" { (cell(c.value, c.digits)) } }
                        td class="n" { (cell(option.score, 4)) }
                        @for c in parts.predictions() { td class="n" { (cell(c.value, c.digits)) } }
                    }
                } }
            }
            @for line in first.formula() { span class="faint" { (line) } br; }
        }
    }
}

fn held(plan: &PlanView) -> Markup {
    let many = u32::try_from(plan.held.len()).unwrap_or(u32::MAX);
    html! {
        details id={ "held-" (plan.host) } {
            summary { (counted(many, "rejected move", "rejected moves")) }
            div class="scroll" tabindex="0" role="region" aria-label={ "Rejected moves of " (plan.host) } {
                table {
                    thead { tr { th scope="col" { "volume" } th scope="col" { "source tier" } th scope="col" { "target tier" } th scope="col" class="reason" { "rejected by" } } }
                    tbody { @for h in &plan.held {
                        tr { th scope="row" { (h.volume) } td { (h.tier) } td { (h.wanted) } td class="reason" { (h.why) } }
                    } }
                }
            }
        }
    }
}
