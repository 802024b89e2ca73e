//! View of all results in one reading, with queries by customer, group and variant.

use serde::Serialize;

use super::job::{ArrayKind, JobResult, Load, Variant};
use super::result::{ArrayResult, GroupResult};
use crate::claim::Value;

/// Kind of mean of response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Mean over all requests.
    Arithmetic,
    /// Mean without the slowest requests.
    Trimmed,
}

impl Mean {
    /// Both kinds.
    pub(super) const ALL: [Self; 2] = [Self::Arithmetic, Self::Trimmed];

    /// Returns the name for output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Trimmed => "trimmed",
        }
    }

    /// Returns this mean of a group, milliseconds.
    pub(super) fn of(self, group: &GroupResult) -> Option<f64> {
        match self {
            Self::Arithmetic => group.response_mean_ms,
            Self::Trimmed => group.response_trimmed_ms,
        }
    }
}

/// Results in one reading.
pub(super) struct View<'a> {
    runs: &'a [JobResult],
    pub(super) load: Load,
    pub(super) mean: Mean,
}

/// Results of a customer under one seed.
#[derive(Clone, Copy)]
pub(super) struct OfSeed<'a> {
    job: &'a JobResult,
    pub(super) mean: Mean,
}

impl<'a> View<'a> {
    pub(super) fn new(runs: &'a [JobResult], load: Load, mean: Mean) -> Self {
        Self { runs, load, mean }
    }

    /// Returns the results of a customer on the disk array, one per seed.
    pub(super) fn seeds(&self, customer: &str) -> Vec<OfSeed<'a>> {
        let wanted = |r: &&JobResult| {
            r.array == ArrayKind::Disks && r.customer == customer && r.load == self.load
        };
        let of = |job| OfSeed {
            job,
            mean: self.mean,
        };
        self.runs.iter().filter(wanted).map(of).collect()
    }

    /// Returns mean and interval over the seeds of a value of a customer.
    pub(super) fn over(
        &self,
        customer: &str,
        of: impl Fn(&OfSeed<'a>) -> Option<f64>,
    ) -> Option<Value> {
        Value::over(&self.seeds(customer), of)
    }

    /// Returns the relative improvement of the second variant over the first one, over the seeds. The interval is computed for the logarithm
    /// of their ratio.
    pub(super) fn improvement(
        &self,
        customer: &str,
        [before, after]: [Variant; 2],
        group: usize,
    ) -> Option<Value> {
        let times = |s: &OfSeed<'a>| Some(s.ms(before, group)? / s.ms(after, group)?);
        let times = Value::of_ratios(&self.seeds(customer), times)?;
        Some(times.map(|t| 1.0 - 1.0 / t))
    }
}

impl<'a> OfSeed<'a> {
    /// Returns the result of a variant.
    pub(super) fn result(&self, variant: Variant) -> Option<&'a ArrayResult> {
        let mut runs = self.job.runs.iter();
        runs.find(|r| r.variant == variant).map(|r| &r.result)
    }

    /// Returns a group of a variant by its index in the tables.
    pub(super) fn group(&self, variant: Variant, index: usize) -> Option<&'a GroupResult> {
        self.result(variant).map(|r| group(r, index))
    }

    /// Returns the mean response time of a group, milliseconds.
    pub(super) fn ms(&self, variant: Variant, group: usize) -> Option<f64> {
        self.mean.of(self.group(variant, group)?)
    }
}

/// Returns a group by its index in the tables: a class, else the total.
pub(super) fn group(result: &ArrayResult, index: usize) -> &GroupResult {
    result.classes.get(index).unwrap_or(&result.total)
}
