//! Figures 3 to 9 as numbers, with the published values.

use serde::Serialize;
use trace::conditions::{Condition, Construction, condition, cumulative_share};

use super::choice::{CONSTRUCTIONS, Choice};
use super::grid::{Grid, GridCell, View, existing, proposed, quantity, ratio};
use super::method::{Method, PERIODS, SHARES};
use super::setup::{FAST_SHARES, Setup};
use crate::claim::Value;

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Locality of the synthetic conditions.
    pub fig3: Vec<Locality>,
    /// Condition A: total performance relative to L = 24 h (figures 4, 6 and 7), and movement (figures 5 and 7).
    pub fig4_to_7: Vec<OnA>,
    /// Other stand-ins for condition A.
    pub other_stand_ins: Vec<Headline>,
    /// Storage performance by construction and condition (figure 8), and total performance (figure 9).
    pub fig8_and_9: Vec<Improvement>,
}

/// Figure 3: cumulative share of requests by share of pages.
#[derive(Debug, Clone, Serialize)]
pub struct Locality {
    /// Condition, B to G.
    pub condition: char,
    /// Parameter of the curve.
    pub k: f64,
    /// Share of pages, share of requests by the formula, and the published share, if any.
    pub points: Vec<(f64, f64, Option<f64>)>,
    /// Generated locality of the condition without movement of pages, by construction.
    pub generated: Vec<HotPageShares>,
}

/// Share of requests on the hottest 10, 20 and 30 % of the pages.
#[derive(Debug, Clone, Serialize)]
pub struct HotPageShares {
    /// Construction of the condition.
    pub construction: Construction,
    /// Over all days.
    pub all_days: [Value; 3],
    /// Within a day.
    pub one_day: [Value; 3],
}

/// One method at one share of the fast tier, condition A.
#[derive(Debug, Clone, Serialize)]
pub struct OnA {
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Method.
    pub method: Method,
    /// Printed name.
    pub name: String,
    /// Total performance relative to L = 24 h.
    pub total_over_24h: Value,
    /// Published value.
    pub total_over_24h_published: Option<f64>,
    /// Total performance with P·(1 − M), relative to L = 24 h.
    pub total_subtracted_over_24h: Value,
    /// Total performance with hits and moves summed up before the formula is applied, relative to L = 24 h.
    pub total_of_sums_over_24h: Value,
    /// Storage performance relative to L = 24 h.
    pub storage_over_24h: Value,
    /// M: ratio of movement I/Os to application I/Os.
    pub movement: Value,
    /// Published value.
    pub movement_published: Option<f64>,
    /// Share of requests on the fast tier.
    pub fast_share: Value,
    /// Number of distinct moved extents.
    pub distinct_moved: Value,
    /// GiB moved.
    pub moved_gib: Value,
}

/// Main results of a stand-in.
#[derive(Debug, Clone, Serialize)]
pub struct Headline {
    /// Name of the stand-in.
    pub condition: String,
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Total of L = 1 h relative to L = 24 h.
    pub l1_over_l24: Value,
    /// M of L = 1 h.
    pub movement_l1: Value,
    /// Best proposed over best existing method, minus one.
    pub proposed_gain: Value,
    /// The adaptive method of this project over the best of both, minus one.
    pub adaptive_gain: Value,
}

/// Condition at a share of the fast tier.
#[derive(Debug, Clone, Serialize)]
pub struct Improvement {
    /// Construction of the condition; A is the same in all.
    pub construction: Construction,
    /// Condition.
    pub condition: String,
    /// Share of the fast tier, percent.
    pub fast_share_percent: u8,
    /// Best proposed over best existing storage performance, minus one (figure 8).
    pub storage_gain: Value,
    /// Best proposed over best existing total performance, minus one (figure 9).
    pub total_gain: Value,
    /// Gain of total performance with P·(1 − M).
    pub total_gain_subtracted: Value,
    /// C = 20 % over the best existing method.
    pub total_gain_c20: Value,
    /// Name of the best existing method with the first seed, and its total relative to the slow tier.
    pub best_existing: (String, Value),
    /// Name of the best proposed method, and its total.
    pub best_proposed: (String, Value),
    /// Total of the adaptive method, and its gain over the best of the paper's methods with parameters chosen in
    /// hindsight.
    pub adaptive: (Value, Value),
    /// The adaptive method without regard to the time of day.
    pub adaptive_without_recurrence: (Value, Value),
    /// `moving-averages`.
    pub moving_averages: (Value, Value),
    /// `aged-frequency`.
    pub aged_frequency: (Value, Value),
    /// Clairvoyant for one hour; makes only moves that pay.
    pub clairvoyant_net: (Value, Value),
    /// Share of requests on the fast tier of the adaptive method, and the upper bound.
    pub fast_share_of_bound: (Value, Value),
    /// M of the adaptive method, of the best existing and of the best proposed one.
    pub movement: (Value, Value, Value),
    /// Mean short share of the adaptive method.
    pub adaptive_share: Option<f64>,
}

/// Published locality of condition B: share of requests on a share of the pages (figure 3).
pub(crate) const LOCALITY_OF_B: [(f64, f64); 3] = [(0.1, 0.63), (0.2, 0.84), (0.3, 0.95)];
/// Published totals relative to L = 24 h for condition A: (fast tier, method, value).
const TOTALS: [(u8, Method, f64); 2] = [
    (30, Method::Existing(1), 1.29),
    (30, Method::Proposed(10), 1.37),
];
/// Published values of M.
const MOVEMENTS: [(u8, Method, f64); 2] = [
    (30, Method::Existing(1), 0.143),
    (30, Method::Proposed(10), 0.0715),
];

impl Figures {
    pub(super) fn new(setup: &Setup, grid: &Grid) -> Self {
        // Condition A does not depend on the construction.
        let base = grid.view(Choice::of(Construction::Jitter));
        let improvements = |construction: Construction| {
            let view = grid.view(Choice::of(construction));
            let names = setup.conditions.iter();
            let names = names.filter(move |n| construction == Construction::Jitter || *n != "A");
            names.flat_map(move |name| {
                FAST_SHARES.map(|share| improvement(view, construction, name, share))
            })
        };
        Self {
            fig3: localities(grid),
            fig4_to_7: on_a(base),
            other_stand_ins: super::setup::OTHER_STAND_INS
                .iter()
                .flat_map(|name| [5, 10, 30].map(|share| headline(base, name, share)))
                .collect(),
            fig8_and_9: CONSTRUCTIONS.into_iter().flat_map(improvements).collect(),
        }
    }
}

fn localities(grid: &Grid) -> Vec<Locality> {
    let base = grid.view(Choice::of(Construction::Jitter));
    let of = |letter: char| {
        let name = format!("{letter}-not-move");
        let Some(Condition::Slice(slice)) = condition(&name) else {
            unreachable!("B to G are slices");
        };
        let published = |x: u32| {
            let mut found = LOCALITY_OF_B.iter();
            let found = found.find(|p| letter == 'B' && (100.0 * p.0).round() as u32 == x);
            found.map(|p| p.1)
        };
        let point = |x: u32| {
            let share = f64::from(x) / 100.0;
            (share, cumulative_share(slice.k, share), published(x))
        };
        let generated = |construction| {
            let seeds = grid.view(Choice::of(construction)).at(&name, 30);
            let of = |i: usize| quantity(&seeds, |a| a.result.locality[i]);
            let of_day = |i: usize| quantity(&seeds, |a| a.result.locality_of_day[i]);
            HotPageShares {
                construction,
                all_days: [0, 1, 2].map(of),
                one_day: [0, 1, 2].map(of_day),
            }
        };
        Locality {
            condition: letter,
            k: slice.k,
            points: (0..=100).step_by(5).map(point).collect(),
            generated: CONSTRUCTIONS.map(generated).into(),
        }
    };
    let run = |l: &char| base.has(&format!("{l}-not-move"));
    ('B'..='G').filter(run).map(of).collect()
}

fn on_a(view: View<'_>) -> Vec<OnA> {
    let find = |table: &[(u8, Method, f64)], share: u8, method: Method| {
        let found = table.iter().find(|t| t.0 == share && t.1 == method);
        found.map(|t| t.2)
    };
    let day = Method::Existing(24);
    let row = |share: u8, method: Method| {
        let seeds = view.at("A", share);
        OnA {
            fast_share_percent: share,
            method,
            name: method.name(),
            total_over_24h: ratio(&seeds, |a| a.total(method) / a.total(day)),
            total_over_24h_published: find(&TOTALS, share, method),
            total_subtracted_over_24h: quantity(&seeds, |a| {
                a.cell(method).total_subtracted / a.cell(day).total_subtracted
            }),
            total_of_sums_over_24h: ratio(&seeds, |a| {
                a.cell(method).total_of_sums / a.cell(day).total_of_sums
            }),
            storage_over_24h: ratio(&seeds, |a| {
                a.cell(method).score.storage / a.cell(day).score.storage
            }),
            movement: quantity(&seeds, |a| a.cell(method).score.movement),
            movement_published: find(&MOVEMENTS, share, method),
            fast_share: quantity(&seeds, |a| a.cell(method).score.fast_share),
            distinct_moved: quantity(&seeds, |a| f64::from(a.cell(method).score.distinct_moved)),
            moved_gib: quantity(&seeds, |a| {
                a.cell(method).score.bytes_moved as f64 / (1u64 << 30) as f64
            }),
        }
    };
    FAST_SHARES
        .into_iter()
        .flat_map(|share| Method::all().into_iter().map(move |m| (share, m)))
        .map(|(share, method)| row(share, method))
        .collect()
}

fn headline(view: View<'_>, name: &str, share: u8) -> Headline {
    let seeds = view.at(name, share);
    let (l1, l24) = (Method::Existing(1), Method::Existing(24));
    Headline {
        condition: name.into(),
        fast_share_percent: share,
        l1_over_l24: ratio(&seeds, |a| a.total(l1) / a.total(l24)),
        movement_l1: quantity(&seeds, |a| a.cell(l1).score.movement),
        proposed_gain: gain(&seeds, |a| a.gain()),
        adaptive_gain: gain(&seeds, |a| a.total(Method::Adaptive) / a.best_fixed().1),
    }
}

/// Returns a ratio minus one.
fn gain(seeds: &[GridCell<'_>], of: impl Fn(&GridCell<'_>) -> f64) -> Value {
    ratio(seeds, of).map(|r| r - 1.0)
}

fn improvement(view: View<'_>, construction: Construction, name: &str, share: u8) -> Improvement {
    let seeds = view.at(name, share);
    // Methods that are not in the paper are run with the first seed only.
    let first = &seeds[..1];
    let with_gain = |method: Method| {
        (
            quantity(first, |a| a.total(method)),
            gain(first, |a| a.total(method) / a.best_fixed().1),
        )
    };
    let movement =
        |of: fn(&GridCell<'_>) -> Method| quantity(first, |a| a.cell(of(a)).score.movement);
    Improvement {
        construction,
        condition: name.into(),
        fast_share_percent: share,
        storage_gain: gain(&seeds, |a| a.storage_gain()),
        total_gain: gain(&seeds, |a| a.gain()),
        total_gain_subtracted: quantity(&seeds, |a| {
            let by = |c: &super::job::CellScore| c.total_subtracted;
            a.best(proposed, by).1 / a.best(existing, by).1 - 1.0
        }),
        total_gain_c20: gain(&seeds, |a| {
            a.total(Method::Proposed(20)) / a.best_existing().1
        }),
        best_existing: (
            seeds[0].best_existing().0.name(),
            quantity(&seeds, |a| a.best_existing().1),
        ),
        best_proposed: (
            seeds[0].best_proposed().0.name(),
            quantity(&seeds, |a| a.best_proposed().1),
        ),
        adaptive: with_gain(Method::Adaptive),
        adaptive_without_recurrence: with_gain(Method::AdaptiveWithoutRecurrence),
        moving_averages: with_gain(Method::MovingAverages),
        aged_frequency: with_gain(Method::AgedFrequency),
        clairvoyant_net: with_gain(Method::ClairvoyantNet),
        fast_share_of_bound: (
            quantity(first, |a| a.cell(Method::Adaptive).score.fast_share),
            quantity(first, |a| a.cell(Method::ClairvoyantHits).score.fast_share),
        ),
        movement: (
            movement(|_| Method::Adaptive),
            movement(|a| a.best_existing().0),
            movement(|a| a.best_proposed().0),
        ),
        adaptive_share: seeds[0].cell(Method::Adaptive).score.share,
    }
}

/// Returns the methods on the paper's axis in figures 4 and 5: nine values of C, then five of L.
pub(super) fn axis() -> Vec<Method> {
    let proposed = SHARES.map(Method::Proposed);
    let existing = PERIODS.map(Method::Existing);
    proposed.into_iter().chain(existing).collect()
}
