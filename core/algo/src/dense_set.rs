//! Set of small numbers, one bit each.

use serde::{Deserialize, Serialize};

use crate::{StateError, packed};

/// Subset of the numbers `0..len`.
///
/// Operations on the whole set take `len / 64` steps; all others are constant. Serialized as packed text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredSet", into = "StoredSet")]
pub struct DenseSet {
    len: u32,
    count: u32,
    words: Vec<u64>,
}

/// Serialized form of a set. The count is recomputed, not read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSet {
    len: u32,
    #[serde(with = "packed::u64s")]
    bits: Vec<u64>,
}

impl From<DenseSet> for StoredSet {
    fn from(set: DenseSet) -> Self {
        Self {
            len: set.len,
            bits: set.words,
        }
    }
}

impl TryFrom<StoredSet> for DenseSet {
    type Error = StateError;

    fn try_from(stored: StoredSet) -> Result<Self, StateError> {
        let expected = words_for(stored.len);
        if stored.bits.len() != expected {
            return Err(StateError::Words {
                len: stored.len,
                expected,
                found: stored.bits.len(),
            });
        }
        if stored
            .bits
            .last()
            .is_some_and(|w| w & !last_mask(stored.len) != 0)
        {
            return Err(StateError::BeyondEnd { len: stored.len });
        }
        let mut set = Self {
            len: stored.len,
            count: 0,
            words: stored.bits,
        };
        set.recount();
        Ok(set)
    }
}

fn words_for(len: u32) -> usize {
    (len as usize).div_ceil(64)
}

/// Returns the bits of the last word that stand for numbers.
fn last_mask(len: u32) -> u64 {
    match len % 64 {
        0 => u64::MAX,
        rest => (1 << rest) - 1,
    }
}

impl DenseSet {
    /// Creates an empty subset of `0..len`.
    pub fn new(len: u32) -> Self {
        Self {
            len,
            count: 0,
            words: vec![0; words_for(len)],
        }
    }

    /// Creates the subset of the numbers below `count`.
    pub fn first(len: u32, count: u32) -> Self {
        let mut set = Self::new(len);
        for no in 0..count.min(len) {
            set.insert(no);
        }
        set
    }

    /// Returns the number of possible members.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if there are no possible members. An empty subset has a count of zero instead.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of members.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if `no` is a member.
    #[inline]
    pub fn contains(&self, no: u32) -> bool {
        debug_assert!(no < self.len);
        self.words[(no >> 6) as usize] >> (no & 63) & 1 == 1
    }

    /// Adds `no`; returns true if it is new.
    #[inline]
    pub fn insert(&mut self, no: u32) -> bool {
        assert!(no < self.len, "{no} is outside 0..{}", self.len);
        let (word, bit) = (&mut self.words[(no >> 6) as usize], 1u64 << (no & 63));
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Removes `no`; returns true if it was a member.
    #[inline]
    pub fn remove(&mut self, no: u32) -> bool {
        assert!(no < self.len, "{no} is outside 0..{}", self.len);
        let (word, bit) = (&mut self.words[(no >> 6) as usize], 1u64 << (no & 63));
        let was = *word & bit != 0;
        *word &= !bit;
        self.count -= u32::from(was);
        was
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        ones(self.words.iter().copied())
    }

    /// Returns the members that the other set lacks, in ascending order.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u32> + 'a {
        assert_eq!(self.len, other.len, "sets of different numbers");
        ones(self.words.iter().zip(&other.words).map(|(a, b)| a & !b))
    }

    /// Returns the number of members that the other set lacks.
    pub fn difference_count(&self, other: &Self) -> u32 {
        assert_eq!(self.len, other.len, "sets of different numbers");
        let pairs = self.words.iter().zip(&other.words);
        pairs.map(|(a, b)| (a & !b).count_ones()).sum()
    }

    /// Replaces this set by the union of two sets.
    pub fn assign_union(&mut self, a: &Self, b: &Self) {
        assert_eq!(a.len, b.len, "sets of different numbers");
        self.len = a.len;
        self.words.clear();
        self.words
            .extend(a.words.iter().zip(&b.words).map(|(a, b)| a | b));
        self.recount();
    }

    /// Returns the bits, 64 numbers per word, lowest first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Sets word `at` as a whole; bits past the end are dropped.
    pub(crate) fn set_word(&mut self, at: usize, word: u64) {
        let mask = if at + 1 == self.words.len() {
            last_mask(self.len)
        } else {
            u64::MAX
        };
        let word = word & mask;
        self.count = self.count - self.words[at].count_ones() + word.count_ones();
        self.words[at] = word;
    }

    /// Returns the set under new numbers: `from[i]` is the old number of the new `i`.
    pub fn renumbered(&self, from: &[Option<u32>]) -> Self {
        let mut set = Self::new(from.len() as u32);
        for (new, old) in from.iter().enumerate() {
            if old.is_some_and(|old| self.contains(old)) {
                set.insert(new as u32);
            }
        }
        set
    }

    fn recount(&mut self) {
        self.count = self.words.iter().map(|w| w.count_ones()).sum();
    }
}

fn ones(words: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    words.enumerate().flat_map(|(at, mut word)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros())?;
            word &= word - 1;
            Some(at as u32 * 64 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dense_set_matches_a_tree_set(
            len in 1u32..300,
            steps in proptest::collection::vec((any::<u32>(), any::<bool>()), 0..200),
            other in proptest::collection::vec(any::<u32>(), 0..100),
        ) {
            let mut set = DenseSet::new(len);
            let mut tree = BTreeSet::new();
            for (no, put) in steps {
                let no = no % len;
                if put {
                    prop_assert_eq!(set.insert(no), tree.insert(no));
                } else {
                    prop_assert_eq!(set.remove(no), tree.remove(&no));
                }
                prop_assert_eq!(set.count() as usize, tree.len());
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), tree.iter().copied().collect::<Vec<_>>());
            let mut second = DenseSet::new(len);
            for no in other {
                second.insert(no % len);
            }
            let theirs: BTreeSet<u32> = second.iter().collect();
            let want: Vec<u32> = tree.difference(&theirs).copied().collect();
            prop_assert_eq!(set.difference(&second).collect::<Vec<_>>(), want.clone());
            prop_assert_eq!(set.difference_count(&second) as usize, want.len());
            let mut union = DenseSet::default();
            union.assign_union(&set, &second);
            prop_assert_eq!(union.count() as usize, tree.union(&theirs).count());
            let text = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<DenseSet>(&text).unwrap(), set);
        }
    }

    #[test]
    fn stored_set_is_validated() {
        let set = DenseSet::first(70, 66);
        let text = serde_json::to_string(&set).unwrap();
        for (with, why) in [
            (text.replace("\"len\":70", "\"len\":65"), "exceeds the end"),
            (text.replace("\"len\":70", "\"len\":170"), "has 3 words"),
        ] {
            let error = serde_json::from_str::<DenseSet>(&with).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn renumbered_set_keeps_its_elements() {
        let set = DenseSet::first(10, 3);
        let new = set.renumbered(&[Some(9), Some(2), None, Some(0)]);
        assert_eq!(new.iter().collect::<Vec<_>>(), [1, 3]);
    }
}
