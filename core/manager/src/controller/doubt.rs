//! Doubt: reasons for which the prediction of a move is not reliable enough to act on.
//!
//! This is the only check of predictions. A plan and its commands, `why`, the trial, approvals by a mode and approvals of whole plans
//! apply it. An operator overrides it with the position of the move. It is made once per plan, from the facts of the plan, for moves
//! for latency on hosts of virtual machines: their devices are described by presets, and a move cannot be taken back without a copy.

use model::{Effect, Facts, Goal, Move, Plan};
use units::DeviceId;

use super::Controller;
use super::host::{CurrentPlan, Host};
use super::outcomes::micros;
use crate::wire::WindowReport;

/// Requests in a monitor epoch from which a volume measures its device.
const REQUESTS_MIN: u64 = 20;

/// Knowledge about the volumes and devices of a host, by their ids in the facts.
pub(super) struct HostKnowledge<'a> {
    /// Returns true if the volume is the disk of a virtual machine.
    pub(super) of_machine: &'a dyn Fn(&str) -> bool,
    /// Returns true if the latencies of the device were measured.
    pub(super) calibrated: &'a dyn Fn(DeviceId) -> bool,
}

/// Predicted latency of a move: before, after, and its upper bound, microseconds.
struct PredictedLatency {
    before_us: f64,
    after_us: f64,
    high_us: f64,
}

fn predicted(effect: &Effect) -> Option<PredictedLatency> {
    let before_us = effect.latency_before_us.filter(|us| *us > 0.0)?;
    let after_us = effect.latency_after_us.filter(|us| *us > 0.0)?;
    let high_us = effect.latency_after_range_us.map_or(after_us, |r| r.1);
    Some(PredictedLatency {
        before_us,
        after_us,
        high_us,
    })
}

/// Returns the reason for which each move of a plan is doubtful, in the order of the plan.
pub(super) fn doubts(facts: &Facts, plan: &Plan, known: &HostKnowledge<'_>) -> Vec<Option<String>> {
    let moves = plan.moves();
    let mut doubts: Vec<Option<String>> = moves.iter().map(|m| doubt(facts, m, known)).collect();
    if doubts.iter().all(Option::is_none) {
        return doubts;
    }
    // Each pass settles at least one more move, or is the last.
    while let Some((i, why)) = follows(facts, &moves, &doubts) {
        doubts[i] = Some(why);
    }
    doubts
}

/// Returns a move that is doubtful because of other moves: it only makes room for them, or needs the room that one of them makes.
fn follows(facts: &Facts, moves: &[&Move], doubts: &[Option<String>]) -> Option<(usize, String)> {
    let name = |m: &Move| &facts.volumes[m.volume.index()].name;
    let trusted = (0..moves.len()).filter(|i| doubts[*i].is_none());
    let mut found = trusted.filter_map(|i| {
        let before = |j: &&u32| doubts.get(**j as usize).is_some_and(Option::is_some);
        if let Some(j) = moves[i].after.iter().find(before) {
            let other = name(moves[*j as usize]);
            return Some((
                i,
                format!("it needs the room of {other}, whose move is doubtful"),
            ));
        }
        let terms = &moves[i].terms;
        let gains = predicted(&terms.effect).is_some_and(|p| p.after_us < p.before_us);
        let needing = || (0..moves.len()).filter(|j| moves[*j].after.contains(&(i as u32)));
        let first = needing()
            .next()
            .filter(|_| !gains && terms.goal == Goal::Latency)?;
        let all = needing().all(|j| doubts[j].is_some());
        all.then(|| {
            let other = name(moves[first]);
            (
                i,
                format!("it makes room for {other}, whose move is doubtful"),
            )
        })
    });
    found.next()
}

fn doubt(facts: &Facts, m: &Move, known: &HostKnowledge<'_>) -> Option<String> {
    let moving = &facts.volumes[m.volume.index()];
    if m.terms.goal != Goal::Latency || !(known.of_machine)(&moving.name) {
        return None;
    }
    let PredictedLatency {
        before_us,
        after_us,
        high_us,
    } = predicted(&m.terms.effect)?;
    let device = facts.topology.device(m.to);
    let tier = &facts.topology.tier(device.tier).name;
    let there = facts.volumes.iter().filter(|v| v.device == m.to);
    let measured = there.filter(|v| v.name != moving.name).filter_map(|v| {
        let measured = v.measured.filter(|m| m.ios() >= REQUESTS_MIN)?;
        Some((v, measured.latency_mean_us()?))
    });
    let fastest = measured.min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((v, us)) = fastest.filter(|(_, us)| *us > high_us) {
        return Some(format!(
            "{} is already on {tier} and has {} there, above the predicted maximum of {}",
            v.name,
            micros(us),
            micros(high_us)
        ));
    }
    // A move that relieves others promises nothing for its own volume.
    if after_us < before_us && high_us >= before_us {
        return Some(format!(
            "its latency of {} may not improve: {} are predicted, with an upper bound of {}",
            micros(before_us),
            micros(after_us),
            micros(high_us)
        ));
    }
    if fastest.is_none() && !(known.calibrated)(m.to) {
        return Some(format!(
            "nothing was measured on {}: no volume there had requests, and its latencies are those of a preset; probe the device, or set read_latency and write_latency of tier {tier} as measured",
            device.name
        ));
    }
    None
}

impl CurrentPlan {
    /// Returns the reason for which the move at a position is doubtful.
    pub(super) fn doubt(&self, position: u32) -> Option<&str> {
        self.doubts.get(position as usize)?.as_deref()
    }

    /// Returns the reasons for which moves of a volume are doubtful.
    pub(super) fn doubts_about(&self, volume: &str) -> impl Iterator<Item = &str> {
        let moves = self.plan.moves().into_iter().zip(&self.doubts);
        let own = moves.filter(move |(m, _)| self.volumes[m.volume.index()] == volume);
        own.filter_map(|(_, doubt)| doubt.as_deref())
    }
}

impl Controller {
    /// Returns the reasons for which the moves of a new plan for a host are doubtful; an empty list for a host without virtual machines.
    pub(super) fn doubts_of(&self, host: &Host, facts: &Facts, plan: &Plan) -> Vec<Option<String>> {
        let of_machines = |r: &&WindowReport| r.volumes.iter().any(|v| v.by_hand.is_some());
        let Some(report) = host.report().filter(of_machines) else {
            return vec![];
        };
        let volume = |name: &str| report.volumes.iter().find(|v| v.name == name);
        let device = |d: DeviceId| {
            let name = &facts.topology.device(d).name;
            report.devices.iter().find(|found| found.name == *name)
        };
        let known = HostKnowledge {
            of_machine: &|name| volume(name).is_some_and(|v| v.by_hand.is_some()),
            calibrated: &|d| device(d).is_some_and(|d| self.settings.calibrated(d)),
        };
        doubts(facts, plan, &known)
    }

    /// Returns the reason for which the prediction of a move of the current plan is not acted upon: predictions have failed, or this one
    /// is doubtful.
    pub(super) fn distrust(&self, host: &Host, job: u32, goal: Goal) -> Option<String> {
        let broken = self.trust.broken().filter(|_| goal == Goal::Latency);
        broken.or_else(|| {
            let current = host.current.as_ref()?;
            let position = job.checked_sub(current.first_job)?;
            let why = current.doubt(position)?;
            Some(format!("its prediction is doubtful: {why}"))
        })
    }
}

#[cfg(test)]
mod tests;
