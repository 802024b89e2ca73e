//! Files that are shipped with the binary and must match it: alerts, dashboard, configurations, units.

mod deb;
mod installed;
mod machine;
mod notified;
mod shells;
mod units;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the words of a text that begin with `terrace_`.
fn words(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c: char| !part(c))
        .filter(|w| w.starts_with("terrace_"))
        .map(Into::into)
        .collect()
}

/// Returns the metrics in the controller's source.
fn metrics() -> BTreeSet<String> {
    let source = read("live/controller/src/metrics.rs");
    let of = |direction: &str| words(&source.replace("{direction}", direction));
    let mut all = of("read");
    all.extend(of("write"));
    all
}

/// Returns the metrics that a text uses: series of a histogram count as the histogram.
fn used(text: &str, metrics: &BTreeSet<String>) -> BTreeSet<String> {
    let of_histogram = |word: &String| {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| word.strip_suffix(s))?;
        metrics.contains(base).then(|| base.to_string())
    };
    let used = words(text);
    used.into_iter()
        .map(|w| of_histogram(&w).unwrap_or(w))
        .collect()
}

fn assert_known(path: &str, text: &str) {
    let metrics = metrics();
    let used = used(text, &metrics);
    assert!(used.len() > 5, "{path} uses metrics: {used:?}");
    let unknown: Vec<_> = used.difference(&metrics).collect();
    assert!(
        unknown.is_empty(),
        "{path} uses {unknown:?}, which no controller has"
    );
}

#[test]
fn alerts_use_existing_metrics() {
    let path = "packaging/prometheus/alerts.yml";
    let text = read(path);
    let expressions: Vec<&str> = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("expr:"))
        .collect();
    let alerts = text.matches("- alert: ").count();
    assert_eq!(expressions.len(), alerts, "each alert has an expression");
    assert!(alerts > 8);
    assert_known(path, &expressions.join("\n"));
}

#[test]
fn dashboard_is_valid_json_with_existing_metrics_and_units() {
    let path = "packaging/grafana/terrace.json";
    let dashboard: Value = serde_json::from_str(&read(path)).expect("it is JSON");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|v| v["type"] == "datasource"));
    let panels = dashboard["panels"].as_array().unwrap();
    let mut expressions = String::new();
    for panel in panels.iter().filter(|p| p["type"] != "row") {
        let title = &panel["title"];
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{title} has a unit"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            expressions.push_str(target["expr"].as_str().unwrap());
            expressions.push('\n');
        }
    }
    assert_known(path, &expressions);
}

#[test]
fn live_configurations_are_accepted() {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .current_dir(root())
        .args(["config", "check"])
        .args(["packaging/terrace.toml", "examples/one-host.toml"])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert_eq!(out.matches("strategy terrace").count(), 2, "{out}");
}
