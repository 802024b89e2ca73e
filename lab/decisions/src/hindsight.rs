//! Best plan in hindsight that a search finds: every candidate runs in the engine, with copies and queues.
//!
//! The search starts at the best of the given plans: no moves, the plans of rivals, and the plans of a frozen version of the
//! strategy; never those of the judged version. It makes one change at a time and keeps improvements: a volume on another
//! tier from some epoch on or for a while, an exchange of two volumes' places, or a move made earlier, later or not at all.
//! Its result is no bound: a longer search may find a better plan.

use algo::Rng;
use serde::{Deserialize, Serialize};
use units::TierId;

use crate::judge::RunMetrics;
use crate::script::Path;

/// Score of a candidate; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// V.
    pub violation: f64,
    /// Capped excess. At equal V, less excess is better, and leads the search to a lower V.
    pub excess: f64,
    /// Bytes copied.
    pub bytes: f64,
}

impl Score {
    /// Returns the score of a run.
    pub fn of(judged: &RunMetrics) -> Self {
        Self {
            violation: judged.violation,
            excess: judged.excess,
            bytes: judged.bytes as f64,
        }
    }

    /// Returns one number by which candidates are compared. Excess and bytes (per GiB) have small weights.
    pub fn value(&self) -> f64 {
        self.violation + 0.05 * self.excess + 0.01 * self.bytes / (1u64 << 30) as f64
    }
}

/// Length of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Number of candidates to run, without the given plans.
    pub candidates: u32,
    /// Seed of the choices.
    pub seed: u64,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hindsight {
    /// H and the other parts of its score.
    pub score: Score,
    /// Best plan found.
    pub path: Path,
    /// Number of candidates that were run.
    pub candidates: u32,
    /// Number of candidates that were better than all before.
    pub improvements: u32,
    /// Class-weighted seconds of violation if every volume had its best tier to itself: optimistic. `None` if it was not
    /// computed.
    pub solo: Option<f64>,
}

/// Searches from the given paths, at least one, each with its score and the class-weighted violation by volume; `run` runs a
/// candidate. All paths must have equal lengths.
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
        // No violation and no moves: no improvement is possible.
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

/// Returns a path with one change.
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
    // Half of the changes are for the whole run: most faults exist from the beginning.
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
            // Make one move earlier, later, or not at all.
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
    fn hindsight_search_finds_the_best_tiers_of_a_simple_model() {
        // Volume v belongs on tier v % 2, and has a violation in each epoch on another tier.
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
