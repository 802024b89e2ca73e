//! Exponentially weighted moving averages of many things, of which few are touched at a time.

use serde::{Deserialize, Serialize};

use crate::packed;

/// An average per extent, all with the same half-life: `average ← a·average + (1 − a)·new` in every interval, with zero where
/// an extent had nothing.
///
/// Decay costs nothing: instead of multiplying everything by `a`, what is new is added with a weight that grows by `1/a` each
/// interval, so only what was touched is written. When the weight has grown by 2^60, all is divided by it once (exactly: by a
/// power of two). Single precision: an average is good to about 1e-6 of the largest that it ever was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Averages {
    /// What is left of an average after an interval, 0..1.
    keep: f64,
    /// Weight of what is new.
    weight: f64,
    #[serde(with = "packed::f32s")]
    scaled: Vec<f32>,
}

const WEIGHT_MAX: f64 = (1u64 << 60) as f64;

impl Averages {
    /// All zero. After `half_life` intervals without requests an average has halved.
    pub fn new(len: u32, half_life: f64) -> Self {
        Self {
            keep: Self::keep_of(half_life),
            weight: 1.0,
            scaled: vec![0.0; len as usize],
        }
    }

    /// What is left of an average after one interval.
    pub fn keep_of(half_life: f64) -> f64 {
        assert!(half_life > 0.0, "a half-life is longer than nothing");
        libm::exp2(-1.0 / half_life)
    }

    /// Takes in an interval: what each extent had, of those that had anything.
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

    /// The average of `no`, per interval.
    #[inline]
    pub fn get(&self, no: u32) -> f64 {
        f64::from(self.scaled[no as usize]) / self.weight
    }

    /// All of them, undivided, and what to divide by.
    pub fn scaled(&self) -> (&[f32], f64) {
        (&self.scaled, self.weight)
    }

    /// The averages of the same extents under new numbers: `from[i]` is the old number of the new `i`.
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
    fn same_as_decaying_everything() {
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
