//! Optimum of a small problem, by branch and bound.
//!
//! Items are placed one by one, beginning with those whose place matters most at the prices of the bound. The relaxation
//! limits the gain of the rest: each item's best score minus its payment. For tens of items this ends soon. If it does not
//! end within the limit of nodes, it has no result.

use units::TierId;

use super::{Placement, Problem, RESOURCES, SCORE_STEP, Shares, add, fits, prices, steps};

/// Largest number of items. More would not end within the nodes, and the recursion is as deep as the number of items.
const ITEMS_MAX: usize = 128;
/// Largest number of nodes.
const NODES_MAX: u32 = 100_000;
/// Subgradient steps for the prices.
const ROUNDS: u32 = 300;

/// Returns the best placement; `None` if there are too many items or the search exceeds its nodes. `known` is a starting
/// placement.
pub fn optimum(problem: &Problem, known: &Placement) -> Option<Placement> {
    if problem.len() > ITEMS_MAX {
        return None;
    }
    let none = prices::Prices::none(problem);
    let prices = prices::prices(problem, &none, Some(known.value), ROUNDS);
    let reduced = prices.apply(problem);
    let row = |item: usize| &reduced[item * problem.tiers..(item + 1) * problem.tiers];
    let most = |item: usize| *row(item).iter().max().expect("there are tiers");
    let mut order: Vec<usize> = (0..problem.len()).collect();
    order.sort_by_key(|item| {
        let second = row(*item).iter().filter(|v| **v < most(*item)).max();
        let spread = most(*item).saturating_sub(second.copied().unwrap_or(most(*item)));
        (std::cmp::Reverse(spread), *item)
    });
    // Upper bound on the value of the items from each position on.
    let mut rest = vec![0i64; order.len() + 1];
    for (i, item) in order.iter().enumerate().rev() {
        rest[i] = rest[i + 1] + most(*item);
    }
    let paid: f64 = (0..problem.tiers)
        .map(|t| {
            let (lambda, capacity) = (prices.of(t), problem.capacity[t]);
            (0..RESOURCES).map(|k| lambda[k] * capacity[k]).sum::<f64>()
        })
        .sum();
    let mut search = Search {
        problem,
        prices: &prices,
        reduced: &reduced,
        order: &order,
        rest: &rest,
        // Rounded up, with a step for the rounding of every item's price.
        constant: (paid / SCORE_STEP).ceil() as i64 + order.len() as i64,
        left: problem.capacity.clone(),
        tiers: known.tiers.clone(),
        best: known.clone(),
        nodes: 0,
    };
    search.descend(0, 0);
    (search.nodes < NODES_MAX).then_some(search.best)
}

struct Search<'a> {
    problem: &'a Problem,
    prices: &'a prices::Prices,
    reduced: &'a [i64],
    order: &'a [usize],
    rest: &'a [i64],
    constant: i64,
    left: Vec<Shares>,
    tiers: Vec<TierId>,
    best: Placement,
    nodes: u32,
}

impl Search<'_> {
    /// Places the items from number `depth` on; `so_far` is the value of the earlier items at the prices.
    fn descend(&mut self, depth: usize, so_far: i64) {
        if self.nodes >= NODES_MAX {
            return;
        }
        self.nodes += 1;
        let problem = self.problem;
        let Some(item) = self.order.get(depth).copied() else {
            let placement = problem.placement_of(self.tiers.clone());
            if placement.value > self.best.value {
                self.best = placement;
            }
            return;
        };
        let mut choices: Vec<(i64, TierId)> = (0..problem.tiers)
            .map(TierId::from_index)
            .filter(|t| problem.score(item, *t).is_some())
            .map(|t| (self.reduced[item * problem.tiers + t.index()], t))
            .collect();
        choices.sort_by_key(|(value, tier)| (std::cmp::Reverse(*value), *tier));
        for (value, tier) in choices {
            if so_far + value + self.rest[depth + 1] + self.constant <= self.best.value {
                return; // the others promise even less
            }
            let (t, uses) = (tier.index(), problem.uses(item, tier));
            if !fits(&problem.overload[t], &self.left[t], &uses) {
                continue;
            }
            add(&mut self.left[t], &uses, -1.0);
            self.tiers[item] = tier;
            // Certain overload of a tier costs more than its price accounts for.
            let over: f64 = (0..problem.tiers).map(|t| self.beyond_price(t)).sum();
            let bound = so_far + value + self.rest[depth + 1] + self.constant - steps(over);
            if bound > self.best.value {
                self.descend(depth + 1, so_far + value);
            }
            add(&mut self.left[t], &uses, 1.0);
        }
    }

    /// Returns the cost of present overload beyond the prices paid for it.
    fn beyond_price(&self, tier: usize) -> f64 {
        let (overload, left) = (&self.problem.overload[tier], &self.left[tier]);
        let price = self.prices.of(tier);
        (0..RESOURCES)
            .filter(|k| overload[*k].is_finite() && left[*k] < 0.0)
            .map(|k| -left[k] * (overload[k] - price[k]).max(0.0))
            .sum()
    }
}
