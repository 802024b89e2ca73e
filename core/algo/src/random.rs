//! Seeded randomness.
//!
//! Two forms: [`mix`] turns a (stream, counter) pair into 64 random bits without state, so that request number n of a
//! source draws the same service-time factor whichever strategy is running (common random numbers); [`Rng`] is the
//! same function with its own counter.

/// Finalizer of Stafford's variant 13 over a Weyl sequence (the construction known as SplitMix64; Steele, Lea, Flood,
/// OOPSLA 2014).
#[inline]
pub fn mix(stream: u64, counter: u64) -> u64 {
    let mut z = stream.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of random numbers; equal seeds give equal streams. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    stream: u64,
    counter: u64,
}

impl Rng {
    /// The stream `stream` of `seed`; different streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            stream: mix(mix(seed, 0x5EED), stream),
            counter: 0,
        }
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let bits = mix(self.stream, self.counter);
        self.counter = self.counter.wrapping_add(1);
        bits
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Uniform in 0..n (n > 0), by multiplication; the bias is below n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }
}

/// The top 53 bits as a fraction in [0, 1).
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Factors by which like things differ: 1,024 equally likely quantiles of a distribution with mean 1 (log-normal for
/// service times, exponential for think times).
#[derive(Debug, Clone)]
pub struct JitterTable(Box<[f32]>);

impl JitterTable {
    const LEN: usize = 1024;

    /// For a log-normal sigma; 0 makes every factor 1.
    pub fn new(sigma: f64) -> Self {
        Self::from_quantiles(|p| libm::exp(sigma * normal_quantile(p)))
    }

    /// Quantiles of an exponential distribution with mean 1 instead.
    pub fn exponential() -> Self {
        Self::from_quantiles(|p| -libm::log(1.0 - p))
    }

    fn from_quantiles(quantile: impl Fn(f64) -> f64) -> Self {
        let mut factors: Vec<f64> = (0..Self::LEN)
            .map(|i| quantile((i as f64 + 0.5) / Self::LEN as f64))
            .collect();
        let mean = factors.iter().sum::<f64>() / Self::LEN as f64;
        factors.iter_mut().for_each(|f| *f /= mean);
        Self(factors.into_iter().map(|f| f as f32).collect())
    }

    /// The factor that random bits select.
    #[inline]
    pub fn factor(&self, bits: u64) -> f64 {
        f64::from(self.0[(bits >> 54) as usize & (Self::LEN - 1)])
    }
}

/// The standard normal distribution function.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// Inverse of the standard normal distribution function, by bisection of erfc: exact to about 1e-12, for tables only.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..50 {
        let mid = 0.5 * (low + high);
        if normal_cdf(mid) < p {
            low = mid;
        } else {
            high = mid;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_streams_are_reproducible_and_uniform() {
        let mut rng = Rng::new(7, 3);
        let mut again = Rng::new(7, 3);
        let mut other = Rng::new(7, 4);
        let draws: Vec<u64> = (0..1000).map(|_| rng.next_u64()).collect();
        assert!(draws.iter().all(|d| *d == again.next_u64()));
        assert!(draws.iter().any(|d| *d != other.next_u64()));
        let mean = (0..100_000).map(|_| rng.unit()).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let mean = (0..100_000).map(|_| rng.exponential()).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((0..10_000).all(|_| rng.below(7) < 7));
    }

    #[test]
    fn jitter_has_mean_one_and_the_quantiles_of_its_distribution() {
        let table = JitterTable::new(0.5);
        let mean = table.0.iter().map(|f| f64::from(*f)).sum::<f64>() / 1024.0;
        assert!((mean - 1.0).abs() < 1e-6, "{mean}");
        assert!((normal_quantile(0.975) - 1.959_963_985).abs() < 1e-8);
        let ratio = f64::from(table.0[1000]) / f64::from(table.0[512]);
        let want =
            libm::exp(0.5 * (normal_quantile(1000.5 / 1024.0) - normal_quantile(512.5 / 1024.0)));
        assert!((ratio - want).abs() < 1e-4, "{ratio} {want}");
        assert!(JitterTable::new(0.0).0.iter().all(|f| *f == 1.0));
    }
}
