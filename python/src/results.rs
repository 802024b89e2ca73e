//! Result of one run as tables.

use std::path::PathBuf;

use model::{Outcome, Report, VolumeReport};
use pyo3::prelude::*;
use sim::{
    DirectionSeries, DirectionSummary, GroupKind, GroupSeries, GroupSummary, RemedyRecord,
    RunResult,
};

use crate::error::{error, other};
use crate::json;
use crate::table::{Columns, Table};

/// Layout of the tables, besides that of the run.
const TABLES_SCHEMA: &str = "terrace.run.tables/1";

/// Result of a run.
#[pyclass(frozen, name = "Result", module = "terrace")]
pub struct RunTables {
    result: RunResult,
    requests: Option<Py<Table>>,
}

/// Tables of a result, in the order of files.
const TABLES: [&str; 6] = [
    "groups",
    "windows",
    "moves",
    "decisions",
    "remedies",
    "final_tiers",
];

impl RunTables {
    /// Tables of this result.
    pub fn new(py: Python<'_>, result: RunResult, requests: Option<Table>) -> PyResult<Self> {
        let requests = requests.map(|table| Py::new(py, table)).transpose()?;
        Ok(Self { result, requests })
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

#[pymethods]
impl RunTables {
    /// Name of the scenario.
    #[getter]
    fn scenario(&self) -> &str {
        &self.result.manifest.scenario
    }

    /// Name of the strategy.
    #[getter]
    fn strategy(&self) -> &str {
        &self.result.manifest.strategy
    }

    /// Seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.result.manifest.seed
    }

    /// Summary of the run by group: total, tiers, classes, VMs and volumes.
    #[getter]
    fn groups(&self) -> PyResult<Table> {
        let rows = || self.result.groups.iter();
        let mut columns = Columns::default()
            .text("kind", rows().map(|g| Some(kind_name(g.kind))))
            .text("name", rows().map(|g| Some(&g.name)))
            .f64("slo_violation_s", "s", rows().map(|g| g.slo_violation_s))
            .f64("slo_excess_s", "s", rows().map(|g| g.slo_excess_s));
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
            columns = columns
                .u64(&format!("{name}_ios"), "", rows().map(|g| Some(of(g).ios)))
                .u64(
                    &format!("{name}_bytes"),
                    "B",
                    rows().map(|g| Some(of(g).bytes)),
                )
                .f64(
                    &format!("{name}_iops"),
                    "1/s",
                    rows().map(|g| Some(of(g).iops)),
                )
                .f64(
                    &format!("{name}_mib_per_s"),
                    "MiB/s",
                    rows().map(|g| Some(of(g).mib_per_s)),
                )
                .f64(&format!("{name}_mean_us"), "us", latency(|d| d.mean_us))
                .f64(&format!("{name}_p50_us"), "us", latency(|d| d.p50_us))
                .f64(&format!("{name}_p95_us"), "us", latency(|d| d.p95_us))
                .f64(&format!("{name}_p99_us"), "us", latency(|d| d.p99_us))
                .f64(&format!("{name}_p999_us"), "us", latency(|d| d.p999_us));
        }
        columns.finish(TABLES_SCHEMA)
    }

    /// Results over time: a row per group and window.
    #[getter]
    fn windows(&self) -> PyResult<Table> {
        let (groups, window_s) = match &self.result.series {
            Some(series) => (series.groups.as_slice(), series.window_s),
            None => (&[][..], 0.0),
        };
        let rows = || {
            groups
                .iter()
                .flat_map(|g| (0..g.reads.iops.len()).map(move |w| (g, w)))
        };
        let mut columns = Columns::default()
            .text("kind", rows().map(|r| Some(kind_name(r.0.kind))))
            .text("name", rows().map(|r| Some(&r.0.name)))
            .f64("start_s", "s", rows().map(|r| Some(r.1 as f64 * window_s)))
            .f64(
                "end_s",
                "s",
                rows().map(|r| Some((r.1 + 1) as f64 * window_s)),
            )
            .u64(
                "violating_volumes",
                "",
                rows().map(|r| Some(u64::from(r.0.violating.get(r.1).copied().unwrap_or(0)))),
            );
        type Of = fn(&GroupSeries) -> &DirectionSeries;
        let directions: [(&str, Of); 2] = [("read", |g| &g.reads), ("write", |g| &g.writes)];
        for (name, of) in directions {
            let at = |take: fn(&DirectionSeries) -> &Vec<f64>| {
                rows().map(move |(g, w)| take(of(g)).get(w).copied())
            };
            // Without requests there is no latency.
            let latency = |take: fn(&DirectionSeries) -> &Vec<f64>| {
                rows().map(move |(g, w)| {
                    let busy = of(g).iops.get(w).is_some_and(|iops| *iops > 0.0);
                    take(of(g)).get(w).copied().filter(|_| busy)
                })
            };
            columns = columns
                .f64(&format!("{name}_iops"), "1/s", at(|d| &d.iops))
                .f64(&format!("{name}_mib_per_s"), "MiB/s", at(|d| &d.mib_per_s))
                .f64(&format!("{name}_mean_us"), "us", latency(|d| &d.mean_us))
                .f64(&format!("{name}_p50_us"), "us", latency(|d| &d.p50_us))
                .f64(&format!("{name}_p95_us"), "us", latency(|d| &d.p95_us))
                .f64(&format!("{name}_p99_us"), "us", latency(|d| &d.p99_us))
                .f64(&format!("{name}_p999_us"), "us", latency(|d| &d.p999_us));
        }
        columns.finish(TABLES_SCHEMA)
    }

    /// Moves, with reason, prediction and outcome.
    #[getter]
    fn moves(&self) -> PyResult<Table> {
        let rows = || self.result.move_log.iter();
        Columns::default()
            .text("volume", rows().map(|m| Some(&m.volume)))
            .text("vm", rows().map(|m| Some(&m.vm)))
            .text("from_tier", rows().map(|m| Some(&m.from)))
            .text("to_tier", rows().map(|m| Some(&m.to)))
            .text("from_device", rows().map(|m| Some(&m.devices.0)))
            .text("to_device", rows().map(|m| Some(&m.devices.1)))
            .f64("planned_s", "s", rows().map(|m| Some(m.planned_s)))
            .f64("started_s", "s", rows().map(|m| m.started_s))
            .f64("ended_s", "s", rows().map(|m| m.ended_s))
            .text("state", rows().map(|m| Some(m.state.to_string())))
            .text("error", rows().map(|m| m.why_not.as_ref()))
            .text("reason", rows().map(|m| Some(&m.reason)))
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
            .finish(TABLES_SCHEMA)
    }

    /// Decisions: a row per decision and volume; `outcome` is stay, move or held, and `reason` says why.
    #[getter]
    fn decisions(&self) -> PyResult<Table> {
        let reports = self.result.decisions.as_deref().unwrap_or_default();
        let rows = || {
            reports
                .iter()
                .flat_map(|r: &Report| r.volumes.iter().map(move |v| (r, v)))
        };
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
        Columns::default()
            .f64("at_s", "s", rows().map(|r| Some(r.0.at.as_secs_f64())))
            .u64("epoch", "", rows().map(|r| Some(r.0.epoch)))
            .text("volume", rows().map(|r| Some(&r.1.volume)))
            .text("tier", rows().map(|r| Some(&r.1.tier)))
            .text("outcome", rows().map(|r| Some(outcome(r.1))))
            .text("wanted_tier", rows().map(|r| wanted(r.1)))
            .text("reason", rows().map(|r| reason(r.1)))
            .finish(TABLES_SCHEMA)
    }

    /// Remedies for violations of objectives: a row per violation that was answered or could not be.
    #[getter]
    fn remedies(&self) -> PyResult<Table> {
        let response = self.result.response.as_ref();
        let rows = || response.into_iter().flat_map(|r| &r.remedies);
        let refused = |r: &RemedyRecord| {
            let refused = r.refused.iter();
            let words = refused.map(|o| format!("{}: {}", o.remedy.name(), o.why));
            Some(words.collect::<Vec<_>>().join("; ")).filter(|w| !w.is_empty())
        };
        Columns::default()
            .f64("at_s", "s", rows().map(|r| Some(r.at_s)))
            .text("volume", rows().map(|r| Some(&r.volume)))
            .text("remedy", rows().map(|r| Some(r.remedy?.name())))
            .text("applied_to", rows().map(|r| r.to.as_ref()))
            .f64("effect_after_s", "s", rows().map(|r| r.effect_after_s))
            .f64("lost_iops", "1/s", rows().map(|r| r.lost_per_s))
            .f64("price_s", "s", rows().map(|r| r.price_s))
            .text("rejected", rows().map(refused))
            .finish(TABLES_SCHEMA)
    }

    /// Single requests, if the run kept them: `simulate(requests=True)`.
    #[getter]
    fn requests(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        let kept = self.requests.as_ref().map(|table| table.clone_ref(py));
        kept.ok_or_else(|| error("the run kept no requests: simulate(..., requests=True)"))
    }

    /// Writes a Parquet file per table to a directory, which is created. Needs pyarrow.
    fn to_parquet(slf: &Bound<'_, Self>, directory: PathBuf) -> PyResult<()> {
        let mut names = TABLES.to_vec();
        if slf.get().requests.is_some() {
            names.push("requests");
        }
        let files = slf.py().import("terrace._files")?;
        files.call_method1("write_tables", (slf, names, directory))?;
        Ok(())
    }

    /// Tier of each volume at the end.
    #[getter]
    fn final_tiers(&self) -> PyResult<Table> {
        let rows = || self.result.final_tiers.iter();
        Columns::default()
            .text("volume", rows().map(|r| Some(&r.0)))
            .text("tier", rows().map(|r| Some(&r.1)))
            .finish(TABLES_SCHEMA)
    }

    /// The whole result as plain data, as `terrace sim run --full -o json` gives it for one run.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = serde_json::to_value(&self.result).map_err(other)?;
        json::to_python(py, &value)
    }

    fn __str__(&self) -> String {
        report::summary(std::slice::from_ref(&self.result))
    }

    fn __repr__(&self) -> String {
        let manifest = &self.result.manifest;
        format!(
            "<terrace.Result of {} under {}, seed {}>",
            manifest.scenario, manifest.strategy, manifest.seed
        )
    }
}
