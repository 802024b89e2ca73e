//! Examples of remedies for SLO violations: each takes its intended remedy, and the remedy helps.

use std::collections::BTreeMap;

use sim::{GroupKind, RunResult, ScenarioFile};
use slo::ladder::RemedyKind;

use crate::support::{group, run_file};

const ANSWERS: &str = include_str!("../../../../examples/remedies.toml");

/// Examples with the intended remedy and the volume in violation.
const EXAMPLES: [(&str, RemedyKind, &str); 6] = [
    (ANSWERS, RemedyKind::Throttle, "orders"),
    (
        include_str!("../../../../examples/memory-share.toml"),
        RemedyKind::MemoryShare,
        "orders",
    ),
    (
        include_str!("../../../../examples/spare-flash.toml"),
        RemedyKind::OpsShare,
        "orders",
    ),
    (
        include_str!("../../../../examples/mirror.toml"),
        RemedyKind::Mirror,
        "catalog",
    ),
    (ANSWERS, RemedyKind::Appliance, "orders"),
    (
        include_str!("../../../../examples/move.toml"),
        RemedyKind::Move,
        "orders",
    ),
];

/// Returns the seconds in which a volume violated its latency objective or its guaranteed rate.
fn violated_s(result: &RunResult, volume: &str) -> f64 {
    let latency = group(result, GroupKind::Volume, volume).slo_violation_s;
    let rates = result.response.iter().flat_map(|r| &r.rates);
    let rates = rates.filter(|r| r.volume == volume);
    latency.unwrap_or(0.0) + rates.map(|r| r.violated_s).sum::<f64>()
}

#[test]
fn each_example_applies_its_remedy() {
    // Keyed by text, because one example appears twice with the same volume.
    let mut unanswered = BTreeMap::new();
    for (text, remedy, volume) in EXAMPLES {
        let run = |remedies: Option<Vec<RemedyKind>>| {
            let mut file = ScenarioFile::parse("example.toml", text).unwrap();
            let response = file.scenario.response.as_mut().expect("it has answers");
            if let Some(remedies) = remedies {
                response.remedies = remedies;
            }
            run_file(&file, "noop")
        };
        // With all remedies, remedies.toml takes the throttle. The appliance is its second choice.
        let with = run((remedy == RemedyKind::Appliance).then(|| vec![remedy]));
        let without = *unanswered
            .entry(text)
            .or_insert_with(|| violated_s(&run(Some(vec![])), volume));
        let remedies = &with.response.as_ref().unwrap().remedies;
        let first = remedies
            .first()
            .unwrap_or_else(|| panic!("{remedy:?}: none"));
        assert_eq!((first.remedy, &*first.volume), (Some(remedy), volume));
        assert!(
            remedies.iter().all(|a| a.remedy == Some(remedy)),
            "{remedies:#?}"
        );
        let violated = violated_s(&with, volume);
        println!("{}: {violated} s of {without} s", remedy.name());
        assert!(without >= 200.0, "{remedy:?}: {without}");
        assert!(violated <= 0.5 * without, "{remedy:?}: {violated}");
    }
}
