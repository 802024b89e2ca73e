//! Improves a placement by moving one item, and by exchanging two.

use units::TierId;

use super::{Placement, Problem, SLACK, Shares, add, fits};

/// Passes over all items; each pass ends sooner when nothing gets better.
const PASSES_MAX: usize = 8;
/// Partners that are tried for an item that finds no room where it would be better off.
const PARTNERS_MAX: usize = 64;

/// Makes a placement better until nothing helps, or the passes are used up.
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
    placement.tiers = state.tiers;
    placement.value = state.value;
}

struct State<'a> {
    problem: &'a Problem,
    left: Vec<Shares>,
    tiers: Vec<TierId>,
    value: i64,
}

impl State<'_> {
    fn put(&mut self, item: usize, tier: TierId) {
        let from = self.tiers[item];
        let row = self.problem.row(item);
        self.value += row[tier.index()] - row[from.index()];
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

    /// Every item to the best tier that has room for it.
    fn move_single_items(&mut self) {
        for item in 0..self.problem.len() {
            let here = self.tiers[item];
            let row = self.problem.row(item);
            let mut best = (row[here.index()], here);
            for (t, score) in row.iter().enumerate() {
                let tier = TierId::from_index(t);
                if *score > best.0 && fits(&self.left[t], &self.problem.uses(item, tier)) {
                    best = (*score, tier);
                }
            }
            if best.1 != here {
                self.put(item, best.1);
            }
        }
    }

    /// For every item that would be better off on a tier without room: with the one that loses least by leaving it.
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
        // Who wants to go, most eager first; and who loses least by coming the other way.
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
            let uses_to = self.problem.uses(item as usize, to);
            let uses_from = self.problem.uses(item as usize, from);
            let mut tried = 0;
            for (loss, other) in &partners {
                if gain + loss <= 0 || tried == PARTNERS_MAX {
                    break; // from here on everybody loses more
                }
                if self.tiers[*other as usize] != to {
                    continue; // it has gone already
                }
                tried += 1;
                let back = self.problem.uses(*other as usize, from);
                let freed = self.problem.uses(*other as usize, to);
                let room = |left: &Shares, freed: &Shares, needed: &Shares| {
                    (0..left.len()).all(|k| needed[k] <= left[k] + freed[k] + SLACK)
                };
                if room(&self.left[to.index()], &freed, &uses_to)
                    && room(&self.left[from.index()], &uses_from, &back)
                {
                    self.put(item as usize, to);
                    self.put(*other as usize, from);
                    break;
                }
            }
        }
    }
}
