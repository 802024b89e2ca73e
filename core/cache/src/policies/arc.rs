//! ARC: two LRU queues, with memories of evicted pages that adapt the sizes of the queues.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// Cached, used once recently.
const T1: usize = 0;
/// Cached, used more than once.
const T2: usize = 1;
/// Evicted from T1.
const B1: usize = 2;
/// Evicted from T2.
const B2: usize = 3;

/// Adaptive replacement cache (Megiddo, Modha, FAST 2003, figure 4). The target of T1 is a real number, and its steps
/// are the ratio of the two memories, as in the paper. Implementations that round either have slightly different
/// counts.
///
/// Adapts between recency and frequency without parameters, and resists scans. Not suited if two uses in a short time
/// do not predict later use (each such page enters T2), or if memory is short: it remembers as many pages as it caches.
#[derive(Debug, Clone)]
pub struct Arc {
    lists: Lists<4>,
    /// Target size of T1 in pages.
    target: f64,
    capacity: u32,
}

impl Arc {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            lists: Lists::new(universe),
            target: 0.0,
            capacity,
        }
    }

    /// Procedure REPLACE of the paper.
    #[inline]
    fn replace(&mut self, from_b2: bool) -> Option<u32> {
        let t1 = self.lists.len(T1);
        let over = f64::from(t1) > self.target || (from_b2 && f64::from(t1) == self.target);
        // After explicit removals, T2 may be empty although T1 is not above its target.
        let (from, to) = if t1 > 0 && (over || self.lists.len(T2) == 0) {
            (T1, B1)
        } else {
            (T2, B2)
        };
        let page = self.lists.pop(from)?;
        self.lists.push(to, page);
        Some(page)
    }

    #[inline]
    fn adapt(&mut self, grown: usize, other: usize) -> f64 {
        let ratio = f64::from(self.lists.len(other)) / f64::from(self.lists.len(grown));
        ratio.max(1.0)
    }

    #[inline]
    fn miss(&mut self, page: u32) -> Option<u32> {
        let c = self.capacity;
        let full = self.len() == c;
        let recent = self.lists.len(T1) + self.lists.len(B1);
        let evicted = if recent == c {
            if self.lists.len(T1) < c {
                self.lists.pop(B1);
                if full { self.replace(false) } else { None }
            } else {
                // The page is not remembered, because B1 has no room.
                self.lists.pop(T1)
            }
        } else {
            let all = recent + self.lists.len(T2) + self.lists.len(B2);
            if all >= 2 * c {
                self.lists.pop(B2);
            }
            if full { self.replace(false) } else { None }
        };
        self.lists.push(T1, page);
        evicted
    }
}

impl Policy for Arc {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        let evicted = match self.lists.find(page) {
            Some(T1 | T2) => {
                self.lists.push(T2, page);
                return Outcome::Hit;
            }
            Some(B1) => {
                self.target = (self.target + self.adapt(B1, B2)).min(f64::from(self.capacity));
                let full = self.len() == self.capacity;
                let evicted = if full { self.replace(false) } else { None };
                self.lists.push(T2, page);
                evicted
            }
            Some(_) => {
                self.target = (self.target - self.adapt(B2, B1)).max(0.0);
                let full = self.len() == self.capacity;
                let evicted = if full { self.replace(true) } else { None };
                self.lists.push(T2, page);
                evicted
            }
            None => self.miss(page),
        };
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.contains(page) && self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        matches!(self.lists.find(page), Some(T1 | T2))
    }

    #[inline]
    fn len(&self) -> u32 {
        self.lists.len(T1) + self.lists.len(T2)
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
        (0..4).fold(0, |sum, queue| sum ^ self.lists.warm_tail(queue, BATCH / 2))
    }
}
