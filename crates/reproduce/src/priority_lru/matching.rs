//! A load at which response times are where the paper's are.
//!
//! The paper's customers are known by their tables only: mean response times by class. A load is one factor for each class on the rates of its
//! volumes. Factors are searched, all classes together and each for itself, for the least distance between the mean response times of the first
//! hours under LRU with the QoS back end and those of table I: a bounded number of runs, and what was reached is told. What
//! a method gains is not looked at.

use serde::{Deserialize, Serialize};

use super::array::{Array, ArrayError};
use super::job::Variant;

/// Hours of a run of the search.
const HOURS: u32 = 6;
/// A class is given so many times its load at most, or one of so many: a bound on what is simulated.
const FACTOR_MAX: f64 = 8.0;
/// First step, as a factor.
const STEP: f64 = 2.5;
/// A smaller step than this changes nothing that matters.
const STEP_MIN: f64 = 1.02;
/// Which classes a step changes.
const DIRECTIONS: [[bool; 3]; 4] = [
    [true, true, true],
    [true, false, false],
    [false, true, false],
    [false, false, true],
];

/// What came of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// Factor on the rates of each class: high, medium, low.
    pub factors: [f64; 3],
    /// Mean response times that are printed, milliseconds.
    pub published_ms: [f64; 3],
    /// Those of the load as it was drawn; none for a class without requests.
    pub drawn_ms: [Option<f64>; 3],
    /// Those that were reached.
    pub reached_ms: [Option<f64>; 3],
    /// Root mean square of the logarithms of ours over published, as drawn and as reached.
    pub distance: [f64; 2],
    /// Runs of the search.
    pub runs: u32,
}

/// One point of the search.
#[derive(Clone, Copy)]
struct Point {
    factors: [f64; 3],
    ms: [Option<f64>; 3],
    distance: f64,
}

/// Scales the classes' rates, in `most` runs.
///
/// # Errors
/// When the array cannot be simulated.
pub(super) fn matched(
    array: Array,
    published_ms: [f64; 3],
    most: u32,
) -> Result<(Array, Matching), ArrayError> {
    let evaluate = |factors| evaluated(&array, factors, published_ms);
    let (drawn, best, runs) = search(published_ms, most, evaluate)?;
    let matching = Matching {
        factors: best.factors,
        published_ms,
        drawn_ms: drawn.ms,
        reached_ms: best.ms,
        distance: [drawn.distance, best.distance],
        runs,
    };
    Ok((scaled(&array, best.factors), matching))
}

/// The first and the best point, and how many were evaluated: at most `most`, at least one.
fn search<E>(
    published_ms: [f64; 3],
    most: u32,
    mut evaluate: impl FnMut([f64; 3]) -> Result<Point, E>,
) -> Result<(Point, Point, u32), E> {
    let drawn = evaluate([1.0; 3])?;
    let (mut best, mut runs, mut step) = (drawn, 1, STEP);
    while runs < most && step > STEP_MIN {
        let before = best.distance;
        for direction in DIRECTIONS {
            let by = match wanted(&best, direction, published_ms) {
                true => step,
                false => 1.0 / step,
            };
            let factors = stepped(best.factors, direction, by);
            if runs >= most || factors == best.factors {
                continue;
            }
            runs += 1;
            let tried = evaluate(factors)?;
            if tried.distance < best.distance {
                best = tried;
            }
        }
        if best.distance >= before {
            step = step.sqrt();
        }
    }
    Ok((drawn, best, runs))
}

/// Whether classes are faster than published, so that more load is wanted.
fn wanted(at: &Point, direction: [bool; 3], published_ms: [f64; 3]) -> bool {
    let of = |c: usize| {
        let ms = at.ms[c].filter(|_| direction[c]);
        ms.map_or(0.0, |ms| libm::log(published_ms[c] / ms))
    };
    (0..3).map(of).sum::<f64>() > 0.0
}

fn stepped(factors: [f64; 3], direction: [bool; 3], by: f64) -> [f64; 3] {
    let mut next = factors;
    for (factor, changes) in next.iter_mut().zip(direction) {
        if changes {
            *factor = (*factor * by).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        }
    }
    next
}

fn scaled(array: &Array, factors: [f64; 3]) -> Array {
    array.scaled(|v| factors[v.class])
}

fn evaluated(
    array: &Array,
    factors: [f64; 3],
    published_ms: [f64; 3],
) -> Result<Point, ArrayError> {
    let mut probe = scaled(array, factors);
    probe.hours = probe.hours.min(HOURS);
    let (cache, back_end) = Variant::QosLru.modes();
    let result = probe.run(cache, back_end)?;
    let ms = [0, 1, 2].map(|c: usize| result.classes[c].response_mean_ms);
    Ok(Point {
        factors,
        ms,
        distance: distance(ms, published_ms),
    })
}

/// Root mean square of the logarithms of ours over published.
fn distance(ms: [Option<f64>; 3], published_ms: [f64; 3]) -> f64 {
    let pairs = ms.iter().zip(published_ms);
    let logs = pairs.filter_map(|(ours, published)| Some(libm::log((*ours)? / published)));
    let squares: Vec<f64> = logs.map(|log| log * log).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes that share a server: each waits for all.
    fn shared(factors: [f64; 3]) -> [Option<f64>; 3] {
        let busy = 0.05 * factors.iter().sum::<f64>();
        [1.0, 2.0, 4.0].map(|own: f64| Some(own / (1.0 - busy.min(0.98))))
    }

    fn searched(published_ms: [f64; 3], most: u32) -> (Point, Point, u32) {
        let mut runs = 0;
        let found = search(published_ms, most, |factors| {
            runs += 1;
            let ms = shared(factors);
            Ok::<_, ()>(Point {
                factors,
                ms,
                distance: distance(ms, published_ms),
            })
        });
        let (drawn, best, counted) = found.unwrap();
        assert_eq!(runs, counted);
        (drawn, best, counted)
    }

    #[test]
    fn a_load_that_can_be_matched_is_in_a_bounded_number_of_runs() {
        let there = shared([4.0, 4.0, 4.0]).map(Option::unwrap);
        let (drawn, best, _) = searched(there, 40);
        assert!(drawn.distance > 0.6, "{}", drawn.distance);
        assert!(best.distance < 0.05, "{}", best.distance);
        let (_, _, runs) = searched(there, 3);
        assert_eq!(runs, 3);
    }

    #[test]
    fn what_cannot_be_matched_is_told_and_stays_in_bounds() {
        let (drawn, best, _) = searched([1e6, 1e6, 1e6], 40);
        assert!(best.distance > 5.0 && best.distance < drawn.distance);
        assert!(best.factors.iter().all(|f| *f <= FACTOR_MAX));
    }
}
