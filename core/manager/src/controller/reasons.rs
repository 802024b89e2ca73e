//! Views of plans with their reasons, and the reasons for the place of a volume.

use executor::{JobId, JobState};
use model::{Outcome, VolumeReport};
use thiserror::Error;

use super::Controller;
use super::host::{CurrentPlan, Host};
use crate::planned::{self, Names, option_view};
use crate::view::{ExtentsWhyView, MoveState, PlanView, PlannedMove, WhyNotView, WhyView};
use crate::wire::{HandMove, VolumeWindow, WindowReport, filled};

impl Controller {
    pub(super) fn plan_view(&self, host: &Host, current: &CurrentPlan) -> PlanView {
        let names = Names {
            volume: &|v| current.volumes[v.index()].clone(),
            device: &|d| current.devices[d.index()].clone(),
            tier: &|d| current.tiers[d.index()].clone(),
        };
        let mut view = planned::view(&host.name, &current.plan, &current.report, &names, |i| {
            let job = host.executor.get(JobId(current.first_job + i as u32));
            let state = match job.map(|j| &j.state) {
                None => MoveState::Ended {
                    why: "ended earlier".into(),
                },
                Some(JobState::Proposed)
                    if job.is_some_and(|j| host.kept.missing.contains(&j.id.0)) =>
                {
                    MoveState::Approved
                }
                Some(JobState::Proposed) => MoveState::Proposed {
                    why: job
                        .and_then(|j| self.waits_for(host, j))
                        .unwrap_or_else(|| "approval is pending".into()),
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
        for m in &mut view.moves {
            m.doubt = current.doubt(m.position).map(Into::into);
        }
        match host.report() {
            Some(report) => self.with_commands(view, host, report),
            None => view,
        }
    }

    pub(super) fn why(&self, host: &Host, v: &VolumeWindow) -> WhyView {
        let current = host.current.as_ref();
        let row = current.and_then(|c| c.report.volumes.iter().find(|r| r.volume == v.name));
        let outcome = match row.map(|r| &r.outcome) {
            _ if let Some(bound) = v.bound.as_ref().filter(|_| v.stays()) => {
                format!("cannot be moved: {}", bound.why)
            }
            None => "no plan has considered the volume yet".into(),
            Some(Outcome::Stay) if row.is_some_and(|r| !r.extents.is_empty()) => {
                "its extents are placed individually".into()
            }
            Some(Outcome::Stay) => "stays".into(),
            Some(Outcome::Move { to, reason, .. }) => {
                let by_hand = if v.bound.is_some() { " by hand" } else { "" };
                format!("moves to {to}{by_hand}: {reason}")
            }
            Some(Outcome::Held { wanted, by }) => {
                format!("should be on {wanted} but stays: {by}")
            }
        };
        let options = |r: &VolumeReport| r.options.iter().map(|o| option_view(r, o)).collect();
        WhyView {
            volume: self.volume_view(host, v),
            generation: current.map(|c| c.plan.generation),
            at_ns: current.map(|c| c.plan.at.0),
            outcome,
            reason: row.and_then(|r| match &r.outcome {
                Outcome::Move { why, .. } => why.clone(),
                Outcome::Stay | Outcome::Held { .. } => None,
            }),
            options: row.map(options).unwrap_or_default(),
            evidence: row.map(|r| r.evidence.clone()).unwrap_or_default(),
            notes: self.notes(host, v, row),
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

    /// Notes of the strategy, and moves of the volume that have failed, whether or not one is planned now.
    fn notes(&self, host: &Host, v: &VolumeWindow, row: Option<&VolumeReport>) -> Vec<String> {
        let failed = host.kept.failures.get(&v.name).into_iter().flatten();
        let failed = failed.map(|(device, failure)| failure.words(&v.name, device, self.now.at));
        let of_strategy = row.map(|r| r.notes.clone()).unwrap_or_default();
        let doubts = host.current.iter().flat_map(|c| c.doubts_about(&v.name));
        let doubts = doubts.map(|why| format!("the prediction of its move is doubtful: {why}"));
        of_strategy
            .into_iter()
            .chain(doubts)
            .chain(failed)
            .collect()
    }

    pub(super) fn why_not(&self, host: &Host, v: &VolumeWindow, tier: &str) -> WhyNotView {
        let why = self.why(host, v);
        let option = why.options.iter().find(|o| o.tier == tier);
        let here = why.volume.tier.clone();
        let row = host
            .current
            .as_ref()
            .and_then(|c| c.report.volumes.iter().find(|r| r.volume == v.name));
        let chosen = row.map(VolumeReport::chosen_tier);
        let text = match option {
            _ if here == tier => format!("the volume is already on {tier}"),
            Some(_) if chosen == Some(tier) => {
                let generation = why.generation.unwrap_or_default();
                format!(
                    "plan {generation} moves the volume there; `terrace plan` shows the state of the move"
                )
            }
            None => why.outcome.clone(),
            Some(option) => option.verdict.clone(),
        };
        WhyNotView {
            volume: v.name.clone(),
            tier: tier.into(),
            here,
            generation: why.generation,
            why: text,
        }
    }

    /// Adds the commands for moves by hand to a plan.
    fn with_commands(&self, mut view: PlanView, host: &Host, report: &WindowReport) -> PlanView {
        for m in &mut view.moves {
            let Some(v) = report.volumes.iter().find(|v| v.name == m.volume) else {
                m.no_command = Some("its host does not report the volume now".into());
                continue;
            };
            let bound = v.bound.as_ref().filter(|b| b.by_hand);
            m.by_hand = bound.map(|b| b.why.clone());
            let Some(by_hand) = &v.by_hand else {
                continue;
            };
            let doubt = m.job.and_then(|job| self.distrust(host, job, m.goal));
            let command = match doubt {
                Some(why) => Err(NoCommand::Reason(why)),
                None => command(m, v, by_hand, report),
            };
            match command {
                Ok(command) => m.command = Some(command),
                Err(why) => m.no_command = Some(why.to_string()),
            }
        }
        view
    }
}

/// Reason for which no command is printed for a move by hand.
#[derive(Debug, Error)]
enum NoCommand {
    /// Reason of the agent, or doubt about the prediction of the move.
    #[error("{0}")]
    Reason(String),
    #[error("the volume is already being moved")]
    Moving,
    #[error("{0} is unreachable")]
    Unreachable(String),
    /// The agent reports no command for this kind of storage.
    #[error(
        "no command creates a volume on {0} for this disk: create one of the disk's size, and copy to it with `virsh blockcopy --xml`"
    )]
    Storage(String),
    #[error("{0} is not a directory: let the agent make this move")]
    NotDirectory(String),
    #[error("{device}: {free} bytes free, {needed} bytes needed")]
    Space {
        device: String,
        free: u64,
        needed: u64,
    },
    #[error("the name of the target contains control characters")]
    ControlCharacters,
}

/// Returns the command for a move by hand.
fn command(
    m: &PlannedMove,
    v: &VolumeWindow,
    by_hand: &HandMove,
    report: &WindowReport,
) -> Result<String, NoCommand> {
    let (text, needed, storages) = match by_hand {
        HandMove::None { why } => return Err(NoCommand::Reason(why.clone())),
        HandMove::Command {
            text,
            needed_bytes,
            storages,
        } => (text, *needed_bytes, storages),
    };
    if v.moving.is_some() {
        return Err(NoCommand::Moving);
    }
    let device = report.devices.iter().find(|d| d.name == m.to);
    let Some(device) = device.filter(|d| d.connected) else {
        return Err(NoCommand::Unreachable(m.to.clone()));
    };
    let place = device.place.as_ref().unwrap_or(&m.to);
    let has_place = text.contains("{place}");
    let (text, place, needed) = match storage_of(place) {
        Some((kind, name)) if has_place => {
            let of_kind = storages.iter().find(|s| s.storage == kind);
            let found = of_kind.ok_or_else(|| NoCommand::Storage(place.clone()))?;
            (&found.text, name, found.needed_bytes)
        }
        // Other texts need the name of a storage, as those of Proxmox VE do.
        _ if text.contains("{place}/") && !place.starts_with('/') => {
            return Err(NoCommand::NotDirectory(place.clone()));
        }
        _ => (text, &**place, needed),
    };
    let free = device.size_bytes.saturating_sub(device.used_bytes);
    if has_place && free < needed {
        let device = m.to.clone();
        return Err(NoCommand::Space {
            device,
            free,
            needed,
        });
    }
    if [place, &m.to, &m.to_tier]
        .iter()
        .any(|w| w.contains(char::is_control))
    {
        return Err(NoCommand::ControlCharacters);
    }
    Ok(filled(text, place, &m.to, &m.to_tier))
}

/// Kind and name of a place that is storage without files, as [`StorageCommand`] has them.
///
/// [`StorageCommand`]: crate::wire::StorageCommand
fn storage_of(place: &str) -> Option<(&str, &str)> {
    let (kind, name) = place.split_once(':')?;
    match kind {
        "lvm" if name.contains('/') => Some(("thin", name)),
        "lvm" | "zfs" | "rbd" | "iscsi" => Some((kind, name)),
        _ => None,
    }
}
