//! Results of all jobs, with access by reading, condition, share of the fast tier and method.

use trace::conditions::Construction;

use super::choice::Choice;
use super::job::{CellScore, JobResult, Purpose};
use super::method::Method;
use crate::claim::Value;

/// Results of all jobs.
#[derive(Debug, Clone)]
pub struct Grid {
    results: Vec<JobResult>,
}

/// Results in one reading.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    grid: &'a Grid,
    choice: Choice,
}

/// Cell of the paper's grid, for one seed.
#[derive(Clone, Copy)]
pub(crate) struct GridCell<'a> {
    pub(crate) result: &'a JobResult,
    share: u8,
    movement_kib: u64,
}

impl Grid {
    /// Creates the grid from the results of all jobs of a setup.
    pub fn new(results: Vec<JobResult>) -> Self {
        Self { results }
    }

    /// Returns the number of simulated requests.
    pub fn requests(&self) -> u64 {
        self.results.iter().map(|r| r.requests).sum()
    }

    /// Returns the single result of a purpose.
    pub(crate) fn job(&self, purpose: &Purpose) -> &JobResult {
        let found = self.results.iter().find(|r| r.purpose == *purpose);
        found.expect("the setup has such a job")
    }

    /// Returns the results in one reading.
    pub(crate) fn view(&self, choice: Choice) -> View<'_> {
        View { grid: self, choice }
    }
}

impl<'a> View<'a> {
    /// Returns true if a condition was run.
    pub(crate) fn has(&self, condition: &str) -> bool {
        let mut results = self.grid.results.iter();
        results.any(|r| r.condition == condition)
    }

    /// Returns the results of a condition at a share of the fast tier, by seed.
    pub(crate) fn at(&self, condition: &str, share: u8) -> Vec<GridCell<'a>> {
        let purpose = Purpose::of(condition, self.choice.construction);
        let results = self.grid.results.iter();
        let found: Vec<GridCell<'a>> = results
            .filter(|r| r.purpose == purpose && r.condition == condition)
            .map(|result| GridCell {
                result,
                share,
                movement_kib: self.choice.movement_kib,
            })
            .collect();
        assert!(!found.is_empty(), "no condition {condition} in the grid");
        found
    }
}

impl Purpose {
    /// Returns the purpose of a condition in the grid of a construction. Condition A is the same in all.
    pub(crate) fn of(condition: &str, construction: Construction) -> Self {
        match condition.contains('-') {
            true => Self::Grid(construction),
            false => Self::Grid(Construction::Jitter),
        }
    }
}

impl GridCell<'_> {
    /// Returns the same seed at another share of the fast tier.
    pub(crate) fn at_share(&self, share: u8) -> Self {
        Self { share, ..*self }
    }

    pub(crate) fn cell(&self, method: Method) -> &CellScore {
        let cells = self.result.cells.iter();
        let mut found = cells.filter(|c| {
            c.fast_share_percent == self.share
                && c.movement_kib == self.movement_kib
                && c.method == method
        });
        found.next().expect("every method is in the grid")
    }

    pub(crate) fn total(&self, method: Method) -> f64 {
        self.cell(method).score.total
    }

    /// Returns the best of the selected methods by a measure.
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

    /// Returns the best of the paper's methods, with parameters chosen in hindsight.
    pub(crate) fn best_fixed(&self) -> (Method, f64) {
        self.best(|m| m.is_fixed(), total)
    }

    /// Returns best proposed over best existing total performance.
    pub(crate) fn gain(&self) -> f64 {
        self.best_proposed().1 / self.best_existing().1
    }

    /// Returns best proposed over best existing storage performance.
    pub(crate) fn storage_gain(&self) -> f64 {
        self.best(proposed, storage).1 / self.best(existing, storage).1
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

/// Returns a quantity over the seeds.
pub(crate) fn quantity<T>(seeds: &[T], of: impl Fn(&T) -> f64) -> Value {
    Value::over(seeds, |t| Some(of(t))).expect("there are seeds, and every one has a value")
}

/// Returns a ratio over the seeds.
pub(crate) fn ratio<T>(seeds: &[T], of: impl Fn(&T) -> f64) -> Value {
    Value::of_ratios(seeds, |t| Some(of(t))).expect("there are seeds, and ratios are positive")
}
