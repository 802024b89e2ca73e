//! Programs for HiGHS.

use highs::{Col, HighsModelStatus, Model, RowProblem, Sense};
use planner::assign::{Placement, Problem, RESOURCES, SCORE_STEP};
use planner::horizon::{Horizon, Paths};
use units::TierId;

use crate::{ExactError, Optimum};

/// Relative gap at which the solver stops.
const GAP: f64 = 1e-6;
/// Number of branches after which the solver stops, so work is bounded. The best solution so far is then the result, with
/// its gap.
const NODES_MAX: i32 = 20_000;

/// Returns the best placement of one epoch.
///
/// # Errors
/// Returns an error if the solver finds no solution.
pub fn assignment(problem: &Problem) -> Result<Optimum<Placement>, ExactError> {
    let tiers = || (0..problem.tiers()).map(TierId::from_index);
    let mut program = RowProblem::default();
    let mut columns: Vec<Vec<Option<Col>>> = Vec::with_capacity(problem.len());
    for item in 0..problem.len() {
        let row: Vec<Option<Col>> = tiers()
            .map(|t| {
                let score = problem.score(item, t)?;
                Some(program.add_integer_column(score as f64 * SCORE_STEP, 0..=1))
            })
            .collect();
        program.add_row(1..=1, row.iter().flatten().map(|c| (*c, 1.0)));
        columns.push(row);
    }
    for tier in tiers() {
        for k in 0..RESOURCES {
            let used = columns
                .iter()
                .enumerate()
                .filter_map(|(item, row)| Some((row[tier.index()]?, problem.uses(item, tier)[k])));
            let (capacity, price) = (problem.capacity(tier)[k], problem.overload(tier)[k]);
            limit(&mut program, used.collect(), capacity, price);
        }
    }
    let (values, gap) = optimum(program)?;
    let placed = columns.iter().map(|row| {
        let chosen = row.iter().position(|c| c.is_some_and(|c| values(c) > 0.5));
        chosen.map(TierId::from_index)
    });
    let placed: Option<Vec<TierId>> = placed.collect();
    let placed = placed
        .filter(|tiers| problem.admits(tiers))
        .ok_or(ExactError::Inadmissible)?;
    Ok(Optimum {
        solution: problem.placement_of(placed),
        gap,
    })
}

/// Returns the best paths through all epochs.
///
/// # Errors
/// Returns an error if the solver finds no solution.
pub fn horizon(horizon: &Horizon) -> Result<Optimum<Paths>, ExactError> {
    let tiers = horizon.tiers();
    let mut program = RowProblem::default();
    // By volume, epoch, from, to.
    let mut columns: Vec<Vec<Vec<Vec<Option<Col>>>>> = Vec::with_capacity(horizon.len());
    for v in 0..horizon.len() {
        let mut of_volume: Vec<Vec<Vec<Option<Col>>>> = Vec::with_capacity(horizon.epochs());
        for epoch in 0..horizon.epochs() {
            let cell = |program: &mut RowProblem, from: usize, to: usize| {
                let reachable = epoch > 0 || from == horizon.home(v).index();
                let value = horizon.gain(v, epoch, to) - horizon.cost(v, from, to);
                reachable.then(|| program.add_integer_column(value as f64 * SCORE_STEP, 0..=1))
            };
            let cells: Vec<Vec<Option<Col>>> = (0..tiers)
                .map(|from| (0..tiers).map(|to| cell(&mut program, from, to)).collect())
                .collect();
            if epoch == 0 {
                let all = cells.iter().flatten().flatten();
                program.add_row(1..=1, all.map(|c| (*c, 1.0)));
            } else {
                // Arrivals on a tier equal departures from it.
                for (at, leaving) in cells.iter().enumerate() {
                    let arrived = of_volume[epoch - 1].iter().filter_map(|row| row[at]);
                    let left = leaving.iter().flatten();
                    program.add_row(
                        0..=0,
                        arrived.map(|c| (c, 1.0)).chain(left.map(|c| (*c, -1.0))),
                    );
                }
            }
            of_volume.push(cells);
        }
        columns.push(of_volume);
    }
    for epoch in 0..horizon.epochs() {
        for t in 0..tiers {
            let (capacity, price) = horizon.limits(t);
            for k in 0..RESOURCES {
                let used = columns.iter().enumerate().flat_map(|(v, of_volume)| {
                    let uses = horizon.uses(v, epoch, t)[k];
                    of_volume[epoch]
                        .iter()
                        .filter_map(move |row| Some((row[t]?, uses)))
                });
                limit(&mut program, used.collect(), capacity[k], price[k]);
            }
        }
    }
    let (values, gap) = optimum(program)?;
    let path = |of_volume: &Vec<Vec<Vec<Option<Col>>>>| -> Option<Vec<TierId>> {
        let at = |cells: &Vec<Vec<Option<Col>>>| {
            let mut arrivals = cells.iter().flat_map(|row| row.iter().enumerate());
            let taken = arrivals.find(|(_, c)| c.is_some_and(|c| values(c) > 0.5));
            taken.map(|(to, _)| TierId::from_index(to))
        };
        of_volume.iter().map(at).collect()
    };
    let paths: Option<Vec<Vec<TierId>>> = columns.iter().map(path).collect();
    let paths = paths
        .filter(|tiers| horizon.admits(tiers))
        .ok_or(ExactError::Inadmissible)?;
    Ok(Optimum {
        solution: horizon.paths(paths),
        gap,
    })
}

/// Adds a capacity row; exceeding it costs `price`, or is forbidden if the price is infinite.
fn limit(program: &mut RowProblem, mut used: Vec<(Col, f64)>, capacity: f64, price: f64) {
    used.retain(|(_, uses)| *uses != 0.0);
    if price.is_finite() {
        let over = program.add_column(-price, 0..);
        used.push((over, -1.0));
    }
    program.add_row(..=capacity, used);
}

/// Returns the values of the columns, and the relative gap.
fn optimum(program: RowProblem) -> Result<(impl Fn(Col) -> f64, f64), ExactError> {
    let mut model: Model = program.optimise(Sense::Maximise);
    model.make_quiet();
    model.set_option("mip_rel_gap", GAP);
    model.set_option("mip_max_nodes", NODES_MAX);
    // One thread and one seed: the same problem gives the same result.
    model.set_option("threads", 1);
    let solved = model.solve();
    let status = solved.status();
    let usable = [
        HighsModelStatus::Optimal,
        HighsModelStatus::ReachedSolutionLimit,
    ];
    if !usable.contains(&status) {
        return Err(ExactError::Status(format!("{status:?}")));
    }
    let gap = solved.mip_gap();
    let solution = solved.get_solution();
    Ok((move |c| solution[c], gap))
}

#[cfg(test)]
mod tests {
    use algo::Rng;
    use planner::assign::{Place, bound, solve};

    use super::*;

    fn unit(seed: u64) -> impl FnMut() -> f64 {
        let mut rng = Rng::new(seed, 11);
        move || rng.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    fn place(unit: &mut impl FnMut() -> f64, items: usize) -> Place {
        let each = 2.0 / items as f64;
        Place {
            score: unit(),
            uses: [each * unit(), each * unit(), each * unit()],
        }
    }

    fn instance(seed: u64, items: usize, tiers: usize) -> Problem {
        let mut unit = unit(seed);
        let mut problem = Problem::new(vec![[0.5, 0.5, 0.6]; tiers]);
        for item in 0..items {
            let places: Vec<Option<Place>> =
                (0..tiers).map(|_| Some(place(&mut unit, items))).collect();
            problem.add(Some(TierId::from_index(item % tiers)), &places);
        }
        if seed.is_multiple_of(2) {
            for t in 0..tiers {
                problem.price_overload(TierId::from_index(t), [0.8, 0.9, f64::INFINITY]);
            }
        }
        problem.admit_present();
        problem
    }

    #[test]
    fn planner_assignment_is_near_the_optimum_and_below_its_bound() {
        let (mut got, mut possible, mut most) = (0, 0, 0);
        for seed in 0..10 {
            let problem = instance(seed, 40, 3);
            let stay = problem.present().unwrap().value;
            let ours = solve(&problem).unwrap();
            let bound = bound(&problem, Some(ours.value)).value;
            let optimum = assignment(&problem).unwrap();
            assert!(optimum.gap <= 1e-5, "{}", optimum.gap);
            let slack = (optimum.solution.value.abs() as f64 * 1e-5) as i64;
            assert!(ours.value <= optimum.solution.value + slack, "seed {seed}");
            assert!(bound >= optimum.solution.value, "seed {seed}");
            got += ours.value - stay;
            possible += optimum.solution.value - stay;
            most += bound - stay;
        }
        assert!(got as f64 >= 0.99 * possible as f64, "{got} of {possible}");
        assert!(
            most as f64 <= 1.02 * possible as f64,
            "{most} over {possible}"
        );
    }

    #[test]
    fn planner_paths_are_near_the_optimum() {
        let (mut got, mut possible) = (0, 0);
        for seed in 0..4 {
            let mut unit = unit(seed);
            let (volumes, tiers, epochs) = (12, 3, 5);
            let soft = [0.8, 0.9, f64::INFINITY];
            let mut h = Horizon::new(epochs, vec![[0.5, 0.5, 0.8]; tiers], vec![soft; tiers]);
            for v in 0..volumes {
                let places: Vec<Vec<Place>> = (0..epochs)
                    .map(|_| (0..tiers).map(|_| place(&mut unit, volumes)).collect())
                    .collect();
                let costs = vec![vec![0.2; tiers]; tiers];
                h.add(TierId::from_index(v % tiers), &places, &costs);
            }
            h.admit_present();
            let (ours, bound) = h.solve();
            let optimum = horizon(&h).unwrap();
            let slack = (optimum.solution.value.abs() as f64 * 1e-5) as i64;
            assert!(ours.value <= optimum.solution.value + slack, "seed {seed}");
            assert!(bound >= optimum.solution.value, "seed {seed}");
            got += ours.value - h.stay().value;
            possible += optimum.solution.value - h.stay().value;
        }
        assert!(got as f64 >= 0.95 * possible as f64, "{got} of {possible}");
    }
}
