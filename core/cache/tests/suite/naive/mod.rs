//! Naive implementations of the policies: vectors, oldest first, with linear searches.

use cache::{Outcome, Position, SEGMENTS};

pub trait NaivePolicy {
    fn access(&mut self, page: u32, position: Position) -> Outcome;
    fn remove(&mut self, page: u32) -> bool;
    fn cached(&self) -> Vec<u32>;
}

/// Removes a page from a list; returns true if it was in it.
pub fn take(list: &mut Vec<u32>, page: u32) -> bool {
    let at = list.iter().position(|p| *p == page);
    at.map(|at| list.remove(at)).is_some()
}

fn first(list: &mut Vec<u32>) -> Option<u32> {
    (!list.is_empty()).then(|| list.remove(0))
}

pub struct Fifo(pub usize, pub Vec<u32>);

impl NaivePolicy for Fifo {
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

impl NaivePolicy for Lru {
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

impl NaivePolicy for Clock {
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

/// Pages with their marks, and the index of the hand.
pub struct Sieve(pub usize, pub Vec<(u32, bool)>, pub usize);

impl NaivePolicy for Sieve {
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
        if self.2 >= self.1.len() {
            self.2 = 0;
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
        if self.2 >= self.1.len() {
            self.2 = 0;
        }
        true
    }
    fn cached(&self) -> Vec<u32> {
        self.1.iter().map(|e| e.0).collect()
    }
}

pub struct Slru(pub usize, pub [Vec<u32>; 4]);

impl NaivePolicy for Slru {
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

/// Small queue, main queue (pages with their hits) and memory.
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

impl NaivePolicy for S3Fifo {
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

impl NaivePolicy for Arc {
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

/// One list, with positions counted in it.
pub struct NaiveSegmented {
    pub capacity: usize,
    pub list: Vec<u32>,
    /// A hit page moves to the given position, not to the top.
    pub again: bool,
}

impl NaiveSegmented {
    fn below(&self, position: Position, count: usize) -> usize {
        (position.segment() + 1) * count / SEGMENTS
    }
}

impl NaivePolicy for NaiveSegmented {
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

#[derive(Default)]
pub struct TwoQ {
    pub capacity: usize,
    pub a1in: Vec<u32>,
    pub a1out: Vec<u32>,
    pub am: Vec<u32>,
}

impl NaivePolicy for TwoQ {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if self.a1in.contains(&page) {
            return Outcome::Hit;
        }
        if take(&mut self.am, page) {
            self.am.push(page);
            return Outcome::Hit;
        }
        let again = take(&mut self.a1out, page);
        let mut evicted = None;
        if self.a1in.len() + self.am.len() == self.capacity {
            if self.a1in.len() > self.capacity / 4 || self.am.is_empty() {
                evicted = first(&mut self.a1in);
                self.a1out.extend(evicted);
                if self.a1out.len() > self.capacity / 2 {
                    self.a1out.remove(0);
                }
            } else {
                evicted = first(&mut self.am);
            }
        }
        if again {
            self.am.push(page);
        } else {
            self.a1in.push(page);
        }
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.a1in, page) || take(&mut self.am, page)
    }
    fn cached(&self) -> Vec<u32> {
        [self.a1in.clone(), self.am.clone()].concat()
    }
}

/// Pages with (key, uses), in the order in which they got their keys.
pub struct Lfu {
    pub capacity: usize,
    pub pages: Vec<(u32, u64, u64)>,
    pub age: u64,
    pub ageing: bool,
}

impl NaivePolicy for Lfu {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if let Some(at) = self.pages.iter().position(|e| e.0 == page) {
            let (_, _, uses) = self.pages.remove(at);
            let uses = (uses + 1).min(1023);
            self.pages.push((page, uses + self.age, uses));
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.pages.len() == self.capacity {
            let lowest = self.pages.iter().map(|e| e.1).min().unwrap();
            let at = self.pages.iter().position(|e| e.1 == lowest).unwrap();
            evicted = Some(self.pages.remove(at).0);
            if self.ageing {
                self.age = lowest;
            }
        }
        self.pages.push((page, 1 + self.age, 1));
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        let before = self.pages.len();
        self.pages.retain(|e| e.0 != page);
        self.pages.len() < before
    }
    fn cached(&self) -> Vec<u32> {
        self.pages.iter().map(|e| e.0).collect()
    }
}

#[derive(Default)]
pub struct WTinyLfu {
    pub capacity: usize,
    pub window: Vec<u32>,
    pub probation: Vec<u32>,
    pub protected: Vec<u32>,
    pub counts: std::collections::BTreeMap<u32, u8>,
    pub accesses: usize,
}

impl NaivePolicy for WTinyLfu {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        let window_room = (self.capacity / 100).max(1);
        let count = self.counts.entry(page).or_default();
        *count = (*count + 1).min(15);
        self.accesses += 1;
        if self.accesses.is_multiple_of(10 * self.capacity) {
            self.counts.values_mut().for_each(|c| *c /= 2);
        }
        if take(&mut self.window, page) {
            self.window.push(page);
            return Outcome::Hit;
        }
        if take(&mut self.protected, page) {
            self.protected.push(page);
            return Outcome::Hit;
        }
        if take(&mut self.probation, page) {
            self.protected.push(page);
            if self.protected.len() > (self.capacity - window_room) * 4 / 5 {
                self.probation.push(self.protected.remove(0));
            }
            return Outcome::Hit;
        }
        self.window.push(page);
        let too_many = self.cached().len() > self.capacity;
        let candidate = (self.window.len() > window_room).then(|| self.window.remove(0));
        let Some(candidate) = candidate else {
            let from = if self.probation.is_empty() {
                &mut self.protected
            } else {
                &mut self.probation
            };
            return Outcome::Miss {
                evicted: too_many.then(|| from.remove(0)),
            };
        };
        let mut evicted = None;
        if too_many {
            let from = if self.probation.is_empty() {
                &mut self.protected
            } else {
                &mut self.probation
            };
            match from.first() {
                Some(victim) if self.counts[&candidate] > self.counts[victim] => {
                    evicted = Some(from.remove(0));
                }
                _ => {
                    return Outcome::Miss {
                        evicted: Some(candidate),
                    };
                }
            }
        }
        self.probation.push(candidate);
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        take(&mut self.window, page)
            || take(&mut self.probation, page)
            || take(&mut self.protected, page)
    }
    fn cached(&self) -> Vec<u32> {
        [
            self.window.clone(),
            self.probation.clone(),
            self.protected.clone(),
        ]
        .concat()
    }
}

/// Terms of the paper: LIR, resident and non-resident HIR blocks, stack S (bottom first) and queue Q.
#[derive(Default)]
pub struct Lirs {
    pub capacity: usize,
    pub lir: Vec<u32>,
    pub s: Vec<u32>,
    pub q: Vec<u32>,
    pub non_resident: Vec<u32>,
}

impl Lirs {
    fn lir_room(&self) -> usize {
        match self.capacity {
            1 => 1,
            c => c - (c / 100).max(1),
        }
    }
    fn prune(&mut self) {
        while !self.s.is_empty() && !self.lir.contains(&self.s[0]) {
            let page = self.s.remove(0);
            take(&mut self.non_resident, page);
        }
    }
    fn become_lir(&mut self, page: u32) {
        take(&mut self.s, page);
        self.s.push(page);
        self.lir.push(page);
        if self.lir.len() > self.lir_room() {
            let bottom = self.s.remove(0);
            assert!(take(&mut self.lir, bottom));
            self.q.push(bottom);
        }
        self.prune();
    }
}

impl NaivePolicy for Lirs {
    fn access(&mut self, page: u32, _: Position) -> Outcome {
        if self.lir.contains(&page) {
            take(&mut self.s, page);
            self.s.push(page);
            self.prune();
            return Outcome::Hit;
        }
        if take(&mut self.q, page) {
            if self.s.contains(&page) {
                self.become_lir(page);
            } else {
                self.s.push(page);
                self.q.push(page);
            }
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.lir.len() + self.q.len() == self.capacity {
            evicted = first(&mut self.q);
            match evicted {
                Some(gone) if self.s.contains(&gone) => {
                    self.non_resident.push(gone);
                    if self.non_resident.len() > self.capacity {
                        let forgotten = self.non_resident.remove(0);
                        take(&mut self.s, forgotten);
                    }
                }
                Some(_) => {}
                None => {
                    let bottom = self.s.remove(0);
                    take(&mut self.lir, bottom);
                    self.prune();
                    evicted = Some(bottom);
                }
            }
        }
        if take(&mut self.non_resident, page) || self.lir.len() < self.lir_room() {
            self.become_lir(page);
        } else {
            take(&mut self.s, page);
            self.s.push(page);
            self.q.push(page);
        }
        Outcome::Miss { evicted }
    }
    fn remove(&mut self, page: u32) -> bool {
        let was_lir = take(&mut self.lir, page);
        let was = take(&mut self.q, page) || was_lir;
        if was {
            take(&mut self.s, page);
        }
        if was_lir {
            self.prune();
        }
        was
    }
    fn cached(&self) -> Vec<u32> {
        [self.lir.clone(), self.q.clone()].concat()
    }
}
