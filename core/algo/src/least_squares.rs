//! Non-linear least squares (Levenberg and Marquardt), small and deterministic: a dozen parameters, numeric
//! derivatives.
//!
//! Work is bounded by rounds, never by time. Nothing is random, so equal inputs give equal bits.

/// Step of the numeric derivative. Parameters should be of the order of one (logarithms).
const STEP: f64 = 1e-5;
/// Damping beyond which no step can help.
const DAMPING_MAX: f64 = 1e10;
/// Relative decrease of the cost below which a round is the last one.
const GAIN_MIN: f64 = 1e-10;

/// Returns parameters that minimize the sum of squared `residuals`, starting from `start`.
///
/// `residuals` must always return the same number of values. Values that are not finite reject a step, which is then
/// reduced. At most `rounds_max` rounds, each with as many evaluations as there are parameters, plus a few.
pub fn least_squares(
    start: &[f64],
    rounds_max: u32,
    residuals: impl Fn(&[f64]) -> Vec<f64>,
) -> Vec<f64> {
    let cost = |r: &[f64]| r.iter().map(|v| v * v).sum::<f64>();
    let mut at = start.to_vec();
    let mut now = residuals(&at);
    let mut damping = 1e-3;
    for _ in 0..rounds_max {
        let columns: Vec<Vec<f64>> = (0..at.len())
            .map(|j| {
                let mut beside = at.clone();
                beside[j] += STEP;
                residuals(&beside)
                    .iter()
                    .zip(&now)
                    .map(|(b, n)| (b - n) / STEP)
                    .collect()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let normal: Vec<Vec<f64>> = columns
            .iter()
            .map(|a| columns.iter().map(|b| dot(a, b)).collect())
            .collect();
        let gradient: Vec<f64> = columns.iter().map(|c| -dot(c, &now)).collect();
        let before = cost(&now);
        let mut better = None;
        while better.is_none() && damping < DAMPING_MAX {
            let mut damped = normal.clone();
            for (j, row) in damped.iter_mut().enumerate() {
                // A parameter without effect has no curvature of its own.
                row[j] += damping * row[j].max(1e-9);
            }
            if let Some(step) = solve(damped, gradient.clone()) {
                let next: Vec<f64> = at.iter().zip(&step).map(|(a, s)| a + s).collect();
                let there = residuals(&next);
                // A cost that is not a number is not smaller.
                if cost(&there) < before {
                    better = Some((next, there));
                    damping = (damping / 5.0).max(1e-12);
                    continue;
                }
            }
            damping *= 4.0;
        }
        let Some((next, there)) = better else { break };
        (at, now) = (next, there);
        if before - cost(&now) <= GAIN_MIN * before {
            break;
        }
    }
    at
}

/// Solves a linear system by Gauss elimination with row exchange; `None` for a singular system.
fn solve(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for column in 0..n {
        let largest = (column..n).max_by(|a, b| {
            rows[*a][column]
                .abs()
                .total_cmp(&rows[*b][column].abs())
                .then(b.cmp(a))
        })?;
        rows.swap(column, largest);
        right.swap(column, largest);
        let pivot = rows[column][column];
        if !pivot.is_finite() || pivot == 0.0 {
            return None;
        }
        for below in column + 1..n {
            let factor = rows[below][column] / pivot;
            let (upper, lower) = rows.split_at_mut(below);
            for (value, above) in lower[0].iter_mut().zip(&upper[column]).skip(column) {
                *value -= factor * above;
            }
            right[below] -= factor * right[column];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| rows[i][j] * right[j]).sum();
        right[i] = (right[i] - known) / rows[i][i];
    }
    right.iter().all(|v| v.is_finite()).then_some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_parameters_are_found_from_a_distant_start() {
        let truth = |x: f64| 5.0 * libm::exp(-0.7 * x) + 2.0;
        let points: Vec<(f64, f64)> = (0..20)
            .map(|i| f64::from(i) * 0.3)
            .map(|x| (x, truth(x)))
            .collect();
        let found = least_squares(&[1.0, 0.1, 0.0], 200, |p| {
            points
                .iter()
                .map(|(x, y)| p[0] * libm::exp(-p[1] * x) + p[2] - y)
                .collect()
        });
        for (got, want) in found.iter().zip([5.0, 0.7, 2.0]) {
            assert!((got - want).abs() < 1e-5, "{found:?}");
        }
    }

    #[test]
    fn parameter_without_effect_is_unchanged() {
        let found = least_squares(&[0.0, 7.0], 50, |p| vec![p[0] - 3.0]);
        assert!(
            (found[0] - 3.0).abs() < 1e-6 && (found[1] - 7.0).abs() < 1e-6,
            "{found:?}"
        );
    }

    #[test]
    fn steps_to_undefined_values_are_rejected() {
        // The square root exists only above zero, and the step from 4 would overshoot.
        let found = least_squares(&[4.0], 100, |p| vec![p[0].sqrt() - 0.1]);
        assert!((found[0] - 0.01).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn systems_with_zero_diagonal_or_without_solution_are_handled() {
        let found = solve(vec![vec![0.0, 2.0], vec![3.0, 0.0]], vec![4.0, 9.0]).unwrap();
        assert_eq!(found, [3.0, 2.0]);
        assert!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 2.0]).is_none());
    }
}
