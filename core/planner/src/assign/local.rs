//! Improvement of a placement by moving one item, and by exchanging two.

use units::TierId;

use super::{Placement, Problem, RESOURCES, SLACK, Shares, add, fits, steps};

/// Largest number of passes over all items; the search ends earlier if a pass gains nothing.
const PASSES_MAX: usize = 8;
/// Number of partners that are tried for an item without room on a better tier.
const PARTNERS_MAX: usize = 64;
/// Smallest gain that is not rounding, in steps of a score.
const GAIN_MIN: i64 = 10;

/// Improves a placement until a pass gains nothing or the passes are used up.
pub(super) fn improve(problem: &Problem, placement: &mut Placement) {
    let mut state = State {
        problem,
        left: problem.left(&placement.tiers),
        tiers: std::mem::take(&mut placement.tiers),
        value: placement.value,
    };
    for _ in 0..PASSES_MAX {
        let before = state.value;
        state.move_single_items();
        state.exchange_pairs();
        if state.value == before {
            break;
        }
    }
    *placement = problem.placement_of(state.tiers);
}

const NOTHING: Shares = [0.0; RESOURCES];

struct State<'a> {
    problem: &'a Problem,
    left: Vec<Shares>,
    tiers: Vec<TierId>,
    value: i64,
}

impl State<'_> {
    /// Returns the additional cost of a tier if `come` is added and `go` is removed.
    fn more(&self, tier: TierId, come: &Shares, go: &Shares) -> f64 {
        let t = tier.index();
        let mut after = self.left[t];
        add(&mut after, come, -1.0);
        add(&mut after, go, 1.0);
        self.problem.overload_cost(t, &after) - self.problem.overload_cost(t, &self.left[t])
    }

    /// Puts an item on another tier; `gain` is the gain in value.
    fn put(&mut self, item: usize, tier: TierId, gain: i64) {
        let from = self.tiers[item];
        self.value += gain;
        add(
            &mut self.left[from.index()],
            &self.problem.uses(item, from),
            1.0,
        );
        add(
            &mut self.left[tier.index()],
            &self.problem.uses(item, tier),
            -1.0,
        );
        self.tiers[item] = tier;
    }

    /// Moves every item to the best tier with room for it.
    fn move_single_items(&mut self) {
        for item in 0..self.problem.len() {
            let here = self.tiers[item];
            let row = self.problem.row(item);
            let relief = -self.more(here, &NOTHING, &self.problem.uses(item, here));
            let mut best = (GAIN_MIN, here);
            for (t, score) in row.iter().enumerate() {
                let tier = TierId::from_index(t);
                let upper = score - row[here.index()] + steps(relief);
                if tier == here || upper <= best.0 {
                    continue;
                }
                let uses = self.problem.uses(item, tier);
                if fits(&self.problem.overload[t], &self.left[t], &uses) {
                    let gain = upper - steps(self.more(tier, &uses, &NOTHING));
                    if gain > best.0 {
                        best = (gain, tier);
                    }
                }
            }
            if best.1 != here {
                self.put(item, best.1, best.0);
            }
        }
    }

    /// Exchanges items that would be better on a tier without room for the item there that loses least.
    fn exchange_pairs(&mut self) {
        let tiers = self.problem.tiers;
        for to in 0..tiers {
            for from in (0..tiers).filter(|f| *f != to) {
                self.exchange_between(TierId::from_index(from), TierId::from_index(to));
            }
        }
    }

    fn exchange_between(&mut self, from: TierId, to: TierId) {
        let gain_of = |row: &[i64], a: TierId, b: TierId| row[b.index()] - row[a.index()];
        // Items that gain most come first; of the partners, those that lose least.
        let mut eager: Vec<(i64, u32)> = Vec::new();
        let mut partners: Vec<(i64, u32)> = Vec::new();
        for (item, tier) in self.tiers.iter().enumerate() {
            if *tier == from && self.problem.score(item, to).is_some() {
                let gain = gain_of(self.problem.row(item), from, to);
                if gain > 0 {
                    eager.push((gain, item as u32));
                }
            } else if *tier == to && self.problem.score(item, from).is_some() {
                let gain = gain_of(self.problem.row(item), to, from);
                partners.push((gain, item as u32));
            }
        }
        let order = |list: &mut Vec<(i64, u32)>| {
            list.sort_unstable_by_key(|(gain, item)| (std::cmp::Reverse(*gain), *item));
        };
        order(&mut eager);
        order(&mut partners);
        for (gain, item) in eager {
            let item = item as usize;
            let uses_to = self.problem.uses(item, to);
            let uses_from = self.problem.uses(item, from);
            // An exchange removes at most all overload of both tiers.
            let relief: f64 = [from, to]
                .map(|t| self.problem.overload_cost(t.index(), &self.left[t.index()]))
                .iter()
                .sum();
            let mut tried = 0;
            for (loss, other) in &partners {
                let other = *other as usize;
                if gain + loss + steps(relief) <= GAIN_MIN || tried == PARTNERS_MAX {
                    break; // all further partners lose more
                }
                if self.tiers[other] != to {
                    continue; // it has already left
                }
                tried += 1;
                let back = self.problem.uses(other, from);
                let freed = self.problem.uses(other, to);
                if !self.room(to, &uses_to, &freed) || !self.room(from, &back, &uses_from) {
                    continue;
                }
                let more = self.more(to, &uses_to, &freed) + self.more(from, &back, &uses_from);
                let gain = gain + loss - steps(more);
                if gain > GAIN_MIN {
                    self.put(item, to, gain);
                    self.put(other, from, 0);
                    break;
                }
            }
        }
    }

    /// Returns true if a tier's hard limits allow `come` after `go` has left.
    fn room(&self, tier: TierId, come: &Shares, go: &Shares) -> bool {
        let (left, overload) = (
            &self.left[tier.index()],
            &self.problem.overload[tier.index()],
        );
        (0..RESOURCES).all(|k| overload[k].is_finite() || come[k] <= left[k] + go[k] + SLACK)
    }
}
