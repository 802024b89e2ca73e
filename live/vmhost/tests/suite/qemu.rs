//! Answers of a real QEMU 7.2.22 for a machine with disks of every kind. One of the disks is being mirrored.

use proptest::prelude::*;
use serde_json::{Value, json};
use vmhost::moving::{Intent, LiveDomain, Phase};
use vmhost::qemu::{Aio, Machine, Names, Options, add_nodes, bounds, mirror};
use vmhost::*;

/// Answers to `qemu::queries`, in which our move is named JOB.
const SAID: &str = include_str!("qemu-7.2.22.json");

fn image(path: &str, format: &str) -> Image {
    Image {
        at: ImageLocation::File(path.into()),
        format: format.into(),
    }
}

fn intent() -> Intent {
    Intent {
        job: 7,
        rate_bytes_per_s: 1000,
        kept_as: Some("/slow/a.raw.moved-1".into()),
        phase: Phase::Copying,
        ..Intent::new(
            "web".into(),
            "vda".into(),
            image("/slow/a.raw", "raw"),
            image("/fast/a.qcow2", "qcow2"),
            "/moves/x.unsettled".into(),
        )
    }
}

fn answers() -> [Value; 7] {
    let names = Names::of(&intent());
    serde_json::from_str(&SAID.replace("JOB", names.job())).unwrap()
}

fn machine() -> Machine {
    Machine::of(&answers()).unwrap()
}

fn domain(machine: &Machine) -> (Domain, DomainStats) {
    let options = |target: &str| Options {
        unmap: (target != "vdb").then_some(false),
        aio: None,
    };
    machine.domain("web", 9, "Debian 1:7.2+dfsg-7+deb12u18+b3", options)
}

/// Returns the reason for which a disk stays in place.
fn fixed(machine: &Machine, domain: &Domain, target: &str) -> Option<String> {
    let facts = |d: &Disk| {
        let facts = DiskFacts {
            info: machine
                .info_of(&d.target)
                .cloned()
                .ok_or(HostError::unread("no image")),
            named_by: None,
            renamable: true,
            storage: None,
        };
        (d.target.clone(), facts)
    };
    let known = RunningDomain {
        domain: domain.clone(),
        id: 9,
        build: Ok(builds::of_program("QEMU emulator version 7.2.22").unwrap()),
        metadata: Ok(Metadata::default()),
        disks: domain.disks.iter().map(facts).collect(),
    };
    let disk = domain.disks.iter().find(|d| d.target == target).unwrap();
    let verdict = known.verdict(disk, builds::CopyInitiator::Us);
    verdict.err().map(|why| why.to_string())
}

#[test]
fn plain_machine_is_reported_like_a_domain() {
    let machine = machine();
    let (domain, stats) = domain(&machine);
    let disk = |target: &str| {
        let found = domain.disks.iter().find(|d| d.target == target);
        found.unwrap_or_else(|| panic!("no {target} in {:?}", domain.disks))
    };
    assert_eq!((&*domain.name, domain.id), ("web", Some(9)));
    let source = |target: &str| disk(target).image(|_| None);
    assert_eq!(source("vda"), Some(image("/slow/a.raw", "raw")));
    assert_eq!(source("vdb"), Some(image("/slow/b.qcow2", "qcow2")));
    assert_eq!(source("drive-c"), Some(image("/slow/c.raw", "raw")));
    assert_eq!(source("sda"), Some(image("/slow/d.raw", "raw")));
    let export = Image {
        at: ImageLocation::Nbd {
            socket: "/n.sock".into(),
            export: String::new(),
        },
        format: "raw".into(),
    };
    assert_eq!(source("vde"), Some(export));
    // An unknown option may be enabled.
    assert_eq!((disk("vda").unmap, disk("vdb").unmap), (false, true));
    assert!(disk("sda").limited && disk("drive-c").limited && !disk("vdb").limited);
    let fixed = |target: &str| fixed(&machine, &domain, target);
    for target in ["vdb", "drive-c", "sda", "vde"] {
        assert_eq!(fixed(target), None, "{target}");
    }
    for (target, said) in [
        ("vda", "another program runs a block job"),
        ("vdf", "backing images below its image: 1"),
        ("vdg", "internal snapshots"),
        ("cd0", "not a disk, but a drive"),
    ] {
        let why = fixed(target).unwrap_or_default();
        assert!(why.contains(said), "{target}: {why}");
    }
    let stats = |target: &str| stats.blocks.iter().find(|b| b.target == target).unwrap();
    assert_eq!(stats("vda").capacity, Some(4 << 20));
    assert_eq!(stats("vda").latencies, Some(Latencies::default()));
    assert_eq!(stats("vdb").latencies, None);
    assert_eq!(stats("vdb").reads, Some(Direction::default()));
    let counted: Vec<String> = machine.counted().collect();
    assert_eq!(counted, ["/machine/peripheral/vda/virtio-backend"]);
    let uncounted: Vec<String> = machine.uncounted().collect();
    // Another program owns the histogram of sda, and a CD has none.
    assert_eq!(uncounted.len(), 5, "{uncounted:?}");
    let proxmox = machine.domain("web", 9, "pve-qemu-kvm_7.2.0-8", |_| Options::default());
    let why = proxmox.0.disks.iter().find_map(|d| d.stays.clone());
    assert!(why.unwrap().contains("Proxmox"));
}

#[test]
fn latencies_are_counted_by_bucket() {
    let mut answers = answers();
    let list = answers[2].as_array_mut().unwrap();
    let vda = list
        .iter_mut()
        .find(|e| e["qdev"].to_string().contains("vda"));
    let stats = &mut vda.unwrap()["stats"];
    let mut bins = vec![0; bounds().len() + 1];
    (bins[0], bins[3]) = (2, 5);
    stats["rd_latency_histogram"]["bins"] = json!(bins);
    stats["wr_latency_histogram"]["bins"] = json!(bins);
    stats["flush_latency_histogram"]["bins"] = json!(bins);
    let machine = Machine::of(&answers).unwrap();
    let (_, stats) = domain(&machine);
    let vda = stats.blocks.iter().find(|b| b.target == "vda").unwrap();
    let latencies = vda.latencies.clone().unwrap();
    let counts = |buckets: &[(u16, u64)]| buckets.iter().map(|b| b.1).collect::<Vec<_>>();
    assert_eq!(counts(&latencies.reads), [2, 5]);
    assert_eq!(counts(&latencies.writes), [4, 10]);
    // A wrong number of bins is reported with its path.
    let list = answers[2].as_array_mut().unwrap();
    for entry in list {
        if entry["qdev"].to_string().contains("vda") {
            entry["stats"]["rd_latency_histogram"]["bins"] = json!([1]);
        }
    }
    let why = Machine::of(&answers).unwrap_err().to_string();
    assert!(
        why.starts_with("query-blockstats, return[") && why.contains("bins"),
        "{why}"
    );
}

#[test]
fn state_of_a_move_is_recognized() {
    let (intent, mut answers) = (intent(), answers());
    let names = Names::of(&intent);
    let sight = |answers: &[Value; 7]| {
        let machine = Machine::of(answers).unwrap();
        (
            machine.live("vda", &names, Some(9)),
            machine.failure(&names),
        )
    };
    let from = Some(intent.from.clone());
    let mirrored = |ready| LiveDomain::On {
        image: from.clone(),
        mirror: Some(Mirror {
            to: Some(intent.to.clone()),
            ready,
        }),
        life: Some(9),
    };
    assert_eq!(sight(&answers), (mirrored(false), None));
    answers[0][0]["ready"] = true.into();
    answers[0][0]["status"] = "ready".into();
    assert_eq!(sight(&answers), (mirrored(true), None));
    answers[0][0]["status"] = "standby".into();
    assert_eq!(sight(&answers), (mirrored(false), None));
    answers[0][0]["status"] = "paused".into();
    answers[0][0]["io-status"] = "nospace".into();
    let (live, why) = sight(&answers);
    assert_eq!(live, mirrored(false));
    assert!(why.unwrap().contains("full"));
    // Job of another program on the same disk.
    answers[0][0]["device"] = "other".into();
    let (live, why) = sight(&answers);
    let other = Some(Mirror {
        to: None,
        ready: false,
    });
    assert_eq!(
        (live, why),
        (
            LiveDomain::On {
                image: from,
                mirror: other,
                life: Some(9)
            },
            None
        )
    );
    let machine = Machine::of(&answers).unwrap();
    let images: Vec<ImageLocation> = machine.images().collect();
    // The target of a job is open too.
    for path in ["/slow/a.raw", "/slow/base.qcow2", "/fast/a.qcow2"] {
        assert!(images.contains(&ImageLocation::File(path.into())), "{path}");
    }
    assert!(machine.unused_on(&intent.from.at).is_empty());
    // The mirror has no drive above it.
    assert_eq!(machine.unused_of(&names).len(), 2);
    let missing = machine.live("vdz", &names, Some(9));
    assert_eq!(
        missing,
        LiveDomain::On {
            image: None,
            mirror: None,
            life: Some(9)
        }
    );
}

#[test]
fn migrating_machine_keeps_its_disks() {
    let mut answers = answers();
    let why = |answers: &[Value; 7]| {
        let machine = Machine::of(answers).unwrap();
        let (domain, _) = domain(&machine);
        let vdb = domain.disks.iter().find(|d| d.target == "vdb").unwrap();
        let fixed = fixed(&machine, &domain, &vdb.target);
        assert_eq!(fixed.is_some(), machine.goes_away().is_some());
        machine.goes_away()
    };
    assert_eq!(why(&answers), None);
    answers[6]["status"] = "active".into();
    assert!(why(&answers).unwrap().contains("active"));
    answers[6]["status"] = "failed".into();
    assert_eq!(why(&answers), None);
    answers[5]["status"] = "inmigrate".into();
    assert!(why(&answers).unwrap().contains("inmigrate"));
}

#[test]
fn foreign_job_is_detected_without_a_filter_name() {
    let mut answers = answers();
    let machine = Machine::of(&answers).unwrap();
    assert_eq!(domain(&machine).0.disks[1].mirror, None);
    let nodes = answers[3].as_array_mut().unwrap();
    let named = |n: &&Value| n["file"] == "/slow/b.qcow2";
    let mut filter = nodes.iter().find(named).unwrap().clone();
    (filter["drv"], filter["node-name"]) = ("mirror_top".into(), "#block005".into());
    nodes.push(filter);
    let machine = Machine::of(&answers).unwrap();
    let (domain, _) = domain(&machine);
    let vdb = domain.disks.iter().find(|d| d.target == "vdb").unwrap();
    assert!(vdb.mirror.is_some(), "{vdb:?}");
}

#[test]
fn qmp_orders_name_all_nodes() {
    let (machine, mut intent) = (machine(), intent());
    let names = Names::of(&intent);
    let options = Options {
        unmap: Some(true),
        aio: Some(Aio::IoUring),
    };
    let [file, format] = add_nodes(&machine, &intent, &names, options).unwrap();
    assert_eq!(file["filename"], "/fast/a.qcow2");
    assert_eq!(file["cache"], json!({ "direct": true, "no-flush": false }));
    assert_eq!(
        (&file["aio"], &file["discard"]),
        (&json!("io_uring"), &json!("unmap"))
    );
    assert_eq!(
        (&format["driver"], &format["file"]),
        (&json!("qcow2"), &file["node-name"])
    );
    assert!(file["node-name"].as_str().unwrap().len() <= 31);
    let order = mirror(&machine, &intent, &names, options).unwrap();
    assert_eq!(
        (&order["device"], order.get("replaces")),
        (&json!("a"), None)
    );
    // Disk below a throttle filter.
    intent.target = "sda".into();
    let order = mirror(&machine, &intent, &names, options).unwrap();
    assert_eq!(
        (&order["device"], &order["replaces"]),
        (&json!("d-t"), &json!("d"))
    );
    assert_ne!(Names::of(&intent), names);
}

/// Collects the paths of all nested values.
fn paths(value: &Value, at: Vec<String>, all: &mut Vec<Vec<String>>) {
    all.push(at.clone());
    let children: Vec<(String, &Value)> = match value {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
        _ => vec![],
    };
    for (key, value) in children {
        paths(value, [at.clone(), vec![key]].concat(), all);
    }
}

proptest! {
    #[test]
    fn replaced_json_value_does_not_panic(
        which in any::<prop::sample::Index>(),
        other in prop::sample::select(vec![
            json!(null), json!(-1), json!(1.5), json!("x"), json!(""), json!([]), json!({}), json!(true), json!(u64::MAX), json!([{}]), json!(["/"]),
        ]),
    ) {
        let mut said: Value = serde_json::from_str(SAID).unwrap();
        let mut all = vec![];
        paths(&said, vec![], &mut all);
        let path = which.get(&all);
        let pointer: String = path.iter().map(|p| format!("/{}", p.replace('~', "~0").replace('/', "~1"))).collect();
        *said.pointer_mut(&pointer).unwrap() = other;
        fuzzing::qemu(said.to_string().as_bytes());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::qemu(&bytes);
    }
}
