//! The commands that ask a controller, where there is none; `why` between a controller and a record; live configurations;
//! decisions that are made again. What controllers answer is rendered in `report`, and tested there.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs it without a terminal, and with no controller named.
fn terrace(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(args)
        .current_dir(dir)
        .env_remove("TERRACE_CONTROLLER")
        .env_remove("TERRACE_TOKEN_FILE")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A command that fails with this exit code; what it said. It prints nothing.
fn fails(dir: &Path, args: &[&str], code: i32) -> String {
    let output = terrace(dir, args);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}",
        err(&output)
    );
    assert_eq!(out(&output), "", "{args:?}");
    err(&output)
}

/// Every command that asks a controller.
const ASKING: [&[&str]; 24] = [
    &["status"],
    &["top"],
    &["plan"],
    &["plan", "7", "--host", "alpha", "--explain"],
    &["diff", "7"],
    &["diff", "7", "8"],
    &["apply", "7", "--yes"],
    &["apply", "7", "--only", "1", "--only", "2,3", "--yes"],
    &["reject", "7"],
    &["pause"],
    &["resume"],
    &["reload"],
    &["mode"],
    &["mode", "latency", "auto"],
    &["events", "--follow"],
    &["outcomes"],
    &["job", "list"],
    &["job", "watch"],
    &["job", "cancel", "3"],
    &["volume", "pin", "db", "fast"],
    &["volume", "pin", "db", "--none"],
    &["volume", "history", "db", "--last", "2h"],
    &["tier", "drain", "fast"],
    &["export", "facts", "--plan", "7"],
];

#[test]
fn where_nobody_answers_that_is_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for args in ASKING {
        let args = [args, &["--controller", "unix:none.sock"]].concat();
        let text = fails(dir.path(), &args, 1);
        assert!(
            text.starts_with(
                "error: nobody answers on unix:none.sock: is `terrace serve` running?"
            ),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn the_socket_here_is_asked_before_that_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let text = fails(dir.path(), &["status"], 1);
    assert!(text.contains("unix:/run/terrace/controller.sock"), "{text}");
    fs::create_dir(dir.path().join("terrace-state")).unwrap();
    leave_socket(dir.path());
    let text = fails(dir.path(), &["status"], 1);
    assert!(
        text.contains("on unix:terrace-state/controller.sock"),
        "{text}"
    );
    // The environment goes before both, the command line before the environment.
    let with = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(args)
            .current_dir(dir.path())
            .env("TERRACE_CONTROLLER", "unix:env.sock")
            .output();
        err(&output.unwrap())
    };
    assert!(with(&["status"]).contains("on unix:env.sock"));
    let text = with(&["status", "--controller", "unix:given.sock"]);
    assert!(text.contains("on unix:given.sock"), "{text}");
}

/// A socket that outlasts whoever listened on it.
fn leave_socket(dir: &Path) {
    drop(UnixListener::bind(dir.join("terrace-state/controller.sock")).unwrap());
}

#[test]
fn wrong_usage_is_exit_code_2_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&["apply", "7"][..], "no terminal to ask on whether plan 7"),
        (&["apply", "7"], "say --yes"),
        (&["apply"], "<PLAN>"),
        (&["mode", "latency"], "<MODE>"),
        (&["mode", "latency", "on"], "recommend"),
        (&["mode", "speed", "auto"], "latency"),
        (&["volume", "pin", "db"], "<TIER>"),
        (&["volume", "pin", "db", "fast", "--none"], "--none"),
        (&["top", "-n", "0"], "0"),
        (&["top", "--interval", "1ms"], "at least 200ms"),
        (&["events", "--limit", "0"], "from 1 to 1000"),
        (&["job", "list", "--limit", "5000"], "from 1 to 1000"),
        (
            &["status", "--controller", "http://a:1"],
            "unix:PATH or https://HOST:PORT",
        ),
        (&["status", "--fingerprint", "sha256:12"], "64 hexadecimal"),
        (
            &["status", "--ca", "x", "--fingerprint", &"0".repeat(64)],
            "cannot be used with",
        ),
    ] {
        let text = fails(dir.path(), args, 2);
        assert!(text.contains(said), "{args:?}: {text}");
    }
}

#[test]
fn tls_needs_something_to_trust_and_a_token_that_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let https = ["--controller", "https://127.0.0.1:1"];
    let text = fails(dir.path(), &[&["status"][..], &https].concat(), 1);
    assert!(text.contains("which certificate"), "{text}");
    let here = ["status", "--controller", "unix:none.sock", "--token-file"];
    let text = fails(dir.path(), &[&here[..], &["none"]].concat(), 1);
    assert!(text.contains("cannot read none"), "{text}");
    fs::write(dir.path().join("token"), "two words\n").unwrap();
    let text = fails(dir.path(), &[&here[..], &["token"]].concat(), 1);
    assert!(text.contains("in token: the token is not one"), "{text}");
    assert!(!text.contains("two words"), "secrets are not printed");
    fs::write(dir.path().join("token"), "secret\n").unwrap();
    let text = fails(dir.path(), &[&here[..], &["token"]].concat(), 1);
    assert!(text.contains("nobody answers"), "{text}");
}

const SCENARIO: &str = include_str!("../../report/tests/support/recorded.toml");

const LIVE: &str = r#"strategy = "edt"
window = "5s"

[array]
dir = "terrace-array"

[[tiers]]
name = "fast"
preset = "pm953"

[[classes]]
name = "gold"
latency = "1ms"

[policy]
hold = 3
pins = { "db.main" = "fast" }

[modes]
space = "auto"
"#;

#[test]
fn reasons_are_from_a_controller_or_from_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let text = SCENARIO.replace("strategy = \"noop\"", "duration = \"40s\"");
    let text = &text[..text.find("[recorded]").unwrap()];
    let clients = "[[clients]]\nvolume = \"small\"\nhabits = { outstanding = 1 }\n";
    fs::write(dir.path().join("s.toml"), format!("{text}{clients}")).unwrap();
    let run = ["sim", "run", "s.toml", "--strategy", "static"];
    let run = terrace(dir.path(), &run);
    assert!(run.status.success(), "{}", err(&run));
    let recorded = |args: &[&str]| {
        let output = terrace(dir.path(), args);
        assert!(output.status.success(), "{args:?}: {}", err(&output));
        assert!(out(&output).contains("small"), "{}", out(&output));
        let said = err(&output);
        assert!(
            said.contains("from the record in terrace-out/s, under static"),
            "{said}"
        );
        said
    };
    recorded(&["why", "small"]);
    // A controller that was asked for is asked, and nobody else.
    let nobody = ["--controller", "unix:none.sock"];
    let text = fails(dir.path(), &[&["why", "small"][..], &nobody].concat(), 1);
    assert!(text.contains("nobody answers"), "{text}");
    let not = ["why-not", "small", "--tier", "slow"];
    fails(dir.path(), &[&not[..], &nobody].concat(), 1);
    // Options about records are about records.
    recorded(&[&["why", "small", "--run", "terrace-out/s"][..], &nobody].concat());
    // A socket that nobody listens on any more is said, and is no reason to stop.
    fs::create_dir(dir.path().join("terrace-state")).unwrap();
    leave_socket(dir.path());
    let said = recorded(&not);
    assert!(
        said.contains("nobody answers on unix:terrace-state/controller.sock"),
        "{said}"
    );
    let json = ["why", "small", "--run", "terrace-out/s", "-o", "json"];
    let text = fails(dir.path(), &json, 2);
    assert!(text.contains("answers of a controller"), "{text}");
}

#[test]
fn a_decision_is_made_again_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f.toml"), SCENARIO).unwrap();
    let file = sim::ScenarioFile::parse("f.toml", SCENARIO).unwrap();
    let (_, decision) = file.decide_again().unwrap();
    assert!(!decision.plan.moves.is_empty());
    let json = terrace(dir.path(), &["sim", "plan", "f.toml", "-o", "json"]);
    assert!(json.status.success(), "{}", err(&json));
    let plan = serde_json::to_string_pretty(&decision.plan).unwrap();
    assert_eq!(out(&json), plan + "\n");
    assert_eq!(err(&json), "");
    let table = terrace(dir.path(), &["sim", "plan", "f.toml"]);
    for part in ["fast → slow", "is being emptied", "pinned to tier fast"] {
        assert!(out(&table).contains(part), "{part}: {}", out(&table));
    }
    let none = &SCENARIO[..SCENARIO.find("[recorded]").unwrap()];
    fs::write(dir.path().join("n.toml"), none).unwrap();
    let text = fails(dir.path(), &["sim", "plan", "n.toml"], 1);
    assert!(text.contains("only an export of a live array"), "{text}");
}

#[test]
fn live_configurations_are_checked_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(dir.path().join("live.toml"), text).unwrap();
    write(LIVE);
    let check = ["config", "check", "live.toml"];
    let output = terrace(dir.path(), &check);
    assert_eq!(
        out(&output),
        "live.toml: ok: live configuration: strategy edt, array terrace-array, 1 tiers, 1 classes, window 5s\n",
        "{}",
        err(&output)
    );
    write(&LIVE.replace("hold", "hodl"));
    assert_eq!(
        fails(dir.path(), &check, 1),
        "error: live.toml:16: policy.hodl: unknown key, did you mean \"hold\"?\n"
    );
    write(LIVE);
    let shown = terrace(dir.path(), &["config", "show", "live.toml", "--origin"]);
    let text = out(&shown);
    for line in [
        "strategy = \"edt\"  # live.toml:1",
        "seed = 1  # default",
        "hold = 3  # live.toml:16",
        "\"db.main\" = \"fast\"  # live.toml:17",
        "margin = 0.05  # default",
        "monitor_epoch = \"1m\"  # default",
        "space = \"auto\"  # live.toml:20",
        "drain = \"recommend\"  # default",
        "preset = \"pm953\"  # live.toml:9",
        "socket = \"terrace-state/controller.sock\"  # default",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    // What is shown is a configuration that comes to the same.
    write(&text);
    let again = terrace(dir.path(), &["config", "show", "live.toml"]);
    write(LIVE);
    let plain = terrace(dir.path(), &["config", "show", "live.toml"]);
    assert!(plain.status.success() && !out(&plain).contains('#'));
    assert_eq!(out(&again), out(&plain));
    fails(dir.path(), &["config", "show", "none.toml"], 1);
}

#[test]
fn schemas_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let schema = |args: &[&str]| -> Value {
        serde_json::from_str(&out(&terrace(dir.path(), args))).unwrap()
    };
    let live = schema(&["config", "schema", "--live"]);
    assert!(live["properties"]["controller"].is_object());
    assert!(live["properties"]["volumes"].is_null());
    let scenario = schema(&["config", "schema"]);
    assert!(scenario["properties"]["volumes"].is_object());
}
