//! FIFO: first in, first out.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// First in, first out: hits change nothing (compared in Belady, A study of replacement algorithms for a
/// virtual-storage computer, 1966).
///
/// The baseline, and the cheapest policy. Not suited for loads with a hot set: hot pages are evicted like all others,
/// and more capacity can even cause more misses.
#[derive(Debug, Clone)]
pub struct Fifo {
    lists: Lists<1>,
    capacity: u32,
}

impl Fifo {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            lists: Lists::new(universe),
            capacity,
        }
    }
}

impl Policy for Fifo {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        if self.lists.find(page).is_some() {
            return Outcome::Hit;
        }
        let full = self.lists.len(0) == self.capacity;
        let evicted = if full { self.lists.pop(0) } else { None };
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
