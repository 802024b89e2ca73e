//! One load, and everything that is evaluated on it in one pass.

use config::scenario::{Aggregation, MovementReading};
use planner::extents::Terms;
use serde::Serialize;
use sim::counting::{Cell, CellSpec, Counted, Formula, Score, evaluate};
use trace::conditions::{Condition, condition};
use units::{Bytes, Nanos};

use super::method::Method;
use super::setup::FAST_SHARES;

const HOUR: Nanos = Nanos::from_secs(3600);
const HOURS_PER_DAY: u32 = 24;
/// Sizes of a movement I/O of the sensitivity analysis.
pub(crate) const MOVEMENT_KIB: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// The size that everything else is reported for.
pub(crate) const MOVEMENT_KIB_DEFAULT: u64 = 128;

/// What a job is for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// All methods and all shares of the fast tier.
    Grid,
    /// At 30 %, at every size of a movement I/O.
    MovementSize,
    /// All methods at 30 % on a variant of a condition.
    Variant(String),
}

/// A condition with a seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What it is for.
    pub purpose: Purpose,
    /// Name of the condition.
    pub name: String,
    /// The load.
    pub condition: Condition,
    /// Its seed.
    pub seed: u64,
    /// Its length.
    pub days: u32,
}

/// The scores of one cell.
#[derive(Debug, Clone, Serialize)]
pub struct CellScore {
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Size of a movement I/O, KiB.
    pub movement_kib: u64,
    /// The method.
    pub method: Method,
    /// With total = P/(1 + M).
    pub score: Score,
    /// Total with P·(1 − M).
    pub total_subtracted: f64,
    /// Total where hits and moves are summed up before the formula is applied.
    pub total_of_sums: f64,
}

/// What came of a job.
#[derive(Debug, Clone, Serialize)]
pub struct JobResult {
    /// What it was for.
    pub purpose: Purpose,
    /// Name of the condition.
    pub condition: String,
    /// Its seed.
    pub seed: u64,
    /// Requests that count.
    pub requests: u64,
    /// All cells.
    pub cells: Vec<CellScore>,
}

impl Job {
    /// On a condition that has a name.
    ///
    /// # Panics
    /// Where there is no such condition.
    pub(crate) fn named(purpose: Purpose, name: &str, seed: u64, days: u32) -> Self {
        Self {
            purpose,
            condition: condition(name).expect("the setup names conditions that there are"),
            name: name.into(),
            seed,
            days,
        }
    }

    fn cells(&self) -> Vec<(u8, u64, Method)> {
        let all = |share: u8, kib: u64| Method::all().into_iter().map(move |m| (share, kib, m));
        match &self.purpose {
            Purpose::Grid => FAST_SHARES
                .iter()
                .flat_map(|share| all(*share, MOVEMENT_KIB_DEFAULT))
                .collect(),
            Purpose::MovementSize => MOVEMENT_KIB.iter().flat_map(|kib| all(30, *kib)).collect(),
            Purpose::Variant(_) => all(30, MOVEMENT_KIB_DEFAULT).collect(),
        }
    }

    /// Generates the load and evaluates everything on it.
    pub fn run(&self) -> JobResult {
        let extents = self.condition.pages();
        let specs = self.cells();
        let count_from = Nanos(48 * HOUR.0);
        let terms = |kib: u64| Terms {
            movement_io: Bytes(kib << 10),
            ..Terms::default()
        };
        let mut cells: Vec<Box<dyn Cell>> = specs
            .iter()
            .map(|(share, kib, method)| {
                method.cell(CellSpec {
                    extents,
                    capacity: (f64::from(*share) / 100.0 * f64::from(extents)).round() as u32,
                    count_from,
                    terms: terms(*kib),
                })
            })
            .collect();
        let mut hours = self.condition.hours(self.seed);
        let heats = (0..self.days * HOURS_PER_DAY).map(|_| hours.advance().counts.clone());
        evaluate(HOUR, heats, &mut cells);
        let counted: Vec<Counted> = cells.into_iter().map(Cell::finish).collect();
        let counting = counted[0].intervals.iter().skip(48);
        JobResult {
            purpose: self.purpose.clone(),
            condition: self.name.clone(),
            seed: self.seed,
            requests: counting.map(|i| i.requests).sum(),
            cells: specs
                .into_iter()
                .zip(&counted)
                .map(|((share, kib, method), counted)| {
                    cell_score(share, kib, method, counted, Formula::hourly(terms(kib)))
                })
                .collect(),
        }
    }
}

fn cell_score(
    share: u8,
    kib: u64,
    method: Method,
    counted: &Counted,
    formula: Formula,
) -> CellScore {
    let with = |formula: Formula| formula.score(counted).expect("every hour has requests");
    let subtracted = Formula {
        reading: MovementReading::Subtract,
        ..formula
    };
    let of_sums = Formula {
        aggregation: Aggregation::Whole,
        ..formula
    };
    CellScore {
        fast_share_percent: share,
        movement_kib: kib,
        method,
        score: with(formula),
        total_subtracted: with(subtracted).total,
        total_of_sums: with(of_sums).total,
    }
}
