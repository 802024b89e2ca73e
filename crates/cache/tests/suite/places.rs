//! The queue with 20 places: what the papers leave out, and the bound of the lazy variant.

use algo::Rng;
use cache::{Ageing, LazySegmentedLru, OnHit, Outcome, Policy, Position, SEGMENTS, SegmentedLru};

fn low() -> Position {
    Position::from_percent(20.0)
}

fn survivors(policy: &impl Policy) -> usize {
    (0..1000).filter(|p| policy.contains(*p)).count()
}

/// 1,000 pages at the top, then 100,000 at 20 %: what was there stays, for good.
#[test]
fn pages_above_all_insertions_stay() {
    let mut queue = SegmentedLru::new(1000, 101_000);
    (0..1000).for_each(|p| drop_outcome(queue.access(p)));
    (1000..101_000).for_each(|p| drop_outcome(queue.access_at(p, low())));
    assert_eq!(survivors(&queue), 800);
}

fn drop_outcome(outcome: Outcome) {
    assert!(!outcome.is_hit());
}

/// With ageing they go, most of them within two hours.
#[test]
fn ageing_brings_them_down() {
    let ageing = Ageing::TwoSlices;
    let mut exact = SegmentedLru::new(1000, 101_000).ageing(ageing);
    let mut lazy = LazySegmentedLru::with_error(1000, 101_000, 10).ageing(ageing);
    let mut left = Vec::new();
    for (queue, left_at_end) in [
        (&mut exact as &mut dyn Policy, &mut left),
        (&mut lazy, &mut Vec::new()),
    ] {
        (0..1000).for_each(|p| drop_outcome(queue.access(p)));
        for slice in 0..24u32 {
            queue.slice_ended();
            let from = 1000 + slice * 1000;
            (from..from + 1000).for_each(|p| drop_outcome(queue.access_at(p, low())));
            left_at_end.push((0..1000).filter(|p| queue.contains(*p)).count());
        }
        assert_eq!(left_at_end[0], 800, "nothing is old yet");
        assert!(left_at_end[23] < 60, "{left_at_end:?}");
    }
    // A page that is hit is not old.
    let mut queue = SegmentedLru::new(1000, 101_000).ageing(ageing);
    (0..1000).for_each(|p| drop_outcome(queue.access(p)));
    for slice in 0..20u32 {
        (0..1000).step_by(10).for_each(|p| {
            assert!(queue.access(p).is_hit(), "page {p} slice {slice}");
        });
        queue.slice_ended();
        let from = 1000 + slice * 500;
        (from..from + 500).for_each(|p| drop_outcome(queue.access_at(p, low())));
    }
    assert!(survivors(&queue) < 200, "{}", survivors(&queue));
}

/// A stream of insertions at 20 % fills the cache before it evicts anything.
#[test]
fn places_are_shares_of_what_is_cached() {
    let mut queue = SegmentedLru::new(1000, 2000);
    for page in 0..1000 {
        let outcome = queue.access_at(page, low());
        assert_eq!(outcome, Outcome::Miss { evicted: None });
    }
    assert_eq!(queue.len(), 1000);
}

/// Thirty random traces: each insertion of the lazy queue is within its bound of the exact place in the same queue.
#[test]
fn the_lazy_queue_keeps_its_bound() {
    for (seed, on_hit) in (0..30).flat_map(|s| [(s, OnHit::Top), (s, OnHit::Again)]) {
        let mut rng = Rng::new(seed, 3);
        let capacity = [40, 57, 200, 1000][rng.below(4) as usize];
        let universe = capacity * 3;
        let error = [1, 4, 10, 64][rng.below(4) as usize];
        let mut queue = LazySegmentedLru::with_error(capacity, universe, error).on_hit(on_hit);
        let mut worst = 0;
        for step in 0..4000 {
            let page = rng.below(u64::from(universe)) as u32;
            if rng.below(40) == 0 {
                let was = queue.contains(page);
                assert_eq!(queue.remove(page), was);
                continue;
            }
            let segment = [3, 4, 7, 13, 18, 19][rng.below(6) as usize];
            let before = queue.in_order();
            assert_eq!(before.len(), queue.len() as usize);
            let outcome = queue.access_at(page, Position::from_segment(segment));
            let after = queue.in_order();
            match outcome {
                Outcome::Hit => {
                    let below = (segment as usize + 1) * before.len() / SEGMENTS;
                    let was = before.iter().position(|p| *p == page).unwrap();
                    let mut expected = before;
                    expected.remove(was);
                    if on_hit == OnHit::Top {
                        expected.push(page);
                    } else {
                        let at = after.iter().position(|p| *p == page).unwrap();
                        let off = at.abs_diff(below - usize::from(was < below));
                        assert!(
                            off <= queue.error_pages_max() as usize,
                            "seed {seed} step {step}: hit, at {at}, {below} below"
                        );
                        expected.insert(at, page);
                    }
                    assert_eq!(after, expected, "seed {seed} step {step}");
                }
                Outcome::Miss { evicted } => {
                    let full = before.len() == capacity as usize;
                    assert_eq!(evicted, full.then(|| before[0]));
                    let at = after.iter().position(|p| *p == page).unwrap();
                    let below = (segment as usize + 1) * before.len() / SEGMENTS;
                    let exact = below.saturating_sub(usize::from(full));
                    let off = at.abs_diff(exact);
                    worst = worst.max(off);
                    assert!(
                        off <= queue.error_pages_max() as usize,
                        "seed {seed} step {step}: at {at}, exact {exact}"
                    );
                    // All others keep their order.
                    let mut expected = before;
                    if full {
                        expected.remove(0);
                    }
                    expected.insert(at, page);
                    assert_eq!(after, expected, "seed {seed} step {step}");
                }
            }
        }
        let exact = queue.error_pages_max() == 0;
        assert_eq!(worst == 0, exact, "the bound is never needed");
    }
}

/// The lazy queue of a small cache has blocks of one page and is the exact queue.
#[test]
fn the_lazy_queue_is_exact_in_small_caches() {
    for (seed, on_hit) in (0..30).flat_map(|s| [(s, OnHit::Top), (s, OnHit::Again)]) {
        let mut rng = Rng::new(seed, 4);
        let capacity = [40, 57, 200, 799][rng.below(4) as usize];
        let universe = capacity * 3;
        let mut exact = SegmentedLru::new(capacity, universe).on_hit(on_hit);
        let mut lazy = LazySegmentedLru::new(capacity, universe).on_hit(on_hit);
        assert_eq!(lazy.error_pages_max(), 0);
        for step in 0..6000 {
            let page = rng.below(u64::from(universe)) as u32;
            let segment = [3, 4, 7, 13, 18, 19][rng.below(6) as usize];
            let position = Position::from_segment(segment);
            let outcomes = (
                exact.access_at(page, position),
                lazy.access_at(page, position),
            );
            assert_eq!(outcomes.0, outcomes.1, "seed {seed} step {step}");
        }
    }
    assert_eq!(LazySegmentedLru::new(800, 1600).error_pages_max(), 8);
}
