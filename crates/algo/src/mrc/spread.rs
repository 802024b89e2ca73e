//! What groups of the sampled blocks say of the sample: how sure it is, and what it has too many or too few references of.
//!
//! A sample of blocks has by chance more or fewer references than its share, and the number of all is known. Published rules
//! are two ends of one line: to divide by what was counted takes the difference to be like the rest of the references, which is right
//! for loops and scans; to count it as hits of the smallest cache (SHARDS-adj: Waldspurger and others, FAST 2015, section 3.4)
//! takes it to be of a few popular blocks, which is right where these carry the load. Here the groups decide: as many of the
//! difference belong to a distance as come with it where a group has more references than the mean, by least squares (the
//! regression estimator of sampling theory, Cochran, Sampling Techniques, chapter 7). Where far more references are missing than
//! the groups differ by, they are of blocks unlike any in the sample, few and popular: then the published rule holds.

use super::Distances;

/// Groups; more would each have too few blocks, fewer would tell less about their spread.
const GROUPS: usize = 8;
/// Classes of distances: up to a power of two.
const SIZES: usize = 48;
/// And what was never seen before.
const NEVER: usize = SIZES;
/// With fewer sampled blocks than this, groups say nothing.
const BLOCKS_MIN: u64 = 16 * GROUPS as u64;
/// References that are missing are of blocks unlike those in the sample when they are more than so many standard deviations of its
/// count: by chance, of one sample in 600 (Student's t of seven).
const UNLIKE_DEVIATIONS: f64 = 5.0;

/// What was counted of a sample: distances, and the weight of the references by group of blocks and class of distance.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    distances: Distances,
    weights: [[f64; SIZES + 1]; GROUPS],
}

/// How many references each group has, and by how much that differs from the mean.
struct Counts {
    total: f64,
    deviations: [f64; GROUPS],
    /// Sum of the squares of the deviations.
    squares: f64,
}

/// The power of two that a distance is at most.
#[inline]
fn class(distance: u64) -> usize {
    let class = (64 - distance.saturating_sub(1).leading_zeros()) as usize;
    class.min(SIZES - 1)
}

impl Spread {
    pub(super) fn new() -> Self {
        Self {
            distances: Distances::new(),
            weights: [[0.0; SIZES + 1]; GROUPS],
        }
    }

    /// As counted.
    pub(super) fn distances(&self) -> &Distances {
        &self.distances
    }

    /// A reference to a block of this hash.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, distance: Option<u64>, weight: f64) {
        self.distances.add(distance, weight);
        // The lowest bits say which group: which blocks are in depends on how high the hash is, hardly on these.
        let group = hash as usize % GROUPS;
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

    /// The distances as of `references` references, which are known to have been: more or fewer than were counted. With few blocks
    /// the difference is taken to be like the rest.
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

    /// The largest standard error of the corrected curve over all sizes: how much the misses of the groups differ, beyond what goes
    /// with their numbers of references, and how far what goes with them is carried beyond the groups (the variance of a regression
    /// estimate away from the mean). None for too few blocks.
    pub(super) fn standard_error(&self, blocks: u64, references: f64) -> Option<f64> {
        if blocks < BLOCKS_MIN || references <= 0.0 {
            return None;
        }
        let mut counts = self.counts();
        // What is missing is hits: misses are as counted, and vary as they do.
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
        // A slope and a mean are taken from the groups: two are not free; the slope only where there is one.
        let free = if as_counted { n - 1.0 } else { n - 2.0 };
        Some((worst / free * (n + carried)).sqrt() / references)
    }
}

impl Counts {
    /// Whether references are missing that cannot be of blocks like those in the sample.
    fn lack_unlike(&self, references: f64) -> bool {
        let n = GROUPS as f64;
        let deviation = (self.squares * n / (n - 1.0)).sqrt();
        references - self.total > UNLIKE_DEVIATIONS * deviation
    }
}

/// Sum of the squares that are left of the misses of groups when what goes with their counts is taken out.
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

    /// References of `hashes` at these distances, `times` of each.
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
    fn what_there_is_too_much_of_is_what_goes_with_the_counts() {
        // All groups have as many misses; some have more references at distance 10.
        let mut hot = Spread::new();
        counted(0..256, None, 1, &mut hot);
        counted(0..3, Some(10), 200, &mut hot);
        let curve = |of: &Spread, references| {
            let corrected = of.corrected(references, 256);
            assert!((corrected.total() - references).abs() < 1e-6);
            corrected.curve(Confidence::default())
        };
        // 856 were counted, 1,056 are known to have been: 200 more hits, and as many misses.
        assert!((curve(&hot, 1056.0).at(10) - 256.0 / 1056.0).abs() < 1e-12);
        assert!((curve(&hot, 656.0).at(10) - 256.0 / 656.0).abs() < 1e-12);
        // Groups that have more of everything: the difference is like the rest.
        let mut even = Spread::new();
        for (group, blocks) in [20, 40, 30, 25, 36, 32, 28, 45].into_iter().enumerate() {
            let hashes = || (0..blocks).map(|b| b * 8 + group as u32);
            counted(hashes(), None, 1, &mut even);
            counted(hashes(), Some(100), 3, &mut even);
        }
        assert!((curve(&even, 1100.0).at(100) - 0.25).abs() < 1e-12);
        assert!((curve(&even, 900.0).at(100) - 0.25).abs() < 1e-12);
        // Nothing is left of their differences; of the hot ones nothing either.
        for all in [&hot, &even] {
            assert!(all.standard_error(256, 1000.0).unwrap() < 1e-9);
        }
    }

    #[test]
    fn few_blocks_nothing_and_even_groups_are_no_evidence() {
        let mut few = Spread::new();
        counted(0..16, None, 2, &mut few);
        counted(0..4, Some(10), 8, &mut few);
        for blocks in [16, 1000] {
            let corrected = few.corrected(128.0, blocks);
            assert!((corrected.total() - 128.0).abs() < 1e-9);
        }
        // As counted but for the scale.
        let alike = few.corrected(128.0, 16);
        assert!((alike.curve(Confidence::default()).at(10) - 0.5).abs() < 1e-12);
        assert_eq!(few.standard_error(16, 128.0), None);
        assert_eq!(Spread::new().corrected(5.0, 1000), Distances::new());
        assert_eq!(Spread::new().standard_error(1000, 0.0), None);
    }
}
