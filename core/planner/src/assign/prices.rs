//! Prices of tier capacities: Lagrangian relaxation, and the resulting bound.
//!
//! With a price λ[t][k] ≥ 0 on every capacity row, the items become independent: each takes the tier with the best score
//! minus its payment. For any prices (up to ρ, the price of overload), Σ_v max_t (s − λ·u) + Σ λ·C is at least the value of
//! every placement. The prices that minimize it are found by subgradient steps of Polyak's length towards the best known
//! placement.

use super::{FORBIDDEN, Problem, RESOURCES, SCORE_STEP, Shares};

/// Steps before each placement of a plan; the next steps start from the best prices so far.
pub(super) const ROUNDS_OF_A_PLAN: u32 = 40;
/// Steps of [`bound`].
const ROUNDS_OF_A_BOUND: u32 = 1_500;
/// Steps without progress after which the step is halved.
const PATIENCE: u32 = 12;
/// Fraction of the first step length below which a step has no effect.
const STEP_MIN: f64 = 1e-5;

/// Upper bound on the value of all placements.
#[derive(Debug, Clone, PartialEq)]
pub struct UpperBound {
    /// Bound in steps of [`SCORE_STEP`], rounded up.
    pub value: i64,
    /// Number of subgradient steps.
    pub rounds: u32,
}

/// Price of a whole tier's capability, by tier and resource, in score.
#[derive(Clone)]
pub(super) struct Prices {
    lambda: Vec<[f64; RESOURCES]>,
    bound: f64,
    rounds: u32,
}

impl Prices {
    /// Returns prices of zero.
    pub(super) fn none(problem: &Problem) -> Self {
        Self {
            lambda: vec![[0.0; RESOURCES]; problem.tiers],
            bound: f64::INFINITY,
            rounds: 0,
        }
    }

    /// Returns the prices of a tier's resources.
    pub(super) fn of(&self, tier: usize) -> Shares {
        self.lambda[tier]
    }

    /// Returns the cost of overload in addition to these prices.
    pub(super) fn rest(&self, problem: &Problem) -> Vec<Shares> {
        let each = self.lambda.iter().zip(&problem.overload);
        each.map(|(l, o)| std::array::from_fn(|k| (o[k] - l[k]).max(0.0)))
            .collect()
    }

    /// Returns the bound of these prices, in steps of a score, rounded up, with a margin for the rounding of its sums.
    pub(super) fn value(&self) -> i64 {
        let steps = self.bound / SCORE_STEP;
        (steps + steps.abs() * 1e-12).ceil() as i64
    }

    /// Returns the scores minus the payments of the items.
    pub(super) fn apply(&self, problem: &Problem) -> Vec<i64> {
        let tiers = problem.tiers;
        let price = |i: usize| -> f64 {
            let (lambda, uses) = (&self.lambda[i % tiers], &problem.uses[i]);
            (0..RESOURCES).map(|k| lambda[k] * uses[k]).sum()
        };
        let scores = problem.scores.iter().enumerate();
        scores
            .map(|(i, s)| {
                if *s <= FORBIDDEN {
                    FORBIDDEN
                } else {
                    // A price may exceed every number of steps: then no item pays it.
                    let steps = (price(i) / SCORE_STEP).round() as i64;
                    s.saturating_sub(steps).max(FORBIDDEN)
                }
            })
            .collect()
    }
}

/// Returns an upper bound on the value of every placement. `known` is the value of one placement, which sets the length of
/// steps.
pub fn bound(problem: &Problem, known: Option<i64>) -> UpperBound {
    let prices = prices(problem, &Prices::none(problem), known, ROUNDS_OF_A_BOUND);
    UpperBound {
        value: prices.value(),
        rounds: prices.rounds,
    }
}

/// Scores and uses by column, so the inner loop runs over contiguous numbers.
struct Columns {
    score: Vec<Vec<f64>>,
    uses: Vec<[Vec<f64>; RESOURCES]>,
}

impl Columns {
    fn of(problem: &Problem) -> Self {
        let tier = |t: usize| (t..problem.scores.len()).step_by(problem.tiers);
        Self {
            score: (0..problem.tiers)
                .map(|t| {
                    tier(t)
                        .map(|i| match problem.scores[i] {
                            s if s <= FORBIDDEN => -1e30,
                            s => s as f64 * SCORE_STEP,
                        })
                        .collect()
                })
                .collect(),
            uses: (0..problem.tiers)
                .map(|t| std::array::from_fn(|k| tier(t).map(|i| problem.uses[i][k]).collect()))
                .collect(),
        }
    }
}

/// Improves these prices in at most `rounds` steps.
pub(super) fn prices(problem: &Problem, from: &Prices, known: Option<i64>, rounds: u32) -> Prices {
    let n = problem.len();
    let columns = Columns::of(problem);
    let mut lambda = from.lambda.clone();
    let mut best = Prices {
        bound: f64::INFINITY,
        ..from.clone()
    };
    let mut worth = vec![0.0f64; n];
    let mut choice = vec![0u16; n];
    let (mut step, mut since) = (1.0f64, 0u32);
    for round in 0..rounds {
        best.rounds = round + 1;
        // Choices of the items at these prices.
        worth.fill(f64::NEG_INFINITY);
        for (t, [l0, l1, l2]) in lambda.iter().enumerate() {
            let [u0, u1, u2] = &columns.uses[t];
            let rows = worth.iter_mut().zip(&mut choice).zip(&columns.score[t]);
            for (((w, c), s), ((u0, u1), u2)) in rows.zip(u0.iter().zip(u1).zip(u2)) {
                let reduced = s - l0 * u0 - l1 * u1 - l2 * u2;
                if reduced > *w {
                    *w = reduced;
                    *c = t as u16;
                }
            }
        }
        let mut value: f64 = worth.iter().sum();
        let mut slack = problem.capacity.clone();
        for (i, c) in choice.iter().enumerate() {
            let t = usize::from(*c);
            for (slack, uses) in slack[t].iter_mut().zip(&columns.uses[t]) {
                *slack -= uses[i];
            }
        }
        for (lambda, capacity) in lambda.iter().zip(&problem.capacity) {
            value += (0..RESOURCES).map(|k| lambda[k] * capacity[k]).sum::<f64>();
        }
        if value < best.bound - 1e-12 * value.abs() {
            (best.bound, since) = (value, 0);
            best.lambda.clone_from(&lambda);
        } else {
            since += 1;
            if since == PATIENCE {
                (step, since) = (step * 0.5, 0);
                lambda.clone_from(&best.lambda);
                if step < STEP_MIN {
                    break;
                }
                continue;
            }
        }
        // A component that pushes a price beyond its limit is no direction.
        let mut norm = 0.0;
        let rows = slack.iter_mut().zip(&lambda).zip(&problem.overload);
        for ((slack, lambda), overload) in rows {
            for k in 0..RESOURCES {
                let no_lower = slack[k] > 0.0 && lambda[k] <= 0.0;
                let no_higher = slack[k] < 0.0 && lambda[k] >= overload[k];
                if no_lower || no_higher {
                    slack[k] = 0.0;
                }
                norm += slack[k] * slack[k];
            }
        }
        let target = known.map_or(value - 0.05 * value.abs(), |v| v as f64 * SCORE_STEP);
        if norm <= 1e-18 || value - target <= 1e-12 * value.abs().max(1e-9) {
            break; // the choices keep to every capacity, or the bound is the placement's value: no gain is possible
        }
        let length = step * (value - target) / norm;
        for (t, lambda) in lambda.iter_mut().enumerate() {
            for k in 0..RESOURCES {
                let stepped = lambda[k] - length * slack[t][k];
                lambda[k] = stepped.clamp(0.0, problem.overload[t][k]);
            }
        }
    }
    best
}
