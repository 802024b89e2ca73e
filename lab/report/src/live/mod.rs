//! Views of a live controller as text for a terminal. Tables are at most 100 columns wide for usual names.
//!
//! ```text
//!  StatusView ──▶ status          PlanView ──▶ plan, to_apply, diff, diff_plans
//!  TierView, VolumeView ──▶ top   JobView ──▶ jobs, job_line      OutcomeView ──▶ outcomes
//!  PlaceView ──▶ place
//!  WhyView ──▶ why, why_not       EventView ──▶ event_line        HistoryPoint ──▶ history
//!  a repeated decision ──▶ decided_again
//! ```
//!
//! A controller counts time from its first start. Times are therefore shown as ages. An unknown value is a dash, never a zero.
//! All names are made printable.

mod again;
mod diff;
mod events;
mod jobs;
mod outcomes;
mod place;
mod plan;
mod status;
mod top;
mod why;

use units::Nanos;

use crate::format::span;
use crate::tables::printable;

pub use again::decided_again;
pub use diff::{OnlyInOne, diff, diff_plans, only_in_one};
pub use events::event_line;
pub use jobs::{job_line, jobs};
pub use outcomes::{history, outcomes};
pub use place::place;
pub use plan::{PlanDetail, plan, recommended, to_apply};
pub use status::{modes, status};
pub use top::{TopOrder, in_order, top};
pub use why::{why, why_not};

/// Adds a line with a name in front.
fn line(out: &mut String, name: &str, value: &str) {
    *out += format!("{name:<14} {}", printable(value)).trim_end();
    out.push('\n');
}

/// Formats a time of the controller as its age.
fn ago(now: Nanos, at_ns: u64) -> String {
    format!("{} ago", span(now.0.saturating_sub(at_ns)))
}

/// Returns true if names need their host in front, because several hosts exist.
fn several<'a>(hosts: impl IntoIterator<Item = &'a str>) -> bool {
    let mut hosts = hosts.into_iter();
    let first = hosts.next();
    hosts.any(|h| Some(h) != first)
}

/// Formats a name as commands accept it, with its host if several hosts exist.
fn named(host: &str, name: &str, several: bool) -> String {
    match several {
        true => format!("{host}/{name}"),
        false => name.into(),
    }
}
