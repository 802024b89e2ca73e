//! Answers in the forms of the published schema, parsed and combined.

use std::collections::BTreeMap;

use manager::wire::HandMove;
use serde_json::{Value, json};

use super::moving::{
    ClusterObservation, INTENT_FORM, Intent, NamedVolume, Phase, SeenTask, Step, next,
};
use super::*;
use crate::HostError;

fn status(change: Value) -> VmStatus {
    let mut answer = json!({
        "vmid": 100, "status": "running", "qmpstatus": "running", "pid": "4711",
        "running-qemu": "10.0.13", "ha": { "managed": 0 },
        "blockstat": { "scsi0": {
            "rd_operations": 10, "rd_bytes": 40960, "rd_total_time_ns": 1000,
            "wr_operations": 5, "wr_bytes": 20480, "wr_total_time_ns": 2000,
            "flush_operations": 1, "flush_total_time_ns": 500, "idle_time_ns": 7,
        } },
    });
    merge(&mut answer, change);
    VmStatus::read(&answer).unwrap()
}

fn facts(change: Value) -> VmFacts {
    let mut answer = json!({
        "digest": "a1", "name": "web", "scsi0": "local:100/vm-100-disk-0.qcow2,iothread=1,size=32G",
        "scsi1": "ceph:vm-100-disk-1,size=4G", "ide2": "local:iso/debian.iso,media=cdrom",
        "ide0": "none,media=cdrom", "net0": "virtio=AA:BB", "unused0": "ceph:vm-100-disk-7",
        "tpmstate0": "local:100/vm-100-disk-2.raw,size=4M,version=v2.0", "sata0": "/dev/disk/by-id/x",
        "ide3": "local:100/vm-100-cloudinit.qcow2,media=cdrom", "scsihw": "virtio-scsi-single",
    });
    merge(&mut answer, change);
    VmFacts {
        config: VmConfig::read(&answer).unwrap(),
        pending: Default::default(),
        snapshots: vec![],
    }
}

fn merge(into: &mut Value, change: Value) {
    for (key, value) in change.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn cluster(status: VmStatus, facts: VmFacts) -> Cluster {
    let resources = json!([
        { "id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1", "name": "web", "status": "running", "template": 0 },
        { "id": "lxc/101", "type": "lxc", "vmid": 101, "node": "pve1", "status": "running" },
        { "id": "qemu/9000", "type": "qemu", "vmid": 9000, "node": "pve1", "status": "stopped", "template": 1 },
    ]);
    let listed = vms(&resources).unwrap();
    assert_eq!(listed.len(), 1);
    let of_node = |total: u64| {
        let answer = json!([
            { "storage": "local", "type": "dir", "content": "iso,images", "active": 1, "enabled": 1,
              "shared": 0, "total": total, "used": 10, "avail": total - 20 },
            { "storage": "ceph", "type": "rbd", "content": "images", "active": 1, "enabled": 1,
              "shared": 1, "total": 5000, "used": 1000, "avail": 4000 },
            { "storage": "pbs", "type": "pbs", "content": "backup", "active": 1, "shared": 1 },
        ]);
        storages(&answer).unwrap()
    };
    let storages = BTreeMap::from([
        ("pve1".to_owned(), of_node(100)),
        ("pve2".into(), of_node(200)),
    ]);
    let tier = |name: &str, storages: &[&str]| TierStorages {
        name: name.into(),
        storages: storages.iter().map(|s| (*s).to_owned()).collect(),
    };
    let tiers = [
        tier("fast", &["local"]),
        tier("slow", &["ceph", "pbs", "gone"]),
    ];
    let (places, warnings) = Cluster::find_places(&tiers, &storages);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let content = json!([{ "volid": "local:100/vm-100-disk-0.qcow2", "format": "qcow2",
        "size": 34359738368u64, "used": 5000, "vmid": "100" }]);
    Cluster {
        tiers: vec!["fast".into(), "slow".into()],
        places,
        vms: vec![Vm {
            listed: listed[0].clone(),
            status: Ok(status),
            facts: Ok(facts),
        }],
        contents: BTreeMap::from([("pve1/local".into(), contents(&content).unwrap())]),
        replicated: Some(Ok(Default::default())),
        tasks: vec![],
    }
}

/// A local storage is a device of each node; a shared one is one device.
#[test]
fn cluster_is_reported_as_an_array() {
    let cluster = cluster(status(json!({})), facts(json!({})));
    let snapshot = cluster.snapshot(|_| "gold".into());
    let devices = snapshot.devices.iter();
    let devices: Vec<_> = devices
        .map(|d| (&*d.name, &*d.tier, d.node.as_deref(), d.used_bytes))
        .collect();
    assert_eq!(
        devices,
        [
            ("pve1/local", "fast", Some("pve1"), 20),
            ("pve2/local", "fast", Some("pve2"), 20),
            ("ceph", "slow", None, 1000),
        ]
    );
    assert_eq!(snapshot.devices[0].io.reads, 10);
    let names: Vec<_> = snapshot.volumes.iter().map(|v| &*v.name).collect();
    assert_eq!(
        names,
        ["web-100:scsi0", "web-100:scsi1", "web-100:tpmstate0"]
    );
    let disk = &snapshot.volumes[0];
    assert_eq!((disk.size_bytes, disk.placed[0].bytes), (32 << 30, 5000));
    assert_eq!((disk.node.as_deref(), &disk.bound), (Some("pve1"), &None));
    let load = &disk.counts.as_ref().unwrap().total;
    assert_eq!(
        (load.reads.ios, load.writes.ios, load.writes.sum_ns),
        (10, 6, 2500)
    );
    assert!(load.reads.buckets.is_empty());
    let Some(HandMove::Command {
        text, needed_bytes, ..
    }) = &disk.by_hand
    else {
        panic!("{:?}", disk.by_hand);
    };
    assert!(text.contains("/nodes/'pve1'/qemu/100/move_disk --disk scsi0 --storage '{place}'"));
    assert_eq!(*needed_bytes, 32 << 30);
    let left_out: BTreeMap<_, _> = cluster.left_out().into_iter().collect();
    for (name, said) in [
        ("web-100:ide2", "CD-ROM"),
        ("web-100:ide3", "cloud-init"),
        ("web-100:sata0", "passed through"),
    ] {
        assert!(left_out[name].contains(said), "{left_out:?}");
    }
    assert_eq!(left_out.len(), 3);
}

#[test]
fn disks_are_immovable_for_each_reason() {
    let why = |cluster: &Cluster, key: &str| {
        let disk = cluster.disk(&format!("web-100:{key}")).unwrap();
        let stays = cluster.stays(&disk);
        stays.map_or(String::new(), |why| {
            format!(
                "{}{why}",
                if why.is_for_people() { "by hand: " } else { "" }
            )
        })
    };
    let plain = || cluster(status(json!({})), facts(json!({})));
    assert_eq!(why(&plain(), "scsi0"), "");
    assert!(why(&plain(), "tpmstate0").contains("TPM"));
    let of_status = |change| why(&cluster(status(change), facts(json!({}))), "scsi0");
    let of_facts = |change| why(&cluster(status(json!({})), facts(change)), "scsi0");
    for (said, needed) in [
        (
            of_facts(json!({ "lock": "backup" })),
            "a backup of its VM is under way",
        ),
        (of_facts(json!({ "lock": "migrate" })), "locked (migrate)"),
        (of_facts(json!({ "protection": 1 })), "is protected"),
        (
            of_status(json!({ "lock": "snapshot" })),
            "locked (snapshot)",
        ),
        (of_status(json!({ "status": "stopped" })), "does not run"),
        (
            of_status(json!({ "ha": { "managed": 1, "state": "migrate" } })),
            "state \"migrate\"",
        ),
        (of_status(json!({ "ha": { "managed": 1 } })), "state \"\""),
        (
            of_status(json!({ "ha": { "managed": 1, "state": "started" } })),
            "",
        ),
        (
            of_status(json!({ "running-qemu": "9.2.0" })),
            "by hand: with QEMU 9.2.0",
        ),
        (
            of_status(json!({ "running-qemu": "7.2.22" })),
            "by hand: copies by QEMU 7.2.22, as by all versions before 8.0, need a pause",
        ),
        (of_status(json!({ "running-qemu": "11.1.3" })), ""),
        (
            of_status(json!({ "running-qemu": "unknown" })),
            "by hand: the version of its running QEMU is unknown",
        ),
        (
            of_facts(json!({ "scsi0": "local:101/vm-101-disk-0.qcow2,size=1G" })),
            "belongs to another VM",
        ),
        (
            of_facts(json!({ "scsi0": "ceph:vm-100-disk-1,size=4G" })),
            "drive scsi1 has the same volume",
        ),
        (
            of_facts(json!({ "scsi0": "ceph:vm-100-disk-3" })),
            "its size is unknown",
        ),
        (
            of_facts(json!({ "scsi0": "ceph:base-9000-disk-0/vm-100-disk-3,size=4G" })),
            "",
        ),
    ] {
        assert!(
            said.contains(needed) && said.is_empty() == needed.is_empty(),
            "{said}"
        );
    }
    let with = |change: fn(&mut Cluster)| {
        let mut cluster = plain();
        change(&mut cluster);
        why(&cluster, "scsi0")
    };
    fn of(cluster: &mut Cluster) -> &mut VmFacts {
        cluster.vms[0].facts.as_mut().unwrap()
    }
    let said = with(|c| {
        of(c).snapshots =
            snapshot_names(&json!([{ "name": "before" }, { "name": "current" }])).unwrap()
    });
    assert!(said.contains("has snapshots (before)"), "{said}");
    let said = with(|c| {
        let pending = json!([{ "key": "scsi0", "value": "a", "pending": "b" }, { "key": "memory", "value": 1 }]);
        of(c).pending = pending_keys(&pending).unwrap();
    });
    assert!(said.contains("waits for the next start"), "{said}");
    let said = with(|c| {
        c.replicated = Some(Ok(replicated(
            &json!([{ "id": "100-0", "guest": "100", "target": "pve2" }]),
        )
        .unwrap()));
    });
    assert!(said.contains("replication job"), "{said}");
    let said = with(|c| c.replicated = Some(Err(HostError::unread("403"))));
    assert!(said.contains("unknown: 403"), "{said}");
    let said = with(|c| {
        let answer = json!([{ "upid": "UPID:pve1:1", "type": "qmclone", "id": "100" }, { "upid": "UPID:pve1:2", "type": "vncproxy", "id": "100" }]);
        c.tasks = tasks(&answer)
            .unwrap()
            .into_iter()
            .filter(Task::works)
            .collect();
    });
    assert!(said.contains("(qmclone)"), "{said}");
    let said = with(|c| c.vms[0].status = Err(HostError::unread("node is down")));
    assert!(said.contains("node is down"), "{said}");
}

#[test]
fn invalid_proxmox_replies_are_refused_with_the_field() {
    let said = |why: crate::HostError| why.to_string();
    let why = said(vms(&json!([{ "type": "qemu", "vmid": "x", "node": "a" }])).unwrap_err());
    assert!(why.contains("data[0].vmid"), "{why}");
    let why = said(VmConfig::read(&json!({ "scsi0": "a:b" })).unwrap_err());
    assert!(why.contains("data.digest"), "{why}");
    let why = said(
        VmStatus::read(&json!({ "status": "running", "blockstat": { "scsi0": {} } })).unwrap_err(),
    );
    assert!(why.contains("data.blockstat.scsi0.rd_bytes"), "{why}");
    let why = said(storages(&json!({})).unwrap_err());
    assert!(why.contains("not a list"), "{why}");
    assert_eq!(
        task_state(&json!({ "status": "running" })).unwrap(),
        TaskState::Runs
    );
    let ended = task_state(&json!({ "status": "stopped", "exitstatus": "WARNINGS: 1" })).unwrap();
    assert!(ended.is_ok());
}

#[test]
fn task_log_reports_copy_progress() {
    let log = |lines: &[&str], from: usize| {
        let lines = lines.iter().enumerate();
        let lines = lines.map(|(i, t)| json!({ "n": from + i + 1, "t": t }));
        Value::from(lines.collect::<Vec<_>>())
    };
    let mut progress = Progress::default();
    progress.read_more(&log(&["no content"], 0)).unwrap();
    assert_eq!(progress, Progress::default());
    let begin = [
        "copying volume 'a:vm-100-disk-0' from current storage 'a' to target storage 'b'",
        "drive mirror is starting for drive-scsi0",
        "drive-scsi0: transferred 12.5 GiB of 32.0 GiB (39.06%) in 1m 2s",
    ];
    assert_eq!(progress.read_more(&log(&begin, 0)).unwrap(), 3);
    assert_eq!(
        (progress.lines, progress.copied, progress.switches),
        (3, 3906, false)
    );
    let end = ["drive-scsi0: transferred 32.0 GiB of 32.0 GiB (100.00%) in 2m 2s, ready"];
    progress.read_more(&log(&end, 3)).unwrap();
    assert_eq!(
        (progress.lines, progress.copied, progress.switches),
        (4, 10_000, true)
    );
}

#[test]
fn missing_privileges_are_found() {
    let rights = needed(&["nvme".into()], &["pve1".into()], true);
    assert_eq!(rights.len(), 5);
    let answers = BTreeMap::from([
        (
            "/vms".to_owned(),
            json!({ "/vms": { "VM.Audit": 1, "VM.Config.Disk": 0 } }),
        ),
        (
            "/storage/nvme".into(),
            json!({ "/storage/nvme": { "Datastore.Audit": 1 } }),
        ),
        ("/nodes/pve1".into(), json!({})),
    ]);
    let lacking = missing(&rights, &answers).unwrap();
    let lacking: Vec<_> = lacking.iter().map(|r| r.privilege).collect();
    assert_eq!(lacking, ["Datastore.AllocateSpace", "Sys.Audit"]);
    assert_eq!(needed(&[], &["pve1".into()], false).len(), 1);
}

const FROM: &str = "fast:vm-100-disk-0";
const TO: &str = "slow:vm-100-disk-1";
const OLD: Identity = Identity {
    bytes: 1 << 30,
    ctime_s: 900,
};

fn intent(phase: Phase) -> Intent {
    Intent {
        form: INTENT_FORM,
        job: 1,
        volume: "web-100:scsi0".into(),
        vmid: 100,
        node: "pve1".into(),
        disk: "scsi0".into(),
        from: FROM.into(),
        device: "slow".into(),
        storage: "slow".into(),
        bytes: 1 << 30,
        rate_bytes_per_s: 1 << 20,
        life: 5,
        earlier: vec![],
        cancel: None,
        phase,
    }
}

fn copying(stopped: bool) -> Phase {
    Phase::Copying {
        task: "UPID:1".into(),
        stopped,
    }
}

fn seen(task: SeenTask, named: &str) -> ClusterObservation {
    ClusterObservation {
        named: NamedVolume::Volume(named.into()),
        unused: vec![],
        from_in_use: named == FROM,
        old: Some(OLD),
        ended_s: Some(900),
        new_task: None,
        sure: true,
        task,
        progress: Some(Progress::default()),
        pace: Some(1 << 20),
        life: 5,
        now_s: 1000,
        keep_s: 60,
    }
}

fn ended(how: &str) -> SeenTask {
    SeenTask::Known(TaskState::Ended(how.into()))
}

fn kept() -> Phase {
    Phase::Kept {
        to: TO.into(),
        until_s: 1060,
        old: Some(OLD),
    }
}

#[test]
fn move_is_confirmed_by_the_configuration() {
    let of = |seen: &ClusterObservation| next(&intent(copying(false)), seen);
    for how in ["OK", "WARNINGS: 1", "unexpected status"] {
        assert_eq!(of(&seen(ended(how), TO)), Step::Note(kept()), "{how}");
    }
    let failed = of(&seen(ended("storage migration failed: no space\n"), FROM));
    assert_eq!(
        failed,
        Step::Forget(Some(
            "Proxmox VE: storage migration failed: no space".into()
        ))
    );
    let elsewhere = of(&seen(ended("OK"), "other:vm-100-disk-9"));
    assert!(matches!(elsewhere, Step::Forget(Some(why)) if why.contains("another volume")));
    assert_eq!(of(&seen(SeenTask::Unknown, TO)), Step::Wait);
    let unknown = ClusterObservation {
        named: NamedVolume::Unknown,
        ..seen(ended("OK"), TO)
    };
    assert_eq!(of(&unknown), Step::Wait);
}

/// The guest may use a volume that the configuration does not name, and that was freed.
#[test]
fn failure_after_the_switch_is_unresolved_until_a_restart() {
    let switches = Some(Progress {
        switches: true,
        ..Progress::default()
    });
    for (task, progress) in [
        (ended("interrupted by signal"), switches),
        (SeenTask::Lost, None),
    ] {
        let seen = ClusterObservation {
            progress,
            ..seen(task, FROM)
        };
        let step = next(&intent(copying(true)), &seen);
        let Step::Note(doubt @ Phase::Doubtful { .. }) = step else {
            panic!("{step:?}");
        };
        let doubtful = intent(doubt);
        assert_eq!(next(&doubtful, &seen), Step::Wait);
        let restarted = ClusterObservation {
            life: 6,
            ..seen.clone()
        };
        assert!(matches!(next(&doubtful, &restarted), Step::Forget(Some(_))));
        let settled = self::seen(SeenTask::Unknown, TO);
        assert_eq!(next(&doubtful, &settled), Step::Note(kept()));
    }
}

/// A long log takes several looks after a restart.
#[test]
fn ended_task_with_unread_log_waits() {
    let unread = |task| ClusterObservation {
        progress: None,
        ..seen(task, FROM)
    };
    let intent = intent(copying(true));
    assert_eq!(next(&intent, &unread(ended("interrupted"))), Step::Wait);
    let lost = next(&intent, &unread(SeenTask::Lost));
    assert!(matches!(lost, Step::Note(Phase::Doubtful { .. })));
    let moved = ClusterObservation {
        named: NamedVolume::Volume(TO.into()),
        ..unread(ended("OK"))
    };
    assert_eq!(next(&intent, &moved), Step::Note(kept()));
}

#[test]
fn task_is_stopped_only_while_it_copies() {
    let cancelled = |phase| Intent {
        cancel: Some("cancelled".into()),
        ..intent(phase)
    };
    let at = |copied, switches| ClusterObservation {
        progress: Some(Progress {
            lines: 1,
            copied,
            switches,
        }),
        ..seen(SeenTask::Known(TaskState::Runs), FROM)
    };
    let task = "UPID:1".to_owned();
    assert_eq!(
        next(&cancelled(copying(false)), &at(5_000, false)),
        Step::Stop { task }
    );
    for (phase, seen) in [
        (copying(true), at(5_000, false)),
        (copying(false), at(9_500, false)),
        (copying(false), at(100, true)),
        (
            copying(false),
            ClusterObservation {
                progress: None,
                ..at(0, false)
            },
        ),
        (
            copying(false),
            ClusterObservation {
                pace: None,
                ..at(5_000, false)
            },
        ),
        // Faster than ordered: zeroes, which the rate does not bound.
        (
            copying(false),
            ClusterObservation {
                pace: Some((1 << 20) + 1),
                ..at(4_000, false)
            },
        ),
    ] {
        assert_eq!(next(&cancelled(phase), &seen), Step::Wait);
    }
    assert_eq!(next(&intent(copying(false)), &at(5_000, false)), Step::Wait);
    // The rest takes 51 s at the ordered rate.
    let soon = Intent {
        rate_bytes_per_s: 10 << 20,
        ..cancelled(copying(false))
    };
    assert_eq!(next(&soon, &at(5_000, false)), Step::Wait);
    let stopped = next(&cancelled(copying(true)), &seen(ended("interrupted"), FROM));
    assert_eq!(stopped, Step::Forget(Some("cancelled".into())));
}

#[test]
fn unanswered_order_is_found_among_the_tasks() {
    let begun = intent(Phase::Begun);
    let early = ClusterObservation {
        sure: false,
        ..seen(SeenTask::Unknown, FROM)
    };
    assert_eq!(next(&begun, &early), Step::Wait);
    let found = ClusterObservation {
        new_task: Some("UPID:1".into()),
        ..early
    };
    assert_eq!(next(&begun, &found), Step::Note(copying(false)));
    assert_eq!(
        next(&begun, &seen(SeenTask::Unknown, FROM)),
        Step::Forget(Some("the task did not start".into()))
    );
    assert_eq!(
        next(&begun, &seen(SeenTask::Unknown, TO)),
        Step::Note(kept())
    );
}

/// Only the old volume is removed, only as an unused one, and only after its time.
#[test]
fn old_volume_is_removed_after_its_time_only_if_unused() {
    let kept = intent(kept());
    let late = |unused: &[&str], from_in_use| ClusterObservation {
        unused: unused.iter().map(|u| (*u).to_owned()).collect(),
        from_in_use,
        now_s: 1060,
        ..seen(SeenTask::Unknown, TO)
    };
    let early = |unused: &[&str]| ClusterObservation {
        now_s: 1059,
        ..late(unused, false)
    };
    assert_eq!(next(&kept, &early(&["unused0"])), Step::Wait);
    // After its removal its name may belong to another volume.
    assert_eq!(next(&kept, &early(&[])), Step::Forget(None));
    let key = "unused3".to_owned();
    assert_eq!(
        next(&kept, &late(&["unused3"], false)),
        Step::Remove { key }
    );
    assert_eq!(next(&kept, &late(&[], false)), Step::Forget(None));
    assert_eq!(next(&kept, &late(&["unused3"], true)), Step::Forget(None));
    let no_vm = ClusterObservation {
        named: NamedVolume::NoVm,
        ..late(&[], false)
    };
    assert_eq!(next(&kept, &no_vm), Step::Forget(None));
    let unknown = ClusterObservation {
        named: NamedVolume::Unknown,
        ..late(&["unused3"], false)
    };
    assert_eq!(next(&kept, &unknown), Step::Wait);
}

/// Proxmox VE gives the name of a removed volume to the next one.
#[test]
fn new_volume_with_the_old_name_is_not_removed() {
    let other = Identity {
        ctime_s: OLD.ctime_s + 500,
        ..OLD
    };
    let larger = Identity {
        bytes: OLD.bytes + 1,
        ..OLD
    };
    let late = |old| ClusterObservation {
        unused: vec!["unused0".into()],
        now_s: 1060,
        old,
        ..seen(SeenTask::Unknown, TO)
    };
    for (recorded, now, said) in [
        (Some(OLD), Some(other), "another volume"),
        (Some(OLD), Some(larger), "another volume"),
        (Some(OLD), None, "does not report"),
        (None, Some(OLD), "are unknown"),
        (None, None, "are unknown"),
    ] {
        let phase = Phase::Kept {
            to: TO.into(),
            until_s: 1060,
            old: recorded,
        };
        let step = next(&intent(phase), &late(now));
        assert!(
            matches!(&step, Step::Leave(why) if why.contains(said)),
            "{step:?}"
        );
    }
}

/// The agent may look long after the end of the task.
#[test]
fn volume_created_after_the_task_is_not_recorded_as_the_old_one() {
    let recorded = |ctime_s, ended_s| {
        let seen = ClusterObservation {
            old: Some(Identity { ctime_s, ..OLD }),
            ended_s,
            ..seen(ended("OK"), TO)
        };
        match next(&intent(copying(false)), &seen) {
            Step::Note(Phase::Kept { old, .. }) => old.map(|old| old.ctime_s),
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(recorded(900, Some(900)), Some(900));
    assert_eq!(recorded(903, Some(900)), None);
    assert_eq!(recorded(900, None), None);
}

#[test]
fn identity_needs_size_and_time() {
    let of = |change: Value| {
        let mut answer =
            json!([{ "volid": "a:vm-1-disk-0", "format": "raw", "size": 5, "ctime": 7 }]);
        merge(&mut answer[0], change);
        contents(&answer).unwrap()["a:vm-1-disk-0"].identity()
    };
    let full = Identity {
        bytes: 5,
        ctime_s: 7,
    };
    assert_eq!(of(json!({})), Some(full));
    assert_eq!(of(json!({ "ctime": null })), None);
    assert_eq!(of(json!({ "size": null })), None);
}
