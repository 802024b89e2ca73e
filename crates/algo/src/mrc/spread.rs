//! How sure a sampled curve is: the sample is split into groups of blocks, and what the groups say is compared.

use super::distances::Distances;
use super::sampler::MODULUS;

/// Groups; more would each have too few blocks, fewer would tell less about their spread.
const GROUPS: usize = 8;
/// Sizes at which groups are compared: powers of two.
const SIZES: usize = 48;

/// References and hits by group of blocks, at sizes of powers of two.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    /// Weight by group and by the power of two that the distance is at most.
    hits: [[f64; SIZES]; GROUPS],
}

impl Spread {
    pub(super) fn new() -> Self {
        Self {
            hits: [[0.0; SIZES]; GROUPS],
        }
    }

    /// A reference to a block of this hash.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, distance: Option<u64>, weight: f64) {
        let Some(distance) = distance else { return };
        // The lowest bits say which group: which blocks are in depends on how high the hash is, hardly on these.
        let group = (hash % MODULUS) as usize % GROUPS;
        let size = (64 - distance.saturating_sub(1).leading_zeros()) as usize;
        self.hits[group][size.min(SIZES - 1)] += weight;
    }

    /// The largest standard error of the adjusted curve over all sizes: the adjustment makes the number of references known, so
    /// what varies is the weight of the misses, and the hits of the smallest cache do not matter. None for too few blocks.
    pub(super) fn standard_error(
        &self,
        blocks: u64,
        distances: &Distances,
        references: f64,
    ) -> Option<f64> {
        if blocks < 16 * GROUPS as u64 || references <= 0.0 {
            return None;
        }
        let n = GROUPS as f64;
        let mut worst: f64 = 0.0;
        for size in 0..SIZES {
            // Beyond the size: hits of larger caches, by group. Cold misses differ least; they are shared out.
            let beyond = |group: &[f64; SIZES]| group[size + 1..].iter().sum::<f64>();
            let misses: [f64; GROUPS] = std::array::from_fn(|g| beyond(&self.hits[g]));
            let mean = misses.iter().sum::<f64>() / n;
            let squares: f64 = misses.iter().map(|m| (m - mean) * (m - mean)).sum();
            worst = worst.max((squares * n / (n - 1.0)).sqrt() / references);
        }
        // Number of blocks that came: a Poisson count.
        let cold = distances.never() / (blocks as f64).sqrt() / references;
        Some((worst * worst + cold * cold).sqrt())
    }
}
