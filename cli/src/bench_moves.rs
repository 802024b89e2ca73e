//! `terrace bench moves`: runs repeated without one of their moves, to find moves that harm a volume.

use algo::Rng;
use decisions::{MoveTrial, Moves, means_us};
use runner::jobs;
use runner::strategies::ByName;
use serde::Serialize;

use crate::bench_run::{Case, Suite, cases};

/// Name and version of the layout of [`MoveTrials`].
const MOVES_SCHEMA: &str = "terrace.bench.moves/1";

/// A move that was left out.
#[derive(Debug, Serialize)]
pub struct OmittedMove {
    pub scenario: String,
    pub seed: u64,
    /// The volume that it moves, from one tier to another.
    pub moved: String,
    pub from: String,
    pub to: String,
    /// When it was planned, seconds.
    pub planned_s: f64,
    /// Why.
    pub reason: String,
    #[serde(flatten)]
    pub trial: MoveTrial,
}

/// All of them.
#[derive(Debug, Serialize)]
pub struct MoveTrials {
    pub schema: &'static str,
    pub suite: String,
    pub strategy: String,
    pub seeds: Vec<u64>,
    /// Moves that the sample was drawn from, and its seed.
    pub moves: usize,
    pub sample_seed: u64,
    /// The sample, moves that harm most first.
    pub sample: Vec<OmittedMove>,
}

impl MoveTrials {
    /// Moves of the sample whose absence lowers the mean latency of a volume by more than a tenth.
    pub fn harmful(&self) -> usize {
        self.sample.iter().filter(|m| m.trial.harms).count()
    }
}

pub struct MovesAsked {
    pub strategy: String,
    pub source: ByName,
    pub seeds: Vec<u64>,
    pub sample: usize,
    pub sample_seed: u64,
}

/// A case with the moves of its run, and mean latencies with all of them played again.
struct ReplayedCase {
    moves: Moves,
    with: Vec<Option<f64>>,
}

fn play(case: &Case, asked: &MovesAsked) -> anyhow::Result<ReplayedCase> {
    let strategy = &asked.strategy;
    let run = case.simulate(case.strategy(&asked.source, strategy)?, strategy)?;
    let moves = Moves::of(case.model(), &run);
    // Compared with the same moves played again, so that only the missing one differs.
    let all = case.simulate(Box::new(moves.replay(None)), "replay")?;
    let with = means_us(&all);
    Ok(ReplayedCase { moves, with })
}

/// Positions of a sample without repetition, in order.
fn sample(count: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed, 0x5A3);
    let mut all: Vec<usize> = (0..count).collect();
    let taken = wanted.min(count);
    for i in 0..taken {
        let other = i + rng.below((count - i) as u64) as usize;
        all.swap(i, other);
    }
    all.truncate(taken);
    all.sort_unstable();
    all
}

/// Runs the strategy, and repeats its runs without one move each.
pub fn leave_out(suite: &Suite, asked: &MovesAsked) -> anyhow::Result<MoveTrials> {
    let cases = cases(suite, &asked.seeds)?;
    let played = jobs::with_bar("runs", &cases, |case| play(case, asked));
    let played: Vec<ReplayedCase> = played.into_iter().collect::<anyhow::Result<_>>()?;
    let of_case = |(c, p): (usize, &ReplayedCase)| (0..p.moves.len()).map(move |m| (c, m));
    let all: Vec<(usize, usize)> = played.iter().enumerate().flat_map(of_case).collect();
    let drawn = sample(all.len(), asked.sample, asked.sample_seed);
    let drawn: Vec<(usize, usize)> = drawn.into_iter().map(|i| all[i]).collect();
    let trials = jobs::with_bar("runs without one move", &drawn, |(c, m)| {
        let (case, played) = (&cases[*c], &played[*c]);
        let replay = Box::new(played.moves.replay(Some(*m)));
        let run = case.simulate(replay, "replay");
        run.map(|run| MoveTrial::of(case.model(), &played.with, &means_us(&run)))
    });
    let mut sample = vec![];
    for ((c, m), trial) in drawn.iter().zip(trials) {
        let case = &cases[*c];
        let record = played[*c].moves.record(*m);
        sample.push(OmittedMove {
            scenario: suite.scenario(case.scenario).into(),
            seed: case.seed,
            moved: record.volume.clone(),
            from: record.from.clone(),
            to: record.to.clone(),
            planned_s: record.planned_s,
            reason: record.reason.clone(),
            trial: trial?,
        });
    }
    sample.sort_by(|a, b| a.trial.mean_ratio.total_cmp(&b.trial.mean_ratio));
    Ok(MoveTrials {
        schema: MOVES_SCHEMA,
        suite: suite.name().into(),
        strategy: asked.strategy.clone(),
        seeds: asked.seeds.clone(),
        moves: all.len(),
        sample_seed: asked.sample_seed,
        sample,
    })
}

/// For a terminal.
pub fn text(trials: &MoveTrials) -> String {
    const LISTED: usize = 20;
    let harmful = trials.harmful();
    let mut text = format!(
        "{harmful} of {} moves of {} harm a volume: its mean latency is more than 10 % lower without the move\n\
         (random sample of {} moves over {}, sample seed {})\n",
        trials.sample.len(),
        trials.strategy,
        trials.moves,
        trials.suite,
        trials.sample_seed,
    );
    for m in trials.sample.iter().filter(|m| m.trial.harms).take(LISTED) {
        text += &format!(
            "{}, seed {}, {:.0} s: {} from {} to {}: mean of {} is {:.0} % lower without it\n",
            m.scenario,
            m.seed,
            m.planned_s,
            m.moved,
            m.from,
            m.to,
            m.trial.volume.as_deref().unwrap_or("no volume"),
            100.0 * (1.0 - m.trial.mean_ratio),
        );
    }
    if harmful > LISTED {
        text += &format!("{} more: use -o json\n", harmful - LISTED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_of_moves_has_no_duplicates_and_depends_on_the_seed() {
        let one = sample(1000, 800, 1);
        assert_eq!(one.len(), 800);
        assert!(one.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(one, sample(1000, 800, 1));
        assert_ne!(one, sample(1000, 800, 2));
        assert_eq!(sample(3, 800, 1), [0, 1, 2]);
        assert!(sample(0, 800, 1).is_empty());
    }
}
