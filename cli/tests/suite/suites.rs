//! Scenarios of the benchmark of strategies.

use std::collections::BTreeSet;
use std::path::Path;

use sim::ScenarioFile;

#[test]
fn each_scenario_of_the_suite_runs_and_is_listed_in_the_table() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suites/decisions");
    let page = std::fs::read_to_string(dir.join("README.md")).unwrap();
    let mut rows = BTreeSet::new();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "suite" {
            continue; // settings of the suite, not a scenario
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let file = ScenarioFile::parse(name, &text).unwrap_or_else(|e| panic!("{e}"));
        let row = format!("| `{name}` | {} |", file.scenario.about);
        assert!(page.contains(&row), "no row begins with: {row}");
        assert!(rows.insert(row), "{name}");
        if !file.scenario.traces.is_empty() || !file.scenario.measurements.is_empty() {
            continue; // `terrace bench decisions` reads the trace files and builds these
        }
        let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
        let tiers = model.topology.tiers.len();
        assert!(
            model.volumes.len() >= 4 && (3..=5).contains(&tiers),
            "{name}"
        );
    }
    let words = std::fs::read_to_string(dir.join("suite.toml")).unwrap();
    let words: toml_edit::DocumentMut = words.parse().unwrap();
    let guards: Vec<&str> = words["guards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g.as_str().unwrap())
        .collect();
    let listed = [
        "converged",
        "days",
        "idle",
        "loose",
        "scan",
        "step-and-back",
    ];
    assert_eq!(guards, listed, "guards are fixed: see suite.toml");
    assert_eq!(
        page.lines().filter(|l| l.starts_with("| `")).count(),
        rows.len()
    );
}
