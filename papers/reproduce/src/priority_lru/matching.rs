//! Search for a load at which response times are near those of the paper.
//!
//! The paper describes its customers only by tables of mean response times by class. A load is one factor per class on the rates of its
//! volumes. The search changes the factors of all classes together and of each class alone. It minimizes the distance between the mean
//! response times of the first hours under LRU with the QoS back end and those of table I. The number of runs is bounded, and the outcome
//! shows the response times that were reached. The search does not consider the gain of any method.

use serde::{Deserialize, Serialize};

use super::array::{Array, ArrayError};
use super::job::Variant;

/// Number of hours of a run of the search.
const HOURS: u32 = 6;
/// Largest factor on the load of a class; the smallest one is its reciprocal. It bounds the number of simulated requests.
const FACTOR_MAX: f64 = 8.0;
/// Size of the first step, as a factor.
const STEP: f64 = 2.5;
/// Size of the smallest step, as a factor. Smaller steps have no relevant effect.
const STEP_MIN: f64 = 1.02;
/// Classes that a step changes.
const DIRECTIONS: [[bool; 3]; 4] = [
    [true, true, true],
    [true, false, false],
    [false, true, false],
    [false, false, true],
];

/// Result of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatchResult {
    /// Factor on the rates of each class: high, medium, low.
    pub factors: [f64; 3],
    /// Published mean response times, milliseconds.
    pub published_ms: [f64; 3],
    /// Mean response times under the load as drawn, milliseconds; `None` for a class without requests.
    pub drawn_ms: [Option<f64>; 3],
    /// Mean response times under the matched load, milliseconds.
    pub reached_ms: [Option<f64>; 3],
    /// Root mean square of the logarithms of the ratios of ours to published: as drawn, and matched.
    pub distance: [f64; 2],
    /// Number of runs of the search.
    pub runs: u32,
}

/// Point of the search.
#[derive(Clone, Copy)]
struct Point {
    factors: [f64; 3],
    ms: [Option<f64>; 3],
    distance: f64,
}

/// Scales the rates of the classes, with at most `most` runs.
///
/// # Errors
/// If the array cannot be simulated.
pub(super) fn matched(
    array: Array,
    published_ms: [f64; 3],
    most: u32,
) -> Result<(Array, MatchResult), ArrayError> {
    let evaluate = |factors| evaluated(&array, factors, published_ms);
    let (drawn, best, runs) = search(published_ms, most, evaluate)?;
    let matching = MatchResult {
        factors: best.factors,
        published_ms,
        drawn_ms: drawn.ms,
        reached_ms: best.ms,
        distance: [drawn.distance, best.distance],
        runs,
    };
    Ok((scaled(&array, best.factors), matching))
}

/// Returns the first point, the best point, and the number of evaluated points: at most `most`, at least one.
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

/// Returns true if the classes of a direction are on average faster than published, and hence need more load.
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

/// Returns the root mean square of the logarithms of the ratios of ours to published.
fn distance(ms: [Option<f64>; 3], published_ms: [f64; 3]) -> f64 {
    let pairs = ms.iter().zip(published_ms);
    let logs = pairs.filter_map(|(ours, published)| Some(libm::log((*ours)? / published)));
    let squares: Vec<f64> = logs.map(|log| log * log).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns response times of classes that share a server: each one depends on the load of all.
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
    fn matchable_load_is_matched_in_a_bounded_number_of_runs() {
        let there = shared([4.0, 4.0, 4.0]).map(Option::unwrap);
        let (drawn, best, _) = searched(there, 40);
        assert!(drawn.distance > 0.6, "{}", drawn.distance);
        assert!(best.distance < 0.05, "{}", best.distance);
        let (_, _, runs) = searched(there, 3);
        assert_eq!(runs, 3);
    }

    #[test]
    fn unmatchable_load_is_reported_within_bounds() {
        let (drawn, best, _) = searched([1e6, 1e6, 1e6], 40);
        assert!(best.distance > 5.0 && best.distance < drawn.distance);
        assert!(best.factors.iter().all(|f| *f <= FACTOR_MAX));
    }
}
