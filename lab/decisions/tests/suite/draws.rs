//! Scenarios drawn by seeds.

use std::collections::{BTreeMap, BTreeSet};

use decisions::{FixedParameter, draw};
use sim::ScenarioFile;

/// Three tiers with little room, classes, phases, bursts.
pub const SCENARIO: &str = r#"
duration = "6m"
window = "5s"
strategy = "noop"
[policy]
monitor_epoch = "15s"
migration_epoch = "60s"
[[tiers]]
name = "fast"
preset = "pm953"
capacity = "6 GiB"
read_iops = "6000 IOPS"
write_iops = "2500 IOPS"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "12 GiB"
read_iops = "1200 IOPS"
write_iops = "600 IOPS"
read_latency = "600us"
[[classes]]
name = "gold"
weight = 4.0
latency = "1ms"
statistic = "p95"
[[classes]]
name = "bronze"
latency = "10ms"
[[volumes]]
name = "a"
class = "gold"
size = "3 GiB"
tier = "slow"
[[volumes]]
name = "b"
class = "bronze"
size = "2 GiB"
tier = "fast"
[[volumes]]
name = "c"
size = "4 GiB"
tier = "slow"
[[clients]]
volume = "a"
habits = { outstanding = 4, rate = "900 IOPS" }
[[clients]]
volume = "b"
habits = { outstanding = 4, rate = "100 IOPS" }
phases = [{ duration = "2m" }, { duration = "2m", habits = { rate = "10 IOPS" } }]
[[clients]]
volume = "c"
habits = { outstanding = 2, rate = "50 IOPS" }
bursts = { every = "60s", length = "5s", factor = 2.0 }
"#;

fn file() -> ScenarioFile {
    ScenarioFile::parse("s.toml", SCENARIO).unwrap()
}

#[test]
fn draw_is_deterministic_per_seed_and_valid() {
    let mut seen = BTreeSet::new();
    for seed in 1..=40 {
        let [one, two] = [0, 1].map(|_| draw(&file(), &BTreeSet::new(), seed));
        let text = serde_json::to_string(&one.scenario).unwrap();
        assert_eq!(text, serde_json::to_string(&two.scenario).unwrap());
        assert!(seen.insert(text), "{seed}");
        one.build(vec![]).unwrap_or_else(|e| panic!("{seed}: {e}"));
        let mut classes: Vec<_> = one
            .scenario
            .volumes
            .iter()
            .map(|v| v.class.clone())
            .collect();
        classes.sort();
        assert_eq!(classes, [None, Some("bronze".into()), Some("gold".into())]);
        let phases = &one.scenario.clients[1].phases;
        assert_eq!(phases[0].duration.0 + phases[1].duration.0, 240_000_000_000);
    }
}

#[test]
fn fixed_parts_of_a_scenario_are_not_drawn() {
    let all = [
        FixedParameter::Class,
        FixedParameter::Place,
        FixedParameter::Phase,
        FixedParameter::Rate,
    ];
    let drawn = draw(&file(), &all.into(), 7).scenario;
    let mut own = file().scenario;
    own.seed = 7;
    let json = |s| serde_json::to_value(s).unwrap();
    assert_eq!(json(&drawn), json(&own));
    let places = |s: &config::scenario::Scenario| -> BTreeMap<String, Option<String>> {
        s.volumes
            .iter()
            .map(|v| (v.name.clone(), v.tier.clone()))
            .collect()
    };
    let some = |seed| {
        draw(
            &file(),
            &[FixedParameter::Class, FixedParameter::Rate].into(),
            seed,
        )
        .scenario
    };
    assert!((1..20).any(|seed| places(&some(seed)) != places(&own)));
    assert!((1..20).all(|seed| some(seed).clients[0].habits == own.clients[0].habits));
}
