//! `terrace bench decisions` as a user meets it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{err, out, terrace};

fn suite() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/decisions");
    fs::create_dir(dir.path().join("s")).unwrap();
    for name in ["steady", "idle"] {
        let text = fs::read_to_string(from.join(format!("{name}.toml"))).unwrap();
        let shorter = text.replace("duration = \"30m\"", "duration = \"5m\"");
        assert_ne!(text, shorter);
        fs::write(dir.path().join(format!("s/{name}.toml")), shorter).unwrap();
    }
    let words =
        "compare = [\"terrace\", \"noop\", \"static\"]\n[fixed]\nidle = [\"class\", \"place\"]\n";
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
fn strategies_are_held_against_one_another_and_the_same_again() {
    let dir = suite();
    let run = |args: &[&str]| {
        let output = terrace(dir.path(), &[&ASKED, args].concat());
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let json = run(&["-o", "json", "--html", "page.html"]);
    let read: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["schema"], "terrace.bench.decisions/1");
    let scenarios = read["scenarios"].as_array().unwrap();
    assert_eq!(scenarios[0]["scenario"], "idle");
    for s in scenarios[0]["strategies"].as_array().unwrap() {
        assert_eq!(s["violation"], 0.0, "{}", s["strategy"]);
    }
    let steady = scenarios[1]["strategies"].as_array().unwrap();
    assert!(
        steady[1]["violation"].as_f64().unwrap() > 0.0,
        "noop leaves all in the wrong place"
    );
    assert!(scenarios[1]["hindsight"].as_f64() <= steady[0]["violation"].as_f64());
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
fn what_is_wrong_with_a_suite_is_named() {
    let dir = suite();
    let fails = |args: &[&str], what: &str| {
        let output = terrace(dir.path(), &[&ASKED, args].concat());
        assert!(!output.status.success());
        assert!(err(&output).contains(what), "{}", err(&output));
    };
    fails(&["--scenarios", "stedy"], "no scenario \"stedy\"");
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
    fs::write(
        dir.path().join("s/suite.toml"),
        "[fixed]\nidle = [\"clas\"]\n",
    )
    .unwrap();
    fails(&[], "suite.toml:2");
}
