//! What a hit is worth, in I/Os of movement.

use serde::{Deserialize, Serialize};

use super::{ExtentNo, FastSet, Heat, Terms};

/// Keeps an eye on how many requests find their extent on the fast tier and on how much is moved.
///
/// Total performance is P(r)/(1 + M) with P = 1/(r/ρ + 1 − r) (paper 1's formula with the reading of its M that this project
/// prefers). One more hit among n requests raises its logarithm by P·(1 − 1/ρ)/n, one more I/O of movement lowers it by
/// 1/((1 + M)·n): so a hit is worth P·(1 − 1/ρ)·(1 + M) I/Os of movement. Where most requests are hits already, each further one
/// is worth a lot, since what is left on the slow tier is the bottleneck.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Worth {
    /// What was on the fast tier in the interval that runs.
    fast: FastSet,
    /// Moves that were decided for it.
    moves: f64,
    /// Requests, hits and movement I/Os, each an average.
    requests: f64,
    hits: f64,
    movement: f64,
}

/// Half of what is known is from the last `1 / GAIN` slots or so.
const GAIN: f64 = 1.0 / 8.0;

impl Worth {
    pub(crate) fn observe(&mut self, heat: &Heat<'_>, terms: &Terms) {
        let total: f64 = heat.touched.iter().map(|(_, n)| f64::from(*n)).sum();
        if total == 0.0 || self.fast.is_empty() {
            return;
        }
        let on_fast = heat
            .touched
            .iter()
            .filter(|(no, _)| self.fast.contains(*no));
        let hits: f64 = on_fast.map(|(_, n)| f64::from(*n)).sum();
        let gain = if self.requests == 0.0 { 1.0 } else { GAIN };
        self.requests += gain * (total - self.requests);
        self.hits += gain * (hits - self.hits);
        self.movement += gain * (self.moves * terms.ios_per_move() - self.movement);
        self.moves = 0.0;
    }

    pub(crate) fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        if !self.fast.is_empty() {
            self.fast = self.fast.renumbered(from);
        }
    }

    pub(crate) fn decided(&mut self, before: &FastSet, fast: &FastSet) {
        self.moves +=
            f64::from(fast.difference_count(before)) + f64::from(before.difference_count(fast));
        self.fast.clone_from(fast);
    }

    /// I/Os of movement that one hit is worth.
    pub(crate) fn of_a_hit(&self, terms: &Terms) -> f64 {
        if self.requests == 0.0 {
            return 1.0;
        }
        let r = self.hits / self.requests;
        let storage = 1.0 / (r / terms.speed_ratio + 1.0 - r);
        storage * (1.0 - 1.0 / terms.speed_ratio) * (1.0 + self.movement / self.requests)
    }
}
