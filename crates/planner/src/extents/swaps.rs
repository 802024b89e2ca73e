//! Which of the moves of a choice are worth it: the best that comes against the worst of those that would leave, and so on.

use super::{ExtentNo, FastSet};

/// Takes back what is not worth its move. `before` is what a choice replaces and `fast` what is on the fast tier (both are
/// the same where there is one area). Those that come, best first, are paired with those that leave, worst first; from the first
/// pair on that `worth(new, old)` refuses, those that would leave stay. Those that come that take free room, and extents that
/// leave for want of room, are not judged.
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
    // The coldest have to leave where there is less room than before, the hottest come where there is more.
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
    fn pairs_are_judged_from_the_best_on() {
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
        // With less room, the coldest go unjudged.
        let mut chosen = set(&[0, 1]);
        keep_worthwhile(
            &fast,
            &fast,
            &mut chosen,
            |no| heat[no as usize],
            |_, _| false,
        );
        assert_eq!(chosen, set(&[0, 3]));
        // With more room, the hottest come unjudged.
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
