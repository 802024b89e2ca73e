//! Optimistic reference: the violation if every volume had the best tier to itself in every window.

use std::sync::Arc;

use config::scenario::ResponseConfig;
use model::{Device, Tier, Topology};
use serde_json::Value;
use sim::{Model, RunError, RunOptions};
use slo::ladder::RemedyKind;
use units::{DeviceId, TierId};

/// Returns the class-weighted seconds of violation if each volume were alone on a device of its best tier, window by window.
/// No plan is better for open loads. Real plans, with shared devices and copies that take time, are usually far worse.
///
/// # Errors
/// Returns only faults of the engine.
pub fn solo_violation(model: &Model) -> Result<f64, RunError> {
    let mut least: Vec<Vec<u32>> = vec![];
    for tier in model.topology.tier_ids() {
        let violated = alone_on(model, tier)?;
        if least.is_empty() {
            least = violated;
            continue;
        }
        for (best, own) in least.iter_mut().zip(violated) {
            for (b, o) in best.iter_mut().zip(own) {
                *b = (*b).min(o);
            }
        }
    }
    let window_s = model.window.as_secs_f64();
    let first = (model.warmup.0 / model.window.0) as usize;
    let weighted = model.volumes.iter().zip(&least).map(|(v, violated)| {
        let windows: u32 = violated.iter().skip(first).sum();
        model.classes[v.class.index()].weight * f64::from(windows) * window_s
    });
    Ok(weighted.sum())
}

/// Returns the remedies that leave data in place; `None` without any.
fn where_it_is(remedies: &ResponseConfig) -> Option<ResponseConfig> {
    let mut stay = remedies.clone();
    let moves = [RemedyKind::Move, RemedyKind::Mirror];
    stay.remedies.retain(|remedy| !moves.contains(remedy));
    (!stay.remedies.is_empty()).then_some(stay)
}

/// Returns, by volume and window, 1 for a violation of the objective.
fn alone_on(model: &Model, tier: TierId) -> Result<Vec<Vec<u32>>, RunError> {
    let mut alone = model.clone();
    let own = model.topology.tier(tier);
    let device = own.devices[0];
    let spec = &model.topology.device(device).spec;
    let n = model.volumes.len();
    let devices = (0..n).map(|i| Device {
        name: format!("{}-{i}", own.name),
        tier: TierId(0),
        spec: spec.clone(),
    });
    alone.topology = Topology {
        devices: devices.collect(),
        tiers: vec![Tier {
            name: own.name.clone(),
            specialty: own.specialty,
            devices: (0..n).map(DeviceId::from_index).collect(),
        }],
    };
    alone.actual = vec![model.actual[device.index()].clone(); n];
    for d in 0..n {
        alone.topology.devices[d].spec.capacity = model.topology.largest_device();
        alone.actual[d].capacity = model.topology.largest_device();
        alone.volumes[d].device = DeviceId::from_index(d);
        alone.volumes[d].places = None;
    }
    // Caps and curve represent the internals of a device.
    alone.flash = vec![None; n];
    alone.disks = vec![None; n];
    alone.mirrors = None;
    // A volume that is alone on its device is not moved, and none of its extents are mirrored.
    alone.remedies = model
        .remedies
        .as_deref()
        .and_then(where_it_is)
        .map(Arc::new);
    alone.running = sim::RunningModel::default();
    alone.policy = model::Policy {
        epochs: model.policy.epochs,
        ..model::Policy::default()
    };
    let noop = planner::build(planner::NOOP, Value::Null).expect("it takes no parameters");
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    let run = sim::run(&alone, noop, Default::default(), options, &mut |_| {})?;
    let series = run.series.expect("asked for");
    let volumes = series.groups.len() - n;
    Ok(series.groups[volumes..]
        .iter()
        .map(|g| g.violating.clone())
        .collect())
}
