//! Temporary limits on disks of real virtual machines, and their removal.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::machines::{GUEST, is_on, two_tiers};
use crate::qemu::{self, QemuHost};
use crate::support::kvm::{DiskOf, Kvm, PROGRAMS};
use crate::support::machine_host::{MachineHost, end, said};

fn order(host: &MachineHost, words: &[&str]) {
    let all = [&["volume", "throttle", "web:vda"], words].concat();
    host.wait_until("the limit is taken", || host.terrace(&all).status.success());
}

/// Returns the nonzero limits of a disk, without the name of its throttle group.
fn limits(host: &Kvm, target: &str) -> BTreeMap<String, u64> {
    let said = host.virsh(&["blkdeviotune", "web", target, "--live"]);
    let lines = said.lines().filter_map(|line| line.split_once(':'));
    let numbers = lines.filter_map(|(name, n)| Some((name.trim().into(), n.trim().parse().ok()?)));
    numbers.filter(|(_, n)| *n > 0).collect()
}

fn of(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(name, n)| ((*name).into(), *n)).collect()
}

/// Returns true if no limit is recorded in the directory.
fn rests(host: &MachineHost, dir: &str) -> bool {
    let files = host.files(dir);
    !files.iter().any(|name| name.ends_with(".throttle.json"))
}

#[test]
fn limits_of_a_domain_are_respected_and_restored() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let (mut host, [_, there]) = two_tiers("100MB/s", "raw");
    let own = [
        "--read-iops-sec",
        "900",
        "--read-iops-sec-max",
        "2000",
        "--read-iops-sec-max-length",
        "3",
        "--write-bytes-sec",
        "80000000",
    ];
    host.virsh(&[&["blkdeviotune", "web", "vda", "--live"], &own[..]].concat());
    let before = limits(&host, "vda");
    host.serve();
    order(&host, &["--iops", "100", "--for", "10m"]);
    let lowered = of(&[
        ("read_iops_sec", 50),
        ("write_bytes_sec", 80_000_000),
        ("write_iops_sec", 50),
    ]);
    host.wait_until("it is limited", || limits(&host, "vda") == lowered);
    host.wait_until("that is known", || {
        let why = said(host.terrace(&["why", "web:vda", "-o", "json"]));
        let why: Value = serde_json::from_str(&why).unwrap();
        let throttle = &why["volume"]["throttle"];
        throttle["in_force"] == json!(true) && throttle["iops"] == json!(100)
    });
    // The agent is killed, and the disk moves while it is limited.
    end(&mut host.server, "-9");
    host.serve();
    host.pin("web:vda", "there");
    host.wait_until("it has moved", || is_on(&host, &format!("{there}/")));
    host.wait_for_writes("web", 20);
    assert_eq!(limits(&host, "vda"), lowered);
    order(&host, &["--none"]);
    host.wait_until("it is as before", || limits(&host, "vda") == before);
    // The limit ends after its time.
    order(
        &host,
        &["--iops", "30", "--bandwidth", "2MiB/s", "--for", "10s"],
    );
    host.wait_until("it is limited again", || limits(&host, "vda") != before);
    host.wait_until("it is over", || limits(&host, "vda") == before);
    host.wait_until("nothing is left", || rests(&host, "state/libvirt-moves"));
    // Limits that another program sets meanwhile remain.
    order(&host, &["--iops", "40", "--for", "10m"]);
    host.wait_until("it is limited", || limits(&host, "vda") != before);
    host.virsh(&[
        "blkdeviotune",
        "web",
        "vda",
        "--read-iops-sec",
        "777",
        "--live",
    ]);
    let theirs = limits(&host, "vda");
    order(&host, &["--none"]);
    host.wait_until("nothing is left", || rests(&host, "state/libvirt-moves"));
    assert_eq!(limits(&host, "vda"), theirs);
    host.wait_until("that is told", || {
        said(host.terrace(&["events"])).contains("another program has changed the limits")
    });
    // An agent that is stopped by a signal restores the previous limits where it can.
    order(&host, &["--iops", "20", "--for", "10m"]);
    host.wait_until("it is limited", || limits(&host, "vda") != theirs);
    end(&mut host.server, "-TERM");
    assert_eq!(limits(&host, "vda"), theirs);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (1, 0));
}

#[test]
fn limits_shared_between_disks_are_unchanged() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = Kvm::new();
    let here = host.make_dir("here");
    let disk = |file| DiskOf {
        file,
        format: "raw",
        driver: "",
    };
    host.define(
        "web",
        &GUEST,
        &[disk("here/web.raw"), disk("here/data.raw")],
    );
    crate::machines::configure(&host, "10MB/s", &[("here", &here, Some("raw"))]);
    host.virsh(&["start", "web"]);
    host.wait_for_writes("web", 5);
    for target in ["vda", "vdb"] {
        let words = ["blkdeviotune", "web", target, "--total-iops-sec", "500"];
        host.virsh(&[&words[..], &["--group-name", "both", "--live"]].concat());
    }
    let before = limits(&host, "vda");
    host.serve();
    order(&host, &["--iops", "100", "--for", "10m"]);
    host.wait_until("that is refused", || {
        said(host.terrace(&["events", "--limit", "1000"])).contains("it shares its limits with vdb")
    });
    assert_eq!(limits(&host, "vda"), before);
    let why = said(host.terrace(&["why", "web:vda"]));
    assert!(why.contains("ordered but not in force yet"), "{why}");
}

#[test]
fn limits_of_plain_qemu_are_respected_and_restored() {
    if !testkit::needs::programs(&qemu::PROGRAMS) {
        return;
    }
    let mut host = QemuHost::new("100MB/s");
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 20);
    let limits = |host: &QemuHost| {
        let blocks = host.ask("query-block", json!({}));
        let inserted = blocks[0]["inserted"].as_object().unwrap().clone();
        let numbers = inserted.into_iter();
        let limits =
            numbers.filter(|(name, _)| name.starts_with("bps") || name.starts_with("iops"));
        let numbers = limits.filter_map(|(name, n)| Some((name, n.as_u64()?)));
        numbers
            .filter(|(_, n)| *n > 0)
            .collect::<BTreeMap<String, u64>>()
    };
    assert_eq!(limits(&host), of(&[]));
    host.serve();
    order(
        &host,
        &["--iops", "60", "--bandwidth", "3MiB/s", "--for", "10m"],
    );
    let lowered = of(&[("bps", 3 << 20), ("iops", 60)]);
    host.wait_until("it is limited", || limits(&host) == lowered);
    // A second order replaces the first one; the agent still remembers the limits before the first order.
    order(&host, &["--iops", "90", "--for", "10m"]);
    host.wait_until("it is limited less", || {
        limits(&host) == of(&[("iops", 90)])
    });
    end(&mut host.server, "-9");
    host.serve();
    host.pin("web:vda", "fast");
    let below = host.text("fast") + "/";
    host.wait_until("it has moved", || {
        host.image().is_some_and(|image| image.starts_with(&below))
    });
    assert_eq!(limits(&host), of(&[("iops", 90)]));
    order(&host, &["--none"]);
    host.wait_until("it is as before", || limits(&host) == of(&[]));
    order(&host, &["--iops", "30", "--for", "10s"]);
    host.wait_until("it is limited again", || {
        limits(&host) == of(&[("iops", 30)])
    });
    host.wait_until("it is over", || limits(&host) == of(&[]));
    // A restarted machine has its initial limits, and the agent limits it again.
    order(&host, &["--iops", "30", "--for", "10m"]);
    host.wait_until("it is limited", || limits(&host) == of(&[("iops", 30)]));
    end(&mut host.machine, "-9");
    assert!(host.start(&format!("fast/{}", host.files("fast")[0]), "qcow2"));
    host.wait_until("it is limited in its new life", || {
        limits(&host) == of(&[("iops", 30)])
    });
    end(&mut host.server, "-TERM");
    assert_eq!(limits(&host), of(&[]));
    assert!(rests(&host, qemu::MOVES));
}
