//! Best placement of all volumes, whatever the order of moves; the moves of a plan lead towards it.
//!
//! The move with the highest value by itself may prevent a better placement of all volumes. So the placement is searched
//! first, by local search. Every step may undo an earlier one: only the present and the final device of a volume count.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::placement::Placement;
use super::search::{Search, UnitMove};
use super::seen::MoveCache;
use super::ways::Goal;

/// Largest number of steps of one search.
const STEPS_MAX: usize = 48;

/// Steps by the improvement of the placement, weighted seconds over the horizon.
struct ImprovementSteps<'s, 'a> {
    search: &'s Search<'a>,
    at: &'s Placement,
    seen: &'s MoveCache<f64>,
    prices: &'s RefCell<BTreeMap<(usize, usize), f64>>,
}

impl ImprovementSteps<'_, '_> {
    /// Returns the cost of the copy if the volume ends on this device.
    fn price(&self, v: usize, d: usize) -> f64 {
        let search = self.search;
        if search.at.of[v] == d {
            return 0.0;
        }
        let compute = || {
            let m = UnitMove::to(v, d);
            search.copy_price(&m, search.copies_s(v, d))
        };
        *self
            .prices
            .borrow_mut()
            .entry((v, d))
            .or_insert_with(compute)
    }

    /// Returns an upper bound of the price of the reserve that a volume frees when it leaves its device.
    fn reserve_refund(&self, v: usize) -> f64 {
        let search = self.search;
        let d = self.at.of[v];
        let in_use = (search.reserve[d] - self.at.free[d]).max(0);
        let bytes = in_use.min(search.forecast.size(v));
        search.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64
    }

    /// Returns the seconds of copying if the volume ends on this device.
    fn copies_s(&self, v: usize, d: usize) -> f64 {
        match self.search.at.of[v] == d {
            true => 0.0,
            false => self.search.copies_s(v, d),
        }
    }
}

impl Goal for ImprovementSteps<'_, '_> {
    fn reach(&self, v: usize) -> Vec<usize> {
        self.search.reach(self.at, v)
    }

    fn most(&self, v: usize, relief: f64) -> f64 {
        let refund = self.price(v, self.at.of[v]) + self.reserve_refund(v);
        let bytes = match self.at.of[v] == self.search.at.of[v] {
            true => self.search.bytes_price(v),
            false => 0.0,
        };
        relief * self.search.horizon_s() + refund - bytes
    }

    fn at_most(&self, moves: &[UnitMove], less: f64) -> f64 {
        let more = |m: &UnitMove| {
            let bytes = match m.to.index() == self.search.at.of[m.volume] {
                true => 0.0,
                false => self.search.bytes_price(m.volume),
            };
            bytes - self.price(m.volume, self.at.of[m.volume]) - self.reserve_refund(m.volume)
        };
        less * self.search.horizon_s() - moves.iter().map(more).sum::<f64>()
    }

    fn worth(&self, moves: &[UnitMove]) -> Option<f64> {
        let compute = || {
            let (gains, surge) = self.search.gains(self.at, moves);
            let rate = self.search.mixed(self.search.known(&gains).0, surge);
            let mut price = self.search.reserve_price(self.at, moves);
            let mut copies_s = 0.0;
            for m in moves {
                let (v, from, to) = (m.volume, self.at.of[m.volume], m.to.index());
                price += self.price(v, to) - self.price(v, from);
                copies_s += self.copies_s(v, to) - self.copies_s(v, from);
            }
            // A copy that is no longer needed does not extend the horizon.
            let left_s = (self.search.horizon_s() - copies_s.max(0.0)).max(0.0);
            let worth = Some(rate * left_s - price).filter(|worth| *worth > 0.0)?;
            self.search.harms(self.at, moves).is_none().then_some(worth)
        };
        self.seen.worth(self.at, moves, compute)
    }
}

impl Search<'_> {
    /// Returns the best device of each volume.
    pub(super) fn target(&self) -> Vec<usize> {
        let mut at = self.at.clone();
        let mut seen = MoveCache::new(at.of.len(), at.on.len());
        let prices = RefCell::default();
        for _ in 0..STEPS_MAX {
            let better = ImprovementSteps {
                search: self,
                at: &at,
                seen: &seen,
                prices: &prices,
            };
            let Some(moves) = self.step(&at, &seen, &better) else {
                break;
            };
            let touched = at.make(&self.forecast, &moves);
            seen.forget(&touched, &at);
        }
        // A placement that is only slightly better is not worth any move.
        let cost = |at: &Placement| at.on.iter().map(|crowd| self.mean(&crowd.now)).sum::<f64>();
        let now = cost(&self.at);
        match now - cost(&at) > self.config.rates.least * now {
            true => at.of,
            false => self.at.of.clone(),
        }
    }
}
