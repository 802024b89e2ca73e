//! LRU caches of many sizes, counted exactly in one pass.
//!
//! ```text
//!   log of accesses:  . x 4 . 9 x 2 . 7 x 1 5 . 3     .: replaced by a later entry
//!                       └─ band 2 ─┴─ band 1 ┴ band 0 ┘
//!                       ▲ marks[2]  ▲ marks[1] ▲ marks[0]
//! ```
//!
//! LRU has the inclusion property: a cache has all pages of a smaller one (Mattson, Gecsei, Slutz, Traiger, 1970). So
//! one queue serves all sizes. It is cut into bands at the requested sizes; a page in band 2 hits in caches of the
//! third size and larger. An access moves one page across each cut above the old place of its page, which moves a mark
//! one step along the log. Pages beyond the largest size are forgotten.
//!
//! Cost: one random access per reference, and one step per size. For hundreds of sizes a tree of reuse distances is
//! better. Only for LRU.

use crate::policy::{BATCH, Counts};

/// Maximum number of sizes.
pub const STACK_SIZES_MAX: usize = 200;

/// Size of the log relative to the largest cache size.
const SLACK: usize = 3;
const ROOM_MIN: usize = 1024;
const DEAD: u8 = u8::MAX;

/// Hits of LRU caches of several sizes.
#[derive(Debug, Clone)]
pub struct StackSizes {
    /// Sizes, ascending and distinct.
    sizes: Vec<u32>,
    /// By page: its entry; 0 if it is in no cache.
    entry: Vec<u32>,
    pages: Vec<u32>,
    /// Band of each entry.
    band: Vec<u8>,
    /// By band: the first entry of its pages.
    marks: Vec<usize>,
    counts: Vec<u32>,
    room: usize,
    /// Number of accesses found in each band, and of those found in no cache.
    found: Vec<u64>,
}

impl StackSizes {
    /// Creates empty caches of these sizes (in pages, each at least 1, at most [`STACK_SIZES_MAX`] different ones) over
    /// pages `0..universe`.
    pub fn new(sizes: &[u32], universe: u32) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        assert!(
            (1..=STACK_SIZES_MAX).contains(&sizes.len()) && sizes[0] > 0,
            "give 1 to {STACK_SIZES_MAX} sizes of at least one page"
        );
        let bands = sizes.len();
        let largest = sizes[bands - 1].min(universe) as usize;
        let room = (largest * SLACK).max(ROOM_MIN);
        let (mut pages, mut band) = (Vec::with_capacity(room), Vec::with_capacity(room));
        pages.push(u32::MAX);
        band.push(DEAD);
        Self {
            sizes,
            entry: vec![0; universe as usize],
            pages,
            band,
            marks: vec![1; bands],
            counts: vec![0; bands],
            room,
            found: vec![0; bands + 1],
        }
    }

    /// Counts an access. Returns how many of the sizes, smallest first, are too small to have the page.
    #[inline]
    pub fn access(&mut self, page: u32) -> usize {
        if self.pages.len() == self.room {
            self.squeeze();
        }
        let now = self.pages.len();
        let entry = std::mem::replace(&mut self.entry[page as usize], now as u32);
        let bands = self.sizes.len();
        let found = if entry == 0 {
            bands
        } else {
            usize::from(std::mem::replace(&mut self.band[entry as usize], DEAD))
        };
        self.found[found] += 1;
        self.pages.push(page);
        self.band.push(0);
        // Band 0 gains a page; each full band passes its lowest page on, down to the old place of the page.
        let mut below = 0;
        for band in 0..found {
            let width = self.sizes[band] - below;
            below = self.sizes[band];
            if self.counts[band] < width {
                self.counts[band] += 1;
                return found;
            }
            let mut at = self.marks[band];
            while self.band[at] == DEAD {
                at += 1;
            }
            self.marks[band] = at + 1;
            if band + 1 < bands {
                self.band[at] = band as u8 + 1;
            } else {
                self.band[at] = DEAD;
                self.entry[self.pages[at] as usize] = 0;
            }
        }
        found
    }

    /// Counts accesses.
    pub fn replay(&mut self, references: &[u32]) {
        self.replay_each(references, |_, _| ());
    }

    /// Counts accesses in batches; `each` receives the index of each access and the result of [`Self::access`].
    #[inline]
    pub fn replay_each(&mut self, references: &[u32], mut each: impl FnMut(usize, usize)) {
        let mut at = 0;
        let mut chunks = references.chunks(BATCH).peekable();
        while let Some(chunk) = chunks.next() {
            if let Some(next) = chunks.peek() {
                let entries = next.iter().map(|page| self.entry[*page as usize]);
                let sum = entries.fold(0, |sum, e| sum ^ u32::from(self.band[e as usize]));
                std::hint::black_box(sum);
            }
            for page in chunk {
                each(at, self.access(*page));
                at += 1;
            }
        }
    }

    /// Returns the sizes, ascending and distinct, each with the counts of a cache of that size.
    pub fn counts(&self) -> Vec<(u32, Counts)> {
        let all: u64 = self.found.iter().sum();
        let mut hits = 0;
        let sizes = self.sizes.iter().zip(&self.found);
        sizes
            .map(|(size, found)| {
                hits += found;
                let misses = all - hits;
                (*size, Counts { hits, misses })
            })
            .collect()
    }

    #[cold]
    #[inline(never)]
    fn squeeze(&mut self) {
        let lowest = self.marks[self.marks.len() - 1];
        let mut to = 1;
        for at in lowest..self.pages.len() {
            // Bands and their marks ascend towards the older end, so this entry may be the first of several bands.
            for mark in self.marks.iter_mut().rev() {
                if *mark == at {
                    *mark = to;
                }
            }
            let (page, band) = (self.pages[at], self.band[at]);
            if band == DEAD {
                continue;
            }
            self.pages[to] = page;
            self.band[to] = band;
            self.entry[page as usize] = to as u32;
            to += 1;
        }
        for mark in &mut self.marks {
            *mark = (*mark).min(to);
        }
        self.pages.truncate(to);
        self.band.truncate(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::lru::Lru;
    use crate::policy::replay;

    #[test]
    fn stack_simulation_of_all_sizes_matches_single_simulations() {
        for seed in 0..12 {
            let mut rng = algo::Rng::new(seed, 5);
            let universe = 3000;
            let trace: Vec<u32> = (0..60_000)
                .map(|i| {
                    if rng.below(3) == 0 {
                        (i / 2) % universe
                    } else {
                        let near = rng.below(u64::from(universe)) * rng.below(100) / 100;
                        near as u32
                    }
                })
                .collect();
            let sizes: Vec<u32> = (0..rng.below(10) + 1)
                .map(|_| rng.below(3500) as u32 + 1)
                .collect();
            let mut stack = StackSizes::new(&sizes, universe);
            let (first, second) = trace.split_at(31_111);
            stack.replay(first);
            stack.replay(second);
            for (size, counts) in stack.counts() {
                let alone = replay(&mut Lru::new(size, universe), &trace);
                assert_eq!(counts, alone, "seed {seed} size {size}");
            }
        }
    }
}
