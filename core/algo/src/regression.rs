//! Ordinary least squares with one variable.

use serde::{Deserialize, Serialize};

/// Line y = slope·x + intercept, with the statistics for the error of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Slope.
    pub slope: f64,
    /// Value at x = 0.
    pub intercept: f64,
    /// Number of points.
    pub n: u32,
    /// Mean of x.
    pub x_mean: f64,
    /// Sum of squared deviations of x.
    pub sxx: f64,
    /// Residual standard deviation (n − 2 degrees of freedom; 0 for fewer than three points).
    pub sigma: f64,
}

impl Line {
    /// Returns the value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.slope * x + self.intercept
    }

    /// Returns the standard error of the fitted mean at `x`. It grows with the distance from the points.
    pub fn standard_error(&self, x: f64) -> f64 {
        let d = x - self.x_mean;
        self.sigma * (1.0 / f64::from(self.n) + d * d / self.sxx).sqrt()
    }
}

/// Fits a line; `None` with fewer than two distinct x.
pub fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    let x_mean = points.iter().map(|p| p.0).sum::<f64>() / n;
    let y_mean = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - x_mean) * (p.0 - x_mean)).sum();
    if points.len() < 2 || sxx <= 0.0 {
        return None;
    }
    let sxy: f64 = points.iter().map(|p| (p.0 - x_mean) * (p.1 - y_mean)).sum();
    let slope = sxy / sxx;
    let intercept = y_mean - slope * x_mean;
    let residual: f64 = points
        .iter()
        .map(|p| p.1 - slope * p.0 - intercept)
        .map(|r| r * r)
        .sum();
    let sigma = if points.len() > 2 {
        (residual / (n - 2.0)).sqrt()
    } else {
        0.0
    };
    Some(Line {
        slope,
        intercept,
        n: points.len() as u32,
        x_mean,
        sxx,
        sigma,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_line_matches_a_worked_example() {
        let line = fit_line(&[(0.0, 100.0), (50.0, 140.0), (100.0, 180.0)]).unwrap();
        assert!((line.slope - 0.8).abs() < 1e-12 && (line.intercept - 100.0).abs() < 1e-9);
        let latency = line.at(60.0 - 100.0);
        assert!((latency - 68.0).abs() < 1e-9);
        assert_eq!((1e6 / latency).round(), 14_706.0);
        assert!(line.sigma < 1e-9);
    }

    #[test]
    fn uncertainty_grows_with_distance() {
        let line = fit_line(&[(0.0, 99.0), (50.0, 143.0), (100.0, 178.0), (150.0, 222.0)]).unwrap();
        assert!(line.standard_error(-100.0) > 2.0 * line.standard_error(75.0));
        assert!(fit_line(&[(1.0, 2.0)]).is_none());
        assert!(fit_line(&[(1.0, 2.0), (1.0, 3.0)]).is_none());
        assert!(fit_line(&[]).is_none());
    }
}
