//! Set of small numbers that finds its smallest member in constant time.
//!
//! ```text
//!   top      1 word    bit i: word i of the level below is not zero
//!   …        …
//!   bottom   n/64 words, one bit per number
//! ```
//!
//! 16 Mi numbers take 2 MiB and four levels; every operation touches one word per level.

/// Set of numbers below a limit.
#[derive(Debug, Clone)]
pub(crate) struct Bitmap {
    /// Levels from the bottom up; the last one has one word.
    levels: Vec<Vec<u64>>,
    count: u32,
}

impl Bitmap {
    /// Returns an empty set for numbers below `limit`.
    pub(crate) fn new(limit: u32) -> Self {
        let mut levels = vec![];
        let mut words = limit.div_ceil(64).max(1) as usize;
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, count: 0 };
            }
            words = words.div_ceil(64);
        }
    }

    /// Returns the set of all numbers below `end`, which is at most `limit`.
    pub(crate) fn filled(limit: u32, end: u32) -> Self {
        let mut map = Self::new(limit);
        let mut bits = end as usize;
        for level in &mut map.levels {
            level[..bits / 64].fill(u64::MAX);
            if !bits.is_multiple_of(64) {
                level[bits / 64] = (1 << (bits % 64)) - 1;
            }
            bits = bits.div_ceil(64);
        }
        map.count = end;
        map
    }

    /// Returns the number of members.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, n: u32) -> bool {
        self.levels[0][n as usize / 64] & 1 << (n % 64) != 0
    }

    /// Adds a number; returns true if it is new.
    pub(crate) fn insert(&mut self, n: u32) -> bool {
        if self.contains(n) {
            return false;
        }
        let mut at = n as usize;
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
        self.count += 1;
        true
    }

    /// Removes a number; returns true if the set had it.
    pub(crate) fn remove(&mut self, n: u32) -> bool {
        if !self.contains(n) {
            return false;
        }
        let mut at = n as usize;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
        self.count -= 1;
        true
    }

    /// Returns the smallest number.
    pub(crate) fn first(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        Some(at as u32)
    }

    /// Removes and returns the smallest number.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bitmap_behaves_like_a_set(
            limit in prop::sample::select(vec![1u32, 63, 64, 65, 4095, 4096, 4097, 300_000]),
            filled in 0.0..=1.0,
            steps in prop::collection::vec((0..3u8, any::<u32>()), 0..200),
        ) {
            let end = (f64::from(limit) * filled) as u32;
            let mut map = Bitmap::filled(limit, end);
            let mut set: BTreeSet<u32> = (0..end).collect();
            for (what, n) in steps {
                let n = n % limit;
                match what {
                    0 => prop_assert_eq!(map.insert(n), set.insert(n)),
                    1 => prop_assert_eq!(map.remove(n), set.remove(&n)),
                    _ => prop_assert_eq!(map.pop(), set.pop_first()),
                }
                prop_assert_eq!(map.first(), set.first().copied());
                prop_assert_eq!(map.contains(n), set.contains(&n));
                prop_assert_eq!(map.count() as usize, set.len());
            }
        }
    }
}
