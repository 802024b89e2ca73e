//! SHARDS at a fixed rate.

use super::spread::Spread;
use super::{Confidence, Curve, Distances, Sampler};
use crate::{DenseIds, ReuseStack};

/// Exact distances among a sample of the blocks, scaled up (SHARDS: Waldspurger, Park, Garthwaite, Ahmad, FAST 2015).
///
/// Memory grows with the sampled blocks. For a footprint that is not known use [`super::FixedSize`]; for one below a few hundred
/// thousand blocks use [`super::Exact`]: the sample should have [`super::SAMPLED_BLOCKS_MIN`] blocks.
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
    /// With this sample.
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

    /// The sample.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// A reference, sampled or not.
    #[inline]
    pub fn reference(&mut self, block: u64) {
        self.references += 1;
        if self.sampler.keeps(block) {
            self.sampled_reference(block);
        }
    }

    /// `references` that were looked at elsewhere, all but those that are handed to [`FixedRate::sampled_reference`] included:
    /// the correction needs the number of all.
    #[inline]
    pub fn passed(&mut self, references: u64) {
        self.references += references;
    }

    /// A reference that is known to be sampled, and counted by [`FixedRate::passed`].
    pub fn sampled_reference(&mut self, block: u64) {
        let rate = self.sampler.rate();
        let distance = self.stack.access(self.ids.id(block));
        let distance = distance.map(|d| (f64::from(d) / rate) as u64);
        self.spread
            .add(self.sampler.hash(block), distance, 1.0 / rate);
        self.sampled += 1;
    }

    /// A block that a write went around the cache to, sampled or not: it is dropped.
    #[inline]
    pub fn invalidate(&mut self, block: u64) {
        if self.sampler.keeps(block)
            && let Some(id) = self.ids.get(block)
        {
            self.stack.invalidate(id);
        }
    }

    /// References in all.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// References that were sampled.
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// Blocks that were sampled.
    pub fn blocks(&self) -> u64 {
        u64::from(self.ids.len())
    }

    /// The scaled distances of all references, for merging: what the sample has too many or too few references of is taken out, as
    /// groups of its blocks tell.
    pub fn distances(&self) -> Distances {
        self.spread.corrected(self.references as f64, self.blocks())
    }

    /// References that those of the sample stand for; [`Self::references`] but for chance.
    pub fn counted(&self) -> f64 {
        self.spread.distances().total()
    }

    /// The curve as sampled.
    pub fn curve_raw(&self) -> Curve {
        self.spread.distances().curve(self.confidence())
    }

    /// The curve of [`Self::distances`], which is the one to use.
    pub fn curve(&self) -> Curve {
        self.distances().curve(self.confidence())
    }

    /// What the curve rests on.
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
