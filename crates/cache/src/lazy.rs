//! The queue with 20 places once more, at the speed of LRU: insertions may be off by a number of pages that is given.
//!
//! ```text
//!   slot[page] ──▶ block = slot / size      blocks: pages in the order in which they came, with holes
//!
//!   queues:  0 ▏▤ ▤ ▏ 1 ▏▤ ▤ ▤ ▏ …  ▏ 19 ▏▤ ▤ ▏     whole blocks, in the queue's order
//! ```
//!
//! A cut between segments is brought to its place only when a page is put in there and it is off by more than the
//! error, and then by handing over whole blocks: no page's state is touched. The error is at least the size of a block,
//! so that afterwards the cut is off by less than it. A hit is what it is in LRU: a hole where the page was, and an
//! entry at the top.
//!
//! The bound: of a page that is put in at a cut, the number of pages below it differs from the exact number for this queue
//! by no more than [`LazySegmentedLru::error_pages_max`]. Over time the queue is another one than the exact variant's, so
//! hit counts differ a little, both ways.

mod ageing;
mod squeeze;

use std::collections::VecDeque;

use crate::huge::zeroes;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};
use crate::position::{Position, SEGMENTS};
use crate::switches::{Ageing, OnHit};

/// Largest block, pages.
const BLOCK_MAX: u32 = 256;

/// Smallest error, pages, with which blocks have more than one page.
const ERROR_MIN: u32 = 8;

/// Blocks over those that the capacity fills. More makes squeezing rarer.
const SLACK: usize = 4;

/// Pages that came one after the other.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Pages that are still here.
    live: u16,
    /// Entries in use, from the start.
    filled: u16,
    /// Entries before this one are holes.
    first: u16,
    segment: u8,
    /// The slice in which the last page came.
    slice: u32,
}

/// The queue. As a policy of its own it is LRU; [`Policy::access_at`] is what it is for.
#[derive(Debug, Clone)]
pub struct LazySegmentedLru {
    /// By page: its entry plus one; 0 if it is not cached.
    slot: Vec<u32>,
    /// By slot.
    entries: Vec<u32>,
    blocks: Vec<Block>,
    /// Blocks; the front is the side of eviction.
    queues: [VecDeque<u32>; SEGMENTS],
    free: Vec<u32>,
    live: [u32; SEGMENTS],
    /// The slot for the next page at the upper end of a segment; at the start of a block: none, a block has to be opened.
    next: [u32; SEGMENTS],
    shift: u32,
    count: u32,
    capacity: u32,
    error_max: u32,
    ageing: Ageing,
    on_hit: OnHit,
    slice: u32,
}

impl LazySegmentedLru {
    /// An empty cache of `capacity` pages out of `0..universe`, with an error of up to a hundredth of the capacity.
    pub fn new(capacity: u32, universe: u32) -> Self {
        Self::with_error(capacity, universe, capacity / 100)
    }

    /// The same with an error of up to `error_max` pages.
    ///
    /// Below [`ERROR_MIN`] the queue is exact: blocks of one page fit every cut.
    pub fn with_error(capacity: u32, universe: u32, error_max: u32) -> Self {
        check_capacity(capacity);
        let error_max = if error_max < ERROR_MIN { 0 } else { error_max };
        let shift = (error_max / 4).clamp(1, BLOCK_MAX).ilog2();
        let full = (capacity.min(universe) >> shift) as usize + 1;
        let blocks = SLACK * full + 3 * SEGMENTS;
        let block = Block {
            live: 0,
            filled: 0,
            first: 0,
            segment: 0,
            slice: 0,
        };
        Self {
            slot: zeroes(universe as usize),
            entries: zeroes(blocks << shift),
            blocks: vec![block; blocks],
            queues: std::array::from_fn(|_| VecDeque::new()),
            free: (0..blocks as u32).rev().collect(),
            live: [0; SEGMENTS],
            next: [0; SEGMENTS],
            shift,
            count: 0,
            capacity,
            error_max,
            ageing: Ageing::Never,
            on_hit: OnHit::Top,
            slice: 0,
        }
    }

    /// What happens at the end of a slice.
    #[must_use]
    pub fn ageing(mut self, ageing: Ageing) -> Self {
        self.ageing = ageing;
        self
    }

    /// Where pages go that are hit.
    #[must_use]
    pub fn on_hit(mut self, on_hit: OnHit) -> Self {
        self.on_hit = on_hit;
        self
    }

    /// Pages by which an insertion may be off.
    pub fn error_pages_max(&self) -> u32 {
        self.error_max
    }

    /// Pages from the one that is evicted next to the most recently used one. For tests; it takes as long as it sounds.
    pub fn in_order(&self) -> Vec<u32> {
        let mut pages = Vec::new();
        for block in self.queues.iter().flatten() {
            self.each_live(*block, |page| pages.push(page));
        }
        pages
    }

    fn each_live(&self, block: u32, mut each: impl FnMut(u32)) {
        let b = &self.blocks[block as usize];
        let base = (block as usize) << self.shift;
        for at in base + usize::from(b.first)..base + usize::from(b.filled) {
            let page = self.entries[at];
            if self.slot[page as usize] == at as u32 + 1 {
                each(page);
            }
        }
    }

    #[inline]
    fn target(&self, cut: usize, count: u32) -> u32 {
        ((cut as u64 + 1) * u64::from(count) / SEGMENTS as u64) as u32
    }

    /// Brings a cut to less than a block from where `target` pages are below it, unless it is within the error.
    #[inline]
    fn bring(&mut self, cut: usize, target: u32) {
        // All 20 are looked at, since that is faster than a loop of unknown length.
        let live = self.live.iter().enumerate();
        let below: u32 = live.map(|(i, n)| if i <= cut { *n } else { 0 }).sum();
        if below.abs_diff(target) > self.error_max {
            self.hand_over(cut, below, target);
        }
    }

    fn hand_over(&mut self, cut: usize, mut below: u32, target: u32) {
        let sinks = below < target;
        let mut from = if sinks { cut + 1 } else { cut };
        loop {
            if self.live[from] == 0 {
                match (sinks, from) {
                    (true, f) if f + 1 < SEGMENTS => from += 1,
                    (false, f) if f > 0 => from -= 1,
                    _ => return,
                }
                continue;
            }
            let queue = &self.queues[from];
            let end = if sinks { queue.front() } else { queue.back() };
            let block = *end.expect("it has live pages");
            let live = u32::from(self.blocks[block as usize].live);
            if live > below.abs_diff(target) {
                return;
            }
            if sinks {
                self.queues[from].pop_front();
            } else {
                self.queues[from].pop_back();
            }
            if live == 0 {
                self.next[from] = 0;
                self.free.push(block);
                continue;
            }
            let to = if sinks { cut } else { cut + 1 };
            (self.next[from], self.next[to]) = (0, 0);
            self.blocks[block as usize].segment = to as u8;
            self.live[from] -= live;
            self.live[to] += live;
            if sinks {
                self.queues[to].push_back(block);
                below += live;
            } else {
                self.queues[to].push_front(block);
                below -= live;
            }
        }
    }

    /// Puts a page at the upper end of a segment.
    #[inline]
    fn put(&mut self, page: u32, segment: usize) {
        let mut at = self.next[segment];
        if at & ((1 << self.shift) - 1) == 0 {
            at = self.open(segment);
        }
        self.next[segment] = at + 1;
        let b = &mut self.blocks[(at >> self.shift) as usize];
        b.filled += 1;
        b.live += 1;
        b.slice = self.slice;
        self.entries[at as usize] = page;
        self.slot[page as usize] = at + 1;
        self.live[segment] += 1;
    }

    /// The slot for the next page at the upper end of a segment, in a new block unless the last one has room.
    #[cold]
    #[inline(never)]
    fn open(&mut self, segment: usize) -> u32 {
        if let Some(block) = self.queues[segment].back() {
            let filled = u32::from(self.blocks[*block as usize].filled);
            if filled < 1 << self.shift {
                return (block << self.shift) + filled;
            }
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        let block = self.free.pop().expect("a squeeze frees most blocks");
        self.blocks[block as usize] = Block {
            live: 0,
            filled: 0,
            first: 0,
            segment: segment as u8,
            slice: self.slice,
        };
        self.queues[segment].push_back(block);
        block << self.shift
    }

    /// Takes a cached page out of its block.
    #[inline]
    fn take(&mut self, slot: u32) {
        let block = &mut self.blocks[((slot - 1) >> self.shift) as usize];
        block.live -= 1;
        self.live[usize::from(block.segment)] -= 1;
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        let lowest = (0..SEGMENTS).find(|q| self.live[*q] > 0)?;
        loop {
            let block = *self.queues[lowest].front()?;
            let b = &mut self.blocks[block as usize];
            if b.live == 0 {
                self.queues[lowest].pop_front();
                self.next[lowest] = 0;
                self.free.push(block);
                continue;
            }
            loop {
                let at = (block << self.shift) + u32::from(b.first);
                b.first += 1;
                let page = self.entries[at as usize];
                let slot = &mut self.slot[page as usize];
                if *slot == at + 1 {
                    *slot = 0;
                    b.live -= 1;
                    self.live[lowest] -= 1;
                    self.count -= 1;
                    return Some(page);
                }
            }
        }
    }
}

impl Policy for LazySegmentedLru {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        self.access_at(page, Position::TOP)
    }

    #[inline]
    fn access_at(&mut self, page: u32, position: Position) -> Outcome {
        let segment = position.segment();
        let slot = self.slot[page as usize];
        if slot != 0 {
            let again = self.on_hit == OnHit::Again && segment < SEGMENTS - 1;
            if again {
                self.bring(segment, self.target(segment, self.count));
            }
            self.take(slot);
            // No longer anywhere, in case that opening a block squeezes.
            self.slot[page as usize] = 0;
            self.put(page, if again { segment } else { SEGMENTS - 1 });
            return Outcome::Hit;
        }
        let mut target = self.target(segment, self.count);
        let evicted = if self.count == self.capacity {
            target = target.saturating_sub(1);
            self.evict()
        } else {
            None
        };
        if segment < SEGMENTS - 1 {
            self.bring(segment, target);
        }
        self.put(page, segment);
        self.count += 1;
        Outcome::Miss { evicted }
    }

    #[inline]
    fn places_hits(&self) -> bool {
        self.on_hit == OnHit::Again
    }

    fn remove(&mut self, page: u32) -> bool {
        let slot = std::mem::take(&mut self.slot[page as usize]);
        if slot == 0 {
            return false;
        }
        self.take(slot);
        self.count -= 1;
        true
    }

    #[inline]
    fn contains(&self, page: u32) -> bool {
        self.slot[page as usize] != 0
    }

    fn len(&self) -> u32 {
        self.count
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        let queues: usize = self.queues.iter().map(VecDeque::capacity).sum();
        (self.slot.capacity() + self.entries.capacity() + self.free.capacity() + queues)
            * size_of::<u32>()
            + self.blocks.capacity() * size_of::<Block>()
    }

    fn slice_ended(&mut self) {
        self.slice += 1;
        if self.ageing == Ageing::TwoSlices {
            self.age_out();
        }
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.slot[page as usize]
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        let lowest = self.queues.iter().find_map(|q| q.front());
        let Some(block) = lowest.copied() else {
            return 0;
        };
        let b = &self.blocks[block as usize];
        let base = (block as usize) << self.shift;
        let (first, filled) = (usize::from(b.first), usize::from(b.filled));
        let next = &self.entries[base + first..base + filled.min(first + BATCH)];
        next.iter().fold(0, |sum, p| sum ^ self.slot[*p as usize])
    }
}
