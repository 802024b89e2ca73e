//! `terrace outcomes` and `terrace volume history`: past measurements.

use manager::store::{FlowSummary, HistoryPoint};
use manager::view::OutcomeView;
use units::Nanos;

use super::{ago, named, several};
use crate::format::{LATENCY, MICROS, NONE, fixed, maybe, mib, span};
use crate::tables::{number, table, words};

/// Renders the predicted and measured effects of finished moves; `now` is the controller's time.
pub fn outcomes(outcomes: &[OutcomeView], now: Nanos) -> String {
    if outcomes.is_empty() {
        return "no finished moves yet\n".into();
    }
    let several = several(outcomes.iter().map(|o| o.host.as_str()));
    let columns = [
        number("end", ""),
        number("job", ""),
        words("volume"),
        words("from → to"),
        number("before", LATENCY),
        number("predicted", LATENCY),
        number("observed", LATENCY),
        number("error", "%"),
    ];
    let rows = outcomes.iter().map(|o| {
        vec![
            ago(now, o.ended_ns),
            o.job.to_string(),
            named(&o.host, &o.volume, several),
            format!("{} → {}", o.from_tier, o.to_tier),
            maybe(o.before_us, 0),
            maybe(o.predicted_us, 0),
            maybe(o.observed_us, 0),
            maybe(o.error.map(|e| e * 100.0), 1),
        ]
    });
    table(&columns, rows.collect())
}

/// Renders the windows of a volume, oldest first; `now` is the controller's time.
pub fn history(points: &[HistoryPoint], now: Nanos) -> String {
    if points.is_empty() {
        return "no measurements in this period\n".into();
    }
    let columns = [
        number("end", ""),
        number("window", ""),
        number("r/s", ""),
        number("w/s", ""),
        number("rMiB/s", ""),
        number("wMiB/s", ""),
        number("r_await", MICROS),
        number("w_await", MICROS),
        number("p99", MICROS),
        number("queue", ""),
        words("device"),
    ];
    let rows = points.iter().map(|p| {
        let s = &p.summary;
        let seconds = p.window_ns as f64 / 1e9;
        let idle = s.reads.ios + s.writes.ios == 0;
        let per_second = |ios: u64| fixed(ios as f64 / seconds, 0);
        let rate = |bytes: u64| fixed(mib(bytes as f64 / seconds), 1);
        vec![
            ago(now, p.at_ns),
            span(p.window_ns),
            per_second(s.reads.ios),
            per_second(s.writes.ios),
            rate(s.reads.bytes),
            rate(s.writes.bytes),
            mean(&s.reads),
            mean(&s.writes),
            if idle {
                NONE.into()
            } else {
                fixed(s.p99_ns as f64 / 1e3, 0)
            },
            fixed(s.outstanding_milli as f64 / 1e3, 1),
            s.device.clone(),
        ]
    });
    table(&columns, rows.collect())
}

/// Formats a mean latency in microseconds; a dash without requests.
fn mean(flow: &FlowSummary) -> String {
    maybe((flow.ios > 0).then_some(flow.mean_ns as f64 / 1e3), 0)
}
