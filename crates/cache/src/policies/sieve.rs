//! SIEVE: a hand that removes what was not used, and moves nothing.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024): a queue in order of arrival, and a hand that goes from the
/// oldest to the newest, clears the marks of pages that were hit and evicts the first without one; what it spares
/// stays where it is. From the newest it goes on to the oldest, at once: a page that comes after that waits a whole round.
///
/// Good at dropping what is used once, with one bit a page. Not for block loads with long scans or loops, which the paper
/// itself says: it has no protection against them.
#[derive(Debug, Clone)]
pub struct Sieve {
    lists: Lists<1>,
    capacity: u32,
}

impl Sieve {
    /// An empty cache of `capacity` pages out of `0..universe`.
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
