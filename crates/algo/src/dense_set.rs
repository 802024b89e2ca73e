//! A set of small numbers, a bit each.

use serde::{Deserialize, Serialize};

use crate::packed;

/// Which of the numbers `0..len` are in.
///
/// Everything that looks at the whole set costs `len / 64`; everything else is constant. Serialized as packed text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct DenseSet {
    len: u32,
    count: u32,
    words: Vec<u64>,
}

/// What a set is written as; the count is not trusted to a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    len: u32,
    #[serde(with = "packed::u64s")]
    bits: Vec<u64>,
}

impl From<DenseSet> for Stored {
    fn from(set: DenseSet) -> Self {
        Self {
            len: set.len,
            bits: set.words,
        }
    }
}

impl TryFrom<Stored> for DenseSet {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        let words = words_for(stored.len);
        if stored.bits.len() != words {
            return Err(format!(
                "a set of {} numbers has {words} words, not {}",
                stored.len,
                stored.bits.len()
            ));
        }
        if stored
            .bits
            .last()
            .is_some_and(|w| w & !last_mask(stored.len) != 0)
        {
            return Err(format!(
                "a number exceeds the end of a set of {}",
                stored.len
            ));
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

/// The bits of the last word that stand for numbers.
fn last_mask(len: u32) -> u64 {
    match len % 64 {
        0 => u64::MAX,
        rest => (1 << rest) - 1,
    }
}

impl DenseSet {
    /// None of `0..len`.
    pub fn new(len: u32) -> Self {
        Self {
            len,
            count: 0,
            words: vec![0; words_for(len)],
        }
    }

    /// The numbers below `count`, of `0..len`.
    pub fn first(len: u32, count: u32) -> Self {
        let mut set = Self::new(len);
        for no in 0..count.min(len) {
            set.insert(no);
        }
        set
    }

    /// How many numbers there are, in or not.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are no numbers at all; a set that has none of its numbers in has a count of zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many are in.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether `no` is in.
    #[inline]
    pub fn contains(&self, no: u32) -> bool {
        debug_assert!(no < self.len);
        self.words[(no >> 6) as usize] >> (no & 63) & 1 == 1
    }

    /// Puts `no` in; whether it was not.
    #[inline]
    pub fn insert(&mut self, no: u32) -> bool {
        assert!(no < self.len, "{no} is outside 0..{}", self.len);
        let (word, bit) = (&mut self.words[(no >> 6) as usize], 1u64 << (no & 63));
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Takes `no` out; whether it was in.
    #[inline]
    pub fn remove(&mut self, no: u32) -> bool {
        assert!(no < self.len, "{no} is outside 0..{}", self.len);
        let (word, bit) = (&mut self.words[(no >> 6) as usize], 1u64 << (no & 63));
        let was = *word & bit != 0;
        *word &= !bit;
        self.count -= u32::from(was);
        was
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The numbers that are in, rising.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        ones(self.words.iter().copied())
    }

    /// Those that are in this set and not in the other, rising.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u32> + 'a {
        assert_eq!(self.len, other.len, "sets of different numbers");
        ones(self.words.iter().zip(&other.words).map(|(a, b)| a & !b))
    }

    /// How many are in this set and not in the other.
    pub fn difference_count(&self, other: &Self) -> u32 {
        assert_eq!(self.len, other.len, "sets of different numbers");
        let pairs = self.words.iter().zip(&other.words);
        pairs.map(|(a, b)| (a & !b).count_ones()).sum()
    }

    /// Becomes what is in either of two sets.
    pub fn assign_union(&mut self, a: &Self, b: &Self) {
        assert_eq!(a.len, b.len, "sets of different numbers");
        self.len = a.len;
        self.words.clear();
        self.words
            .extend(a.words.iter().zip(&b.words).map(|(a, b)| a | b));
        self.recount();
    }

    /// The bits, 64 numbers a word, lowest first.
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

    /// The set of the same things under new numbers: `from[i]` is the old number of the new `i`.
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
        fn does_what_a_tree_does(
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
    fn a_stored_set_is_checked() {
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
    fn renumbering_carries_what_is_in() {
        let set = DenseSet::first(10, 3);
        let new = set.renumbered(&[Some(9), Some(2), None, Some(0)]);
        assert_eq!(new.iter().collect::<Vec<_>>(), [1, 3]);
    }
}
