//! Metrics of a cell: names with their units, and functions that compute them from a result.

use std::fmt;

use cache::PageCounts;
use serde::{Serialize, Serializer};

use super::{SweepError, known};
use crate::{
    CacheSummary, DirectionSummary, GroupKind, GroupSummary, Model, ResponseSummary, RunResult,
    WearSummary,
};

/// Default metrics.
pub const DEFAULT_METRICS: [&str; 8] = [
    "latency_mean_us",
    "latency_p50_us",
    "latency_p99_us",
    "iops",
    "mib_per_s",
    "slo_violation_s",
    "moves_done",
    "moved_bytes",
];

/// Metric of a whole run, or of one group (`class[gold].latency_p99_us`).
#[derive(Debug, Clone)]
pub struct Metric {
    name: String,
    group: Option<(MetricSubject, String)>,
    kind: &'static Kind,
}

/// Kind of subject of a metric, other than the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricSubject {
    Group(GroupKind),
    /// Tenant of SSDs, on all devices that have it.
    Tenant,
}

/// Source of a metric's value.
#[derive(Debug)]
enum Reads {
    /// Value of a group.
    Group(fn(&GroupSummary) -> Option<f64>),
    /// Value of a run. Groups have no such value.
    Run(fn(&RunResult) -> Option<f64>),
    /// Value of the wear of all devices, or of a tenant on them.
    Wear(
        fn(&WearSummary) -> Option<f64>,
        fn(&WearSummary, &str) -> Option<f64>,
    ),
}

#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Unit of the value; empty for numbers without one.
    unit: &'static str,
    /// Title of the column in a table, and its unit.
    title: (&'static str, &'static str),
    /// Factor from the table's unit to the metric's unit.
    scale: f64,
    /// Decimal places in the table.
    digits: usize,
    of: Reads,
}

const fn kind(
    name: &'static str,
    unit: &'static str,
    title: (&'static str, &'static str),
    digits: usize,
    of: Reads,
) -> Kind {
    Kind {
        name,
        unit,
        title,
        scale: 1.0,
        digits,
        of,
    }
}

/// Returns a latency metric. It has no value without requests.
const fn latency(
    name: &'static str,
    title: &'static str,
    of: fn(&GroupSummary) -> Option<f64>,
) -> Kind {
    kind(name, "us", (title, "µs"), 1, Reads::Group(of))
}

fn of(d: &DirectionSummary, value: f64) -> Option<f64> {
    (d.ios > 0).then_some(value)
}

const KINDS: &[Kind] = &[
    latency("latency_mean_us", "mean", |g| of(&g.all, g.all.mean_us)),
    latency("latency_p50_us", "p50", |g| of(&g.all, g.all.p50_us)),
    latency("latency_p95_us", "p95", |g| of(&g.all, g.all.p95_us)),
    latency("latency_p99_us", "p99", |g| of(&g.all, g.all.p99_us)),
    latency("latency_p999_us", "p99.9", |g| of(&g.all, g.all.p999_us)),
    latency("latency_read_mean_us", "r_await", |g| {
        of(&g.reads, g.reads.mean_us)
    }),
    latency("latency_read_p50_us", "r_p50", |g| {
        of(&g.reads, g.reads.p50_us)
    }),
    latency("latency_read_p95_us", "r_p95", |g| {
        of(&g.reads, g.reads.p95_us)
    }),
    latency("latency_read_p99_us", "r_p99", |g| {
        of(&g.reads, g.reads.p99_us)
    }),
    latency("latency_read_p999_us", "r_p99.9", |g| {
        of(&g.reads, g.reads.p999_us)
    }),
    latency("latency_write_mean_us", "w_await", |g| {
        of(&g.writes, g.writes.mean_us)
    }),
    latency("latency_write_p50_us", "w_p50", |g| {
        of(&g.writes, g.writes.p50_us)
    }),
    latency("latency_write_p95_us", "w_p95", |g| {
        of(&g.writes, g.writes.p95_us)
    }),
    latency("latency_write_p99_us", "w_p99", |g| {
        of(&g.writes, g.writes.p99_us)
    }),
    latency("latency_write_p999_us", "w_p99.9", |g| {
        of(&g.writes, g.writes.p999_us)
    }),
    kind(
        "iops",
        "1/s",
        ("IOPS", ""),
        1,
        Reads::Group(|g| Some(g.all.iops)),
    ),
    kind(
        "iops_read",
        "1/s",
        ("r/s", ""),
        1,
        Reads::Group(|g| Some(g.reads.iops)),
    ),
    kind(
        "iops_write",
        "1/s",
        ("w/s", ""),
        1,
        Reads::Group(|g| Some(g.writes.iops)),
    ),
    kind(
        "mib_per_s",
        "MiB/s",
        ("MiB/s", ""),
        2,
        Reads::Group(|g| Some(g.all.mib_per_s)),
    ),
    kind(
        "mib_per_s_read",
        "MiB/s",
        ("rMiB/s", ""),
        2,
        Reads::Group(|g| Some(g.reads.mib_per_s)),
    ),
    kind(
        "mib_per_s_write",
        "MiB/s",
        ("wMiB/s", ""),
        2,
        Reads::Group(|g| Some(g.writes.mib_per_s)),
    ),
    kind(
        "slo_violation_s",
        "vol·s",
        ("SLO violation", "vol·s"),
        1,
        Reads::Group(|g| g.slo_violation_s),
    ),
    kind(
        "moves_done",
        "",
        ("moves", "done"),
        0,
        Reads::Run(|r| Some(r.moves.done as f64)),
    ),
    kind(
        "moves_not_done",
        "",
        ("moves", "not done"),
        0,
        Reads::Run(|r| Some(r.moves.not_done as f64)),
    ),
    kind(
        "moved_volumes",
        "",
        ("moved", "volumes"),
        0,
        Reads::Run(|r| Some(r.moves.volumes as f64)),
    ),
    Kind {
        scale: (1u64 << 30) as f64,
        ..kind(
            "moved_bytes",
            "B",
            ("copied", "GiB"),
            2,
            Reads::Run(|r| Some(r.moves.bytes as f64)),
        )
    },
    kind(
        "waf",
        "",
        ("WAF", ""),
        2,
        Reads::Wear(WearSummary::waf, WearSummary::waf_of),
    ),
    Kind {
        scale: (1u64 << 30) as f64,
        ..kind(
            "programmed_bytes",
            "B",
            ("programmed", "GiB"),
            2,
            Reads::Wear(
                |wear| Some(wear.programmed_bytes() as f64),
                |wear, tenant| Some(wear.programmed_bytes_of(tenant) as f64),
            ),
        )
    },
    kind(
        "life_years",
        "years",
        ("lasts", "years"),
        2,
        Reads::Run(|r| r.wear.as_ref()?.life_years()),
    ),
    Kind {
        scale: 0.01,
        ..kind(
            "cache_read_hit_ratio",
            "",
            ("hits", "% of reads"),
            1,
            Reads::Run(|r| hit_ratio(r.cache.as_ref()?)),
        )
    },
    kind(
        "remedies",
        "",
        ("remedies", "taken"),
        0,
        Reads::Run(|r| {
            let remedies = r.response.as_ref()?.remedies.iter();
            Some(remedies.filter(|a| a.remedy.is_some()).count() as f64)
        }),
    ),
    kind(
        "rates_violated_s",
        "vol·s",
        ("rate violation", "vol·s"),
        1,
        Reads::Run(|r| rates_violated_s(r.response.as_ref()?)),
    ),
];

/// Returns the share of page reads that hit, over all partitions of the cache; `None` without reads.
fn hit_ratio(cache: &CacheSummary) -> Option<f64> {
    let sum = |of: fn(&PageCounts) -> u64| cache.parts.iter().map(|p| of(&p.counts)).sum::<u64>();
    let (hits, misses) = (sum(|c| c.read_hits), sum(|c| c.read_misses));
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

/// Returns the time in which guaranteed rates were violated; `None` without guaranteed rates.
fn rates_violated_s(response: &ResponseSummary) -> Option<f64> {
    let rates = &response.rates;
    (!rates.is_empty()).then(|| rates.iter().map(|r| r.violated_s).sum())
}

/// Returns the names of all metrics of the whole run.
pub fn metric_names() -> impl Iterator<Item = &'static str> + Clone {
    KINDS.iter().map(|k| k.name)
}

impl Metric {
    /// Parses the name of a metric, with an optional prefix `tier[NAME].`, `class[NAME].`, `vm[NAME].` or
    /// `volume[NAME].`, or `tenant[NAME].` for SSDs.
    ///
    /// # Errors
    /// [`SweepError`] for unknown names, and for metrics that groups do not have.
    pub fn parse(name: &str) -> Result<Self, SweepError> {
        let name = name.trim();
        let (group, of) = match name.rsplit_once("].") {
            None => (None, name),
            Some((group, of)) => {
                let (kind, group) = group
                    .split_once('[')
                    .ok_or_else(|| SweepError::MetricForm(name.into()))?;
                let kinds = [
                    ("tier", MetricSubject::Group(GroupKind::Tier)),
                    ("class", MetricSubject::Group(GroupKind::Class)),
                    ("vm", MetricSubject::Group(GroupKind::Vm)),
                    ("volume", MetricSubject::Group(GroupKind::Volume)),
                    ("tenant", MetricSubject::Tenant),
                ];
                let what = format!("group of metric \"{name}\"");
                let i = known(&what, kind, kinds.iter().map(|k| k.0))?;
                (Some((kinds[i].1, group.to_owned())), of)
            }
        };
        let kind = &KINDS[known("metric", of, metric_names())?];
        let why = match (group.as_ref().map(|g| g.0), &kind.of) {
            (None, _)
            | (Some(MetricSubject::Group(_)), Reads::Group(_))
            | (Some(MetricSubject::Tenant), Reads::Wear(..)) => None,
            (Some(MetricSubject::Tenant), _) => Some("is not available for tenants"),
            (Some(MetricSubject::Group(_)), Reads::Run(_)) => {
                Some("is only available for whole runs")
            }
            (Some(MetricSubject::Group(_)), Reads::Wear(..)) => {
                Some("is only available for whole runs and for tenants")
            }
        };
        if let Some(why) = why {
            let (metric, kind) = (name.into(), of.into());
            return Err(SweepError::NotOfGroup { metric, kind, why });
        }
        Ok(Self {
            name: name.into(),
            group,
            kind,
        })
    }

    /// Checks that the model has the group of the metric.
    ///
    /// # Errors
    /// [`SweepError::Unknown`].
    pub fn check(&self, model: &Model) -> Result<(), SweepError> {
        let Some((kind, group)) = &self.group else {
            return Ok(());
        };
        let kind = match kind {
            MetricSubject::Group(kind) => kind,
            MetricSubject::Tenant => {
                let what = format!("metric \"{}\"", self.name);
                return known(&what, group, model.tenants().into_iter()).map(|_| ());
            }
        };
        let names: Vec<&str> = match kind {
            GroupKind::Total => vec![],
            GroupKind::Tier => model
                .topology
                .tiers
                .iter()
                .map(|t| t.name.as_str())
                .collect(),
            GroupKind::Class => model.classes.iter().map(|c| c.name.as_str()).collect(),
            GroupKind::Vm => model.vms.iter().map(String::as_str).collect(),
            GroupKind::Volume => model.volumes.iter().map(|v| v.name.as_str()).collect(),
        };
        known(
            &format!("metric \"{}\"", self.name),
            group,
            names.into_iter(),
        )
        .map(|_| ())
    }

    /// Returns the value for a run; `None` if there is no value, such as a latency without requests.
    pub(super) fn of_run(&self, result: &RunResult) -> Option<f64> {
        match (&self.kind.of, &self.group) {
            (Reads::Run(value), _) => value(result),
            (Reads::Wear(value, _), None) => value(result.wear.as_ref()?),
            (Reads::Wear(_, value), Some((_, name))) => value(result.wear.as_ref()?, name),
            (Reads::Group(value), Some((MetricSubject::Group(kind), name))) => {
                value(result.of_kind(*kind).find(|g| g.name == *name)?)
            }
            (Reads::Group(value), _) => value(result.total()),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit of the value; empty for numbers without one. `vol·s` are seconds summed over volumes.
    pub fn unit(&self) -> &'static str {
        self.kind.unit
    }

    /// Returns the name of the group as given; `None` for the whole run.
    pub fn group(&self) -> Option<&str> {
        self.group.as_ref().map(|g| g.1.as_str())
    }

    /// Returns title and unit of the column in tables.
    pub fn title(&self) -> (&'static str, &'static str) {
        self.kind.title
    }

    /// Returns a value in the table's unit, and the number of decimal places to show.
    pub fn shown(&self, value: f64) -> (f64, usize) {
        (value / self.kind.scale, self.kind.digits)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
