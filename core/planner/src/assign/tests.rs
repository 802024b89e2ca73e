use algo::Rng;
use units::TierId;

use super::*;

/// Returns a random instance in which space and IOPS are short, some places are forbidden, and each item has a home.
fn instance(seed: u64, items: usize, tiers: usize, forbidden: bool, soft: bool) -> Problem {
    let mut rng = Rng::new(seed, 7);
    let mut unit = move || rng.below(1 << 20) as f64 / f64::from(1 << 20);
    let share = |t: usize| (t + 1) as f64 / tiers as f64;
    let capacity = (0..tiers)
        .map(|t| [0.5 + 0.4 * unit(), 0.5 + 0.4 * unit(), 0.3 + 0.9 * share(t)])
        .collect();
    let mut problem = Problem::new(capacity);
    for item in 0..items {
        let (load, size) = (unit(), unit());
        let home = TierId::from_index(item % tiers);
        let places: Vec<Option<Place>> = (0..tiers)
            .map(|t| {
                if forbidden && TierId::from_index(t) != home && unit() < 0.15 {
                    return None;
                }
                let speed = 1.0 / (1.0 + t as f64);
                let per = 2.0 / items as f64;
                Some(Place {
                    score: load * speed + 0.1 * unit() - if t == home.index() { 0.0 } else { 0.05 },
                    uses: [
                        per * load * (0.5 + unit()),
                        per * load * unit(),
                        per * size / share(t) * 0.8,
                    ],
                })
            })
            .collect();
        problem.add(Some(home), &places);
    }
    if soft {
        for t in 0..tiers {
            problem.price_overload(
                TierId::from_index(t),
                [0.7 * unit(), 0.7 * unit(), f64::INFINITY],
            );
        }
    }
    problem.admit_present();
    problem
}

/// Returns the cost of a placement's overload, by its definition.
fn overload(problem: &Problem, tiers: &[TierId]) -> i64 {
    let mut cost = 0.0;
    for t in (0..problem.tiers()).map(TierId::from_index) {
        for k in 0..RESOURCES {
            let used: f64 = (0..problem.len())
                .filter(|i| tiers[*i] == t)
                .map(|i| problem.uses(i, t)[k])
                .sum();
            if problem.overload[t.index()][k].is_finite() {
                cost += problem.overload[t.index()][k] * (used - problem.capacity(t)[k]).max(0.0);
            }
        }
    }
    (cost / SCORE_STEP).round() as i64
}

/// Returns the value of the best placement by trying all.
fn exhaustive(problem: &Problem) -> i64 {
    fn go(p: &Problem, item: usize, tiers: &mut Vec<TierId>, best: &mut i64) {
        if item == p.len() {
            if p.admits(tiers) {
                *best = (*best).max(p.placement_of(tiers.clone()).value);
            }
            return;
        }
        for t in 0..p.tiers() {
            let tier = TierId::from_index(t);
            if p.score(item, tier).is_some() {
                tiers.push(tier);
                go(p, item + 1, tiers, best);
                tiers.pop();
            }
        }
    }
    let mut best = i64::MIN;
    go(problem, 0, &mut Vec::new(), &mut best);
    best
}

#[test]
fn assignments_respect_capacities_and_are_no_worse_than_staying() {
    for seed in 0..300 {
        let problem = instance(seed, 30, 4, seed % 2 == 0, seed % 3 == 0);
        let present = problem.present().unwrap();
        let solved = solve(&problem).unwrap();
        assert!(problem.admits(&solved.tiers), "seed {seed}");
        assert!(solved.value >= present.value, "seed {seed}");
        let by_hand: i64 = (0..problem.len())
            .map(|i| problem.score(i, solved.tiers[i]).unwrap())
            .sum();
        assert_eq!(
            solved.value,
            by_hand - overload(&problem, &solved.tiers),
            "seed {seed}"
        );
    }
}

#[test]
fn assignment_bound_is_at_least_the_optimum() {
    let (mut reached, mut gained, mut possible) = (0, 0, 0);
    for seed in 0..60 {
        let problem = instance(seed, 8, 3, seed % 3 == 0, seed % 2 == 0);
        let optimum = exhaustive(&problem);
        let solved = solve(&problem).unwrap();
        let bound = bound(&problem, Some(solved.value));
        assert!(bound.value >= optimum, "seed {seed}: {bound:?} {optimum}");
        assert!(solved.value <= optimum, "seed {seed}");
        // Branch and bound finds the same value as trying all, also from a bad start.
        for known in [&solved, &problem.present().unwrap()] {
            let found = super::optimum(&problem, known).unwrap();
            assert!(problem.admits(&found.tiers), "seed {seed}");
            assert_eq!(found.value, optimum, "seed {seed}");
        }
        let present = problem.present().unwrap().value;
        reached += usize::from(solved.value == optimum);
        gained += solved.value - present;
        possible += optimum - present;
    }
    // With eight items, one wrong place has a large effect.
    assert!(reached >= 40, "{reached} of 60 are the optimum");
    assert!(
        gained as f64 >= 0.97 * possible as f64,
        "{gained} of {possible}"
    );
}

#[test]
fn large_assignments_are_within_one_percent_of_the_bound() {
    for seed in 0..6 {
        let problem = instance(seed, 2_000, 5, false, seed > 2);
        let present = problem.present().unwrap().value;
        let solved = solve(&problem).unwrap();
        let bound = bound(&problem, Some(solved.value)).value;
        let gap = (bound - solved.value) as f64 / (bound - present) as f64;
        assert!((0.0..=0.01).contains(&gap), "seed {seed}: {gap}");
    }
}

#[test]
fn assignment_without_gain_has_no_moves() {
    let mut problem = Problem::new(vec![[1.0; 3], [1.0; 3]]);
    let same = Some(Place {
        score: 0.5,
        uses: [0.4, 0.0, 0.4],
    });
    for home in [1, 0, 1] {
        problem.add(Some(TierId(home)), &[same, same]);
    }
    problem.admit_present();
    assert_eq!(solve(&problem), problem.present());
}

#[test]
fn overloaded_tier_may_remain_overloaded_but_accepts_no_volume() {
    let mut problem = Problem::new(vec![[1.0; 3], [1.0; 3]]);
    let place = |score: f64, share: f64| {
        Some(Place {
            score,
            uses: [share, 0.0, 0.1],
        })
    };
    // Two volumes overload tier 0 already; a third would gain from it.
    problem.add(Some(TierId(0)), &[place(1.0, 0.8), place(0.9, 2.0)]);
    problem.add(Some(TierId(0)), &[place(1.0, 0.8), place(0.9, 2.0)]);
    problem.add(Some(TierId(1)), &[place(1.0, 0.1), place(0.0, 0.1)]);
    problem.admit_present();
    let solved = solve(&problem).unwrap();
    assert_eq!(solved, problem.present().unwrap());
    assert!(bound(&problem, Some(solved.value)).value >= solved.value);
}

#[test]
fn regret_and_exchange_improve_on_a_greedy_assignment() {
    // Both want tier 0, which has room for one: the second loses far more elsewhere. Tier-major order would take the first.
    let mut problem = Problem::new(vec![[1.0; 3], [9.0; 3]]);
    let place = |score: f64| {
        Some(Place {
            score,
            uses: [0.9, 0.0, 0.0],
        })
    };
    problem.add(Some(TierId(1)), &[place(1.0), place(0.9)]);
    problem.add(Some(TierId(1)), &[place(0.8), place(0.1)]);
    problem.admit_present();
    assert_eq!(solve(&problem).unwrap().tiers, [TierId(1), TierId(0)]);
    // If the wrong item is already on the tier, the items change places.
    let mut problem = Problem::new(vec![[1.0; 3], [1.0; 3]]);
    problem.add(Some(TierId(0)), &[place(1.0), place(0.9)]);
    problem.add(Some(TierId(1)), &[place(0.8), place(0.1)]);
    problem.admit_present();
    assert_eq!(solve(&problem).unwrap().tiers, [TierId(1), TierId(0)]);
}

#[test]
fn items_without_a_tier_are_placed_or_the_problem_has_no_solution() {
    let mut problem = Problem::new(vec![[1.0; 3]]);
    let place = Some(Place {
        score: 0.0,
        uses: [0.6, 0.0, 0.0],
    });
    problem.add(None, &[place]);
    assert_eq!(solve(&problem).unwrap().tiers, [TierId(0)]);
    problem.add(None, &[place]);
    assert_eq!(solve(&problem), None);
}
