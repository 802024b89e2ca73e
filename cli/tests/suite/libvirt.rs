//! A trial on a host of virtual machines: real libvirt in session mode and a real guest under QEMU. Only the processor
//! is emulated.

use std::fs;
use std::process::Command;

use serde_json::Value;
use testkit::guest::Guest;

use crate::support::kvm::{DiskOf, Kvm, PROGRAMS};
use crate::support::machine_host::said;

const GUEST: Guest = Guest {
    requests_per_tick: 10,
    blocks: 16_384,
};
const TERRACE: &str = env!("CARGO_BIN_EXE_terrace");

#[test]
fn trial_proposes_a_move_and_its_command_makes_the_move() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = Kvm::new();
    let [fast, slow] = ["fast", "slow"].map(|name| host.make_dir(name));
    let disk = |file, format| DiskOf {
        file,
        format,
        driver: "",
    };
    let disks = [
        disk("slow/web.raw", "raw"),
        disk("fast/data.qcow2", "qcow2"),
    ];
    host.define("web", &GUEST, &disks);
    let mut bitmap = host.command(std::path::Path::new("qemu-img"));
    bitmap.args(["bitmap", "--add", "fast/data.qcow2", "backup"]);
    assert!(bitmap.status().unwrap().success());
    // No disk on the target has requests: the probe is the only evidence.
    fs::write(host.path("fast/old.raw"), vec![1; 4 << 20]).unwrap();
    host.virsh(&["start", "web"]);
    host.wait_for_writes("web", 20);
    let (fast, slow) = (format!("fast={fast}"), format!("slow={slow}"));
    let output = host.terrace(&[
        "trial",
        "qemu:///session",
        "--for",
        "1m",
        "--tier",
        &fast,
        "--tier",
        &slow,
        "--preset",
        "fast=nvme-tlc",
        "--preset",
        "slow=sata-ssd",
        "--latency",
        "50us",
        "--probe",
        "--report",
        "trial.html",
        "-o",
        "json",
    ]);
    let found: Value = serde_json::from_str(&said(output)).unwrap();
    assert_eq!(found["schema"], "terrace.trial/1");
    let volumes = found["volumes"].as_array().unwrap();
    let of = |name: &str| volumes.iter().find(|v| v["name"] == name).unwrap();
    let (vda, vdb) = (of("web:vda"), of("web:vdb"));
    assert_eq!(
        (vda["tier"].as_str(), vdb["tier"].as_str()),
        (Some("slow"), Some("fast"))
    );
    let load = &vda["load"];
    let rate = |of: &str| load[of].as_f64().unwrap();
    assert!(
        rate("reads_per_s") > 0.0 && rate("writes_per_s") > 0.0,
        "{load}"
    );
    assert!(rate("mean_us") > 0.0 && load["p99_us"].is_null(), "{load}");
    assert_eq!(vdb["load"]["reads_per_s"], 0.0);
    let moves = found["plan"]["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{}", found["plan"]);
    assert_eq!(
        (&moves[0]["volume"], &moves[0]["to_tier"]),
        (&"web:vda".into(), &"fast".into())
    );
    let fixed = &found["fixed"][0];
    assert_eq!(fixed[0], "web:vdb");
    let why = fixed[1].as_str().unwrap();
    assert!(
        why.contains("its image has 1 bitmaps, which a copy would lose"),
        "{why}"
    );
    check_gain(&found);
    check_device_evidence(&found, &slow);
    let page = fs::read_to_string(host.path("trial.html")).unwrap();
    for shown in [
        "web:vda",
        "objective 50 µs",
        "Recommendations",
        "Next steps",
        "terrace init qemu:///session",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    said(host.terrace(&[
        "init",
        "qemu:///session",
        "--file",
        "kvm.toml",
        "--tier",
        &fast,
        "--tier",
        &slow,
    ]));
    let again = host.terrace(&["init", "qemu:///session", "--file", "kvm.toml"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("already exists"));
    let said = said(host.terrace(&["config", "check", "kvm.toml"]));
    assert!(
        said.contains("virtual machines under libvirt, tiers: 2"),
        "{said}"
    );
    // The trial itself moves nothing; then the operator runs the recommended command.
    assert!(host.virsh(&["domblklist", "web"]).contains("/slow/web.raw"));
    if found["tiers"][0]["found"][0]["read_us"].is_null() {
        // The file system does not support direct I/O or is in memory.
        assert!(found["commands"]["web:vda"].is_null(), "{found}");
        let why = found["no_commands"]["web:vda"].as_str().unwrap();
        assert!(why.contains("nothing was measured on"), "{why}");
        return;
    }
    let command = found["commands"]["web:vda"].as_str().unwrap();
    let words = command.strip_prefix("virsh ").unwrap();
    host.virsh(&[words]);
    for which in [
        &["domblklist", "web"][..],
        &["domblklist", "web", "--inactive"],
    ] {
        assert!(host.virsh(which).contains("/fast/web.raw"), "{which:?}");
    }
    host.wait_for_writes("web", 20);
}

/// Checks the gain of the moves: each prediction is within its bounds, for each move alone and for all moves together.
fn check_gain(found: &Value) {
    let gain = &found["gain"];
    let [m] = &gain["moves"].as_array().unwrap()[..] else {
        panic!("{gain}")
    };
    assert_eq!(m["volume"], "web:vda");
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"));
    let inside = |of: &Value, value: &str, range: &str| {
        let (value, range) = (number(of, value), &of[range]);
        let end = |i: usize| range[i].as_f64().unwrap_or_else(|| panic!("{value}: {of}"));
        assert!(end(0) < value && value < end(1), "{range}: {of}");
        end(1) - end(0)
    };
    for of in [gain, m] {
        inside(of, "after_us", "after_range_us");
        let wide = inside(of, "gain", "gain_range");
        let gained = 1.0 - number(of, "after_us") / number(of, "before_us");
        assert!((number(of, "gain") - gained).abs() < 1e-9, "{of}");
        // The range is at least as wide as the prediction error alone makes it.
        let range = &of["after_range_us"];
        let model = range[1].as_f64().unwrap() - range[0].as_f64().unwrap();
        assert!(wide >= model / number(of, "before_us") - 1e-9, "{of}");
    }
    assert_eq!(
        found["plan"]["moves"][0]["after_range_us"],
        m["after_range_us"]
    );
    assert_eq!((&gain["disks"], &gain["above_now"]), (&1.into(), &1.into()));
    let disks = found["disks"].as_array().unwrap();
    assert_eq!(disks[0]["volume"], "web:vda");
    // A fast machine shows one window per second.
    assert!(disks[0]["windows"].as_u64().unwrap() >= 10, "{}", disks[0]);
    assert!(number(&disks[0], "mean_us") > 0.0 && disks[1]["mean_us"].is_null());
}

/// Checks the evidence for the guessed tiers and the measured read latency.
fn check_device_evidence(found: &Value, slow: &str) {
    let tier = &found["tiers"][1];
    assert_eq!(
        (&tier["name"], &tier["preset"]),
        (&"slow".into(), &"sata-ssd".into())
    );
    let place = &tier["found"][0];
    assert!(place["device"].is_string(), "{place}");
    let path = slow.strip_prefix("slow=").unwrap();
    assert_eq!(tier["places"][0][1], path);
    let read = place["read_us"].as_f64().is_some_and(|us| us > 0.0);
    // A file system without direct I/O is refused, with the reason.
    assert!(read || place["not_read"].is_string(), "{place}");
}

#[test]
fn trial_without_disks_or_with_invalid_options_is_refused() {
    if !testkit::needs::programs(&["virsh"]) {
        return;
    }
    let trial = |words: &[&str]| {
        let output = Command::new(TERRACE)
            .arg("trial")
            .args(words)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // libvirt's own mock hypervisor: its images do not exist.
    let said = trial(&["test:///default"]);
    assert!(
        said.contains("no pool of files and no image of a running machine"),
        "{said}"
    );
    let said = trial(&["test:///default", "--tier", "fast=nowhere"]);
    assert!(
        said.contains("no active pool or storage is named \"nowhere\""),
        "{said}"
    );
    let said = trial(&["nonsense:///x"]);
    assert!(said.contains("libvirt: "), "{said}");
    // Errors in options are reported before the measurement starts.
    let said = trial(&["test:///default", "--report", "/no/such/place/x.html"]);
    assert!(
        said.contains("directory /no/such/place does not exist"),
        "{said}"
    );
    let said = trial(&["test:///default", "--for", "5s"]);
    assert!(said.contains("must be at least 1m"), "{said}");
}
