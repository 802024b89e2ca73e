//! Belady's optimum: evicts the page whose next use is last. An upper bound that needs the future.

use std::collections::BinaryHeap;

use crate::policy::Counts;

/// Never used again.
const NEVER: u32 = u32::MAX;

/// Optimum (Belady, 1966, MIN) for caches that insert every missed page: an upper bound for all other policies. It
/// needs the future, so it is built from all references at once and does not implement [`crate::Policy`].
///
/// It is no bound for caches that may bypass a page.
#[derive(Debug, Clone)]
pub struct Belady {
    references: Vec<u32>,
    /// By reference: the next one of the same page.
    next: Vec<u32>,
    universe: u32,
}

/// More references than the optimum can number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the optimum supports fewer than 2^32 - 1 references, not {0}")]
pub struct TooManyReferences(pub usize);

impl Belady {
    /// Creates the optimum for references to pages `0..universe`.
    pub fn new(references: Vec<u32>, universe: u32) -> Result<Self, TooManyReferences> {
        if references.len() >= NEVER as usize {
            return Err(TooManyReferences(references.len()));
        }
        let mut last = vec![NEVER; universe as usize];
        let mut next = vec![NEVER; references.len()];
        for (at, page) in references.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut last[*page as usize], at as u32);
        }
        Ok(Self {
            references,
            next,
            universe,
        })
    }

    /// Counts hits and misses of a cache of `capacity` pages (at least 1).
    pub fn count(&self, capacity: u32) -> Counts {
        let mut counts = Counts::default();
        self.replay_each(capacity, |_, hit| counts.add(hit));
        counts
    }

    /// Replays the references; `each` receives the index of each reference and true for a hit.
    pub fn replay_each(&self, capacity: u32, mut each: impl FnMut(usize, bool)) {
        // By page: its next use while it is cached; 0 if it is not. A next use is never reference 0.
        let mut due = vec![0u32; self.universe as usize];
        let mut heap: BinaryHeap<(u32, u32)> = BinaryHeap::new();
        let mut cached = 0u32;
        for (at, (page, next)) in self.references.iter().zip(&self.next).enumerate() {
            let was = std::mem::replace(&mut due[*page as usize], *next);
            heap.push((*next, *page));
            each(at, was != 0);
            cached += u32::from(was == 0);
            if cached > capacity {
                // The page itself must stay, even if its next use is last.
                let own = heap_pop_valid(&mut heap, &due, *page);
                if let Some(victim) = own {
                    due[victim as usize] = 0;
                }
                cached -= 1;
                heap.push((*next, *page));
            }
            if heap.len() > 4 * capacity as usize + 64 {
                // Remove entries of past uses, and duplicates.
                let mut entries: Vec<_> = heap.into_vec();
                entries.retain(|(next, page)| due[*page as usize] == *next);
                entries.sort_unstable();
                entries.dedup();
                heap = entries.into();
            }
        }
    }
}

/// Returns the cached page other than `keep` whose next use is last.
fn heap_pop_valid(heap: &mut BinaryHeap<(u32, u32)>, due: &[u32], keep: u32) -> Option<u32> {
    loop {
        let (next, page) = heap.pop()?;
        if page != keep && due[page as usize] == next {
            return Some(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(references: &[u32], capacity: usize) -> u64 {
        let mut cached: Vec<u32> = Vec::new();
        let mut hits = 0;
        for (at, page) in references.iter().enumerate() {
            if cached.contains(page) {
                hits += 1;
                continue;
            }
            if cached.len() == capacity {
                let next = |p: &u32| {
                    let later = references[at + 1..].iter().position(|r| r == p);
                    later.unwrap_or(usize::MAX)
                };
                let (victim, _) = cached
                    .iter()
                    .enumerate()
                    .max_by_key(|(_, p)| next(p))
                    .unwrap();
                cached.remove(victim);
            }
            cached.push(*page);
        }
        hits
    }

    #[test]
    fn belady_hits_match_a_naive_optimum() {
        for seed in 0..30 {
            let mut rng = algo::Rng::new(seed, 9);
            let references: Vec<u32> = (0..600)
                .map(|i| {
                    if rng.below(3) == 0 {
                        i % 50
                    } else {
                        rng.below(50) as u32 * rng.below(2) as u32
                    }
                })
                .collect();
            let belady = Belady::new(references.clone(), 50).unwrap();
            for capacity in [1, 2, 7, 20, 60] {
                let counts = belady.count(capacity);
                assert_eq!(counts.hits, naive(&references, capacity as usize), "{seed}");
                assert_eq!(counts.accesses(), 600);
            }
        }
    }
}
