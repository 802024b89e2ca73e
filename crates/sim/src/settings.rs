//! What a simulated host's controller is set to.

use std::collections::BTreeMap;

use config::{Hours, ModesConfig, WatchConfig};
use manager::settings::{ManagerConfig, Settings, TierTraits};
use model::Mode;
use serde_json::Value;

use crate::Model;

/// What the controller of a simulated host is set to: everything is approved of, and nothing is doubted.
pub fn host_settings(model: &Model) -> Settings {
    let words = ManagerConfig {
        seed: model.seed,
        window: model.window,
        modes: ModesConfig {
            drain: Mode::Auto,
            rules: Mode::Auto,
            space: Mode::Auto,
            latency: Mode::Auto,
        },
        watch: WatchConfig {
            prediction_error_max: f64::INFINITY,
            calibration_budget: f64::INFINITY,
            ..WatchConfig::default()
        },
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
    Settings::simulated(words, strategy, Hours::default(), tiers, classes, policy)
}
