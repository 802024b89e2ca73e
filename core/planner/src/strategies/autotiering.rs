//! AutoTiering (paper 0: Yang et al., IPCCC 2017): whole volumes over flash tiers by sensitivity to injected latency.
//!
//! ```text
//!  every monitor epoch:    calibration windows ─▶ line y = m·x + b ─▶ capacity matrices P, B, S per tier
//!                          ─▶ orthogonal match with the tier's specialty ─▶ aged score − migration cost
//!  every migration epoch:  literal: for each tier, high end first, volumes in order of score, while they fit
//!                          corrected: the best placement by regret, prices and exchanges (crate::assign)
//! ```
//!
//! Two forms. *Literal* follows the paper's text and listings as far as possible. *Corrected* fixes errors and gaps of the
//! paper. Each correction is a separate switch in [`AutoTieringConfig`], so its effect can be measured. The documentation
//! page of this strategy has the list of corrections with reasons.
//!
//! When not to use it: on loads that do not react to latency (open-loop arrivals, replayed timestamps), every line has slope
//! 1 and the calibration is noise. Use a strategy based on request rates for these. Do not inject latency into volumes whose
//! objective leaves no room for it.

mod assignment;
mod calibrate;
mod config;
mod passive;
mod predict;
mod score;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::{Action, Epochs, MeasuredLoad, Rejection, ScoreParts, TierOption, Verdict};
use serde::{Deserialize, Serialize};
use units::{Nanos, VolumeId};

use crate::{ConfigError, Context, Draft, ScoreWeights, Strategy, Wish};

pub use config::{AutoTieringConfig, Form};

use calibrate::{Origin, Sensitivity};
use config::{Directions, Switches};
use score::TierScore;

/// Strategy AutoTiering; the module comment describes it.
pub struct AutoTiering {
    config: AutoTieringConfig,
    switches: Switches,
    objective: ScoreWeights,
}

/// State between decisions, by volume name: ids are valid for one inventory only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AutoTieringState {
    volumes: BTreeMap<String, VolumeState>,
}

/// State of one volume.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct VolumeState {
    /// Result of the last complete calibration session.
    pub(crate) sensitivity: Option<Sensitivity>,
    /// Windows of the session under way.
    pub(crate) windows: Vec<model::CalibrationWindow>,
    /// Time of the last request for a session.
    pub(crate) asked: Option<Nanos>,
    /// Epochs from which the passive estimate is made.
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
        Ok(Self {
            switches: config.switches(),
            objective: ScoreWeights::new(&config),
            config,
        })
    }

    fn suits(&self, _: &Epochs, tiers: Option<&[String]>) -> Result<(), ConfigError> {
        match tiers.and_then(|tiers| Some((self.objective.unknown_tier(tiers)?, tiers))) {
            None => Ok(()),
            Some((tier, tiers)) => Err(ConfigError::new(
                Self::NAME,
                format!("tier_weights.{tier}"),
                format!("unknown tier; known tiers: {}", tiers.join(", ")),
            )),
        }
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
        let sessions = calibrate::sessions(&self.config, &self.switches, context, &mut next);
        draft.actions = sessions.into_iter().map(Action::Calibrate).collect();
        let scored: Vec<Option<Vec<TierScore>>> = facts
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
            self.assign(context, &scored, &next, draft);
        }
        next
    }
}

impl AutoTiering {
    fn score_volume(
        &self,
        context: &Context<'_>,
        volume: VolumeId,
        measured: &MeasuredLoad,
        own: &mut VolumeState,
    ) -> Vec<TierScore> {
        let tiers = context.facts.topology.tier_ids();
        tiers
            .map(|tier| score::score(self, context, volume, tier, measured, own))
            .collect()
    }
}

/// Fills in the fields of a wish for the report.
fn describe(
    facts: &model::Facts,
    wish: &mut Wish,
    scores: Option<&[TierScore]>,
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
                parts: s.and_then(|s| s.parts).map(ScoreParts::Match),
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
        // Lines used by predictions: a negative slope counts as 0.
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
