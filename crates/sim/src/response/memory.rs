//! Caches over dense object numbers: an LRU for appliances, a second-chance queue for what is large and not strict.

use std::collections::VecDeque;

/// The array's memory, and an appliance's SSD: first in first out, with a second chance for what was asked for meanwhile
/// (Corbató 1968; what real arrays do is not published). A byte per object keeps it quick for millions of them.
#[derive(Debug, Clone)]
pub(super) struct SecondChance {
    capacity: u64,
    used: u64,
    /// 0 absent, 1 present, 2 present and asked for.
    state: Vec<u8>,
    bytes_each: Vec<u32>,
    class: Vec<u32>,
    queue: VecDeque<u32>,
}

impl SecondChance {
    /// For classes of (objects, bytes of each); an object's number is that within its class plus all before.
    pub(super) fn new(capacity: u64, classes: &[(u32, u32)]) -> Self {
        let total: u32 = classes.iter().map(|c| c.0).sum();
        let mut first = 0;
        let class = classes.iter().map(|c| {
            let this = first;
            first += c.0;
            this
        });
        Self {
            capacity,
            used: 0,
            class: class.collect(),
            bytes_each: classes.iter().map(|c| c.1).collect(),
            state: vec![0; total as usize],
            queue: VecDeque::new(),
        }
    }

    /// Looks an object up, and remembers that it was asked for.
    #[inline]
    pub(super) fn hit(&mut self, object: u32) -> bool {
        let state = &mut self.state[object as usize];
        if *state == 0 {
            return false;
        }
        *state = 2;
        true
    }

    /// Puts an object in, if it is not there.
    pub(super) fn insert(&mut self, object: u32) {
        if self.state[object as usize] != 0 {
            return;
        }
        let bytes = self.bytes(object);
        self.shrink_to(self.capacity.saturating_sub(bytes));
        if self.used + bytes > self.capacity {
            return;
        }
        self.state[object as usize] = 1;
        self.used += bytes;
        self.queue.push_back(object);
    }

    /// Takes an object out; whether it was there.
    pub(super) fn remove(&mut self, object: u32) -> bool {
        let was = std::mem::take(&mut self.state[object as usize]);
        if was != 0 {
            // Its place in the queue is passed over when its turn comes.
            self.used -= self.bytes(object);
        }
        was != 0
    }

    /// Changes how much it holds; what does not fit any more goes, oldest first.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shrink_to(capacity);
    }

    /// Empties it, and returns what it held, oldest first.
    pub(super) fn drain(&mut self) -> Vec<u32> {
        let queue = std::mem::take(&mut self.queue);
        queue.into_iter().filter(|o| self.remove(*o)).collect()
    }

    fn shrink_to(&mut self, most: u64) {
        while self.used > most {
            let Some(oldest) = self.queue.pop_front() else {
                return;
            };
            match self.state[oldest as usize] {
                2 => {
                    self.state[oldest as usize] = 1;
                    self.queue.push_back(oldest);
                }
                1 => {
                    self.state[oldest as usize] = 0;
                    self.used -= self.bytes(oldest);
                }
                // Dropped earlier; its bytes were given back then.
                _ => {}
            }
        }
    }

    fn bytes(&self, object: u32) -> u64 {
        let class = self.class.partition_point(|first| *first <= object) - 1;
        u64::from(self.bytes_each[class])
    }
}

const NONE: u32 = u32::MAX;

/// A strict LRU over dense objects of one size.
#[derive(Debug, Clone)]
pub(super) struct Lru {
    capacity: usize,
    held: usize,
    next: Vec<u32>,
    previous: Vec<u32>,
    first: u32,
    last: u32,
    present: Vec<bool>,
}

impl Lru {
    pub(super) fn new(objects: u32, capacity: usize) -> Self {
        Self {
            capacity,
            held: 0,
            next: vec![NONE; objects as usize],
            previous: vec![NONE; objects as usize],
            first: NONE,
            last: NONE,
            present: vec![false; objects as usize],
        }
    }

    pub(super) fn hit(&mut self, object: u32) -> bool {
        if !self.present[object as usize] {
            return false;
        }
        if self.first != object {
            self.unlink(object);
            self.link_first(object);
        }
        true
    }

    pub(super) fn insert(&mut self, object: u32) {
        if self.capacity == 0 || self.hit(object) {
            return;
        }
        if self.held == self.capacity {
            self.remove(self.last);
        }
        self.present[object as usize] = true;
        self.held += 1;
        self.link_first(object);
    }

    pub(super) fn remove(&mut self, object: u32) {
        if self.present[object as usize] {
            self.unlink(object);
            self.present[object as usize] = false;
            self.held -= 1;
        }
    }

    fn unlink(&mut self, object: u32) {
        let (before, after) = (self.previous[object as usize], self.next[object as usize]);
        match before {
            NONE => self.first = after,
            b => self.next[b as usize] = after,
        }
        match after {
            NONE => self.last = before,
            a => self.previous[a as usize] = before,
        }
    }

    fn link_first(&mut self, object: u32) {
        self.previous[object as usize] = NONE;
        self.next[object as usize] = self.first;
        match self.first {
            NONE => self.last = object,
            f => self.previous[f as usize] = object,
        }
        self.first = object;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    #[test]
    fn an_lru_does_as_a_list_does() {
        let mut lru = Lru::new(40, 9);
        let mut list: Vec<u32> = Vec::new();
        let mut rng = Rng::new(1, 1);
        for _ in 0..20_000 {
            let object = rng.below(40) as u32;
            match rng.below(5) {
                0 => {
                    lru.remove(object);
                    list.retain(|o| *o != object);
                }
                _ => {
                    let hit = list.contains(&object);
                    assert_eq!(lru.hit(object), hit);
                    list.retain(|o| *o != object);
                    list.insert(0, object);
                    list.truncate(9);
                    lru.insert(object);
                }
            }
            assert_eq!(lru.held, list.len());
        }
    }

    #[test]
    fn second_chance_holds_its_capacity_and_keeps_what_is_asked_for() {
        let mut memory = SecondChance::new(1000, &[(100, 10), (50, 100)]);
        for object in 0..100 {
            memory.insert(object);
        }
        assert_eq!(memory.used, 1000);
        assert!((0..50).all(|o| memory.hit(o)));
        for object in 100..105 {
            memory.insert(object);
        }
        assert_eq!(memory.used, 1000);
        assert!((0..50).all(|o| memory.hit(o)), "asked for: kept");
        assert!((50..100).all(|o| !memory.hit(o)));
    }

    #[test]
    fn uniform_reads_hit_by_the_share_that_fits() {
        let mut memory = SecondChance::new(600 * 4096, &[(1000, 4096)]);
        let mut rng = Rng::new(2, 2);
        let mut hits = 0;
        for i in 0..60_000 {
            let object = rng.below(1000) as u32;
            if memory.hit(object) {
                hits += u32::from(i >= 10_000);
            } else {
                memory.insert(object);
            }
        }
        assert!((f64::from(hits) / 50_000.0 - 0.6).abs() < 0.02, "{hits}");
    }
}
