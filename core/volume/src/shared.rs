//! Sets of extents: those with shared slots (with a snapshot, with the origin of a snapshot, or with the source of an
//! import), and those that are being copied up.

/// Set of extents, one bit each. It uses no memory while it has never been used.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExtentSet {
    words: Vec<u64>,
    count: usize,
}

fn bit(extent: usize) -> (usize, u64) {
    (extent / 64, 1 << (extent % 64))
}

impl ExtentSet {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn contains(&self, extent: usize) -> bool {
        let (word, bit) = bit(extent);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    pub(crate) fn insert(&mut self, extent: usize) {
        let (word, bit) = bit(extent);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.count += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    pub(crate) fn remove(&mut self, extent: usize) {
        let (word, bit) = bit(extent);
        if self.contains(extent) {
            self.words[word] &= !bit;
            self.count -= 1;
        }
    }

    /// Returns the extents in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self
            .words
            .iter()
            .enumerate()
            .filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            let bits = (0..64).filter(move |b| word & (1 << b) != 0);
            bits.map(move |b| at * 64 + b)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_set_contains_inserted_extents() {
        let mut set = ExtentSet::default();
        assert!(set.is_empty() && !set.contains(1000));
        set.remove(1000);
        for extent in [0, 63, 64, 1000, 64] {
            set.insert(extent);
        }
        let all: Vec<usize> = (0..2000).filter(|e| set.contains(*e)).collect();
        assert_eq!(all, [0, 63, 64, 1000]);
        assert_eq!(set.iter().collect::<Vec<_>>(), all);
        for extent in [64, 64, 1, 0, 63] {
            set.remove(extent);
        }
        assert!(!set.is_empty() && set.contains(1000));
        set.remove(1000);
        assert!(set.is_empty());
    }
}
