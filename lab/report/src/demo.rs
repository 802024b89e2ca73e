//! Tables at the end of a demonstration.

use std::collections::BTreeMap;

use manager::view::{JobView, OutcomeView};
use serde::Serialize;
use units::Nanos;

use crate::tables::{number, table, words};

/// Results of a service class.
#[derive(Debug, Clone, Serialize)]
pub struct DemoClass<'a> {
    pub class: &'a str,
    /// For each period: requests per second, mean and 99th percentile in microseconds.
    pub stretches: &'a [(f64, f64, f64)],
    /// SLO violation, volume-seconds.
    pub violated_s: u64,
    /// Windows after placements have had time to adapt.
    pub adapted: DemoAdapted<'a>,
    /// Number of requests.
    pub ios: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
}

/// Windows of a class that start after placements have had time to adapt to the start or to the change.
#[derive(Debug, Clone, Serialize)]
pub struct DemoAdapted<'a> {
    /// Number of windows of all volumes of the class.
    pub windows: u64,
    /// Number of these windows that violated the objective.
    pub violated: u64,
    /// Share of these windows that violated the objective; null without windows.
    pub violated_share: Option<f64>,
    /// Share of these windows in which the control of the volume violated the objective of the class.
    pub control_share: Option<f64>,
    /// Share of violating windows of the volumes minus that of their controls.
    pub above_control: Option<f64>,
    /// Number of violating windows by volume.
    pub volumes: BTreeMap<&'a str, u64>,
}

/// Results of a demonstration.
#[derive(Debug, Clone, Serialize)]
pub struct DemoTable<'a> {
    pub strategy: &'a str,
    /// Length of the load, seconds.
    pub seconds: u64,
    /// Monitor and migration epoch.
    pub epochs: (Nanos, Nanos),
    /// Time that placements have to adapt after the start and after the change.
    pub adapts: Nanos,
    /// Names of the periods.
    pub stretches: [&'static str; 4],
    /// By class, the most important first.
    pub classes: Vec<DemoClass<'a>>,
    /// Number of moves.
    pub moves: usize,
    /// Moves in order.
    pub jobs: &'a [JobView],
    /// Predicted and measured effects of moves, in order.
    pub outcomes: &'a [OutcomeView],
    /// Number of calibration sessions.
    pub calibrations: u64,
}

fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

fn optional_ms(us: Option<f64>) -> String {
    us.map_or_else(|| "-".into(), ms)
}

fn mib(bytes: u64) -> String {
    format!("{}", bytes >> 20)
}

/// Renders all results of one run.
pub fn demo(result: &DemoTable<'_>) -> String {
    let mut out = format!(
        "\n{}: {} s of load; windows of 1s, epochs scaled down to {} (monitor) and {} (migration)\n\n",
        result.strategy, result.seconds, result.epochs.0, result.epochs.1
    );
    out.push_str(&classes(result));
    out.push('\n');
    out.push_str(&adapted(result));
    out.push('\n');
    out.push_str(&moves(result));
    out.push('\n');
    out.push_str(&predictions(result));
    out
}

fn classes(result: &DemoTable<'_>) -> String {
    let mut columns = vec![words("class"), words("metric")];
    columns.extend(result.stretches.iter().map(|s| number(s, "")));
    columns.extend([number("whole run", ""), number("SLO violation", "vol·s")]);
    let mut rows = Vec::new();
    for class in &result.classes {
        let line = |name: &str, values: Vec<String>, all: String, violated: String| {
            let mut row = vec![name.to_string()];
            row.extend(values);
            row.extend([all, violated]);
            row
        };
        let of =
            |f: fn(&(f64, f64, f64)) -> String| class.stretches.iter().map(f).collect::<Vec<_>>();
        let iops = class.ios as f64 / result.seconds as f64;
        let lines = [
            line(
                "IOPS",
                of(|s| format!("{:.0}", s.0)),
                format!("{iops:.0}"),
                class.violated_s.to_string(),
            ),
            line(
                "mean, ms",
                of(|s| ms(s.1)),
                ms(class.mean_us),
                String::new(),
            ),
            line("p99, ms", of(|s| ms(s.2)), ms(class.p99_us), String::new()),
        ];
        for (i, line) in lines.into_iter().enumerate() {
            let mut row = vec![if i == 0 {
                class.class.to_string()
            } else {
                String::new()
            }];
            row.extend(line);
            rows.push(row);
        }
    }
    let errors: u64 = result.classes.iter().map(|c| c.errors).sum();
    let mut out = table(&columns, rows);
    if errors > 0 {
        out.push_str(&format!("{errors} requests failed\n"));
    }
    out.push_str(
        "begin and changed are the first tenth of each half; settled and end are the last tenth of each half\n",
    );
    out
}

/// Renders violations after placements have had time to adapt.
fn adapted(result: &DemoTable<'_>) -> String {
    let columns = [
        words("class"),
        number("windows", ""),
        number("violations", "windows"),
        number("violations", "%"),
        number("control", "%"),
        number("above control", "%"),
        words("violating windows by volume"),
    ];
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".into(), |s| format!("{:.1}", s * 100.0));
    let rows = result.classes.iter().map(|class| {
        let of = &class.adapted;
        let volumes = of.volumes.iter().filter(|(_, violated)| **violated > 0);
        let volumes: Vec<String> = volumes
            .map(|(v, violated)| format!("{v} {violated}"))
            .collect();
        vec![
            class.class.to_string(),
            of.windows.to_string(),
            of.violated.to_string(),
            percent(of.violated_share),
            percent(of.control_share),
            percent(of.above_control),
            volumes.join(", "),
        ]
    });
    let table = table(&columns, rows.collect());
    format!(
        "violations of objectives, without the first two migration epochs ({}) after the start and after the change; {} moves\n\n{table}\
         control: a volume on a separate device with the same use of flushes; its violations are caused by noise on the host\n",
        result.adapts, result.moves
    )
}

fn moves(result: &DemoTable<'_>) -> String {
    if result.jobs.is_empty() {
        return format!("no moves, {} calibration sessions\n", result.calibrations);
    }
    let columns = [
        words("volume"),
        words("source tier"),
        words("target tier"),
        number("copied data", "MiB"),
        number("duration", "s"),
        words("state"),
        words("reason"),
    ];
    let rows = result.jobs.iter().map(|j| {
        let took = j
            .started_ns
            .zip(j.ended_ns)
            .map(|(a, b)| b.saturating_sub(a) as f64 / 1e9);
        vec![
            j.volume.clone(),
            j.from_tier.clone(),
            j.to_tier.clone(),
            mib(j.copied_bytes),
            took.map_or_else(|| "-".into(), |s| format!("{s:.1}")),
            j.state.to_string(),
            j.why.clone().unwrap_or_else(|| j.reason.clone()),
        ]
    });
    let mut out = table(&columns, rows.collect());
    let copied: u64 = result.jobs.iter().map(|j| j.copied_bytes).sum();
    out.push_str(&format!(
        "{} moves, {} MiB copied, {} calibration sessions\n",
        result.jobs.len(),
        mib(copied),
        result.calibrations
    ));
    out
}

/// Renders predicted and measured latencies. Errors are given for moves whose volume had the same load before and after.
fn predictions(result: &DemoTable<'_>) -> String {
    let known: Vec<&OutcomeView> = result
        .outcomes
        .iter()
        .filter(|o| o.predicted_us.is_some() && o.observed_us.is_some())
        .collect();
    if known.is_empty() {
        return "no prediction has a measured outcome\n".into();
    }
    let columns = [
        words("volume"),
        words("source tier"),
        words("target tier"),
        number("mean before", "ms"),
        number("predicted mean", "ms"),
        number("measured mean", "ms"),
        number("prediction error", "%"),
    ];
    let rows = known.iter().map(|o| {
        vec![
            o.volume.clone(),
            o.from_tier.clone(),
            o.to_tier.clone(),
            optional_ms(o.before_us),
            optional_ms(o.predicted_us),
            optional_ms(o.observed_us),
            o.error
                .map_or_else(|| "-".into(), |e| format!("{:+.0}", e * 100.0)),
        ]
    });
    let mut out = table(&columns, rows.collect());
    let mut errors: Vec<f64> = known.iter().filter_map(|o| o.error.map(f64::abs)).collect();
    errors.sort_by(f64::total_cmp);
    let within = errors.iter().filter(|e| **e <= 0.2).count();
    if !errors.is_empty() {
        out.push_str(&format!(
            "error: (measured − predicted) ÷ measured; median {:.0} %, {within} of {} within 20 %\n",
            errors[errors.len() / 2] * 100.0,
            errors.len()
        ));
    }
    out
}

/// Renders runs of the same load under several strategies.
pub fn demo_compared(results: &[DemoTable<'_>]) -> String {
    let columns = [
        words("strategy"),
        words("class"),
        number("IOPS", ""),
        number("mean", "ms"),
        number("p99", "ms"),
        number("SLO violation", "vol·s"),
        number("moves", ""),
        number("copied data", "MiB"),
    ];
    let mut rows = Vec::new();
    for result in results {
        let copied: u64 = result.jobs.iter().map(|j| j.copied_bytes).sum();
        for (i, class) in result.classes.iter().enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            rows.push(vec![
                first(result.strategy.to_string()),
                class.class.to_string(),
                format!("{:.0}", class.ios as f64 / result.seconds as f64),
                ms(class.mean_us),
                ms(class.p99_us),
                class.violated_s.to_string(),
                first(result.jobs.len().to_string()),
                first(mib(copied)),
            ]);
        }
    }
    format!(
        "\nthe same load under each strategy, one run each\n\n{}",
        table(&columns, rows)
    )
}
