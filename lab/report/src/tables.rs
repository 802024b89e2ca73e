//! Plain-text tables for a terminal or a file: no colours, units in the header, one line per row.

use std::borrow::Cow;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use sim::{GroupKind, GroupSummary, MoveRecord, RunResult};

use crate::format::{MICROS, NONE, change, fixed, gib, maybe};
use crate::run::{labels, measured_after_us};

/// One rule below the header and no other lines: the table can be pasted into an issue.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// Column of a table: name, unit and alignment.
#[derive(Debug, Clone)]
pub struct Column {
    pub(crate) name: Cow<'static, str>,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) align: Align,
}

/// Alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left.
    Words,
    /// Right.
    Number,
}

/// Returns a column of words.
pub const fn words(name: &'static str) -> Column {
    Column {
        name: Cow::Borrowed(name),
        unit: Cow::Borrowed(""),
        align: Align::Words,
    }
}

/// Returns a column of numbers in a unit, which may be empty.
pub const fn number(name: &'static str, unit: &'static str) -> Column {
    Column {
        name: Cow::Borrowed(name),
        unit: Cow::Borrowed(unit),
        align: Align::Number,
    }
}

/// Renders a header and rows of cells as text.
pub fn table(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    let units = columns.iter().any(|c| !c.unit.is_empty());
    let cell = |text: &str, align: Align| {
        Cell::new(text).set_alignment(match align {
            Align::Words => CellAlignment::Left,
            Align::Number => CellAlignment::Right,
        })
    };
    table.set_header(columns.iter().map(|c| match units {
        true => cell(&format!("{}\n{}", c.name, c.unit), c.align),
        false => cell(&c.name, c.align),
    }));
    for row in rows {
        table.add_row(
            row.iter()
                .zip(columns)
                .map(|(text, c)| cell(&printable(text), c.align)),
        );
    }
    table.trim_fmt() + "\n"
}

/// Replaces control characters and characters that set the direction of text: names come from files and hosts.
pub fn printable(text: &str) -> String {
    text.replace(units::is_hidden, "\u{fffd}")
}

const LOAD_COLUMNS: [Column; 13] = [
    number("r/s", ""),
    number("w/s", ""),
    number("rMiB/s", ""),
    number("wMiB/s", ""),
    number("r_await", MICROS),
    number("r_p99", MICROS),
    number("w_await", MICROS),
    number("w_p99", MICROS),
    number("mean", MICROS),
    number("p99", MICROS),
    number("IOPS", "vs first"),
    number("mean", "vs first"),
    number("SLO violation", "vol·s"),
];

fn load_cells(group: &GroupSummary, baseline: Option<&GroupSummary>) -> Vec<String> {
    let GroupSummary {
        reads, writes, all, ..
    } = group;
    let against = |value: f64, of: fn(&GroupSummary) -> f64| {
        baseline.map_or(NONE.into(), |b| change(of(b), value))
    };
    // Without requests the latency is unknown, not zero.
    let latency = |ios: u64, us: f64| maybe((ios > 0).then_some(us), 1);
    let mean_vs = if all.ios > 0 {
        against(all.mean_us, |b| b.all.mean_us)
    } else {
        NONE.into()
    };
    vec![
        fixed(reads.iops, 1),
        fixed(writes.iops, 1),
        fixed(reads.mib_per_s, 2),
        fixed(writes.mib_per_s, 2),
        latency(reads.ios, reads.mean_us),
        latency(reads.ios, reads.p99_us),
        latency(writes.ios, writes.mean_us),
        latency(writes.ios, writes.p99_us),
        latency(all.ios, all.mean_us),
        latency(all.ios, all.p99_us),
        against(all.iops, |b| b.all.iops),
        mean_vs,
        maybe(group.slo_violation_s, 1),
    ]
}

/// Renders a row per strategy: loads and latencies of all volumes, and moves. Changes are relative to the first run.
///
/// Two tables fit a terminal better than one: loads, latencies and violations, then moves.
pub fn summary(results: &[RunResult]) -> String {
    let Some(first) = results.first() else {
        return "no results\n".into();
    };
    let labels = labels(results);
    let mut load = Vec::new();
    let mut moving = Vec::new();
    for (i, (result, label)) in results.iter().zip(&labels).enumerate() {
        let baseline = (i > 0).then(|| first.total());
        load.push(prefixed([label], load_cells(result.total(), baseline)));
        let m = &result.moves;
        moving.push(vec![
            label.clone(),
            m.done.to_string(),
            m.not_done.to_string(),
            m.under_way.to_string(),
            fixed(gib(m.bytes), 2),
            m.volumes.to_string(),
            m.vms.to_string(),
        ]);
    }
    let move_columns = [
        words("strategy"),
        number("moves done", ""),
        number("not done", ""),
        number("under way", ""),
        number("copied", "GiB"),
        number("moved", "volumes"),
        number("moved", "VMs"),
    ];
    format!(
        "{}\n{}",
        table(&with_words(["strategy"]), load),
        table(&move_columns, moving)
    )
}

/// Renders a row per group of the kind and strategy, sorted by group. Changes are relative to the first run.
pub fn by_group(results: &[RunResult], kind: GroupKind) -> String {
    let Some(first) = results.first() else {
        return "no results\n".into();
    };
    let labels = labels(results);
    let mut rows = Vec::new();
    for name in group_names(results, kind) {
        let baseline = first.of_kind(kind).find(|g| g.name == name);
        for (i, (result, label)) in results.iter().zip(&labels).enumerate() {
            if let Some(group) = result.of_kind(kind).find(|g| g.name == name) {
                rows.push(prefixed(
                    [name, label],
                    load_cells(group, baseline.filter(|_| i > 0)),
                ));
            }
        }
    }
    if rows.is_empty() {
        return format!("no {} in these results\n", kind_name(kind));
    }
    table(&with_words([kind_name(kind), "strategy"]), rows)
}

/// Returns the names of the groups of a kind, in the order of the runs.
pub(crate) fn group_names(results: &[RunResult], kind: GroupKind) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for group in results.iter().flat_map(|r| r.of_kind(kind)) {
        if seen.insert(group.name.as_str()) {
            names.push(&group.name);
        }
    }
    names
}

pub(crate) fn kind_name(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Total => "total",
        GroupKind::Tier => "tier",
        GroupKind::Class => "class",
        GroupKind::Vm => "vm",
        GroupKind::Volume => "volume",
    }
}

fn prefixed<const N: usize>(first: [&str; N], rest: Vec<String>) -> Vec<String> {
    first.into_iter().map(String::from).chain(rest).collect()
}

fn with_words<const N: usize>(names: [&'static str; N]) -> Vec<Column> {
    names.into_iter().map(words).chain(LOAD_COLUMNS).collect()
}

/// Renders the move log: a row per move in the order of planning.
///
/// `before` is the mean latency in the facts of the decision and `predicted` its prediction for the target. `after` is the
/// measured mean latency from the move to the volume's next move or the end; it requires results over time.
pub fn moves(result: &RunResult) -> String {
    if result.move_log.is_empty() {
        return "no moves\n".into();
    }
    let columns = [
        number("planned", "s"),
        number("start", "s"),
        number("duration", "s"),
        words("volume"),
        words("from → to"),
        number("copied", "GiB"),
        words("state"),
        number("before", MICROS),
        number("predicted", MICROS),
        number("after", MICROS),
        words("reason"),
    ];
    let rows = result.move_log.iter().map(|m| {
        vec![
            fixed(m.planned_s, 1),
            maybe(m.started_s, 1),
            maybe(took_s(m), 1),
            m.volume.clone(),
            format!("{} → {}", m.from, m.to),
            fixed(gib(m.bytes), 2),
            m.state.to_string(),
            maybe(m.before_us, 1),
            maybe(m.predicted_us, 1),
            maybe(measured_after_us(result, m), 1),
            reason(m),
        ]
    });
    table(&columns, rows.collect())
}

/// Renders the events of the controller in a run; only scenarios with a controller have events.
pub fn events(result: &RunResult) -> String {
    let columns = [number("time", "s"), words("author"), words("event")];
    let rows = result.events.iter().map(|e| {
        let at_s = e.at_ns as f64 / 1e9;
        vec![fixed(at_s, 1), e.actor.clone(), e.text.clone()]
    });
    table(&columns, rows.collect())
}

/// Returns the seconds from the start of the copy to the end of the move.
pub(crate) fn took_s(record: &MoveRecord) -> Option<f64> {
    Some(record.ended_s? - record.started_s?)
}

/// Returns the reason of the plan, and the reason why the move failed or was cancelled.
pub(crate) fn reason(record: &MoveRecord) -> String {
    match &record.why_not {
        Some(why) => format!("{}; {}: {why}", record.reason, record.state),
        None => record.reason.clone(),
    }
}
