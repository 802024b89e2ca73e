//! Which item on which tier: the assignment problem of one epoch, and how it is solved (paper 0, Eq. 1–5 for one τ).
//!
//! ```text
//!  maximize  Σ_v s[v][t(v)]          s: the score of item v on tier t, migration cost included
//!            − Σ_t,k  ρ[t][k] · max(0, Σ_{v on t} u[v][t][k] − C[t][k])
//!  so that   every item is on exactly one of the tiers that it may be on
//!            Σ_{v on t} u[v][t][k]  ≤  C[t][k]            where ρ[t][k] is infinite
//!
//!  k: IOPS, bandwidth, space; u and C: shares of what the tier is capable of
//! ```
//!
//! Space is a hard limit. IOPS and bandwidth need not be: loads that wait for their answers ask for whatever a tier gives,
//! so what is over the capacity is not delivered, and ρ says what that takes from those who are there (the paper's Eq. 5
//! is ρ = ∞ everywhere).
//!
//! This is a generalized assignment problem with three resources per tier. [`solve`] puts items by regret, once with the
//! plain scores and once with scores less the price of what they use, and improves both by moving single items and by
//! exchanging pairs. [`bound`] is what no placement can exceed (Lagrangian relaxation of the capacity rows); [`optimum`] is the best of all, where tens of
//! items allow to find it.
//!
//! Capacities that the present placement already exceeds are taken to be what it uses: so to leave everything where it
//! is is always a solution, and no solution makes a crowded tier worse.
//!
//! Scores are integers in steps of 1e-9, so that no result depends on the order of a floating-point sum.

mod branch;
mod local;
mod prices;
mod regret;
#[cfg(test)]
mod tests;

use prices::ROUNDS_OF_A_PLAN;
use units::TierId;

pub use branch::optimum;
pub use prices::{Bound, bound};

/// Resources of a tier: IOPS, bandwidth, space.
pub const RESOURCES: usize = 3;
/// What an item takes of a tier, or what is left there, as shares of the tier's capability.
pub type Shares = [f64; RESOURCES];
/// Steps of a score.
pub const SCORE_STEP: f64 = 1e-9;
/// Sums of shares in floating point are compared with this slack.
pub(crate) const SLACK: f64 = 1e-9;
/// A placement this near to the bound, as a share of what there is to gain, is not improved any more.
const GOOD_ENOUGH: f64 = 5e-4;
/// Placements with prices that one solution tries.
const PRICED_PLACEMENTS: usize = 3;
/// Score of a place that is not allowed. Far below any sum of scores, and far from overflow.
const FORBIDDEN: i64 = i64::MIN / 4;
/// No score is larger than this: ten thousand items of it still add up without overflow.
const SCORE_MAX: f64 = 1e5;

/// A score in steps of [`SCORE_STEP`]: comparisons do not depend on the last bits.
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
    /// What it would use there.
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
    /// Tiers with this capacity left for the items that follow; all limits are hard.
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

    /// Adds an item: one place per tier, `None` where it may not be; `home` is where it is. Its number.
    ///
    /// # Panics
    /// If there is not one place per tier, or none at home, or a use is not a number.
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

    /// What a whole capability of a tier too much costs, by resource, in score; infinite for a hard limit.
    ///
    /// # Panics
    /// If a price is negative or not a number.
    pub fn price_overload(&mut self, tier: TierId, prices: Shares) {
        assert!(prices.iter().all(|p| *p >= 0.0), "a price: {prices:?}");
        self.overload[tier.index()] = prices;
    }

    /// Raises hard limits to what the items use where they are. Call it when all items are there.
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

    /// What a tier with this much left (negative: too much used) costs.
    fn overload_cost(&self, tier: usize, left: &Shares) -> f64 {
        overload_cost(&self.overload[tier], left)
    }

    /// Items.
    pub fn len(&self) -> usize {
        self.home.len()
    }

    /// Whether there is nothing to place.
    pub fn is_empty(&self) -> bool {
        self.home.is_empty()
    }

    /// Tiers.
    pub fn tiers(&self) -> usize {
        self.tiers
    }

    /// Where the item is.
    pub fn home(&self, item: usize) -> Option<TierId> {
        self.home[item]
    }

    /// Its score there, in steps of [`SCORE_STEP`]; `None` where it may not be.
    pub fn score(&self, item: usize, tier: TierId) -> Option<i64> {
        Some(self.scores[item * self.tiers + tier.index()]).filter(|s| *s > FORBIDDEN)
    }

    /// What it would use there.
    pub fn uses(&self, item: usize, tier: TierId) -> Shares {
        self.uses[item * self.tiers + tier.index()]
    }

    /// What the items may use of a tier.
    pub fn capacity(&self, tier: TierId) -> Shares {
        self.capacity[tier.index()]
    }

    /// What a whole capability too much costs there; infinite for a hard limit.
    pub fn overload(&self, tier: TierId) -> Shares {
        self.overload[tier.index()]
    }

    /// The items' scores by tier; forbidden places are very low.
    fn row(&self, item: usize) -> &[i64] {
        &self.scores[item * self.tiers..(item + 1) * self.tiers]
    }

    /// Everything where it is; `None` if an item has no home.
    pub fn present(&self) -> Option<Placement> {
        let tiers: Option<Vec<TierId>> = self.home.iter().copied().collect();
        tiers.map(|tiers| self.placement_of(tiers))
    }

    /// The placement of these tiers, in the order of the items, with its value.
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

    /// What is left of every tier under a placement (negative: overdrawn).
    pub fn left(&self, tiers: &[TierId]) -> Vec<Shares> {
        let mut left = self.capacity.clone();
        for (item, tier) in tiers.iter().enumerate() {
            add(&mut left[tier.index()], &self.uses(item, *tier), -1.0);
        }
        left
    }

    /// Whether a placement keeps to what is allowed and to every capacity.
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

/// Whether `uses` fits into what is left of the hard limits.
fn fits(overload: &Shares, left: &Shares, uses: &Shares) -> bool {
    (0..RESOURCES).all(|k| overload[k].is_finite() || uses[k] <= left[k] + SLACK)
}

pub(crate) fn overload_cost(overload: &Shares, left: &Shares) -> f64 {
    (0..RESOURCES)
        .filter(|k| overload[*k].is_finite() && left[*k] < 0.0)
        .map(|k| -left[k] * overload[k])
        .sum()
}

/// A score in steps.
pub(crate) fn steps(score: f64) -> i64 {
    (score / SCORE_STEP).round() as i64
}

/// Improves a placement and keeps it if it is better. Of two that are as good, the one that was found first: to stay comes
/// before everything.
fn consider(problem: &Problem, best: &mut Option<Placement>, tiers: Vec<TierId>) {
    let mut candidate = problem.placement_of(tiers);
    local::improve(problem, &mut candidate);
    if best.as_ref().is_none_or(|b| candidate.value > b.value) {
        *best = Some(candidate);
    }
}

/// A good placement: the best of what regret finds with and without prices, improved. Never worse than to leave everything
/// where it is, and `None` only if that is impossible (an item without a home) and nothing else was found.
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
    // A better placement makes better prices, and they a better placement.
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
