//! Assignment of items to tiers: the problem of one epoch, and its solution (paper 0, Eq. 1–5 for one τ).
//!
//! ```text
//!  maximize  Σ_v s[v][t(v)]          s: the score of item v on tier t, migration cost included
//!            − Σ_t,k  ρ[t][k] · max(0, Σ_{v on t} u[v][t][k] − C[t][k])
//!  subject to  every item is on exactly one of its allowed tiers
//!            Σ_{v on t} u[v][t][k]  ≤  C[t][k]            where ρ[t][k] is infinite
//!
//!  k: IOPS, bandwidth, space; u and C: shares of the tier's capability
//! ```
//!
//! Space is a hard limit. IOPS and bandwidth may be soft: closed-loop loads demand as much as a tier delivers, so demand
//! above the capacity is not served. ρ is the cost of this for the volumes on the tier (the paper's Eq. 5 is ρ = ∞
//! everywhere).
//!
//! This is a generalized assignment problem with three resources per tier. [`solve`] places items by regret, once with the
//! plain scores and once with scores minus the price of the resources used. It improves both solutions by moving single
//! items and by exchanging pairs. [`bound`] is an upper bound on the value of every placement (Lagrangian relaxation of the
//! capacity rows). [`optimum`] finds the best placement of tens of items.
//!
//! A capacity that the present placement exceeds is raised to the present use. Leaving everything in place is therefore
//! always a solution, and no solution makes a crowded tier worse.
//!
//! Scores are integers in steps of 1e-9, so no result depends on the order of a floating-point sum.

mod branch;
mod local;
mod prices;
mod regret;
#[cfg(test)]
mod tests;

use prices::ROUNDS_OF_A_PLAN;
use units::TierId;

pub use branch::optimum;
pub use prices::{UpperBound, bound};

/// Resources of a tier: IOPS, bandwidth, space.
pub const RESOURCES: usize = 3;
/// Use of a tier by an item, or the rest of the tier, as shares of the tier's capability.
pub type Shares = [f64; RESOURCES];
/// Size of one step of a score.
pub const SCORE_STEP: f64 = 1e-9;
/// Slack for comparisons of floating-point sums of shares.
pub(crate) const SLACK: f64 = 1e-9;
/// Distance to the bound, as a share of the possible gain, at which a placement is not improved further.
const GOOD_ENOUGH: f64 = 5e-4;
/// Number of placements with prices that one solution tries.
const PRICED_PLACEMENTS: usize = 3;
/// Score of a place that is not allowed. Far below any sum of scores, and far from overflow.
const FORBIDDEN: i64 = i64::MIN / 4;
/// Largest score: the sum of ten thousand items does not overflow.
const SCORE_MAX: f64 = 1e5;

/// Returns a score in steps of [`SCORE_STEP`], so comparisons do not depend on the last bits.
pub fn quantized(score: f64) -> i64 {
    (score.clamp(-SCORE_MAX, SCORE_MAX) / SCORE_STEP).round() as i64
}

/// One instance. Rows are items, columns tiers.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    tiers: usize,
    home: Vec<Option<TierId>>,
    scores: Vec<i64>,
    uses: Vec<Shares>,
    capacity: Vec<Shares>,
    overload: Vec<Shares>,
}

/// An item on a tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Higher is better; comparable across items and tiers.
    pub score: f64,
    /// Resource use of the item on the tier.
    pub uses: Shares,
}

/// A placement of all items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Tier of every item.
    pub tiers: Vec<TierId>,
    /// Sum of the scores, in steps of [`SCORE_STEP`].
    pub value: i64,
}

impl Problem {
    /// Creates a problem without items for tiers with this capacity; all limits are hard.
    pub fn new(capacity: Vec<Shares>) -> Self {
        Self {
            overload: vec![[f64::INFINITY; RESOURCES]; capacity.len()],
            tiers: capacity.len(),
            home: Vec::new(),
            scores: Vec::new(),
            uses: Vec::new(),
            capacity,
        }
    }

    /// Adds an item and returns its number. `places` has one place per tier, `None` for a forbidden tier; `home` is the
    /// present tier.
    ///
    /// # Panics
    /// Panics unless there is one place per tier and one at home, or if a use is not a number.
    pub fn add(&mut self, home: Option<TierId>, places: &[Option<Place>]) -> usize {
        assert_eq!(places.len(), self.tiers, "one place per tier");
        assert!(
            home.is_none_or(|h| places[h.index()].is_some()),
            "an item may stay where it is"
        );
        for place in places {
            match place {
                Some(p) => {
                    assert!(p.uses.iter().all(|u| u.is_finite() && *u >= 0.0));
                    self.scores.push(quantized(p.score));
                    self.uses.push(p.uses);
                }
                None => {
                    self.scores.push(FORBIDDEN);
                    self.uses.push([0.0; RESOURCES]);
                }
            }
        }
        self.home.push(home);
        self.home.len() - 1
    }

    /// Sets the cost of exceeding a tier by its whole capability, by resource, in score; infinite for a hard limit.
    ///
    /// # Panics
    /// Panics if a price is negative or not a number.
    pub fn price_overload(&mut self, tier: TierId, prices: Shares) {
        assert!(prices.iter().all(|p| *p >= 0.0), "a price: {prices:?}");
        self.overload[tier.index()] = prices;
    }

    /// Raises hard limits to the present use by the items. Call it after all items were added.
    pub fn admit_present(&mut self) {
        let mut used = vec![[0.0; RESOURCES]; self.tiers];
        for (item, home) in self.home.iter().enumerate() {
            if let Some(home) = home {
                add(&mut used[home.index()], &self.uses(item, *home), 1.0);
            }
        }
        let limits = self.capacity.iter_mut().zip(&self.overload);
        for ((capacity, overload), used) in limits.zip(used) {
            for k in (0..RESOURCES).filter(|k| overload[*k].is_infinite()) {
                capacity[k] = capacity[k].max(used[k]);
            }
        }
    }

    /// Returns the cost of a tier with these shares left (negative: overloaded).
    fn overload_cost(&self, tier: usize, left: &Shares) -> f64 {
        overload_cost(&self.overload[tier], left)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.home.len()
    }

    /// Returns true without items.
    pub fn is_empty(&self) -> bool {
        self.home.is_empty()
    }

    /// Returns the number of tiers.
    pub fn tiers(&self) -> usize {
        self.tiers
    }

    /// Returns the present tier of the item.
    pub fn home(&self, item: usize) -> Option<TierId> {
        self.home[item]
    }

    /// Returns the score of the item on the tier, in steps of [`SCORE_STEP`]; `None` if the tier is forbidden.
    pub fn score(&self, item: usize, tier: TierId) -> Option<i64> {
        Some(self.scores[item * self.tiers + tier.index()]).filter(|s| *s > FORBIDDEN)
    }

    /// Returns the resource use of the item on the tier.
    pub fn uses(&self, item: usize, tier: TierId) -> Shares {
        self.uses[item * self.tiers + tier.index()]
    }

    /// Returns the capacity of a tier for the items.
    pub fn capacity(&self, tier: TierId) -> Shares {
        self.capacity[tier.index()]
    }

    /// Returns the cost of exceeding a tier by its whole capability; infinite for a hard limit.
    pub fn overload(&self, tier: TierId) -> Shares {
        self.overload[tier.index()]
    }

    /// Returns the item's scores by tier; forbidden places are very low.
    fn row(&self, item: usize) -> &[i64] {
        &self.scores[item * self.tiers..(item + 1) * self.tiers]
    }

    /// Returns the present placement; `None` if an item has no home.
    pub fn present(&self) -> Option<Placement> {
        let tiers: Option<Vec<TierId>> = self.home.iter().copied().collect();
        tiers.map(|tiers| self.placement_of(tiers))
    }

    /// Returns the placement on these tiers, in the order of the items, with its value.
    pub fn placement_of(&self, tiers: Vec<TierId>) -> Placement {
        let scores: i64 = tiers
            .iter()
            .enumerate()
            .map(|(i, t)| self.scores[i * self.tiers + t.index()])
            .sum();
        let left = self.left(&tiers);
        let overload = (0..self.tiers).map(|t| self.overload_cost(t, &left[t]));
        let value = scores - steps(overload.sum());
        Placement { tiers, value }
    }

    /// Returns the remaining shares of every tier under a placement (negative: overloaded).
    pub fn left(&self, tiers: &[TierId]) -> Vec<Shares> {
        let mut left = self.capacity.clone();
        for (item, tier) in tiers.iter().enumerate() {
            add(&mut left[tier.index()], &self.uses(item, *tier), -1.0);
        }
        left
    }

    /// Returns true if a placement uses allowed tiers only and keeps every hard capacity.
    pub fn admits(&self, tiers: &[TierId]) -> bool {
        tiers.len() == self.len()
            && (0..self.len()).all(|i| self.score(i, tiers[i]).is_some())
            && (self.left(tiers).iter().zip(&self.overload)).all(|(left, overload)| {
                (0..RESOURCES).all(|k| overload[k].is_finite() || left[k] >= -1e3 * SLACK)
            })
    }
}

fn add(to: &mut Shares, what: &Shares, sign: f64) {
    for k in 0..RESOURCES {
        to[k] += sign * what[k];
    }
}

/// Returns true if `uses` fits into the rest of the hard limits.
fn fits(overload: &Shares, left: &Shares, uses: &Shares) -> bool {
    (0..RESOURCES).all(|k| overload[k].is_finite() || uses[k] <= left[k] + SLACK)
}

pub(crate) fn overload_cost(overload: &Shares, left: &Shares) -> f64 {
    (0..RESOURCES)
        .filter(|k| overload[*k].is_finite() && left[*k] < 0.0)
        .map(|k| -left[k] * overload[k])
        .sum()
}

/// Returns a score in steps.
pub(crate) fn steps(score: f64) -> i64 {
    (score / SCORE_STEP).round() as i64
}

/// Improves a placement and keeps it if it is better. Of two equal placements, the earlier one is kept; staying is the
/// first.
fn consider(problem: &Problem, best: &mut Option<Placement>, tiers: Vec<TierId>) {
    let mut candidate = problem.placement_of(tiers);
    local::improve(problem, &mut candidate);
    if best.as_ref().is_none_or(|b| candidate.value > b.value) {
        *best = Some(candidate);
    }
}

/// Returns a good placement: the best of the placements by regret with and without prices, improved. It is never worse than
/// leaving everything in place. Returns `None` only if an item has no home and no placement was found.
///
/// Work is bounded: items × tiers × a constant.
pub fn solve(problem: &Problem) -> Option<Placement> {
    let present = problem.present();
    let mut best = present.clone();
    if let Some(present) = &present {
        consider(problem, &mut best, present.tiers.clone());
    }
    if let Some(tiers) = regret::place(problem, &problem.scores, &problem.overload) {
        consider(problem, &mut best, tiers);
    }
    // A better placement gives better prices, and these give a better placement.
    let mut prices = prices::Prices::none(problem);
    for _ in 0..PRICED_PLACEMENTS {
        let known = best.as_ref().map(|b| b.value);
        prices = prices::prices(problem, &prices, known, ROUNDS_OF_A_PLAN);
        if let (Some(known), Some(present)) = (known, present.as_ref()) {
            let most = prices.value();
            if (most - known) as f64 <= GOOD_ENOUGH * (most - present.value) as f64 {
                break;
            }
        }
        if let Some(tiers) = regret::place(problem, &prices.apply(problem), &prices.rest(problem)) {
            consider(problem, &mut best, tiers);
        }
    }
    best
}
