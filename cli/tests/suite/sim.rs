//! The binary as a user runs it: outputs, errors, exit codes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{err, out, terrace};

const SCENARIO: &str = r#"
duration = "40s"
window = "5s"

[[tiers]]
name = "fast"
preset = "pm953"
capacity = "4 GiB"

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "8 GiB"

[[volumes]]
name = "db"
size = "1 GiB"
tier = "slow"

[[volumes]]
name = "logs"
size = "2 GiB"

[[clients]]
volume = "db"
habits = { outstanding = 4 }

[policy]
monitor_epoch = "5s"
migration_epoch = "10s"
"#;

fn with(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.toml"), text).unwrap();
    dir
}

/// Returns the single error of a scenario. Checks for exit code 1 and an empty standard output.
fn error_of(text: &str) -> String {
    let dir = with(text);
    let output = terrace(dir.path(), &["sim", "run", "s.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert_eq!(out(&output), "");
    err(&output).trim_end().to_string()
}

#[test]
fn identical_runs_give_identical_json_with_a_schema() {
    let dir = with(SCENARIO);
    let a = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "s.toml", "-o", "json"],
    );
    let b = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "s.toml", "-o", "json"],
    );
    assert!(a.status.success(), "{}", err(&a));
    assert_eq!(a.stdout, b.stdout);
    let json: Value = serde_json::from_slice(&a.stdout).unwrap();
    assert_eq!(json["schema"], "terrace.sim.results/1");
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    assert_eq!(json["runs"][0]["schema"], "terrace.sim.run/1");
    assert!(json["runs"][0]["groups"][0]["all"]["ios"].as_u64().unwrap() > 10_000);
    let seeded = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "--seed", "9", "-o", "json"],
    );
    assert!(out(&seeded).contains("\"seed\": 9"));
}

/// Checks that `why` shows the parts of the scores for strategies with scores, and the criteria for the others.
fn check_score_parts(dir: &Path) {
    let why = |strategy: &str, form: &[&str]| {
        let asked = terrace(
            dir,
            &[&["why", "db", "--strategy", strategy], form].concat(),
        );
        assert!(asked.status.success(), "{}", err(&asked));
        out(&asked)
    };
    let data = |strategy: &str| -> serde_json::Value {
        let data: serde_json::Value =
            serde_json::from_str(&why(strategy, &["-o", "json"])).unwrap();
        data["decisions"].as_array().unwrap().last().unwrap()["report"].clone()
    };
    for (strategy, formula, column) in [
        ("autotiering", "match", "move cost"),
        ("edt", "price", "tier price $"),
    ] {
        let text = why(strategy, &[]);
        for words in ["parts of the scores", "score = ", column] {
            assert!(text.contains(words), "{strategy} {words}\n{text}");
        }
        let report = data(strategy);
        let options = report["options"].as_array().unwrap();
        assert_eq!(options.len(), 2);
        for option in options {
            assert_eq!(option["parts"]["formula"], formula, "{option:#}");
            let parts: model::ScoreParts = serde_json::from_value(option["parts"].clone()).unwrap();
            assert_eq!(Some(parts.score()), option["score"].as_f64());
        }
    }
    let text = why("idt", &[]);
    assert!(!text.contains("parts of the scores"), "{text}");
    let report = data("idt");
    assert!(report["options"][0].get("parts").is_none(), "{report:#}");
    assert!(report["evidence"]["iops"].is_number(), "{report:#}");
}

#[test]
fn compare_explains_why_the_optimum_is_unknown() {
    let compare = |text: &str| {
        let dir = with(text);
        let what = ["sim", "compare", "s.toml", "--strategies", "noop,idt"];
        let output = terrace(dir.path(), &what);
        assert!(output.status.success(), "{}", err(&output));
        (
            out(&output).contains("best possible"),
            err(&output).to_string(),
        )
    };
    let (known, said) = compare(SCENARIO);
    assert!(known && !said.contains("best possible"), "{said}");
    let (known, said) = compare(&format!("{SCENARIO}[cache]\nsize = \"64 MiB\"\n"));
    let why = "s.toml: the best possible result is unknown: [cache] serves";
    assert!(!known && said.contains(why), "{said}");
}

#[test]
fn compare_writes_records_and_explains_decisions() {
    let dir = with(SCENARIO);
    let output = terrace(
        dir.path(),
        &["sim", "compare", "s.toml", "--report", "r.html"],
    );
    assert!(output.status.success(), "{}", err(&output));
    for strategy in ["noop", "static", "idt", "edt", "autotiering", "terrace"] {
        assert!(out(&output).contains(strategy));
    }
    let page = fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("autotiering"));
    let manifest = fs::read_to_string(dir.path().join("terrace-out/s/manifest.json")).unwrap();
    assert!(manifest.contains("scenario_xxh3"));
    let why = terrace(dir.path(), &["why", "db"]);
    assert!(
        why.status.success() && out(&why).contains("db"),
        "{}",
        err(&why)
    );
    let not = terrace(
        dir.path(),
        &["why-not", "logs", "--tier", "fast", "--strategy", "idt"],
    );
    assert!(
        not.status.success() && out(&not).contains("fast"),
        "{}",
        err(&not)
    );
    check_score_parts(dir.path());
    let typo = terrace(dir.path(), &["why", "bd"]);
    assert_eq!(typo.status.code(), Some(1));
    assert!(err(&typo).contains("did you mean"), "{}", err(&typo));
    let csv = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "-o", "csv", "--no-record"],
    );
    assert!(
        out(&csv).starts_with("strategy,kind,name,direction,"),
        "{}",
        out(&csv)
    );
}

#[test]
fn faults_name_file_line_key_and_reason() {
    let e = error_of(&SCENARIO.replace("capacity = \"4 GiB\"", "capactiy = \"4 GiB\""));
    assert_eq!(
        e,
        "error: s.toml:8: tiers[0].capactiy: unknown key, did you mean \"capacity\"?"
    );
    let e = error_of(&SCENARIO.replace("size = \"2 GiB\"", "size = \"9 GiB\""));
    assert!(
        e.contains(
            "s.toml:22: volumes[1].size: volume \"logs\" of 9 GiB is larger than every device"
        ),
        "{e}"
    );
    let e = error_of(&SCENARIO.replace("preset = \"pm953\"", "preset = \"pm935\""));
    assert!(
        e.contains("s.toml:7: tiers[0].preset: unknown device \"pm935\", did you mean \"pm953\"?"),
        "{e}"
    );
    let e = error_of(&SCENARIO.replace("tier = \"slow\"", "tier = \"slwo\""));
    assert!(
        e.contains("volumes[0].tier: unknown name \"slwo\", did you mean \"slow\"?"),
        "{e}"
    );
    let e = error_of(&SCENARIO.replace("\"40s\"", "40"));
    assert!(
        e.contains("s.toml:2: ") && e.contains("with its unit"),
        "{e}"
    );
    let e = error_of(&format!("strategy = \"autotier\"\n{SCENARIO}"));
    assert!(
        e.contains(
            "s.toml:1: strategy: unknown strategy \"autotier\", did you mean \"autotiering\"?"
        ),
        "{e}"
    );
    let e = error_of(&format!(
        "{SCENARIO}[strategies.autotiering]\naging = 3.0\n"
    ));
    assert!(e.contains("strategies.autotiering.aging: must be"), "{e}");
    let e = error_of(&format!("{SCENARIO}[strategies.noop]\nfoo = 1\n"));
    assert!(e.contains("strategies.noop.foo: unknown key"), "{e}");
    let e = error_of(&format!("name = \"latest\"\n{SCENARIO}"));
    assert!(
        e.contains("name: \"latest\" cannot name a directory"),
        "{e}"
    );
    let e = error_of(&format!(
        "extent = \"4 KiB\"\n{}",
        SCENARIO
            .replace("\"8 GiB\"", "\"4000 TiB\"")
            .replace("\"2 GiB\"", "\"2000 TiB\"")
    ));
    assert!(
        e.contains("extent: ") && e.contains("use larger extents"),
        "{e}"
    );
    let e = error_of(&SCENARIO.replace("[policy]", "[policy]\nconcurrent_moves = 0"));
    assert!(e.contains("concurrent_moves: must be above 0"), "{e}");
    let e = error_of(&SCENARIO.replace(
        "[policy]",
        "[policy]\naffinity = [{ kind = \"same-tier\", volumes = [\"db\", \"db\"] }]",
    ));
    assert!(e.contains("at least two different volumes"), "{e}");
    let e = error_of(&SCENARIO.replace("migration_epoch = \"10s\"", "migration_epoch = \"7s\""));
    assert!(
        e.contains("policy.migration_epoch: 7s is not a multiple"),
        "{e}"
    );
    let e = error_of(&SCENARIO.replace("outstanding = 4", "outstanding = 0"));
    assert!(
        e.contains("clients[0].habits.outstanding: 0 is not between 1 and"),
        "{e}"
    );
    let e = error_of(&format!(
        "{SCENARIO}[[traces]]\nfile = \"missing.csv\"\nvolume = \"db\"\n"
    ));
    assert!(
        e.contains("traces[0].file") && e.contains("missing.csv"),
        "{e}"
    );
}

#[test]
fn corrupt_trace_is_refused_with_its_position() {
    let text = format!("{SCENARIO}[[traces]]\nfile = \"t.csv\"\nvolume = \"db\"\n");
    let dir = with(&text);
    let rows =
        "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n0,a,R,0,4096,\n5,a,W,zero,4096,\n";
    fs::write(dir.path().join("t.csv"), rows).unwrap();
    let output = terrace(dir.path(), &["sim", "run", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let message = err(&output);
    assert!(
        message.contains("t.csv") && message.contains(":3") && message.contains("offset"),
        "{message}"
    );
    // A native file with one changed byte.
    let generated = terrace(
        dir.path(),
        &[
            "trace",
            "generate",
            "t.trc",
            "--preset",
            "jesd",
            "--duration",
            "1s",
        ],
    );
    assert!(generated.status.success(), "{}", err(&generated));
    let mut bytes = fs::read(dir.path().join("t.trc")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.path().join("t.trc"), bytes).unwrap();
    fs::write(dir.path().join("s.toml"), text.replace("t.csv", "t.trc")).unwrap();
    let output = terrace(dir.path(), &["sim", "run", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("checksum"), "{}", err(&output));
}

#[test]
fn trace_larger_than_its_volume_is_refused() {
    let text = format!("{SCENARIO}[[traces]]\nfile = \"t.csv\"\nvolume = \"db\"\n");
    let dir = with(&text);
    let rows = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n0,a,R,1073741824,4096,\n";
    fs::write(dir.path().join("t.csv"), rows).unwrap();
    let output = terrace(dir.path(), &["sim", "run", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let message = err(&output);
    assert!(
        message.contains("traces[0].volume: the trace reaches byte 1073745920"),
        "{message}"
    );
}

#[test]
fn wrong_usage_exits_with_code_2() {
    let dir = with(SCENARIO);
    assert_eq!(terrace(dir.path(), &["sim", "run"]).status.code(), Some(2));
    assert_eq!(terrace(dir.path(), &["sim", "fly"]).status.code(), Some(2));
    let lost = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "--report", "nowhere/r.html"],
    );
    assert_eq!(lost.status.code(), Some(1));
    assert!(
        err(&lost).contains("directory nowhere does not exist"),
        "{}",
        err(&lost)
    );
    let none = terrace(dir.path(), &["why", "db"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(err(&none).contains("no run is recorded"), "{}", err(&none));
}

#[test]
fn generated_traces_can_be_replayed() {
    let dir = with(SCENARIO);
    let args = [
        "trace",
        "generate",
        "g.trc",
        "--preset",
        "sync-read,jesd",
        "--volume-size",
        "1 GiB",
        "--duration",
        "30s",
    ];
    let output = terrace(dir.path(), &args);
    assert!(output.status.success(), "{}", err(&output));
    let volumes =
        "[[traces]]\nfile = \"g.trc\"\nvolumes = { sync-read = \"db\", jesd = \"logs\" }\n";
    let start = SCENARIO.find("[[clients]]").unwrap();
    let end = SCENARIO.find("[policy]").unwrap();
    let text = format!("{}{}{volumes}", &SCENARIO[..start], &SCENARIO[end..]);
    fs::write(dir.path().join("s.toml"), text).unwrap();
    let output = terrace(dir.path(), &["sim", "run", "s.toml", "-o", "json"]);
    assert!(output.status.success(), "{}", err(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ios = json["runs"][0]["groups"][0]["all"]["ios"].as_f64().unwrap();
    assert!((ios / (30.0 * 24_950.0) - 1.0).abs() < 0.05, "{ios}");
}

/// The repository's own scenarios and live configurations are valid. Files that a live manager has left next to them
/// are ignored.
#[test]
fn examples_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut args = vec!["config".to_string(), "check".to_string()];
    for entry in fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            args.push(path.display().to_string());
        }
    }
    assert!(args.len() > 5);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = terrace(&root, &args);
    assert!(output.status.success(), "{}", err(&output));
}
