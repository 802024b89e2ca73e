//! Reuse (stack) distances of every reference, in one pass for all cache sizes at once.
//!
//! The distance of a reference is the number of distinct objects touched since the last reference to the same one, itself
//! included: an LRU cache of that many objects or more has it (Mattson and others, IBM Systems Journal 1970). A balanced tree
//! over the last accesses answers in log n steps, each a cache miss. Here the last accesses are bits on a line of positions,
//! and what lies behind one is counted over four levels of 32, which are a few vector instructions each:
//!
//! ```text
//!  positions  ...1011 0010 1110...   a bit per position that is an object's last access; new ones go to the end
//!  in_word    a byte per 64 positions        ┐
//!  in_block   16 bits per 2,048              │ how many bits are set in each
//!  in_group   32 bits per 65,536             │
//!  in_region  32 bits per 2,097,152          ┘
//! ```
//!
//! At the end of the line the bits are moved together. Memory is about 5 bytes for each object. Objects are dense numbers from 0
//! (see [`crate::DenseIds`]).

use std::collections::BinaryHeap;

/// Counts per group of the next level.
const FAN: usize = 32;
/// Positions of the smallest line.
const SPAN_MIN: u64 = 2048;
/// References whose memory is touched ahead of their turn: the misses of these overlap.
const BATCH: usize = 32;

/// For each place of 32, ones where the places behind it are.
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

// The three are of one form that compilers turn into a dozen vector instructions; comparisons of places are not.

#[inline]
fn sum_bytes(counts: &[u8; FAN], mask: &[i8; FAN]) -> u16 {
    // 31 of 64 at most.
    let masked = counts
        .iter()
        .zip(mask)
        .map(|(n, m)| u16::from(n & *m as u8));
    masked.fold(0, u16::wrapping_add)
}

#[inline]
fn sum_halves(counts: &[u16; FAN], mask: &[i8; FAN]) -> u16 {
    // 31 of 2,048 at most: it fits.
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

/// The objects in order of their last access.
///
/// Not for policies other than LRU: their contents are no prefixes of one order.
#[derive(Debug, Clone, Default)]
pub struct ReuseStack {
    /// Position of each object's last access, plus one; 0 for those that are not on the stack.
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
    /// An empty stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Objects on the stack.
    pub fn objects(&self) -> u32 {
        self.live - self.holes.len() as u32
    }

    /// Places that were emptied by [`ReuseStack::invalidate`] and not filled since.
    pub fn holes(&self) -> usize {
        self.holes.len()
    }

    /// Moves `id` to the top; its distance before, 1 for the one that was on top. `None` if it was not on the stack.
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
                // Caches that reach to the topmost hole, but not to `id`, fill it: for larger ones it is then where `id` was.
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

    /// [`ReuseStack::access`] for many, in order; the distances go to `found`. Several times faster than one by one when the
    /// objects do not fit the processor's caches.
    pub fn access_all(&mut self, ids: &[u32], mut found: impl FnMut(Option<u32>)) {
        for batch in ids.chunks(BATCH) {
            // What is read here is used below, when it has arrived. The line may be moved together in between: then this was for
            // nothing, but not wrong.
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

    /// Takes `id` out and leaves its place empty, as a cache does that drops a page which is written around it. The next object
    /// that comes from below, or anew, fills the place. Nothing happens if `id` is not on the stack.
    pub fn invalidate(&mut self, id: u32) {
        if let Some(at) = self.forget(id) {
            self.holes.push(at);
        }
    }

    /// Takes `id` out as if it had never been there. Nothing happens if it is not on the stack.
    pub fn remove(&mut self, id: u32) {
        if let Some(at) = self.forget(id) {
            self.clear(at);
        }
    }

    /// Takes out one of the emptied places, one of the older ones: for samples that are thinned. `false` if there is none.
    pub fn remove_hole(&mut self) -> bool {
        let mut holes = std::mem::take(&mut self.holes).into_vec();
        // The last of a heap's array is a leaf, one of the older: what is left is still a heap.
        let hole = holes.pop();
        self.holes = BinaryHeap::from(holes);
        if let Some(hole) = hole {
            self.clear(hole);
        }
        hole.is_some()
    }

    /// Bytes of memory.
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

    /// Set positions from `at` on.
    #[inline]
    fn depth(&self, at: u32) -> u32 {
        let at = at as usize;
        let mut count = (self.words[at >> 6] >> (at & 63)).count_ones();
        // Sums over all 32 with what is not behind masked out: a fixed number of steps, without a branch to be guessed wrong.
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

    /// Moves the set positions together at the front, and makes the line as long as it should be by now.
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
        // Object by object rather than place by place: then no place has to know whose it is.
        for last in self.last.iter_mut().filter(|last| **last != 0) {
            *last = rank(*last - 1) + 1;
        }
        // Ranks keep the order, so the heap stays one.
        let mut holes = std::mem::take(&mut self.holes).into_vec();
        holes.iter_mut().for_each(|hole| *hole = rank(*hole));
        self.holes = BinaryHeap::from(holes);

        // Rare enough that moving costs next to nothing per reference: it looks at every object that ever was.
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
