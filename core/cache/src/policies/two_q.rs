//! 2Q: a page enters the main queue only after two uses at a distance.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// Recent pages, first in, first out.
const IN: usize = 0;
/// Pages that were used again: LRU.
const MAIN: usize = 1;
/// Numbers of pages evicted from `IN`.
const OUT: usize = 2;

/// 2Q, the full version (Johnson, Shasha, VLDB 1994). A quarter of the pages is for recent pages. After their eviction,
/// their numbers are remembered, up to half of the capacity. A missed page with a remembered number goes to an LRU
/// queue of the other pages. A hit among recent pages changes nothing.
///
/// Resistant to scans, with few parts. The shares are fixed, as in the paper. Not suited if the hot set is near the
/// capacity, where the quarter is missing, or if pages are used again later than after half a capacity.
#[derive(Debug, Clone)]
pub struct TwoQ {
    lists: Lists<3>,
    in_max: u32,
    out_max: u32,
    capacity: u32,
}

impl TwoQ {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            lists: Lists::new(universe),
            in_max: capacity / 4,
            out_max: capacity / 2,
            capacity,
        }
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        if self.lists.len(IN) <= self.in_max && self.lists.len(MAIN) > 0 {
            return self.lists.pop(MAIN);
        }
        let page = self.lists.pop(IN)?;
        if self.out_max > 0 {
            if self.lists.len(OUT) == self.out_max {
                self.lists.pop(OUT);
            }
            self.lists.push(OUT, page);
        }
        Some(page)
    }
}

impl Policy for TwoQ {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        let queue = self.lists.find(page);
        match queue {
            Some(IN) => return Outcome::Hit,
            Some(MAIN) => {
                self.lists.push(MAIN, page);
                return Outcome::Hit;
            }
            _ => {}
        }
        let remembered = self.lists.unlink(page);
        let full = self.len() == self.capacity;
        let evicted = if full { self.evict() } else { None };
        self.lists.push(if remembered { MAIN } else { IN }, page);
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.contains(page) && self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        matches!(self.lists.find(page), Some(IN | MAIN))
    }

    #[inline]
    fn len(&self) -> u32 {
        self.lists.len(IN) + self.lists.len(MAIN)
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.lists.warm(page)
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        (0..3).fold(0, |sum, queue| sum ^ self.lists.warm_tail(queue, BATCH / 2))
    }
}
