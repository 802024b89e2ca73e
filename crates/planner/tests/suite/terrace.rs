//! The strategy that keeps objectives, from outside.

use model::*;
use planner::strategies::TerraceConfig;
use planner::{BuildError, build, decide};
use serde_json::{Value, json};
use units::*;

use crate::support::{facts, preset_spec, v};

/// A volume of great weight that is silent on the slowest tier, where a load like that of the other would miss its objective.
fn silent_on_the_slowest() -> Facts {
    let mut facts = facts(&[v(3, 2, 0.0, 1.0, 4.0), v(0, 10, 2000.0, 1.0, 1.0)]);
    let bare = |name: &str| preset_spec(name).bare_latency_us(Op::Read, 4096.0);
    let between = (bare("pm953") + bare("pm863")) / 2.0;
    for (class, us) in facts.classes.iter_mut().zip([between, 1e6]) {
        class.target = Some(Objective {
            statistic: SloStatistic::Mean,
            latency: Nanos((us * 1000.0) as u64),
        });
    }
    facts
}

/// Moves that are wanted, with the kinds of their reasons.
fn wanted(facts: &Facts, config: Value) -> Vec<(VolumeId, DeviceId, String)> {
    let strategy = build("terrace", config).unwrap();
    let state = strategy.initial_state();
    let decision = decide(&*strategy, facts, &Policy::default(), &state, 1).unwrap();
    decision
        .plan
        .moves()
        .into_iter()
        .map(|m| (m.volume, m.to, m.terms.reason.kind().to_owned()))
        .collect()
}

#[test]
fn a_silent_volume_moves_in_advance_within_the_budget_for_that() {
    let facts = silent_on_the_slowest();
    let moves = wanted(&facts, Value::Null);
    assert_eq!(moves, [(VolumeId(0), DeviceId(1), "in-advance".to_owned())]);
    let without = json!({ "rates": { "advance_s": 0.0 } });
    assert_eq!(wanted(&facts, without), []);
    let never = json!({ "rates": { "surge": 0.0 } });
    assert_eq!(wanted(&facts, never), []);
}

#[test]
fn every_variant_of_an_ablation_is_a_strategy() {
    let variants = TerraceConfig::variants();
    assert!(variants.len() > 30, "{}", variants.len());
    for (name, config) in variants {
        assert!(build("terrace", config).is_ok(), "{name}");
    }
}

#[test]
fn rates_that_make_no_sense_are_refused_by_their_key() {
    for (rates, key) in [
        (json!({ "gib": -1.0 }), "rates.gib"),
        (json!({ "sigma_here": 0.0 }), "rates.sigma_here"),
        (json!({ "surge": 1.5 }), "rates.surge"),
    ] {
        let Err(BuildError::Config(fault)) = build("terrace", json!({ "rates": rates })) else {
            panic!("{rates} is taken");
        };
        assert_eq!(fault.key, key);
    }
}
