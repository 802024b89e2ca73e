//! Request counts of extents in bounded memory: estimates, and candidates for the hottest extents.
//!
//! ```text
//!   (extent, n) ─┬─▶ count-min, d rows × w counters, conservative update ──▶ estimate, never too low
//!                └─▶ m candidates; the coldest is replaced                ──▶ hottest extents (space-saving)
//! ```
//!
//! With N requests in total, d rows and w columns, an estimate exceeds the truth by more than e·N/w with a probability
//! of at most e^−d (Cormode and Muthukrishnan, J. Algorithms 2005; the conservative update of Estan and Varghese,
//! SIGCOMM 2002, only lowers estimates). Each extent with more than N/m requests is among the m candidates, and a
//! candidate's own counter exceeds the truth by at most N/m (Metwally, Agrawal, El Abbadi: space-saving, ICDT 2005).
//!
//! For hundreds of millions of extents. Up to some ten million, exact counters of four bytes each are cheaper
//! ([`crate::HeatCounters`]).

use crate::mix;

/// Size of the hash table relative to the number of candidates.
const TABLE_PER_CANDIDATE: usize = 4;
const FREE: u32 = u32::MAX;

/// Sketch of request counts.
#[derive(Debug, Clone)]
pub struct HeatSketch {
    depth: usize,
    /// Number of columns; a power of two.
    width: usize,
    rows: Vec<u32>,
    total: u64,
    /// Heap with the coldest candidate first.
    heap: Vec<Candidate>,
    candidates_max: usize,
    /// Open addressing: positions in the heap, by extent.
    table: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    no: u32,
    count: u32,
}

impl HeatSketch {
    /// Creates a sketch with `depth` rows of `width` counters (rounded up to a power of two), and `candidates`.
    pub fn new(depth: usize, width: usize, candidates: usize) -> Self {
        assert!(
            depth > 0 && width > 0 && candidates > 0,
            "a sketch has some memory"
        );
        let width = width.next_power_of_two();
        Self {
            depth,
            width,
            rows: vec![0; depth * width],
            total: 0,
            heap: Vec::with_capacity(candidates),
            candidates_max: candidates,
            table: vec![FREE; (candidates * TABLE_PER_CANDIDATE).next_power_of_two()],
        }
    }

    /// Counts `n` requests for `no`.
    pub fn add(&mut self, no: u32, n: u32) {
        if n == 0 {
            return;
        }
        self.total += u64::from(n);
        let estimate = self.estimate(no).saturating_add(n);
        for row in 0..self.depth {
            let at = self.cell(row, no);
            self.rows[at] = self.rows[at].max(estimate);
        }
        self.add_candidate(no, n);
    }

    /// Returns an upper bound of the requests for `no`.
    pub fn estimate(&self, no: u32) -> u32 {
        let counts = (0..self.depth).map(|row| self.rows[self.cell(row, no)]);
        counts.min().expect("there is a row")
    }

    /// Returns the maximum error of an estimate, except with a probability of e^−depth.
    pub fn error_bound(&self) -> f64 {
        std::f64::consts::E * self.total as f64 / self.width as f64
    }

    /// Returns the number of requests above which every extent is a candidate.
    pub fn candidate_bound(&self) -> f64 {
        self.total as f64 / self.candidates_max as f64
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Stores the candidates and upper bounds of their counts in `into`, in order of number.
    pub fn hottest(&self, into: &mut Vec<(u32, u32)>) {
        into.clear();
        // Both structures err upwards only, so the lower value is better.
        let best = |c: &Candidate| (c.no, c.count.min(self.estimate(c.no)));
        into.extend(self.heap.iter().map(best));
        into.sort_unstable();
    }

    /// Clears all counts.
    pub fn reset(&mut self) {
        self.rows.fill(0);
        self.total = 0;
        self.heap.clear();
        self.table.fill(FREE);
    }

    fn cell(&self, row: usize, no: u32) -> usize {
        let hash = mix(row as u64, u64::from(no));
        row * self.width + (hash >> 32) as usize % self.width
    }

    fn add_candidate(&mut self, no: u32, n: u32) {
        if let Ok(slot) = self.find(no) {
            let at = self.table[slot] as usize;
            self.heap[at].count = self.heap[at].count.saturating_add(n);
            self.sink(at);
        } else if self.heap.len() < self.candidates_max {
            let at = self.heap.len();
            self.heap.push(Candidate { no, count: n });
            self.enter(no, at);
            self.rise(at);
        } else {
            // The coldest candidate is replaced. The new one may have had as many requests before.
            let coldest = self.heap[0];
            self.leave(coldest.no);
            let count = coldest.count.saturating_add(n);
            self.heap[0] = Candidate { no, count };
            self.enter(no, 0);
            self.sink(0);
        }
    }

    fn home(&self, no: u32) -> usize {
        (mix(0xCA_D1DA7E, u64::from(no)) >> 32) as usize % self.table.len()
    }

    /// Returns the slot of `no`, or the free slot where it belongs.
    fn find(&self, no: u32) -> Result<usize, usize> {
        let mut slot = self.home(no);
        loop {
            match self.table[slot] {
                FREE => return Err(slot),
                at if self.heap[at as usize].no == no => return Ok(slot),
                _ => slot = (slot + 1) % self.table.len(),
            }
        }
    }

    fn enter(&mut self, no: u32, at: usize) {
        // The heap may have `no` already, but no slot has.
        let mut slot = self.home(no);
        while self.table[slot] != FREE {
            slot = (slot + 1) % self.table.len();
        }
        self.table[slot] = at as u32;
    }

    /// Removes `no` from the table, and moves up the entries that were displaced by it.
    fn leave(&mut self, no: u32) {
        let len = self.table.len();
        let mut hole = self.find(no).expect("a candidate is in the table");
        self.table[hole] = FREE;
        let mut slot = hole;
        loop {
            slot = (slot + 1) % len;
            let at = self.table[slot];
            if at == FREE {
                return;
            }
            let home = self.home(self.heap[at as usize].no);
            let (from_home, from_hole) = ((slot + len - home) % len, (slot + len - hole) % len);
            if from_home >= from_hole {
                self.table[hole] = at;
                self.table[slot] = FREE;
                hole = slot;
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (slot_a, slot_b) = (self.find(self.heap[a].no), self.find(self.heap[b].no));
        let (Ok(slot_a), Ok(slot_b)) = (slot_a, slot_b) else {
            unreachable!("candidates are in the table");
        };
        self.heap.swap(a, b);
        self.table[slot_a] = b as u32;
        self.table[slot_b] = a as u32;
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].count < self.heap[(at - 1) / 2].count {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2]
                .into_iter()
                .filter(|c| *c < self.heap.len());
            match children.min_by_key(|c| self.heap[*c].count) {
                Some(child) if self.heap[child].count < self.heap[at].count => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Popularity, Rng};

    /// Feeds Zipf-like requests and returns their true counts.
    fn fed(sketch: &mut HeatSketch, theta: f64, seed: u64) -> BTreeMap<u32, u32> {
        let (popularity, mut rng) = (Popularity::new(50_000, theta), Rng::new(seed, 0));
        let mut truth = BTreeMap::new();
        for _ in 0..200_000 {
            let (no, n) = (
                popularity.page(rng.next_u64()) as u32,
                1 + rng.below(3) as u32,
            );
            sketch.add(no, n);
            *truth.entry(no).or_default() += n;
        }
        truth
    }

    #[test]
    fn sketch_respects_its_stated_bounds() {
        for (seed, theta) in [(1, 0.0), (2, 0.6), (3, 0.9), (4, 1.2)] {
            let mut sketch = HeatSketch::new(4, 4096, 500);
            let truth = fed(&mut sketch, theta, seed);
            assert_eq!(
                sketch.total(),
                truth.values().map(|n| u64::from(*n)).sum::<u64>()
            );
            let mut too_high = 0;
            for (no, n) in &truth {
                let estimate = sketch.estimate(*no);
                assert!(estimate >= *n, "estimates are never too low");
                too_high += usize::from(f64::from(estimate - n) > sketch.error_bound());
            }
            // e^-4 is 1.8 %.
            assert!(
                too_high as f64 <= 0.0183 * truth.len() as f64,
                "theta {theta}: {too_high}"
            );
            let mut hottest = vec![];
            sketch.hottest(&mut hottest);
            assert_eq!(hottest.len(), 500);
            assert!(hottest.windows(2).all(|w| w[0].0 < w[1].0));
            for (no, n) in &truth {
                let found = hottest.binary_search_by_key(no, |c| c.0);
                if f64::from(*n) > sketch.candidate_bound() {
                    assert!(
                        found.is_ok(),
                        "theta {theta}: extent {no} with {n} is missing"
                    );
                }
                if let Ok(at) = found {
                    let count = hottest[at].1;
                    assert!(count >= *n, "candidates are never too low");
                    assert!(f64::from(count - n) <= sketch.candidate_bound());
                }
            }
        }
    }

    /// With sufficient memory all counts are exact, which also checks heap and table.
    #[test]
    fn sketch_with_sufficient_memory_is_exact() {
        let mut sketch = HeatSketch::new(5, 1 << 20, 50_000);
        let truth = fed(&mut sketch, 0.9, 9);
        let mut hottest = vec![];
        sketch.hottest(&mut hottest);
        assert_eq!(hottest, truth.into_iter().collect::<Vec<_>>());
        sketch.reset();
        sketch.hottest(&mut hottest);
        assert_eq!(
            (hottest.len(), sketch.total(), sketch.estimate(7)),
            (0, 0, 0)
        );
    }
}
