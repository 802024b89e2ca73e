//! AutoTiering (paper 0: Yang et al., IPCCC 2017): whole volumes over flash tiers by sensitivity to injected latency.
//!
//! ```text
//!  every monitor epoch:    calibration windows ─▶ line y = m·x + b ─▶ capacity matrices P, B, S per tier
//!                          ─▶ orthogonal match with the tier's specialty ─▶ aged score − migration cost
//!  every migration epoch:  literal: for each tier, high end first, volumes in order of score, while they fit
//!                          corrected: volumes in order of what they lose without their best tier
//! ```
//!
//! Two forms. *Literal* follows the paper's text and listings where they can be followed at all. *Corrected* mends what
//! is wrong or unsaid there; each correction is a switch of its own in [`AutoTieringConfig`], so that its effect can be
//! measured. The list of them, with the reason for each, is on this strategy's page in the documentation.
//!
//! When not to use it: on loads that do not react to latency (open-loop arrivals, replayed timestamps) every line has
//! slope 1 and the calibration is noise; use a strategy that looks at rates. And do not inject into volumes whose
//! objective leaves no room for the injected latency.

mod calibrate;
mod config;
mod passive;
mod predict;
mod score;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::{Effect, Measured, Reason, Rejection, TierOption, Verdict};
use serde::{Deserialize, Serialize};
use units::{Nanos, TierId, VolumeId};

use crate::ledger::Demand;
use crate::{ConfigError, Context, Draft, Ledger, Strategy, Wish};

pub use config::{AutoTieringConfig, Form};

use calibrate::{Origin, Sensitivity};
use config::{Assignment, Directions, Scope, Switches};
use score::Scored;

/// The strategy. See the module's page.
pub struct AutoTiering {
    config: AutoTieringConfig,
    switches: Switches,
}

/// What it remembers, by volume name: ids are only good for one inventory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AutoTieringState {
    volumes: BTreeMap<String, VolumeState>,
}

/// What it remembers of one volume.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct VolumeState {
    /// Result of the last complete calibration session.
    pub(crate) sensitivity: Option<Sensitivity>,
    /// Windows of the session under way.
    pub(crate) windows: Vec<model::CalibrationWindow>,
    /// When the last session was asked for.
    pub(crate) asked: Option<Nanos>,
    /// Epochs that the passive estimate rests on.
    #[serde(default, skip_serializing_if = "passive::PassiveHistory::is_empty")]
    pub(crate) passive: passive::PassiveHistory,
    /// Score history by tier name.
    pub(crate) history: BTreeMap<String, f64>,
}

impl Strategy for AutoTiering {
    type Config = AutoTieringConfig;
    type State = AutoTieringState;
    const NAME: &'static str = "autotiering";
    const SUMMARY: &'static str = "latency-injection calibration, tier specialties, aged score minus migration cost (paper 0)";

    fn new(config: AutoTieringConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let switches = config.switches();
        Ok(Self { config, switches })
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &AutoTieringState,
        draft: &mut Draft,
    ) -> AutoTieringState {
        let facts = context.facts;
        let mut next = AutoTieringState::default();
        let slowness = passive::Slowness::of(facts);
        for (i, v) in facts.volumes.iter().enumerate() {
            let id = VolumeId::from_index(i);
            let mut own = state.volumes.get(&v.name).cloned().unwrap_or_default();
            calibrate::absorb(&self.config, &self.switches, facts, v, &mut own);
            passive::absorb(
                &self.switches,
                facts,
                context.policy,
                &slowness,
                id,
                &mut own,
            );
            next.volumes.insert(v.name.clone(), own);
        }
        draft.calibrations = calibrate::sessions(&self.config, &self.switches, context, &mut next);
        let scored: Vec<Option<Vec<Scored>>> = facts
            .volumes
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let own = next.volumes.get_mut(&v.name).expect("inserted above");
                v.measured
                    .map(|m| self.score_volume(context, VolumeId::from_index(i), &m, own))
            })
            .collect();
        if facts.placement_due {
            draft.wishes = self.assign(context, &scored, &next);
        }
        next
    }
}

impl AutoTiering {
    fn score_volume(
        &self,
        context: &Context<'_>,
        volume: VolumeId,
        measured: &Measured,
        own: &mut VolumeState,
    ) -> Vec<Scored> {
        let tiers = context.facts.topology.tier_ids();
        tiers
            .map(|tier| {
                score::score(
                    &self.config,
                    &self.switches,
                    context,
                    volume,
                    tier,
                    measured,
                    own,
                )
            })
            .collect()
    }

    fn assign(
        &self,
        context: &Context<'_>,
        scored: &[Option<Vec<Scored>>],
        state: &AutoTieringState,
    ) -> Vec<Wish> {
        let facts = context.facts;
        let mut ledger = Ledger::new(context);
        let mut wishes: Vec<Wish> = (0..scored.len())
            .map(|i| Wish::stay(context, VolumeId::from_index(i)))
            .collect();
        for (wish, scores) in wishes.iter_mut().zip(scored) {
            describe(
                facts,
                wish,
                scores.as_deref(),
                state,
                self.switches.directions,
            );
            if scores.is_none() {
                // Unknown is not idle: it keeps its place and its space before anybody else is placed.
                let space = facts.volumes[wish.volume.index()].size;
                let demand = Demand::space_only(space);
                ledger.assign(wish.volume, wish.tier, &demand);
            }
        }
        match self.switches.assignment {
            Assignment::TierMajor => self.assign_by_tier(facts, scored, &mut ledger, &mut wishes),
            Assignment::Regret => self.assign_by_regret(facts, scored, &mut ledger, &mut wishes),
        }
        // Leftovers keep their place (the paper is silent; Eq. 2 wants every volume somewhere).
        wishes
    }

    /// Paper 0's triggerMigration (Alg. 2 l. 19–25), with the reset that it leaves out.
    fn assign_by_tier(
        &self,
        facts: &model::Facts,
        scored: &[Option<Vec<Scored>>],
        ledger: &mut Ledger<'_>,
        wishes: &mut [Wish],
    ) {
        for tier in facts.topology.tier_ids() {
            let mut order: Vec<(i64, VolumeId)> = measured(scored)
                .filter(|(v, _)| ledger.assigned(*v).is_none())
                .map(|(v, s)| (quantized(s[tier.index()].score), v))
                .collect();
            order.sort_by_key(|(score, v)| (std::cmp::Reverse(*score), *v));
            for (rank, (_, volume)) in order.into_iter().enumerate() {
                let scores = scored[volume.index()].as_ref().expect("filtered");
                match self.admits(ledger, wishes, volume, tier, scores) {
                    Ok(()) => {
                        ledger.assign(volume, tier, &scores[tier.index()].demand);
                        self.wish_for(
                            facts,
                            &mut wishes[volume.index()],
                            scores,
                            tier,
                            rank as u32 + 1,
                        );
                    }
                    Err(by) => {
                        wishes[volume.index()].options[tier.index()].verdict =
                            Verdict::Rejected { by }
                    }
                }
            }
        }
    }

    /// Places, again and again, the volume with the most to lose: the difference between its best and its second-best
    /// tier among those that still have room for it.
    fn assign_by_regret(
        &self,
        facts: &model::Facts,
        scored: &[Option<Vec<Scored>>],
        ledger: &mut Ledger<'_>,
        wishes: &mut [Wish],
    ) {
        let mut open: Vec<VolumeId> = measured(scored).map(|(v, _)| v).collect();
        let mut rank = 0;
        while !open.is_empty() {
            let mut chosen: Option<(i64, i64, VolumeId, TierId)> = None;
            open.retain(|volume| {
                let scores = scored[volume.index()].as_ref().expect("filtered");
                let here = wishes[volume.index()].tier;
                let mut best: Option<(i64, TierId)> = None;
                let mut second = i64::MIN / 4;
                for tier in facts.topology.tier_ids() {
                    match self.admits(ledger, wishes, *volume, tier, scores) {
                        Err(by) => {
                            wishes[volume.index()].options[tier.index()].verdict =
                                Verdict::Rejected { by }
                        }
                        Ok(()) => {
                            let score = quantized(scores[tier.index()].score);
                            match best {
                                // Of two like tiers the one where it is: a move needs a reason.
                                Some((most, _))
                                    if score < most || (score == most && tier != here) =>
                                {
                                    second = second.max(score)
                                }
                                _ => {
                                    second = best.map_or(second, |b| b.0.max(second));
                                    best = Some((score, tier));
                                }
                            }
                        }
                    }
                }
                // A volume with nowhere to go keeps its place and is out of the race.
                let Some((score, tier)) = best else {
                    return false;
                };
                let candidate = (score - second, score, *volume, tier);
                if chosen.is_none_or(|c| (candidate.0, candidate.1, c.2) > (c.0, c.1, candidate.2))
                {
                    chosen = Some(candidate);
                }
                true
            });
            let Some((_, _, volume, tier)) = chosen else {
                break;
            };
            rank += 1;
            let scores = scored[volume.index()].as_ref().expect("filtered");
            ledger.assign(volume, tier, &scores[tier.index()].demand);
            self.wish_for(facts, &mut wishes[volume.index()], scores, tier, rank);
            open.retain(|v| *v != volume);
        }
    }

    fn admits(
        &self,
        ledger: &Ledger<'_>,
        wishes: &[Wish],
        volume: VolumeId,
        tier: TierId,
        scores: &[Scored],
    ) -> Result<(), Rejection> {
        let option = &scores[tier.index()];
        match &option.infeasible {
            Some(by) => Err(by.clone()),
            None if self.switches.scope == Scope::OwnTier
                && tier != wishes[volume.index()].tier =>
            {
                Err(Rejection::NotConsidered)
            }
            None => ledger.admits(volume, tier, &option.demand),
        }
    }

    fn wish_for(
        &self,
        facts: &model::Facts,
        wish: &mut Wish,
        scores: &[Scored],
        tier: TierId,
        rank: u32,
    ) {
        let here = wish.tier;
        if tier == here {
            return;
        }
        let (from, to) = (&scores[here.index()], &scores[tier.index()]);
        let measured = facts.volumes[wish.volume.index()]
            .measured
            .expect("scored volumes are measured");
        wish.tier = tier;
        let packed = self.switches.assignment == Assignment::TierMajor && tier < here;
        wish.reason = if packed || to.score > from.score {
            Reason::RankedByScore {
                rank,
                score: to.score,
                score_here: from.score,
            }
        } else {
            Reason::Displaced {
                score: to.score,
                score_here: from.score,
            }
        };
        wish.effect = Effect {
            latency_before_us: measured.latency_mean_us(),
            latency_after_us: Some(to.prediction.latency_us),
            iops_before: Some(measured.iops()),
            iops_after: Some(to.prediction.iops),
        };
        wish.value = to.score - from.score;
        let devices = facts.topology.tier(tier).devices.len() as f64;
        wish.device_share = to.demand.iops / to.demand.iops_max * devices;
    }
}

/// The volumes that have scores.
fn measured(scored: &[Option<Vec<Scored>>]) -> impl Iterator<Item = (VolumeId, &Vec<Scored>)> {
    scored
        .iter()
        .enumerate()
        .filter_map(|(i, s)| Some((VolumeId::from_index(i), s.as_ref()?)))
}

/// Scores are compared in steps of 1e-9, so that rounding in the last bits cannot change an order.
fn quantized(score: f64) -> i64 {
    (score * 1e9).round() as i64
}

/// Fills in the report's part of a wish.
fn describe(
    facts: &model::Facts,
    wish: &mut Wish,
    scores: Option<&[Scored]>,
    state: &AutoTieringState,
    directions: Directions,
) {
    let v = &facts.volumes[wish.volume.index()];
    let here = wish.tier;
    wish.options = facts
        .topology
        .tier_ids()
        .map(|t| {
            let s = scores.map(|s| &s[t.index()]);
            let unknown = s.is_none() && t != here;
            TierOption {
                tier: facts.topology.tier(t).name.clone(),
                score: s.map(|s| s.score),
                predicted: s.map(|s| s.prediction),
                move_s: s.map(|s| s.move_s),
                verdict: if unknown {
                    Verdict::Rejected {
                        by: Rejection::NoMeasurement,
                    }
                } else {
                    Verdict::NotNeeded
                },
            }
        })
        .collect();
    if let Some(m) = &v.measured {
        wish.evidence.insert("iops".into(), m.iops());
        wish.evidence.insert("outstanding".into(), m.outstanding);
        if let Some(mean_us) = m.latency_mean_us() {
            wish.evidence.insert("latency_mean_us".into(), mean_us);
        }
    }
    if let Some(s) = state
        .volumes
        .get(&v.name)
        .and_then(|s| s.sensitivity.as_ref())
    {
        let mut line = |name: &str, line: &algo::Line| {
            wish.evidence.insert(format!("{name}_m"), line.slope);
            wish.evidence.insert(format!("{name}_b_us"), line.intercept);
        };
        // The lines that predictions rest on: a negative slope counts as none.
        line("sensitivity", &s.joint);
        if directions == Directions::Separate {
            s.reads.iter().for_each(|l| line("sensitivity_reads", l));
            s.writes.iter().for_each(|l| line("sensitivity_writes", l));
        }
        wish.evidence.insert("confidence".into(), s.confidence);
        let windows = match s.origin {
            Origin::Injected => "calibration_windows",
            Origin::Passive => "passive_windows",
        };
        wish.evidence.insert(windows.into(), f64::from(s.windows));
        if s.origin == Origin::Passive {
            let spread = (s.joint.sxx / f64::from(s.joint.n)).sqrt();
            wish.evidence.insert("passive_spread_us".into(), spread);
        }
    }
}
