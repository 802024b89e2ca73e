//! Means over seeds with their 95 % intervals.

use serde::Serialize;

/// Mean with its two-sided 95 % interval by Student's t.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Mean over the seeds.
    pub mean: f64,
    /// Lower end.
    pub ci95_low: f64,
    /// Upper end.
    pub ci95_high: f64,
    /// Number of seeds.
    pub n: usize,
}

impl Interval {
    /// Computes the interval of the values; `None` for fewer than two values or a value that is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let half = t_quantile_975(n - 1) * (squares / (n as f64 - 1.0) / n as f64).sqrt();
        Some(Self {
            mean,
            ci95_low: mean - half,
            ci95_high: mean + half,
            n,
        })
    }

    /// Computes the interval of one value per item; `None` if an item has none.
    pub fn over<T>(items: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let values: Option<Vec<f64>> = items.iter().map(of).collect();
        Self::of(&values?)
    }

    /// Computes the interval of gains: ratios minus one. The interval is that of the logarithms, because ratios are
    /// skewed: twice the value in one seed and half in another is no gain.
    pub fn of_gains<T>(items: &[T], ratio: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let of = |item: &T| ratio(item).filter(|r| *r > 0.0).map(libm::log);
        let logs = Self::over(items, of)?;
        let back = |v: f64| libm::exp(v) - 1.0;
        Some(Self {
            mean: back(logs.mean),
            ci95_low: back(logs.ci95_low),
            ci95_high: back(logs.ci95_high),
            n: logs.n,
        })
    }

    /// Returns half of its width.
    pub fn half(&self) -> f64 {
        (self.ci95_high - self.ci95_low) / 2.0
    }
}

/// Returns the probability that |T| is at most `t`, by the finite series for an integer number of degrees of freedom.
fn within(t: f64, freedom: usize) -> f64 {
    let theta = libm::atan(t / (freedom as f64).sqrt());
    let (sin, cos) = (libm::sin(theta), libm::cos(theta));
    // Odd: θ + sin·(cos + 2/3·cos³ + …); even: sin·(1 + 1/2·cos² + …); each term has its power of the cosine.
    let odd = freedom % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    let first = if odd { 3 } else { 2 };
    for k in (first..freedom.saturating_sub(1)).step_by(2) {
        term *= (k as f64 - 1.0) / k as f64 * cos * cos;
        sum += term;
    }
    if odd {
        2.0 / std::f64::consts::PI * (theta + sin * sum)
    } else {
        sin * sum
    }
}

/// Returns the value that T exceeds with a probability of 2.5 %.
fn t_quantile_975(freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if within(middle, freedom) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_match_the_tables() {
        let tables = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (30, 2.042),
            (99, 1.984),
        ];
        for (freedom, expected) in tables {
            let got = t_quantile_975(freedom);
            assert!((got - expected).abs() < 6e-4, "{freedom}: {got}");
        }
    }

    #[test]
    fn interval_of_five_values_matches_the_formula() {
        let i = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((i.mean - 3.0).abs() < 1e-12);
        assert!(
            (i.half() - 2.776_445 * 0.5_f64.sqrt()).abs() < 1e-3,
            "{}",
            i.half()
        );
        assert_eq!(Interval::of(&[1.0]), None);
        assert_eq!(Interval::of(&[1.0, f64::NAN]), None);
        assert_eq!(Interval::over(&[Some(1.0), None], |v| *v), None);
    }

    #[test]
    fn gains_are_averaged_by_their_logarithms() {
        let twice_and_half = Interval::of_gains(&[2.0, 0.5], |r| Some(*r)).unwrap();
        assert!(twice_and_half.mean.abs() < 1e-12);
        let same = Interval::of_gains(&[1.1, 1.1, 1.1], |r| Some(*r)).unwrap();
        assert!((same.mean - 0.1).abs() < 1e-12 && same.half() < 1e-9);
        let skewed = Interval::of_gains(&[50.0, 20.0, 300.0, 90.0, 15.0], |r| Some(*r)).unwrap();
        assert!(skewed.ci95_low > 5.0, "{skewed:?}");
        assert_eq!(Interval::of_gains(&[1.0, 0.0], |r| Some(*r)), None);
    }
}
