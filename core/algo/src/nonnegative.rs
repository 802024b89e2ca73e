//! Linear regression with non-negative weights and ageing data.

use serde::{Deserialize, Serialize};

/// Best non-negative combination of up to `N` predictions, with decreasing weight of the past.
///
/// Weighted least squares on the normal equations, by cyclic coordinate descent (Franc, Hlaváč, Navara: Sequential
/// coordinate-wise algorithm for the non-negative least squares problem, CAIP 2005). A prior pulls towards given
/// weights until there is data. Through it, nearly equal predictions share their weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NonNegativeFit {
    n: usize,
    /// Sum of w·f·f', row by row.
    gram: Vec<f64>,
    /// Sum of w·f·y.
    moments: Vec<f64>,
}

const SWEEPS: usize = 60;
/// Weight of the prior, as a share of the mean diagonal.
const RIDGE: f64 = 1e-3;

impl NonNegativeFit {
    /// Creates a fit for `n` predictions, without data.
    pub fn new(n: usize) -> Self {
        Self {
            n,
            gram: vec![0.0; n * n],
            moments: vec![0.0; n],
        }
    }

    /// Multiplies the weight of all data so far by `keep`.
    pub fn age(&mut self, keep: f64) {
        self.gram.iter_mut().for_each(|g| *g *= keep);
        self.moments.iter_mut().for_each(|m| *m *= keep);
    }

    /// Adds predictions and the observed value.
    #[inline]
    pub fn add(&mut self, predictions: &[f64], came: f64, weight: f64) {
        assert_eq!(predictions.len(), self.n);
        for (i, f) in predictions.iter().enumerate() {
            let wf = weight * f;
            self.moments[i] += wf * came;
            let row = &mut self.gram[i * self.n..(i + 1) * self.n];
            for (g, other) in row.iter_mut().zip(predictions) {
                *g += wf * other;
            }
        }
    }

    /// Returns the weights. Only predictions with a weight in `prior` are used.
    pub fn solve(&self, prior: &[Option<f64>]) -> Vec<f64> {
        assert_eq!(prior.len(), self.n);
        let diagonal: f64 =
            (0..self.n).map(|i| self.gram[i * self.n + i]).sum::<f64>() / self.n as f64;
        let ridge = (RIDGE * diagonal).max(1e-12);
        let mut weights: Vec<f64> = prior.iter().map(|p| p.unwrap_or(0.0)).collect();
        for _ in 0..SWEEPS {
            for i in 0..self.n {
                let Some(wanted) = prior[i] else {
                    continue;
                };
                let row = &self.gram[i * self.n..(i + 1) * self.n];
                let predicted: f64 = row.iter().zip(&weights).map(|(g, w)| g * w).sum();
                let others = predicted - row[i] * weights[i];
                let best = (self.moments[i] + ridge * wanted - others) / (row[i] + ridge);
                weights[i] = best.max(0.0);
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn fit_finds_the_combination_with_nonnegative_weights() {
        let mut rng = Rng::new(4, 4);
        let mut fit = NonNegativeFit::new(3);
        let mut negative = NonNegativeFit::new(3);
        for _ in 0..5000 {
            let f = [rng.unit(), rng.unit(), rng.unit()];
            fit.add(&f, 0.7 * f[0] + 0.2 * f[2] + 0.01 * rng.normal(), 1.0);
            negative.add(&f, f[0] - 0.5 * f[1], 1.0);
        }
        let weights = fit.solve(&[Some(0.3), Some(0.3), Some(0.3)]);
        for (got, want) in weights.iter().zip([0.7, 0.0, 0.2]) {
            assert!((got - want).abs() < 0.01, "{weights:?}");
        }
        // Best combination without a negative weight, by a grid search with steps of 0.02.
        let weights = negative.solve(&[Some(0.0), Some(0.0), Some(0.0)]);
        let loss = |w: &[f64]| {
            let quadratic: f64 = (0..9)
                .map(|at| negative.gram[at] * w[at / 3] * w[at % 3])
                .sum();
            let linear: f64 = (0..3).map(|i| negative.moments[i] * w[i]).sum();
            quadratic - 2.0 * linear
        };
        let grid =
            (0..50usize.pow(3)).map(|i| [i % 50, i / 50 % 50, i / 2500].map(|s| s as f64 * 0.02));
        let best = grid.map(|w| loss(&w)).fold(f64::INFINITY, f64::min);
        assert!(weights.iter().all(|w| *w >= 0.0));
        // The small prior shifts it slightly.
        assert!(
            loss(&weights) <= best + 1e-3 * best.abs(),
            "{weights:?}: {} {best}",
            loss(&weights)
        );
    }

    #[test]
    fn prior_applies_without_data_and_omitted_terms_stay_zero() {
        let mut fit = NonNegativeFit::new(2);
        assert_eq!(fit.solve(&[Some(0.25), Some(0.75)]), [0.25, 0.75]);
        fit.add(&[1.0, 1.0], 1.0, 1.0);
        let weights = fit.solve(&[None, Some(0.0)]);
        assert_eq!(weights[0], 0.0);
        assert!((weights[1] - 1.0).abs() < 0.01);
    }

    #[test]
    fn old_samples_count_less() {
        let mut fit = NonNegativeFit::new(1);
        fit.add(&[1.0], 1.0, 1.0);
        fit.age(0.5);
        fit.add(&[1.0], 0.0, 1.0);
        assert!((fit.solve(&[Some(0.0)])[0] - 1.0 / 3.0).abs() < 1e-2);
    }
}
