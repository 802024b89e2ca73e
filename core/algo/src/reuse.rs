//! Reuse (stack) distances of every reference, in one pass for all cache sizes at once.
//!
//! The distance of a reference is the number of distinct objects touched since the last reference to the same one,
//! including itself: an LRU cache of at least that many objects contains it (Mattson and others, IBM Systems Journal
//! 1970). A balanced tree over the last accesses needs log n steps, each a cache miss. Here the last accesses are bits
//! on a line of positions. The bits behind a position are counted over four levels of 32, with a few vector
//! instructions each:
//!
//! ```text
//!  positions  ...1011 0010 1110...   a bit per position that is an object's last access; new ones go to the end
//!  in_word    a byte per 64 positions        ┐
//!  in_block   16 bits per 2,048              │ how many bits are set in each
//!  in_group   32 bits per 65,536             │
//!  in_region  32 bits per 2,097,152          ┘
//! ```
//!
//! At the end of the line the bits are compacted. Memory is about 5 bytes per object. Objects are dense numbers from 0
//! (see [`crate::DenseIds`]).

use std::collections::BinaryHeap;

/// Number of counts per group of the next level.
const FAN: usize = 32;
/// Number of positions of the smallest line.
const SPAN_MIN: u64 = 2048;
/// Number of references whose memory is touched in advance, so that the cache misses overlap.
const BATCH: usize = 32;

/// For each of 32 places, a mask with ones at the places behind it.
static BEHIND: [[i8; FAN]; FAN] = {
    let mut masks = [[0; FAN]; FAN];
    let mut from = 0;
    while from < FAN {
        let mut at = from + 1;
        while at < FAN {
            masks[from][at] = -1;
            at += 1;
        }
        from += 1;
    }
    masks
};

// All three have a form that compilers turn into a dozen vector instructions; comparisons of places have not.

#[inline]
fn sum_bytes(counts: &[u8; FAN], mask: &[i8; FAN]) -> u16 {
    // At most 31 of 64.
    let masked = counts
        .iter()
        .zip(mask)
        .map(|(n, m)| u16::from(n & *m as u8));
    masked.fold(0, u16::wrapping_add)
}

#[inline]
fn sum_halves(counts: &[u16; FAN], mask: &[i8; FAN]) -> u16 {
    // At most 31 of 2,048, which fits.
    let masked = counts
        .iter()
        .zip(mask)
        .map(|(n, m)| n & i16::from(*m) as u16);
    masked.fold(0, u16::wrapping_add)
}

#[inline]
fn sum_words(counts: &[u32; FAN], mask: &[i8; FAN]) -> u32 {
    let masked = counts
        .iter()
        .zip(mask)
        .map(|(n, m)| n & i32::from(*m) as u32);
    masked.fold(0, u32::wrapping_add)
}

/// Objects in order of their last access.
///
/// Only for LRU: the contents of other policies are no prefixes of one order.
#[derive(Debug, Clone, Default)]
pub struct ReuseStack {
    /// Position of each object's last access, plus one; 0 for objects that are not on the stack.
    last: Vec<u32>,
    words: Vec<u64>,
    in_word: Vec<[u8; FAN]>,
    in_block: Vec<[u16; FAN]>,
    in_group: Vec<[u32; FAN]>,
    in_region: Vec<u32>,
    /// Places that [`ReuseStack::invalidate`] emptied, topmost first. They count as places until they are filled.
    holes: BinaryHeap<u32>,
    next: u32,
    span: u32,
    live: u32,
}

impl ReuseStack {
    /// Creates an empty stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of objects on the stack.
    pub fn objects(&self) -> u32 {
        self.live - self.holes.len() as u32
    }

    /// Returns the number of places that [`ReuseStack::invalidate`] emptied and that are not filled yet.
    pub fn holes(&self) -> usize {
        self.holes.len()
    }

    /// Moves `id` to the top. Returns its previous distance, 1 for the topmost object, or `None` if it was not on the
    /// stack.
    #[inline]
    pub fn access(&mut self, id: u32) -> Option<u32> {
        if self.next == self.span {
            self.compact();
        }
        if id as usize >= self.last.len() {
            self.last.resize(id as usize + 1, 0);
        }
        let before = self.last[id as usize];
        let distance = match before.checked_sub(1) {
            Some(at) => {
                let distance = self.depth(at);
                // Caches that reach to the topmost hole, but not to `id`, fill it. For larger caches the hole is then
                // where `id` was.
                match self.holes.peek() {
                    Some(hole) if *hole > at => {
                        let hole = *hole;
                        self.holes.pop();
                        self.clear(hole);
                        self.holes.push(at);
                    }
                    _ => self.clear(at),
                }
                Some(distance)
            }
            None => {
                if let Some(hole) = self.holes.pop() {
                    self.clear(hole);
                }
                None
            }
        };
        self.last[id as usize] = self.next + 1;
        self.set(self.next);
        self.next += 1;
        distance
    }

    /// Runs [`ReuseStack::access`] for many objects in order and passes the distances to `found`. Several times faster
    /// than single calls if the objects do not fit the processor's caches.
    pub fn access_all(&mut self, ids: &[u32], mut found: impl FnMut(Option<u32>)) {
        for batch in ids.chunks(BATCH) {
            // These reads are in flight when they are used below. If the line is compacted in between, they are useless
            // but harmless.
            let mut at = [0; BATCH];
            for (at, id) in at.iter_mut().zip(batch) {
                *at = self.last.get(*id as usize).copied().unwrap_or(0);
            }
            let mut touched = 0;
            for at in at {
                let at = at as usize;
                touched ^= self.words.get(at >> 6).copied().unwrap_or(0);
                touched ^= self
                    .in_word
                    .get(at >> 11)
                    .map_or(0, |counts| u64::from(counts[0]));
            }
            std::hint::black_box(touched);
            for id in batch {
                found(self.access(*id));
            }
        }
    }

    /// Removes `id` and leaves its place empty, like a cache that drops a page on a write-around. The next object that
    /// comes from below, or is new, fills the place. Does nothing if `id` is not on the stack.
    pub fn invalidate(&mut self, id: u32) {
        if let Some(at) = self.forget(id) {
            self.holes.push(at);
        }
    }

    /// Removes `id` as if it had never been there. Does nothing if it is not on the stack.
    pub fn remove(&mut self, id: u32) {
        if let Some(at) = self.forget(id) {
            self.clear(at);
        }
    }

    /// Removes one of the older empty places, for samples that are thinned. Returns `false` if there is none.
    pub fn remove_hole(&mut self) -> bool {
        let mut holes = std::mem::take(&mut self.holes).into_vec();
        // The last element of a heap's array is a leaf, so it is an older place, and the rest is still a heap.
        let hole = holes.pop();
        self.holes = BinaryHeap::from(holes);
        if let Some(hole) = hole {
            self.clear(hole);
        }
        hole.is_some()
    }

    /// Returns the bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.last.capacity() * 4
            + self.words.capacity() * 8
            + self.in_word.capacity() * FAN
            + self.in_block.capacity() * FAN * 2
            + self.in_group.capacity() * FAN * 4
            + self.in_region.capacity() * 4
            + self.holes.capacity() * 4
    }

    fn forget(&mut self, id: u32) -> Option<u32> {
        let last = self.last.get_mut(id as usize)?;
        std::mem::take(last).checked_sub(1)
    }

    /// Returns the number of set positions from `at` on.
    #[inline]
    fn depth(&self, at: u32) -> u32 {
        let at = at as usize;
        let mut count = (self.words[at >> 6] >> (at & 63)).count_ones();
        // Sums over all 32, with the others masked out: a fixed number of steps without unpredictable branches.
        let behind = &BEHIND[(at >> 6) % FAN];
        count += u32::from(sum_bytes(&self.in_word[at >> 11], behind));
        let behind = &BEHIND[(at >> 11) % FAN];
        count += u32::from(sum_halves(&self.in_block[at >> 16], behind));
        let behind = &BEHIND[(at >> 16) % FAN];
        count += sum_words(&self.in_group[at >> 21], behind);
        count + self.in_region[(at >> 21) + 1..].iter().sum::<u32>()
    }

    #[inline]
    fn set(&mut self, at: u32) {
        let at = at as usize;
        self.words[at >> 6] |= 1 << (at & 63);
        self.in_word[at >> 11][(at >> 6) % FAN] += 1;
        self.in_block[at >> 16][(at >> 11) % FAN] += 1;
        self.in_group[at >> 21][(at >> 16) % FAN] += 1;
        self.in_region[at >> 21] += 1;
        self.live += 1;
    }

    #[inline]
    fn clear(&mut self, at: u32) {
        let at = at as usize;
        self.words[at >> 6] &= !(1 << (at & 63));
        self.in_word[at >> 11][(at >> 6) % FAN] -= 1;
        self.in_block[at >> 16][(at >> 11) % FAN] -= 1;
        self.in_group[at >> 21][(at >> 16) % FAN] -= 1;
        self.in_region[at >> 21] -= 1;
        self.live -= 1;
    }

    /// Compacts the set positions at the front, and adapts the length of the line.
    #[cold]
    fn compact(&mut self) {
        let mut before = 0;
        let ranks: Vec<u32> = self
            .words
            .iter()
            .map(|word| {
                let rank = before;
                before += word.count_ones();
                rank
            })
            .collect();
        let words = &self.words;
        let rank = |at: u32| {
            let below = words[(at >> 6) as usize] & !(u64::MAX << (at & 63));
            ranks[(at >> 6) as usize] + below.count_ones()
        };
        // By object instead of by place, so no place needs to know its object.
        for last in self.last.iter_mut().filter(|last| **last != 0) {
            *last = rank(*last - 1) + 1;
        }
        // Ranks keep the order, so the heap stays valid.
        let mut holes = std::mem::take(&mut self.holes).into_vec();
        holes.iter_mut().for_each(|hole| *hole = rank(*hole));
        self.holes = BinaryHeap::from(holes);

        // Rare enough that the cost per reference is negligible, although it examines every object ever seen.
        let live = u64::from(self.live);
        let span = (live + 3 * self.last.len() as u64)
            .max(SPAN_MIN)
            .next_multiple_of(64);
        let span = span.min(u64::from(u32::MAX - 63));
        assert!(span > live, "2^32 objects on one stack");
        self.span = span as u32;
        self.next = self.live;
        self.lay_out();
    }

    /// Builds words and counts of a line whose first `live` positions are set.
    fn lay_out(&mut self) {
        let (span, live) = (self.span as usize, self.live as usize);
        let within = |from: usize, positions: usize| live.saturating_sub(from).min(positions);
        self.words.clear();
        self.words.extend(
            (0..span.div_ceil(64)).map(|word| match within(word * 64, 64) {
                64 => u64::MAX,
                n => (1 << n) - 1,
            }),
        );
        let level = |positions: usize| {
            (0..span.div_ceil(positions * FAN)).map(move |group| {
                std::array::from_fn::<_, FAN, _>(|i| {
                    within((group * FAN + i) * positions, positions)
                })
            })
        };
        self.in_word.clear();
        self.in_word
            .extend(level(1 << 6).map(|g| g.map(|n| n as u8)));
        self.in_block.clear();
        self.in_block
            .extend(level(1 << 11).map(|g| g.map(|n| n as u16)));
        self.in_group.clear();
        self.in_group
            .extend(level(1 << 16).map(|g| g.map(|n| n as u32)));
        self.in_region.clear();
        let regions = 0..span.div_ceil(1 << 21);
        self.in_region
            .extend(regions.map(|i| within(i << 21, 1 << 21) as u32));
    }
}

#[cfg(test)]
mod tests;
