//! SLRU: only hits move a page away from eviction.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// Number of segments of equal size.
const SEGMENTS: usize = 4;

/// Segmented LRU (Karedla, Love, Wherry, Caching strategies to improve disk system performance, IEEE Computer 27(3),
/// 1994), with four segments instead of two. A missed page is inserted in the lowest segment, and a hit raises it by
/// one. Pages that do not fit in a segment sink to the one below, and the tail of the lowest is evicted.
///
/// While there is room, a missed page is inserted in the lowest segment that has some. Not suited for loads that change
/// completely: pages of the old hot set leave one segment at a time.
#[derive(Debug, Clone)]
pub struct Slru {
    lists: Lists<SEGMENTS>,
    segment_max: u32,
    capacity: u32,
}

impl Slru {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            lists: Lists::new(universe),
            segment_max: capacity / SEGMENTS as u32,
            capacity,
        }
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        (0..SEGMENTS).find_map(|s| self.lists.pop(s))
    }
}

impl Policy for Slru {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        if let Some(segment) = self.lists.find(page) {
            let mut to = (segment + 1).min(SEGMENTS - 1);
            self.lists.push(to, page);
            while to > 0 && self.lists.len(to) > self.segment_max {
                if let Some(cooled) = self.lists.pop(to) {
                    self.lists.push(to - 1, cooled);
                }
                to -= 1;
            }
            return Outcome::Hit;
        }
        let full = self.len() == self.capacity;
        let evicted = if full { self.evict() } else { None };
        let roomy = (0..SEGMENTS).find(|s| self.lists.len(*s) < self.segment_max);
        self.lists.push(roomy.unwrap_or(0), page);
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        self.lists.find(page).is_some()
    }

    #[inline]
    fn len(&self) -> u32 {
        (0..SEGMENTS).map(|s| self.lists.len(s)).sum()
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
        (0..SEGMENTS).fold(0, |sum, s| sum ^ self.lists.warm_tail(s, BATCH / 2))
    }
}
