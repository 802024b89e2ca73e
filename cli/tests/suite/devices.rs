//! Disks that move between files and block devices while their guests check them: real libvirt, real QEMU, and loop devices in place of volumes.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::machines::GUEST;
use crate::support::kvm::{DiskOf, Kvm, PROGRAMS, URI};
use crate::support::machine_host::said;

const MOVES: &str = "state/libvirt-moves";

/// Loop device that the user of the guests may open.
struct Loop(String);

impl Loop {
    fn new(host: &Kvm, file: &str, bytes: u64) -> Self {
        let path = host.path(file);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut losetup = Command::new("losetup");
        let output = losetup.args(["-f", "--show"]).arg(&path).output();
        let device = Self(said(output.unwrap()).trim().into());
        device.give_to("nobody");
        device
    }

    fn give_to(&self, owner: &str) {
        let chown = Command::new("chown").args([owner, &self.0]).status();
        assert!(chown.unwrap().success());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.give_to("root");
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Returns true if this machine has every program and device that the tests need.
fn can_run() -> bool {
    let needed = [&PROGRAMS[..], &["losetup"]].concat();
    if !testkit::needs::programs(&needed) {
        return false;
    }
    let is_root = rustix::process::geteuid().is_root();
    let there = is_root && Path::new("/dev/loop-control").exists();
    if !there {
        testkit::needs::skipped("loop");
    }
    there
}

/// Returns a host with a guest on a file, and with a tier of files and one tier per device.
fn host_with(devices: &[(&str, u64)]) -> (Kvm, String, Vec<Loop>) {
    let mut host = Kvm::new();
    let dir = host.make_dir("files");
    let loops = devices
        .iter()
        .map(|(name, bytes)| Loop::new(&host, name, *bytes));
    let loops: Vec<Loop> = loops.collect();
    let web = DiskOf {
        file: "files/web.raw",
        format: "raw",
        driver: "discard='unmap'",
    };
    host.define("web", &GUEST, &[web]);
    let mut tiers = vec![("files", dir.as_str(), Some("raw"))];
    tiers.extend(
        devices
            .iter()
            .zip(&loops)
            .map(|((name, _), l)| (*name, &*l.0, None)),
    );
    host.configure(&format!("[libvirt]\nuri = \"{URI}\""), "100MB/s", &tiers);
    host.virsh(&["start", "web"]);
    host.wait_for_writes("web", 20);
    (host, dir, loops)
}

/// Returns the size of the disk in bytes, as its guest sees it.
fn capacity(host: &Kvm) -> u64 {
    let text = host.virsh(&["domblkinfo", "web", "vda"]);
    let line = text.lines().find_map(|l| l.strip_prefix("Capacity:"));
    line.unwrap().trim().parse().unwrap()
}

/// Runs more moves on request: `TERRACE_SEEDS=0..180` makes 60 moves of each kind.
#[test]
fn disk_moves_between_files_and_devices_without_data_loss() {
    if !can_run() {
        return;
    }
    let bytes = GUEST.disk_bytes();
    let devices = [("larger", bytes + (3 << 20)), ("exact", bytes)];
    let (mut host, dir, loops) = host_with(&devices);
    host.serve();
    let images = [
        ("larger", loops[0].0.clone()),
        ("exact", loops[1].0.clone()),
        ("files", format!("{dir}/")),
    ];
    let moves = testkit::seeds::run(0..6, |n| {
        let (tier, image) = &images[n as usize % 3];
        host.pin("web:vda", tier);
        host.wait_until(&format!("move {n} to {tier} is done"), || {
            [false, true].iter().all(|inactive| {
                let now = host.image_of("web", "vda", *inactive);
                now.is_some_and(|now| now.starts_with(image.as_str()))
            })
        });
        host.wait_until("it is written down", || host.rests(MOVES));
        assert_eq!(capacity(&host), bytes, "on {tier}");
        host.wait_for_writes("web", 20);
        if n == 0 {
            // A start reads the definition, which contains the unchanged size.
            host.virsh(&["destroy", "web"]);
            host.virsh(&["start", "web"]);
            host.wait_for_writes("web", 20);
            assert_eq!(capacity(&host), bytes, "after a start");
        }
        Ok(())
    });
    eprintln!(
        "{moves} moves, {} writes",
        host.log("web").unwrap().writes()
    );
    let last = host.image_of("web", "vda", true).unwrap();
    assert_eq!(host.files("files"), [last.rsplit_once('/').unwrap().1]);
    let problems = host.status()["problems"].to_string();
    assert!(!problems.contains("web"), "{problems}");
    host.virsh(&["destroy", "web"]);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (2, 0));
    let lost = log.lost_in(&host.bytes_of(&last, "raw"));
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn device_in_use_or_with_data_is_not_overwritten() {
    if !can_run() {
        return;
    }
    let bytes = GUEST.disk_bytes();
    let (mut host, _, loops) = host_with(&[("used", bytes), ("full", bytes), ("small", 4096)]);
    let config = fs::read_to_string(host.path("machines.toml")).unwrap();
    let full = format!("\"{}\"]\noverwrite = true", loops[1].0);
    let config = config.replace(&full, &format!("\"{}\"]", loops[1].0));
    fs::write(host.path("machines.toml"), config).unwrap();
    let before = loops.iter().map(|l| fs::read(&l.0).unwrap());
    let before: Vec<Vec<u8>> = before.collect();
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let user = File::options()
        .read(true)
        .custom_flags(exclusive)
        .open(&loops[0].0);
    let user = user.unwrap();
    host.serve();
    for (tier, why) in [("used", "is in use"), ("full", "set `overwrite = true`")] {
        host.pin("web:vda", tier);
        host.wait_until(&format!("the move to {tier} fails with {why:?}"), || {
            said(host.terrace(&["job", "list"])).contains(why)
        });
    }
    // A device that is too small receives no planned move.
    host.terrace(&["volume", "pin", "web:vda", "small"]);
    host.wait_for_writes("web", 50);
    let image = host.image_of("web", "vda", false).unwrap();
    assert!(image.ends_with("files/web.raw"), "{image}");
    drop(user);
    for (device, before) in loops.iter().zip(before) {
        assert!(
            fs::read(&device.0).unwrap() == before,
            "{} was written",
            device.0
        );
    }
}
