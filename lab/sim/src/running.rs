//! Operation of a simulated host: settings of its controller, orders of operators, faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::scenario::{FaultsConfig, OperatorConfig, ThrottleConfig};
use config::{Hours, ModesConfig, WatchConfig, find, unix_ms_of};
use manager::settings::{ManagerConfig, Settings, TierTraits};
use manager::wire::Throttle;
use model::{Mode, TierState, Topology};
use serde_json::Value;

use crate::flash_config::FlashModel;
use crate::{Model, ScenarioError, ScenarioFile, VolumeModel};

/// Checked settings for the operation of a scenario's host.
#[derive(Debug, Clone, Default)]
pub struct RunningModel {
    /// Modes of the controller; `None` to execute all orders.
    modes: Option<ModesConfig>,
    hours: Hours,
    /// Checks of predictions; `None` for no checks.
    watch: Option<WatchConfig>,
    /// Wall-clock time at the start of the run.
    pub(crate) begins_unix_ms: u64,
    pub(crate) operators: Vec<OperatorConfig>,
    pub(crate) faults: FaultsConfig,
    /// True if the scenario has any of these settings. The results then keep the events.
    pub(crate) keeps_events: bool,
}

impl RunningModel {
    /// Returns true if an operator drains the tier of this name at some time.
    pub fn drains(&self, tier: &str) -> bool {
        let state = |o: &OperatorConfig| o.tiers.get(tier).copied();
        self.operators
            .iter()
            .any(|o| state(o) == Some(TierState::Draining))
    }
}

impl ScenarioFile {
    /// Reads the tables `modes`, `hours`, `watch`, `operator` and `problem`.
    pub(crate) fn running(
        &self,
        topology: &Topology,
        volumes: &[VolumeModel],
        flash: &[Option<Arc<FlashModel>>],
    ) -> Result<RunningModel, ScenarioError> {
        let s = &self.scenario;
        let words = s.hours.clone().unwrap_or_default();
        let hours =
            Hours::parse(&words.moves, &words.time_zone).map_err(|why| self.fault("hours", why))?;
        let begins_unix_ms = unix_ms_of(&s.begins).ok_or_else(|| {
            let why = format!(
                "{:?} must be a day and hour such as \"Mon 08:00\"",
                s.begins
            );
            self.fault("begins", why)
        })?;
        let fault = |at: String| move |why| self.fault(&at, why);
        let tier = |at, name: &str| {
            let tiers = topology.tiers.iter().map(|t| t.name.as_str());
            find(name, tiers).map_err(fault(at))
        };
        let volume = |at, name: &str| {
            let volumes = volumes.iter().map(|v| v.name.as_str());
            find(name, volumes).map_err(fault(at))
        };
        for (i, o) in s.operator.iter().enumerate() {
            let at = |key: &str| format!("operator[{i}].{key}");
            for name in o.tiers.keys() {
                tier(at("tiers"), name)?;
            }
            for (name, to) in &o.pins {
                volume(at("pins"), name)?;
                if !to.is_empty() {
                    tier(at("pins"), to)?;
                }
            }
            for name in &o.cancel {
                volume(at("cancel"), name)?;
            }
            for (name, to) in &o.throttle {
                volume(at("throttle"), name)?;
                if let Some(why) = throttle(to).and_then(|t| t.fault()) {
                    return Err(self.fault(&format!("operator[{i}].throttle.{name}"), why));
                }
            }
        }
        self.check_over_provisioning(&s.operator, |name| {
            let tier = topology.tiers.iter().find(|t| t.name == name)?;
            flash[tier.devices[0].index()].as_ref()?.tenants.as_deref()
        })?;
        let faults = s.faults.clone().unwrap_or_default();
        for (key, share) in [
            ("lost_reports", faults.lost_reports),
            ("lost_replies", faults.lost_replies),
            ("late_reports", faults.late_reports),
        ] {
            if !(0.0..=1.0).contains(&share) {
                let why = format!("must be a share from 0 to 1, not {share}");
                return Err(self.fault(&format!("faults.{key}"), why));
            }
        }
        let mut gone: Vec<_> = faults.agent_lost.iter().collect();
        gone.sort_by_key(|g| g.at);
        let overlap = gone.windows(2).any(|p| p[0].at + p[0].lasting > p[1].at);
        if overlap || gone.iter().any(|g| g.lasting.0 == 0) {
            let why = "each outage must last longer than 0 and end before the next outage starts";
            return Err(self.fault("faults.agent_lost", why));
        }
        let keeps_events = s.modes.is_some()
            || s.hours.is_some()
            || s.watch.is_some()
            || s.faults.is_some()
            || s.response.is_some()
            || !s.operator.is_empty();
        Ok(RunningModel {
            modes: s.modes,
            hours,
            watch: s.watch,
            begins_unix_ms,
            operators: s.operator.clone(),
            faults,
            keeps_events,
        })
    }
}

/// Returns the limit that an operator sets for a volume; `None` to remove it.
pub(crate) fn throttle(to: &ThrottleConfig) -> Option<Throttle> {
    (to.iops.is_some() || to.bandwidth.is_some()).then(|| Throttle {
        iops: to.iops.map(|i| i.0.round() as u64),
        bandwidth_bytes_per_s: to.bandwidth.map(|b| b.0),
        lasting_ns: to.lasting.0,
    })
}

/// Returns the settings of the controller of a scenario's host, simulated or live.
pub fn host_settings(model: &Model) -> Settings {
    let running = &model.running;
    let all = ModesConfig {
        drain: Mode::Auto,
        rules: Mode::Auto,
        space: Mode::Auto,
        latency: Mode::Auto,
    };
    let undoubted = WatchConfig {
        prediction_error_max: f64::INFINITY,
        calibration_budget: f64::INFINITY,
        ..WatchConfig::default()
    };
    let words = ManagerConfig {
        seed: model.seed,
        window: model.window,
        modes: running.modes.unwrap_or(all),
        watch: running.watch.unwrap_or(undoubted),
        ..ManagerConfig::default()
    };
    let topology = &model.topology;
    let traits = |tier: &model::Tier| {
        let spec = topology.device(tier.devices[0]).spec.clone();
        let specialty = Some(tier.specialty);
        (tier.name.clone(), TierTraits { spec, specialty })
    };
    let tiers: BTreeMap<String, TierTraits> = topology.tiers.iter().map(traits).collect();
    let strategy = (String::new(), Value::Null);
    let (classes, policy) = (model.classes.clone(), model.policy.clone());
    Settings::simulated(
        words,
        strategy,
        running.hours.clone(),
        tiers,
        classes,
        policy,
    )
}
