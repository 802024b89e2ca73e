//! One verdict on the move of a disk, for the agent's report, its job and a printed command.

use manager::wire::HandMove;
use serde_json::{Value, json};
use vmhost::builds::{CopyInitiator, of_program};
use vmhost::*;

use crate::{info, known};

const QCOW2: &str = "<domain><name>it's</name><uuid>u</uuid><devices><disk type='file'>
    <driver type='qcow2'/><source file='/a/b c.qcow2'/><backingStore/><target dev='vda'/></disk></devices></domain>";

/// Returns output of `qemu-img info` with changed fields.
fn said(change: impl FnOnce(&mut Value)) -> Value {
    let mut said = json!({
        "virtual-size": 1073741824, "format": "qcow2", "cluster-size": 2097152,
        "format-specific": { "type": "qcow2", "data": {
            "compat": "1.1", "lazy-refcounts": true, "refcount-bits": 32, "corrupt": false,
            "extended-l2": true, "compression-type": "zstd",
        } },
    });
    change(&mut said);
    said
}

/// Returns the domain with such an image.
fn with(change: impl FnOnce(&mut Value)) -> RunningDomain {
    let mut known = known(QCOW2);
    known.disks.get_mut("vda").unwrap().info = info(&said(change));
    known
}

/// Returns the agent's report: the reason for which it does not move the disk, and the command for an operator.
fn report(known: &RunningDomain) -> (Option<String>, HandMove) {
    let place = Place {
        name: "a".into(),
        tier: "t".into(),
        path: "/a".into(),
        size: 1 << 40,
        used: 0,
        io: None,
        connected: true,
    };
    let stats = domain_stats(
        "Domain: 'it's'\n  block.0.name=vda\n  block.0.capacity=1073741824\n  block.0.physical=200704\n",
    )
    .unwrap();
    let inventory = Inventory {
        tiers: &["t".to_owned()],
        places: &[place],
        pools: &[],
        stored: &[],
        domains: vec![known],
        stats: &stats,
        by: CopyInitiator::Libvirt,
    };
    let volume = inventory.snapshot(|_| "c".into()).volumes.remove(0);
    (volume.bound.map(|b| b.why), volume.by_hand.unwrap())
}

#[test]
fn copy_that_would_lose_content_is_refused() {
    let metadata = |metadata: Metadata| RunningDomain {
        metadata: Ok(metadata),
        ..with(|_| {})
    };
    let mut named = with(|_| {});
    named.disks.get_mut("vda").unwrap().named_by = Some("domain b also uses its image".into());
    let mut unread = with(|_| {});
    unread.disks.get_mut("vda").unwrap().info = Err(HostError::unread("/a/b: permission denied"));
    let data = |name: &'static str, value: Value| {
        with(move |s| s["format-specific"]["data"][name] = value)
    };
    for (known, expected) in [
        (
            with(|s| s["snapshots"] = json!([{ "id": "1" }, { "id": "2" }])),
            "2 internal snapshots",
        ),
        (
            data("bitmaps", json!([{ "name": "b", "flags": ["in-use"] }])),
            "1 bitmaps",
        ),
        (
            data("data-file", json!("/a/data")),
            "in another file, /a/data",
        ),
        (data("encrypt", json!({ "format": "luks" })), "is encrypted"),
        (with(|s| s["encrypted"] = true.into()), "is encrypted"),
        (data("corrupt", true.into()), "is marked corrupt"),
        (
            data("compression-type", json!("lz4")),
            "compression_type=\"lz4\"",
        ),
        (data("compat", json!("3")), "the option compat=3"),
        (
            with(|s| s["backing-filename"] = json!("/a/base")),
            "the backing image /a/base",
        ),
        (
            with(|s| s["format-specific"] = Value::Null),
            "its options are unknown",
        ),
        (
            metadata(Metadata {
                snapshots: true,
                ..Metadata::default()
            }),
            "its domain has snapshots",
        ),
        (
            metadata(Metadata {
                checkpoints: true,
                ..Metadata::default()
            }),
            "has checkpoints",
        ),
        (
            metadata(Metadata {
                job: Some("Backup".into()),
                ..Metadata::default()
            }),
            "(Backup)",
        ),
        (
            RunningDomain {
                metadata: Err(HostError::unread("no answer")),
                ..with(|_| {})
            },
            "unknown: no answer",
        ),
        (
            RunningDomain {
                disks: Default::default(),
                ..with(|_| {})
            },
            "the agent has not inspected it yet",
        ),
        (named, "domain b also uses its image"),
        (unread, "permission denied"),
        (
            RunningDomain {
                build: of_program("QEMU emulator version 10.1.0")
                    .ok_or_else(|| HostError::unread("none")),
                ..with(|_| {})
            },
            "issue 3273",
        ),
        (
            RunningDomain {
                build: Err(HostError::unread("nobody knows")),
                ..with(|_| {})
            },
            "nobody knows",
        ),
    ] {
        let job = known.verdict(&known.domain.disks[0], CopyInitiator::Libvirt);
        let job = job.unwrap_err().to_string();
        assert!(job.contains(expected), "{expected}: {job}");
        let (bound, command) = report(&known);
        assert_eq!(bound.as_deref(), Some(&*job));
        assert_eq!(command, HandMove::None { why: job });
    }
}

#[test]
fn copy_command_preserves_options_and_overwrites_no_file() {
    let known = with(|_| {});
    let (bound, command) = report(&known);
    assert_eq!(bound, None);
    let HandMove::Command {
        text, needed_bytes, ..
    } = command
    else {
        panic!("{command:?}")
    };
    assert_eq!(
        text,
        "(umask 077; set -C; : > '{place}/b c.qcow2') && qemu-img create -q -f qcow2 -o \
         compat=1.1,cluster_size=2097152,lazy_refcounts=on,refcount_bits=32,extended_l2=on,compression_type=zstd \
         '{place}/b c.qcow2' 1073741824 && virsh blockcopy 'it'\\''s' 'vda' '{place}/b c.qcow2' --format qcow2 \
         --transient-job --synchronous-writes --wait --verbose --pivot --reuse-external"
    );
    assert_eq!(needed_bytes, 200_704 + SPARE_BYTES);
}

#[test]
fn guest_that_must_be_paused_is_moved_by_the_agent_only() {
    let mut known = with(|_| {});
    known.domain.disks[0].iothread = true;
    let (bound, command) = report(&known);
    assert_eq!(bound, None);
    let HandMove::None { why } = command else {
        panic!("{command:?}")
    };
    assert!(why.contains("must be paused while a copy begins"), "{why}");
}

#[test]
fn disk_immovable_for_the_agent_only_gets_a_manual_command() {
    let mut known = with(|_| {});
    known.disks.get_mut("vda").unwrap().renamable = false;
    let verdict = |known: &RunningDomain| {
        known
            .verdict(&known.domain.disks[0], CopyInitiator::Libvirt)
            .unwrap_err()
    };
    assert!(verdict(&known).is_for_people());
    assert!(matches!(report(&known).1, HandMove::Command { .. }));
    let mut unseen = with(|_| {});
    unseen.domain.id = None;
    assert_eq!(verdict(&unseen), StayReason::Unseen);
    assert!(matches!(report(&unseen).1, HandMove::Command { .. }));
    let lost = with(|s| s["snapshots"] = json!([{}]));
    assert!(!verdict(&lost).is_for_people());
}
