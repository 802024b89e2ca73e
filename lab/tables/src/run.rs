//! Tables of runs: each row begins with scenario, strategy and seed, so tables of several runs can be concatenated.

use arrow_array::RecordBatch;
use model::{Outcome, Report, VolumeReport};
use sim::{
    DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary, MoveRecord,
    RemedyRecord, RunResult,
};

use crate::columns::Columns;

/// Layout of the tables of runs.
pub const RUN_TABLES_SCHEMA: &str = "terrace.run.tables/1";

/// Maker of a table of runs.
pub type RunTable = fn(&[RunResult]) -> RecordBatch;

/// Tables of runs by name.
pub const RUN_TABLES: [(&str, RunTable); 6] = [
    ("groups", groups),
    ("windows", windows),
    ("moves", moves),
    ("decisions", decisions),
    ("remedies", remedies),
    ("final_tiers", final_tiers),
];

/// Rows of a table, each with the number of its run.
struct Rows<'a, T> {
    runs: &'a [RunResult],
    rows: Vec<(usize, T)>,
}

impl<'a, T> Rows<'a, T> {
    fn of<I: IntoIterator<Item = T>>(
        runs: &'a [RunResult],
        rows_of: impl Fn(&'a RunResult) -> I,
    ) -> Self {
        let of_run = |(i, run)| rows_of(run).into_iter().map(move |row| (i, row));
        Self {
            runs,
            rows: runs.iter().enumerate().flat_map(of_run).collect(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().map(|(_, row)| row)
    }

    /// Returns the columns that name the run of each row.
    fn columns(&self) -> Columns {
        let rows = || self.rows.iter().map(|(run, _)| &self.runs[*run].manifest);
        Columns::default()
            .text("scenario", rows().map(|m| Some(&m.scenario)))
            .text("strategy", rows().map(|m| Some(&m.strategy)))
            .u64("seed", "", rows().map(|m| Some(m.seed)))
    }
}

fn kind_name(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Total => "total",
        GroupKind::Tier => "tier",
        GroupKind::Class => "class",
        GroupKind::Vm => "vm",
        GroupKind::Volume => "volume",
    }
}

/// Summary of the runs by group: total, tiers, classes, VMs and volumes.
pub fn groups(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| &run.groups);
    let rows = || of.iter();
    let mut columns = of
        .columns()
        .text("kind", rows().map(|g| Some(kind_name(g.kind))))
        .text("name", rows().map(|g| Some(&g.name)))
        .f64(
            "slo_violation_s",
            "vol·s",
            rows().map(|g| g.slo_violation_s),
        )
        .f64("slo_excess_s", "vol·s", rows().map(|g| g.slo_excess_s));
    type Of = fn(&GroupSummary) -> DirectionSummary;
    let directions: [(&str, Of); 3] = [
        ("all", |g| g.all),
        ("read", |g| g.reads),
        ("write", |g| g.writes),
    ];
    for (name, of) in directions {
        // Without requests there is no latency.
        let latency = |take: fn(&DirectionSummary) -> f64| {
            rows().map(move |g| Some(of(g)).filter(|d| d.ios > 0).map(|d| take(&d)))
        };
        let column = |part: &str| format!("{name}_{part}");
        columns = columns
            .u64(&column("ios"), "", rows().map(|g| Some(of(g).ios)))
            .u64(&column("bytes"), "B", rows().map(|g| Some(of(g).bytes)))
            .f64(&column("iops"), "1/s", rows().map(|g| Some(of(g).iops)))
            .f64(
                &column("mib_per_s"),
                "MiB/s",
                rows().map(|g| Some(of(g).mib_per_s)),
            )
            .f64(&column("mean_us"), "us", latency(|d| d.mean_us))
            .f64(&column("p50_us"), "us", latency(|d| d.p50_us))
            .f64(&column("p95_us"), "us", latency(|d| d.p95_us))
            .f64(&column("p99_us"), "us", latency(|d| d.p99_us))
            .f64(&column("p999_us"), "us", latency(|d| d.p999_us));
    }
    columns.finish(RUN_TABLES_SCHEMA)
}

/// Group and window of a row of [`windows`].
struct Window<'a> {
    group: &'a GroupSeries,
    number: usize,
    window_s: f64,
}

/// Results over time: a row per group and window. Empty for runs without series.
pub fn windows(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| {
        let series = run.series.iter();
        series.flat_map(|series| {
            let window_s = series.window_s;
            series.groups.iter().flat_map(move |group| {
                (0..group.reads.iops.len()).map(move |number| Window {
                    group,
                    number,
                    window_s,
                })
            })
        })
    });
    let rows = || of.iter();
    let violating = |w: &Window<'_>| w.group.violating.get(w.number).copied().unwrap_or(0);
    let mut columns = of
        .columns()
        .text("kind", rows().map(|w| Some(kind_name(w.group.kind))))
        .text("name", rows().map(|w| Some(&w.group.name)))
        .f64(
            "start_s",
            "s",
            rows().map(|w| Some(w.number as f64 * w.window_s)),
        )
        .f64(
            "end_s",
            "s",
            rows().map(|w| Some((w.number + 1) as f64 * w.window_s)),
        )
        .u64(
            "violating_volumes",
            "",
            rows().map(|w| Some(u64::from(violating(w)))),
        );
    type Of = fn(&GroupSeries) -> &DirectionSeries;
    let directions: [(&str, Of); 2] = [("read", |g| &g.reads), ("write", |g| &g.writes)];
    for (name, of) in directions {
        let at = |take: fn(&DirectionSeries) -> &Vec<f64>| {
            rows().map(move |w| take(of(w.group)).get(w.number).copied())
        };
        // Without requests there is no latency.
        let latency = |take: fn(&DirectionSeries) -> &Vec<f64>| {
            rows().map(move |w| {
                let series = of(w.group);
                let busy = series.iops.get(w.number).is_some_and(|iops| *iops > 0.0);
                take(series).get(w.number).copied().filter(|_| busy)
            })
        };
        let column = |part: &str| format!("{name}_{part}");
        columns = columns
            .f64(&column("iops"), "1/s", at(|d| &d.iops))
            .f64(&column("mib_per_s"), "MiB/s", at(|d| &d.mib_per_s))
            .f64(&column("mean_us"), "us", latency(|d| &d.mean_us))
            .f64(&column("p50_us"), "us", latency(|d| &d.p50_us))
            .f64(&column("p95_us"), "us", latency(|d| &d.p95_us))
            .f64(&column("p99_us"), "us", latency(|d| &d.p99_us))
            .f64(&column("p999_us"), "us", latency(|d| &d.p999_us));
    }
    columns.finish(RUN_TABLES_SCHEMA)
}

/// Moves, with reason, prediction and outcome.
pub fn moves(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| &run.move_log);
    let rows = || of.iter().copied();
    let text = |take: fn(&MoveRecord) -> &String| rows().map(move |m| Some(take(m)));
    of.columns()
        .text("volume", text(|m| &m.volume))
        .text("vm", text(|m| &m.vm))
        .text("from_tier", text(|m| &m.from))
        .text("to_tier", text(|m| &m.to))
        .text("from_device", text(|m| &m.devices.0))
        .text("to_device", text(|m| &m.devices.1))
        .f64("planned_s", "s", rows().map(|m| Some(m.planned_s)))
        .f64("started_s", "s", rows().map(|m| m.started_s))
        .f64("ended_s", "s", rows().map(|m| m.ended_s))
        .text("state", rows().map(|m| Some(m.state.to_string())))
        .text("error", rows().map(|m| m.why_not.as_ref()))
        .text("reason", text(|m| &m.reason))
        .flag("is_remedy", rows().map(|m| m.is_remedy))
        .u64("extents", "", rows().map(|m| m.extents.map(u64::from)))
        .u64("bytes", "B", rows().map(|m| Some(m.bytes)))
        .f64("before_us", "us", rows().map(|m| m.before_us))
        .f64("predicted_us", "us", rows().map(|m| m.predicted_us))
        .f64(
            "predicted_low_us",
            "us",
            rows().map(|m| Some(m.range_us?.0)),
        )
        .f64(
            "predicted_high_us",
            "us",
            rows().map(|m| Some(m.range_us?.1)),
        )
        .f64("observed_us", "us", rows().map(|m| m.observed_us))
        .finish(RUN_TABLES_SCHEMA)
}

/// Decisions: a row per decision and volume; `outcome` is stay, move or held, and `reason` has the reason. Empty for runs without decisions.
pub fn decisions(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| {
        let reports = run.decisions.as_deref().unwrap_or_default().iter();
        reports.flat_map(|r: &Report| r.volumes.iter().map(move |v| (r, v)))
    });
    let rows = || of.iter();
    let outcome = |v: &VolumeReport| match v.outcome {
        Outcome::Stay => "stay",
        Outcome::Move { .. } => "move",
        Outcome::Held { .. } => "held",
    };
    let wanted = |v: &VolumeReport| match &v.outcome {
        Outcome::Stay => None,
        Outcome::Move { to, .. } => Some(to.clone()),
        Outcome::Held { wanted, .. } => Some(wanted.clone()),
    };
    let reason = |v: &VolumeReport| match &v.outcome {
        Outcome::Stay => None,
        Outcome::Move { reason, .. } => Some(reason.clone()),
        Outcome::Held { by, .. } => Some(by.to_string()),
    };
    of.columns()
        .f64("at_s", "s", rows().map(|r| Some(r.0.at.as_secs_f64())))
        .u64("epoch", "", rows().map(|r| Some(r.0.epoch)))
        .text("volume", rows().map(|r| Some(&r.1.volume)))
        .text("tier", rows().map(|r| Some(&r.1.tier)))
        .text("outcome", rows().map(|r| Some(outcome(r.1))))
        .text("wanted_tier", rows().map(|r| wanted(r.1)))
        .text("reason", rows().map(|r| reason(r.1)))
        .finish(RUN_TABLES_SCHEMA)
}

/// Remedies for violations of objectives: a row per violation, with the remedy that was applied, or the reason why each was rejected.
pub fn remedies(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| {
        run.response.iter().flat_map(|response| &response.remedies)
    });
    let rows = || of.iter().copied();
    let refused = |r: &RemedyRecord| {
        let refused = r.refused.iter();
        let words = refused.map(|o| format!("{}: {}", o.remedy.name(), o.why));
        Some(words.collect::<Vec<_>>().join("; ")).filter(|w| !w.is_empty())
    };
    of.columns()
        .f64("at_s", "s", rows().map(|r| Some(r.at_s)))
        .text("volume", rows().map(|r| Some(&r.volume)))
        .text("remedy", rows().map(|r| Some(r.remedy?.name())))
        .text("applied_to", rows().map(|r| r.to.as_ref()))
        .f64("effect_after_s", "s", rows().map(|r| r.effect_after_s))
        .f64("lost_iops", "1/s", rows().map(|r| r.lost_per_s))
        .f64("price_s", "s", rows().map(|r| r.price_s))
        .text("rejected", rows().map(refused))
        .finish(RUN_TABLES_SCHEMA)
}

/// Tier of each volume at the end.
pub fn final_tiers(runs: &[RunResult]) -> RecordBatch {
    let of = Rows::of(runs, |run| &run.final_tiers);
    let rows = || of.iter();
    of.columns()
        .text("volume", rows().map(|r| Some(&r.0)))
        .text("tier", rows().map(|r| Some(&r.1)))
        .finish(RUN_TABLES_SCHEMA)
}
