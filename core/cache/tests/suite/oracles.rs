//! Comparison of each policy with a slow oracle, on random traces with removals.

use algo::Rng;
use cache::{OnHit, Outcome, Policy, Position, SegmentedLru};

use crate::naive::{self, NaivePolicy};

const UNIVERSE: u32 = 400;

/// Draws a page: some are hot, some are scanned, some are rare.
fn page(rng: &mut Rng, step: u32) -> u32 {
    match rng.below(10) {
        0..5 => rng.below(40) as u32,
        5..8 => rng.below(u64::from(UNIVERSE)) as u32,
        _ => step / 3 % UNIVERSE,
    }
}

fn agree(
    policy: &mut impl Policy,
    naive: &mut impl NaivePolicy,
    seed: u64,
    steps: u32,
    removals: bool,
) {
    let mut rng = Rng::new(seed, 7);
    let capacity = policy.capacity();
    for step in 0..steps {
        let page = page(&mut rng, step);
        if removals && rng.below(50) == 0 {
            assert_eq!(
                policy.remove(page),
                naive.remove(page),
                "seed {seed} step {step}"
            );
            assert!(!policy.contains(page));
            continue;
        }
        let position = Position::from_percent(
            [5.0, 20.0, 25.0, 40.0, 70.0, 95.0, 100.0][rng.below(7) as usize],
        );
        assert_eq!(policy.contains(page), naive.cached().contains(&page));
        let (ours, theirs) = (
            policy.access_at(page, position),
            naive.access(page, position),
        );
        assert_eq!(ours, theirs, "seed {seed} step {step} page {page}");
        if let Outcome::Miss {
            evicted: Some(gone),
        } = ours
        {
            assert!(!policy.contains(gone) && gone != page);
        }
        assert!(policy.contains(page));
        assert!(policy.len() <= capacity);
        assert_eq!(policy.len() as usize, naive.cached().len());
    }
    let mut cached = naive.cached();
    cached.sort_unstable();
    let ours: Vec<u32> = (0..UNIVERSE).filter(|p| policy.contains(*p)).collect();
    assert_eq!(ours, cached);
}

/// Runs a policy and its oracle at several capacities, with and without removals.
fn check<P: Policy, N: NaivePolicy>(policy: impl Fn(u32) -> P, naive: impl Fn(usize) -> N) {
    for (i, capacity) in [1, 2, 3, 7, 20, 57, 100, 399, 1000].into_iter().enumerate() {
        for removals in [false, true] {
            agree(
                &mut policy(capacity),
                &mut naive(capacity as usize),
                i as u64,
                6000,
                removals,
            );
        }
    }
}

#[test]
fn fifo_matches_its_oracle() {
    check(
        |c| cache::Fifo::new(c, UNIVERSE),
        |c| naive::Fifo(c, vec![]),
    );
}

#[test]
fn lru_matches_its_oracle() {
    check(|c| cache::Lru::new(c, UNIVERSE), |c| naive::Lru(c, vec![]));
}

#[test]
fn clock_matches_its_oracle() {
    check(
        |c| cache::Clock::new(c, UNIVERSE),
        |c| naive::Clock(c, vec![]),
    );
}

#[test]
fn sieve_matches_its_oracle() {
    check(
        |c| cache::Sieve::new(c, UNIVERSE),
        |c| naive::Sieve(c, vec![], 0),
    );
}

#[test]
fn slru_matches_its_oracle() {
    check(
        |c| cache::Slru::new(c, UNIVERSE),
        |c| naive::Slru(c, Default::default()),
    );
}

#[test]
fn s3_fifo_matches_its_oracle() {
    check(
        |c| cache::S3Fifo::new(c, UNIVERSE),
        |capacity| naive::S3Fifo {
            capacity,
            small: vec![],
            main: vec![],
            ghost: vec![],
            evicted_once: false,
        },
    );
}

#[test]
fn arc_matches_its_oracle() {
    check(
        |c| cache::Arc::new(c, UNIVERSE),
        |c| naive::Arc {
            c,
            ..Default::default()
        },
    );
}

#[test]
fn segmented_lru_matches_its_oracle() {
    for (on_hit, again) in [(OnHit::Top, false), (OnHit::Again, true)] {
        check(
            |c| SegmentedLru::new(c, UNIVERSE).on_hit(on_hit),
            |capacity| naive::NaiveSegmented {
                capacity,
                list: vec![],
                again,
            },
        );
    }
}

#[test]
fn two_q_matches_its_oracle() {
    check(
        |c| cache::TwoQ::new(c, UNIVERSE),
        |capacity| naive::TwoQ {
            capacity,
            ..Default::default()
        },
    );
}

#[test]
fn lfu_matches_its_oracle() {
    for ageing in [true, false] {
        check(
            |c| match ageing {
                true => cache::Lfu::new(c, UNIVERSE),
                false => cache::Lfu::without_ageing(c, UNIVERSE),
            },
            |capacity| naive::Lfu {
                capacity,
                pages: vec![],
                age: 0,
                ageing,
            },
        );
    }
}

#[test]
fn w_tinylfu_matches_its_oracle() {
    check(
        |c| cache::WTinyLfu::new(c, UNIVERSE),
        |capacity| naive::WTinyLfu {
            capacity,
            ..Default::default()
        },
    );
}

#[test]
fn lirs_matches_its_oracle() {
    check(
        |c| cache::Lirs::new(c, UNIVERSE),
        |capacity| naive::Lirs {
            capacity,
            ..Default::default()
        },
    );
}
