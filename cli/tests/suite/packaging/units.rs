//! Checks of the systemd units: their commands exist, and systemd reports no problem.

use std::fs;
use std::process::Command;

use super::read;

const UNITS: [&str; 4] = [
    "terrace",
    "terrace-agent",
    "terrace-export",
    "terrace-cache-node",
];

/// Units use only existing commands and options.
#[test]
fn units_use_existing_commands_and_options() {
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

/// Units that serve guests report their readiness and have a watchdog.
#[test]
fn units_that_serve_guests_report_readiness_and_have_a_watchdog() {
    // No other unit waits for a cache node.
    for unit in UNITS.into_iter().filter(|u| *u != "terrace-cache-node") {
        let text = read(&format!("packaging/systemd/{unit}.service"));
        assert!(text.contains("\nType=notify\n"), "{unit}");
        let serves = unit != "terrace-agent";
        for line in ["\nWatchdogSec=1min\n", "\nTimeoutStartSec=infinity\n"] {
            assert_eq!(text.contains(line), serves, "{unit}: {line}");
        }
        // During a stop, the image servers of imports must outlive the requests in flight.
        let serves = text.contains("\nKillMode=mixed\n");
        assert_eq!(serves, unit != "terrace-agent", "{unit}");
    }
}

/// If memory runs out, the kernel first kills the process that lends memory; the unit that serves the guests' disks
/// must survive that.
#[test]
fn units_survive_an_out_of_memory_kill_of_a_lending_process() {
    for unit in ["terrace", "terrace-agent"] {
        let text = read(&format!("packaging/systemd/{unit}.service"));
        assert!(text.contains("\nOOMPolicy=continue\n"), "{unit}");
    }
}

/// Checks each unit against an upper limit of its `systemd-analyze security` score, which is at most 10.
#[test]
fn units_pass_systemd_analyze_with_low_exposure() {
    if !testkit::needs::programs(&["systemd-analyze"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for unit in UNITS {
        // The program is not installed on the test machine.
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
