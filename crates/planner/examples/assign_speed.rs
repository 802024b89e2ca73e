//! How long it takes to place many volumes, and how far the placement is from the bound.
//!
//! `assign_speed [VOLUMES [TIERS [RUNS]]]`, for `bench/plan.sh`.

use std::time::Instant;

use algo::Rng;
use planner::assign::{Place, Problem, bound, solve};
use units::TierId;

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|a| a.parse::<usize>().expect("a number"));
    let (volumes, tiers, runs) = (
        args.next().unwrap_or(10_000),
        args.next().unwrap_or(5),
        args.next().unwrap_or(5),
    );
    println!("volumes tiers seed plan_ms bound_ms gap_to_bound moves");
    for seed in 0..runs as u64 {
        let problem = instance(seed, volumes, tiers);
        let begun = Instant::now();
        let solved = solve(&problem).expect("everything has a home");
        let plan_ms = begun.elapsed().as_secs_f64() * 1e3;
        let begun = Instant::now();
        let most = bound(&problem, Some(solved.value)).value;
        let bound_ms = begun.elapsed().as_secs_f64() * 1e3;
        let present = problem.present().expect("everything has a home");
        let gap = (most - solved.value) as f64 / (most - present.value) as f64;
        let moves = (0..volumes)
            .filter(|i| Some(solved.tiers[*i]) != problem.home(*i))
            .count();
        println!("{volumes} {tiers} {seed} {plan_ms:.1} {bound_ms:.1} {gap:.5} {moves}");
    }
}

/// Volumes with loads and sizes over four orders of magnitude in three service classes; tiers that get larger and slower,
/// filled to two thirds; scores as in paper 0's Eq. 6 less the cost of a move in proportion to the size.
fn instance(seed: u64, volumes: usize, tiers: usize) -> Problem {
    let mut rng = Rng::new(seed, 1);
    let mut unit = move || rng.below(1 << 30) as f64 / f64::from(1 << 30);
    let weights: Vec<f64> = (0..tiers).map(|t| f64::from(1 << t)).collect();
    let total: f64 = weights.iter().sum();
    let loads: Vec<(f64, f64, f64)> = (0..volumes)
        .map(|_| {
            (
                libm::pow(10.0, 4.0 * unit()),
                libm::pow(10.0, 3.0 * unit()),
                unit(),
            )
        })
        .collect();
    let load_sum: f64 = loads.iter().map(|l| l.0).sum();
    let size_sum: f64 = loads.iter().map(|l| l.1).sum();
    let mut problem = Problem::new(vec![[0.8, 0.8, 0.9]; tiers]);
    let mut filled = vec![0.0; tiers];
    for (load, size, kind) in loads {
        let weight = [1.0, 2.0, 4.0][(kind * 3.0) as usize];
        let mut places: Vec<Place> = (0..tiers)
            .map(|t| {
                let slower = libm::pow(0.75, t as f64);
                let iops =
                    load * slower * (0.7 + 0.3 * unit()) / load_sum * 2.0 / libm::pow(slower, 2.0);
                let bandwidth = iops * (0.2 + 1.2 * kind);
                let space = size / size_sum * 0.66 * total / weights[t];
                Place {
                    score: weight * slower * (iops + bandwidth) * (0.5 + 0.5 * unit()),
                    uses: [iops, bandwidth, space],
                }
            })
            .collect();
        // Wherever there is most room.
        let home = (0..tiers)
            .max_by(|a, b| (filled[*b] as f64).total_cmp(&filled[*a]))
            .expect("there are tiers");
        filled[home] += places[home].uses[2];
        for (t, place) in places.iter_mut().enumerate() {
            if t != home {
                place.score -= 0.1 * size / size_sum;
            }
        }
        let places: Vec<Option<Place>> = places.into_iter().map(Some).collect();
        problem.add(Some(TierId::from_index(home)), &places);
    }
    problem.admit_present();
    problem
}
