//! Exact request counters per extent.

use serde::{Deserialize, Serialize};

use crate::{StateError, packed};

/// Counter per extent, with a list of the non-zero ones.
///
/// An addition touches one cache line. Reading and resetting take time proportional to the touched counters, not to
/// all. Counters stop at 2^31 - 1. Four bytes per extent; for more extents than memory allows, see
/// [`crate::HeatSketch`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredHeat", into = "StoredHeat")]
pub struct HeatCounters {
    counts: Vec<u32>,
    touched: Vec<u32>,
    sorted: TouchedOrder,
}

/// Order of `touched`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum TouchedOrder {
    #[default]
    Yes,
    No,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct StoredHeat(#[serde(with = "packed::u32s")] Vec<u32>);

impl From<HeatCounters> for StoredHeat {
    fn from(heat: HeatCounters) -> Self {
        Self(heat.counts)
    }
}

impl TryFrom<StoredHeat> for HeatCounters {
    type Error = StateError;

    fn try_from(StoredHeat(counts): StoredHeat) -> Result<Self, StateError> {
        if let Some(no) = counts.iter().position(|c| *c > COUNT_MAX) {
            return Err(StateError::Counter { no, max: COUNT_MAX });
        }
        let mut heat = Self {
            counts,
            ..Self::default()
        };
        heat.gather();
        Ok(heat)
    }
}

const COUNT_MAX: u32 = (1 << 31) - 1;

impl HeatCounters {
    /// Creates `len` counters at zero.
    pub fn new(len: u32) -> Self {
        Self {
            counts: vec![0; len as usize],
            ..Self::default()
        }
    }

    /// Returns true if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// Counts `n` requests for `no`.
    #[inline]
    pub fn add(&mut self, no: u32, n: u32) {
        let count = &mut self.counts[no as usize];
        if *count == 0 && n > 0 {
            if self.touched.last().is_some_and(|last| *last > no) {
                self.sorted = TouchedOrder::No;
            }
            self.touched.push(no);
        }
        *count = count.saturating_add(n).min(COUNT_MAX);
    }

    /// Adds the counts of an interval.
    pub fn add_all(&mut self, touched: &[(u32, u32)]) {
        for (no, n) in touched {
            self.add(*no, *n);
        }
    }

    /// Returns the count of `no`.
    #[inline]
    pub fn count(&self, no: u32) -> u32 {
        self.counts[no as usize]
    }

    /// Returns the non-zero counters in order of first touch.
    pub fn unordered(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.touched
            .iter()
            .map(|no| (*no, self.counts[*no as usize]))
    }

    /// Returns the non-zero counters in order of number. A short list is sorted; for a long one, all counters are
    /// scanned instead.
    pub fn ordered(&mut self) -> impl Iterator<Item = (u32, u32)> + '_ {
        if self.sorted == TouchedOrder::No {
            if self.touched.len() > self.counts.len() / 16 {
                self.gather();
            } else {
                self.touched.sort_unstable();
            }
            self.sorted = TouchedOrder::Yes;
        }
        self.unordered()
    }

    /// Halves all counters, rounded down.
    pub fn halve(&mut self) {
        let counts = &mut self.counts;
        self.touched.retain(|no| {
            counts[*no as usize] /= 2;
            counts[*no as usize] > 0
        });
    }

    /// Sets all counters to zero.
    pub fn reset(&mut self) {
        for no in self.touched.drain(..) {
            self.counts[no as usize] = 0;
        }
        self.sorted = TouchedOrder::Yes;
    }

    /// Returns the counters of the same extents under new numbers: `from[i]` is the old number of the new `i`.
    pub fn renumbered(&self, from: &[Option<u32>]) -> Self {
        let mut new = Self::new(from.len() as u32);
        for (i, old) in from.iter().enumerate() {
            if let Some(old) = old {
                new.add(i as u32, self.count(*old));
            }
        }
        new
    }

    fn gather(&mut self) {
        self.touched.clear();
        let hot = self.counts.iter().enumerate().filter(|(_, c)| **c > 0);
        self.touched.extend(hot.map(|(no, _)| no as u32));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heat_counters_match_a_map(
            len in 1u32..200,
            adds in proptest::collection::vec((any::<u32>(), prop_oneof![0u32..5, any::<u32>()]), 0..300),
            resets in any::<bool>(),
        ) {
            let mut heat = HeatCounters::new(len);
            if resets {
                for (no, n) in &adds {
                    heat.add(no % len, *n);
                }
                heat.reset();
                prop_assert!(heat.is_empty());
            }
            let mut map: BTreeMap<u32, u64> = BTreeMap::new();
            for (no, n) in adds {
                heat.add(no % len, n);
                if n > 0 {
                    *map.entry(no % len).or_default() += u64::from(n);
                }
            }
            let want: Vec<(u32, u32)> =
                map.into_iter().map(|(no, n)| (no, n.min(u64::from(COUNT_MAX)) as u32)).collect();
            prop_assert_eq!(heat.ordered().collect::<Vec<_>>(), want.clone());
            let text = serde_json::to_string(&heat).unwrap();
            let mut back: HeatCounters = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.ordered().collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn halving_removes_counts_of_one() {
        let mut heat = HeatCounters::new(4);
        for (no, n) in [(3, 5), (1, 1), (2, 2)] {
            heat.add(no, n);
        }
        heat.halve();
        assert_eq!(heat.ordered().collect::<Vec<_>>(), [(2, 1), (3, 2)]);
        heat.add(1, 1);
        assert_eq!(heat.ordered().collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 2)]);
    }

    #[test]
    fn renumbering_moves_counts() {
        let mut heat = HeatCounters::new(3);
        heat.add(2, 5);
        let mut new = heat.renumbered(&[None, Some(2)]);
        assert_eq!(new.ordered().collect::<Vec<_>>(), [(1, 5)]);
    }
}
