//! The policies once more, as obvious and slow as can be: vectors, oldest first, searched from end to end.

use cache::{Outcome, Position, SEGMENTS};

pub trait Naive {
    fn access(&mut self, page: u32, position: Position) -> Outcome;
    fn remove(&mut self, page: u32) -> bool;
    fn cached(&self) -> Vec<u32>;
}

/// Takes a page out of a list; whether it was in.
pub fn take(list: &mut Vec<u32>, page: u32) -> bool {
    let at = list.iter().position(|p| *p == page);
    at.map(|at| list.remove(at)).is_some()
}

fn first(list: &mut Vec<u32>) -> Option<u32> {
    (!list.is_empty()).then(|| list.remove(0))
}

pub struct Fifo(pub usize, pub Vec<u32>);

impl Naive for Fifo {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if self.1.contains(&page) {
            return Outcome::Hit;
        }
        let evicted = (self.1.len() == self.0).then(|| self.1.remove(0));
        self.1.push(page);
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.1, page)
    }
    fn cached(&self) -> Vec<u32> {
        self.1.clone()
    }
}

pub struct Lru(pub usize, pub Vec<u32>);

impl Naive for Lru {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        let hit = take(&mut self.1, page);
        self.1.push(page);
        if hit {
            return Outcome::Hit;
        }
        let evicted = (self.1.len() > self.0).then(|| self.1.remove(0));
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.1, page)
    }
    fn cached(&self) -> Vec<u32> {
        self.1.clone()
    }
}

/// Pages with their marks.
pub struct Clock(pub usize, pub Vec<(u32, bool)>);

impl Naive for Clock {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if let Some(entry) = self.1.iter_mut().find(|e| e.0 == page) {
            entry.1 = true;
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.1.len() == self.0 {
            while self.1[0].1 {
                let (page, _) = self.1.remove(0);
                self.1.push((page, false));
            }
            evicted = Some(self.1.remove(0).0);
        }
        self.1.push((page, false));
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        let before = self.1.len();
        self.1.retain(|e| e.0 != page);
        self.1.len() < before
    }
    fn cached(&self) -> Vec<u32> {
        self.1.iter().map(|e| e.0).collect()
    }
}

/// Pages with their marks, and the hand: the place of the page that it looks at next.
pub struct Sieve(pub usize, pub Vec<(u32, bool)>, pub usize);

impl Naive for Sieve {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if let Some(entry) = self.1.iter_mut().find(|e| e.0 == page) {
            entry.1 = true;
            return Outcome::Hit;
        }
        let mut evicted = None;
        while evicted.is_none() && self.1.len() == self.0 {
            if self.2 >= self.1.len() {
                self.2 = 0;
            }
            if self.1[self.2].1 {
                self.1[self.2].1 = false;
                self.2 += 1;
            } else {
                evicted = Some(self.1.remove(self.2).0);
            }
        }
        self.1.push((page, false));
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        let Some(at) = self.1.iter().position(|e| e.0 == page) else {
            return false;
        };
        self.1.remove(at);
        self.2 -= usize::from(at < self.2);
        true
    }
    fn cached(&self) -> Vec<u32> {
        self.1.iter().map(|e| e.0).collect()
    }
}

pub struct Slru(pub usize, pub [Vec<u32>; 4]);

impl Naive for Slru {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        let room = self.0 / 4;
        if let Some(segment) = self.1.iter().position(|s| s.contains(&page)) {
            take(&mut self.1[segment], page);
            let mut to = if segment == 3 { 3 } else { segment + 1 };
            self.1[to].push(page);
            while to > 0 && self.1[to].len() > room {
                let cooled = self.1[to].remove(0);
                to -= 1;
                self.1[to].push(cooled);
            }
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.cached().len() == self.0 {
            evicted = self.1.iter_mut().find_map(first);
        }
        let to = self.1.iter().position(|s| s.len() < room).unwrap_or(0);
        self.1[to].push(page);
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        self.1.iter_mut().any(|s| take(s, page))
    }
    fn cached(&self) -> Vec<u32> {
        self.1.concat()
    }
}

/// Small, main (pages with their hits) and the memory.
pub struct S3Fifo {
    pub capacity: usize,
    pub small: Vec<(u32, u8)>,
    pub main: Vec<(u32, u8)>,
    pub ghost: Vec<u32>,
    pub evicted_once: bool,
}

impl S3Fifo {
    fn small_room(&self) -> usize {
        (self.capacity / 10).max(1)
    }
    fn evict(&mut self) -> u32 {
        self.evicted_once = true;
        if self.main.len() <= self.capacity - self.small_room() {
            while !self.small.is_empty() {
                let (page, hits) = self.small.remove(0);
                if hits < 2 {
                    self.ghost.push(page);
                    if self.ghost.len() > self.capacity * 9 / 10 {
                        self.ghost.remove(0);
                    }
                    return page;
                }
                self.main.push((page, 0));
            }
        }
        loop {
            let (page, hits) = self.main.remove(0);
            if hits == 0 {
                return page;
            }
            self.main.push((page, hits - 1));
        }
    }
}

impl Naive for S3Fifo {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        if let Some(entry) = all.find(|e| e.0 == page) {
            entry.1 = (entry.1 + 1).min(3);
            return Outcome::Hit;
        }
        let remembered = take(&mut self.ghost, page);
        let full = self.small.len() + self.main.len() == self.capacity;
        let evicted = full.then(|| self.evict());
        let small_is_full = self.small.len() >= self.small_room() && !self.evicted_once;
        if remembered || small_is_full {
            self.main.push((page, 0));
        } else {
            self.small.push((page, 0));
        }
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        let before = self.small.len() + self.main.len();
        self.small.retain(|e| e.0 != page);
        self.main.retain(|e| e.0 != page);
        self.small.len() + self.main.len() < before
    }
    fn cached(&self) -> Vec<u32> {
        self.small.iter().chain(&self.main).map(|e| e.0).collect()
    }
}

#[derive(Default)]
pub struct Arc {
    pub c: usize,
    pub p: f64,
    pub t1: Vec<u32>,
    pub t2: Vec<u32>,
    pub b1: Vec<u32>,
    pub b2: Vec<u32>,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) -> Option<u32> {
        if self.t1.len() + self.t2.len() < self.c {
            return None;
        }
        let t1 = self.t1.len() as f64;
        let from_t1 = t1 > self.p || (in_b2 && t1 == self.p) || self.t2.is_empty();
        if !self.t1.is_empty() && from_t1 {
            let page = self.t1.remove(0);
            self.b1.push(page);
            Some(page)
        } else {
            let page = self.t2.remove(0);
            self.b2.push(page);
            Some(page)
        }
    }
}

impl Naive for Arc {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if take(&mut self.t1, page) || take(&mut self.t2, page) {
            self.t2.push(page);
            return Outcome::Hit;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let evicted;
        if self.b1.contains(&page) {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
            evicted = self.replace(false);
            take(&mut self.b1, page);
            self.t2.push(page);
        } else if self.b2.contains(&page) {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            evicted = self.replace(true);
            take(&mut self.b2, page);
            self.t2.push(page);
        } else {
            if self.t1.len() + self.b1.len() == self.c {
                if self.t1.len() < self.c {
                    self.b1.remove(0);
                    evicted = self.replace(false);
                } else {
                    evicted = Some(self.t1.remove(0));
                }
            } else {
                let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
                if all == 2 * self.c {
                    self.b2.remove(0);
                }
                evicted = self.replace(false);
            }
            self.t1.push(page);
        }
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.t1, page) || take(&mut self.t2, page)
    }
    fn cached(&self) -> Vec<u32> {
        [self.t1.clone(), self.t2.clone()].concat()
    }
}

/// One list, and places counted in it.
pub struct Segmented {
    pub capacity: usize,
    pub list: Vec<u32>,
    /// Pages that are hit go back to the place given, not to the top.
    pub again: bool,
}

impl Segmented {
    fn below(&self, position: Position, count: usize) -> usize {
        (position.segment() + 1) * count / SEGMENTS
    }
}

impl Naive for Segmented {
    fn access(&mut self, page: u32, position: Position) -> Outcome {
        let count = self.list.len();
        let mut below = self.below(position, count);
        if let Some(at) = self.list.iter().position(|p| *p == page) {
            self.list.remove(at);
            if self.again {
                below -= usize::from(at < below);
                self.list.insert(below, page);
            } else {
                self.list.push(page);
            }
            return Outcome::Hit;
        }
        let evicted = (count == self.capacity).then(|| {
            below = below.saturating_sub(1);
            self.list.remove(0)
        });
        self.list.insert(below, page);
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.list, page)
    }
    fn cached(&self) -> Vec<u32> {
        self.list.clone()
    }
}
