//! `terrace events`.

use manager::view::{EventKind, EventView};

use crate::format::utc;
use crate::tables::printable;

/// Renders an event in one line, without a line end: time, kind, author, text.
pub fn event_line(event: &EventView) -> String {
    let kind = match event.kind {
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
    };
    let unix_ms = i64::try_from(event.unix_ms).unwrap_or(i64::MAX);
    let at = utc(unix_ms.saturating_mul(1_000_000));
    let host = event.host.as_ref().map(|h| format!(" ({h})"));
    let text = format!(
        "{at}  {kind:<11}  {}: {}{}",
        event.actor,
        event.text,
        host.unwrap_or_default()
    );
    printable(&text)
}
