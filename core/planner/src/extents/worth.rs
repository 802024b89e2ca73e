//! Value of a hit, in I/Os of movement.

use serde::{Deserialize, Serialize};

use super::{ExtentNo, FastSet, Heat, Terms};

/// Tracks the number of requests that find their extent on the fast tier, and the amount of movement.
///
/// Total performance is P(r)/(1 + M) with P = 1/(r/ρ + 1 − r) (paper 1's formula, with the reading of its M that this
/// project prefers). One more hit among n requests raises its logarithm by P·(1 − 1/ρ)/n. One more I/O of movement lowers it
/// by 1/((1 + M)·n). So a hit is worth P·(1 − 1/ρ)·(1 + M) I/Os of movement. If most requests are hits already, each further
/// hit is worth a lot, because the rest on the slow tier is the bottleneck.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Worth {
    /// Extents on the fast tier in the current interval.
    fast: FastSet,
    /// Number of moves decided for the current interval.
    moves: f64,
    /// Requests, hits and movement I/Os per interval, each an average.
    requests: f64,
    hits: f64,
    movement: f64,
}

/// Weight of a slot in the averages: the last `1 / GAIN` slots have about two thirds of the weight.
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

    /// Returns the I/Os of movement that one hit is worth.
    pub(crate) fn of_a_hit(&self, terms: &Terms) -> f64 {
        if self.requests == 0.0 {
            return 1.0;
        }
        let r = self.hits / self.requests;
        let storage = 1.0 / (r / terms.speed_ratio + 1.0 - r);
        storage * (1.0 - 1.0 / terms.speed_ratio) * (1.0 + self.movement / self.requests)
    }
}
