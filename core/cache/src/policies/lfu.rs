//! LFU: evicts the least frequently used page; old uses lose weight.

use crate::policy::{Outcome, Policy, check_capacity};

/// Number of keys that pages can have at one time, and so the largest count of uses plus one.
const KEYS: usize = 1024;
const USES_MAX: u16 = KEYS as u16 - 1;
/// No slot.
const NONE: u32 = u32::MAX;

/// Least frequently used with dynamic ageing (LFU-DA: Arlitt, Cherkasova, Dilley, Friedrich, Jin, Evaluating content
/// management techniques for web proxy caches, ACM SIGMETRICS PER 27(4), 2000). The key of a page is its count of uses
/// plus the age of the cache at its last use. The page with the lowest key is evicted, and its key becomes the age.
/// Among equal keys, the page that has had its key for the longest time is evicted. Uses are counted up to 1,023.
///
/// Without ageing ([`Lfu::without_ageing`]) it is plain LFU, which never forgets a past hot set. Not suited for scans
/// of pages that occur twice in a row, or for loads with a moving hot set, with or without ageing: counts outlast their
/// cause.
#[derive(Debug, Clone)]
pub struct Lfu {
    /// By page: its slot; [`NONE`] if it is not cached.
    slot: Vec<u32>,
    slots: Vec<Slot>,
    free: u32,
    /// By key modulo [`KEYS`]: slots from the oldest to the newest.
    queues: Vec<Queue>,
    /// Bit set of queues with slots.
    used: [u64; KEYS / 64],
    age: u64,
    ageing: bool,
    count: u32,
    capacity: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    page: u32,
    older: u32,
    newer: u32,
    key: u16,
    uses: u16,
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    oldest: u32,
    newest: u32,
}

impl Lfu {
    /// Creates an empty cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        Self {
            slot: vec![NONE; universe as usize],
            slots: Vec::with_capacity(capacity.min(universe) as usize),
            free: NONE,
            queues: vec![
                Queue {
                    oldest: NONE,
                    newest: NONE
                };
                KEYS
            ],
            used: [0; KEYS / 64],
            age: 0,
            ageing: true,
            count: 0,
            capacity,
        }
    }

    /// Creates a cache that never ages.
    pub fn without_ageing(capacity: u32, universe: u32) -> Self {
        Self {
            ageing: false,
            ..Self::new(capacity, universe)
        }
    }

    /// Puts a slot at the newest end of the queue for its uses and the present age.
    #[inline]
    fn link(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        // Uses are below KEYS and no key is below the age, so present keys differ modulo KEYS.
        let key = (self.age as usize + usize::from(slot.uses)) % KEYS;
        slot.key = key as u16;
        let queue = &mut self.queues[key];
        slot.older = queue.newest;
        slot.newer = NONE;
        let older = std::mem::replace(&mut queue.newest, at);
        match older {
            NONE => {
                queue.oldest = at;
                self.used[key / 64] |= 1 << (key % 64);
            }
            older => self.slots[older as usize].newer = at,
        }
    }

    #[inline]
    fn unlink(&mut self, at: u32) {
        let slot = self.slots[at as usize];
        let key = usize::from(slot.key);
        match slot.newer {
            NONE => self.queues[key].newest = slot.older,
            newer => self.slots[newer as usize].older = slot.older,
        }
        match slot.older {
            NONE => self.queues[key].oldest = slot.newer,
            older => self.slots[older as usize].newer = slot.newer,
        }
        if self.queues[key].oldest == NONE {
            self.used[key / 64] &= !(1 << (key % 64));
        }
    }

    /// Returns the lowest key in use, as its distance from the age.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        let start = (self.age % KEYS as u64) as usize;
        // The first word is examined twice: from the start on, and at the end up to it.
        (0..=self.used.len()).find_map(|i| {
            let word = (start / 64 + i) % self.used.len();
            let mask = match i {
                0 => u64::MAX << (start % 64),
                i if i == self.used.len() => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.used[word] & mask;
            let key = word * 64 + bits.trailing_zeros() as usize;
            (bits != 0).then(|| (key + KEYS - start) % KEYS)
        })
    }

    fn evict(&mut self) -> Option<u32> {
        let distance = self.lowest()?;
        let key = ((self.age + distance as u64) % KEYS as u64) as usize;
        if self.ageing {
            self.age += distance as u64;
        }
        let page = self.slots[self.queues[key].oldest as usize].page;
        self.remove(page);
        Some(page)
    }
}

impl Policy for Lfu {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        let at = self.slot[page as usize];
        if at != NONE {
            self.unlink(at);
            let uses = &mut self.slots[at as usize].uses;
            *uses = (*uses + 1).min(USES_MAX);
            self.link(at);
            return Outcome::Hit;
        }
        let full = self.count == self.capacity;
        let evicted = if full { self.evict() } else { None };
        let slot = Slot {
            page,
            older: NONE,
            newer: NONE,
            key: 0,
            uses: 1,
        };
        let at = self.free;
        let at = if at == NONE {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            self.free = self.slots[at as usize].newer;
            self.slots[at as usize] = slot;
            at
        };
        self.slot[page as usize] = at;
        self.link(at);
        self.count += 1;
        Outcome::Miss { evicted }
    }

    fn remove(&mut self, page: u32) -> bool {
        let at = std::mem::replace(&mut self.slot[page as usize], NONE);
        if at == NONE {
            return false;
        }
        self.unlink(at);
        self.slots[at as usize].newer = std::mem::replace(&mut self.free, at);
        self.count -= 1;
        true
    }

    fn contains(&self, page: u32) -> bool {
        self.slot[page as usize] != NONE
    }

    fn len(&self) -> u32 {
        self.count
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.slot.capacity() * size_of::<u32>()
            + self.slots.capacity() * size_of::<Slot>()
            + self.queues.capacity() * size_of::<Queue>()
            + size_of_val(&self.used)
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        let at = self.slot[page as usize];
        self.slots.get(at as usize).map_or(0, |s| s.page)
    }
}
