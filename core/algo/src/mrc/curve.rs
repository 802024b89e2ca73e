//! Miss-ratio curve.

use serde::{Deserialize, Serialize};

/// Number of sizes at which two curves are compared: evenly spaced ones, and as many in geometric steps.
const COMPARED: u32 = 1000;

/// Miss ratio by size of cache, falling.
///
/// Points are joined by lines. A cache of zero blocks always misses; one beyond the last point has the miss ratio of
/// that point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Size in blocks and miss ratio, in order of size; the ratio never rises.
    points: Vec<(u64, f64)>,
    /// Amount of data behind the curve.
    pub confidence: Confidence,
}

/// Amount of data behind a curve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// Number of references that the curve represents.
    pub references: u64,
    /// Number of tracked blocks: all for an exact curve, else the sampled ones; 0 if none was remembered.
    pub blocks: u64,
    /// Largest standard error of the miss ratio over all sizes, from the differences between groups of sampled blocks.
    /// Zero for an exact curve, `None` if unknown. It does not include a bias.
    pub standard_error: Option<f64>,
}

impl Confidence {
    /// Seven eighths of [`crate::mrc::SAMPLED_BLOCKS_MIN`]; a sample needs at least this many tracked blocks.
    pub const BLOCKS_MIN: u64 = super::SAMPLED_BLOCKS_MIN / 8 * 7;

    /// Returns true if at least [`Confidence::BLOCKS_MIN`] blocks were tracked. Below that an exact curve is better,
    /// and cheap.
    ///
    /// A sample of exactly that size is usually slightly smaller, because all blocks of its highest hash are removed at
    /// once. With pages of 4 KiB, about 32 pages of 2 TiB have one hash, and a thousand pages of 64 TiB.
    pub fn enough_blocks(&self) -> bool {
        self.blocks >= Self::BLOCKS_MIN
    }
}

/// Error of a curve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveError {
    /// Mean absolute difference at evenly spaced sizes up to the end of the true curve: the MAE of publications.
    pub mean: f64,
    /// Largest absolute difference, also at sizes in geometric steps, so that small caches count.
    pub max: f64,
}

impl Curve {
    /// Creates a curve through points in order of size. Ratios are clamped to 0..=1, and made falling by the minimum so
    /// far.
    pub fn new(points: impl IntoIterator<Item = (u64, f64)>, confidence: Confidence) -> Self {
        let mut out: Vec<(u64, f64)> = Vec::new();
        let mut least = 1.0;
        for (size, ratio) in points {
            if ratio.is_nan() {
                continue;
            }
            least = f64::min(least, ratio.max(0.0));
            match out.last_mut() {
                Some(last) if last.0 >= size => last.1 = least,
                _ => out.push((size, least)),
            }
        }
        Self {
            points: out,
            confidence,
        }
    }

    /// Returns the points.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// Returns the size beyond which the known miss ratio does not fall.
    pub fn size_max(&self) -> u64 {
        self.points.last().map_or(0, |p| p.0)
    }

    /// Returns the miss ratio of a cache of `size` blocks.
    pub fn at(&self, size: u64) -> f64 {
        let behind = self.points.partition_point(|p| p.0 < size);
        let (x0, y0) = match behind.checked_sub(1) {
            Some(i) => self.points[i],
            None => (0, 1.0),
        };
        match self.points.get(behind) {
            Some((x1, y1)) if *x1 == size || *x1 == x0 => *y1,
            Some((x1, y1)) => y0 + (y1 - y0) * (size - x0) as f64 / (x1 - x0) as f64,
            None => y0,
        }
    }

    /// Returns the smallest size whose miss ratio is at most `ratio`, if there is one.
    pub fn size_for(&self, ratio: f64) -> Option<u64> {
        let behind = self.points.partition_point(|p| p.1 > ratio);
        let (x1, _) = *self.points.get(behind)?;
        let x0 = behind.checked_sub(1).map_or(0, |i| self.points[i].0);
        // The line between the two points falls, so bisect it.
        let (mut low, mut high) = (x0, x1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) <= ratio {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(if self.at(low) <= ratio { low } else { high })
    }

    /// Returns the difference between this curve and a true one.
    pub fn error_against(&self, truth: &Curve) -> CurveError {
        let end = truth.size_max().max(1);
        let mut sum = 0.0;
        let mut max: f64 = 0.0;
        for i in 1..=COMPARED {
            let size = (u128::from(end) * u128::from(i)).div_ceil(u128::from(COMPARED)) as u64;
            let error = (self.at(size) - truth.at(size)).abs();
            sum += error;
            max = max.max(error);
            let share = f64::from(i) / f64::from(COMPARED);
            let size = libm::pow(end as f64, share) as u64;
            max = max.max((self.at(size) - truth.at(size)).abs());
        }
        CurveError {
            mean: sum / f64::from(COMPARED),
            max,
        }
    }
}

/// Returns the non-increasing values nearest to `values` by weighted squares (pool adjacent violators).
pub(super) fn falling(values: &[(f64, f64)]) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (value, weight) in values {
        let (mut sum, mut weights, mut n) = (value * weight, *weight, 1);
        while let Some((s, w, count)) = pools.last()
            && s * weights <= sum * w
        {
            sum += s;
            weights += w;
            n += count;
            pools.pop();
        }
        pools.push((sum, weights, n));
    }
    let mean = |(sum, weight, n): (f64, f64, usize)| std::iter::repeat_n(sum / weight, n);
    pools.into_iter().flat_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_is_interpolated_linearly() {
        let curve = Curve::new(
            [(10, 0.5), (20, 0.6), (40, 0.1), (40, 0.05)],
            Confidence::default(),
        );
        let got: Vec<f64> = [0, 5, 10, 15, 30, 40, 1000].map(|s| curve.at(s)).to_vec();
        assert_eq!(got, [1.0, 0.75, 0.5, 0.5, 0.275, 0.05, 0.05]);
        assert_eq!(curve.size_for(0.75), Some(5));
        assert_eq!(curve.size_for(0.5), Some(10));
        assert_eq!(curve.size_for(0.05), Some(40));
        assert_eq!(curve.size_for(0.04), None);
        assert_eq!(curve.size_for(1.0), Some(0));
        assert_eq!(Curve::new([], Confidence::default()).at(7), 1.0);
    }

    #[test]
    fn non_numeric_ratios_are_ignored() {
        let with = Curve::new(
            [(10, 0.5), (20, f64::NAN), (30, 0.1)],
            Confidence::default(),
        );
        let without = Curve::new([(10, 0.5), (30, 0.1)], Confidence::default());
        assert_eq!(with, without);
    }

    #[test]
    fn curve_error_of_a_shift_is_the_shift() {
        let line = |by: f64| {
            let points = (1..=100u64).map(|s| (s, 0.9 - s as f64 / 200.0 + by));
            Curve::new(points, Confidence::default())
        };
        let error = line(0.02).error_against(&line(0.0));
        assert!((error.mean - 0.02).abs() < 1e-12 && (error.max - 0.02).abs() < 1e-12);
        assert_eq!(line(0.0).error_against(&line(0.0)), CurveError::default());
    }

    #[test]
    fn rising_curve_points_are_pooled_by_weight() {
        let weighted = [(5.0, 1.0), (1.0, 1.0), (2.0, 3.0), (4.0, 4.0), (0.5, 1.0)];
        assert_eq!(falling(&weighted), [5.0, 2.875, 2.875, 2.875, 0.5]);
        assert!(falling(&[]).is_empty());
    }
}
