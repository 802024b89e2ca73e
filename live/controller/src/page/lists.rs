//! Tables of jobs, outcomes, remedies and events.

use manager::view::{
    EventKind, EventView, JobView, OutcomeView, PeakView, ResponseState, ResponseView,
};
use maud::{Markup, html};
use model::JobStatus;
use serde_json::json;

use super::data::PageData;
use super::words::{
    NONE, ago, bytes, counted, date_time, duration, maybe, mib_per_s, number, percent,
    signed_percent,
};
use super::{OrderButton, Viewer};

/// Renders the jobs.
pub(super) fn jobs(shown: &PageData, viewer: Viewer) -> Markup {
    let now_ns = shown.status.at_ns;
    html! {
        div id="jobs" {
            @if shown.jobs.is_empty() { p class="note" { "No jobs yet." } } @else {
                div class="scroll" tabindex="0" role="region" aria-label="Table of jobs" {
                    table {
                        thead { tr {
                            th scope="col" class="n" { "job" } th scope="col" { "volume" } th scope="col" { "move" }
                            th scope="col" { "state" } th scope="col" class="wide" { "progress" }
                            th scope="col" class="n" { "rate" br; span class="unit" { "MiB/s" } }
                            th scope="col" class="n" { "time left" } th scope="col" class="reason" { "reason" } th scope="col" { "orders" }
                        } }
                        tbody { @for job in &shown.jobs { (job_row(shown, job, now_ns, viewer)) } }
                    }
                }
            }
        }
    }
}

fn job_row(shown: &PageData, job: &JobView, now_ns: u64, viewer: Viewer) -> Markup {
    let ended = job.ended_ns.is_some();
    let share = progress(job);
    let text = format!(
        "{} copied, {} left",
        bytes(job.copied_bytes),
        bytes(job.left_bytes)
    );
    let cancel = OrderButton {
        id: format!("cancel-{}-{}", job.host, job.job),
        text: "Cancel",
        label: format!("Cancel job {} of {}: {}", job.job, job.host, job.volume),
        method: "POST",
        path: format!("/v1/jobs/{}/cancel", job.job),
        body: json!({ "host": job.host }),
    };
    html! {
        tr class=(if ended { "ended" } else { "" }) {
            td class="n" { (job.job) }
            th scope="row" { (shown.named(&job.host, &job.volume)) @if let Some(extents) = &job.extents { br; span class="faint" { (counted(extents.count(), "extent", "extents")) } } }
            td { (job.from_tier) " → " (job.to_tier) br; span class="faint" { (job.from) " → " (job.to) } }
            td class="state" {
                span class=(mark(job.state)) { (job.state) }
                @if let Some(stuck) = job.stuck_ns { " " span class="mark bad" { "stuck for " (duration(stuck)) } }
                @if let Some(at) = job.ended_ns { br; span class="faint" { (ago(now_ns, at)) } }
                @if let Some(why) = &job.why { br; span class="faint" { (why) } }
            }
            td {
                progress max="1" value=(format!("{share:.4}")) aria-label={ "Progress of job " (job.job) } {}
                " " (percent(share)) br; span class="faint" { (text) }
            }
            td class="n" { @if ended || job.rate_bytes_per_s == 0 { (NONE) } @else { (mib_per_s(job.rate_bytes_per_s as f64)) } }
            td class="n" { @match job.eta_ns { Some(eta) => (duration(eta)), None => (NONE) } }
            td class="reason" { (job.reason) }
            td class="actions" { @if !ended { (cancel.button(viewer)) } }
        }
    }
}

/// Returns the progress of a job, 0..=1. Bytes that are copied twice count twice in the copied bytes and in the total.
fn progress(job: &JobView) -> f64 {
    let all = job.copied_bytes.saturating_add(job.left_bytes);
    match (job.state, all) {
        (JobStatus::Done, _) => 1.0,
        (_, 0) => 0.0,
        (_, all) => job.copied_bytes as f64 / all as f64,
    }
}

fn mark(state: JobStatus) -> &'static str {
    match state {
        JobStatus::Done => "mark good",
        JobStatus::Failed | JobStatus::Cancelled => "mark bad",
        JobStatus::Proposed | JobStatus::Waiting | JobStatus::Active => "mark",
    }
}

/// Renders the outcomes.
pub(super) fn outcomes(shown: &PageData) -> Markup {
    let now_ns = shown.status.at_ns;
    html! {
        div id="outcomes" {
            @if shown.outcomes.is_empty() { p class="note" { "No finished moves yet." } } @else {
                div class="scroll" tabindex="0" role="region" aria-label="Table of outcomes" {
                    table {
                        thead {
                            tr {
                                th scope="col" rowspan="2" class="n" { "job" } th scope="col" rowspan="2" { "volume" }
                                th scope="col" rowspan="2" { "move" } th scope="col" rowspan="2" { "end" }
                                th scope="colgroup" colspan="4" class="over" { "mean latency, µs" }
                                th scope="colgroup" colspan="3" class="over" { "requests/s" }
                            }
                            tr {
                                th scope="col" class="n" { "before" } th scope="col" class="n" { "predicted" }
                                th scope="col" class="n" { "observed" } th scope="col" class="n" { "prediction error" }
                                th scope="col" class="n" { "before" } th scope="col" class="n" { "predicted" } th scope="col" class="n" { "observed" }
                            }
                        }
                        tbody { @for o in &shown.outcomes { (outcome_row(shown, o, now_ns)) } }
                    }
                }
            }
        }
    }
}

fn outcome_row(shown: &PageData, o: &OutcomeView, now_ns: u64) -> Markup {
    let unknown = |v: Option<f64>| v.map_or_else(|| "unknown".into(), number);
    html! {
        tr {
            td class="n" { (o.job) }
            th scope="row" { (shown.named(&o.host, &o.volume)) }
            td { (o.from_tier) " → " (o.to_tier) }
            td { (ago(now_ns, o.ended_ns)) }
            td class="n" { (maybe(o.before_us)) } td class="n" { (maybe(o.predicted_us)) }
            td class="n" { (unknown(o.observed_us)) }
            td class="n" { @match o.error { Some(e) => (signed_percent(e)), None => (NONE) } }
            td class="n" { (maybe(o.before_iops)) } td class="n" { (maybe(o.predicted_iops)) } td class="n" { (maybe(o.observed_iops)) }
        }
    }
}

/// Renders the remedies for SLO violations.
pub(super) fn responses(shown: &PageData) -> Markup {
    let now_ns = shown.status.at_ns;
    html! {
        div id="responses" {
            @if shown.responses.is_empty() { p class="note" { (no_remedies(shown)) } } @else {
                div class="scroll" tabindex="0" role="region" aria-label="Table of remedies for SLO violations" {
                    table {
                        thead { tr {
                            th scope="col" { "volume" } th scope="col" { "decision" } th scope="col" class="reason" { "evidence" }
                            th scope="col" class="reason" { "remedy" } th scope="col" { "state" } th scope="col" { "objective" }
                        } }
                        tbody { @for r in &shown.responses { (response_row(shown, r, now_ns)) } }
                    }
                }
            }
        }
    }
}

/// Text for an empty table of remedies. A remedy requires a lasting violation, so volumes may have violated their objective
/// in some windows although no remedy exists.
fn no_remedies(shown: &PageData) -> String {
    match u32::try_from(shown.violating).unwrap_or(u32::MAX) {
        0 => "No SLO violations in the last windows, and no remedies.".into(),
        n => format!(
            "No remedies. {} violated the objective in at least one of the last windows: see the column objective of the volumes. \
             A remedy requires a longer violation (response.workflow.detect in the configuration).",
            counted(n, "volume", "volumes")
        ),
    }
}

fn response_row(shown: &PageData, r: &ResponseView, now_ns: u64) -> Markup {
    let good = matches!(
        r.state,
        ResponseState::InForce | ResponseState::TakenBack | ResponseState::Done
    );
    html! {
        tr {
            th scope="row" { (shown.named(&r.host, &r.volume)) }
            td { (ago(now_ns, r.at_ns)) }
            td class="reason" { @for (i, e) in r.evidence.iter().enumerate() { @if i > 0 { br; } (e) } }
            td class="reason" {
                (r.action)
                @if let Some(p) = &r.prediction { br; span class="faint" { "predicted: " (p) } }
                @if let Some(p) = &r.price { br; span class="faint" { "price: " (p) } }
                @for o in &r.others { br; span class="faint" { "alternative: " (o.action) ", price: " (o.price) } }
                @for no in &r.refused { br; span class="faint" { "rejected: " (no.remedy.name()) ": " (no.why) } }
            }
            td class="state" {
                span class=(if good { "mark good" } else { "mark" }) { (r.state.name()) }
                @if let Some(ended) = r.ended_ns { br; span class="faint" { (ago(now_ns, ended)) } }
            }
            td { @if let Some(peak) = &r.peak { (peak_cell(peak, now_ns)) } @else { @match r.recovered_ns {
                Some(recovered) => {
                    span class="good" { "✓ recovered " (ago(now_ns, recovered)) }
                    @if let Some(violated) = r.violated_last_ns { br; span class="faint" { "last violated " (duration(violated.saturating_sub(r.found_ns))) " after the violation was found" } }
                },
                None => span class="bad" { "✗ still violated" },
            } } }
        }
    }
}

/// Renders the state of an expected peak for which a remedy was chosen in advance.
fn peak_cell(peak: &PeakView, now_ns: u64) -> Markup {
    let (expected, at_ns) = (peak.rate_per_s, peak.at_ns);
    html! {
        @match &peak.outcome {
            Some(o) => {
                span class=(if o.violated == 0 { "good" } else { "bad" }) { "violated in " (o.violated) " of " (o.windows) " windows of the peak" }
                br; span class="faint" { "maximum " (number(o.rate_max_per_s)) " requests/s, " (number(expected)) " expected" }
            },
            None if now_ns < at_ns => span class="faint" { "peak expected in " (duration(at_ns - now_ns)) },
            None if now_ns < peak.until_ns => span class="faint" { "peak expected now" },
            None => span class="faint" { "the result of the peak is unknown" },
        }
    }
}

/// Renders the events.
pub(super) fn events(shown: &PageData) -> Markup {
    html! {
        div id="events" {
            @if shown.events.is_empty() { p class="note" { "No events yet." } } @else {
                div class="scroll tall" tabindex="0" role="region" aria-label="Table of events" {
                    table {
                        thead { tr {
                            th scope="col" { "time, UTC" } th scope="col" { "kind" } th scope="col" { "author" }
                            th scope="col" { "object" } th scope="col" class="reason" { "event" }
                        } }
                        tbody { @for event in &shown.events { (event_row(event)) } }
                    }
                }
            }
        }
    }
}

fn event_row(event: &EventView) -> Markup {
    let about: Vec<&str> = [&event.host, &event.volume]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    html! {
        tr {
            td class="keep" { (date_time(event.unix_ms)) }
            td { (kind_name(event.kind)) }
            td { (event.actor) }
            td { (about.join("/")) }
            td class="reason" { (event.text) }
        }
    }
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Plan => "plan",
        EventKind::Approval => "approval",
        EventKind::Job => "job",
        EventKind::Calibration => "calibration",
        EventKind::Response => "response",
        EventKind::Operator => "operator",
        EventKind::Host => "host",
        EventKind::Trust => "trust",
        EventKind::Problem => "problem",
        EventKind::Controller => "controller",
        EventKind::Access => "access",
        EventKind::Refused => "refused",
    }
}
