//! Strategy that follows a script: the engine carries out plans made in hindsight like all others.

use std::collections::BTreeMap;

use model::{Goal, JobStatus, Reason};
use planner::{ConfigError, Context, Draft, Strategy, Wish};
use sim::{Model, RunResult};
use units::{TierId, VolumeId};

/// Tier of each volume in each migration epoch: the plan at the end of epoch `e` (from zero) is for `[volume][e]`.
pub type Path = Vec<Vec<TierId>>;

/// Strategy that follows a [`Path`]. Not in the registry, because it knows the future.
pub struct Script {
    by_volume: BTreeMap<String, Vec<TierId>>,
}

impl Script {
    /// Creates a strategy that follows this path on this model.
    pub fn of(model: &Model, path: &Path) -> Self {
        let names = model.volumes.iter().map(|v| v.name.clone());
        let by_volume = names.zip(path.iter().cloned()).collect();
        Self { by_volume }
    }
}

impl Strategy for Script {
    type Config = ();
    type State = ();
    const NAME: &'static str = "script";
    const SUMMARY: &'static str = "follows a script";

    /// Creates a strategy without moves.
    fn new((): ()) -> Result<Self, ConfigError> {
        let by_volume = BTreeMap::new();
        Ok(Self { by_volume })
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        let facts = context.facts;
        if !facts.placement_due {
            return;
        }
        let migration = context.policy.epochs.migration.0.max(1);
        let epoch = (facts.at.0 / migration).saturating_sub(1) as usize;
        for (i, v) in facts.volumes.iter().enumerate() {
            let mut wish = Wish::stay(context, VolumeId::from_index(i));
            let path = self.by_volume.get(&v.name);
            let tier = path.and_then(|p| p.get(epoch).or(p.last()));
            if let Some(tier) = tier.copied().filter(|t| *t != wish.tier) {
                wish.tier = tier;
                wish.goal = Goal::Latency;
                wish.reason = Reason::new("script", "placement of the script");
                wish.value = 1.0;
            }
            draft.wishes.push(wish);
        }
    }
}

/// Returns the path of a run: the planned tiers of its volumes by epoch, from its completed moves of whole volumes.
pub fn path_of(model: &Model, run: &RunResult, epochs: usize) -> Path {
    let tier_named = |name: &str| {
        let found = model.topology.tiers.iter().position(|t| t.name == name);
        found.map(TierId::from_index)
    };
    let migration_s = model.policy.epochs.migration.as_secs_f64();
    let of = |v: &sim::VolumeModel| {
        let begin = model.topology.tier_of(v.device);
        let done = |m: &&sim::MoveRecord| {
            let planned = m.volume == v.name && m.extents.is_none() && !m.is_remedy;
            planned && m.state == JobStatus::Done
        };
        let moves: Vec<_> = run.move_log.iter().filter(done).collect();
        let at = |e: usize| {
            let until_s = (e as f64 + 1.0) * migration_s + 1e-6;
            let last = moves.iter().rfind(|m| m.planned_s <= until_s);
            last.and_then(|m| tier_named(&m.to)).unwrap_or(begin)
        };
        (0..epochs).map(at).collect()
    };
    model.volumes.iter().map(of).collect()
}
