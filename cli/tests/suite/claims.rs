//! Exclusive use of block devices and protection of existing data, tested with the tools of an
//! operator: `mount`, `mkfs`, `wipefs`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::needs;

use crate::save::Loop;
use crate::support::{KillOnDrop, Site, wait_for};

const MIB: u64 = 1 << 20;

/// Creates a block device of 64 MiB of zeroes; returns `None` without loop devices or root.
fn disk(site: &Site, name: &str) -> Option<Loop> {
    if !needs::programs(&["losetup", "mkfs.ext4"]) {
        return None;
    }
    if !Path::new("/dev/loop-control").exists() {
        needs::skipped("loop");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        needs::skipped("root");
        return None;
    }
    let file = site.path(name);
    File::create(&file).unwrap().set_len(64 * MIB).unwrap();
    Some(Loop::new(&file).expect("a loop device"))
}

/// Returns the output of a command, standard error included.
fn text_of(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn succeeds(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {}", text_of(&output));
    text_of(&output)
}

fn fails(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(!output.status.success(), "{program}: {}", text_of(&output));
    text_of(&output)
}

fn add(site: &Site, more: &[&str]) -> Result<String, String> {
    let output = site.run(&[&["tier", "add", "slow"], more].concat());
    match output.status.success() {
        true => Ok(text_of(&output)),
        false => Err(text_of(&output)),
    }
}

/// Adds a block device to an array and serves volume `db` from it.
fn serve_on(site: &mut Site, disk: &Loop) {
    add(site, &["--device", &disk.0]).unwrap();
    site.ok(&["volume", "create", "db", "--size", "8M", "--tier", "slow"]);
    site.serve(&[]);
    site.copies_are_current();
}

/// Opens a block device as `mount` and `mkfs` do.
fn claim(device: &str) -> io::Result<File> {
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    File::options()
        .read(true)
        .write(true)
        .custom_flags(exclusive)
        .open(device)
}

fn is_busy(device: &str) -> bool {
    claim(device).is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
}

/// A mounted file system.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn mounted_device_is_refused_and_its_file_system_is_unchanged() {
    let site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    succeeds("mkfs.ext4", &["-q", &disk.0]);
    let at = site.path("mounted");
    fs::create_dir(&at).unwrap();
    succeeds("mount", &[&disk.0, at.to_str().unwrap()]);
    let mount = Mount(&at);
    fs::write(at.join("data"), "precious").unwrap();
    let named = format!("{} is mounted at {} (ext4)", disk.0, at.display());
    for more in [&[][..], &["--force"]] {
        let why = add(&site, &[&["--device", &disk.0], more].concat()).unwrap_err();
        assert!(why.contains("is in use") && why.contains(&named), "{why}");
    }
    assert_eq!(fs::read_to_string(at.join("data")).unwrap(), "precious");
    drop(mount);
    succeeds("e2fsck", &["-fn", &disk.0]);
    // The device is free now, but holds a file system.
    let why = add(&site, &["--device", &disk.0]).unwrap_err();
    assert!(why.contains("holds data: ext4 file system"), "{why}");
}

#[test]
fn device_held_by_another_process_is_refused() {
    let site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    let held = claim(&disk.0).unwrap();
    for more in [&[][..], &["--force"]] {
        let why = add(&site, &[&["--device", &disk.0], more].concat()).unwrap_err();
        let own = format!("process {}", std::process::id());
        let named = why.contains("another process has it open exclusively") && why.contains(&own);
        assert!(named, "{why}");
    }
    drop(held);
    add(&site, &["--device", &disk.0]).unwrap();
}

#[test]
fn mkfs_and_mount_of_a_served_device_fail() {
    let mut site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    add(&site, &["--device", &disk.0]).unwrap();
    site.ok(&["volume", "create", "db", "--size", "8M", "--tier", "slow"]);
    assert!(claim(&disk.0).is_ok(), "it is not served");
    site.serve(&[]);
    let mut guest = datapath::Client::connect(&site.uri("db").parse().unwrap()).unwrap();
    guest.write(0, &[7; 4096]).unwrap();
    let why = fails("mkfs.ext4", &["-q", &disk.0]);
    assert!(why.contains("in use"), "{why}");
    let at = site.path("mounted");
    fs::create_dir(&at).unwrap();
    let why = fails("mount", &["-t", "ext4", &disk.0, at.to_str().unwrap()]);
    assert!(why.contains("busy"), "{why}");
    // Another array is refused as well.
    let other = Site::empty();
    let why = add(&other, &["--device", &disk.0, "--force"]).unwrap_err();
    let named = format!("terrace, process {}", site.server_pid());
    assert!(why.contains(&named), "{why}");
    assert_eq!(guest.read(0, 4096).unwrap(), [7; 4096]);
    site.stop();
    assert!(claim(&disk.0).is_ok(), "the server has ended");
}

#[test]
fn device_with_data_is_refused_and_force_names_the_data() {
    let site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    let device = ["--device", &disk.0];
    succeeds("mkfs.ext4", &["-q", "-L", "backup", &disk.0]);
    let before = fs::read(&disk.0).unwrap();
    let data = "ext4 file system, label backup";
    let why = add(&site, &device).unwrap_err();
    assert!(why.contains(&format!("holds data: {data}")), "{why}");
    assert!(why.contains("`--force` destroys"), "{why}");
    assert!(fs::read(&disk.0).unwrap() == before, "it was written to");
    let answer = add(&site, &[&device[..], &["--force"]].concat()).unwrap();
    assert!(answer.contains(&format!("; destroyed: {data}")), "{answer}");
    assert_eq!(succeeds("wipefs", &["--noheadings", &disk.0]), "");
    site.ok(&["tier", "remove", "slow"]);
    // Data without a signature that the prober knows.
    let file = File::options().write(true).open(&disk.0).unwrap();
    for (at, which) in [(4 * 4096, "first"), (63 * MIB, "last")] {
        file.write_all_at(b"data", at).unwrap();
        file.sync_all().unwrap();
        let why = add(&site, &device).unwrap_err();
        assert!(
            why.contains(&format!("the {which} MiB is not zero")),
            "{why}"
        );
        file.write_all_at(&[0; 4], at).unwrap();
    }
    // The removed device is blank.
    add(&site, &device).unwrap();
}

#[test]
fn device_of_another_array_is_refused_without_force() {
    let (site, other) = (Site::empty(), Site::empty());
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    let device = ["--device", &disk.0];
    add(&other, &device).unwrap();
    let before = fs::read(&disk.0).unwrap();
    let owner = "device 0 of Terrace array ";
    let why = add(&site, &device).unwrap_err();
    assert!(why.contains("holds data: ") && why.contains(owner), "{why}");
    // `device replace` applies the same check.
    for tier in ["fast", "slow"] {
        let dir = site.path(tier);
        fs::create_dir(&dir).unwrap();
        let dir = dir.to_str().unwrap();
        site.ok(&["tier", "add", tier, "--dir", dir, "--size", "16M"]);
    }
    let replace = [&["device", "replace", "slow-0"], &device[..]].concat();
    let output = site.run(&replace);
    let why = text_of(&output);
    assert!(!output.status.success() && why.contains(owner), "{why}");
    assert!(fs::read(&disk.0).unwrap() == before, "it was written to");
    let output = site.run(&[&replace[..], &["--force"]].concat());
    let answer = text_of(&output);
    assert!(
        output.status.success() && answer.contains("; destroyed: device 0 of"),
        "{answer}"
    );
    let lost = other.json(&["tier", "list"])["tiers"][0]["devices"][0].to_string();
    assert!(lost.contains("not to the device of this name"), "{lost}");
}

#[test]
fn existing_file_needs_force_and_is_refused_while_qemu_uses_it() {
    let site = Site::empty();
    let dir = site.path("files");
    fs::create_dir(&dir).unwrap();
    let file = dir.join("slow-0.extents");
    let source = ["--dir", dir.to_str().unwrap(), "--size", "16M"];
    let forced = [&source[..], &["--force"]].concat();
    // The file holds data only in its middle, and is refused because it exists.
    File::create(&file).unwrap().set_len(32 * MIB).unwrap();
    let image = File::options().read(true).write(true).open(&file).unwrap();
    image.write_all_at(b"data", 16 * MIB).unwrap();
    let why = add(&site, &source).unwrap_err();
    assert!(why.contains("holds data: a file of 32 MiB"), "{why}");
    image.write_all_at(b"data", 0).unwrap();
    let why = add(&site, &source).unwrap_err();
    assert!(why.contains("the first MiB is not zero"), "{why}");
    if needs::programs(&["qemu-io"]) {
        let mut qemu = Command::new("qemu-io");
        qemu.args(["-f", "raw", "-c", "sleep 3600000"]).arg(&file);
        let qemu = KillOnDrop(qemu.stdout(Stdio::null()).spawn().unwrap());
        wait_for("QEMU locks the image", || {
            datapath::image_in_use(&image).is_some()
        });
        let why = add(&site, &forced).unwrap_err();
        assert!(why.contains("is in use") && why.contains("QEMU"), "{why}");
        drop(qemu);
    }
    let mut head = [0; 4];
    image.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(&head, b"data");
    let answer = add(&site, &forced).unwrap();
    assert!(answer.contains("; destroyed: unknown data"), "{answer}");
    assert_eq!(fs::metadata(&file).unwrap().len(), 17 * MIB);
    image.read_exact_at(&mut head, 16 * MIB).unwrap();
    assert_eq!(head, [0; 4], "slots begin as zeroes");
}

#[test]
fn take_over_keeps_the_claim_of_a_block_device() {
    let mut site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    serve_on(&mut site, &disk);
    assert!(is_busy(&disk.0), "before");
    let over = AtomicBool::new(false);
    let free = std::thread::scope(|scope| {
        let _over = testkit::flag::SetOnDrop(&over);
        let tries = scope.spawn(|| {
            let mut free = 0;
            while !over.load(Ordering::Relaxed) {
                free += u32::from(!is_busy(&disk.0));
            }
            free
        });
        for _ in 0..2 {
            site.take_over(&[]);
        }
        over.store(true, Ordering::Relaxed);
        tries.join().unwrap()
    });
    assert_eq!(free, 0, "moments at which another program could claim it");
    assert!(is_busy(&disk.0), "after");
    site.stop();
    assert!(!is_busy(&disk.0), "the last server has ended");
}

/// The server finds the damage at the orderly stop at the latest, and leaves the device unchanged.
#[test]
fn orderly_stop_leaves_an_overwritten_device_unchanged() {
    let mut site = Site::empty();
    let Some(disk) = disk(&site, "disk") else {
        return;
    };
    serve_on(&mut site, &disk);
    // Stands for a program that opens the device without checking that it is free.
    let image = site.path("image");
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    succeeds(
        "mkfs.ext4",
        &["-q", "-F", "-L", "other", image.to_str().unwrap()],
    );
    let damage = fs::read(&image).unwrap();
    let file = File::options().write(true).open(&disk.0).unwrap();
    file.write_all_at(&damage, 0).unwrap();
    file.sync_all().unwrap();
    site.stop();
    // Free space further behind may have been zeroed before the server found the damage.
    let mut head = vec![0; MIB as usize];
    let file = File::open(&disk.0).unwrap();
    file.read_exact_at(&mut head, 0).unwrap();
    assert!(head == damage[..MIB as usize], "it was written to");
    let log = site.log();
    let expected = "another program has overwritten its superblock, which now holds: ext4 file system, label other";
    assert!(log.contains(expected), "{log}");
}
