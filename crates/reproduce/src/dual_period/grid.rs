//! Everything that was run, to be asked by condition, share of the fast tier and method.

use super::job::{CellScore, JobResult, Purpose};
use super::method::Method;
use crate::Interval;

/// What all jobs gave.
#[derive(Debug, Clone)]
pub struct Grid {
    results: Vec<JobResult>,
}

/// A cell of the paper's grid, for one seed.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    result: &'a JobResult,
    share: u8,
}

impl Grid {
    /// From the results of all jobs of a setup.
    pub fn new(results: Vec<JobResult>) -> Self {
        Self { results }
    }

    /// Requests that results rest on.
    pub fn requests(&self) -> u64 {
        self.results.iter().map(|r| r.requests).sum()
    }

    /// The one result of a purpose that has one.
    pub(crate) fn job(&self, purpose: &Purpose) -> &JobResult {
        let found = self.results.iter().find(|r| r.purpose == *purpose);
        found.expect("the setup has such a job")
    }

    /// A condition at a share of the fast tier, seed by seed.
    pub(crate) fn at(&self, condition: &str, share: u8) -> Vec<At<'_>> {
        let results = self.results.iter();
        let found: Vec<At<'_>> = results
            .filter(|r| r.purpose == Purpose::Grid && r.condition == condition)
            .map(|result| At { result, share })
            .collect();
        assert!(!found.is_empty(), "no condition {condition} in the grid");
        found
    }
}

impl At<'_> {
    pub(crate) fn cell(&self, method: Method) -> &CellScore {
        let cells = self.result.cells.iter();
        let mut found = cells.filter(|c| c.fast_share_percent == self.share && c.method == method);
        found.next().expect("every method is in the grid")
    }

    pub(crate) fn total(&self, method: Method) -> f64 {
        self.cell(method).score.total
    }

    /// The best of some methods by some measure.
    pub(crate) fn best(&self, of: fn(&Method) -> bool, by: fn(&CellScore) -> f64) -> (Method, f64) {
        let methods = Method::all().into_iter().filter(of);
        let scored = methods.map(|m| (m, by(self.cell(m))));
        scored
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .expect("there are some")
    }

    pub(crate) fn best_existing(&self) -> (Method, f64) {
        self.best(existing, total)
    }

    pub(crate) fn best_proposed(&self) -> (Method, f64) {
        self.best(proposed, total)
    }

    /// The best of the paper's methods, with parameters that are chosen afterwards.
    pub(crate) fn best_fixed(&self) -> (Method, f64) {
        self.best(|m| m.is_fixed(), total)
    }
}

pub(crate) fn existing(method: &Method) -> bool {
    matches!(method, Method::Existing(_))
}

pub(crate) fn proposed(method: &Method) -> bool {
    matches!(method, Method::Proposed(_))
}

pub(crate) fn total(cell: &CellScore) -> f64 {
    cell.score.total
}

pub(crate) fn storage(cell: &CellScore) -> f64 {
    cell.score.storage
}

/// A value with its interval where there are several seeds, and without where there is one.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Value {
    /// Mean over seeds; of ratios the geometric one.
    pub mean: f64,
    /// Its interval, where there are several seeds.
    pub interval: Option<Interval>,
}

impl Value {
    /// Of a plain quantity.
    pub(crate) fn of(seeds: &[At<'_>], of: impl Fn(&At<'_>) -> f64) -> Self {
        let values: Vec<f64> = seeds.iter().map(of).collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            interval: Interval::of(&values),
        }
    }

    /// Of a ratio: the interval is that of its logarithms.
    pub(crate) fn of_ratio(seeds: &[At<'_>], of: impl Fn(&At<'_>) -> f64) -> Self {
        let logs = Self::of(seeds, |a| libm::log(of(a)));
        let back = |v: f64| libm::exp(v);
        Self {
            mean: back(logs.mean),
            interval: logs.interval.map(|i| Interval {
                mean: back(i.mean),
                ci95_low: back(i.ci95_low),
                ci95_high: back(i.ci95_high),
                n: i.n,
            }),
        }
    }
}
