//! Random numbers with normal and Poisson distribution.

use crate::Rng;

/// Mean from which on draws use rejection; below it they use inversion.
const INVERSION_MEAN_MAX: f64 = 10.0;

impl Rng {
    /// Draws a normal number with mean 0 and variance 1 (Box and Muller 1958, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Draws a Poisson count with the given mean, exactly distributed: by inversion for small means, by Hörmann's
    /// transformed rejection (PTRS; Insurance: Mathematics and Economics 12, 1993) for others. Zero for means that are
    /// not positive.
    ///
    /// # Panics
    /// For means of 2^31 and more, and for NaN.
    pub fn poisson(&mut self, mean: f64) -> u32 {
        assert!(
            mean < 2_147_483_648.0,
            "a count of mean {mean} does not fit"
        );
        if mean <= 0.0 {
            0
        } else if mean < INVERSION_MEAN_MAX {
            self.poisson_small(mean)
        } else {
            self.poisson_large(mean)
        }
    }

    fn poisson_small(&mut self, mean: f64) -> u32 {
        let uniform = self.unit();
        let mut p = libm::exp(-mean);
        let (mut below, mut count) = (p, 0);
        // Rounding may leave the sum slightly below one. No count for such a mean is near this limit.
        while uniform >= below && count < 200 {
            count += 1;
            p *= mean / f64::from(count);
            below += p;
        }
        count
    }

    fn poisson_large(&mut self, mean: f64) -> u32 {
        let b = 0.931 + 2.53 * libm::sqrt(mean);
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let within = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.unit() - 0.5;
            let v = 1.0 - self.unit();
            let us = 0.5 - u.abs();
            let k = libm::floor((2.0 * a / us + b) * u + mean + 0.43);
            if us >= 0.07 && v <= within {
                return k as u32;
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            let left = libm::log(v * inverse_alpha / (a / (us * us) + b));
            if left <= k * libm::log(mean) - mean - libm::lgamma(k + 1.0) {
                return k as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_draws_have_their_distribution() {
        for (stream, mean) in [0.01, 0.5, 3.0, 9.9, 10.0, 33.0, 400.0, 30_000.0]
            .into_iter()
            .enumerate()
        {
            let mut rng = Rng::new(3, stream as u64);
            let n = 200_000;
            let draws: Vec<f64> = (0..n).map(|_| f64::from(rng.poisson(mean))).collect();
            let average = draws.iter().sum::<f64>() / f64::from(n);
            let variance = draws
                .iter()
                .map(|d| (d - average) * (d - average))
                .sum::<f64>()
                / f64::from(n);
            let error = 4.5 * libm::sqrt(mean / f64::from(n));
            assert!((average - mean).abs() < error, "mean {average} of {mean}");
            // The variance of a sample variance is about (2 + 1/mean) mean^2 / n.
            let error = 4.5 * mean * libm::sqrt((2.0 + 1.0 / mean) / f64::from(n));
            assert!(
                (variance - mean).abs() < error,
                "variance {variance} of {mean}"
            );
            if mean < 50.0 {
                // Single probabilities, against the formula.
                for k in 0..60u32 {
                    let k_f = f64::from(k);
                    let p = libm::exp(k_f * libm::log(mean) - mean - libm::lgamma(k_f + 1.0));
                    let share = draws.iter().filter(|d| **d == k_f).count() as f64 / f64::from(n);
                    let error = 5.0 * libm::sqrt(p / f64::from(n)) + 2e-5;
                    assert!(
                        (share - p).abs() < error,
                        "mean {mean}, count {k}: {share}, not {p}"
                    );
                }
            }
        }
        assert_eq!(Rng::new(1, 1).poisson(0.0), 0);
    }

    #[test]
    fn normal_draws_have_their_moments() {
        let mut rng = Rng::new(5, 0);
        let draws: Vec<f64> = (0..400_000).map(|_| rng.normal()).collect();
        for (power, want) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
            let moment = draws.iter().map(|d| d.powi(power)).sum::<f64>() / draws.len() as f64;
            assert!((moment - want).abs() < 0.06, "moment {power}: {moment}");
        }
    }
}
