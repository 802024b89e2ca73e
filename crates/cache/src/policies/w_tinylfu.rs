//! W-TinyLFU: a newcomer gets in only if it was asked for more often than what would have to go.

use crate::lists::Lists;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Largest count: four bits.
const COUNT_MAX: u8 = 15;
/// Accesses over the capacity after which all counts are halved.
const SAMPLE: u64 = 10;

/// W-TinyLFU (Einziger, Friedman, Manes, TinyLFU: a highly efficient cache admission policy, ACM TOS 13(4), 2017): a hundredth of
/// the pages in an LRU window, the rest in a segmented LRU (a fifth on probation, four fifths protected). What leaves the
/// window goes on to probation if it was asked for more often lately than the page that would have to go from there.
///
/// The paper estimates counts with a sketch and a filter, since its keys are unbounded. Pages have dense numbers, so counts
/// are exact here: four bits of a byte for each page number, halved every ten capacities of accesses. Decisions are those of a
/// sketch without collisions.
///
/// Good for skewed loads with much that is used once. Not for loads whose hot set changes fast (new pages lose against
/// old counts until these are halved), nor where recency is all.
#[derive(Debug, Clone)]
pub struct WTinyLfu {
    lists: Lists<3>,
    counts: Vec<u8>,
    accesses: u64,
    window_max: u32,
    protected_max: u32,
    capacity: u32,
}

impl WTinyLfu {
    /// An empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let window_max = (capacity / 100).max(1);
        Self {
            lists: Lists::new(universe),
            counts: vec![0; universe as usize],
            accesses: 0,
            window_max,
            protected_max: (u64::from(capacity - window_max) * 4 / 5) as u32,
            capacity,
        }
    }

    #[inline]
    fn count(&mut self, page: u32) {
        let count = &mut self.counts[page as usize];
        *count = (*count + 1).min(COUNT_MAX);
        self.accesses += 1;
        if self.accesses == SAMPLE * u64::from(self.capacity) {
            self.accesses = 0;
            for count in &mut self.counts {
                *count /= 2;
            }
        }
    }

    /// Settles who goes on and who goes after a page came into the window; if the cache was full, somebody has to.
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
            // The window lost pages by hand and may grow again.
            let victim = victim?;
            self.lists.unlink(victim);
            return Some(victim);
        }
        let candidate = self.lists.pop(WINDOW)?;
        match victim {
            Some(victim) if self.counts[candidate as usize] > self.counts[victim as usize] => {
                self.lists.unlink(victim);
                self.lists.push(PROBATION, candidate);
                Some(victim)
            }
            _ => Some(candidate),
        }
    }
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
        self.lists.memory_bytes() + self.counts.capacity()
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.lists.warm(page) ^ u32::from(self.counts[page as usize])
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        self.lists.warm_tail(WINDOW, BATCH) ^ self.lists.warm_tail(PROBATION, BATCH)
    }
}
