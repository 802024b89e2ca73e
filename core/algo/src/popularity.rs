//! Zipf-like popularity of the pages of a footprint, with a table lookup per draw.

/// Draws ranks 0..n with probability falling as (rank+1)^-theta; theta 0 is uniform.
///
/// The inverse of the continuous power law is tabulated at 4,096 points and interpolated. Head and middle follow the
/// law within the table's resolution (1/4096 of the probability mass); this is a load generator, not a statistics
/// package: do not fit theta with it.
#[derive(Debug, Clone)]
pub struct Popularity {
    pages: u64,
    /// Rank as a float at equally spaced cumulative probabilities; empty for a uniform draw.
    inverse: Box<[f64]>,
    /// Multiplier that scatters ranks over the footprint; coprime with `pages`.
    scatter: u64,
}

const POINTS: usize = 4096;

impl Popularity {
    /// Creates the distribution for `pages` pages (at least one) and skew `theta` in 0..=2.
    pub fn new(pages: u64, theta: f64) -> Self {
        assert!(pages > 0, "a footprint has at least one page");
        assert!(
            (0.0..=2.0).contains(&theta),
            "skew {theta} is outside 0..=2"
        );
        let n = pages as f64;
        let inverse = if theta == 0.0 {
            Box::from([])
        } else {
            (0..=POINTS)
                .map(|i| power_law_inverse(i as f64 / POINTS as f64, n, theta))
                .collect()
        };
        let mut scatter = (n * 0.618_033_988_749_895) as u64 | 1;
        while gcd(scatter, pages) != 1 {
            scatter += 2;
        }
        Self {
            pages,
            inverse,
            scatter,
        }
    }

    /// Returns the rank for random bits; 0 is the most popular.
    #[inline]
    pub fn rank(&self, bits: u64) -> u64 {
        if self.inverse.is_empty() {
            return ((u128::from(bits) * u128::from(self.pages)) >> 64) as u64;
        }
        let point = (bits >> 52) as usize;
        let within = ((bits >> 20) & 0xFFFF_FFFF) as f64 * (1.0 / 4_294_967_296.0);
        let (a, b) = (self.inverse[point], self.inverse[point + 1]);
        ((a + (b - a) * within) as u64).min(self.pages - 1)
    }

    /// Returns the page for random bits: ranks scattered over the footprint by a fixed permutation.
    #[inline]
    pub fn page(&self, bits: u64) -> u64 {
        ((u128::from(self.rank(bits)) * u128::from(self.scatter)) % u128::from(self.pages)) as u64
    }
}

/// Returns x − 1 such that the mass of a density ~ x^-theta on [1, n+1] up to x is `p`.
fn power_law_inverse(p: f64, n: f64, theta: f64) -> f64 {
    let top = n + 1.0;
    let x = if (theta - 1.0).abs() < 1e-9 {
        libm::pow(top, p)
    } else {
        let e = 1.0 - theta;
        libm::pow(1.0 + p * (libm::pow(top, e) - 1.0), 1.0 / e)
    };
    x - 1.0
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn skew_concentrates_requests() {
        // Mass of the top tenth of 100,000 pages: (n/10)^(1-theta) - 1 over n^(1-theta) - 1.
        for (theta, want) in [(0.0, 0.1), (0.9, 0.699), (1.2, 0.935)] {
            let pages = 100_000;
            let popularity = Popularity::new(pages, theta);
            let mut rng = Rng::new(1, 1);
            let draws = 100_000;
            let top = (0..draws)
                .filter(|_| popularity.rank(rng.next_u64()) < pages / 10)
                .count();
            let share = top as f64 / f64::from(draws);
            assert!(
                (share - want).abs() < 0.01,
                "theta {theta}: {share}, expected {want}"
            );
        }
    }

    #[test]
    fn scattering_is_a_permutation() {
        for pages in [1, 2, 7, 1000, 4096] {
            let p = Popularity::new(pages, 0.8);
            let mut seen = vec![false; pages as usize];
            for rank in 0..pages {
                let page =
                    ((u128::from(rank) * u128::from(p.scatter)) % u128::from(pages)) as usize;
                assert!(!std::mem::replace(&mut seen[page], true));
            }
        }
        assert_eq!(Popularity::new(5, 1.0).rank(u64::MAX), 4);
    }
}
