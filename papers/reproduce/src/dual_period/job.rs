//! Job: one load, and all evaluations on it in one pass.

use config::scenario::{Aggregation, MovementReading};
use planner::extents::Terms;
use serde::{Deserialize, Serialize};
use sim::counting::{Cell, CellCounts, CellSpec, Formula, Score, evaluate};
use trace::conditions::{Condition, Construction, condition};
use units::{Bytes, Nanos};

use super::choice::MOVEMENT_KIB_READ;
use super::figures::LOCALITY_OF_B;
use super::method::Method;
use super::setup::FAST_SHARES;

const HOUR: Nanos = Nanos::from_secs(3600);
const HOURS_PER_DAY: u32 = 24;
/// Sizes of a movement I/O in the sensitivity analysis.
pub(crate) const MOVEMENT_KIB: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Size of a movement I/O in all other results.
pub(crate) const MOVEMENT_KIB_DEFAULT: u64 = 128;

/// Purpose of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// All methods and all shares of the fast tier, with this construction of the condition.
    Grid(Construction),
    /// 30 % fast tier, every size of a movement I/O.
    MovementSize,
    /// All methods at 30 % on a variant of a condition.
    Variant(String),
}

/// Condition with a seed. The result depends on nothing else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Purpose.
    pub purpose: Purpose,
    /// Name of the condition.
    pub name: String,
    /// Load.
    pub condition: Condition,
    /// Seed.
    pub seed: u64,
    /// Length.
    pub days: u32,
    /// Methods to run.
    pub compared: MethodSet,
}

/// Set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodSet {
    /// All methods of the comparison.
    All,
    /// Only the paper's methods.
    Published,
}

/// Scores of one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellScore {
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Size of a movement I/O, KiB.
    pub movement_kib: u64,
    /// Method.
    pub method: Method,
    /// Score with total = P/(1 + M).
    pub score: Score,
    /// Total with P·(1 − M).
    pub total_subtracted: f64,
    /// Total with hits and moves summed up before the formula is applied.
    pub total_of_sums: f64,
}

/// Result of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobResult {
    /// Purpose.
    pub purpose: Purpose,
    /// Name of the condition.
    pub condition: String,
    /// Seed.
    pub seed: u64,
    /// Number of counted requests.
    pub requests: u64,
    /// Share of these requests on the hottest 10, 20 and 30 % of the pages, over all days.
    pub locality: [f64; 3],
    /// Share of requests on the hottest pages of one day; mean over the days.
    pub locality_of_day: [f64; 3],
    /// Scores of all cells.
    pub cells: Vec<CellScore>,
}

impl Job {
    /// Creates a job on a named condition.
    ///
    /// # Panics
    /// If the condition does not exist.
    pub(crate) fn named(purpose: Purpose, name: &str, seed: u64, days: u32) -> Self {
        let found = condition(name).expect("the setup names conditions that there are");
        let condition = match &purpose {
            Purpose::Grid(construction) => found.constructed(*construction),
            Purpose::MovementSize | Purpose::Variant(_) => found,
        };
        Self {
            purpose,
            condition,
            name: name.into(),
            seed,
            days,
            compared: MethodSet::All,
        }
    }

    /// Returns shares of the fast tier, sizes of a movement I/O that the methods receive, and methods.
    fn cells(&self) -> Vec<(u8, u64, Method)> {
        let methods = match self.compared {
            MethodSet::All => Method::all(),
            MethodSet::Published => Method::published(),
        };
        let all = |share: u8, kib: u64| methods.iter().map(move |m| (share, kib, *m));
        match &self.purpose {
            Purpose::Grid(_) => FAST_SHARES
                .iter()
                .flat_map(|share| all(*share, MOVEMENT_KIB_DEFAULT))
                .collect(),
            Purpose::MovementSize => MOVEMENT_KIB.iter().flat_map(|kib| all(30, *kib)).collect(),
            Purpose::Variant(_) => all(30, MOVEMENT_KIB_DEFAULT).collect(),
        }
    }

    /// Returns the sizes of a movement I/O with which a cell is scored. The paper's methods behave the same for any
    /// size.
    fn sizes(&self, kib: u64, method: Method) -> Vec<u64> {
        match (&self.purpose, method.is_fixed()) {
            (Purpose::Grid(_), true) => MOVEMENT_KIB_READ.into(),
            _ => vec![kib],
        }
    }

    /// Generates the load and runs all evaluations on it.
    pub fn run(&self) -> JobResult {
        let extents = self.condition.pages();
        let specs = self.cells();
        let count_from = Nanos(48 * HOUR.0);
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
        let mut locality = Locality::new(extents);
        let heats = (0..self.days * HOURS_PER_DAY).map(|at| {
            let counts = hours.advance().counts.clone();
            locality.hour(at, &counts);
            counts
        });
        evaluate(HOUR, heats, &mut cells);
        let counted: Vec<CellCounts> = cells.into_iter().map(Cell::finish).collect();
        let counting = counted[0].intervals.iter().skip(48);
        let scored = specs.into_iter().zip(&counted).flat_map(|(spec, counted)| {
            let (share, kib, method) = spec;
            let sizes = self.sizes(kib, method).into_iter();
            sizes.map(move |kib| cell_score(share, kib, method, counted))
        });
        JobResult {
            purpose: self.purpose.clone(),
            condition: self.name.clone(),
            seed: self.seed,
            requests: counting.map(|i| i.requests).sum(),
            cells: scored.collect(),
            locality: shares(&locality.all),
            locality_of_day: locality.of_day(),
        }
    }
}

/// Distribution of requests over the pages, for the counted days.
struct Locality {
    all: Vec<u64>,
    day: Vec<u64>,
    days: Vec<[f64; 3]>,
}

impl Locality {
    fn new(pages: u32) -> Self {
        let none = vec![0; pages as usize];
        Self {
            all: none.clone(),
            day: none,
            days: vec![],
        }
    }

    fn hour(&mut self, at: u32, counts: &[(u32, u32)]) {
        if at < 48 {
            return;
        }
        for (page, n) in counts {
            self.day[*page as usize] += u64::from(*n);
            self.all[*page as usize] += u64::from(*n);
        }
        if (at + 1).is_multiple_of(HOURS_PER_DAY) {
            self.days.push(shares(&self.day));
            self.day.fill(0);
        }
    }

    fn of_day(&self) -> [f64; 3] {
        let mean = |i: usize| {
            let sum: f64 = self.days.iter().map(|d| d[i]).sum();
            sum / self.days.len() as f64
        };
        [mean(0), mean(1), mean(2)]
    }
}

/// Returns the share of requests on the hottest pages, for each published share of pages.
fn shares(of_page: &[u64]) -> [f64; 3] {
    let mut sorted = of_page.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = sorted.iter().sum();
    LOCALITY_OF_B.map(|(x, _)| {
        let hottest = (x * sorted.len() as f64).round() as usize;
        sorted[..hottest].iter().sum::<u64>() as f64 / all as f64
    })
}

fn terms(kib: u64) -> Terms {
    Terms {
        movement_io: Bytes(kib << 10),
        ..Terms::default()
    }
}

fn cell_score(share: u8, kib: u64, method: Method, counted: &CellCounts) -> CellScore {
    let formula = Formula::hourly(terms(kib));
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
