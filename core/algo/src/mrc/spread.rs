//! Correction and standard error of a sample, from groups of the sampled blocks.
//!
//! By chance, a sample of blocks has more or fewer references than its share, and the number of all references is
//! known. Published rules are two extremes. Dividing by the counted number assumes that the difference is like the
//! other references, which is right for loops and scans. Counting it as hits of the smallest cache (SHARDS-adj:
//! Waldspurger and others, FAST 2015, section 3.4) assumes that it belongs to a few popular blocks, which is right if
//! these dominate the load.
//!
//! Here the groups decide. A distance gets the part of the difference by which it grows in groups with more references
//! than the mean, by least squares (the regression estimator of sampling theory, Cochran, Sampling Techniques, chapter
//! 7). If far more references are missing than the groups differ by, they belong to a few popular blocks unlike any in
//! the sample. Then the published rule applies.

use super::Distances;

/// Number of groups. More groups would have too few blocks each; fewer would give less information about their spread.
const GROUPS: usize = 8;
/// Number of classes of distances; each class goes up to a power of two.
const SIZES: usize = 48;
/// Class of first references.
const NEVER: usize = SIZES;
/// Minimum number of sampled blocks for conclusions from groups.
const BLOCKS_MIN: u64 = 16 * GROUPS as u64;
/// Number of standard deviations of the sample's count beyond which missing references belong to blocks unlike those in
/// the sample. By chance, one sample in 600 exceeds it (Student's t with seven degrees of freedom).
const UNLIKE_DEVIATIONS: f64 = 5.0;

/// Counts of a sample: distances, and the weight of the references by group of blocks and class of distance.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    distances: Distances,
    weights: [[f64; SIZES + 1]; GROUPS],
}

/// Number of references of the groups, and deviations from their mean.
struct Counts {
    total: f64,
    deviations: [f64; GROUPS],
    /// Sum of the squares of the deviations.
    squares: f64,
}

/// Returns the exponent of the smallest power of two that is at least the distance.
#[inline]
fn class(distance: u64) -> usize {
    let class = (64 - distance.saturating_sub(1).leading_zeros()) as usize;
    class.min(SIZES - 1)
}

impl Spread {
    /// Number of groups.
    pub(super) const GROUPS: usize = GROUPS;

    /// Group of a block's hash. The lowest bits decide: the sample depends on how high the hash is, hardly on these.
    #[inline]
    pub(super) fn group(hash: u32) -> usize {
        hash as usize % GROUPS
    }

    pub(super) fn new() -> Self {
        Self {
            distances: Distances::new(),
            weights: [[0.0; SIZES + 1]; GROUPS],
        }
    }

    /// Returns the uncorrected distances.
    pub(super) fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Adds a reference to a block with this hash.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, distance: Option<u64>, weight: f64) {
        self.distances.add(distance, weight);
        let group = Self::group(hash);
        self.weights[group][distance.map_or(NEVER, class)] += weight;
    }

    fn counts(&self) -> Counts {
        let counts = self.weights.map(|group| group.iter().sum::<f64>());
        let total: f64 = counts.iter().sum();
        let deviations = counts.map(|c| c - total / GROUPS as f64);
        Counts {
            total,
            deviations,
            squares: deviations.iter().map(|d| d * d).sum(),
        }
    }

    /// Returns the distances corrected to `references` references, the known total. With few blocks the difference
    /// counts as like the rest.
    pub(super) fn corrected(&self, references: f64, blocks: u64) -> Distances {
        let distances = &self.distances;
        let counts = self.counts();
        if counts.total <= 0.0 {
            return distances.clone();
        }
        let alike = references / counts.total;
        if blocks < BLOCKS_MIN || counts.squares <= 0.0 {
            return distances.scaled(|_| alike);
        }
        if counts.lack_unlike(references) {
            return distances.with_hits(references - counts.total);
        }
        let factors: [f64; SIZES + 1] = std::array::from_fn(|class| {
            let here = self.weights.map(|group| group[class]);
            let sum: f64 = here.iter().sum();
            let pairs = here.iter().zip(&counts.deviations);
            let share = pairs.map(|(w, d)| w * d).sum::<f64>() / counts.squares;
            let corrected = sum + (references - counts.total) * share;
            if sum > 0.0 {
                (corrected / sum).max(0.0)
            } else {
                1.0
            }
        });
        distances.scaled(|distance| factors[distance.map_or(NEVER, class)])
    }

    /// Returns the largest standard error of the corrected curve over all sizes; `None` for too few blocks. It includes
    /// the differences of the groups' misses that their numbers of references do not explain, and the extrapolation
    /// beyond the groups (the variance of a regression estimate away from the mean).
    pub(super) fn standard_error(&self, blocks: u64, references: f64) -> Option<f64> {
        if blocks < BLOCKS_MIN || references <= 0.0 {
            return None;
        }
        let mut counts = self.counts();
        // The missing references are hits, so misses are as counted, with their own variance.
        let as_counted = counts.lack_unlike(references);
        if as_counted {
            counts.squares = 0.0;
        }
        let mut misses = self.weights.map(|group| group[NEVER]);
        let mut worst = residual(&misses, &counts);
        for size in (0..SIZES).rev() {
            for (misses, group) in misses.iter_mut().zip(&self.weights) {
                *misses += group[size];
            }
            worst = worst.max(residual(&misses, &counts));
        }
        let n = GROUPS as f64;
        let beyond = references - counts.total;
        let carried = match counts.squares > 0.0 {
            true => beyond * beyond / counts.squares,
            false => 0.0,
        };
        // Degrees of freedom: the mean takes one, and the slope another one if it is used.
        let free = if as_counted { n - 1.0 } else { n - 2.0 };
        Some((worst / free * (n + carried)).sqrt() / references)
    }
}

impl Counts {
    /// Returns true if the missing references cannot belong to blocks like those in the sample.
    fn lack_unlike(&self, references: f64) -> bool {
        let n = GROUPS as f64;
        let deviation = (self.squares * n / (n - 1.0)).sqrt();
        references - self.total > UNLIKE_DEVIATIONS * deviation
    }
}

/// Returns the sum of squared residuals of the groups' misses after regression on their counts.
fn residual(misses: &[f64; GROUPS], counts: &Counts) -> f64 {
    let mean = misses.iter().sum::<f64>() / GROUPS as f64;
    let pairs = || misses.iter().map(|m| m - mean).zip(&counts.deviations);
    let slope = if counts.squares > 0.0 {
        pairs().map(|(m, d)| m * d).sum::<f64>() / counts.squares
    } else {
        0.0
    };
    pairs()
        .map(|(m, d)| m - slope * d)
        .map(|left| left * left)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::Confidence;

    /// Adds references to blocks with `hashes` at this distance, `times` for each.
    fn counted(
        hashes: impl Iterator<Item = u32>,
        distance: Option<u64>,
        times: u32,
        to: &mut Spread,
    ) {
        for hash in hashes {
            for _ in 0..times {
                to.add(hash, distance, 1.0);
            }
        }
    }

    #[test]
    fn count_correction_affects_distances_that_vary_with_the_counts() {
        // All groups have equally many misses; some have more references at distance 10.
        let mut hot = Spread::new();
        counted(0..256, None, 1, &mut hot);
        counted(0..3, Some(10), 200, &mut hot);
        let curve = |of: &Spread, references| {
            let corrected = of.corrected(references, 256);
            assert!((corrected.total() - references).abs() < 1e-6);
            corrected.curve(Confidence::default())
        };
        // 856 references were counted, 1,056 are known: 200 more hits, and the same number of misses.
        assert!((curve(&hot, 1056.0).at(10) - 256.0 / 1056.0).abs() < 1e-12);
        assert!((curve(&hot, 656.0).at(10) - 256.0 / 656.0).abs() < 1e-12);
        // Groups with more of all kinds: the difference is like the rest.
        let mut even = Spread::new();
        for (group, blocks) in [20, 40, 30, 25, 36, 32, 28, 45].into_iter().enumerate() {
            let hashes = || (0..blocks).map(|b| b * 8 + group as u32);
            counted(hashes(), None, 1, &mut even);
            counted(hashes(), Some(100), 3, &mut even);
        }
        assert!((curve(&even, 1100.0).at(100) - 0.25).abs() < 1e-12);
        assert!((curve(&even, 900.0).at(100) - 0.25).abs() < 1e-12);
        // The regression explains all differences, also those of the hot groups.
        for all in [&hot, &even] {
            assert!(all.standard_error(256, 1000.0).unwrap() < 1e-9);
        }
    }

    #[test]
    fn few_blocks_or_even_groups_are_not_corrected() {
        let mut few = Spread::new();
        counted(0..16, None, 2, &mut few);
        counted(0..4, Some(10), 8, &mut few);
        for blocks in [16, 1000] {
            let corrected = few.corrected(128.0, blocks);
            assert!((corrected.total() - 128.0).abs() < 1e-9);
        }
        // Unchanged except for the scale.
        let alike = few.corrected(128.0, 16);
        assert!((alike.curve(Confidence::default()).at(10) - 0.5).abs() < 1e-12);
        assert_eq!(few.standard_error(16, 128.0), None);
        assert_eq!(Spread::new().corrected(5.0, 1000), Distances::new());
        assert_eq!(Spread::new().standard_error(1000, 0.0), None);
    }
}
