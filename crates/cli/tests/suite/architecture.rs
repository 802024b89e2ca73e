//! The direction of dependencies and the absence of I/O in the core, checked on what cargo itself says.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Our crates in order: each may depend on those before it only.
const ORDER: &[&str] = &[
    "units",
    "model",
    "algo",
    "cache",
    "flash",
    "volume",
    "planner",
    "exact",
    "executor",
    "slo",
    "trace",
    "config",
    "manager",
    "sim",
    "decisions",
    "report",
    "reproduce",
    "nbd",
    "vring",
    "qmp",
    "vmhost",
    "testkit",
    "crashdisk",
    "secret",
    "store",
    "array",
    "datapath",
    "client",
    "controller",
    "agent",
    "daemon",
    "demo",
    "bench",
    "runner",
    "terrace-reproduce",
    "cli",
];

/// What the core may use from outside. None of these opens a socket, reads a clock or starts a thread by itself.
const CORE_MAY_USE: &[(&str, &[&str])] = &[
    ("units", &["schemars", "serde", "thiserror"]),
    ("model", &["schemars", "serde", "thiserror"]),
    ("algo", &["libm", "serde"]),
    // Of rustix one call, which asks for large pages below tables.
    ("cache", &["rustix", "schemars", "serde", "thiserror"]),
    ("flash", &["libm", "schemars", "serde", "thiserror"]),
    ("volume", &["serde", "thiserror"]),
    (
        "planner",
        &[
            "libm",
            "schemars",
            "serde",
            "serde_json",
            "strsim",
            "thiserror",
        ],
    ),
    (
        "config",
        &[
            "schemars",
            "serde",
            "serde_json",
            "strsim",
            "thiserror",
            "toml_edit",
        ],
    ),
    ("executor", &["serde"]),
    ("slo", &["libm", "schemars", "serde", "thiserror"]),
    ("sim", &["schemars", "serde", "serde_json", "thiserror"]),
    (
        "decisions",
        &["libm", "schemars", "serde", "serde_json", "thiserror"],
    ),
    (
        "report",
        &[
            "comfy-table",
            "libm",
            "maud",
            "serde",
            "serde_json",
            "strsim",
            "thiserror",
        ],
    ),
    ("manager", &["schemars", "serde", "serde_json", "thiserror"]),
    ("reproduce", &["libm", "serde", "serde_json", "thiserror"]),
    ("nbd", &["thiserror"]),
    ("vring", &["thiserror", "vm-memory"]),
    ("qmp", &["serde_json", "thiserror"]),
    ("vmhost", &["roxmltree", "serde", "serde_json", "thiserror"]),
];

/// Crates that must not be anywhere below the core, however deep.
const NEVER_BELOW_CORE: [&str; 10] = [
    "tokio",
    "mio",
    "socket2",
    "reqwest",
    "hyper",
    "rand",
    "getrandom",
    "chrono",
    "time",
    "rayon",
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// Direct normal dependencies of each of our crates.
fn direct(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let members: Vec<&str> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m.as_str().unwrap())
        .collect();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .filter(|p| members.contains(&p["id"].as_str().unwrap()))
        .map(|p| {
            let normal = p["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|d| d["kind"].is_null());
            let names = normal
                .map(|d| d["name"].as_str().unwrap().to_string())
                .collect();
            (p["name"].as_str().unwrap().to_string(), names)
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let direct = direct(&metadata());
    assert_eq!(
        direct.len(),
        ORDER.len(),
        "a new crate needs its place in the order: {:?}",
        direct.keys()
    );
    for (i, name) in ORDER.iter().enumerate() {
        for dependency in &direct[*name] {
            if let Some(at) = ORDER.iter().position(|o| o == dependency) {
                assert!(at < i, "{name} must not depend on {dependency}");
            }
        }
    }
}

#[test]
fn the_core_uses_nothing_that_does_io() {
    let direct = direct(&metadata());
    for (name, allowed) in CORE_MAY_USE {
        for dependency in &direct[*name] {
            let ours = ORDER.contains(&dependency.as_str());
            assert!(
                ours || allowed.contains(&dependency.as_str()),
                "{name} uses {dependency}, which is not on its list"
            );
        }
    }
    // And nothing that does is pulled in deeper down.
    for name in ["planner", "executor", "volume", "algo", "nbd", "vring"] {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree", "--locked", "-p", name, "-e", "normal", "--prefix", "none", "--format",
                "{p}",
            ])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(
            tree.lines().next().is_some_and(|l| l.starts_with(name)),
            "{tree}"
        );
        for line in tree.lines() {
            let below = line.split_whitespace().next().unwrap_or_default();
            assert!(
                !NEVER_BELOW_CORE.contains(&below),
                "{name} depends on {below} somewhere"
            );
            assert_ne!(below, "trace", "{name} must not see files");
        }
    }
}

/// The bans are only worth something while they are there.
#[test]
fn the_bans_are_in_force() {
    let bans =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clippy.toml")).unwrap();
    for banned in [
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "std::fs::File::open",
        "std::collections::HashMap",
        "f64::exp",
    ] {
        assert!(bans.contains(banned), "{banned} is not banned any more");
    }
    // Only the edge, the reader of files, the data path, the keepers of the array's map and of history, and the live manager's edges may have rules of
    // their own.
    for name in ORDER {
        let own = format!("{}/../{name}/clippy.toml", env!("CARGO_MANIFEST_DIR"));
        let exists = std::path::Path::new(&own).exists();
        assert_eq!(
            exists,
            [
                "trace",
                "secret",
                "store",
                "array",
                "datapath",
                "client",
                "controller",
                "agent",
                "daemon",
                "demo",
                "bench",
                "runner",
                "terrace-reproduce",
                "cli"
            ]
            .contains(name),
            "clippy.toml of {name}"
        );
    }
}
