//! Plans with their reasons, and why a volume is where it is.

use executor::{JobId, JobState};
use model::Outcome;

use super::Controller;
use super::host::{Current, Host};
use crate::planned::{self, Names, option_view};
use crate::view::{ExtentsWhyView, MoveState, PlanView, WhyNotView, WhyView};
use crate::wire::{VolumeWindow, WindowReport, filled};

impl Controller {
    pub(super) fn plan_view(&self, host: &Host, current: &Current) -> PlanView {
        let names = Names {
            volume: &|v| current.volumes[v.index()].clone(),
            device: &|d| current.devices[d.index()].clone(),
            tier: &|d| current.tiers[d.index()].clone(),
        };
        let view = planned::view(&host.name, &current.plan, &current.report, &names, |i| {
            let job = host.executor.get(JobId(current.first_job + i as u32));
            let state = match job.map(|j| &j.state) {
                None => MoveState::Ended {
                    why: "it ended some time ago".into(),
                },
                Some(JobState::Proposed)
                    if job.is_some_and(|j| host.kept.missing.contains(&j.id.0)) =>
                {
                    MoveState::Approved
                }
                Some(JobState::Proposed) => MoveState::Proposed {
                    why: job
                        .and_then(|j| self.waits_for(host, j))
                        .unwrap_or_else(|| "it is about to be approved".into()),
                },
                Some(JobState::Waiting) => MoveState::Approved,
                Some(JobState::Active) => MoveState::Running,
                Some(JobState::Ended { end, .. }) => match end.why() {
                    None => MoveState::Done,
                    Some(why) => MoveState::Ended { why },
                },
            };
            (job.map(|j| j.id.0), state)
        });
        match host.report() {
            Some(report) => with_commands(view, report),
            None => view,
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
            _ if let Some(bound) = v.bound.as_ref().filter(|_| v.stays()) => {
                format!("it stays where it is, whatever is planned: {}", bound.why)
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
            notes: row.map(|r| r.notes.clone()).unwrap_or_default(),
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
            responses: self.responses_about(&host.name, &v.name),
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

/// A plan with what a person would type for its moves.
fn with_commands(mut view: PlanView, report: &WindowReport) -> PlanView {
    for m in &mut view.moves {
        let Some(v) = report.volumes.iter().find(|v| v.name == m.volume) else {
            continue;
        };
        m.by_hand = v
            .bound
            .as_ref()
            .filter(|b| b.by_hand)
            .map(|b| b.why.clone());
        let place = report.devices.iter().find(|d| d.name == m.to);
        let place = place.and_then(|d| d.place.as_ref());
        let place = place.unwrap_or(&m.to);
        let command = v.command.as_ref();
        m.command = command.map(|command| filled(command, place, &m.to, &m.to_tier));
    }
    view
}
