//! Comma-separated values in long form: one row per group and direction, units in the names, empty cells for unknown values.

use sim::{DirectionSummary, GroupSummary, RunResult};

use crate::run::{labels, measured_after_us};
use crate::tables::{kind_name, took_s};

const GROUPS_HEADER: &str = "strategy,kind,name,direction,ios,bytes,iops,mib_per_s,latency_mean_us,latency_p50_us,\
latency_p95_us,latency_p99_us,latency_p999_us,slo_violation_s";

const MOVES_HEADER: &str = "strategy,volume,vm,from,to,planned_s,started_s,ended_s,took_s,state,bytes,\
latency_before_us,latency_predicted_us,latency_after_us,reason,why_not";

/// Renders all groups of all runs: total, tiers, classes, VMs and volumes, each with reads, writes and both.
///
/// `slo_violation_s` is only in rows of both directions, because it must not be summed twice. Latencies are empty without
/// requests.
pub fn csv(results: &[RunResult]) -> String {
    let mut out = String::from(GROUPS_HEADER);
    out.push('\n');
    for (result, label) in results.iter().zip(labels(results)) {
        for group in &result.groups {
            for (direction, summary) in [
                ("read", &group.reads),
                ("write", &group.writes),
                ("all", &group.all),
            ] {
                row(&mut out, group_cells(&label, group, direction, summary));
            }
        }
    }
    out
}

fn group_cells(
    label: &str,
    group: &GroupSummary,
    direction: &str,
    s: &DirectionSummary,
) -> Vec<String> {
    let latency = |us: f64| number(Some(us).filter(|_| s.ios > 0));
    vec![
        label.into(),
        kind_name(group.kind).into(),
        group.name.clone(),
        direction.into(),
        s.ios.to_string(),
        s.bytes.to_string(),
        number(Some(s.iops)),
        number(Some(s.mib_per_s)),
        latency(s.mean_us),
        latency(s.p50_us),
        latency(s.p95_us),
        latency(s.p99_us),
        latency(s.p999_us),
        number(group.slo_violation_s.filter(|_| direction == "all")),
    ]
}

/// Renders all moves of all runs.
pub fn moves_csv(results: &[RunResult]) -> String {
    let mut out = String::from(MOVES_HEADER);
    out.push('\n');
    for (result, label) in results.iter().zip(labels(results)) {
        for m in &result.move_log {
            let cells = vec![
                label.clone(),
                m.volume.clone(),
                m.vm.clone(),
                m.from.clone(),
                m.to.clone(),
                number(Some(m.planned_s)),
                number(m.started_s),
                number(m.ended_s),
                number(took_s(m)),
                m.state.to_string(),
                m.bytes.to_string(),
                number(m.before_us),
                number(m.predicted_us),
                number(measured_after_us(result, m)),
                m.reason.clone(),
                m.why_not.clone().unwrap_or_default(),
            ];
            row(&mut out, cells);
        }
    }
    out
}

pub(crate) fn number(value: Option<f64>) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(String::new, |v| v.to_string())
}

pub(crate) fn row(out: &mut String, cells: Vec<String>) {
    for (i, cell) in cells.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            out.push('"');
            out.push_str(&cell.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(cell);
        }
    }
    out.push('\n');
}
