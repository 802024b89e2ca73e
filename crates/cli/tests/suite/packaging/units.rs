//! The units: they start what there is, and systemd finds nothing wrong with them.

use std::fs;
use std::process::Command;

use super::read;

const UNITS: [&str; 4] = [
    "terrace",
    "terrace-agent",
    "terrace-export",
    "terrace-cache-node",
];

/// Units start commands that there are, with options that there are.
#[test]
fn units_start_what_there_is() {
    for (unit, words) in [
        ("terrace", &["serve"][..]),
        ("terrace-agent", &["agent"]),
        ("terrace-export", &["volume", "export"]),
        ("terrace-cache-node", &["cache-node"]),
    ] {
        let text = read(&format!("packaging/systemd/{unit}.service"));
        let start = text
            .lines()
            .find_map(|l| l.strip_prefix("ExecStart=/usr/bin/terrace "))
            .unwrap_or_else(|| panic!("{unit} starts terrace"));
        assert!(start.starts_with(&words.join(" ")), "{unit}: {start}");
        let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(words)
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8_lossy(&output.stdout);
        for option in start.split(' ').filter(|w| w.starts_with("--")) {
            assert!(help.contains(&format!("{option} <")), "{unit}: {option}");
        }
    }
}

/// What serves says when it does, and is looked after.
#[test]
fn units_are_told_when_serving_works() {
    // Nothing waits for a node.
    for unit in UNITS.into_iter().filter(|u| *u != "terrace-cache-node") {
        let text = read(&format!("packaging/systemd/{unit}.service"));
        assert!(text.contains("\nType=notify\n"), "{unit}");
        let serves = unit != "terrace-agent";
        for line in ["\nWatchdogSec=1min\n", "\nTimeoutStartSec=infinity\n"] {
            assert_eq!(text.contains(line), serves, "{unit}: {line}");
        }
        // Servers of images that are imported are needed until what is under way has ended.
        let serves = text.contains("\nKillMode=mixed\n");
        assert_eq!(serves, unit != "terrace-agent", "{unit}");
    }
}

/// A process that lends memory is ended first where memory runs out: what guests' disks hang on must not end with it.
#[test]
fn units_outlive_the_memory_that_they_lend() {
    for unit in ["terrace", "terrace-agent"] {
        let text = read(&format!("packaging/systemd/{unit}.service"));
        assert!(text.contains("\nOOMPolicy=continue\n"), "{unit}");
    }
}

/// The most that `systemd-analyze security` may say of each, of 10.
#[test]
fn systemd_finds_nothing_wrong_with_the_units_and_little_exposed() {
    if !testkit::needs::programs(&["systemd-analyze"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for unit in UNITS {
        // The program is not installed here.
        let text = read(&format!("packaging/systemd/{unit}.service"));
        let text = text.replace("/usr/bin/terrace ", "/bin/true ");
        fs::write(dir.path().join(format!("{unit}.service")), text).unwrap();
    }
    for (unit, most) in UNITS.into_iter().zip([1.4, 1.2, 1.4, 1.4]) {
        let path = dir.path().join(format!("{unit}.service"));
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{unit}: {said}");
        assert!(!said.contains(unit), "{unit}: {said}");
        let security = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&security.stdout);
        let level = text
            .lines()
            .find_map(|l| l.split_once("exposure level for"))
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{unit}: no level: {text}"));
        assert!(level <= most, "{unit}: {level}");
    }
}
