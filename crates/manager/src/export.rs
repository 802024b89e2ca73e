//! A live decision as a scenario file: `terrace sim plan` decides again, `terrace sim run` plays on from there.
//!
//! The loads of a run are made up: a closed-loop client per volume with the rate, share of reads and mean size that were
//! measured. What was recorded is beside them, exact.

use std::collections::BTreeMap;

use config::scenario::{ClientConfig, Recorded, RecordedFacts, Scenario, VolumeConfig};
use config::{AffinityConfig, ClassConfig, MemberConfig, PolicyConfig, TierConfig};
use model::{Facts, Measured, Outcome, Plan, Policy, Report};
use serde::de::DeserializeOwned;
use trace::{Habits, SizeShare};
use units::{Bytes, Iops, Nanos, TierId, VolumeId};

use crate::controller::{held_extents, scored};
use crate::settings::Settings;
use crate::store::StoredDecision;
use crate::view::{HeldMove, MoveState, PlanState, PlanView, PlannedMove};

/// Length of a run of the exported scenario.
const DURATION: Nanos = Nanos::from_secs(3600);

/// Requests of the made-up clients have whole pages.
const PAGE: u64 = 4096;

fn read<T: DeserializeOwned>(what: &str, value: &serde_json::Value) -> Result<T, String> {
    if value.is_null() {
        return Err(format!("the {what} of this decision are not kept any more"));
    }
    serde_json::from_value(value.clone())
        .map_err(|e| format!("the {what} of this decision are not understood: {e}"))
}

/// The file's text.
///
/// # Errors
/// A decision whose inputs are not kept any more.
pub fn scenario(decision: &StoredDecision, settings: &Settings) -> Result<String, String> {
    let facts: Facts = read("facts", &decision.facts)?;
    let policy: Policy = read("rules", &decision.policy)?;
    let mut strategies = BTreeMap::new();
    if !decision.parameters.is_null() {
        strategies.insert(decision.strategy.clone(), decision.parameters.clone());
    }
    let json = |e: serde_json::Error| e.to_string();
    let recorded = Recorded {
        at: facts.at,
        epoch: facts.epoch,
        generation: facts.generation,
        placement_due: facts.placement_due,
        facts: serde_json::to_string(&RecordedFacts::of(&facts)).map_err(json)?,
        state: serde_json::to_string(&decision.state).map_err(json)?,
    };
    let clients = facts
        .volumes
        .iter()
        .filter_map(|v| Some(client(&v.name, &v.measured?)));
    let scenario = Scenario {
        name: format!("{}-{}", decision.host, decision.generation),
        about: format!(
            "What was known of host {} when plan {} was made. Loads are made up from what was measured.",
            decision.host, decision.generation
        ),
        seed: decision.seed,
        duration: Some(DURATION),
        window: settings.words.window,
        strategy: decision.strategy.clone(),
        tiers: tiers(&facts),
        classes: classes(&facts),
        volumes: volumes(&facts),
        clients: clients
            .filter(|c| c.habits.rate.is_some_and(|r| r.0 > 0.0))
            .collect(),
        policy: policy_words(&policy, &facts),
        recorded: Some(recorded),
        strategies,
        ..Scenario::default()
    };
    config::write(&scenario)
}

fn tiers(facts: &Facts) -> Vec<TierConfig> {
    let topology = &facts.topology;
    let tiers = topology.tiers.iter();
    tiers
        .map(|tier| {
            let devices = tier.devices.iter().map(|d| topology.device(*d));
            let first = devices.clone().next();
            TierConfig {
                name: tier.name.clone(),
                spec: first.map(|d| d.spec.clone()),
                members: devices
                    .map(|d| MemberConfig {
                        name: d.name.clone(),
                        capacity: Some(d.spec.capacity),
                        spec: first
                            .filter(|f| f.spec != like(f, d))
                            .map(|_| d.spec.clone()),
                    })
                    .collect(),
                specialty: Some(tier.specialty),
                ..TierConfig::default()
            }
        })
        .collect()
}

/// What the device would be if only its space were its own.
fn like(first: &model::Device, own: &model::Device) -> model::DeviceSpec {
    model::DeviceSpec {
        capacity: first.spec.capacity,
        ..own.spec.clone()
    }
}

fn classes(facts: &Facts) -> Vec<ClassConfig> {
    let classes = facts.classes.iter();
    classes
        .map(|c| ClassConfig {
            name: c.name.clone(),
            weight: c.weight,
            latency: c.target.map(|t| t.latency),
            statistic: c.target.map_or(model::SloStatistic::P99, |t| t.statistic),
        })
        .collect()
}

fn volumes(facts: &Facts) -> Vec<VolumeConfig> {
    let volumes = facts.volumes.iter();
    volumes
        .map(|v| VolumeConfig {
            name: v.name.clone(),
            vm: Some(facts.vms[v.vm.index()].clone()),
            class: Some(facts.classes[v.class.index()].name.clone()),
            size: v.size,
            tier: None,
            device: Some(facts.topology.device(v.device).name.clone()),
        })
        .collect()
}

fn client(volume: &str, measured: &Measured) -> ClientConfig {
    let pages = (measured.mean_io_bytes() / PAGE as f64).round().max(1.0) as u64;
    ClientConfig {
        volume: volume.into(),
        preset: None,
        habits: Habits {
            outstanding: Some(measured.outstanding.ceil().clamp(1.0, 1024.0) as u32),
            read_share: Some(measured.read_share()),
            random_share: Some(1.0),
            sizes: Some(vec![SizeShare {
                size: Bytes(pages * PAGE),
                share: 1.0,
            }]),
            rate: Some(Iops(measured.iops().round())),
            ..Habits::default()
        },
        phases: vec![],
        bursts: None,
    }
}

fn policy_words(policy: &Policy, facts: &Facts) -> PolicyConfig {
    let tier = |t: TierId| facts.topology.tier(t).name.clone();
    let volume = |v: VolumeId| facts.volumes[v.index()].name.clone();
    let (budget, gates, headroom) = (&policy.budget, &policy.gates, &policy.headroom);
    PolicyConfig {
        monitor_epoch: Some(policy.epochs.monitor),
        migration_epoch: Some(policy.epochs.migration),
        headroom_performance: Some(headroom.performance),
        headroom_bandwidth: Some(headroom.bandwidth),
        headroom_space: Some(headroom.space),
        moves_per_epoch: Some(budget.moves_per_epoch),
        bytes_per_epoch: budget.bytes_per_epoch,
        concurrent_moves: Some(budget.concurrent),
        concurrent_moves_per_device: Some(budget.concurrent_per_device),
        copy_bandwidth: Some(budget.copy_bandwidth),
        copy_share: Some(budget.copy_share),
        pins: policy
            .pins
            .iter()
            .map(|p| (volume(p.volume), tier(p.tier)))
            .collect(),
        affinity: policy
            .affinity
            .iter()
            .map(|a| AffinityConfig {
                kind: a.kind,
                volumes: a.volumes.iter().map(|v| volume(*v)).collect(),
            })
            .collect(),
        cordon: policy.cordoned.iter().map(|t| tier(*t)).collect(),
        drain: policy.draining.iter().map(|t| tier(*t)).collect(),
        space_high: policy.space_high,
        overcommit_max: None,
        hold: Some(gates.hold),
        cooldown: Some(gates.cooldown),
        margin: Some(gates.margin),
        threshold: Some(gates.threshold),
        no_injection: policy.no_injection.iter().map(|v| volume(*v)).collect(),
    }
}

/// A plan that is not the newest any more, as it was made.
///
/// # Errors
/// A decision that is not understood.
pub fn old_plan(decision: &StoredDecision) -> Result<PlanView, String> {
    let plan: Plan = read("moves", &decision.plan)?;
    let report: Report = read("reasons", &decision.report)?;
    let facts: Option<Facts> = read("facts", &decision.facts).ok();
    let volume = |v: VolumeId| {
        facts.as_ref().map_or_else(
            || format!("volume {}", v.0),
            |f| f.volumes[v.index()].name.clone(),
        )
    };
    let device = |d: units::DeviceId| {
        facts.as_ref().map_or_else(
            || format!("device {}", d.0),
            |f| f.topology.device(d).name.clone(),
        )
    };
    let tier = |d: units::DeviceId| {
        let of = |f: &Facts| f.topology.tier(f.topology.tier_of(d)).name.clone();
        facts.as_ref().map_or_else(|| "unknown".into(), of)
    };
    let mut scored = scored(&report);
    let moves = plan.moves().into_iter().enumerate().map(|(i, m)| PlannedMove {
        position: i as u32,
        job: None,
        volume: volume(m.volume),
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
            .remove(volume(m.volume).as_str())
            .unwrap_or_default(),
        state: MoveState::Ended {
            why: "a newer plan has taken this one's place; `terrace job list` says what became of its moves".into(),
        },
    });
    let held = report.volumes.iter().filter_map(|v| match &v.outcome {
        Outcome::Held { wanted, by } => Some(HeldMove {
            volume: v.volume.clone(),
            tier: v.tier.clone(),
            wanted: wanted.clone(),
            why: by.to_string(),
        }),
        _ => None,
    });
    let mut held: Vec<HeldMove> = held.collect();
    held.extend(held_extents(&report));
    let stays = |o: &Outcome| matches!(o, Outcome::Stay);
    Ok(PlanView {
        host: decision.host.clone(),
        generation: plan.generation,
        parent: plan.parent,
        at_ns: plan.at.0,
        strategy: plan.strategy.clone(),
        state: PlanState::Superseded,
        moves: moves.collect(),
        held,
        staying: report.volumes.iter().filter(|v| stays(&v.outcome)).count() as u32,
        notes: report.notes.clone(),
    })
}
