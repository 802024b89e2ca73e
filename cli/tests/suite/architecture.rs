//! The direction of dependencies and the absence of I/O in the core, checked on what cargo itself says.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::messages::sources;

/// Folders and their crates in order: each crate may depend only on crates before it.
const ORDER: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "units", "model", "algo", "cache", "flash", "volume", "planner", "executor", "slo",
            "trace", "config", "manager",
        ],
    ),
    (
        "live",
        &[
            "nbd",
            "vring",
            "qmp",
            "vmhost",
            "secret",
            "interpreter",
            "store",
            "array",
            "datapath",
            "client",
            "controller",
            "agent",
            "daemon",
            "demo",
        ],
    ),
    ("test", &["testkit", "crashdisk"]),
    (
        "lab",
        &[
            "sim",
            "decisions",
            "exact",
            "report",
            "tables",
            "runner",
            "bench",
        ],
    ),
    ("papers", &["reproduce", "terrace-reproduce"]),
    ("cli", &["cli"]),
];

/// Returns the crates in order.
fn crates() -> Vec<&'static str> {
    ORDER
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect()
}

/// External dependencies of crates without I/O. None of these opens a socket, reads a clock or starts a thread by itself.
const WITHOUT_IO_MAY_USE: &[(&str, &[&str])] = &[
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
            // Its time zones are compiled in.
            "jiff",
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
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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
fn crate_dependencies_point_in_one_direction() {
    let direct = direct(&metadata());
    let order = crates();
    assert_eq!(
        direct.len(),
        order.len(),
        "a new crate needs its place in the order: {:?}",
        direct.keys()
    );
    for (i, name) in order.iter().enumerate() {
        for dependency in &direct[*name] {
            if let Some(at) = order.iter().position(|o| o == dependency) {
                assert!(at < i, "{name} must not depend on {dependency}");
            }
        }
    }
}

#[test]
fn crates_are_in_the_folders_of_their_roles() {
    for (folder, names) in ORDER {
        for name in *names {
            let dir = match *folder {
                "cli" => "cli".to_owned(),
                folder => format!("{folder}/{name}"),
            };
            let manifest = format!("{}/../{dir}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&manifest).exists(), "{dir}");
        }
    }
}

#[test]
fn core_crates_do_not_depend_on_io() {
    let direct = direct(&metadata());
    let order = crates();
    for (name, allowed) in WITHOUT_IO_MAY_USE {
        for dependency in &direct[*name] {
            let ours = order.contains(&dependency.as_str());
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
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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

/// Returns the lines of `Result<T, String>`, also over several lines, and of associated errors, before the test module.
fn lines_with_text_errors(source: &str) -> Vec<usize> {
    let attribute = "#[cfg(test)]";
    let is_module = |at: &usize| {
        let after = source[at + attribute.len()..].trim_start();
        let line = after.lines().next().unwrap_or_default();
        line.starts_with("mod ") && line.ends_with('{')
    };
    let mut attributes = source.match_indices(attribute).map(|(at, _)| at);
    let source = &source[..attributes.find(is_module).unwrap_or(source.len())];
    let name = "Result<";
    let results = source.match_indices(name);
    let results = results.filter(|(at, _)| has_text_error(&source[at + name.len()..]));
    let associated = ["type Err = String;", "type Error = String;"];
    let associated = associated.into_iter();
    let associated = associated.flat_map(|t| source.match_indices(t));
    let line_of = |(at, _): (usize, &str)| source[..at].matches('\n').count() + 1;
    results.chain(associated).map(line_of).collect()
}

/// Returns true if the last of two type arguments is `String`. `arguments` begins after the opening bracket.
fn has_text_error(arguments: &str) -> bool {
    let (mut depth, mut start, mut before, mut parts) = (0, 0, ' ', vec![]);
    for (at, c) in arguments.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' if depth > 0 => depth -= 1,
            ',' | '>' if depth == 0 => {
                parts.push(arguments[start..at].trim());
                start = at + 1;
                if c == '>' {
                    break;
                }
            }
            _ => {}
        }
        before = c;
    }
    // A list over several lines ends with a comma.
    parts.retain(|part| !part.is_empty());
    matches!(parts[..], [_, "String"])
}

#[test]
fn errors_of_crates_are_typed() {
    for (source, lines) in [
        ("fn a() -> Result<u8, String>;", &[1][..]),
        ("\nfn a() -> Result<\n    (u8, u8),\n    String,\n>;", &[2]),
        (
            "type Err = String;\nfn a(b: &dyn Fn() -> Result<Vec<u8>, String>);",
            &[2, 1],
        ),
        ("fn a() -> Result<Vec<(u8, String)>, fmt::Error>;", &[]),
        ("fn a() -> io::Result<String>;", &[]),
        (
            "#[cfg(test)]\nmod tests {\nfn a() -> Result<u8, String>;",
            &[],
        ),
    ] {
        assert_eq!(lines_with_text_errors(source), lines, "{source}");
    }
    let mut found = vec![];
    for (folder, names) in ORDER.iter().filter(|(f, _)| !["cli", "test"].contains(f)) {
        for name in *names {
            let dir = format!("{}/../{folder}/{name}/src", env!("CARGO_MANIFEST_DIR"));
            let mut files = vec![];
            sources(dir.as_ref(), &mut files);
            for file in files {
                let text = std::fs::read_to_string(&file).unwrap();
                let lines = lines_with_text_errors(&text).into_iter();
                found.extend(lines.map(|line| format!("{}:{line}", file.display())));
            }
        }
    }
    assert!(found.is_empty(), "errors are text in {}", found.join("\n"));
}

/// The bans are only worth something while they are there.
#[test]
fn clippy_bans_are_configured() {
    let bans =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../clippy.toml")).unwrap();
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
    let dirs = ORDER
        .iter()
        .flat_map(|(folder, names)| names.iter().map(move |n| (*folder, *n)));
    for (folder, name) in dirs {
        let dir = if folder == "cli" { "" } else { folder };
        let own = format!("{}/../{dir}/{name}/clippy.toml", env!("CARGO_MANIFEST_DIR"));
        let exists = std::path::Path::new(&own).exists();
        assert_eq!(
            exists,
            [
                "trace",
                "secret",
                "interpreter",
                "tables",
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
            .contains(&name),
            "clippy.toml of {name}"
        );
    }
}
