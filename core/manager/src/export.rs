//! Export of a live decision as a scenario file. `terrace sim plan` repeats the decision; `terrace
//! sim run` simulates the time after it.
//!
//! The loads of a run are synthetic: one closed-loop client per volume with the measured rate, read
//! share and mean size. The recorded facts are exact and are part of the file. Settings that are
//! not valid for synthetic loads are left out; `about` lists them.

use std::collections::BTreeMap;

use config::scenario::{
    ApplianceConfig, ApplianceFailures, ClientConfig, Recorded, RecordedFacts, ResponseConfig,
    Scenario, VolumeConfig,
};
use config::{
    AffinityConfig, ClassConfig, MaxSlowdown, MemberConfig, PolicyConfig, RemedyMode, TierConfig,
};
use model::{Facts, MeasuredLoad, Policy, VolumeFacts};
use slo::ladder::RemedyKind;
use trace::{Habits, SizeShare};
use units::{Bytes, Iops, Nanos, TierId, VolumeId};

use crate::ManagerError;
use crate::settings::Settings;
use crate::store::{StoredDecision, read};

/// Length of a run of the exported scenario.
const DURATION: Nanos = Nanos::from_secs(3600);

/// Request size unit of the synthetic clients: whole pages.
const PAGE: u64 = 4096;

/// Maximum number of volumes with unknown load that `about` names.
const NAMED_MAX: usize = 8;

/// Returns the text of the scenario file.
///
/// # Errors
/// [`ManagerError::Removed`], if the inputs of the decision have been removed from the store.
pub fn scenario(decision: &StoredDecision, settings: &Settings) -> Result<String, ManagerError> {
    let facts: Facts = read("facts", &decision.facts)?;
    let policy: Policy = read("rules", &decision.policy)?;
    let mut strategies = BTreeMap::new();
    if !decision.parameters.is_null() {
        strategies.insert(decision.strategy.clone(), decision.parameters.clone());
    }
    let recorded = Recorded {
        at: facts.at,
        epoch: facts.epoch,
        generation: facts.generation,
        placement_due: facts.placement_due,
        facts: serde_json::to_string(&RecordedFacts::of(&facts))?,
        state: serde_json::to_string(&decision.state)?,
    };
    let (response, left_out) = response(decision, settings, &facts);
    let clients = facts
        .volumes
        .iter()
        .filter_map(|v| Some(client(&v.name, &v.measured?)));
    let scenario = Scenario {
        name: format!("{}-{}", decision.host, decision.generation),
        about: format!(
            "State of host {} at plan {}. The loads are synthetic, with the measured rates.{left_out}",
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
        response,
        recorded: Some(recorded),
        strategies,
        ..Scenario::default()
    };
    Ok(config::write(&scenario)?)
}

/// Returns the remedies that are valid for synthetic loads, and a description of the parts that are
/// left out.
fn response(
    decision: &StoredDecision,
    settings: &Settings,
    facts: &Facts,
) -> (Option<ResponseConfig>, String) {
    let array = settings.words.array.as_ref();
    let array = array.filter(|a| a.host == decision.host);
    let mut left_out = String::new();
    let unknown = facts.volumes.iter().filter(|v| v.measured.is_none());
    let unknown: Vec<&str> = unknown.map(|v| v.name.as_str()).collect();
    if !unknown.is_empty() {
        let named = unknown[..unknown.len().min(NAMED_MAX)].join(", ");
        let more = match unknown.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        left_out += &format!(
            " Without a load, because it was unknown (new, in calibration, or throttled): {named}{more}."
        );
    }
    if let Some(cache) = array.and_then(|a| a.cache.as_ref()) {
        left_out += &format!(
            " Left out: the cache of {}, because these are loads of the devices behind it; and remedies, because objectives apply in \
             front of it.",
            cache.size
        );
        return (None, left_out);
    }
    if array.is_none() {
        left_out += " It is not known here whether the host has a cache. If it has one, these are loads of the devices behind it.";
    }
    let objective = |v: &VolumeFacts| facts.classes[v.class.index()].target.is_some();
    let Some(live) = settings
        .response()
        .filter(|_| facts.volumes.iter().any(objective))
    else {
        return (None, left_out);
    };
    // The other remedies need a cache.
    let remedies = [RemedyKind::Throttle, RemedyKind::Mirror, RemedyKind::Move];
    let remedies: Vec<RemedyKind> = remedies
        .into_iter()
        .filter(|r| live.mode(*r) != RemedyMode::Off)
        .collect();
    if remedies.is_empty() {
        return (None, left_out);
    }
    if remedies
        .iter()
        .any(|r| live.mode(*r) == RemedyMode::Recommend)
    {
        left_out += " Remedies that are only recommended are carried out in a run.";
    }
    if live.ahead.is_some() {
        left_out += " Left out: peaks of seasons, because their history is not part of a decision.";
    }
    let response = ResponseConfig {
        remedies,
        workflow: live.workflow,
        iops_min: BTreeMap::new(),
        appliance: ApplianceConfig::default(),
        failures: ApplianceFailures::default(),
        ahead: None,
        peaks: vec![],
    };
    (Some(response), left_out)
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

/// Returns the device's specification with the capacity of `first`.
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
            max_slowdown: MaxSlowdown::of(c),
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
            host: None,
        })
        .collect()
}

fn client(volume: &str, measured: &MeasuredLoad) -> ClientConfig {
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
