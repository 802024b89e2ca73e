//! Commands that need a controller, run without one; `why` with a controller and with a record; live configurations;
//! repeated decisions. The `report` crate renders and tests the responses of controllers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::run::{err, out};

/// Runs the program without a terminal and without a configured controller.
fn terrace(dir: &Path, args: &[&str]) -> Output {
    terrace_with(dir, args, &[])
}

/// Like [`terrace`], with additional environment variables.
fn terrace_with(dir: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(args)
        .current_dir(dir)
        .env_remove("TERRACE_CONTROLLER")
        .env_remove("TERRACE_TOKEN_FILE")
        .env_remove("TERRACE_FINGERPRINT")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

/// Runs a command that must fail with this exit code and print nothing; returns its standard error.
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

/// Every command that sends a request to a controller.
const ASKING: [&[&str]; 25] = [
    &["status"],
    &["top"],
    &["plan"],
    &["plan", "7", "--host", "alpha", "--explain"],
    &["diff", "7"],
    &["diff", "7", "8"],
    &["apply", "7", "--yes"],
    &["apply", "7", "--only", "1", "--only", "2,3", "--yes"],
    &["reject", "7"],
    &["place", "--size", "1G", "--class", "gold", "--like", "db"],
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
fn unreachable_controller_error_suggests_terrace_serve() {
    let dir = tempfile::tempdir().unwrap();
    for args in ASKING {
        let args = [args, &["--controller", "unix:none.sock"]].concat();
        let text = fails(dir.path(), &args, 1);
        assert!(
            text.starts_with(
                "error: no controller answers on unix:none.sock: is `terrace serve` running?"
            ),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn local_socket_takes_precedence_over_the_system_socket() {
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
    // The environment overrides both default sockets; the command line overrides the environment.
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

/// Leaves a socket file without a listener.
fn leave_socket(dir: &Path) {
    drop(UnixListener::bind(dir.join("terrace-state/controller.sock")).unwrap());
}

#[test]
fn wrong_usage_exits_with_code_2_and_a_message() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (
            &["apply", "7"][..],
            "confirmation of plan 7 needs a terminal",
        ),
        (&["apply", "7"], "add --yes"),
        (&["apply"], "<PLAN>"),
        (&["mode", "latency"], "<MODE>"),
        (&["mode", "latency", "on"], "recommend"),
        (&["mode", "speed", "auto"], "latency"),
        (&["volume", "pin", "db"], "<TIER>"),
        (&["place", "--size", "1G"], "--class"),
        (&["place", "--size", "1", "--class", "gold"], "has no unit"),
        (
            &[
                "volume", "create", "db", "--size", "1G", "--tier", "fast", "--like", "db",
            ],
            "cannot be used with",
        ),
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
fn volume_create_without_tier_or_controller_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let create = ["volume", "create", "db", "--size", "1G"];
    let text = fails(dir.path(), &create, 1);
    assert!(
        text.starts_with("error: give --tier: no controller is available to recommend a tier for volume \"db\": no controller answers on unix:/run/terrace/controller.sock"),
        "{text}"
    );
    let named = [&create[..], &["--controller", "unix:none.sock"]].concat();
    let text = fails(dir.path(), &named, 1);
    assert!(text.contains("on unix:none.sock"), "{text}");
    assert!(text.contains("give --tier"), "{text}");
}

#[test]
fn tls_requires_trusted_certificate_and_valid_token() {
    let dir = tempfile::tempdir().unwrap();
    let https = ["--controller", "https://127.0.0.1:1"];
    let text = fails(dir.path(), &[&["status"][..], &https].concat(), 1);
    assert!(text.contains("no certificate"), "{text}");
    let here = ["status", "--controller", "unix:none.sock", "--token-file"];
    let text = fails(dir.path(), &[&here[..], &["none"]].concat(), 1);
    assert!(text.contains("cannot read none"), "{text}");
    let file = dir.path().join("token");
    fs::write(&file, "two words\n").unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let text = fails(dir.path(), &[&here[..], &["token"]].concat(), 1);
    assert!(text.contains("chmod 600 token"), "{text}");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let text = fails(dir.path(), &[&here[..], &["token"]].concat(), 1);
    assert!(text.contains("in token: invalid token"), "{text}");
    assert!(!text.contains("two words"), "secrets are not printed");
    fs::write(&file, "secret\n").unwrap();
    let text = fails(dir.path(), &[&here[..], &["token"]].concat(), 1);
    assert!(text.contains("no controller answers"), "{text}");
}

const SCENARIO: &str = include_str!("../../../lab/report/tests/suite/support/recorded.toml");

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
            said.contains("source: the record in terrace-out/s, under static"),
            "{said}"
        );
        said
    };
    recorded(&["why", "small"]);
    // A controller that is named explicitly is the only source.
    let nobody = ["--controller", "unix:none.sock"];
    let text = fails(dir.path(), &[&["why", "small"][..], &nobody].concat(), 1);
    assert!(text.contains("no controller answers"), "{text}");
    let not = ["why-not", "small", "--tier", "slow"];
    fails(dir.path(), &[&not[..], &nobody].concat(), 1);
    // Options that concern records select the record as the source.
    recorded(&[&["why", "small", "--run", "terrace-out/s"][..], &nobody].concat());
    // A socket without a listener gives a message; the command continues with the record.
    fs::create_dir(dir.path().join("terrace-state")).unwrap();
    leave_socket(dir.path());
    let said = recorded(&not);
    assert!(
        said.contains("no controller answers on unix:terrace-state/controller.sock"),
        "{said}"
    );
}

/// Records a run of a volume `small` in `terrace-out/s`, as `reasons_are_from_a_controller_or_from_a_record` does.
fn record(dir: &Path) {
    let text = SCENARIO.replace("strategy = \"noop\"", "duration = \"40s\"");
    let text = &text[..text.find("[recorded]").unwrap()];
    let clients = "[[clients]]\nvolume = \"small\"\nhabits = { outstanding = 1 }\n";
    fs::write(dir.join("s.toml"), format!("{text}{clients}")).unwrap();
    let run = terrace(dir, &["sim", "run", "s.toml", "--strategy", "static"]);
    assert!(run.status.success(), "{}", err(&run));
}

#[test]
fn controller_in_the_environment_does_not_override_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let named = [("TERRACE_CONTROLLER", "unix:none.sock")];
    let ask = |args: &[&str]| terrace_with(dir.path(), args, &named);
    let why = ["why", "small"];
    // Without a record there is no second source.
    let alone = ask(&why);
    assert_eq!(alone.status.code(), Some(1));
    assert!(err(&alone).contains("no controller answers on unix:none.sock"));

    record(dir.path());
    let both = ask(&why);
    assert!(both.status.success(), "{}", err(&both));
    let said = err(&both);
    for part in [
        "the controller on unix:none.sock did not reply (no controller answers on unix:none.sock",
        "source: the record of a run. With --controller unix:none.sock the source is only the controller",
        "source: the record in terrace-out/s, under static",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let chosen = ask(&[&why[..], &["--run", "terrace-out/s"]].concat());
    assert!(chosen.status.success(), "{}", err(&chosen));
    let said = err(&chosen);
    assert!(
        said.contains("source: the record of a run, because of --run, --strategy or --at; without them the source is the controller on unix:none.sock"),
        "{said}"
    );
    assert!(
        !said.contains("no controller answers"),
        "it was not asked: {said}"
    );
    let other = ask(&[&why[..], &["--controller", "unix:given.sock"]].concat());
    assert_eq!(other.status.code(), Some(1));
    assert!(err(&other).contains("no controller answers on unix:given.sock"));
    let empty = terrace_with(dir.path(), &why, &[("TERRACE_CONTROLLER", "")]);
    assert!(empty.status.success() && !err(&empty).contains("controller"));
    let wrong = terrace_with(dir.path(), &why, &[("TERRACE_CONTROLLER", "here")]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        err(&wrong).contains("the environment variable TERRACE_CONTROLLER"),
        "{}",
        err(&wrong)
    );
}

#[test]
fn reasons_from_a_record_are_printed_as_json() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let json = |args: &[&str]| -> Value {
        let output = terrace(dir.path(), &[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    let why = json(&["why", "small"]);
    assert_eq!(why["schema"], "terrace.why.recorded/1");
    assert_eq!(why["strategy"], "static");
    let text = out(&terrace(dir.path(), &["why", "small"]));
    let decisions = why["decisions"].as_array().unwrap();
    assert!(!decisions.is_empty() && !why["stays"].as_array().unwrap().is_empty());
    for decision in decisions {
        assert!(decision["report"]["options"].is_array(), "{decision:#}");
        assert!(
            text.contains(&format!("decision {}", decision["number"])),
            "{text}"
        );
    }
    let not = json(&["why-not", "small", "--tier", "slow"]);
    assert_eq!(not["schema"], "terrace.why-not.recorded/1");
    assert_eq!(
        (&not["tier"], &not["volume"]),
        (&"slow".into(), &"small".into())
    );
    let text = out(&terrace(
        dir.path(),
        &["why-not", "small", "--tier", "slow"],
    ));
    for decision in not["decisions"].as_array().unwrap() {
        let words = decision["why_not"].as_str().unwrap();
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn fingerprint_is_read_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let status = |args: &[&str], fingerprint: &str| {
        let environment = [
            ("TERRACE_CONTROLLER", "https://127.0.0.1:1"),
            ("TERRACE_FINGERPRINT", fingerprint),
        ];
        let output = terrace_with(dir.path(), &[&["status"], args].concat(), &environment);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        err(&output)
    };
    let digits = "0".repeat(64);
    assert!(status(&[], "").contains("no certificate"));
    assert!(status(&[], &digits).contains("no controller answers"));
    let wrong = status(&[], "sha256:12");
    assert!(
        wrong.contains("the environment variable TERRACE_FINGERPRINT")
            && wrong.contains("64 hexadecimal"),
        "{wrong}"
    );
    // The command line overrides the environment, and a socket has no certificate.
    assert!(status(&["--fingerprint", &digits], "sha256:12").contains("no controller answers"));
    assert!(status(&["--ca", "none.pem"], &digits).contains("none.pem"));
    assert!(
        status(&["--controller", "unix:x.sock"], "sha256:12").contains("no controller answers")
    );
}

#[test]
fn lists_and_checks_are_printed_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let json = |args: &[&str], code: i32| -> Value {
        let output = terrace(dir.path(), &[args, &["-o", "json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    let strategies = json(&["sim", "strategies"], 0);
    let all = strategies["strategies"].as_array().unwrap();
    assert!(
        all.iter()
            .any(|s| s["name"] == "edt" && s["parameters"].is_object())
    );
    let presets = json(&["sim", "presets"], 0);
    assert!(presets["devices"][0]["spec"]["read_iops"].is_number());
    assert!(presets["ssds"][0]["name"].is_string() && presets["clients"][0]["iops"].is_number());
    fs::write(dir.path().join("live.toml"), LIVE).unwrap();
    fs::write(dir.path().join("bad.toml"), LIVE.replace("hold", "hodl")).unwrap();
    let shown = json(&["config", "show", "live.toml"], 0);
    assert_eq!(shown["config"]["policy"]["hold"], 3);
    let checked = json(&["config", "check", "live.toml", "bad.toml"], 1);
    let files = &checked["files"];
    assert_eq!(
        (&files[0]["ok"], &files[1]["ok"]),
        (&true.into(), &false.into())
    );
    assert!(
        files[1]["what"]
            .as_str()
            .unwrap()
            .contains("did you mean \"hold\"?")
    );
    let origin = ["config", "show", "live.toml", "--origin", "-o", "json"];
    fails(dir.path(), &origin, 2);
}

#[test]
fn version_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let output = terrace(dir.path(), &["--version"]);
    assert_eq!(
        out(&output),
        concat!("terrace ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn exported_decision_is_reproduced_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f.toml"), SCENARIO).unwrap();
    let file = sim::ScenarioFile::parse("f.toml", SCENARIO).unwrap();
    let (_, decision) = file.decide_again().unwrap();
    assert!(!decision.plan.moves().is_empty());
    let json = terrace(dir.path(), &["sim", "plan", "f.toml", "-o", "json"]);
    assert!(json.status.success(), "{}", err(&json));
    let plan = serde_json::to_string_pretty(&decision.plan).unwrap();
    assert_eq!(out(&json), plan + "\n");
    assert_eq!(err(&json), "");
    let table = terrace(dir.path(), &["sim", "plan", "f.toml"]);
    for part in ["fast → slow", "is being drained", "pinned to tier fast"] {
        assert!(out(&table).contains(part), "{part}: {}", out(&table));
    }
    let none = &SCENARIO[..SCENARIO.find("[recorded]").unwrap()];
    fs::write(dir.path().join("n.toml"), none).unwrap();
    let text = fails(dir.path(), &["sim", "plan", "n.toml"], 1);
    assert!(text.contains("only an export of a live array"), "{text}");
}

#[test]
fn live_configurations_pass_check_and_show() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(dir.path().join("live.toml"), text).unwrap();
    write(LIVE);
    let check = ["config", "check", "live.toml"];
    let output = terrace(dir.path(), &check);
    assert_eq!(
        out(&output),
        "live.toml: ok: live configuration: strategy edt, array terrace-array, tiers: 1, classes: 1, window 5s\n",
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
    // The printed configuration is equivalent to its input.
    write(&text);
    let again = terrace(dir.path(), &["config", "show", "live.toml"]);
    write(LIVE);
    let plain = terrace(dir.path(), &["config", "show", "live.toml"]);
    assert!(plain.status.success() && !out(&plain).contains('#'));
    assert_eq!(out(&again), out(&plain));
    fails(dir.path(), &["config", "show", "none.toml"], 1);
}

#[test]
fn default_strategy_is_terrace() {
    let dir = tempfile::tempdir().unwrap();
    let unnamed = LIVE.strip_prefix("strategy = \"edt\"\n").unwrap();
    fs::write(dir.path().join("live.toml"), unnamed).unwrap();
    let shown = terrace(dir.path(), &["config", "show", "live.toml", "--origin"]);
    let text = out(&shown);
    let line = "strategy = \"terrace\"  # default";
    assert!(text.lines().any(|l| l == line), "{text}{}", err(&shown));
    let help = out(&terrace(dir.path(), &["demo", "--help"]));
    assert!(help.contains("[default: terrace]"), "{help}");
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
