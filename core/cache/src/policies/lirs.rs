//! LIRS: keeps pages with two uses at a short distance, whatever is used in between.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

/// In `recency`: the paper's stack S.
const STACK: usize = 0;
/// In `others`: cached pages of long distance, the paper's queue Q.
const QUEUE: usize = 0;
/// In `others`: pages of the stack that are not cached, in order of eviction.
const GONE: usize = 1;

/// State of a page, kept in the flags of `recency`.
const NOTHING: u32 = 0;
/// Cached, used at a short distance: LIR.
const SHORT: u32 = 1;
/// Cached, used at a long distance or once: resident HIR.
const LONG: u32 = 2;
/// Not cached, in the stack: non-resident HIR.
const REMEMBERED: u32 = 3;

/// Number of remembered pages relative to the capacity.
const REMEMBERED_MAX: u32 = 1;

/// LIRS (Jiang, Zhang, SIGMETRICS 2002): pages are ranked by the distance of their last two uses. All but a hundredth
/// of the cache is for pages of short distance; the rest is a queue for all others.
///
/// The paper leaves open how many uncached pages the stack may have. Here it is one capacity, and the page evicted
/// first is forgotten first. Very good for loops and scans. Not suited if recency decides (the first use of a new hot
/// page is a miss twice), or if memory is short.
#[derive(Debug, Clone)]
pub struct Lirs {
    recency: Lists<1>,
    others: Lists<2>,
    short: u32,
    short_max: u32,
    capacity: u32,
}

impl Lirs {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let queue = match capacity {
            1 => 0,
            c => (c / 100).max(1),
        };
        Self {
            recency: Lists::new(universe),
            others: Lists::new(universe),
            short: 0,
            short_max: capacity - queue,
            capacity,
        }
    }

    /// Removes pages from the bottom of the stack until a page of short distance is there.
    #[inline]
    fn prune(&mut self) {
        while let Some(page) = self.recency.oldest(STACK) {
            match self.recency.flags(page) {
                SHORT => return,
                REMEMBERED => {
                    self.others.unlink(page);
                    self.recency.set_flags(page, NOTHING);
                }
                _ => {}
            }
            self.recency.pop(STACK);
        }
    }

    /// Makes a page one of short distance. If there are too many, the one at the bottom of the stack becomes one of
    /// long distance.
    #[inline]
    fn promote(&mut self, page: u32) {
        self.others.unlink(page);
        self.recency.set_flags(page, SHORT);
        self.recency.push(STACK, page);
        self.short += 1;
        // The stack is pruned after every change, so its bottom has short distance.
        if self.short > self.short_max
            && let Some(bottom) = self.recency.pop(STACK)
        {
            self.recency.set_flags(bottom, LONG);
            self.others.push(QUEUE, bottom);
            self.short -= 1;
        }
        self.prune();
    }

    fn evict(&mut self) -> Option<u32> {
        let Some(page) = self.others.pop(QUEUE) else {
            // Only after explicit removals, or with a single page.
            let page = self.recency.pop(STACK)?;
            self.recency.set_flags(page, NOTHING);
            self.short -= 1;
            self.prune();
            return Some(page);
        };
        if self.recency.find(page).is_none() {
            self.recency.set_flags(page, NOTHING);
            return Some(page);
        }
        self.recency.set_flags(page, REMEMBERED);
        self.others.push(GONE, page);
        let limit = self.capacity.saturating_mul(REMEMBERED_MAX);
        if self.others.len(GONE) > limit
            && let Some(forgotten) = self.others.pop(GONE)
        {
            self.recency.set_flags(forgotten, NOTHING);
            self.recency.unlink(forgotten);
        }
        Some(page)
    }
}

impl Policy for Lirs {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        match self.recency.flags(page) {
            SHORT => {
                self.recency.push(STACK, page);
                self.prune();
                return Outcome::Hit;
            }
            LONG => {
                if self.recency.find(page).is_some() {
                    self.promote(page);
                } else {
                    self.recency.push(STACK, page);
                    self.others.push(QUEUE, page);
                }
                return Outcome::Hit;
            }
            _ => {}
        }
        let full = self.len() == self.capacity;
        let evicted = if full { self.evict() } else { None };
        // The eviction may have forgotten the page.
        if self.recency.flags(page) == REMEMBERED || self.short < self.short_max {
            self.promote(page);
        } else {
            self.recency.set_flags(page, LONG);
            self.recency.push(STACK, page);
            self.others.push(QUEUE, page);
        }
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        let state = self.recency.flags(page);
        if !matches!(state, SHORT | LONG) {
            return false;
        }
        self.recency.set_flags(page, NOTHING);
        self.recency.unlink(page);
        self.others.unlink(page);
        if state == SHORT {
            self.short -= 1;
            self.prune();
        }
        true
    }

    fn contains(&self, page: u32) -> bool {
        matches!(self.recency.flags(page), SHORT | LONG)
    }

    #[inline]
    fn len(&self) -> u32 {
        self.short + self.others.len(QUEUE)
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.recency.memory_bytes() + self.others.memory_bytes()
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.recency.warm(page) ^ self.others.warm(page)
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        self.recency.warm_tail(STACK, BATCH)
    }
}
