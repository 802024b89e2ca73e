//! Replay of a run's moves, complete or without one move: shows the effect of a single move.
//!
//! The kept moves are ordered at their original times, whatever the missing move would have changed. A strategy with free
//! decisions would react to the missing move, and the rest of the run would depend on chance.

use model::{ExtentRanges, Goal, JobStatus, Reason};
use planner::{ConfigError, Context, Draft, Granularity, Strategy, Wish};
use serde::{Deserialize, Serialize};
use sim::{Model, MoveRecord, RunResult};
use units::{DeviceId, VolumeId};

use crate::judge::ordered;

/// Ratio of a volume's mean latency without a move to that with the move, below which the move harms the volume.
const HARMED_BELOW: f64 = 0.9;

/// Move to replay.
#[derive(Debug, Clone)]
struct ReplayMove {
    /// Migration epoch whose plan has it, from 1.
    epoch: u64,
    volume: String,
    from: DeviceId,
    to: DeviceId,
    ranges: Option<ExtentRanges>,
}

/// Started moves of a run, in the order of their plans.
#[derive(Debug, Clone)]
pub struct Moves {
    all: Vec<ReplayMove>,
    /// Moves that may be left out, by position: completed moves that a strategy decided.
    open: Vec<(usize, MoveRecord)>,
    migration_ns: u64,
}

impl Moves {
    /// Takes the moves of a run. Remedies are left out, because violations cause them again.
    pub fn of(model: &Model, run: &RunResult) -> Self {
        let devices = &model.topology.devices;
        let named = |name: &str| {
            let found = devices.iter().position(|d| d.name == name);
            DeviceId::from_index(found.expect("a run's moves are between its devices"))
        };
        let epoch_s = model.policy.epochs.migration.as_secs_f64();
        let (mut all, mut open) = (vec![], vec![]);
        let started = |m: &&MoveRecord| m.started_s.is_some() && !m.is_remedy;
        for m in run.move_log.iter().filter(started) {
            if m.state == JobStatus::Done && !ordered(model, m) {
                open.push((all.len(), m.clone()));
            }
            all.push(ReplayMove {
                epoch: (m.planned_s / epoch_s).round() as u64,
                volume: m.volume.clone(),
                from: named(&m.devices.0),
                to: named(&m.devices.1),
                ranges: m.ranges.clone(),
            });
        }
        Self {
            all,
            open,
            migration_ns: model.policy.epochs.migration.0.max(1),
        }
    }

    /// Number of moves that may be left out.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns true if no move may be left out.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the record of a move that may be left out, by its number.
    pub fn record(&self, number: usize) -> &MoveRecord {
        &self.open[number].1
    }

    /// Returns a strategy that replays all moves except one that may be left out.
    pub fn replay(&self, without: Option<usize>) -> Replay {
        let without = without.map(|i| self.open[i].0);
        let kept = self.all.iter().enumerate();
        let kept = kept.filter(|(i, _)| Some(*i) != without);
        Replay {
            moves: kept.map(|(_, m)| m.clone()).collect(),
            migration_ns: self.migration_ns,
        }
    }
}

/// Strategy that replays [`Moves`]. Not in the registry.
pub struct Replay {
    moves: Vec<ReplayMove>,
    migration_ns: u64,
}

impl Strategy for Replay {
    type Config = ();
    type State = ();
    const NAME: &'static str = "replay";
    const SUMMARY: &'static str = "plays the moves of another run";
    const GRANULARITY: Granularity = Granularity::Extent;

    /// Creates a strategy without moves.
    fn new((): ()) -> Result<Self, ConfigError> {
        Ok(Self {
            moves: vec![],
            migration_ns: 1,
        })
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        let facts = context.facts;
        if !facts.placement_due {
            return;
        }
        let volumes = 0..facts.volumes.len();
        draft.wishes = volumes
            .map(|v| Wish::stay(context, VolumeId::from_index(v)))
            .collect();
        let epoch = facts.at.0 / self.migration_ns;
        let due = self.moves.iter().filter(|m| m.epoch == epoch);
        for (rank, m) in due.enumerate() {
            let Some(v) = facts.volumes.iter().position(|v| v.name == m.volume) else {
                continue;
            };
            let wish = &mut draft.wishes[v];
            wish.tier = facts.topology.tier_of(m.to);
            wish.device = Some(m.to);
            if m.ranges.is_some() {
                wish.here = m.from;
                wish.extents.clone_from(&m.ranges);
            }
            wish.goal = Goal::Latency;
            wish.reason = Reason::new("replay", "made by the run that is played again");
            // In the original order, whatever their size; no move needs a beneficiary.
            wish.value = (1e5 - rank as f64) * facts.volumes[v].taken().as_gib_f64();
            wish.relieves = true;
        }
    }
}

/// Effect of the absence of one move on the volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveTrial {
    /// The volume that gains most without the move, by name.
    pub volume: Option<String>,
    /// Mean latency of that volume without the move, divided by that with the move.
    pub mean_ratio: f64,
    /// True if the move harms the volume: its mean latency is more than a tenth lower without the move.
    pub harms: bool,
}

impl MoveTrial {
    /// Compares mean latencies by volume with and without the move ([`crate::means_us`]).
    pub fn of(model: &Model, with: &[Option<f64>], without: &[Option<f64>]) -> Self {
        let ratio = |(v, (with, without)): (usize, (&Option<f64>, &Option<f64>))| {
            Some((v, (*without)? / (*with)?.max(1e-9)))
        };
        let pairs = with.iter().zip(without).enumerate();
        let least = pairs.filter_map(ratio).min_by(|a, b| a.1.total_cmp(&b.1));
        let mean_ratio = least.map_or(1.0, |l| l.1);
        Self {
            volume: least.map(|(v, _)| model.volumes[v].name.clone()),
            mean_ratio,
            harms: mean_ratio < HARMED_BELOW,
        }
    }
}
