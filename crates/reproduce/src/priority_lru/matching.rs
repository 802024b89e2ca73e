//! A load at which response times are where the paper's are.
//!
//! The paper's customers are known by their tables only: mean response times by class. A load is one factor for each class on the rates of its
//! volumes. Factors are searched, all classes together and each for itself, for the least distance between the mean response times of the first
//! hours under LRU with the QoS back end and those of table I: a bounded number of runs, and what was reached is told. What
//! a method gains is not looked at.

use serde::{Deserialize, Serialize};
use sim::cached::{CachedArray, CachedError, run_cached};

use super::job::Variant;

/// Hours of a run of the search.
const HOURS: u32 = 6;
/// A class is given so many times its load at most, or one of so many: a bound on what is simulated.
const FACTOR_MAX: f64 = 8.0;
/// First step, as a factor.
const STEP: f64 = 2.5;
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
pub fn matched(
    array: CachedArray,
    published_ms: [f64; 3],
    most: u32,
) -> Result<(CachedArray, Matching), CachedError> {
    let drawn = evaluated(&array, [1.0; 3], published_ms)?;
    let (mut best, mut runs, mut step) = (drawn, 1, STEP);
    while runs < most && step > 1.05 {
        let before = best.distance;
        for direction in DIRECTIONS {
            let too_fast = wanted(&best, direction, published_ms);
            let factors = stepped(
                best.factors,
                direction,
                if too_fast { step } else { 1.0 / step },
            );
            if runs >= most || factors == best.factors {
                continue;
            }
            runs += 1;
            let tried = evaluated(&array, factors, published_ms)?;
            if tried.distance < best.distance {
                best = tried;
            }
        }
        if best.distance >= before {
            step = step.sqrt();
        }
    }
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

fn scaled(array: &CachedArray, factors: [f64; 3]) -> CachedArray {
    let mut array = array.clone();
    for volume in &mut array.volumes {
        let factor = factors[volume.class];
        let scale = |r: &mut f32| *r = (f64::from(*r) * factor) as f32;
        volume.rates.iter_mut().for_each(scale);
    }
    array
}

fn evaluated(
    array: &CachedArray,
    factors: [f64; 3],
    published_ms: [f64; 3],
) -> Result<Point, CachedError> {
    let mut probe = scaled(array, factors);
    probe.hours = probe.hours.min(HOURS);
    let (cache, back_end) = Variant::QosLru.modes();
    let result = run_cached(&probe, cache, back_end, &mut |_| ())?;
    let ms = [0, 1, 2].map(|c: usize| result.classes[c].response_mean_ms);
    let squares: Vec<f64> = ms
        .iter()
        .zip(published_ms)
        .filter_map(|(ours, published)| Some(libm::log((*ours)? / published)))
        .map(|log| log * log)
        .collect();
    let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
    Ok(Point {
        factors,
        ms,
        distance: mean.sqrt(),
    })
}
