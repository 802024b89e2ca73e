//! W-TinyLFU: admits a new page only if it was used more often than the page it would evict.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Largest count: four bits.
const COUNT_MAX: u8 = 15;
/// Number of accesses, relative to the capacity, after which all counts are halved.
const SAMPLE: u64 = 10;
/// Number of pages whose counts are halved together: a line of a processor's cache.
const BLOCK: usize = 64;

/// W-TinyLFU (Einziger, Friedman, Manes, TinyLFU: a highly efficient cache admission policy, ACM TOS 13(4), 2017): a
/// hundredth of the pages in an LRU window, the rest in a segmented LRU (a fifth on probation, four fifths protected).
/// A page that leaves the window enters probation if it was used more often recently than the page that would be
/// evicted there.
///
/// The paper estimates counts with a sketch and a filter, because its keys are unbounded. Pages have dense numbers, so
/// counts are exact here: four bits of a byte per page number, halved every ten capacities of accesses. Decisions are
/// those of a sketch without collisions.
///
/// Good for skewed loads in which many pages are used once. Not suited for loads whose hot set changes fast (new pages
/// lose against old counts until these are halved), or if recency decides.
#[derive(Debug, Clone)]
pub struct WTinyLfu {
    lists: Lists<3>,
    counts: Counts,
    /// Accesses since the last halving.
    accesses: u64,
    window_max: u32,
    protected_max: u32,
    capacity: u32,
}

impl WTinyLfu {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let window_max = (capacity / 100).max(1);
        Self {
            lists: Lists::new(universe),
            counts: Counts::new(universe),
            accesses: 0,
            window_max,
            protected_max: (u64::from(capacity - window_max) * 4 / 5) as u32,
            capacity,
        }
    }

    #[inline]
    fn count(&mut self, page: u32) {
        self.counts.add(page);
        self.accesses += 1;
        if self.accesses == SAMPLE * u64::from(self.capacity) {
            self.accesses = 0;
            self.counts.halve();
        }
    }

    /// Chooses the page to admit and the page to evict after an insertion into the window. A full cache must evict a
    /// page.
    #[inline]
    fn settle(&mut self, full: bool) -> Option<u32> {
        let overflows = self.lists.len(WINDOW) > self.window_max;
        if !full {
            if overflows {
                let candidate = self.lists.pop(WINDOW)?;
                self.lists.push(PROBATION, candidate);
            }
            return None;
        }
        let probation = self.lists.oldest(PROBATION);
        let victim = probation.or_else(|| self.lists.oldest(PROTECTED));
        if !overflows {
            // The window lost pages by explicit removals and may grow again.
            let victim = victim?;
            self.lists.unlink(victim);
            return Some(victim);
        }
        let candidate = self.lists.pop(WINDOW)?;
        match victim {
            Some(victim) if self.counts.of(candidate) > self.counts.of(victim) => {
                self.lists.unlink(victim);
                self.lists.push(PROBATION, candidate);
                Some(victim)
            }
            _ => Some(candidate),
        }
    }
}

/// Counts by page that are halved all at once, in effect. The actual halving happens at the next addition in the same
/// block, because small caches halve often, and a trace has many pages.
#[derive(Debug, Clone)]
struct Counts {
    by_page: Vec<u8>,
    /// By block of pages: number of halvings applied to its counts.
    halved: Vec<u32>,
    /// Number of halvings.
    halvings: u32,
}

impl Counts {
    fn new(universe: u32) -> Self {
        let pages = universe as usize;
        Self {
            by_page: vec![0; pages],
            halved: vec![0; pages.div_ceil(BLOCK)],
            halvings: 0,
        }
    }

    /// Returns the uses of a page, with all due halvings.
    #[inline]
    fn of(&self, page: u32) -> u8 {
        let page = page as usize;
        self.by_page[page] >> shift(self.halvings - self.halved[page / BLOCK])
    }

    #[inline]
    fn add(&mut self, page: u32) {
        let page = page as usize;
        if self.halved[page / BLOCK] != self.halvings {
            self.settle(page / BLOCK);
        }
        let count = &mut self.by_page[page];
        *count = (*count + 1).min(COUNT_MAX);
    }

    #[inline]
    fn halve(&mut self) {
        if self.halvings == u32::MAX {
            for block in 0..self.halved.len() {
                self.settle(block);
            }
            self.halved.fill(0);
            self.halvings = 0;
        }
        self.halvings += 1;
    }

    /// Applies the due halvings to the counts of a block.
    fn settle(&mut self, block: usize) {
        let by = shift(self.halvings - self.halved[block]);
        self.halved[block] = self.halvings;
        let end = self.by_page.len().min((block + 1) * BLOCK);
        for count in &mut self.by_page[block * BLOCK..end] {
            *count >>= by;
        }
    }

    fn memory_bytes(&self) -> usize {
        self.by_page.capacity() + self.halved.capacity() * size_of::<u32>()
    }
}

/// Four halvings reduce any count to zero.
#[inline]
fn shift(halvings: u32) -> u32 {
    halvings.min(7)
}

impl Policy for WTinyLfu {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        self.count(page);
        match self.lists.find(page) {
            Some(PROBATION) => {
                self.lists.push(PROTECTED, page);
                if self.lists.len(PROTECTED) > self.protected_max
                    && let Some(cooled) = self.lists.pop(PROTECTED)
                {
                    self.lists.push(PROBATION, cooled);
                }
                Outcome::Hit
            }
            Some(queue) => {
                self.lists.push(queue, page);
                Outcome::Hit
            }
            None => {
                let full = self.len() == self.capacity;
                self.lists.push(WINDOW, page);
                let evicted = self.settle(full);
                Outcome::Miss { evicted }
            }
        }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        self.lists.find(page).is_some()
    }

    #[inline]
    fn len(&self) -> u32 {
        self.lists.len(WINDOW) + self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.counts.memory_bytes()
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.lists.warm(page) ^ u32::from(self.counts.of(page))
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        self.lists.warm_tail(WINDOW, BATCH) ^ self.lists.warm_tail(PROBATION, BATCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Includes the overflow of the number of halvings.
    #[test]
    fn lazy_halving_equals_immediate_halving() {
        for start in [0, u32::MAX - 50] {
            let pages = 200;
            let mut rng = algo::Rng::new(u64::from(start), 0);
            let mut counts = Counts::new(pages);
            counts.halvings = start;
            counts.halved.fill(start);
            let mut eager = vec![0u8; pages as usize];
            for _ in 0..5000 {
                let page = rng.below(u64::from(pages)) as u32;
                counts.add(page);
                eager[page as usize] = (eager[page as usize] + 1).min(COUNT_MAX);
                if rng.below(40) == 0 {
                    counts.halve();
                    eager.iter_mut().for_each(|c| *c /= 2);
                }
                let page = rng.below(u64::from(pages)) as u32;
                assert_eq!(counts.of(page), eager[page as usize]);
            }
            assert!((0..pages).all(|p| counts.of(p) == eager[p as usize]));
            assert!(start == 0 || counts.halvings < start, "it began anew");
        }
    }
}
