//! A trial on a host of virtual machines: real libvirt in session mode, a real guest under QEMU, nothing emulated but its processor.

use std::process::Command;

use serde_json::Value;
use testkit::guest::Guest;

use crate::support::kvm::{DiskOf, Kvm, PROGRAMS};
use crate::support::manager::said;

const GUEST: Guest = Guest {
    requests_per_tick: 10,
    blocks: 16_384,
};
const TERRACE: &str = env!("CARGO_BIN_EXE_terrace");

#[test]
fn a_trial_says_what_would_move_and_its_command_moves_it() {
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
        rate("reads_per_s") > 20.0 && rate("writes_per_s") > 5.0,
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
    // Nothing was done about it; then the command is typed.
    assert!(host.virsh(&["domblklist", "web"]).contains("/slow/web.raw"));
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

#[test]
fn a_trial_without_anything_to_look_at_says_so() {
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
    // libvirt's own mock hypervisor: its images are nowhere.
    let said = trial(&["test:///default"]);
    assert!(
        said.contains("no pool of files and no image of a running domain"),
        "{said}"
    );
    let said = trial(&["test:///default", "--tier", "fast=nowhere"]);
    assert!(
        said.contains("there is no active pool of files \"nowhere\""),
        "{said}"
    );
    let said = trial(&["nonsense:///x"]);
    assert!(said.contains("libvirt: "), "{said}");
    let said = trial(&["test:///default", "--for", "5s"]);
    assert!(said.contains("must be at least 1m"), "{said}");
}
