//! Dense numbers for page keys, in order of first occurrence.

use crate::policy::BATCH;

/// Maximum number of keys.
pub const DENSE_MAX: usize = u32::MAX as usize - 1;

/// Map from 64-bit keys (such as volume and page) to dense numbers. Equal keys get equal numbers, a new key gets the
/// next one.
///
/// Open addressing with linear probing: 16 bytes per entry, at most two thirds in use. Batches are looked up together,
/// so their cache misses overlap. Do not use it for keys that an adversary can choose to collide.
#[derive(Debug, Clone)]
pub struct DenseIds {
    /// Key, and number plus one; 0 is a free entry.
    table: Vec<(u64, u32)>,
    shift: u32,
    count: u32,
}

impl Default for DenseIds {
    fn default() -> Self {
        Self::new()
    }
}

impl DenseIds {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self {
            table: vec![(0, 0); 1024],
            shift: 64 - 10,
            count: 0,
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the numbers of keys to `out`. Returns false if all numbers are used; then `out` is incomplete.
    pub fn number(&mut self, keys: &[u64], out: &mut Vec<u32>) -> bool {
        out.reserve(keys.len());
        for (i, chunk) in keys.chunks(BATCH).enumerate() {
            if self.count as usize + 2 * BATCH > DENSE_MAX {
                return false;
            }
            if (self.count as usize + 2 * BATCH) * 3 > self.table.len() * 2 {
                self.grow();
            }
            let next = &keys[((i + 1) * BATCH).min(keys.len())..((i + 2) * BATCH).min(keys.len())];
            let near = next.iter().map(|key| self.table[self.home(*key)].1);
            std::hint::black_box(near.fold(0, |sum, no| sum ^ no));
            for key in chunk {
                out.push(self.one(*key));
            }
        }
        true
    }

    /// Returns the number of a key, a new one if it has none.
    pub(crate) fn number_of(&mut self, key: u64) -> u32 {
        if (self.count as usize + 1) * 3 > self.table.len() * 2 {
            self.grow();
        }
        self.one(key)
    }

    /// Returns the number of a key, if it has one.
    pub fn get(&self, key: u64) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            match self.table[at] {
                (_, 0) => return None,
                (k, no) if k == key => return Some(no - 1),
                _ => at = (at + 1) & (self.table.len() - 1),
            }
        }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Folds in the upper half first, because keys have their volume there.
        ((key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline]
    fn one(&mut self, key: u64) -> u32 {
        let mut at = self.home(key);
        loop {
            let entry = &mut self.table[at];
            if entry.1 == 0 {
                self.count += 1;
                *entry = (key, self.count);
                return self.count - 1;
            }
            if entry.0 == key {
                return entry.1 - 1;
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let larger = vec![(0, 0); self.table.len() * 2];
        let old = std::mem::replace(&mut self.table, larger);
        self.shift -= 1;
        let mask = self.table.len() - 1;
        for (key, no) in old {
            if no > 0 {
                let mut at = self.home(key);
                while self.table[at].1 != 0 {
                    at = (at + 1) & mask;
                }
                self.table[at] = (key, no);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn page_numbers_are_assigned_in_order_of_appearance() {
        let mut rng = algo::Rng::new(4, 2);
        let keys: Vec<u64> = (0..50_000)
            .map(|_| {
                let volume = rng.below(5) << 44;
                volume | (rng.below(9000) * rng.below(3))
            })
            .collect();
        let mut ids = DenseIds::new();
        let mut out = Vec::new();
        assert!(ids.number(&keys[..777], &mut out));
        assert!(ids.number(&keys[777..], &mut out));
        let mut naive = BTreeMap::new();
        for (key, no) in keys.iter().zip(&out) {
            let next = naive.len() as u32;
            assert_eq!(*naive.entry(*key).or_insert(next), *no);
        }
        assert_eq!(ids.len() as usize, naive.len());
        assert!(naive.iter().all(|(key, no)| ids.get(*key) == Some(*no)));
        assert_eq!(ids.get(u64::MAX), None);
    }
}
