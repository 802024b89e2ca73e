//! Runs of scenarios in text form.

use sim::{
    Evidence, EvidenceOptions, GroupKind, GroupSummary, Manifest, RunOptions, RunResult,
    ScenarioFile,
};
use units::Nanos;

/// Runs a scenario without traces, with results over time.
pub fn run_text(text: &str, strategy: &str) -> RunResult {
    let file = ScenarioFile::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}"));
    run_file(&file, strategy)
}

/// Runs a parsed scenario without traces, with results over time.
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

/// Runs a scenario without moves and returns the evidence for its remedies: zones and curves at four times, and the
/// accesses of the first ten minutes.
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

/// Returns the error of an invalid scenario. `file` is its file name.
pub fn refusal(file: &str, text: &str) -> String {
    let built = ScenarioFile::parse(file, text).and_then(|f| f.build(vec![]));
    let refusal = built.err();
    refusal.expect("the scenario is refused").to_string()
}

/// Returns the results of a group.
pub fn group<'a>(result: &'a RunResult, kind: GroupKind, name: &str) -> &'a GroupSummary {
    let mut groups = result.groups.iter();
    let of = groups.find(|g| g.kind == kind && g.name == name);
    of.unwrap_or_else(|| panic!("no group {name}"))
}
