//! Price that each extent is worth on the fast tier.
//!
//! Let `y_1, y_2, …` be the expected requests of an extent in the next slots, and `c` the cost of a move in hits. Suppose
//! that a place costs a rent of λ hits per slot. An extent on the slow tier would come at once for any λ up to
//!
//! ```text
//!   min( y_1 , max over h of (y_1 + … + y_h − 2c) / h )        it pays to come, stay for h slots and leave again;
//!                                                              and not to come a slot later
//! ```
//! and an extent on the fast tier would stay for any λ up to
//! ```text
//!   max( y_1 , min over h of (y_1 + … + y_h + 2c) / h )        until it would pay to leave, for h slots, and come again
//! ```
//! where `2c` is `c` at the end of the horizon, because the time after it is unknown. The K extents with the highest prices
//! get the places. So a move is made exactly if its gain until the move back exceeds the cost of both moves. The horizon is
//! one season.

use algo::coarse;

use super::forecast::Forecast;
use super::history::History;
use crate::extents::{ExtentNo, FastSet};

/// Number of extents processed together, so the rows of the history are read as streams.
const BLOCK: usize = 512;

/// Units per hit: prices are integers in this unit.
pub(super) const PRICE_UNIT: f32 = 1024.0;

/// Price of an extent, in fractions of a hit per slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtentPrice {
    pub(super) no: ExtentNo,
    /// Price for the next slot; above zero.
    pub(super) price: u32,
    /// Price for a place over the whole season: mean requests per slot.
    pub(super) lasting: u32,
}

/// Finds all extents with a price above zero, in order.
pub(super) fn prices(
    history: &History,
    forecast: &Forecast,
    fast: &FastSet,
    cost_hits: f64,
    priced: &mut Vec<ExtentPrice>,
) {
    priced.clear();
    let plan = Plan::new(history, forecast, cost_hits);
    let mut block = Block::default();
    let horizon = history.phases() as f32;
    let mut first = 0;
    while first < history.len() {
        let len = BLOCK.min(history.len() - first);
        plan.fill(history, first, len, &mut block);
        for i in 0..len {
            let no = (first + i) as u32;
            let price = if fast.contains(no) {
                block.next[i].max(block.stay[i])
            } else {
                block.next[i].min(block.come[i])
            };
            if price > 0.0 {
                priced.push(ExtentPrice {
                    no,
                    price: quantized(price).max(1),
                    lasting: quantized(block.lasting[i] / horizon),
                });
            }
        }
        first += len;
    }
}

fn quantized(price: f32) -> u32 {
    (price * PRICE_UNIT).min((1u32 << 31) as f32 - 256.0) as u32
}

struct Block {
    /// Near forecast, as a share of all requests.
    near: [f32; BLOCK],
    /// Part of the far forecast that is the same in every slot.
    level: [f32; BLOCK],
    /// Excess of the near over the far forecast.
    excess: [f32; BLOCK],
    /// Requests expected in the next slot.
    next: [f32; BLOCK],
    sum: [f32; BLOCK],
    /// Requests of the far forecast alone, over the season.
    lasting: [f32; BLOCK],
    come: [f32; BLOCK],
    stay: [f32; BLOCK],
}

impl Default for Block {
    fn default() -> Self {
        Self {
            near: [0.0; BLOCK],
            level: [0.0; BLOCK],
            excess: [0.0; BLOCK],
            next: [0.0; BLOCK],
            sum: [0.0; BLOCK],
            lasting: [0.0; BLOCK],
            come: [0.0; BLOCK],
            stay: [0.0; BLOCK],
        }
    }
}

/// Values that are the same for all extents.
struct Plan {
    past: Vec<f32>,
    level_past: f32,
    level_long: f32,
    near_long: f32,
    near_last: f32,
    near_usual: f32,
    /// For each slot ahead: factors of the last season's and of the usual requests, sum of all expected requests, and
    /// remaining share of the excess.
    ahead: Vec<SlotForecast>,
    cost: f32,
}

struct SlotForecast {
    last: f32,
    usual: f32,
    total: f32,
    left: f32,
}

impl Plan {
    fn new(history: &History, forecast: &Forecast, cost_hits: f64) -> Self {
        let phases = history.phases();
        let per = |weight: f64, total: f64| {
            if total > 0.0 {
                (weight / total) as f32
            } else {
                0.0
            }
        };
        let far = forecast.far_weights(phases);
        let window = phases.min(24);
        let window_total: f64 = (1..=window).map(|back| history.past(back).total).sum();
        let (long, scale) = (history.long_total(), history.long.scaled().1);
        let (near_long, near_last, near_usual) = forecast.near_rest();
        let persistence = forecast.persistence();
        let mut left = 1.0;
        let ahead = (0..phases)
            .map(|i| {
                let usual = history.usual(i).total;
                let last = history.past(phases - i).total;
                let expected = if usual > 0.0 { usual } else { long };
                let ahead = SlotForecast {
                    last: per(far.last_season, last),
                    usual: per(far.usual, usual),
                    total: expected as f32,
                    left: left as f32,
                };
                left *= persistence;
                ahead
            })
            .collect();
        Self {
            past: forecast.past_weights(history),
            level_past: per(far.season, window_total),
            level_long: per(far.long, long * scale),
            near_long: per(near_long, long * scale),
            near_last: per(near_last, history.past(phases).total),
            near_usual: per(near_usual, history.usual(0).total),
            ahead,
            cost: cost_hits as f32,
        }
    }

    /// Computes the near forecast of a block, and the part of the far forecast that is the same in every slot.
    fn fill_near(&self, history: &History, first: usize, len: usize, block: &mut Block) {
        // The assertion lets the compiler remove bounds checks and use vector code.
        assert!(len <= BLOCK);
        let long = &history.long.scaled().0[first..][..len];
        for (i, long) in long.iter().enumerate() {
            block.level[i] = self.level_long * long;
            block.near[i] = self.near_long * long;
        }
        for (back, weight) in self.past.iter().enumerate() {
            let codes = &history.past(back + 1).codes[first..][..len];
            for (i, code) in codes.iter().enumerate() {
                let count = coarse::decode(*code);
                block.near[i] += weight * count;
                block.level[i] += self.level_past * count;
            }
        }
        let last = &history.past(history.phases()).codes[first..][..len];
        let usual = &history.usual(0).codes[first..][..len];
        for i in 0..len {
            let (last, usual) = (coarse::decode(last[i]), coarse::decode(usual[i]));
            block.near[i] += self.near_last * last + self.near_usual * usual;
            let far = block.level[i] + self.ahead[0].last * last + self.ahead[0].usual * usual;
            block.excess[i] = block.near[i] - far;
        }
    }

    fn fill(&self, history: &History, first: usize, len: usize, block: &mut Block) {
        assert!(len <= BLOCK);
        self.fill_near(history, first, len, block);
        block.sum.fill(0.0);
        block.lasting.fill(0.0);
        block.come.fill(0.0);
        block.stay.fill(f32::INFINITY);
        let horizon = self.ahead.len();
        for (at, ahead) in self.ahead.iter().enumerate() {
            let last = &history.past(horizon - at).codes[first..][..len];
            let usual = &history.usual(at).codes[first..][..len];
            let undo = if at + 1 == horizon {
                self.cost
            } else {
                2.0 * self.cost
            };
            let per_slot = 1.0 / (at + 1) as f32;
            for i in 0..len {
                let far = block.level[i]
                    + ahead.last * coarse::decode(last[i])
                    + ahead.usual * coarse::decode(usual[i]);
                let expected = ((far + ahead.left * block.excess[i]) * ahead.total).max(0.0);
                block.lasting[i] += far * ahead.total;
                block.sum[i] += expected;
                block.come[i] = block.come[i].max((block.sum[i] - undo) * per_slot);
                block.stay[i] = block.stay[i].min((block.sum[i] + undo) * per_slot);
            }
            if at == 0 {
                block.next[..len].copy_from_slice(&block.sum[..len]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use algo::{HeatCounters, Rng};

    use super::*;
    use crate::extents::Recurrence;

    /// The definition at the top of this file, extent by extent, on the forecast by its definition.
    fn slow(history: &History, forecast: &Forecast, no: usize, resident: bool, cost: f64) -> f64 {
        let n = history.len() as f64;
        let ghosts = forecast.ghosts(history, no);
        let dot =
            |weights: &[f64]| -> f64 { weights.iter().zip(&ghosts).map(|(w, g)| w * g).sum() };
        let near = dot(&forecast.near) / n;
        let phases = history.phases();
        let share = |code: u16, total: f64| {
            if total > 0.0 {
                f64::from(coarse::decode(code)) / total
            } else {
                0.0
            }
        };
        let weights = forecast.far_weights(phases);
        let window: f64 = (1..=24)
            .map(|b| f64::from(coarse::decode(history.past(b).codes[no])))
            .sum();
        let window_total: f64 = (1..=24).map(|b| history.past(b).total).sum();
        let long = history.long.get(no as u32) / history.long_total();
        let far = |i: usize| {
            let (last, usual) = (history.past(phases - i), history.usual(i));
            weights.season * window / window_total
                + weights.long * long
                + weights.last_season * share(last.codes[no], last.total)
                + weights.usual * share(usual.codes[no], usual.total)
        };
        let mut left = 1.0;
        let mut sum = 0.0;
        let (mut come, mut stay, mut first) = (0.0f64, f64::INFINITY, 0.0);
        for i in 0..phases {
            let excess = near - far(0);
            let expected = ((far(i) + left * excess) * history.usual(i).total).max(0.0);
            left *= forecast.persistence();
            sum += expected;
            if i == 0 {
                first = expected;
            }
            let undo = if i + 1 == phases { cost } else { 2.0 * cost };
            let h = (i + 1) as f64;
            come = come.max((sum - undo) / h);
            stay = stay.min((sum + undo) / h);
        }
        if resident {
            first.max(stay)
        } else {
            first.min(come)
        }
    }

    #[test]
    fn prices_follow_their_definition() {
        let (extents, phases) = (700u32, 24);
        let from = vec![None; extents as usize];
        let mut history = History::new(phases);
        history.renumber(&from);
        let mut forecast = Forecast::new(Recurrence::Used, phases);
        let mut heat = HeatCounters::new(extents);
        for h in 0..60u64 {
            let mut rng = Rng::new(5, h);
            for no in 0..extents {
                let recurs = u64::from(no % 24) == h % 24;
                heat.add(
                    no,
                    rng.poisson(30.0 / f64::from(1 + no % 50) + if recurs { 25.0 } else { 0.0 }),
                );
            }
            forecast.learn(&history, &heat);
            history.push(&heat);
            heat.reset();
        }
        let mut fast = FastSet::new(extents);
        (0..extents).filter(|no| no % 3 == 0).for_each(|no| {
            fast.insert(no);
        });
        let mut priced = vec![];
        let mut above_zero = 0;
        for cost in [0.0, 3.0, 40.0] {
            prices(&history, &forecast, &fast, cost, &mut priced);
            for no in 0..extents {
                let want = slow(&history, &forecast, no as usize, fast.contains(no), cost);
                let got = priced
                    .iter()
                    .find(|p| p.no == no)
                    .map_or(0.0, |p| f64::from(p.price) / f64::from(PRICE_UNIT));
                let error = (got - want.max(0.0)).abs();
                assert!(
                    error < 2e-3 + 2e-4 * want,
                    "extent {no}, cost {cost}: {got}, not {want}"
                );
                above_zero += u32::from(want > 0.0);
            }
        }
        assert!(above_zero > extents, "most are worth something");
    }
}
