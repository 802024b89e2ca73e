//! Runs of scenarios that are texts.

use sim::{
    Evidence, EvidenceOptions, GroupKind, GroupSummary, Manifest, RunOptions, RunResult,
    ScenarioFile,
};
use units::Nanos;

/// A run of a scenario without traces, with results over time.
pub fn run_text(text: &str, strategy: &str) -> RunResult {
    let file = ScenarioFile::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}"));
    run_file(&file, strategy)
}

/// The same of one that is read already.
pub fn run_file(file: &ScenarioFile, strategy: &str) -> RunResult {
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build(strategy, Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

/// A run that moves nothing, with what its answers were found by: zones and curves of four times, and the accesses of the first ten.
pub fn run_with_evidence(text: &str) -> (RunResult, Evidence) {
    let file = ScenarioFile::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let kept = EvidenceOptions {
        looks_at: [300, 600, 900, 1200].map(Nanos::from_secs).into(),
        accesses_until: Nanos::from_secs(600),
    };
    sim::run_with_evidence(&model, strategy, options, kept).unwrap()
}

/// Why a scenario of a file of that name is refused.
pub fn refusal(file: &str, text: &str) -> String {
    let built = ScenarioFile::parse(file, text).and_then(|f| f.build(vec![]));
    let refusal = built.err();
    refusal.expect("the scenario is refused").to_string()
}

/// The results of a group.
pub fn group<'a>(result: &'a RunResult, kind: GroupKind, name: &str) -> &'a GroupSummary {
    let mut groups = result.groups.iter();
    let of = groups.find(|g| g.kind == kind && g.name == name);
    of.unwrap_or_else(|| panic!("no group {name}"))
}
