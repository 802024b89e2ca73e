//! Tests of `terrace bench decisions` as a user runs it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{err, out, terrace};

fn suite() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suites/decisions");
    fs::create_dir(dir.path().join("s")).unwrap();
    for name in ["steady", "idle"] {
        let text = fs::read_to_string(from.join(format!("{name}.toml"))).unwrap();
        let shorter = text.replace("duration = \"30m\"", "duration = \"5m\"");
        assert_ne!(text, shorter);
        fs::write(dir.path().join(format!("s/{name}.toml")), shorter).unwrap();
    }
    let words = "compare = [\"terrace\", \"noop\", \"static\"]\nguards = [\"idle\"]\n[fixed]\nidle = [\"class\", \"place\"]\n";
    fs::write(dir.path().join("s/suite.toml"), words).unwrap();
    dir
}

const ASKED: [&str; 8] = [
    "bench",
    "decisions",
    "--suite",
    "s",
    "--seeds",
    "1..2",
    "--hindsight",
    "3",
];

#[test]
fn bench_decisions_compares_strategies_and_is_reproducible() {
    let dir = suite();
    let run = |args: &[&str]| {
        let output = terrace(dir.path(), &[&ASKED, args].concat());
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let json = run(&["-o", "json", "--html", "page.html"]);
    let read: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["schema"], "terrace.bench.decisions/2");
    let scenarios = read["scenarios"].as_array().unwrap();
    assert_eq!(scenarios[0]["scenario"], "idle");
    assert_eq!(
        (&scenarios[0]["guard"], &scenarios[1]["guard"]),
        (&true.into(), &false.into())
    );
    // `static` gains nothing from its moves in this scenario.
    for s in scenarios[0]["strategies"].as_array().unwrap() {
        let violates = s["violation"].as_f64() > Some(0.0);
        assert_eq!(violates, s["strategy"] == "static", "{s}");
    }
    let steady = scenarios[1]["strategies"].as_array().unwrap();
    assert!(
        steady[1]["violation"].as_f64().unwrap() > 0.0,
        "noop leaves all in the wrong place"
    );
    let least = steady[1..].iter().map(|s| s["violation"].as_f64().unwrap());
    assert!(scenarios[1]["hindsight"].as_f64().unwrap() <= least.fold(f64::MAX, f64::min));
    let noop = &read["totals"][1]["harm_without_objective"];
    assert_eq!(noop["mean"]["worst"], 1.0, "{noop}");
    assert_eq!(json, run(&["-o", "json"]), "what is kept says the same");
    assert_eq!(json, run(&["-o", "json", "--again", "terrace,noop"]));
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("steady") && !page.contains("http://"));
    assert!(run(&[]).contains("All scenarios"));
    let other = terrace(
        dir.path(),
        &["bench", "decisions", "--generated", "3", "--save", "g"],
    );
    assert!(other.status.success(), "{}", err(&other));
    assert!(
        terrace(dir.path(), &["sim", "check", "g/array-3-1.toml"])
            .status
            .success()
            || terrace(dir.path(), &["config", "check", "g/array-3-1.toml"])
                .status
                .success()
    );
}

#[test]
fn invalid_suite_is_refused_with_the_fault() {
    let dir = suite();
    let fails = |args: &[&str], what: &str| {
        let output = terrace(dir.path(), &[&ASKED, args].concat());
        assert!(!output.status.success());
        assert!(err(&output).contains(what), "{}", err(&output));
    };
    fails(&["--scenarios", "stedy"], "no scenario \"stedy\"");
    fails(
        &["--known", "h.json"],
        "--hindsight 3: plans are kept in --known only from 300 candidates on",
    );
    fails(
        &["--again", "edt"],
        "--again edt: no strategy of this comparison has this name",
    );
    fs::write(
        dir.path().join("s/suite.toml"),
        "[fixed]\nnope = [\"class\"]\n",
    )
    .unwrap();
    fails(&[], "fixed.nope: no scenario has this name");
    fs::write(dir.path().join("s/suite.toml"), "guards = [\"nope\"]\n").unwrap();
    fails(&[], "guards.nope: no scenario has this name");
    fs::write(
        dir.path().join("s/suite.toml"),
        "[fixed]\nidle = [\"clas\"]\n",
    )
    .unwrap();
    fails(&[], "suite.toml:2");
}

/// Full hash of a commit.
const HASH: &str = "9bb2e4d3c51968b1c45e87c7b2b94e23a0fd1426";

#[test]
fn generated_arrays_follow_from_the_commit_hash() {
    let dir = tempfile::tempdir().unwrap();
    let drawn = |to: &str, args: &[&str]| {
        let args = [&["bench", "decisions", "--seeds", "1", "--save", to], args].concat();
        let output = terrace(dir.path(), &args);
        assert!(output.status.success(), "{}", err(&output));
        let entries = fs::read_dir(dir.path().join(to)).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let fresh = drawn("a", &["--fresh", HASH]);
    assert_eq!(fresh.len(), 40);
    assert_eq!(fresh, drawn("b", &["--fresh", &HASH.to_uppercase()]));
    let more = drawn("c", &["--fresh", HASH, "--arrays", "41"]);
    assert_eq!(
        fresh,
        more.iter()
            .filter(|n| fresh.contains(n))
            .cloned()
            .collect::<Vec<_>>()
    );
    let fails = |args: &[&str], what: &str| {
        let output = terrace(dir.path(), &[&["bench", "decisions"], args].concat());
        assert!(!output.status.success());
        assert!(err(&output).contains(what), "{}", err(&output));
    };
    fails(
        &["--fresh", HASH, "--arrays", "39"],
        "--arrays 39: at least 40 are needed",
    );
    // The directory is not in a repository.
    fails(&["--fresh", "9bb2e4d3"], "give the full hash");
}

#[test]
fn plans_of_a_frozen_version_are_stored_once_and_used_as_hindsight() {
    let dir = suite();
    let common = [
        "bench",
        "decisions",
        "--suite",
        "s",
        "--seeds",
        "1",
        "--known",
        "h.json",
    ];
    let run = |args: &[&str]| terrace(dir.path(), &[&common, args].concat());
    let frozen = run(&["--strategies", "static", "--freeze", "static at a0fd1426"]);
    assert!(frozen.status.success(), "{}", err(&frozen));
    let text = fs::read_to_string(dir.path().join("h.json")).unwrap();
    assert!(
        text.contains("static at a0fd1426") && text.lines().count() == 3,
        "{text}"
    );
    let again = run(&["--strategies", "static", "--freeze", "static at a0fd1426"]);
    assert!(
        err(&again).contains("frozen plans do not change"),
        "{}",
        err(&again)
    );
    let other = run(&["--strategies", "static", "--freeze", "another"]);
    assert!(
        err(&other).contains("has plans of static at a0fd1426"),
        "{}",
        err(&other)
    );
    let compared = run(&["--strategies", "edt,noop", "-o", "json"]);
    assert!(compared.status.success(), "{}", err(&compared));
    let read: Value = serde_json::from_str(&out(&compared)).unwrap();
    assert!(
        read["scenarios"][1]["hindsight"].is_null(),
        "nobody has searched"
    );
    assert_eq!(text, fs::read_to_string(dir.path().join("h.json")).unwrap());
    // The idle scenario has no violation without a move, so the search ends at once.
    let idle = ["--scenarios", "idle", "--strategies", "edt,noop"];
    let searched = run(&[&idle[..], &["--hindsight", "300"]].concat());
    assert!(searched.status.success(), "{}", err(&searched));
    let found = fs::read_to_string(dir.path().join("h.json")).unwrap();
    assert!(
        found != text && found.contains("static at a0fd1426"),
        "{found}"
    );
    let compared = run(&[&idle[..], &["-o", "json"]].concat());
    let read: Value = serde_json::from_str(&out(&compared)).unwrap();
    assert_eq!(read["scenarios"][0]["hindsight"], 0.0);
    // A changed scenario has no known plans.
    let scenario = dir.path().join("s/steady.toml");
    let changed = fs::read_to_string(&scenario)
        .unwrap()
        .replace("900 IOPS", "901 IOPS");
    fs::write(&scenario, changed).unwrap();
    let stale = run(&["--strategies", "edt,noop"]);
    assert!(
        err(&stale).contains("steady, seed 1: the scenario has changed"),
        "{}",
        err(&stale)
    );
}

#[test]
fn bench_moves_omits_one_move_at_a_time() {
    let dir = suite();
    let args = [
        "bench",
        "moves",
        "--suite",
        "s",
        "--scenarios",
        "steady",
        "--seeds",
        "1..2",
    ];
    let run = |more: &[&str]| {
        let output = terrace(dir.path(), &[&args, more].concat());
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let static_moves = ["--strategy", "static", "--sample", "4"];
    let read: Value =
        serde_json::from_str(&run(&[&static_moves[..], &["-o", "json"]].concat())).unwrap();
    assert_eq!(read["schema"], "terrace.bench.moves/1");
    let sample = read["sample"].as_array().unwrap();
    assert_eq!(sample.len(), 4);
    for m in sample {
        let ratio = m["mean_ratio"].as_f64().unwrap();
        assert_eq!(m["harms"].as_bool().unwrap(), ratio < 0.9, "{m}");
        assert!(m["from"] != m["to"] && m["scenario"] == "steady", "{m}");
    }
    let text = run(&static_moves);
    assert!(
        text.contains("of 4 moves of static harm a volume"),
        "{text}"
    );
}
