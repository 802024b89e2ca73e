//! What a live controller answers, for a terminal: its views as text. Widths are for 100 columns.
//!
//! ```text
//!  StatusView ──▶ status          PlanView ──▶ plan, to_apply, diff, diff_plans
//!  TierView, VolumeView ──▶ top   JobView ──▶ jobs, job_line      OutcomeView ──▶ outcomes
//!  PlaceView ──▶ place
//!  WhyView ──▶ why, why_not       EventView ──▶ event_line        HistoryPoint ──▶ history
//!  a decision that was made again ──▶ decided_again
//! ```
//!
//! Times of a controller are counted from its first start, which tells nobody anything: they are shown as ages, from the
//! controller's own time. What is unknown is a dash, never a zero. Names are made printable, wherever they are from.

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

/// A line with a name in front.
fn line(out: &mut String, name: &str, value: &str) {
    *out += format!("{name:<14} {}", printable(value)).trim_end();
    out.push('\n');
}

/// How long ago something was, by the controller's time.
fn ago(now: Nanos, at_ns: u64) -> String {
    format!("{} ago", span(now.0.saturating_sub(at_ns)))
}

/// Whether names need their host in front: there is more than one.
fn several<'a>(hosts: impl IntoIterator<Item = &'a str>) -> bool {
    let mut hosts = hosts.into_iter();
    let first = hosts.next();
    hosts.any(|h| Some(h) != first)
}

/// A name on a host, as commands take it.
fn named(host: &str, name: &str, several: bool) -> String {
    match several {
        true => format!("{host}/{name}"),
        false => name.into(),
    }
}

/// "1 move", "2 moves".
fn count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
