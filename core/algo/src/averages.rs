//! Exponentially weighted moving averages of many values, few of which change at a time.

use serde::{Deserialize, Serialize};

use crate::packed;

/// Averages per extent with a common half-life: `average ← a·average + (1 − a)·new` in every interval, with zero for
/// extents without requests.
///
/// Decay has no cost: instead of multiplying every average by `a`, new values are added with a weight that grows by
/// `1/a` each interval, so only changed entries are written. When the weight reaches 2^60, all entries are divided by
/// it once (exactly, by a power of two). Single precision: an average is accurate to about 1e-6 of the largest value it
/// ever had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Averages {
    /// Factor by which an average decays in an interval, 0..1.
    keep: f64,
    /// Weight of new values.
    weight: f64,
    #[serde(with = "packed::f32s")]
    scaled: Vec<f32>,
}

const WEIGHT_MAX: f64 = (1u64 << 60) as f64;

impl Averages {
    /// Creates averages that are all zero. After `half_life` intervals without requests an average has halved.
    pub fn new(len: u32, half_life: f64) -> Self {
        Self {
            keep: Self::keep_of(half_life),
            weight: 1.0,
            scaled: vec![0.0; len as usize],
        }
    }

    /// Returns the factor by which an average decays in one interval.
    pub fn keep_of(half_life: f64) -> f64 {
        assert!(half_life > 0.0, "a half-life is longer than nothing");
        libm::exp2(-1.0 / half_life)
    }

    /// Adds an interval: number and count of each extent with requests.
    pub fn observe(&mut self, touched: impl Iterator<Item = (u32, u32)>) {
        self.weight /= self.keep;
        if self.weight > WEIGHT_MAX {
            let shrink = (1.0 / WEIGHT_MAX) as f32;
            self.scaled.iter_mut().for_each(|s| *s *= shrink);
            self.weight /= WEIGHT_MAX;
        }
        let part = (1.0 - self.keep) * self.weight;
        for (no, count) in touched {
            self.scaled[no as usize] += (f64::from(count) * part) as f32;
        }
    }

    /// Returns the average of `no` per interval.
    #[inline]
    pub fn get(&self, no: u32) -> f64 {
        f64::from(self.scaled[no as usize]) / self.weight
    }

    /// Returns all averages, scaled, and the divisor.
    pub fn scaled(&self) -> (&[f32], f64) {
        (&self.scaled, self.weight)
    }

    /// Returns the averages of the same extents under new numbers: `from[i]` is the old number of the new `i`.
    pub fn renumbered(&self, from: &[Option<u32>]) -> Self {
        let carried = |no: &Option<u32>| no.map_or(0.0, |no| self.scaled[no as usize]);
        Self {
            scaled: from.iter().map(carried).collect(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn lazy_averages_match_decaying_all_values() {
        for half_life in [0.5, 3.0, 200.0] {
            let (len, mut rng) = (50u32, Rng::new(9, 0));
            let mut lazy = Averages::new(len, half_life);
            let keep = libm::exp2(-1.0 / half_life);
            let mut plain = vec![0.0f64; len as usize];
            let mut largest = 0.0f64;
            for _ in 0..700 {
                let touched: Vec<(u32, u32)> = (0..len)
                    .filter_map(|no| {
                        let n = rng.poisson(0.3) * rng.below(1000) as u32;
                        (n > 0).then_some((no, n))
                    })
                    .collect();
                lazy.observe(touched.iter().copied());
                plain.iter_mut().for_each(|p| *p *= keep);
                for (no, n) in &touched {
                    plain[*no as usize] += (1.0 - keep) * f64::from(*n);
                }
                largest = plain.iter().fold(largest, |a, b| a.max(*b));
                for no in 0..len {
                    let error = (lazy.get(no) - plain[no as usize]).abs();
                    assert!(error < 2e-6 * largest, "{error} of {largest}");
                }
            }
        }
    }
}
