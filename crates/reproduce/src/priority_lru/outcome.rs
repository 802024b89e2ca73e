//! Everything that the reproduction found, as plain data.

use serde::Serialize;
use sim::cached::GroupResult;

use super::claims::{Beside, Claim, claims};
use super::job::{JobResult, Variant};
use super::published::{
    CUSTOMERS, GROUPS, LRU_MS, PRIORITY_GAIN, PRIORITY_MS, QOS_GAIN, REGULAR_MS,
};
use super::setup::Setup;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.priority-lru/1";

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
    /// Claims, published values beside ours.
    pub scorecard: Vec<Claim>,
    /// Table I: LRU and Priority-LRU, both with the QoS back end.
    pub table_1: Table,
    /// Table II: the regular system and the integrated one.
    pub table_2: Table,
    /// Every run, hour by hour: the numbers of figures 1 to 5.
    pub runs: Vec<JobResult>,
    /// What is not published and was assumed.
    pub assumptions: Vec<String>,
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
    /// Ours; none for groups without requests.
    pub ours_ms: Option<[f64; 2]>,
    /// Ours.
    pub improvement: Option<f64>,
}

impl Outcome {
    /// From the results of all jobs of the setup.
    pub fn new(version: &str, setup: Setup, runs: Vec<JobResult>) -> Self {
        let table_1 = table(
            &runs,
            Variant::FIRST,
            [&LRU_MS, &PRIORITY_MS],
            &PRIORITY_GAIN,
        );
        let table_2 = table(
            &runs,
            Variant::SECOND,
            [&REGULAR_MS, &PRIORITY_MS],
            &QOS_GAIN,
        );
        let requests = runs.iter().flat_map(|r| &r.result.hours);
        Self {
            schema: SCHEMA,
            version: version.into(),
            requests: requests.map(|h| h.total.requests).sum(),
            scorecard: claims(&table_1, &table_2, &beside(&runs, setup.warmup_hours())),
            table_1,
            table_2,
            runs,
            assumptions: setup.assumptions(),
            setup,
        }
    }

    /// A run.
    pub(super) fn run(&self, customer: &str, variant: Variant) -> Option<&JobResult> {
        find(&self.runs, customer, variant)
    }
}

fn find<'a>(runs: &'a [JobResult], customer: &str, variant: Variant) -> Option<&'a JobResult> {
    runs.iter()
        .find(|r| r.customer == customer && r.variant == variant)
}

/// A group of a run by its place in the tables.
pub(super) fn group(run: &JobResult, index: usize) -> &GroupResult {
    run.result.classes.get(index).unwrap_or(&run.result.total)
}

fn table(
    runs: &[JobResult],
    columns: [Variant; 2],
    printed: [&[[f64; 4]; 4]; 2],
    gains: &[[f64; 4]; 4],
) -> Table {
    let mut rows = Vec::new();
    for (c, customer) in CUSTOMERS.into_iter().enumerate() {
        for (g, name) in GROUPS.into_iter().enumerate() {
            let published_ms = [printed[0][c][g], printed[1][c][g]];
            let ours = columns.map(|v| {
                let run = find(runs, customer, v);
                run.and_then(|r| group(r, g).response_mean_ms)
            });
            let ours_ms = ours[0].zip(ours[1]).map(|(a, b)| [a, b]);
            let gain = |ms: [f64; 2]| 1.0 - ms[1] / ms[0];
            rows.push(Row {
                customer,
                group: name,
                published_ms,
                published_improvement: gains[c][g],
                ours_ms,
                improvement: ours_ms.map(gain),
            });
        }
    }
    Table { columns, rows }
}

fn beside(runs: &[JobResult], warmup: u32) -> Beside {
    let high = |variant| find(runs, CUSTOMERS[1], variant).map(|r| group(r, 0));
    let ssd = |variant| high(variant).and_then(|g| g.device_share.first().copied().flatten());
    let cached = |variant| high(variant).and_then(|g| g.cached_share);
    let total = |variant| {
        let run = find(runs, CUSTOMERS[0], variant);
        run.and_then(|r| r.result.total.response_mean_ms)
    };
    let less = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a - b);
    let integrated = find(runs, CUSTOMERS[1], Variant::QosPriorityLru);
    let hours = integrated.map(|r| {
        let counted = r.result.hours.iter().filter(|h| h.hour >= warmup);
        let means: Vec<f64> = counted
            .filter_map(|h| h.classes[0].response_mean_ms)
            .collect();
        means.iter().filter(|ms| **ms <= 2.0).count() as f64 / means.len().max(1) as f64
    });
    Beside {
        back_end_alone: total(Variant::QosLru)
            .zip(total(Variant::Regular))
            .map(|(a, b)| a / b - 1.0),
        cached_gain: less(cached(Variant::QosPriorityLru), cached(Variant::QosLru)),
        ssd_gain: less(ssd(Variant::QosPriorityLru), ssd(Variant::Regular)),
        hours_within: hours,
    }
}
