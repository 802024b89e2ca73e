//! Queue with 20 positions: cases that the papers leave out, and the effect of ageing.

use cache::{Ageing, Outcome, Policy, Position, SegmentedLru};

fn low() -> Position {
    Position::from_percent(20.0)
}

fn survivors(policy: &impl Policy) -> usize {
    (0..1000).filter(|p| policy.contains(*p)).count()
}

/// 1,000 pages at the top, then 100,000 at 20 %: the first ones stay for ever.
#[test]
fn pages_above_all_insertions_are_never_evicted() {
    let mut queue = SegmentedLru::new(1000, 101_000);
    (0..1000).for_each(|p| drop_outcome(queue.access(p)));
    (1000..101_000).for_each(|p| drop_outcome(queue.access_at(p, low())));
    assert_eq!(survivors(&queue), 800);
}

fn drop_outcome(outcome: Outcome) {
    assert!(!outcome.is_hit());
}

/// With ageing they are evicted, most within two hours.
#[test]
fn ageing_evicts_idle_pages() {
    let ageing = Ageing::TwoSlices;
    let mut queue = SegmentedLru::new(1000, 101_000).ageing(ageing);
    let mut left = Vec::new();
    (0..1000).for_each(|p| drop_outcome(queue.access(p)));
    for slice in 0..24u32 {
        queue.slice_ended();
        let from = 1000 + slice * 1000;
        (from..from + 1000).for_each(|p| drop_outcome(queue.access_at(p, low())));
        left.push(survivors(&queue));
    }
    assert_eq!(left[0], 800, "nothing is old yet");
    assert!(left[23] < 60, "{left:?}");
    // A page with hits is not old.
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

/// A stream of insertions at 20 % fills the cache before it evicts a page.
#[test]
fn insertion_places_are_shares_of_the_cached_pages() {
    let mut queue = SegmentedLru::new(1000, 2000);
    for page in 0..1000 {
        let outcome = queue.access_at(page, low());
        assert_eq!(outcome, Outcome::Miss { evicted: None });
    }
    assert_eq!(queue.len(), 1000);
}
