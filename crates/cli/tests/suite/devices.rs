//! Disks that move between files and block devices while their guests check them: real libvirt, real QEMU, and loop devices in place of volumes.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::machines::GUEST;
use crate::support::kvm::{DiskOf, Kvm, PROGRAMS, URI};
use crate::support::machine_host::said;

const MOVES: &str = "state/libvirt-moves";

/// A loop device that whoever runs the guests may use.
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

/// True if this machine has all that the tests need.
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

/// A host with a guest on a file, and tiers of files and of each device.
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

/// Bytes of the disk, as its guest sees it.
fn capacity(host: &Kvm) -> u64 {
    let text = host.virsh(&["domblkinfo", "web", "vda"]);
    let line = text.lines().find_map(|l| l.strip_prefix("Capacity:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_disk_goes_between_files_and_devices_while_its_guest_checks_it() {
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
    for n in 0..6 {
        let (tier, image) = &images[n % 3];
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
            // A start reads the definition, which keeps the size too.
            host.virsh(&["destroy", "web"]);
            host.virsh(&["start", "web"]);
            host.wait_for_writes("web", 20);
            assert_eq!(capacity(&host), bytes, "after a start");
        }
    }
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
fn a_device_in_use_or_with_data_is_not_written() {
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
    // Nothing is planned onto a device that is too small.
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
