//! Sensitivity of the result to unpublished parameters: the size of a movement I/O, the recurring share of the load,
//! and the construction of the synthetic conditions.

use serde::Serialize;
use trace::conditions::{Condition, Cycle, Layouts, Slice, SliceRepeat, StandIn};

use super::grid::Grid;
use super::job::{Job, MOVEMENT_KIB, MethodSet, Purpose};
use super::method::Method;

/// Recurring shares of the stand-in for A. With the lowest one, the dual-period method has nothing to remember.
const RECURRING: [f64; 6] = [0.0, 0.05, 0.1, 0.2, 0.29, 0.4];

/// Results of the best method of each kind.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Value of the varied parameter.
    pub name: String,
    /// Name of the best existing method, and its total relative to the slow tier.
    pub existing: (String, f64),
    /// Best proposed method.
    pub proposed: (String, f64),
    /// Total of the adaptive method.
    pub adaptive: f64,
    /// Total of the adaptive method without regard to the time of day.
    pub adaptive_without_recurrence: f64,
    /// `moving-averages`.
    pub moving_averages: f64,
    /// M of L = 1 h.
    pub movement_1h: f64,
    /// Proposed over existing method, minus one.
    pub proposed_gain: f64,
    /// Adaptive method over the better of both, minus one.
    pub adaptive_gain: f64,
}

/// All results, at a fast tier of 30 %.
#[derive(Debug, Clone, Serialize)]
pub struct Sensitivity {
    /// By size of a movement I/O, condition A.
    pub movement_io: Vec<Row>,
    /// By recurring share, condition A.
    pub recurring: Vec<Row>,
    /// By construction of the synthetic conditions.
    pub construction: Vec<Row>,
}

/// Variants of synthetic conditions: name and load.
fn constructions() -> Vec<(String, Condition)> {
    let base = |cycle| Slice::new(7.0, 76.0, cycle);
    let mut all = Vec::new();
    for cycle in [Cycle::Hours3, Cycle::Hours6, Cycle::NotMove] {
        let mut add = |what: &str, slice: Slice| {
            all.push((
                format!("D-{}, {what}", cycle.name()),
                Condition::Slice(slice),
            ));
        };
        add("as in the grid", base(cycle));
        add(
            "new random counts each hour",
            Slice {
                repeat: SliceRepeat::Intensities,
                ..base(cycle)
            },
        );
        add(
            "no jitter of intensities",
            Slice {
                jitter: 0.0,
                ..base(cycle)
            },
        );
        add(
            "jitter of 1",
            Slice {
                jitter: 1.0,
                ..base(cycle)
            },
        );
        if cycle != Cycle::NotMove {
            add(
                "layouts rotated, not permuted",
                Slice {
                    layouts: Layouts::Rotation,
                    ..base(cycle)
                },
            );
            add(
                "nothing pinned",
                Slice {
                    pinned_hot: 0.0,
                    ..base(cycle)
                },
            );
        }
    }
    all
}

fn recurring_name(share: f64) -> String {
    format!("recurring share {share}")
}

pub(super) fn jobs(seed: u64, days: u32) -> Vec<Job> {
    let mut jobs = vec![Job::named(Purpose::MovementSize, "A", seed, days)];
    let mut add = |name: String, condition: Condition| {
        jobs.push(Job {
            purpose: Purpose::Variant(name.clone()),
            name,
            condition,
            seed,
            days,
            compared: MethodSet::All,
        });
    };
    for share in RECURRING {
        let load = StandIn::first().with_recurring(share);
        add(recurring_name(share), Condition::StandIn(load));
    }
    for (name, condition) in constructions() {
        add(name, condition);
    }
    jobs
}

impl Sensitivity {
    pub(super) fn new(grid: &Grid) -> Self {
        let variant = |name: &String| {
            let purpose = Purpose::Variant(name.clone());
            row(
                grid,
                name.clone(),
                &purpose,
                super::job::MOVEMENT_KIB_DEFAULT,
            )
        };
        let recurring: Vec<String> = RECURRING.map(recurring_name).into();
        let constructions: Vec<String> = constructions().into_iter().map(|c| c.0).collect();
        Self {
            movement_io: MOVEMENT_KIB
                .iter()
                .map(|kib| row(grid, format!("{kib} KiB"), &Purpose::MovementSize, *kib))
                .collect(),
            recurring: recurring.iter().map(variant).collect(),
            construction: constructions.iter().map(variant).collect(),
        }
    }
}

fn row(grid: &Grid, name: String, purpose: &Purpose, kib: u64) -> Row {
    let result = grid.job(purpose);
    let total = |method: Method| {
        let cell = result
            .cells
            .iter()
            .find(|c| c.method == method && c.movement_kib == kib);
        cell.expect("every method is in every job").score
    };
    let best = |of: fn(&Method) -> bool| {
        let methods = Method::all().into_iter().filter(of);
        let scored = methods.map(|m| (m.name(), total(m).total));
        scored
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .expect("there are some")
    };
    let existing = best(|m| matches!(m, Method::Existing(_)));
    let proposed = best(|m| matches!(m, Method::Proposed(_)));
    let adaptive = total(Method::Adaptive).total;
    Row {
        name,
        adaptive,
        adaptive_without_recurrence: total(Method::AdaptiveWithoutRecurrence).total,
        moving_averages: total(Method::MovingAverages).total,
        movement_1h: total(Method::Existing(1)).movement,
        proposed_gain: proposed.1 / existing.1 - 1.0,
        adaptive_gain: adaptive / proposed.1.max(existing.1) - 1.0,
        existing,
        proposed,
    }
}
