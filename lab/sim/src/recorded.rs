//! Repetition of a live controller's decision. A scenario with the recorded facts gives the same plan, byte for byte.
//! With a changed scenario, the result shows the decision that the controller would have made.

use config::scenario::{Recorded, RecordedFacts, RecordedVolume, VolumeConfig};
use config::{UnknownVolumes, find, resolve_classes, resolve_policy, resolve_topology};
use model::{Facts, FailedMove, Policy, RunningMove, Topology, VolumeFacts};
use planner::{AnyStrategy, Decision, StrategyState, decide};
use units::{DeviceId, VolumeId};

use crate::build::VolumeOwners;
use crate::{ScenarioError, ScenarioFile};

/// Returns the reason that recorded extents do not fit the scenario, if they do not.
fn strange_extents(known: &RecordedVolume, v: &VolumeConfig, devices: usize) -> Option<String> {
    let extents = known.extents.as_ref()?;
    let count = extents.places.count();
    if extents.extent.0 == 0 || u64::from(count) != v.size.0.div_ceil(extents.extent.0.max(1)) {
        return Some(format!(
            "{count} extents of {} do not match its size of {}",
            extents.extent, v.size
        ));
    }
    let mut places = extents.places.runs().iter().filter_map(|r| r.1);
    if let Some(device) = places.find(|d| d.index() >= devices) {
        return Some(format!("unknown device {}", device.0));
    }
    let last = extents.heat.as_ref().and_then(|h| h.touched().last());
    let beyond = last.filter(|t| t.0 >= count)?;
    Some(format!("unknown extent {}", beyond.0))
}

impl ScenarioFile {
    /// Repeats the decision with the scenario's strategy.
    ///
    /// # Errors
    /// A scenario without a record or with one that does not fit it, and a plan that breaks a rule.
    pub fn decide_again(&self) -> Result<(Facts, Decision), ScenarioError> {
        let s = &self.scenario;
        let recorded = s.recorded.as_ref().ok_or_else(|| {
            self.fault(
                "recorded",
                "missing: only an export of a live array can be decided again",
            )
        })?;
        let strategy = self.strategy(&s.strategy)?;
        let (facts, policy) = self.recorded_facts(recorded)?;
        let state = self.recorded_state(recorded, &*strategy)?;
        let decision = decide(&*strategy, &facts, &policy, &state, s.seed)
            .map_err(|e| self.fault("recorded", e.to_string()))?;
        Ok((facts, decision))
    }

    fn recorded_state(
        &self,
        recorded: &Recorded,
        strategy: &dyn AnyStrategy,
    ) -> Result<StrategyState, ScenarioError> {
        let fault = |e: serde_json::Error| self.fault("recorded.state", e.to_string());
        let value: serde_json::Value = serde_json::from_str(&recorded.state).map_err(fault)?;
        if value.is_null() {
            return Ok(strategy.initial_state());
        }
        strategy.state_from_json(value).map_err(fault)
    }

    fn recorded_facts(&self, recorded: &Recorded) -> Result<(Facts, Policy), ScenarioError> {
        let s = &self.scenario;
        let known: RecordedFacts = serde_json::from_str(&recorded.facts)
            .map_err(|e| self.fault("recorded.facts", e.to_string()))?;
        let topology = resolve_topology(&self.source, &s.tiers)?;
        let mut classes = resolve_classes(&self.source, &s.classes)?;
        let VolumeOwners { of_volumes, vms } = self.belonging(&mut classes)?;
        let mut volumes = Vec::new();
        for (i, v) in s.volumes.iter().enumerate() {
            let at = |key: &str| format!("volumes[{i}].{key}");
            let (class, vm) = of_volumes[i];
            let measured = known.volumes.get(&v.name).cloned().unwrap_or_default();
            let strange = measured
                .calibration
                .iter()
                .find(|w| w.device.index() >= topology.devices.len());
            if let Some(window) = strange {
                let why = format!("volume \"{}\": unknown device {}", v.name, window.device.0);
                return Err(self.fault("recorded.facts", why));
            }
            if let Some(why) = strange_extents(&measured, v, topology.devices.len()) {
                let why = format!("volume \"{}\": {why}", v.name);
                return Err(self.fault("recorded.facts", why));
            }
            volumes.push(VolumeFacts {
                name: v.name.clone(),
                vm,
                class,
                size: v.size,
                device: self.recorded_device(&at("device"), v, &topology)?,
                measured: measured.measured,
                calibration: measured.calibration,
                calibrating: measured.calibrating,
                last_moved: measured.last_moved,
                extents: measured.extents,
            });
        }
        let tiers: Vec<&str> = topology.tiers.iter().map(|t| t.name.as_str()).collect();
        let names: Vec<&str> = volumes.iter().map(|v| v.name.as_str()).collect();
        let policy = resolve_policy(
            &self.source,
            "policy",
            &s.policy,
            &tiers,
            &names,
            UnknownVolumes::Refuse,
        )?;
        let device = |name: &str| {
            find(name, topology.devices.iter().map(|d| d.name.as_str()))
                .map(DeviceId::from_index)
                .map_err(|why| self.fault("recorded.facts", why))
        };
        let volume = |name: &str| {
            find(name, names.iter().copied())
                .map(VolumeId::from_index)
                .map_err(|why| self.fault("recorded.facts", why))
        };
        let failed = known.failed.iter().map(|f| {
            Ok(FailedMove {
                volume: volume(&f.volume)?,
                device: device(&f.device)?,
                attempts: f.attempts,
                left: f.left,
                why: f.why.clone(),
            })
        });
        let failed = failed.collect::<Result<Vec<_>, ScenarioError>>()?;
        let moves = known.moves.iter().map(|m| {
            Ok(RunningMove {
                volume: volume(&m.volume)?,
                from: device(&m.from)?,
                to: device(&m.to)?,
                extents: m.extents.clone(),
            })
        });
        let moves = moves.collect::<Result<Vec<_>, ScenarioError>>()?;
        let devices = topology.devices.iter();
        let devices = devices
            .map(|d| known.devices.get(&d.name).copied().unwrap_or_default())
            .collect();
        let facts = Facts {
            at: recorded.at,
            epoch: recorded.epoch,
            placement_due: recorded.placement_due,
            generation: recorded.generation,
            topology,
            classes,
            vms,
            volumes,
            devices,
            moves,
            failed,
            nodes: Default::default(),
        };
        Ok((facts, policy.policy))
    }

    fn recorded_device(
        &self,
        key: &str,
        volume: &VolumeConfig,
        topology: &Topology,
    ) -> Result<DeviceId, ScenarioError> {
        let name = volume.device.as_ref().ok_or_else(|| {
            self.fault(
                key,
                "is required to decide again: the device of the volume at the decision",
            )
        })?;
        find(name, topology.devices.iter().map(|d| d.name.as_str()))
            .map(DeviceId::from_index)
            .map_err(|why| self.fault(key, why))
    }
}
