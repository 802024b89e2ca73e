//! Plans with their reasons, and why a volume is where it is.

use std::collections::BTreeMap;

use executor::{JobId, JobState};
use model::{Outcome, Report, TierOption, Verdict, VolumeReport};

use super::Controller;
use super::host::{Current, Host};
use crate::view::{
    ExtentsWhyView, HeldMove, MoveState, OptionView, PlanState, PlanView, PlannedMove, WhyNotView,
    WhyView,
};
use crate::wire::VolumeWindow;

/// Extents that were wanted on another tier and stay.
pub(crate) fn held_extents(report: &Report) -> impl Iterator<Item = HeldMove> + '_ {
    report.volumes.iter().flat_map(|v| {
        v.extents.iter().filter_map(|e| {
            let by = e.refused.as_ref()?;
            let s = if e.extents == 1 { "" } else { "s" };
            Some(HeldMove {
                volume: v.volume.clone(),
                tier: e.from.clone(),
                wanted: e.to.clone(),
                why: format!("{} extent{s}, {}: {by}", e.extents, e.reason),
            })
        })
    })
}

/// A tier as it was weighed for a volume.
fn option_view(option: &TierOption) -> OptionView {
    OptionView {
        tier: option.tier.clone(),
        score: option.score,
        parts: option.parts,
        latency_us: option.predicted.map(|p| p.latency_us),
        iops: option.predicted.map(|p| p.iops),
        verdict: match &option.verdict {
            Verdict::Chosen => "chosen".into(),
            Verdict::NotNeeded => "possible, another one was better".into(),
            Verdict::Rejected { by } => by.to_string(),
        },
    }
}

/// Of every volume of a report the tiers whose scores have parts.
pub(crate) fn scored(report: &Report) -> BTreeMap<&str, Vec<OptionView>> {
    let of = |row: &VolumeReport| {
        let with_parts = row.options.iter().filter(|o| o.parts.is_some());
        with_parts.map(option_view).collect()
    };
    let rows = report.volumes.iter();
    rows.map(|row| (row.volume.as_str(), of(row))).collect()
}

impl Controller {
    pub(super) fn plan_view(&self, host: &Host, current: &Current) -> PlanView {
        let plan = &current.plan;
        let tier = |d: units::DeviceId| current.tiers[d.index()].clone();
        let device = |d: units::DeviceId| current.devices[d.index()].clone();
        let mut scored = scored(&current.report);
        let moves = plan.moves().into_iter().enumerate().map(|(i, m)| {
            let id = JobId(current.first_job + i as u32);
            let job = host.executor.get(id);
            let state = match job.map(|j| &j.state) {
                None => MoveState::Ended {
                    why: "it ended some time ago".into(),
                },
                Some(JobState::Proposed) => MoveState::Proposed {
                    why: job
                        .and_then(|j| self.waits_for(j))
                        .unwrap_or_else(|| "it is about to be approved".into()),
                },
                Some(JobState::Waiting) => MoveState::Approved,
                Some(JobState::Active) => MoveState::Running,
                Some(JobState::Ended { end, .. }) => match end.why() {
                    None => MoveState::Done,
                    Some(why) => MoveState::Ended { why },
                },
            };
            PlannedMove {
                position: i as u32,
                job: job.map(|j| j.id.0),
                volume: current.volumes[m.volume.index()].clone(),
                from_tier: tier(m.from),
                to_tier: tier(m.to),
                from: device(m.from),
                to: device(m.to),
                extents: m.extents.clone(),
                goal: m.terms.goal,
                reason: m.terms.reason.to_string(),
                bytes: m.terms.cost.bytes.0,
                duration_ns: m.terms.cost.duration.0,
                before_us: m.terms.effect.latency_before_us,
                after_us: m.terms.effect.latency_after_us,
                after_moves: m.after.clone(),
                scored: scored
                    .remove(current.volumes[m.volume.index()].as_str())
                    .unwrap_or_default(),
                state,
            }
        });
        let held = current
            .report
            .volumes
            .iter()
            .filter_map(|v| match &v.outcome {
                Outcome::Held { wanted, by } => Some(HeldMove {
                    volume: v.volume.clone(),
                    tier: v.tier.clone(),
                    wanted: wanted.clone(),
                    why: by.to_string(),
                }),
                _ => None,
            });
        let mut held: Vec<HeldMove> = held.collect();
        held.extend(held_extents(&current.report));
        let stays = |v: &&VolumeReport| {
            v.outcome == Outcome::Stay && v.extents.iter().all(|e| e.refused.is_some())
        };
        PlanView {
            host: host.name.clone(),
            generation: plan.generation,
            parent: plan.parent,
            at_ns: plan.at.0,
            strategy: plan.strategy.clone(),
            state: PlanState::Current,
            moves: moves.collect(),
            held,
            staying: current.report.volumes.iter().filter(stays).count() as u32,
            notes: current.report.notes.clone(),
        }
    }

    pub(super) fn why(&self, host: &Host, v: &VolumeWindow) -> WhyView {
        let current = host.current.as_ref();
        let row = current.and_then(|c| c.report.volumes.iter().find(|r| r.volume == v.name));
        let outcome = match row.map(|r| &r.outcome) {
            None => "no decision that could move data has looked at it yet".into(),
            Some(Outcome::Stay) if row.is_some_and(|r| !r.extents.is_empty()) => {
                "its extents are placed one by one".into()
            }
            Some(Outcome::Stay) => "it stays where it is".into(),
            Some(Outcome::Move { to, reason, .. }) => format!("it is to move to {to}: {reason}"),
            Some(Outcome::Held { wanted, by }) => {
                format!("it was wanted on {wanted}, and stays: {by}")
            }
        };
        let options = row.map_or(&[][..], |r| &r.options[..]);
        WhyView {
            volume: self.volume_view(host, v),
            generation: current.map(|c| c.plan.generation),
            at_ns: current.map(|c| c.plan.at.0),
            outcome,
            reason: row.and_then(|r| match &r.outcome {
                Outcome::Move { why, .. } => why.clone(),
                Outcome::Stay | Outcome::Held { .. } => None,
            }),
            options: options.iter().map(option_view).collect(),
            evidence: row.map(|r| r.evidence.clone()).unwrap_or_default(),
            extents: row
                .iter()
                .flat_map(|r| &r.extents)
                .map(|e| ExtentsWhyView {
                    from: e.from.clone(),
                    to: e.to.clone(),
                    extents: e.extents,
                    bytes: e.bytes.0,
                    requests: e.requests,
                    reason: e.reason.clone(),
                    refused: e.refused.as_ref().map(ToString::to_string),
                })
                .collect(),
            outcomes: vec![],
        }
    }

    pub(super) fn why_not(&self, host: &Host, v: &VolumeWindow, tier: &str) -> WhyNotView {
        let why = self.why(host, v);
        let option = why.options.iter().find(|o| o.tier == tier);
        let here = why.volume.tier.clone();
        let text = match option {
            _ if here == tier => format!("it is on {tier}"),
            Some(option) if option.verdict == "chosen" => {
                let generation = why.generation.unwrap_or_default();
                format!("plan {generation} moves it there: `terrace plan` says what that waits for")
            }
            None => why.outcome.clone(),
            Some(option) => match option.score {
                Some(score) => format!("{} (score {score:.4})", option.verdict),
                None => option.verdict.clone(),
            },
        };
        WhyNotView {
            volume: v.name.clone(),
            tier: tier.into(),
            here,
            generation: why.generation,
            why: text,
        }
    }
}
