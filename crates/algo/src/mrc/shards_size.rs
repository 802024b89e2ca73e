//! SHARDS in a fixed amount of memory.

use std::collections::BinaryHeap;

use super::spread::Spread;
use super::{Confidence, Curve, Distances, MODULUS, Sampler};
use crate::ReuseStack;

const FREE: u32 = u32::MAX;

/// The blocks with the lowest hashes, at most `blocks_max`: when one too many comes, those of the highest hash go and the threshold
/// falls to it (SHARDS, FAST 2015, section 3.2). With 8,192 blocks the state is below 1 MiB whatever the load.
///
/// The paper rescales the whole histogram when the threshold falls. Here each reference counts the inverse of the rate at its time,
/// in units of whole references, which is the same but for a factor and costs nothing.
///
/// Not when a footprint is known beforehand to be small: [`super::Exact`] is exact. While blocks come that are never seen
/// again, the rate falls and with it what the sample remembers.
#[derive(Debug, Clone)]
pub struct FixedSize {
    sampler: Sampler,
    blocks_max: usize,
    /// Places in `blocks` by hash of the block: open addressing, half full at most.
    table: Vec<u32>,
    /// The sampled blocks; the place of one is its number on the stack.
    blocks: Vec<u64>,
    unused: Vec<u32>,
    /// Hash and place, highest hash first.
    highest: BinaryHeap<u64>,
    stack: ReuseStack,
    spread: Spread,
    references: u64,
    /// Blocks that are to be dropped from among those that writes dropped, as the sample gets thinner.
    holes_due: f64,
}

impl FixedSize {
    /// With at most `blocks_max` blocks (at least one).
    pub fn new(blocks_max: usize, seed: u64) -> Self {
        Self::below(Sampler::new(1.0, seed), blocks_max)
    }

    /// The same that never samples more than `most`: where each reference may cost a bounded time in the mean. Of a footprint below
    /// `blocks_max` / rate, fewer blocks than `blocks_max` are then followed.
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

    /// The sample as it is now.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// A reference.
    #[inline]
    pub fn reference(&mut self, block: u64) {
        self.references += 1;
        self.offer(block);
    }

    /// `references` that were counted elsewhere, those that are handed to [`FixedSize::offer`] included.
    #[inline]
    pub fn passed(&mut self, references: u64) {
        self.references += references;
    }

    /// A reference that is counted by [`FixedSize::passed`], sampled or not.
    #[inline]
    pub fn offer(&mut self, block: u64) {
        let hash = self.sampler.hash(block);
        if hash < self.sampler.threshold() {
            self.sampled(block, hash);
        }
    }

    /// A block that a write went around the cache to: it is dropped.
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

    /// The same for all blocks from `first` to `last`: in no more time than there are blocks in the sample, however many these are.
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

    /// Lowers the threshold to the highest hash; all blocks of that hash go.
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
        // Places that writes emptied belong to no block any more: as many of them go, in the mean, as of the blocks.
        self.holes_due += self.stack.holes() as f64 * (1.0 - self.sampler.rate() / rate);
        while self.holes_due >= 1.0 {
            self.holes_due -= 1.0;
            self.stack.remove_hole();
        }
    }

    #[inline]
    fn home(&self, block: u64) -> usize {
        // Not by the sampler's hash: once the threshold is low, only few are left, with many blocks each.
        let hash = (block ^ (block >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (64 - self.table.len().trailing_zeros())) as usize
    }

    /// The slot of a block, or the free one where it belongs.
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

    /// Takes a block out of the table, and moves those up that were only behind it because of it.
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

    /// References in all.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Blocks in the sample now.
    pub fn blocks(&self) -> u64 {
        self.highest.len() as u64
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

    /// Begins a new window: what was counted is forgotten, the sample and its order stay, so that blocks of before are not taken for
    /// new ones. Returns what was counted, and of how many references.
    pub fn take_window(&mut self) -> (Distances, u64) {
        let window = (self.distances(), self.references);
        (self.spread, self.references) = (Spread::new(), 0);
        window
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.capacity() * 4
            + self.blocks.capacity() * 8
            + self.unused.capacity() * 4
            + self.highest.capacity() * 8
            + self.stack.memory_bytes()
            + self.spread.distances().memory_bytes()
    }

    /// What the curve rests on.
    pub fn confidence(&self) -> Confidence {
        // A sample of everything is exact.
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
