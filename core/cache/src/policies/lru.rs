//! LRU: evicts the least recently used page.

use crate::huge;
use crate::policy::{Outcome, Policy, check_capacity};

/// Size of the log relative to the capacity: number of accesses between two squeezes.
const SLACK: usize = 3;
/// Minimum number of accesses between two squeezes.
const ROOM_MIN: usize = 1024;

/// Least recently used (Mattson, Gecsei, Slutz, Traiger, Evaluation techniques for storage hierarchies, 1970).
///
/// The queue is the log of accesses itself: if a page was accessed again, its older entry is stale. So an access writes
/// one word at random and one in order. A stack algorithm: `StackSizes` counts many capacities in one pass.
///
/// Not suited for loads with scans longer than the capacity: each scan flushes the cache, and a loop that is one page
/// longer than the capacity never hits.
#[derive(Debug, Clone)]
pub struct Lru {
    /// By page: position of its last access in the log; 0 if it is not cached.
    last: Vec<u32>,
    /// Pages in order of access; the first entry is never used.
    log: Vec<u32>,
    tail: usize,
    room: usize,
    live: u32,
    capacity: u32,
}

impl Lru {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let room = room_for(capacity, universe);
        let mut log = huge::with_capacity(room);
        log.push(u32::MAX);
        Self {
            last: huge::zeroes(universe as usize),
            log,
            tail: 1,
            room,
            live: 0,
            capacity,
        }
    }

    /// Removes and returns the least recently used page.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        loop {
            let page = self.log[self.tail];
            let last = &mut self.last[page as usize];
            let live = *last as usize == self.tail;
            self.tail += 1;
            if live {
                *last = 0;
                self.live -= 1;
                return Some(page);
            }
        }
    }

    /// Returns the least recently used page.
    pub fn oldest(&mut self) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        while self.last[self.log[self.tail] as usize] as usize != self.tail {
            self.tail += 1;
        }
        Some(self.log[self.tail])
    }

    /// Changes the capacity. Pages that no longer fit are evicted, oldest first, and passed to `gone`.
    pub fn resize(&mut self, capacity: u32, gone: &mut dyn FnMut(u32)) {
        check_capacity(capacity);
        self.capacity = capacity;
        while self.live > capacity {
            self.pop().into_iter().for_each(&mut *gone);
        }
        // The present content must fit, and one more page.
        self.squeeze();
        self.room = room_for(capacity, self.last.len() as u32);
    }

    /// Removes stale entries from the log.
    #[cold]
    #[inline(never)]
    fn squeeze(&mut self) {
        let mut to = 1;
        for at in self.tail..self.log.len() {
            let page = self.log[at];
            let last = self.last[page as usize];
            let live = last as usize == at;
            // Without a branch, because stale entries are unpredictable.
            self.last[page as usize] = if live { to as u32 } else { last };
            self.log[to] = page;
            to += usize::from(live);
        }
        self.log.truncate(to);
        self.tail = 1;
    }
}

/// Returns the number of entries of the log for a capacity.
fn room_for(capacity: u32, universe: u32) -> usize {
    let live_max = capacity.min(universe.max(1)) as usize + 1;
    (live_max * SLACK).max(ROOM_MIN)
}

impl Policy for Lru {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        if self.log.len() == self.room {
            self.squeeze();
        }
        let now = self.log.len() as u32;
        let last = &mut self.last[page as usize];
        let hit = *last != 0;
        *last = now;
        self.log.push(page);
        if hit {
            return Outcome::Hit;
        }
        self.live += 1;
        let evicted = if self.live > self.capacity {
            self.pop()
        } else {
            None
        };
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        let last = &mut self.last[page as usize];
        let was = *last != 0;
        *last = 0;
        self.live -= u32::from(was);
        was
    }

    #[inline]
    fn contains(&self, page: u32) -> bool {
        self.last[page as usize] != 0
    }

    fn len(&self) -> u32 {
        self.live
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        (self.last.capacity() + self.log.capacity()) * size_of::<u32>()
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.last[page as usize]
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        let to = (self.tail + crate::policy::BATCH).min(self.log.len());
        let next = &self.log[self.tail.min(to)..to];
        next.iter().fold(0, |sum, p| sum ^ self.last[*p as usize])
    }
}
