//! Examples of answers to broken objectives: each takes the answer that it is there for, and it helps.

use std::collections::BTreeMap;

use sim::{GroupKind, RunResult, ScenarioFile};
use slo::ladder::RungKind;

use crate::support::{group, run_file};

const ANSWERS: &str = include_str!("../../../../examples/answers.toml");

/// The examples, what each is for, and whose objective it is that breaks.
const EXAMPLES: [(&str, RungKind, &str); 6] = [
    (ANSWERS, RungKind::Throttle, "orders"),
    (
        include_str!("../../../../examples/memory-share.toml"),
        RungKind::MemoryShare,
        "orders",
    ),
    (
        include_str!("../../../../examples/spare-flash.toml"),
        RungKind::OpsShare,
        "orders",
    ),
    (
        include_str!("../../../../examples/mirror.toml"),
        RungKind::Mirror,
        "catalog",
    ),
    (ANSWERS, RungKind::Appliance, "orders"),
    (
        include_str!("../../../../examples/move.toml"),
        RungKind::Move,
        "orders",
    ),
];

/// Seconds in which a volume missed its latency or its promised rate.
fn missed_s(result: &RunResult, volume: &str) -> f64 {
    let latency = group(result, GroupKind::Volume, volume).slo_violation_s;
    let rates = result.response.iter().flat_map(|r| &r.rates);
    let rates = rates.filter(|r| r.volume == volume);
    latency.unwrap_or(0.0) + rates.map(|r| r.missed_s).sum::<f64>()
}

#[test]
fn each_example_takes_the_answer_that_it_is_for() {
    // By text: one is there twice, of the same volume.
    let mut unanswered = BTreeMap::new();
    for (text, rung, volume) in EXAMPLES {
        let run = |rungs: Option<Vec<RungKind>>| {
            let mut file = ScenarioFile::parse("example.toml", text).unwrap();
            let response = file.scenario.response.as_mut().expect("it has answers");
            if let Some(rungs) = rungs {
                response.rungs = rungs;
            }
            run_file(&file, "noop")
        };
        // Left to itself answers.toml takes the throttle: the appliance is what it does without.
        let with = run((rung == RungKind::Appliance).then(|| vec![rung]));
        let without = *unanswered
            .entry(text)
            .or_insert_with(|| missed_s(&run(Some(vec![])), volume));
        let answers = &with.response.as_ref().unwrap().answers;
        let first = answers.first().unwrap_or_else(|| panic!("{rung:?}: none"));
        assert_eq!((first.rung, &*first.volume), (Some(rung), volume));
        assert!(answers.iter().all(|a| a.rung == Some(rung)), "{answers:#?}");
        let missed = missed_s(&with, volume);
        println!("{}: {missed} s of {without} s", rung.name());
        assert!(without >= 200.0, "{rung:?}: {without}");
        assert!(missed <= 0.5 * without, "{rung:?}: {missed}");
    }
}
