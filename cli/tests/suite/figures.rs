//! The results page of the decisions benchmark agrees with the program: its tables, their data, and a sample of
//! repeated runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use decisions::{Figures, StrategyFigures};
use sim::ScenarioFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::run::{err, out, terrace};

const PAGE: &str = "docs/results/decisions.md";
const SUITE: &str = "docs/data/decisions-suite.json";
const RANDOM: &str = "docs/data/decisions-random.json";
const RIVALS: &str = "rivals-best.toml";
const STALE: &str = "the figures in docs/data are stale, bench/figures.sh runs them again";

/// Scenarios that are repeated: the fastest ones, some of them with many violations. They run under the strategy
/// `terrace` and under one that needs no measurements. The seed must be one of the seeds of the published figures.
const SCENARIOS: &str = "captured,flip-flop,step-swap,writes";
const STRATEGIES: &str = "terrace,static";
const SEED: u64 = 1;
/// Number of random arrays that are repeated, from the first one.
const ARRAYS: usize = 2;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> Figures {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Figures::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn page_of_decisions_shows_the_current_figures() {
    let printed = terrace(&root(), &["bench", "figures", SUITE, RANDOM]);
    assert!(printed.status.success(), "{}", err(&printed));
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (_, after) = page.split_once("<!-- decisions:begin -->\n").unwrap();
    let (block, _) = after.split_once("<!-- decisions:end -->\n").unwrap();
    let printed = out(&printed);
    let differ = |(a, b): &(&str, &str)| a != b;
    let lines = block.lines().zip(printed.lines()).find(differ);
    assert!(
        block == printed,
        "{PAGE} differs from {SUITE} and {RANDOM}: run bench/figures.sh --tables; first lines that differ: {lines:#?}"
    );
}

fn hash(text: &str) -> String {
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

fn names(figures: &Figures) -> BTreeSet<String> {
    let scenarios = figures.scenarios.iter();
    scenarios.map(|s| s.scenario.clone()).collect()
}

/// Skips scenarios whose traces are not in this repository.
#[test]
fn figures_match_the_hash_of_the_current_suite() {
    let rivals = fs::read_to_string(root().join("bench").join(RIVALS)).unwrap();
    let rivals = hash(&rivals);
    let mut now = BTreeMap::from([(RIVALS.to_owned(), rivals.clone())]);
    for entry in fs::read_dir(root().join("suites/decisions")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(scenario) = name.strip_suffix(".toml") else {
            continue;
        };
        let text = fs::read_to_string(&path).unwrap();
        if name == "suite.toml" {
            now.insert(name, hash(&text));
            continue;
        }
        let file = ScenarioFile::parse(&name, &text).unwrap();
        if file.scenario.requires.is_none() {
            now.insert(scenario.to_owned(), hash(&text));
        }
    }
    let suite = read(&root().join(SUITE));
    let changed: BTreeSet<&String> = suite
        .sources
        .keys()
        .chain(now.keys())
        .filter(|name| suite.sources.get(*name) != now.get(*name))
        .collect();
    assert!(
        changed.is_empty(),
        "{STALE}: {SUITE} was made with others of these: {changed:?}"
    );
    now.remove("suite.toml");
    now.remove(RIVALS);
    assert_eq!(names(&suite), now.into_keys().collect(), "{STALE}: {SUITE}");

    let mut random = read(&root().join(RANDOM));
    let with = random.sources.remove(RIVALS);
    assert_eq!(with, Some(rivals), "{STALE}: {RANDOM}: {RIVALS}");
    assert_eq!(
        names(&random),
        random.sources.keys().cloned().collect(),
        "{STALE}: {RANDOM}"
    );
    let commit = random.commit.as_deref().unwrap_or_default();
    let drawn = decisions::fresh_numbers(commit, random.sources.len()).unwrap();
    assert!(
        drawn.len() >= decisions::FRESH_MIN && random.seeds.len() >= 5,
        "{RANDOM}"
    );
    let drawn: BTreeSet<String> = drawn.iter().map(|n| format!("array-{n}")).collect();
    assert_eq!(
        names(&random),
        drawn,
        "{STALE}: {RANDOM}: others than {commit} draws"
    );
    for (name, kept) in &random.sources {
        let number = name.strip_prefix("array-").unwrap().parse().unwrap();
        let now = hash(&decisions::generate(number));
        assert_eq!(*kept, now, "{STALE}: {RANDOM}: {name} is another array");
    }
}

/// Returns V, excess, moves and bytes of one seed.
fn of_seed(run: &StrategyFigures, i: usize) -> ([f64; 2], [u64; 2]) {
    (
        [run.violation[i], run.excess[i]],
        [run.moves[i], run.bytes[i]],
    )
}

/// Runs the benchmark with `args` and compares every run with the stored figures.
fn run_again(args: &[&str], kept: &str) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (cells, figures) = (at("cells"), at("figures.json"));
    let asked = ["bench", "decisions", "--hindsight", "0"];
    let to = ["--out", &cells, "--figures", &figures];
    let run = terrace(&root(), &[&asked, args, &to].concat());
    assert!(run.status.success(), "{}", err(&run));
    let (now, kept_figures) = (read(Path::new(&figures)), read(&root().join(kept)));
    for scenario in &now.scenarios {
        let name = &scenario.scenario;
        let before = kept_figures.scenarios.iter().find(|s| s.scenario == *name);
        for run in &scenario.strategies {
            let what = format!("{kept}: {name} under {}", run.strategy);
            let before = before.and_then(|s| s.of(&run.strategy));
            let before = before.unwrap_or_else(|| panic!("{STALE}: {what} is not there"));
            for (i, seed) in now.seeds.iter().enumerate() {
                let at = kept_figures.seeds.iter().position(|s| s == seed);
                let at = at.unwrap_or_else(|| panic!("{STALE}: {kept}: no seed {seed}"));
                assert_eq!(
                    of_seed(run, i),
                    of_seed(before, at),
                    "{STALE}: {what}, seed {seed}: V, excess, moves and bytes are not what they were"
                );
            }
        }
    }
}

#[test]
fn runs_of_the_suite_reproduce_their_figures() {
    let seed = SEED.to_string();
    let args = ["--scenarios", SCENARIOS, "--seeds", &seed];
    run_again(&[&args[..], &["--strategies", STRATEGIES]].concat(), SUITE);
}

#[test]
fn runs_of_random_arrays_reproduce_their_figures() {
    let kept = read(&root().join(RANDOM));
    let first = kept.scenarios.iter().take(ARRAYS);
    let numbers = first.map(|s| s.scenario.strip_prefix("array-").unwrap());
    let (numbers, seed) = (numbers.collect::<Vec<_>>().join(","), SEED.to_string());
    let args = ["--generated", &numbers, "--seeds", &seed];
    run_again(&[&args[..], &["--strategies", STRATEGIES]].concat(), RANDOM);
}
