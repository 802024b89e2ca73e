//! The best plan in hindsight that a search finds: every candidate is run in the engine, copies, queues and all.
//!
//! The search starts at the best of what it is given (staying put, what rivals and a frozen version of the strategy did, never what the version
//! that is judged did) and changes one thing at a time, keeping what is better:
//! a volume elsewhere from some epoch on or for a while, two volumes' places exchanged, a change made earlier, later or not at all. What it
//! finds is no bound: a longer search may find better.

use algo::Rng;
use serde::{Deserialize, Serialize};
use units::TierId;

use crate::judge::Judged;
use crate::script::Path;

/// What a candidate is worth; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// V.
    pub violation: f64,
    /// Capped excess: where V is the same, less of it is better, and shows the way to where V is less.
    pub excess: f64,
    /// Bytes copied.
    pub bytes: f64,
}

impl Score {
    /// Of a run.
    pub fn of(judged: &Judged) -> Self {
        Self {
            violation: judged.violation,
            excess: judged.excess,
            bytes: judged.bytes as f64,
        }
    }

    /// One number: what decides between candidates. Excess and bytes (per GiB) count a little.
    pub fn value(&self) -> f64 {
        self.violation + 0.05 * self.excess + 0.01 * self.bytes / (1u64 << 30) as f64
    }
}

/// How long is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Candidates that are run, besides what is given.
    pub candidates: u32,
    /// Seed of the choices.
    pub seed: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hindsight {
    /// H and what goes with it.
    pub score: Score,
    /// The plan.
    pub path: Path,
    /// Candidates that were run.
    pub candidates: u32,
    /// Of those, ones that were better than all before.
    pub improvements: u32,
    /// Class-weighted seconds missed if every volume had its best tier to itself: optimistic. None where it was not computed.
    pub solo: Option<f64>,
}

/// Searches from the given paths, at least one, each with its score and the class-weighted violation by volume; `run` runs a candidate.
/// None of the paths is longer than another.
pub fn search<E>(
    how: Search,
    tiers: usize,
    given: Vec<(Path, Score, Vec<f64>)>,
    mut run: impl FnMut(&Path) -> Result<(Score, Vec<f64>), E>,
) -> Result<(Path, Score, u32), E> {
    let mut rng = Rng::new(how.seed, 0x41D);
    let best = given
        .into_iter()
        .min_by(|a, b| a.1.value().total_cmp(&b.1.value()));
    let (mut path, mut score, mut violated) = best.expect("at least one path is given");
    let mut improvements = 0;
    for _ in 0..how.candidates {
        // Nothing is missed and nothing is moved: there is nothing to be found.
        if score.violation == 0.0 && score.bytes == 0.0 {
            break;
        }
        let candidate = neighbour(&path, tiers, &violated, &mut rng);
        if candidate == path {
            continue;
        }
        let (own, of_volumes) = run(&candidate)?;
        if own.value() < score.value() {
            (path, score, violated) = (candidate, own, of_volumes);
            improvements += 1;
        }
    }
    Ok((path, score, improvements))
}

/// A path that differs in one thing.
fn neighbour(path: &Path, tiers: usize, violated: &[f64], rng: &mut Rng) -> Path {
    let mut next = path.clone();
    let epochs = path.first().map_or(0, Vec::len) as u64;
    if epochs == 0 || tiers < 2 {
        return next;
    }
    let any = rng.below(path.len() as u64) as usize;
    let volume = match rng.below(2) {
        0 => weighted(violated, rng).unwrap_or(any),
        _ => any,
    };
    // Half of the changes are for the whole run: most of what is wrong is so from the beginning.
    let from = match rng.below(2) {
        0 => 0,
        _ => rng.below(epochs) as usize,
    };
    let to = match rng.below(3) {
        0 => (from + 1 + rng.below(epochs - from as u64) as usize).min(epochs as usize),
        _ => epochs as usize,
    };
    let tier = TierId(rng.below(tiers as u64) as u16);
    match rng.below(10) {
        0..5 => next[volume][from..to].fill(tier),
        5..8 => {
            let other = rng.below(path.len() as u64) as usize;
            next[volume][from..to].copy_from_slice(&path[other][from..to]);
            next[other][from..to].copy_from_slice(&path[volume][from..to]);
        }
        _ => {
            // One change earlier, later, or not at all.
            let changes: Vec<usize> = (1..epochs as usize)
                .filter(|e| path[volume][*e] != path[volume][*e - 1])
                .collect();
            if changes.is_empty() {
                return next;
            }
            let at = changes[rng.below(changes.len() as u64) as usize];
            match rng.below(3) {
                0 => next[volume][at - 1] = path[volume][at],
                1 => next[volume][at] = path[volume][at - 1],
                _ => {
                    let before = path[volume][at - 1];
                    next[volume][at..].fill(before);
                }
            }
        }
    }
    next
}

fn weighted(weights: &[f64], rng: &mut Rng) -> Option<usize> {
    let total: f64 = weights.iter().sum();
    let mut left = rng.unit() * total;
    let found = weights.iter().position(|w| {
        left -= w;
        *w > 0.0 && left < 0.0
    });
    found.filter(|_| total > 0.0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn it_finds_the_tiers_that_a_simple_world_asks_for() {
        // Volume v is kept on tier v % 2, and missed for each epoch that it spends elsewhere.
        let epochs = 6;
        let of = |path: &Path| {
            let violated: Vec<f64> = path
                .iter()
                .enumerate()
                .map(|(v, p)| p.iter().filter(|t| usize::from(t.0) != v % 2).count() as f64)
                .collect();
            let score = Score {
                violation: violated.iter().sum(),
                excess: 0.0,
                bytes: 1.0,
            };
            (score, violated)
        };
        let start = vec![vec![TierId(1); epochs]; 5];
        let (score, violated) = of(&start);
        assert_eq!(score.violation, 18.0);
        let how = Search {
            candidates: 300,
            seed: 7,
        };
        let found = search(how, 2, vec![(start, score, violated)], |p| {
            Ok::<_, Infallible>(of(p))
        });
        let (path, best, improvements) = found.unwrap();
        assert_eq!(of(&path).0, best);
        assert_eq!(best.violation, 0.0);
        assert!(improvements >= 3);
    }
}
