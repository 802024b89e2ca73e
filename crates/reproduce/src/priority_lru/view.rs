//! All results in one reading, to be asked by customer, group and way to manage the array.

use serde::Serialize;

use super::job::{ArrayKind, JobResult, Load, Variant};
use super::result::{ArrayResult, GroupResult};
use crate::claim::Value;

/// Which mean a response time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Over all requests.
    Arithmetic,
    /// Without the slowest.
    Trimmed,
}

impl Mean {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Arithmetic, Self::Trimmed];

    /// As printed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Trimmed => "trimmed",
        }
    }

    /// Of a group, milliseconds.
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

/// One seed of a customer.
#[derive(Clone, Copy)]
pub(super) struct OfSeed<'a> {
    job: &'a JobResult,
    pub(super) mean: Mean,
}

impl<'a> View<'a> {
    pub(super) fn new(runs: &'a [JobResult], load: Load, mean: Mean) -> Self {
        Self { runs, load, mean }
    }

    /// A customer, seed by seed.
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

    /// Something of a customer over the seeds.
    pub(super) fn over(
        &self,
        customer: &str,
        of: impl Fn(&OfSeed<'a>) -> Option<f64>,
    ) -> Option<Value> {
        Value::over(&self.seeds(customer), of)
    }

    /// What the second way is better by than the first, 0..1, over the seeds: the interval is that of the logarithm of their ratio.
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
    /// What came of a way to manage it.
    pub(super) fn result(&self, variant: Variant) -> Option<&'a ArrayResult> {
        let mut runs = self.job.runs.iter();
        runs.find(|r| r.variant == variant).map(|r| &r.result)
    }

    /// A group by its place in the tables.
    pub(super) fn group(&self, variant: Variant, index: usize) -> Option<&'a GroupResult> {
        self.result(variant).map(|r| group(r, index))
    }

    /// Its mean response time.
    pub(super) fn ms(&self, variant: Variant, group: usize) -> Option<f64> {
        self.mean.of(self.group(variant, group)?)
    }
}

/// A group by its place in the tables.
pub(super) fn group(result: &ArrayResult, index: usize) -> &GroupResult {
    result.classes.get(index).unwrap_or(&result.total)
}
