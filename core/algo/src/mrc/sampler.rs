//! Membership of blocks in a sample: a function of the block, so either all references to it are included or none.

use serde::{Deserialize, Serialize};

use crate::mix;

/// Upper limit of block hashes: P of the paper.
pub const MODULUS: u32 = 1 << 24;
/// Shift that leaves the highest bits of 64.
const HASH_SHIFT: u32 = 40;

/// Minimum number of sampled blocks for an accurate curve. With 500 of 5,000 blocks of a Zipf-like load the error was
/// 0.09, with and without a correction.
pub const SAMPLED_BLOCKS_MIN: u64 = 8192;

/// Spatially hashed sampling: a block is included if its hash is below a threshold (SHARDS: Waldspurger and others,
/// FAST 2015, section 3.1). Samples of smaller rates are subsets of those of larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampler {
    #[serde(deserialize_with = "threshold")]
    threshold: u32,
    seed: u64,
}

/// Reads a threshold: at least one hash, and at most all.
fn threshold<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let threshold = u32::deserialize(from)?;
    match (1..=MODULUS).contains(&threshold) {
        true => Ok(threshold),
        false => Err(serde::de::Error::custom(
            "the threshold of a sample is invalid",
        )),
    }
}

impl Sampler {
    /// Creates a sample of this share of all blocks, from one hash of 2^24 to all.
    pub fn new(rate: f64, seed: u64) -> Self {
        let threshold = (rate * f64::from(MODULUS)).round();
        Self {
            // NaN becomes the smallest rate.
            threshold: (threshold.max(1.0) as u32).min(MODULUS),
            seed: mix(seed, 0x5A_4D91E),
        }
    }

    /// Returns the share of included blocks, after rounding.
    #[inline]
    pub fn rate(&self) -> f64 {
        f64::from(self.threshold) / f64::from(MODULUS)
    }

    /// Returns the threshold; hashes below it are included.
    #[inline]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Lowers the threshold to a hash, which excludes that hash.
    pub(super) fn lower(&mut self, threshold: u32) {
        debug_assert!(threshold < self.threshold);
        self.threshold = threshold.max(1);
    }

    /// Returns the hash of a block, below [`MODULUS`]. It takes two multiplications: one alone would spread neighbours
    /// evenly, and a sample of a scan would be regular.
    #[inline]
    pub fn hash(&self, block: u64) -> u32 {
        (self.order(block) >> HASH_SHIFT) as u32
    }

    /// Returns a value with the order of the hashes. For several blocks, call [`Sampler::keeps_order`] only for the
    /// smallest value.
    #[inline]
    pub fn order(&self, block: u64) -> u64 {
        let z = (block ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    /// Returns true if a block with this [`Sampler::order`] is included.
    #[inline]
    pub fn keeps_order(&self, order: u64) -> bool {
        ((order >> HASH_SHIFT) as u32) < self.threshold
    }

    /// Returns true if a block is included.
    #[inline]
    pub fn keeps(&self, block: u64) -> bool {
        self.hash(block) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_rate_is_exact_on_scans_strides_and_random_blocks() {
        for seed in 0..5 {
            let sampler = Sampler::new(0.01, seed);
            assert!((sampler.rate() - 0.01).abs() < 1e-7);
            for stride in [1u64, 8, 256, 1 << 20, 3 << 33] {
                let kept = (0..400_000u64)
                    .filter(|i| sampler.keeps(i * stride))
                    .count();
                // Ten standard deviations of 63.
                assert!(kept.abs_diff(4000) < 630, "stride {stride}: {kept}");
                // Not regular: gaps vary as by chance, where one in 37 exceeds 3.6 means.
                let mut last = 0;
                let mut long = 0;
                for i in (0..400_000u64).filter(|i| sampler.keeps(i * stride)) {
                    long += u64::from(i - last > 360);
                    last = i;
                }
                assert!((60..180).contains(&long), "stride {stride}: {long}");
            }
        }
        assert_eq!(Sampler::new(1.0, 3).threshold(), MODULUS);
        assert_eq!(Sampler::new(0.0, 3).threshold(), 1);
        assert_eq!(Sampler::new(f64::NAN, 3).threshold(), 1);
    }

    #[test]
    fn smaller_samples_are_subsets_of_larger_ones() {
        let (small, large) = (Sampler::new(0.01, 4), Sampler::new(0.05, 4));
        assert!(
            (0..100_000)
                .filter(|b| small.keeps(*b))
                .all(|b| large.keeps(b))
        );
        let other = Sampler::new(0.05, 5);
        let both = (0..100_000)
            .filter(|b| large.keeps(*b) && other.keeps(*b))
            .count();
        assert!(both.abs_diff(250) < 150, "seeds are independent: {both}");
    }
}
