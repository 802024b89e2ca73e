//! S3-FIFO: a small queue in front of the main one, and a memory of pages evicted from the small one.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Number of hits in the small queue that move a page to the main one: the paper's "accessed more than once".
const HITS_TO_MAIN: u32 = 2;

/// S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, FIFO queues are all you need for cache eviction, SOSP 2023): a tenth of the
/// pages in a small FIFO queue, the rest in a main one with two-bit second chances. The numbers of pages that left the
/// small queue unused are remembered, up to nine tenths of the capacity. A missed page with a remembered number goes
/// straight to the main queue.
///
/// Until the first eviction, pages that do not fit in the small queue go to the main one. Good if most pages are used
/// once. Not suited for loads whose pages are used twice at a distance, because they leave the small queue before the
/// second use. Not suited for small capacities either (below a hundred pages a tenth is coarse).
#[derive(Debug, Clone)]
pub struct S3Fifo {
    lists: Lists<3>,
    small_max: u32,
    main_max: u32,
    ghost_max: u32,
    has_evicted: bool,
    capacity: u32,
}

impl S3Fifo {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let small_max = (capacity / 10).max(1);
        Self {
            lists: Lists::new(universe),
            small_max,
            main_max: capacity - small_max,
            ghost_max: (u64::from(capacity) * 9 / 10) as u32,
            has_evicted: false,
            capacity,
        }
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        self.has_evicted = true;
        if self.lists.len(MAIN) > self.main_max || self.lists.len(SMALL) == 0 {
            return self.evict_main();
        }
        while let Some(page) = self.lists.pop(SMALL) {
            let hits = self.lists.flags(page);
            if hits < HITS_TO_MAIN {
                self.remember(page);
                return Some(page);
            }
            self.lists.set_flags(page, 0);
            self.lists.push(MAIN, page);
        }
        // All pages of the small queue were moved to the main one.
        self.evict_main()
    }

    #[inline]
    fn evict_main(&mut self) -> Option<u32> {
        loop {
            let page = self.lists.pop(MAIN)?;
            let hits = self.lists.flags(page);
            if hits == 0 {
                return Some(page);
            }
            self.lists.set_flags(page, hits - 1);
            self.lists.push(MAIN, page);
        }
    }

    #[inline]
    fn remember(&mut self, page: u32) {
        if self.ghost_max == 0 {
            return;
        }
        if self.lists.len(GHOST) == self.ghost_max {
            self.lists.pop(GHOST);
        }
        self.lists.push(GHOST, page);
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        let queue = self.lists.find(page);
        if matches!(queue, Some(SMALL | MAIN)) {
            let hits = self.lists.flags(page);
            self.lists.set_flags(page, (hits + 1).min(3));
            return Outcome::Hit;
        }
        let remembered = queue == Some(GHOST);
        if remembered {
            self.lists.unlink(page);
        }
        let full = self.len() == self.capacity;
        let evicted = if full { self.evict() } else { None };
        let small_is_full = !self.has_evicted && self.lists.len(SMALL) >= self.small_max;
        let to = if remembered || small_is_full {
            MAIN
        } else {
            SMALL
        };
        self.lists.set_flags(page, 0);
        self.lists.push(to, page);
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        self.contains(page) && self.lists.unlink(page)
    }

    fn contains(&self, page: u32) -> bool {
        matches!(self.lists.find(page), Some(SMALL | MAIN))
    }

    #[inline]
    fn len(&self) -> u32 {
        self.lists.len(SMALL) + self.lists.len(MAIN)
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
        self.lists.warm_tail(SMALL, BATCH)
            ^ self.lists.warm_tail(MAIN, BATCH)
            ^ self.lists.warm_tail(GHOST, BATCH / 2)
    }
}
