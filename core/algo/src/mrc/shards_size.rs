//! SHARDS in a fixed amount of memory.

use std::collections::BinaryHeap;

use super::spread::Spread;
use super::{Confidence, Curve, Distances, MODULUS, Sampler};
use crate::ReuseStack;

const FREE: u32 = u32::MAX;

/// Sample of the blocks with the lowest hashes, at most `blocks_max`. If there is one too many, the blocks of the
/// highest hash are removed and the threshold falls to it (SHARDS, FAST 2015, section 3.2). With 8,192 blocks the state
/// is below 1 MiB for any load.
///
/// The paper rescales the whole histogram when the threshold falls. Here each reference counts the inverse of the rate
/// at its time, in units of whole references. That is the same up to a factor and has no cost.
///
/// If a footprint is known to be small, use [`super::ExactCurve`]. While blocks arrive that are never used again, the rate
/// falls, and with it the memory of the sample.
#[derive(Debug, Clone)]
pub struct FixedSize {
    sampler: Sampler,
    blocks_max: usize,
    /// Indices into `blocks` by hash of the block: open addressing, at most half full.
    table: Vec<u32>,
    /// Sampled blocks; the index of a block is its number on the stack.
    blocks: Vec<u64>,
    unused: Vec<u32>,
    /// Hash and index, highest hash first.
    highest: BinaryHeap<u64>,
    stack: ReuseStack,
    spread: Spread,
    references: u64,
    /// Number of holes left by writes that are due for removal as the sample gets thinner.
    holes_due: f64,
}

impl FixedSize {
    /// Creates a sample of at most `blocks_max` blocks (at least one).
    pub fn new(blocks_max: usize, seed: u64) -> Self {
        Self::below(Sampler::new(1.0, seed), blocks_max)
    }

    /// Creates a sample that never exceeds the rate of `most`, to bound the mean time per reference. For a footprint
    /// below `blocks_max` / rate, fewer than `blocks_max` blocks are then tracked.
    pub fn below(most: Sampler, blocks_max: usize) -> Self {
        let blocks_max = blocks_max.clamp(1, 1 << 24);
        Self {
            sampler: most,
            blocks_max,
            table: vec![FREE; (blocks_max * 2 + 2).next_power_of_two()],
            blocks: Vec::with_capacity(blocks_max + 1),
            unused: Vec::new(),
            highest: BinaryHeap::with_capacity(blocks_max + 1),
            stack: ReuseStack::new(),
            spread: Spread::new(),
            references: 0,
            holes_due: 0.0,
        }
    }

    /// Returns the present sample.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Counts a reference.
    #[inline]
    pub fn reference(&mut self, block: u64) {
        self.references += 1;
        self.offer(block);
    }

    /// Adds `references` that were counted elsewhere, including those passed to [`FixedSize::offer`].
    #[inline]
    pub fn passed(&mut self, references: u64) {
        self.references += references;
    }

    /// Processes a reference that was counted by [`FixedSize::passed`], sampled or not.
    #[inline]
    pub fn offer(&mut self, block: u64) {
        let hash = self.sampler.hash(block);
        if hash < self.sampler.threshold() {
            self.sampled(block, hash);
        }
    }

    /// Drops a block after a write-around.
    #[inline]
    pub fn invalidate(&mut self, block: u64) {
        let hash = self.sampler.hash(block);
        if hash < self.sampler.threshold() {
            let place = self.table[self.find(block)];
            if place != FREE {
                self.stack.invalidate(place);
            }
        }
    }

    /// Drops all blocks from `first` to `last`, in time bounded by the number of sampled blocks.
    pub fn invalidate_range(&mut self, first: u64, last: u64) {
        if last.saturating_sub(first) < self.highest.len() as u64 {
            (first..=last).for_each(|block| self.invalidate(block));
            return;
        }
        for entry in &self.highest {
            let place = *entry as u32;
            if (first..=last).contains(&self.blocks[place as usize]) {
                self.stack.invalidate(place);
            }
        }
    }

    #[inline(never)]
    fn sampled(&mut self, block: u64, hash: u32) {
        let slot = self.find(block);
        let place = match self.table[slot] {
            FREE => self.enter(block, hash, slot),
            place => place,
        };
        let rate = self.sampler.rate();
        let distance = self.stack.access(place);
        let distance = distance.map(|d| (f64::from(d) / rate) as u64);
        self.spread.add(hash, distance, 1.0 / rate);
        if self.highest.len() > self.blocks_max {
            self.thin();
        }
    }

    fn enter(&mut self, block: u64, hash: u32, slot: usize) -> u32 {
        let place = match self.unused.pop() {
            Some(place) => {
                self.blocks[place as usize] = block;
                place
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        };
        self.table[slot] = place;
        self.highest.push(u64::from(hash) << 32 | u64::from(place));
        place
    }

    /// Lowers the threshold to the highest hash and removes all blocks of that hash.
    fn thin(&mut self) {
        let rate = self.sampler.rate();
        let Some(top) = self.highest.peek().map(|top| (top >> 32) as u32) else {
            return;
        };
        while let Some(highest) = self.highest.peek().copied()
            && (highest >> 32) as u32 == top
        {
            self.highest.pop();
            let place = highest as u32;
            self.leave(self.blocks[place as usize]);
            self.stack.remove(place);
            self.unused.push(place);
        }
        self.sampler.lower(top);
        // Holes belong to no block any more. On average the same share of holes as of blocks is removed.
        self.holes_due += self.stack.holes() as f64 * (1.0 - self.sampler.rate() / rate);
        while self.holes_due >= 1.0 {
            self.holes_due -= 1.0;
            self.stack.remove_hole();
        }
    }

    #[inline]
    fn home(&self, block: u64) -> usize {
        // Not by the sampler's hash: with a low threshold only few values remain, with many blocks each.
        let hash = (block ^ (block >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (64 - self.table.len().trailing_zeros())) as usize
    }

    /// Returns the slot of a block, or the free slot where it belongs.
    #[inline]
    fn find(&self, block: u64) -> usize {
        let mut slot = self.home(block);
        loop {
            let place = self.table[slot];
            if place == FREE || self.blocks[place as usize] == block {
                return slot;
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    /// Removes a block from the table, and moves up the entries that were displaced by it.
    fn leave(&mut self, block: u64) {
        let mask = self.table.len() - 1;
        let mut hole = self.find(block);
        self.table[hole] = FREE;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            let place = self.table[slot];
            if place == FREE {
                return;
            }
            let home = self.home(self.blocks[place as usize]);
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.table[hole] = place;
                self.table[slot] = FREE;
                hole = slot;
            }
        }
    }

    /// Returns the number of all references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the number of blocks in the present sample.
    pub fn blocks(&self) -> u64 {
        self.highest.len() as u64
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

    /// Starts a new window: counts are cleared, but the sample and its order are kept, so known blocks do not count as
    /// new. Returns the distances and the number of references of the window.
    pub fn take_window(&mut self) -> (Distances, u64) {
        let window = (self.distances(), self.references);
        (self.spread, self.references) = (Spread::new(), 0);
        window
    }

    /// Returns the bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.capacity() * 4
            + self.blocks.capacity() * 8
            + self.unused.capacity() * 4
            + self.highest.capacity() * 8
            + self.stack.memory_bytes()
            + self.spread.distances().memory_bytes()
    }

    /// Returns the amount of data behind the curve.
    pub fn confidence(&self) -> Confidence {
        // A sample of all blocks is exact.
        let standard_error = if self.sampler.threshold() == MODULUS {
            Some(0.0)
        } else {
            let n = self.references as f64;
            self.spread.standard_error(self.blocks(), n)
        };
        Confidence {
            references: self.references,
            blocks: self.blocks(),
            standard_error,
        }
    }
}
