//! Tables of `terrace sim ssd`.

use flash::drive::{Drive, DriveReport};
use flash::host::{Outcome, TenantOutcome};
use flash::model::sizing::Feasibility;
use report::{number, table, words};
use tables::{Columns, RecordBatch};

/// Name and version of the layout of the JSON and of the tables.
pub const SCHEMA: &str = "terrace.sim.ssd/1";

/// Returns the tables by name: tenants, their bandwidth over time, and the drive. `years` is the lifetime at this rate.
pub fn tables(
    outcome: &Outcome,
    report: &DriveReport,
    years: Option<f64>,
) -> Vec<(&'static str, RecordBatch)> {
    let rows = || outcome.tenants.iter();
    let number = |take: fn(&TenantOutcome) -> f64| rows().map(move |t| Some(take(t)));
    let pages = |take: fn(&TenantOutcome) -> u64| rows().map(move |t| Some(take(t)));
    let relative = outcome.proportionality.iter();
    let tenants = Columns::default()
        .text("tenant", rows().map(|t| Some(&t.name)))
        .text("load", rows().map(|t| Some(&t.load)))
        .f64("weight", "", number(|t| t.weight))
        .f64("present_s", "s", number(|t| t.seconds))
        .f64("iops", "1/s", number(|t| t.iops))
        .f64("bytes_per_s", "B/s", number(|t| t.bytes_per_s))
        .f64("relative_bandwidth", "", relative.map(|r| Some(*r)))
        .f64("read_share", "", number(|t| t.reads))
        .f64("mean_us", "us", number(|t| t.latency.mean_us))
        .f64("p50_us", "us", number(|t| t.latency.p50_us))
        .f64("p95_us", "us", number(|t| t.latency.p95_us))
        .f64("p99_us", "us", number(|t| t.latency.p99_us))
        .f64("p999_us", "us", number(|t| t.latency.p999_us))
        .f64("device_share", "", number(|t| t.device_share))
        .f64("write_amplification", "", rows().map(|t| t.waf))
        .f64(
            "victim_utilization",
            "",
            rows().map(|t| t.victim_utilization),
        )
        .u64("moved_own", "pages", pages(|t| t.moved_own))
        .u64("moved_foreign", "pages", pages(|t| t.moved_foreign))
        .u64("moved_by_others", "pages", pages(|t| t.moved_by_others))
        .f64("spare_share", "", rows().map(|t| t.spare_share))
        .f64("objective_met", "", rows().map(|t| t.met));
    let windows: Vec<(&str, f64, f64)> = rows()
        .flat_map(|t| {
            let series = t.series.iter().enumerate();
            series.map(|(i, rate)| (t.name.as_str(), i as f64 * outcome.window_s, *rate))
        })
        .collect();
    let windows = Columns::default()
        .text("tenant", windows.iter().map(|w| Some(w.0)))
        .f64("start_s", "s", windows.iter().map(|w| Some(w.1)))
        .f64("bytes_per_s", "B/s", windows.iter().map(|w| Some(w.2)));
    let one = |value: f64| std::iter::once(Some(value));
    let count = |value: u64| std::iter::once(Some(value));
    let drive = Columns::default()
        .f64("seconds", "s", one(outcome.seconds))
        .f64("write_amplification", "", std::iter::once(report.waf))
        .u64("host_bytes", "B", count(report.host_bytes.0))
        .u64("flash_bytes", "B", count(report.flash_bytes.0))
        .u64("erases", "", count(report.erases))
        .f64("drive_writes", "", one(report.drive_writes))
        .f64(
            "victim_utilization",
            "",
            std::iter::once(report.victim_utilization),
        )
        .f64("lifetime_years", "years", std::iter::once(years))
        .f64(
            "proportionality_error",
            "",
            one(outcome.proportionality_error),
        );
    vec![
        ("tenants", tenants.finish(SCHEMA)),
        ("windows", windows.finish(SCHEMA)),
        ("drive", drive.finish(SCHEMA)),
    ]
}

/// All that is printed.
pub fn text(
    drive: &Drive,
    outcome: &Outcome,
    report: &DriveReport,
    years: Option<f64>,
    feasibility: Option<&Feasibility>,
) -> String {
    let mut out = format!("{}\n\n{}\n", rates(outcome), collection(outcome));
    let maybe = |x: Option<f64>, digits: usize| x.map_or("-".into(), |x| format!("{x:.digits$}"));
    let config = drive.config();
    out += &format!(
        "\ndrive: {} visible, {:.1} % spare, {} units; write amplification {}, victims {} valid\n",
        drive.capacity(),
        100.0 * config.ftl.spare_share,
        config.units(),
        maybe(report.waf, 3),
        report.victim_utilization.map_or("-".into(), percent),
    );
    out += &format!(
        "wear: {:.3} drive writes and {} erasures in {:.0} s; blocks erased {} to {} times, {:.1} on average, ageing with it",
        report.drive_writes,
        report.erases,
        outcome.seconds,
        report.wear.least,
        report.wear.most,
        report.wear.mean
    );
    out += &match years {
        Some(years) => format!(
            "; at this rate {} cycles last {years:.2} years\n",
            config.endurance
        ),
        None => "\n".into(),
    };
    out += &format!(
        "proportionality error against weights: {:.1} %\n",
        100.0 * outcome.proportionality_error
    );
    if outcome.handed_over > 0 {
        out += &format!(
            "{} erase blocks changed their owner, which took {:.2} s of unit time\n",
            outcome.handed_over, outcome.hand_over_s
        );
    }
    if let Some(found) = feasibility {
        out += &format!("{}\n", found.in_words());
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn rates(outcome: &Outcome) -> String {
    let columns = [
        words("tenant"),
        words("load"),
        number("weight", ""),
        number("IOPS", "/s"),
        number("bandwidth", "MiB/s"),
        number("relative", ""),
        number("mean", "ms"),
        number("p50", "ms"),
        number("p95", "ms"),
        number("p99", "ms"),
        number("p99.9", "ms"),
        number("device time", "%"),
        number("objective", "%"),
    ];
    let ms = |us: f64| format!("{:.2}", us / 1e3);
    let rows = outcome.tenants.iter().zip(&outcome.proportionality);
    let rows = rows.map(|(t, relative)| {
        vec![
            report::printable(&t.name),
            t.load.clone(),
            format!("{}", t.weight),
            format!("{:.1}", t.iops),
            format!("{:.2}", t.bytes_per_s / f64::from(1 << 20)),
            format!("{relative:.2}"),
            ms(t.latency.mean_us),
            ms(t.latency.p50_us),
            ms(t.latency.p95_us),
            ms(t.latency.p99_us),
            ms(t.latency.p999_us),
            format!("{:.1}", 100.0 * t.device_share),
            t.met.map_or("-".into(), |m| format!("{:.0}", 100.0 * m)),
        ]
    });
    table(&columns, rows.collect())
}

fn collection(outcome: &Outcome) -> String {
    let columns = [
        words("tenant"),
        number("WAF", ""),
        number("victims valid", "%"),
        number("moved own", "pages"),
        number("moved foreign", "pages"),
        number("own", "%"),
        number("moved by others", "pages"),
        number("spare of its own", "% of flash"),
    ];
    let rows = outcome.tenants.iter().map(|t| {
        let moved = t.moved_own + t.moved_foreign;
        let maybe =
            |x: Option<f64>, digits: usize| x.map_or("-".into(), |x| format!("{x:.digits$}"));
        vec![
            report::printable(&t.name),
            maybe(t.waf, 3),
            maybe(t.victim_utilization.map(|u| 100.0 * u), 1),
            t.moved_own.to_string(),
            t.moved_foreign.to_string(),
            maybe(
                (moved > 0).then(|| 100.0 * t.moved_own as f64 / moved as f64),
                1,
            ),
            t.moved_by_others.to_string(),
            maybe(t.spare_share.map(|s| 100.0 * s), 2),
        ]
    });
    table(&columns, rows.collect())
}
