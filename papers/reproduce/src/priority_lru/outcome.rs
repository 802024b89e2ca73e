//! All results of the reproduction as plain data.

use serde::Serialize;
use sim::TRIMMED;

use super::claims::claims;
use super::job::{ArrayKind, JobResult, Load, Variant};
use super::published::{
    CUSTOMERS, GROUPS, LRU_MS, PRIORITY_GAIN, PRIORITY_MS, QOS_GAIN, REGULAR_MS,
};
use super::setup::Setup;
use super::view::{Mean, View};
use crate::claim::{Reading, Scorecard, Value};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.priority-lru/3";

/// Outcome of the reproduction.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Setup of the runs.
    pub setup: Setup,
    /// Number of simulated requests.
    pub requests: u64,
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// Both tables of the paper in each reading.
    pub tables: Vec<Tables>,
    /// Runs of all seeds. Those of the first seed have values by hour, the numbers of figures 1 to 5; those of other seeds have totals only.
    pub runs: Vec<JobResult>,
    /// Assumptions in place of unpublished details.
    pub assumptions: Vec<String>,
}

/// Tables of the paper in one reading.
#[derive(Debug, Clone, Serialize)]
pub struct Tables {
    /// Id of the reading.
    pub reading: String,
    /// Table I: LRU and Priority-LRU, both with the QoS back end.
    pub table_1: Table,
    /// Table II: the regular system and the integrated one.
    pub table_2: Table,
}

/// Table of the paper.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Variants of the two columns.
    pub columns: [Variant; 2],
    /// Rows by customer and group.
    pub rows: Vec<Row>,
}

/// Row of a table: mean response times of both columns, milliseconds, and the relative improvement of the second over the first.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the customer.
    pub customer: &'static str,
    /// Group: a class, or `total`.
    pub group: &'static str,
    /// Published mean response times, milliseconds.
    pub published_ms: [f64; 2],
    /// Published column "% Improvement", as a ratio.
    pub published_improvement: f64,
    /// Our mean response times over the seeds, milliseconds; `None` if a seed has no requests in the group.
    pub ours_ms: [Option<Value>; 2],
    /// Our improvement, as a ratio.
    pub improvement: Option<Value>,
}

impl Outcome {
    /// Evaluates the results of all jobs of the setup.
    pub fn new(version: &str, setup: Setup, mut runs: Vec<JobResult>) -> Self {
        let loads = setup.loads.iter();
        let views: Vec<View<'_>> = loads
            .flat_map(|load| Mean::ALL.map(|mean| View::new(&runs, *load, mean)))
            .collect();
        let found: Vec<_> = views
            .iter()
            .map(|v| (reading(v.load, v.mean), claims(v, setup.warmup_hours())))
            .collect();
        let tables = views.iter().map(|v| Tables {
            reading: reading(v.load, v.mean).id,
            table_1: table(v, Variant::FIRST, [&LRU_MS, &PRIORITY_MS], &PRIORITY_GAIN),
            table_2: table(v, Variant::SECOND, [&REGULAR_MS, &PRIORITY_MS], &QOS_GAIN),
        });
        let tables = tables.collect();
        let all = runs.iter().flat_map(|r| &r.runs);
        let requests = all.flat_map(|r| &r.result.hours).map(|h| h.total.requests);
        let requests = requests.sum();
        let first = setup.seeds[0];
        for run in runs.iter_mut().filter(|r| r.seed != first) {
            run.runs.iter_mut().for_each(|r| r.result.hours.clear());
        }
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests,
            scorecard: Scorecard::new(found),
            tables,
            runs,
            assumptions: setup.assumptions(),
            setup,
        }
    }

    /// Returns the result of a customer's array with the first seed.
    pub(super) fn first(&self, array: ArrayKind, customer: &str, load: Load) -> Option<&JobResult> {
        let seed = self.setup.seeds[0];
        self.runs.iter().find(|r| {
            (r.seed, r.array, r.customer.as_str(), r.load) == (seed, array, customer, load)
        })
    }
}

fn reading(load: Load, mean: Mean) -> Reading {
    let load_says = match load {
        Load::AsDrawn => {
            "Customers as busy as the busiest half hour permits; the response times of their classes are not adjusted"
        }
        Load::Matched => "Loads per class, matched to the mean response times under LRU in table I",
    };
    let mean_says = match mean {
        Mean::Arithmetic => "means over all requests".into(),
        Mean::Trimmed => format!(
            "means without the slowest {:.0} % of the requests, which a short overload would dominate",
            100.0 * TRIMMED
        ),
    };
    Reading {
        id: format!("{}, {}", load.name(), mean.name()),
        says: format!("{load_says}; {mean_says}"),
        choices: vec![("load", load.name().into()), ("mean", mean.name().into())],
    }
}

fn table(
    view: &View<'_>,
    columns: [Variant; 2],
    printed: [&[[f64; 4]; 4]; 2],
    gains: &[[f64; 4]; 4],
) -> Table {
    let mut rows = Vec::new();
    for (c, customer) in CUSTOMERS.into_iter().enumerate() {
        for (g, group) in GROUPS.into_iter().enumerate() {
            rows.push(Row {
                customer,
                group,
                published_ms: [printed[0][c][g], printed[1][c][g]],
                published_improvement: gains[c][g],
                ours_ms: columns.map(|v| view.over(customer, |s| s.ms(v, g))),
                improvement: view.improvement(customer, columns, g),
            });
        }
    }
    Table { columns, rows }
}
