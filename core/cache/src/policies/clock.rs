//! Clock: FIFO with a second chance.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// Second chance (Corbató, A paging experiment with the Multics system, 1968): a page that was hit since the hand last
/// passed it is spared for one more round.
///
/// A hit sets one bit per page instead of moving the page; hit ratios are near those of LRU. Not suited if the exact
/// order of use matters, or, like LRU, for scans.
#[derive(Debug, Clone)]
pub struct Clock {
    lists: Lists<1>,
    capacity: u32,
}

impl Clock {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            lists: Lists::new(universe),
            capacity,
        }
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        loop {
            let page = self.lists.pop(0)?;
            if self.lists.flags(page) == 0 {
                return Some(page);
            }
            self.lists.set_flags(page, 0);
            self.lists.push(0, page);
        }
    }
}

impl Policy for Clock {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        if self.lists.find(page).is_some() {
            self.lists.set_flags(page, 1);
            return Outcome::Hit;
        }
        let full = self.lists.len(0) == self.capacity;
        let evicted = if full { self.evict() } else { None };
        self.lists.set_flags(page, 0);
        self.lists.push(0, page);
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        self.lists.find(page).is_some()
    }

    fn len(&self) -> u32 {
        self.lists.len(0)
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
        self.lists.warm_tail(0, BATCH)
    }
}
