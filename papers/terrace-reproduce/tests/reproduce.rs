//! Tests of `terrace reproduce` at a scale that is too small for meaningful values, but whose output is complete.

use std::process::Command;

use serde_json::Value;

fn run(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace-reproduce"))
        .args(["autotiering", "--quick"])
        .args(["--scale", "600", "--epochs", "1"])
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output.stdout
}

#[test]
fn report_shows_published_values_and_stored_runs_are_reproduced() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let keep = dir.path().join("keep");
    let keep = ["--keep", keep.to_str().unwrap(), "-o", "json"];
    let first = run(&[&keep[..], &["--report", page.to_str().unwrap()]].concat());
    // Simulates an interrupted first command: the results of a fifth of the runs are removed, so they run again.
    let kept: Vec<_> = std::fs::read_dir(keep[1]).unwrap().collect();
    assert_eq!(kept.len(), 4 * 9 * 2 + 1, "runs, and a lock");
    let mut results: Vec<_> = kept.into_iter().map(|f| f.unwrap().path()).collect();
    results.sort();
    for file in results.iter().step_by(5) {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(first, run(&keep), "the same seeds, the same bytes");
    let outcome: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(outcome["schema"], "terrace.reproduce.autotiering/2");
    assert_eq!(outcome["setup"]["seeds"], serde_json::json!([1, 2]));
    assert_eq!(outcome["strategies"].as_array().unwrap().len(), 9);
    let readings = outcome["readings"].as_array().unwrap();
    assert_eq!(readings.len(), 10);
    let claims = outcome["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 20);
    assert_eq!(outcome["tally"]["claims"], 20);
    for claim in claims {
        assert!(!claim["says"].as_str().unwrap().is_empty());
        let found = claim["readings"].as_array().unwrap();
        assert_eq!(found.len(), readings.len(), "{claim}");
        for (reading, ours) in readings.iter().zip(found) {
            assert_eq!(reading["id"], ours["reading"]);
            let verdict = ours["verdict"].as_str().unwrap();
            assert!(["agrees", "disagrees", "undecided"].contains(&verdict));
            assert!(!ours["measures"].as_array().unwrap().is_empty(), "{claim}");
        }
    }
    let value = |id: &str| {
        let claim = claims.iter().find(|c| c["id"] == id).unwrap();
        claim["published"].as_f64().unwrap()
    };
    assert_eq!(value("iops-vs-idt-up-to"), 0.4474);
    assert_eq!(value("iops-vs-edt-up-to"), 0.3878);
    let beside = outcome["beside_noop"].as_array().unwrap();
    assert_eq!(beside.len(), 4 * 9);
    assert_eq!(beside[0]["strategy"], "noop");
    assert_eq!(beside[0]["iops_over_noop"]["mean"], 1.0);
    let strategies = 6;
    let figures = &outcome["figures"];
    let count = |name: &str| figures[name].as_array().unwrap().len();
    assert_eq!(count("fig2"), 3);
    assert_eq!(count("fig3"), 3 * strategies);
    assert_eq!(count("fig4"), 9 * strategies);
    for name in ["fig5", "fig6", "fig7"] {
        assert_eq!(count(name), strategies, "{name}");
    }
    let total = &figures["fig3"][0];
    assert_eq!(
        (&total["strategy"], &total["direction"]),
        (&"noop".into(), &"all".into())
    );
    assert!(total["iops"]["mean"].as_f64().unwrap() > 1e5, "{total}");
    assert_eq!(total["iops_over_noop"]["mean"], 1.0);
    assert_eq!(
        figures["fig7"][0]["all"]["gib"]["mean"], 0.0,
        "noop moves nothing"
    );
    assert!(outcome["assumptions"].as_array().unwrap().len() > 10);
    assert_eq!(outcome["passive_sensitivity"], Value::Null);
    let page = std::fs::read_to_string(page).unwrap();
    for part in [
        "Claims",
        "Readings",
        "Fig. 2",
        "Fig. 7",
        "<svg",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("NaN") && !page.contains("http://"),
        "offline, and numbers"
    );
}

#[test]
fn scenario_is_printed_and_invalid_options_are_refused() {
    let text = String::from_utf8(run(&["--scenario", "--seed", "3"])).unwrap();
    let file = sim::ScenarioFile::parse("x.toml", &text).unwrap();
    assert_eq!(file.scenario.seed, 3);
    let output = Command::new(env!("CARGO_BIN_EXE_terrace-reproduce"))
        .args(["autotiering", "--seeds", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("at least 2"));
}

/// Tests only the part of paper 3 that uses a recording: its case study takes a minute in a release build.
#[test]
fn dynamite_uses_recordings_and_reports_missing_ones() {
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../traces/captured/redis.csv.zst"
    );
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_terrace-reproduce"))
            .args(["dynamite", "--traces-only", "--trace", trace])
            .args(args)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        output.stdout
    };
    let first = run(&["-o", "json"]);
    assert_eq!(first, run(&["-o", "json"]), "the same seed, the same bytes");
    let outcome: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(outcome["schema"], "terrace.reproduce.dynamite/4");
    let rows = outcome["recorded"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["name"], "redis");
    assert_eq!(
        rows[0]["violation_min"][0]["interval"]["n"], 3,
        "over three seeds"
    );
    assert_eq!(outcome["readings"].as_array().unwrap().len(), 2);
    let claims = outcome["claims"].as_array().unwrap();
    assert!(claims.iter().all(|c| c["standing"] == "undecided"));
    assert_eq!(outcome["tally"]["undecided"], claims.len());
    let text = String::from_utf8(run(&[])).unwrap();
    assert!(text.contains("Recorded volumes"), "{text}");
}
