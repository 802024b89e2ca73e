//! Selection of the hottest K extents without sorting.

use crate::DenseSet;

/// Finds the K extents with the highest counts. Among equal counts, resident extents come first, then lower numbers.
/// Untouched extents count as zero and take part.
///
/// The work is (touched + N / 64): one selection pass over the touched extents, one over the words of the sets. Memory
/// is kept between calls. The result is unordered; sort it if necessary.
#[derive(Debug, Clone, Default)]
pub struct TopCounts {
    keys: Vec<u64>,
    touched: DenseSet,
}

/// Parameters of a selection.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Number of extents to select.
    pub k: u32,
    /// Extents that are resident now, which breaks ties.
    pub resident: &'a DenseSet,
    /// Extents that must not be selected.
    pub excluded: Option<&'a DenseSet>,
    /// Rule for the remaining places after all touched extents are selected.
    pub fill: Fill,
}

/// Selection of untouched extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Any extent, residents first: the fast tier is always full.
    Any,
    /// Residents only: no extent moves in without requests.
    Residents,
}

/// Returns a key by count, then residence, then lower number; larger is better.
fn key(no: u32, count: u32, resident: bool) -> u64 {
    assert!(count < 1 << 31, "counts are below 2^31");
    u64::from(count) << 33 | u64::from(resident) << 32 | u64::from(!no)
}

impl TopCounts {
    /// Stores the selection in `chosen`. `counts` has each extent at most once; zero counts are allowed.
    pub fn select(
        &mut self,
        counts: impl Iterator<Item = (u32, u32)>,
        choice: &Choice<'_>,
        chosen: &mut DenseSet,
    ) {
        let (len, resident) = (choice.resident.len(), choice.resident);
        self.keys.clear();
        let keyed = |(no, count)| key(no, count, resident.contains(no));
        match choice.excluded {
            None => self.keys.extend(counts.filter(|c| c.1 > 0).map(keyed)),
            Some(out) => {
                let allowed = counts.filter(|c| c.1 > 0 && !out.contains(c.0));
                self.keys.extend(allowed.map(keyed));
            }
        }
        if chosen.len() == len {
            chosen.clear();
        } else {
            *chosen = DenseSet::new(len);
        }
        let k = choice.k as usize;
        if self.keys.len() > k {
            if k > 0 {
                self.keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
            }
            self.keys.truncate(k);
        } else {
            self.fill_with_untouched(choice, chosen);
        }
        for key in &self.keys {
            chosen.insert(!(*key as u32));
        }
    }

    /// Selects all touched extents, then fills up with residents, then with others, lower numbers first.
    fn fill_with_untouched(&mut self, choice: &Choice<'_>, chosen: &mut DenseSet) {
        if self.touched.len() == chosen.len() {
            self.touched.clear();
        } else {
            self.touched = DenseSet::new(chosen.len());
        }
        for key in &self.keys {
            let new = self.touched.insert(!(*key as u32));
            debug_assert!(new, "an extent has two counts");
        }
        let mut room = choice.k - self.keys.len() as u32;
        let passes: &[bool] = match choice.fill {
            Fill::Any => &[true, false],
            Fill::Residents => &[true],
        };
        for residents in passes {
            for at in 0..self.touched.words().len() {
                if room == 0 {
                    return;
                }
                let there = choice.resident.words()[at];
                let of_them = if *residents { there } else { !there };
                let barred = choice.excluded.map_or(0, |e| e.words()[at]);
                let before = chosen.words()[at];
                let mut free = of_them & !self.touched.words()[at] & !barred;
                while free.count_ones() > room {
                    free &= !(1 << (63 - free.leading_zeros()));
                }
                let had = chosen.count();
                chosen.set_word(at, before | free);
                room -= chosen.count() - had;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Oracle that sorts all extents.
    fn oracle(counts: &[u32], choice: &Choice<'_>) -> Vec<u32> {
        let mut all: Vec<u32> = (0..counts.len() as u32)
            .filter(|no| choice.excluded.is_none_or(|e| !e.contains(*no)))
            .filter(|no| {
                choice.fill == Fill::Any
                    || counts[*no as usize] > 0
                    || choice.resident.contains(*no)
            })
            .collect();
        all.sort_by_key(|no| {
            (
                std::cmp::Reverse(counts[*no as usize]),
                !choice.resident.contains(*no),
                *no,
            )
        });
        all.truncate(choice.k as usize);
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn top_selection_matches_a_full_sort(
            counts in proptest::collection::vec(prop_oneof![Just(0u32), 0u32..6, any::<u32>().prop_map(|c| c >> 1)], 1..400),
            residents in proptest::collection::vec(any::<prop::sample::Index>(), 0..200),
            excluded in proptest::option::of(proptest::collection::vec(any::<prop::sample::Index>(), 0..100)),
            share in 0.0f64..1.2,
            fill in prop_oneof![Just(Fill::Any), Just(Fill::Residents)],
        ) {
            let len = counts.len();
            let mut resident = DenseSet::new(len as u32);
            for i in residents {
                resident.insert(i.index(len) as u32);
            }
            let excluded = excluded.map(|indices| {
                let mut set = DenseSet::new(len as u32);
                for i in indices {
                    set.insert(i.index(len) as u32);
                }
                set
            });
            let choice = Choice { k: (share * len as f64) as u32, resident: &resident, excluded: excluded.as_ref(), fill };
            let mut top = TopCounts::default();
            let mut chosen = DenseSet::default();
            let touched = counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(i, c)| (i as u32, *c));
            top.select(touched.clone(), &choice, &mut chosen);
            prop_assert_eq!(chosen.iter().collect::<Vec<_>>(), oracle(&counts, &choice));
            // Memory from an earlier use makes no difference.
            top.select(touched, &choice, &mut chosen);
            prop_assert_eq!(chosen.count() as usize, oracle(&counts, &choice).len());
        }
    }
}
