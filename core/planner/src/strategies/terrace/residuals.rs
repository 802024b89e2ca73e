//! Intervals of predictions from the errors of earlier ones.
//!
//! The *residual* of a completed move is the logarithm of measured over predicted mean latency: positive means slower than
//! predicted. Residuals are stored by *cell*: target tier, predicted load of the target, and direction. An interval is
//! `[prediction × exp(low), prediction × exp(high)]`. Centre and scale of the cell are shrunk towards those of its regime
//! and direction, and the quantiles are those of the standardized residuals of that parent (split conformal prediction,
//! centred and scaled).
//!
//! Parents were measured on random arrays that no figure uses. Only chosen moves count, because chosen moves do worse than
//! the candidates from which they were chosen. Shrinking loses the exact guarantee, so the evaluation reports how many
//! intervals hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Largest number of residuals per cell.
const KEPT: usize = 50;
/// Weight of the parent, in residuals.
const KAPPA: f64 = 10.0;
/// Use of the target from which requests queue, and from which it is full.
const QUEUED: f64 = 0.5;
const FULL: f64 = 0.9;

/// Predicted load of the target of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Regime {
    Calm,
    Queued,
    Full,
}

impl Regime {
    /// Regime of a device with this predicted use, for a volume whose present device has this use.
    pub(super) fn of(rho: f64, here: f64) -> Self {
        match rho {
            _ if rho >= FULL || (rho >= QUEUED && here >= FULL) => Self::Full,
            _ if rho >= QUEUED => Self::Queued,
            _ => Self::Calm,
        }
    }
}

/// Group of similar predictions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    /// Name of the target tier.
    pub tier: String,
    pub regime: Regime,
    /// True if the volume is predicted to become faster.
    pub faster: bool,
}

impl Cell {
    fn key(&self) -> String {
        let regime = match self.regime {
            Regime::Calm => "calm",
            Regime::Queued => "queued",
            Regime::Full => "full",
        };
        let direction = if self.faster { "up" } else { "down" };
        format!("{regime} {direction} {}", self.tier)
    }

    fn parent(&self) -> &'static Parent {
        &PARENTS[self.regime as usize][usize::from(self.faster)]
    }
}

/// Residuals of a regime and direction: mean, standard deviation, and the 5 % and 95 % quantiles of standardized residuals.
#[derive(Debug, Clone, Copy)]
struct Parent {
    mean: f64,
    sd: f64,
    low: f64,
    high: f64,
}

/// Parents by regime, then for slower and faster targets, from 416 moves on the random arrays 201 to 225 and 231 to 255
/// (seed 1): mean, standard deviation, and the shortest intervals that hold 92 %.
static PARENTS: [[Parent; 2]; 3] = [
    [
        Parent::new(0.03, 0.28, [-0.53, 0.50]),
        Parent::new(0.04, 0.28, [-0.45, 0.50]),
    ],
    [
        Parent::new(-0.20, 0.40, [-0.75, 0.45]),
        Parent::new(0.05, 0.40, [-0.75, 0.60]),
    ],
    [
        Parent::new(0.10, 0.60, [-1.35, 0.75]),
        Parent::new(-0.10, 1.30, [-4.20, 2.00]),
    ],
];

impl Parent {
    /// Parent with these 5 % and 95 % quantiles of residuals.
    const fn new(mean: f64, sd: f64, [low, high]: [f64; 2]) -> Self {
        Self {
            mean,
            sd,
            low: (low - mean) / sd,
            high: (high - mean) / sd,
        }
    }
}

/// Residuals by cell, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Residuals(BTreeMap<String, Vec<f64>>);

impl Residuals {
    /// Adds the residual of a completed move.
    pub(super) fn add(&mut self, cell: &Cell, residual: f64) {
        let own = self.0.entry(cell.key()).or_default();
        own.push(residual);
        if own.len() > KEPT {
            own.remove(0);
        }
    }

    /// Returns bounds that hold nine of ten outcomes of a prediction.
    pub(super) fn bounds(&self, cell: &Cell, prediction: f64) -> (f64, f64) {
        let own = self.0.get(&cell.key()).map_or(&[][..], Vec::as_slice);
        let (low, high) = interval(own, cell.parent());
        (prediction * libm::exp(low), prediction * libm::exp(high))
    }
}

/// Returns the bounds of a residual: centre and scale shrunk towards the parent, times the parent's standardized quantiles.
fn interval(own: &[f64], parent: &Parent) -> (f64, f64) {
    let n = own.len() as f64;
    let mean = own.iter().sum::<f64>() / n.max(1.0);
    let variance = own.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / n.max(1.0);
    let shrunk = |own: f64, parent: f64| (n * own + KAPPA * parent) / (n + KAPPA);
    let centre = shrunk(mean, parent.mean);
    let scale = libm::sqrt(shrunk(variance, parent.sd * parent.sd));
    (centre + scale * parent.low, centre + scale * parent.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vector of section 3 of the method's description, computed there by an independent program.
    #[test]
    fn interval_shrinks_towards_its_parent() {
        let parent = Parent {
            mean: 0.0479,
            sd: 0.2891,
            low: -1.619,
            high: 2.602,
        };
        let (low, high) = interval(&[0.30, 0.42, 0.55, 0.61, 0.90], &parent);
        assert!((low + 0.209).abs() < 1e-3, "{low}");
        assert!((high - 0.903).abs() < 1e-3, "{high}");
        let (low, high) = interval(&[], &parent);
        assert!((low - (0.0479 - 0.2891 * 1.619)).abs() < 1e-9, "{low}");
        assert!((high - (0.0479 + 0.2891 * 2.602)).abs() < 1e-9, "{high}");
    }

    #[test]
    fn residuals_belong_to_their_cell_and_old_ones_are_dropped() {
        let cell = |tier: &str| Cell {
            tier: tier.into(),
            regime: Regime::Calm,
            faster: true,
        };
        let mut residuals = Residuals::default();
        let before = residuals.bounds(&cell("a"), 100.0);
        (0..2 * KEPT).for_each(|_| residuals.add(&cell("a"), 0.0));
        let after = residuals.bounds(&cell("a"), 100.0);
        assert!(
            after.1 - after.0 < before.1 - before.0,
            "{before:?} {after:?}"
        );
        assert_eq!(residuals.bounds(&cell("b"), 100.0), before);
        assert!(residuals.0.values().all(|own| own.len() == KEPT));
    }
}
