//! Rules of every plan, checked in simulation and live.

use model::{Action, AffinityKind, Facts, Goal, Move, Plan, Policy};
use thiserror::Error;
use units::{Bytes, DeviceId, Nanos, VolumeId};

mod extents;

use crate::footprint::Footprint;
use crate::gates::cooldown_left;

/// Violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum LintError {
    #[error("generation {generation} does not follow {parent}")]
    Generation { generation: u64, parent: u64 },
    #[error("volume {volume} is moved twice")]
    Twice { volume: String },
    #[error("volume {volume} is moved from device {named}, but it is on {actual}")]
    WrongSource {
        volume: String,
        named: String,
        actual: String,
    },
    #[error("volume {volume} is moved to its current device")]
    NoMove { volume: String },
    #[error("volume {volume}: extents {extents} are moved, but the volume's extents are unknown")]
    UnknownExtents { volume: String, extents: String },
    #[error("volume {volume} has no extent {extent}")]
    NoExtent { volume: String, extent: u32 },
    #[error("volume {volume}: the move has no extents")]
    NoExtents { volume: String },
    #[error(
        "volume {volume}: extent {extent} is moved from device {named}, but it is on another device"
    )]
    WrongExtentSource {
        volume: String,
        extent: u32,
        named: String,
    },
    #[error("volume {volume} is {why}, but some of its extents are moved")]
    Parted { volume: String, why: String },
    #[error("volume {volume} is already moving")]
    UnderWay { volume: String },
    #[error("volume {volume}: the plan's size is {planned}, the volume's size is {actual}")]
    Size {
        volume: String,
        planned: Bytes,
        actual: Bytes,
    },
    #[error("move {position} depends on move {after}, which does not precede it in the plan")]
    Order { position: u32, after: u32 },
    #[error("device {device} would hold {would} during the plan; its capacity is {capacity}")]
    Capacity {
        device: String,
        would: Bytes,
        capacity: Bytes,
    },
    #[error("volume {volume} is pinned to tier {tier}")]
    Pinned { volume: String, tier: String },
    #[error("tier {tier} is cordoned, but volume {volume} is moved to it")]
    Cordoned { volume: String, tier: String },
    #[error("tier {tier} is being drained, but volume {volume} is moved to it")]
    Draining { volume: String, tier: String },
    #[error("volume {volume}: moves to device {device} failed, and the next attempt is not due")]
    Failed { volume: String, device: String },
    #[error("volume {volume} is in cooldown for another {}", .left.words())]
    Cooldown { volume: String, left: Nanos },
    #[error("volumes {a} and {b} must not share device {device}")]
    SharedDevice {
        a: String,
        b: String,
        device: String,
    },
    #[error("{count} moves, the budget is {budget}")]
    Moves { count: usize, budget: u32 },
    #[error("the moves copy {bytes}, the budget is {budget}")]
    BytesMoved { bytes: Bytes, budget: Bytes },
    #[error("the plan has moves outside a migration epoch")]
    NotDue,
    #[error("action {position} is a move after an action of another kind")]
    MovesFirst { position: u32 },
    #[error("volume {volume} is calibrated by latency injection, which its policy forbids")]
    Injection { volume: String },
    #[error("volume {volume}: the calibration has no steps, or another calibration is running")]
    Calibration { volume: String },
}

/// Returns all violations of rules; none for a plan that may be carried out.
pub fn lint(plan: &Plan, facts: &Facts, policy: &Policy) -> Vec<LintError> {
    let mut errors = Vec::new();
    let volume_name = |v: VolumeId| facts.volumes[v.index()].name.clone();
    let device_name = |d: DeviceId| facts.topology.device(d).name.clone();
    let tier_name = |d: DeviceId| facts.topology.tier(facts.topology.tier_of(d)).name.clone();
    if plan.parent != facts.generation || plan.generation <= plan.parent {
        errors.push(LintError::Generation {
            generation: plan.generation,
            parent: facts.generation,
        });
    }
    in_order(plan, &mut errors);
    let moves = plan.moves();
    if !moves.is_empty() && !facts.placement_due {
        errors.push(LintError::NotDue);
    }
    for (i, m) in moves.iter().enumerate() {
        let volume = volume_name(m.volume);
        let v = &facts.volumes[m.volume.index()];
        let twice = |o: &&Move| o.volume == m.volume && extents::overlap(o, m);
        if moves[..i].iter().any(twice) {
            errors.push(LintError::Twice {
                volume: volume.clone(),
            });
        }
        if let Some(ranges) = &m.extents {
            extents::check(m, ranges, v, facts, policy, &mut errors);
        } else if m.from != v.device {
            let (named, actual) = (device_name(m.from), device_name(v.device));
            errors.push(LintError::WrongSource {
                volume: volume.clone(),
                named,
                actual,
            });
        }
        let here = m.extents.as_ref().map_or(v.device, |_| m.from);
        if m.to == here {
            errors.push(LintError::NoMove {
                volume: volume.clone(),
            });
        }
        if facts.moves.iter().any(|r| r.volume == m.volume) {
            errors.push(LintError::UnderWay {
                volume: volume.clone(),
            });
        }
        if m.extents.is_none() && m.size != v.taken() {
            errors.push(LintError::Size {
                volume: volume.clone(),
                planned: m.size,
                actual: v.taken(),
            });
        }
        for after in m.after.iter().filter(|a| **a as usize >= i) {
            errors.push(LintError::Order {
                position: i as u32,
                after: *after,
            });
        }
        let to_tier = facts.topology.tier_of(m.to);
        if let Some(pin) = policy.pin_of(m.volume).filter(|p| *p != to_tier) {
            errors.push(LintError::Pinned {
                volume: volume.clone(),
                tier: facts.topology.tier(pin).name.clone(),
            });
        }
        if policy.draining.contains(&to_tier) {
            errors.push(LintError::Draining {
                volume: volume.clone(),
                tier: tier_name(m.to),
            });
        }
        if facts.barred(m.volume, m.to) {
            errors.push(LintError::Failed {
                volume: volume.clone(),
                device: device_name(m.to),
            });
        }
        let cooldown = policy.gates.cooldown;
        // Wishes for extents follow their heat, without a cooldown. A part of a volume that was wished for as such has
        // passed the gates, but cannot be distinguished here.
        let gated = m.terms.goal == Goal::Latency && m.extents.is_none();
        let left = cooldown_left(facts.at, v, cooldown).filter(|_| gated);
        if let Some(left) = left {
            errors.push(LintError::Cooldown {
                volume: volume.clone(),
                left,
            });
        }
        if policy.cordoned.contains(&to_tier) && facts.topology.tier_of(m.from) != to_tier {
            errors.push(LintError::Cordoned {
                volume,
                tier: tier_name(m.to),
            });
        }
    }
    capacity(&moves, facts, &mut errors);
    different_devices(&moves, facts, policy, &mut errors);
    if moves.len() > policy.budget.moves_per_epoch as usize {
        errors.push(LintError::Moves {
            count: moves.len(),
            budget: policy.budget.moves_per_epoch,
        });
    }
    let bytes: Bytes = moves.iter().map(|m| m.size).sum();
    if let Some(budget) = policy.budget.bytes_per_epoch.filter(|b| bytes > *b) {
        errors.push(LintError::BytesMoved { bytes, budget });
    }
    for run in plan.calibrations() {
        if !policy.may_inject(run.volume) {
            errors.push(LintError::Injection {
                volume: volume_name(run.volume),
            });
        }
        if run.steps.is_empty() || facts.volumes[run.volume.index()].calibrating {
            errors.push(LintError::Calibration {
                volume: volume_name(run.volume),
            });
        }
    }
    errors
}

/// Checks that moves come before other actions: moves refer to each other by position.
fn in_order(plan: &Plan, errors: &mut Vec<LintError>) {
    let mut others = false;
    for (position, action) in (0..).zip(&plan.actions) {
        match action {
            Action::Move(_) if others => errors.push(LintError::MovesFirst { position }),
            Action::Move(_) => {}
            Action::Calibrate(_) => others = true,
        }
    }
}

/// Checks space in the worst order of events: a move starts as soon as the moves in its `after` have ended, and no other
/// has.
fn capacity(moves: &[&Move], facts: &Facts, errors: &mut Vec<LintError>) {
    let footprint = Footprint::new(facts);
    for (d, device) in facts.topology.devices.iter().enumerate() {
        let id = DeviceId::from_index(d);
        let now = facts.devices[d].used + facts.devices[d].reserved;
        let all = moves.iter().copied().enumerate();
        let arriving: Vec<(usize, &Move)> = all.filter(|(_, m)| m.to == id).collect();
        if arriving.is_empty() {
            continue;
        }
        // All moves that need not wait start at once. Then, for each waiting move, all moves up to it, minus the space that
        // is free by then.
        let mut worst: u64 = now.0
            + arriving
                .iter()
                .filter(|(_, m)| m.after.is_empty())
                .map(|(_, m)| footprint.arriving(m).0)
                .sum::<u64>();
        for (position, m) in arriving.iter().filter(|(_, m)| !m.after.is_empty()) {
            let left: u64 = m
                .after
                .iter()
                .map(|a| moves[*a as usize])
                .map(|o| footprint.leaving(o, id).0)
                .sum();
            let came: u64 = arriving
                .iter()
                .filter(|(p, _)| p <= position)
                .map(|(_, o)| footprint.arriving(o).0)
                .sum();
            worst = worst.max((now.0 + came).saturating_sub(left));
        }
        if worst > device.spec.capacity.0 {
            let capacity = device.spec.capacity;
            errors.push(LintError::Capacity {
                device: device.name.clone(),
                would: Bytes(worst),
                capacity,
            });
        }
    }
}

/// Checks that no move brings two volumes together that must be apart. Volumes that are already together are not counted.
fn different_devices(moves: &[&Move], facts: &Facts, policy: &Policy, errors: &mut Vec<LintError>) {
    // Extents of volumes that a rule binds do not move.
    let whole = moves.iter().filter(|m| m.extents.is_none());
    let moved_to = |v: VolumeId| whole.clone().find(|m| m.volume == v).map(|m| m.to);
    // A volume that is being moved is on both of its devices until the move has succeeded.
    let at = |v: VolumeId| match moved_to(v) {
        Some(to) => [to, to],
        None => {
            let here = facts.volumes[v.index()].device;
            let running = facts.moves.iter().find(|m| m.volume == v);
            [here, running.map_or(here, |m| m.to)]
        }
    };
    for rule in policy
        .affinity
        .iter()
        .filter(|r| r.kind == AffinityKind::DifferentDevices)
    {
        for (i, a) in rule.volumes.iter().enumerate() {
            for b in &rule.volumes[i + 1..] {
                let shared = at(*a).into_iter().find(|d| at(*b).contains(d));
                let moved = moved_to(*a).is_some() || moved_to(*b).is_some();
                if let Some(shared) = shared.filter(|_| moved) {
                    let name = |v: &VolumeId| facts.volumes[v.index()].name.clone();
                    let device = facts.topology.device(shared).name.clone();
                    errors.push(LintError::SharedDevice {
                        a: name(a),
                        b: name(b),
                        device,
                    });
                }
            }
        }
    }
}
