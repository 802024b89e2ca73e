//! Selection of worthwhile moves: the best extent that comes is compared with the worst that would leave, and so on.

use super::{ExtentNo, FastSet};

/// Cancels moves that are not worth their cost. `before` is the set that a choice replaces, and `fast` the set on the fast
/// tier (equal if there is one area). Extents that come, best first, are paired with extents that leave, worst first. From
/// the first pair that `worth(new, old)` rejects, the extents that would leave stay. Two kinds are not judged: extents that
/// come into free room, and extents that leave because room was lost.
///
/// Work grows with the number of changes.
pub(crate) fn keep_worthwhile<S: Copy + Ord>(
    before: &FastSet,
    fast: &FastSet,
    chosen: &mut FastSet,
    score: impl Fn(ExtentNo) -> S,
    worth: impl Fn(S, S) -> bool,
) {
    let mut ups: Vec<(S, ExtentNo)> = chosen.difference(fast).map(|no| (score(no), no)).collect();
    let mut downs: Vec<(S, ExtentNo)> = before
        .difference(chosen)
        .map(|no| (score(no), no))
        .collect();
    ups.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    downs.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    // With less room than before, the coldest must leave; with more room, the hottest come.
    let spare_ups = ups.len().saturating_sub(downs.len());
    let spare_downs = downs.len().saturating_sub(ups.len());
    let pairs = ups[spare_ups..].iter().zip(&downs[spare_downs..]);
    let kept = pairs.take_while(|(new, old)| worth(new.0, old.0)).count();
    for (_, no) in &ups[spare_ups + kept..] {
        chosen.remove(*no);
    }
    for (_, no) in &downs[spare_downs + kept..] {
        chosen.insert(*no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u32]) -> FastSet {
        let mut set = FastSet::new(10);
        numbers.iter().for_each(|no| {
            set.insert(*no);
        });
        set
    }

    #[test]
    fn pairs_are_evaluated_in_order_of_benefit() {
        let heat = [5u32, 9, 1, 4, 7, 0, 0, 0, 0, 0];
        let fast = set(&[0, 2, 3]);
        let mut chosen = set(&[0, 1, 4]);
        // 9 against 1 and 7 against 4.
        keep_worthwhile(
            &fast,
            &fast,
            &mut chosen,
            |no| heat[no as usize],
            |new, old| new > 2 * old,
        );
        assert_eq!(chosen, set(&[0, 1, 3]));
        // With less room, the coldest leave without a judgement.
        let mut chosen = set(&[0, 1]);
        keep_worthwhile(
            &fast,
            &fast,
            &mut chosen,
            |no| heat[no as usize],
            |_, _| false,
        );
        assert_eq!(chosen, set(&[0, 3]));
        // With more room, the hottest come without a judgement.
        let mut chosen = set(&[0, 1, 3, 4]);
        keep_worthwhile(
            &fast,
            &fast,
            &mut chosen,
            |no| heat[no as usize],
            |_, _| false,
        );
        assert_eq!(chosen, set(&[0, 1, 2, 3]));
    }
}
