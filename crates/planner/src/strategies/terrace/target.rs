//! Where volumes would best be, whatever the order in which they get there: the moves of a plan are those towards it.
//!
//! A move that is worth most by itself may stand in the way of a better placement of all. So the placement is looked for first, by local search, in
//! which every step may take an earlier one back: volumes count by where they are now and where they end.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::placement::Placement;
use super::search::{Moved, Search};
use super::seen::Seen;
use super::ways::Goal;

/// Steps of one search.
const STEPS_MAX: usize = 48;

/// Steps by how much better they make the placement, weighted seconds over the horizon.
struct Better<'s, 'a> {
    search: &'s Search<'a>,
    at: &'s Placement,
    seen: &'s Seen<f64>,
    prices: &'s RefCell<BTreeMap<(usize, usize), f64>>,
}

impl Better<'_, '_> {
    /// What it costs that a volume is there in the end.
    fn price(&self, v: usize, d: usize) -> f64 {
        let search = self.search;
        if search.at.of[v] == d {
            return 0.0;
        }
        let compute = || {
            let m = Moved::to(v, d);
            search.copy_price(&m, search.copies_s(v, d))
        };
        *self
            .prices
            .borrow_mut()
            .entry((v, d))
            .or_insert_with(compute)
    }

    /// At most the price of the reserve that is given back when a volume leaves its place.
    fn reserve_refund(&self, v: usize) -> f64 {
        let search = self.search;
        let d = self.at.of[v];
        let in_use = (search.reserve[d] - self.at.free[d]).max(0);
        let bytes = in_use.min(search.forecast.size(v));
        search.config.rates.reserve * bytes as f64 / (1u64 << 30) as f64
    }

    /// Seconds of copying that it takes.
    fn copies_s(&self, v: usize, d: usize) -> f64 {
        match self.search.at.of[v] == d {
            true => 0.0,
            false => self.search.copies_s(v, d),
        }
    }
}

impl Goal for Better<'_, '_> {
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

    fn at_most(&self, moves: &[Moved], less: f64) -> f64 {
        let more = |m: &Moved| {
            let bytes = match m.to.index() == self.search.at.of[m.volume] {
                true => 0.0,
                false => self.search.bytes_price(m.volume),
            };
            bytes - self.price(m.volume, self.at.of[m.volume]) - self.reserve_refund(m.volume)
        };
        less * self.search.horizon_s() - moves.iter().map(more).sum::<f64>()
    }

    fn worth(&self, moves: &[Moved]) -> Option<f64> {
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
            // A copy that is not to be made after all gives no time back.
            let left_s = (self.search.horizon_s() - copies_s.max(0.0)).max(0.0);
            let worth = Some(rate * left_s - price).filter(|worth| *worth > 0.0)?;
            self.search.harms(self.at, moves).is_none().then_some(worth)
        };
        self.seen.worth(self.at, moves, compute)
    }
}

impl Search<'_> {
    /// The device that each volume should be on.
    pub(super) fn target(&self) -> Vec<usize> {
        let mut at = self.at.clone();
        let mut seen = Seen::new(at.of.len(), at.on.len());
        let prices = RefCell::default();
        for _ in 0..STEPS_MAX {
            let better = Better {
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
        // What is nearly as good as the best stays as it is.
        let cost = |at: &Placement| at.on.iter().map(|crowd| self.mean(&crowd.now)).sum::<f64>();
        let now = cost(&self.at);
        match now - cost(&at) > self.config.rates.least * now {
            true => at.of,
            false => self.at.of.clone(),
        }
    }
}
