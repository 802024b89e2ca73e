//! SIEVE: a hand that removes unused pages and moves none.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024): a queue in order of arrival, and a hand that moves from the
/// oldest page to the newest. The hand clears the marks of hit pages and evicts the first page without a mark. Spared
/// pages keep their place. From the newest page the hand continues at the oldest one at once, so a page that arrives
/// later waits a whole round.
///
/// Good at dropping pages that are used once, with one bit per page. Not suited for block loads with long scans or
/// loops, as the paper itself states: it has no protection against them.
#[derive(Debug, Clone)]
pub struct Sieve {
    lists: Lists<1>,
    capacity: u32,
}

impl Sieve {
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
            let page = self.lists.at_hand(0)?;
            self.lists.advance_hand(0);
            if self.lists.flags(page) == 0 {
                self.lists.unlink(page);
                self.lists.settle_hand(0);
                return Some(page);
            }
            self.lists.set_flags(page, 0);
        }
    }
}

impl Policy for Sieve {
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
        let was = self.lists.unlink(page);
        self.lists.settle_hand(0);
        was
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
        self.lists.warm_hand(0, BATCH)
    }
}
