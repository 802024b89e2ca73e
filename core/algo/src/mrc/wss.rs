//! Miss-ratio curves from working sets: the number of distinct blocks in windows of references.
//!
//! Windows have 1, 2, 4, … references; windows of one length follow each other without gaps. Up to [`BASE`] references,
//! counts are exact. A small table has the last occurrence of each block in the present stretch of that length. A block
//! is new in the windows that do not contain both of its references. Longer windows are sketches, each merged from two
//! of half the length:
//!
//! ```text
//!  16 Ki ├──────────── HyperLogLog ────────────┤
//!   8 Ki ├────────────────┬────────────────────┤   registers: the larger of two, when both are complete
//!   4 Ki ├───────┬────────┼─────────┬──────────┤   only blocks that are new in the stretch are added here
//!   ...  exact: 1, 2, 4, … 2,048, 4,096
//! ```

use serde::{Deserialize, Serialize};

use super::curve::falling;
use super::{Confidence, Curve, HyperLogLog};

const BASE_BITS: usize = 12;
/// Number of references of the longest window that is counted exactly.
const BASE: usize = 1 << BASE_BITS;
/// Twice the maximum number of blocks.
const TABLE: usize = 2 * BASE;
/// Error of 1.6 %.
const PRECISION: u32 = 12;

/// Working-set sizes by length of window in references, and the resulting curve.
///
/// About 150 KiB; no block is remembered for longer than its stretch; 5–10 ns per reference. Windows are counted in
/// references, not in time, so a load that pauses has the same working sets. The curve has the assumptions of
/// [`super::ReuseTimes`], and one point per power of two.
#[derive(Debug, Clone)]
pub struct WorkingSets {
    /// Block, its last occurrence in the stretch, and the number of the stretch.
    table: Vec<(u64, u32, u32)>,
    /// Number of references by the largest window length, as a power of two, in which the block was new; the last entry
    /// is for first occurrences.
    new_up_to: [u64; BASE_BITS + 2],
    stretch: u32,
    within: u32,
    references: u64,
    /// Sketches of incomplete windows, from [`BASE`] references on.
    levels: Vec<Level>,
    whole: HyperLogLog,
}

#[derive(Debug, Clone)]
struct Level {
    sketch: HyperLogLog,
    /// True if the first half is merged.
    half: bool,
    windows: u64,
    /// Sum of the distinct blocks of all windows.
    distinct: f64,
}

/// Mean number of distinct blocks in windows of one length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// Length of the windows in references.
    pub references: u64,
    /// Mean number of distinct blocks.
    pub blocks: f64,
}

impl Default for WorkingSets {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkingSets {
    /// Creates an empty estimator.
    pub fn new() -> Self {
        Self {
            table: vec![(0, 0, 0); TABLE],
            new_up_to: [0; BASE_BITS + 2],
            stretch: 1,
            within: 0,
            references: 0,
            levels: vec![],
            whole: HyperLogLog::new(PRECISION),
        }
    }

    /// Counts a reference.
    #[inline]
    pub fn reference(&mut self, block: u64) {
        let mut at =
            (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - TABLE.trailing_zeros())) as usize;
        let before = loop {
            let (name, when, stretch) = self.table[at];
            if stretch != self.stretch {
                break None;
            }
            if name == block {
                break Some(when);
            }
            at = (at + 1) & (TABLE - 1);
        };
        self.table[at] = (block, self.within, self.stretch);
        match before {
            // Both references are in one window of 2^k for every k above the highest bit in which their positions
            // differ.
            Some(then) => self.new_up_to[(32 - (then ^ self.within).leading_zeros()) as usize] += 1,
            None => self.fresh(block),
        }
        self.references += 1;
        self.within += 1;
        if self.within as usize == BASE {
            self.stretch_ends();
        }
    }

    fn fresh(&mut self, block: u64) {
        self.new_up_to[BASE_BITS + 1] += 1;
        if self.levels.is_empty() {
            self.levels.push(Level::new());
        }
        // The window of BASE references itself is exact; its sketch serves the longer ones.
        self.levels[0].sketch.add(block);
    }

    #[cold]
    fn stretch_ends(&mut self) {
        self.within = 0;
        self.stretch = self.stretch.wrapping_add(1);
        if self.stretch == 0 {
            // Stretch numbers wrap around, and no old entry may look new.
            self.table.fill((0, 0, 0));
            self.stretch = 1;
        }
        self.whole.merge(&self.levels[0].sketch);
        for level in 0.. {
            if level + 1 == self.levels.len() {
                self.levels.push(Level::new());
            }
            let (below, above) = self.levels.split_at_mut(level + 1);
            let (below, above) = (&mut below[level], &mut above[0]);
            if level > 0 {
                below.distinct += below.sketch.count();
            }
            below.windows += 1;
            above.sketch.merge(&below.sketch);
            below.sketch.clear();
            above.half = !above.half;
            if above.half {
                return;
            }
        }
    }

    /// Returns the number of all references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the number of distinct blocks: exact below [`BASE`] references, approximate above.
    pub fn distinct(&self) -> f64 {
        if self.references < BASE as u64 {
            return self.new_up_to[BASE_BITS + 1] as f64;
        }
        let mut whole = self.whole.clone();
        if let Some(level) = self.levels.first() {
            whole.merge(&level.sketch);
        }
        whole.count()
    }

    /// Returns mean working sets for the lengths with a complete window, shortest first.
    pub fn sizes(&self) -> Vec<WorkingSet> {
        let mut sizes = Vec::new();
        let mut new: u64 = self.new_up_to.iter().sum();
        for (bits, together) in self.new_up_to[..=BASE_BITS].iter().enumerate() {
            // Blocks that were referenced again within 2^bits references are new only in shorter windows. An incomplete
            // window has its share of both sides.
            new -= together;
            let length = 1u64 << bits;
            if self.references >= length {
                sizes.push(WorkingSet {
                    references: length,
                    blocks: new as f64 / (self.references as f64 / length as f64),
                });
            }
        }
        for (i, level) in self.levels.iter().enumerate().skip(1) {
            if level.windows > 0 {
                sizes.push(WorkingSet {
                    references: (BASE as u64) << i,
                    blocks: level.distinct / level.windows as f64,
                });
            }
        }
        sizes
    }

    /// Returns the curve. A cache as large as the working set of windows of length T has a miss ratio equal to the
    /// growth of that working set per reference, MR(s(T)) = s(T + 1) − s(T) (Denning and Schwartz, CACM 1972). Between
    /// two lengths the growth is a mean, placed at the mean of the two sizes; rising growths are pooled. No size has
    /// fewer misses than the first references to all blocks.
    pub fn curve(&self) -> Curve {
        let confidence = Confidence {
            references: self.references,
            blocks: 0,
            standard_error: None,
        };
        let sizes = self.sizes();
        let mut slopes = Vec::new();
        let mut at = Vec::new();
        for pair in sizes.windows(2) {
            let more = (pair[1].references - pair[0].references) as f64;
            // Weighted by the number of windows, which determines the accuracy.
            let weight = self.references as f64 / pair[1].references as f64;
            slopes.push(((pair[1].blocks - pair[0].blocks) / more, weight));
            at.push((pair[0].blocks + pair[1].blocks) / 2.0);
        }
        let ratios = falling(&slopes);
        // The first reference to each block misses at any size. This bounds the results of the longest windows, which
        // are few.
        let distinct = self.distinct();
        let first = distinct / (self.references.max(1)) as f64;
        let points = at.iter().zip(&ratios).filter(|(s, _)| **s < distinct);
        let points = points.map(|(s, r)| (s.round() as u64, r.max(first)));
        let end = (self.references > 0).then_some((distinct.round() as u64, first));
        Curve::new(points.chain(end), confidence)
    }

    /// Returns the bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let sketches = self.levels.len() + 1;
        self.table.capacity() * size_of::<(u64, u32, u32)>()
            + sketches * (self.whole.memory_bytes() + size_of::<Level>())
    }
}

impl Level {
    fn new() -> Self {
        Self {
            sketch: HyperLogLog::new(PRECISION),
            half: false,
            windows: 0,
            distinct: 0.0,
        }
    }
}
