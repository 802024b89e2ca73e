//! Third-party packages, checked against `deny.toml`: licences, sources and duplicate versions.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Part of `deny.toml` that these tests check.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<CrateException>,
    deny: Vec<CrateException>,
}

/// A crate or one version of a crate, with the reason for the exception.
#[derive(Deserialize)]
struct CrateException {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

fn deny() -> Deny {
    let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap();
    toml_edit::de::from_str(&text).unwrap()
}

/// Returns the third-party packages with every feature enabled.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let all = metadata["packages"].as_array().unwrap();
    all.iter()
        .filter(|p| p["source"].is_string())
        .cloned()
        .collect()
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// Returns true if the allowed licences permit the use of a package with this licence expression. Adds the licences
/// that decided to `used`. `OR` has the lowest precedence; `/` is its former spelling.
fn may_use(expression: &str, allowed: &[String], used: &mut BTreeSet<String>) -> bool {
    let words = expression.replace('/', " OR ");
    let words = words.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut rest = &words[..];
    let may = any_of(&mut rest, allowed, used);
    assert!(rest.is_empty(), "not a licence: {expression:?}");
    may
}

fn any_of(rest: &mut &[&str], allowed: &[String], used: &mut BTreeSet<String>) -> bool {
    let mut may = all_of(rest, allowed, used);
    while let [word, ..] = rest
        && *word == "OR"
    {
        *rest = &rest[1..];
        may |= all_of(rest, allowed, used);
    }
    may
}

fn all_of(rest: &mut &[&str], allowed: &[String], used: &mut BTreeSet<String>) -> bool {
    let mut may = one(rest, allowed, used);
    while let [word, ..] = rest
        && *word == "AND"
    {
        *rest = &rest[1..];
        may &= one(rest, allowed, used);
    }
    may
}

fn one(rest: &mut &[&str], allowed: &[String], used: &mut BTreeSet<String>) -> bool {
    let (first, mut left) = rest.split_first().expect("a licence");
    if *first == "(" {
        let may = any_of(&mut left, allowed, used);
        assert_eq!(left.first(), Some(&")"), "a bracket is not closed");
        *rest = &left[1..];
        return may;
    }
    let mut name = (*first).to_owned();
    if let ["WITH", exception, ..] = left {
        name += &format!(" WITH {exception}");
        left = &left[2..];
    }
    *rest = left;
    let may = allowed.contains(&name);
    if may {
        used.insert(name);
    }
    may
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allowed = deny().licenses.allow;
    let mut used = BTreeSet::new();
    for package in packages() {
        let license = text(&package, "license");
        assert!(
            !license.is_empty() && may_use(license, &allowed, &mut used),
            "{} {}: its licence {license:?} is not among those in deny.toml",
            text(&package, "name"),
            text(&package, "version")
        );
    }
    let unused: Vec<&String> = allowed.iter().filter(|l| !used.contains(*l)).collect();
    assert!(unused.is_empty(), "nothing has these licences: {unused:?}");
}

#[test]
fn licence_expressions_are_parsed() {
    let allowed = ["MIT", "ISC", "Apache-2.0"].map(String::from);
    let may = |e: &str| may_use(e, &allowed, &mut BTreeSet::new());
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "MIT AND ISC",
    ] {
        assert!(may(good), "{good}");
    }
    for bad in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND GPL-3.0",
        "GPL-3.0 OR MIT AND LGPL-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(!may(bad), "{bad}");
    }
}

#[test]
fn dependencies_come_from_the_registry() {
    let allowed = deny().sources.allow_registry;
    for package in packages() {
        let source = text(&package, "source");
        let registry = source.strip_prefix("registry+");
        assert!(
            registry.is_some_and(|r| allowed.iter().any(|a| a == r)),
            "{} comes from {source}",
            text(&package, "name")
        );
    }
}

#[test]
fn duplicate_versions_have_a_reason_and_banned_crates_are_absent() {
    let bans = deny().bans;
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let of = versions.entry(text(&package, "name").into()).or_default();
        of.insert(text(&package, "version").into());
    }
    for CrateException { name, reason } in bans.deny {
        assert!(!versions.contains_key(&name), "{name} is banned: {reason}");
    }
    for CrateException { name, reason } in bans.skip {
        let (name, version) = name.split_once('@').expect("a crate and its version");
        let of = versions.get_mut(name);
        let there = of.is_some_and(|of| of.len() > 1 && of.remove(version));
        assert!(
            there,
            "{name} {version} is not there twice any more: take it out of deny.toml"
        );
        assert!(!reason.is_empty());
    }
    let twice: Vec<_> = versions.iter().filter(|(_, v)| v.len() > 1).collect();
    assert!(twice.is_empty(), "without a reason in deny.toml: {twice:?}");
}
