//! Checks of the documentation: its scenarios are valid, and its generated pages are current.

use std::fs;
use std::path::{Path, PathBuf};

use sim::ScenarioFile;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|e| e == "md") {
            out.push(path);
        }
    }
}

fn all_pages() -> Vec<PathBuf> {
    let mut out = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    pages(&root().join("docs"), &mut out);
    out.sort();
    out
}

#[test]
fn scenarios_in_the_documentation_are_valid() {
    let mut seen = 0;
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            if !block.starts_with("# scenario") {
                continue;
            }
            seen += 1;
            let name = page.display().to_string();
            let file = ScenarioFile::parse(&name, block).unwrap_or_else(|e| panic!("{e}"));
            if file.scenario.traces.is_empty() {
                file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
    assert!(seen >= 2, "the documentation shows scenarios");
}

#[test]
fn sweep_files_in_the_documentation_are_valid() {
    let page = root().join("docs/guides/sweeps.md");
    let text = fs::read_to_string(&page).unwrap();
    let blocks = text.split("```toml\n# sweep\n").skip(1);
    let blocks: Vec<&str> = blocks.map(|b| b.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "the guide shows a sweep file");
    for block in blocks {
        let (words, axes, _) = sim::sweep::parse_sweep("sweeps.md", block).unwrap();
        let path = root().join("examples").join(&words.scenario);
        let scenario = fs::read_to_string(path).unwrap();
        let base = ScenarioFile::parse(&words.scenario, &scenario).unwrap();
        let sweep = sim::sweep::Sweep::new(base, axes, words.strategies, vec![]).unwrap();
        assert!(sweep.points() > 1);
        for point in 0..sweep.points() {
            sweep.scenario(point, 1).unwrap().build(vec![]).unwrap();
        }
        for metric in &words.metrics {
            sim::sweep::Metric::parse(metric).unwrap();
        }
    }
}

#[test]
fn schemas_in_the_documentation_are_current() {
    for (name, schema, command) in [
        ("scenario", sim::scenario_schema(), "terrace config schema"),
        (
            "live",
            agent::config_schema(),
            "terrace config schema --live",
        ),
    ] {
        let path = format!("docs/reference/{name}.schema.json");
        let now = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let kept = fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(kept == now, "{path} is stale: {command} > {path}");
    }
}

#[test]
fn strategies_have_a_page_and_pages_are_in_the_summary() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for entry in planner::REGISTRY {
        let page = format!("reference/strategies/{}.md", entry.name);
        assert!(
            root().join("docs").join(&page).exists(),
            "{page} is missing"
        );
    }
    let mut all = Vec::new();
    pages(&root().join("docs"), &mut all);
    for page in all {
        let relative = page
            .strip_prefix(root().join("docs"))
            .unwrap()
            .display()
            .to_string();
        assert!(
            relative == "SUMMARY.md" || summary.contains(&relative),
            "{relative} is not in SUMMARY.md"
        );
    }
}

/// Links between pages lead to existing pages.
#[test]
fn links_point_to_existing_files() {
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|l| l.split(')').next()) {
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let target = page.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: {link}", page.display());
        }
    }
}

/// Files and directories that the reader of the tour creates.
const MADE: [&str; 3] = [
    "examples/terrace-array",
    "examples/terrace-state",
    "examples/tiers",
];

/// Returns the paths of this repository that a text mentions, such as `lab/sim/src/lib.rs`.
fn paths_named(text: &str) -> Vec<&str> {
    let in_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let words = text.split(|c: char| !in_path(c));
    let words = words.map(|w| w.trim_end_matches(['.', '/']));
    let here = |w: &&str| {
        let roots = [
            "core/",
            "live/",
            "lab/",
            "papers/",
            "test/",
            "cli/",
            "bench/",
            "examples/",
            "suites/",
            "packaging/",
        ];
        roots.iter().any(|root| w.starts_with(root))
    };
    words.filter(here).collect()
}

#[test]
fn paths_named_in_pages_exist() {
    let text = "see `lab/sim/src`, (bench/x.sh) or https://a.b/core/no and ./bench/no.";
    assert_eq!(paths_named(text), ["lab/sim/src", "bench/x.sh"]);
    let mut seen = 0;
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for path in paths_named(&text) {
            let made = MADE.iter().any(|made| path.starts_with(made));
            let is_there = made || root().join(path).exists();
            assert!(is_there, "{}: there is no {path}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "pages name files: {seen}");
}

/// Scripts that only other scripts call.
const NO_STEPS: [&str; 3] = ["cases.sh", "program.sh", "skip.sh"];

#[test]
fn bench_scripts_are_steps_of_ci() {
    let ci = |name| fs::read_to_string(root().join(".ci").join(name)).unwrap();
    let steps = ci("full") + &ci("background");
    for entry in fs::read_dir(root().join("bench")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".sh") && !NO_STEPS.contains(&name.as_str()) {
            assert!(steps.contains(&format!("bench/{name}")), "{name}");
        }
    }
}
