//! Everything that the reproduction found, as plain data.

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

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// What was run.
    pub setup: Setup,
    /// Requests that were simulated.
    pub requests: u64,
    /// Readings and claims.
    #[serde(flatten)]
    pub scorecard: Scorecard,
    /// Both tables of the paper in each reading.
    pub tables: Vec<Tables>,
    /// Runs of the first seed, hour by hour: the numbers of figures 1 to 5. Of the other seeds totals only.
    pub runs: Vec<JobResult>,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
}

/// Both tables.
#[derive(Debug, Clone, Serialize)]
pub struct Tables {
    /// In which reading.
    pub reading: String,
    /// Table I: LRU and Priority-LRU, both with the QoS back end.
    pub table_1: Table,
    /// Table II: the regular system and the integrated one.
    pub table_2: Table,
}

/// One of the paper's tables.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What its columns are.
    pub columns: [Variant; 2],
    /// Customer by customer, group by group.
    pub rows: Vec<Row>,
}

/// One row: mean response times, milliseconds, and what the second is better by, 0..1.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The customer.
    pub customer: &'static str,
    /// The group.
    pub group: &'static str,
    /// As printed.
    pub published_ms: [f64; 2],
    /// Its column "% Improvement", as printed.
    pub published_improvement: f64,
    /// Ours, over the seeds; none where a seed has no requests in the group.
    pub ours_ms: [Option<Value>; 2],
    /// Ours.
    pub improvement: Option<Value>,
}

impl Outcome {
    /// From the results of all jobs of the setup.
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

    /// What came of a customer's array with the first seed.
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
