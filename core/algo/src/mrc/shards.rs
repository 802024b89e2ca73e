//! SHARDS at a fixed rate.

use super::spread::Spread;
use super::{Confidence, Curve, Distances, Sampler};
use crate::{DenseIds, ReuseStack};

/// Exact distances among a sample of the blocks, scaled up (SHARDS: Waldspurger, Park, Garthwaite, Ahmad, FAST 2015).
///
/// Memory grows with the sampled blocks. For an unknown footprint use [`super::FixedSize`]. For one below a few hundred
/// thousand blocks use [`super::ExactCurve`]: the sample should have [`super::SAMPLED_BLOCKS_MIN`] blocks.
#[derive(Debug, Clone)]
pub struct FixedRate {
    sampler: Sampler,
    ids: DenseIds,
    stack: ReuseStack,
    spread: Spread,
    references: u64,
    sampled: u64,
}

impl FixedRate {
    /// Creates an estimator with this sample.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler,
            ids: DenseIds::new(),
            stack: ReuseStack::new(),
            spread: Spread::new(),
            references: 0,
            sampled: 0,
        }
    }

    /// Returns the sample.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Counts a reference, sampled or not.
    #[inline]
    pub fn reference(&mut self, block: u64) {
        self.references += 1;
        if self.sampler.keeps(block) {
            self.sampled_reference(block);
        }
    }

    /// Adds `references` that were filtered elsewhere, including those passed to [`FixedRate::sampled_reference`]. The
    /// correction needs the number of all references.
    #[inline]
    pub fn passed(&mut self, references: u64) {
        self.references += references;
    }

    /// Counts a reference that is known to be sampled and was counted by [`FixedRate::passed`].
    pub fn sampled_reference(&mut self, block: u64) {
        let rate = self.sampler.rate();
        let distance = self.stack.access(self.ids.id(block));
        let distance = distance.map(|d| (f64::from(d) / rate) as u64);
        self.spread
            .add(self.sampler.hash(block), distance, 1.0 / rate);
        self.sampled += 1;
    }

    /// Drops a block after a write-around, sampled or not.
    #[inline]
    pub fn invalidate(&mut self, block: u64) {
        if self.sampler.keeps(block)
            && let Some(id) = self.ids.get(block)
        {
            self.stack.invalidate(id);
        }
    }

    /// Returns the number of all references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the number of sampled references.
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// Returns the number of sampled blocks.
    pub fn blocks(&self) -> u64 {
        u64::from(self.ids.len())
    }

    /// Returns the scaled distances of all references, for merging. The excess or lack of references in the sample is
    /// corrected with the groups of its blocks.
    pub fn distances(&self) -> Distances {
        self.spread.corrected(self.references as f64, self.blocks())
    }

    /// Returns the number of references that the sample represents; [`Self::references`] except for chance.
    pub fn counted(&self) -> f64 {
        self.spread.distances().total()
    }

    /// Returns the uncorrected curve of the sample.
    pub fn curve_raw(&self) -> Curve {
        self.spread.distances().curve(self.confidence())
    }

    /// Returns the curve of [`Self::distances`], the recommended one.
    pub fn curve(&self) -> Curve {
        self.distances().curve(self.confidence())
    }

    /// Returns the amount of data behind the curve.
    pub fn confidence(&self) -> Confidence {
        Confidence {
            references: self.references,
            blocks: self.blocks(),
            standard_error: self
                .spread
                .standard_error(self.blocks(), self.references as f64),
        }
    }
}
