//! Volumes and snapshots saved as images: an image has the exact content of one moment, and a failed save leaves no
//! file.

use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{Array, Change, Repair};
use datapath::Client;
use testkit::needs;
use xxhash_rust::xxh3::xxh3_128;

use crate::support::{KillOnDrop, PATIENCE, Site, signal};

const MIB: u64 = 1 << 20;

/// Returns random bytes.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn connect(site: &Site, volume: &str) -> Client {
    Client::connect(&site.uri(volume).parse().unwrap()).unwrap()
}

/// Returns the content of an export.
fn content(site: &Site, volume: &str) -> Vec<u8> {
    let mut client = connect(site, volume);
    let size = client.size();
    let mut all = vec![];
    while (all.len() as u64) < size {
        let length = MIB.min(size - all.len() as u64) as u32;
        all.extend(client.read(all.len() as u64, length).unwrap());
    }
    client.disconnect().unwrap();
    all
}

/// Writes data with holes in between, blocks of zeroes inside the data, and an end that is not aligned to a block.
fn fill(site: &Site, volume: &str) {
    let mut client = connect(site, volume);
    let size = client.size();
    client.write(0, &noise(1, 3 * MIB as usize + 512)).unwrap();
    client.write(MIB + 8192, &[0; 65536]).unwrap();
    client.write(20 * MIB, &[0; MIB as usize]).unwrap();
    for at in 0..20 {
        let seed = at * 2 + 7;
        client
            .write(24 * MIB + at * 300_000, &noise(seed, 10_000))
            .unwrap();
    }
    client.write(size - 512, &noise(3, 512)).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
}

/// Creates a served volume of 64 MiB and 512 bytes without a connected guest.
fn filled() -> Site {
    let mut site = Site::new(&[]);
    let size = format!("{} B", 64 * MIB + 512);
    site.ok(&[
        "volume", "create", "data", "--size", &size, "--tier", "fast",
    ]);
    site.serve(&[]);
    fill(&site, "data");
    left(&site);
    site
}

/// Waits until the server has noticed that its guests have disconnected.
fn left(site: &Site) {
    let until = Instant::now() + PATIENCE;
    while site.json(&["volume", "show", "data"])["status"]["connections"] != 0 {
        assert!(Instant::now() < until);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn refused(out: &Output) -> String {
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{why}");
    why
}

fn partial(to: &Path) -> PathBuf {
    PathBuf::from(format!("{}.partial", to.display()))
}

/// Checks that neither the image nor its unfinished file exists.
fn nothing(to: &Path) {
    assert!(!to.exists() && !partial(to).exists(), "{}", to.display());
}

#[test]
fn save_writes_identical_bytes_and_holes() {
    let mut site = filled();
    let wanted = content(&site, "data");
    left(&site);
    let to = site.path("data.img");
    let saved = site.json(&["volume", "save", "data", text(&to), "--verify"]);
    assert_eq!(saved["schema"], "terrace.volume.save/1");
    assert_eq!(saved["verified"], true);
    assert_eq!(saved["format"], "raw");
    let written = std::fs::read(&to).unwrap();
    assert!(written == wanted, "the image differs");
    assert_eq!(saved["xxh3"], format!("{:032x}", xxh3_128(&wanted)));
    let bytes = |name: &str| {
        saved[name]
            .as_str()
            .unwrap()
            .parse::<units::Bytes>()
            .unwrap()
            .0
    };
    assert_eq!(bytes("size"), wanted.len() as u64);
    assert_eq!(bytes("data") + bytes("holes"), bytes("size"));
    let blocks = wanted.chunks(4096).filter(|b| b.iter().any(|b| *b != 0));
    assert_eq!(bytes("data"), blocks.map(|b| b.len() as u64).sum::<u64>());
    let on_disk = std::fs::metadata(&to).unwrap().blocks() * 512;
    assert!(
        on_disk <= bytes("data") + 65536,
        "{on_disk}: holes are holes"
    );

    // Only the owner may read a new image, until the owner changes its mode.
    let mode = || std::fs::metadata(&to).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(&to, Permissions::from_mode(0o640)).unwrap();

    // Guests can connect again and change the volume.
    let mut guest = connect(&site, "data");
    guest.write(0, &[7; 4096]).unwrap();
    guest.disconnect().unwrap();
    left(&site);
    // An existing file is kept unless `--force` is given.
    let why = refused(&site.run(&["volume", "save", "data", text(&to)]));
    assert!(why.contains("already exists: add --force"), "{why}");
    assert!(std::fs::read(&to).unwrap() == wanted);
    let said = site.ok(&[
        "volume",
        "save",
        "data",
        text(&to),
        "--force",
        "--no-checksum",
        "--verify",
    ]);
    assert!(
        said.contains("of holes") && said.ends_with("0 bytes differ\n"),
        "{said}"
    );
    assert!(!said.contains("xxh3"), "{said}");
    assert!(std::fs::read(&to).unwrap()[..4096] == [7; 4096]);
    assert_eq!(mode(), 0o640);
    nothing(&partial(&to));

    // The same save without a server.
    let wanted = content(&site, "data");
    site.stop();
    let other = site.path("alone.img");
    site.ok(&["volume", "save", "data", text(&other), "--verify"]);
    assert!(std::fs::read(&other).unwrap() == wanted);
    assert!(!site.path("array/save.sock").exists());
    site.ok(&["volume", "check"]);
}

#[test]
fn save_of_a_snapshot_is_consistent_while_the_volume_is_written() {
    let site = filled();
    let wanted = content(&site, "data");
    let stop = AtomicBool::new(false);
    let to = site.path("snapshot.img");
    std::thread::scope(|threads| {
        let _over = testkit::flag::SetOnDrop(&stop);
        let mut guest = connect(&site, "data");
        site.ok(&["volume", "snapshot", "create", "data", "s"]);
        let stop = &stop;
        let writer = threads.spawn(move || {
            let mut at = 0;
            while !stop.load(Ordering::Acquire) {
                guest.write(at % (60 * MIB), &noise(at, 200_000)).unwrap();
                at += 777_216;
            }
            at
        });
        let out = site.run(&["volume", "save", "data", text(&site.path("no.img"))]);
        let why = refused(&out);
        for word in [
            "a guest is connected",
            "`terrace volume snapshot create data NAME`",
            "`terrace volume save data@NAME ",
        ] {
            assert!(why.contains(word), "{why}");
        }
        nothing(&site.path("no.img"));
        let saved = site.json(&["volume", "save", "data@s", text(&to), "--verify"]);
        assert_eq!(saved["volume"], "data@s");
        stop.store(true, Ordering::Release);
        assert!(writer.join().unwrap() > 0);
    });
    assert!(std::fs::read(&to).unwrap() == wanted, "not of one moment");
    assert!(content(&site, "data") != wanted, "it was written to");
}

#[test]
fn save_to_other_formats_uses_qemu_img() {
    let site = filled();
    let to = site.path("data.qcow2");
    let arguments = [
        "volume",
        "save",
        "data",
        text(&to),
        "--format",
        "qcow2",
        "--verify",
    ];
    let mut without = site.command(&arguments);
    let why = refused(&without.env("PATH", "/nonexistent").output().unwrap());
    assert!(
        why.contains("needs the program qemu-img: install the package qemu-utils"),
        "{why}"
    );
    nothing(&to);
    if !needs::programs(&["qemu-img"]) {
        return;
    }
    let saved = site.json(&arguments);
    assert_eq!(
        (&saved["format"], &saved["verified"]),
        (&"qcow2".into(), &true.into())
    );
    assert_eq!(saved["xxh3"], serde_json::Value::Null);
    nothing(&partial(&to));
    let info = site.client("qemu-img", &["info", text(&to)]);
    assert!(info.contains("file format: qcow2"), "{info}");
    let raw = site.path("data.img");
    site.ok(&["volume", "save", "data", text(&raw)]);
    let compare = ["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&to)];
    assert!(site.client("qemu-img", &compare).contains("identical"));
    let other = site.path("data.other");
    let unknown = ["volume", "save", "data", text(&other), "--format", "qcow9"];
    let why = refused(&site.run(&unknown));
    assert!(
        why.contains("qemu-img cannot write") && why.contains("qcow9"),
        "{why}"
    );
    nothing(&other);
}

#[test]
fn save_excludes_guests_and_leaves_no_file_after_a_signal() {
    let site = filled();
    // At this bandwidth a save takes a minute.
    site.ok(&["volume", "set", "data", "--bandwidth", "1 MiB/s"]);
    let to = site.path("data.img");
    for format in ["raw", "qcow2"] {
        if format != "raw" && !needs::programs(&["qemu-img"]) {
            continue;
        }
        let save = ["volume", "save", "data", text(&to), "--format", format];
        let mut child = site.command(&save).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        while !partial(&to).exists() {
            assert!(Instant::now() < until);
        }
        assert!(!to.exists(), "it is not whole");
        let uri = site.uri("data").parse().unwrap();
        assert!(Client::connect(&uri).is_err(), "a guest gets in");
        for other in [
            &["volume", "save", "data", text(&site.path("other.img"))][..],
            &["volume", "resize", "data", "--size", "80 MiB"],
            &["volume", "delete", "data", "--force"],
            &["volume", "snapshot", "create", "data", "s"],
        ] {
            let why = refused(&site.run(other));
            let known = ["is changing or saving", "is in use"];
            assert!(known.iter().any(|k| why.contains(k)), "{other:?}: {why}");
        }
        assert!(child.try_wait().unwrap().is_none(), "it is over already");
        signal(child.id(), "-INT");
        let out = child.wait_with_output().unwrap();
        assert!(refused(&out).contains("stopped"));
        nothing(&to);
        let until = Instant::now() + PATIENCE;
        let mut guest = loop {
            match Client::connect(&uri) {
                Ok(guest) => break guest,
                Err(why) => assert!(Instant::now() < until, "{why}"),
            }
        };
        guest.write(0, &[1; 512]).unwrap();
        guest.disconnect().unwrap();
        left(&site);
    }
    // A killed save leaves only a `.partial` file and does not block guests; the next save uses the file again.
    let save = ["volume", "save", "data", text(&to)];
    let mut child = site.command(&save).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while !partial(&to).exists() {
        assert!(Instant::now() < until);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!to.exists() && partial(&to).exists());
    site.ok(&["volume", "set", "data", "--bandwidth", "0 B/s"]);
    while site.run(&save).status.code() != Some(0) {
        assert!(Instant::now() < until);
    }
    assert!(std::fs::read(&to).unwrap() == content(&site, "data"));
    nothing(&partial(&to));
}

#[test]
fn save_verification_finds_a_changed_byte() {
    let site = filled();
    site.ok(&["volume", "set", "data", "--bandwidth", "16 MiB/s"]);
    let to = site.path("data.img");
    let save = ["volume", "save", "data", text(&to), "--verify"];
    let mut child = site.command(&save).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        // Changes the image in a hole, where the save itself does not write.
        if let Ok(file) = OpenOptions::new().write(true).open(partial(&to)) {
            file.write_all_at(&[1], 10 * MIB).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let why = refused(&child.wait_with_output().unwrap());
    assert!(
        why.contains("1 bytes differ, the first at byte 10485760"),
        "{why}"
    );
    nothing(&to);
}

#[test]
fn save_beyond_the_file_size_limit_fails_and_leaves_no_file() {
    let site = filled();
    let to = site.path("data.img");
    // The limit is in KiB.
    let limited = "ulimit -f 2048 && exec \"$0\" \"$@\"";
    let save = |format: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", limited, env!("CARGO_BIN_EXE_terrace")]);
        command.args(["volume", "save", "data", text(&to), "--format", format]);
        command.env("TERRACE_ARRAY", site.path("array"));
        refused(&command.output().unwrap())
    };
    let why = save("raw");
    let named = why.contains("data.img.partial") && why.contains("File too large");
    assert!(named, "{why}");
    nothing(&to);
    if needs::programs(&["qemu-img"]) {
        let why = save("qcow2");
        assert!(why.contains("data.img.partial as qcow2"), "{why}");
        nothing(&to);
    }
    drop(connect(&site, "data"));
}

#[test]
fn save_reads_from_the_given_socket_of_its_own_server() {
    let mut site = filled();
    let wanted = content(&site, "data");
    site.stop();
    let second = site.path("second.sock");
    site.serve(&["--listen", &format!("unix:{}", text(&second))]);
    // Another server has another volume with the same name.
    let mut other = Site::new(&[("data", 8)]);
    other.serve(&[]);
    left(&site);
    let to = site.path("data.img");
    let save = |socket: &Path| {
        let arguments = ["volume", "save", "data", text(&to), "--socket"];
        site.run(&[&arguments[..], &[text(socket)]].concat())
    };
    let why = refused(&save(&other.socket()));
    assert!(
        why.contains("does not listen on") && why.contains("second.sock"),
        "{why}"
    );
    let why = refused(&save(&site.path("none.sock")));
    assert!(why.contains("none.sock"), "{why}");
    nothing(&to);
    let link = site.path("link.sock");
    symlink(&second, &link).unwrap();
    let out = save(&link);
    assert!(out.status.success(), "{out:?}");
    assert!(std::fs::read(&to).unwrap() == wanted);
}

#[test]
fn save_of_a_volume_during_import_is_refused() {
    let mut site = Site::new(&[]);
    let image = site.path("disk.raw");
    std::fs::write(&image, noise(5, 16 * MIB as usize)).unwrap();
    site.serve(&[]);
    let import = ["volume", "import", "data", text(&image), "--tier", "fast"];
    site.ok(&[&import[..], &["--bandwidth", "1 MiB/s", "--detach"]].concat());
    let to = site.path("data.img");
    let why = refused(&site.run(&["volume", "save", "data", text(&to)]));
    assert!(why.contains("is being imported"), "{why}");
    nothing(&to);
    // Guests can connect as before.
    drop(connect(&site, "data"));
}

#[test]
fn save_does_not_overwrite_an_image_in_use() {
    let site = filled();
    let image = site.path("disk.raw");
    let before = noise(6, 16 * MIB as usize);
    std::fs::write(&image, &before).unwrap();
    let save = ["volume", "save", "data", text(&image), "--force"];
    if needs::programs(&["qemu-nbd"]) {
        let socket = site.path("qemu.sock");
        let mut machine = Command::new("qemu-nbd");
        machine.args(["--persistent", "--format=raw", "--socket"]);
        let machine = machine.arg(&socket).arg(&image).stdout(Stdio::null());
        let mut machine = KillOnDrop(machine.spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        let why = refused(&site.run(&save));
        let who = format!("qemu-nbd, process {}", machine.0.id());
        assert!(why.contains("writes to it") && why.contains(&who), "{why}");
        machine.0.kill().unwrap();
        machine.0.wait().unwrap();
    }
    let import = ["volume", "import", "other", text(&image), "--tier", "fast"];
    site.ok(&[&import[..], &["--bandwidth", "1 MiB/s", "--detach"]].concat());
    let why = refused(&site.run(&save));
    let named = why.contains("volume \"other\" is being imported from it");
    assert!(named, "{why}");
    assert!(std::fs::read(&image).unwrap() == before);
    nothing(&partial(&image));
    site.ok(&["volume", "delete", "other", "--yes"]);
    // A process that inspected the image may have it open for a moment longer.
    let until = Instant::now() + PATIENCE;
    loop {
        let saved = site.run(&save);
        if saved.status.success() {
            break;
        }
        let why = refused(&saved);
        assert!(why.contains("is in use"), "{why}");
        assert!(Instant::now() < until, "{why}");
    }
}

#[test]
fn save_of_a_damaged_volume_is_refused() {
    let mut site = filled();
    site.ok(&["volume", "snapshot", "create", "data", "s"]);
    site.stop();
    let map = Array::open(&site.path("array")).unwrap();
    for volume in map.volumes().unwrap() {
        let damaged = Change::Repair(Repair::MarkDamaged(volume.id));
        map.commit(&[damaged]).unwrap();
    }
    drop(map);
    let to = site.path("data.img");
    let none_is = |site: &Site| {
        for volume in ["data", "data@s"] {
            let why = refused(&site.run(&["volume", "save", volume, text(&to)]));
            assert!(why.contains("is damaged: `terrace volume check`"), "{why}");
            nothing(&to);
        }
    };
    none_is(&site);
    site.serve(&[]);
    none_is(&site);
}

/// Small file system, mounted for the test.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn new(dir: PathBuf) -> Option<Self> {
        std::fs::create_dir(&dir).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs", text(&dir)]);
        let mounted = mount.output().is_ok_and(|out| out.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn save_to_a_full_or_unsuitable_target_fails_and_leaves_no_file() {
    let site = filled();
    let link = site.path("dir");
    std::fs::create_dir(&link).unwrap();
    for (to, why) in [
        ("dir", "is neither a file nor a block device"),
        ("none/data.img", "the directory does not exist"),
        ("/dev/null", "is neither a file nor a block device"),
        ("nbd://host/x", "not a URI"),
    ] {
        let to = if to.contains("://") {
            PathBuf::from(to)
        } else {
            site.path(to)
        };
        let said = refused(&site.run(&["volume", "save", "data", text(&to), "--force"]));
        assert!(said.contains(why), "{to:?}: {said}");
    }
    let dangling = site.path("dangling");
    symlink(site.path("nowhere"), &dangling).unwrap();
    let said = refused(&site.run(&["volume", "save", "data", text(&dangling)]));
    assert!(
        said.contains("is a link to a file that does not exist"),
        "{said}"
    );
    let to = site.path("data.img");
    let said = refused(&site.run(&["volume", "save", "dato", text(&to)]));
    assert!(said.contains("did you mean"), "{said}");
    // A device of an array is never overwritten by an image.
    let device = std::fs::read_dir(site.path("fast"))
        .unwrap()
        .next()
        .unwrap();
    let device = device.unwrap().path();
    let said = refused(&site.run(&["volume", "save", "data", text(&device), "--force"]));
    assert!(said.contains("is in use"), "{said}");
    // An unrelated file with the name of an unfinished save is not overwritten.
    let mine = site.path("mine");
    std::fs::write(&mine, b"mine").unwrap();
    std::fs::copy(&mine, partial(&to)).unwrap();
    let said = refused(&site.run(&["volume", "save", "data", text(&to)]));
    assert!(said.contains("is not an unfinished save"), "{said}");
    std::fs::remove_file(partial(&to)).unwrap();
    std::fs::set_permissions(&mine, Permissions::from_mode(0o600)).unwrap();
    std::fs::hard_link(&mine, partial(&to)).unwrap();
    let said = refused(&site.run(&["volume", "save", "data", text(&to)]));
    assert!(said.contains("is not an unfinished save"), "{said}");
    assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
    std::fs::remove_file(partial(&to)).unwrap();
    // The unfinished file of another running save is not changed.
    let mut other = std::fs::File::create(partial(&to)).unwrap();
    other.write_all(b"theirs").unwrap();
    other.lock().unwrap();
    let said = refused(&site.run(&["volume", "save", "data", text(&to)]));
    assert!(said.contains("another save"), "{said}");
    assert_eq!(std::fs::read(partial(&to)).unwrap(), b"theirs");
    drop(other);

    let Some(small) = SmallFileSystem::new(site.path("small")) else {
        return needs::skipped("root");
    };
    let to = small.0.join("data.img");
    let said = refused(&site.run(&["volume", "save", "data", text(&to)]));
    let named = said.contains("data.img.partial at byte ") && said.contains("No space left");
    assert!(named, "{said}");
    nothing(&to);
    drop(connect(&site, "data"));
}

#[test]
fn save_overwrites_a_block_device_only_with_force() {
    let site = filled();
    let wanted = content(&site, "data");
    let (backing, small) = (site.path("backing"), site.path("too-small"));
    std::fs::write(&backing, noise(9, 66 * MIB as usize)).unwrap();
    std::fs::write(&small, noise(9, 8 * MIB as usize)).unwrap();
    let (Some(device), Some(too_small)) = (Loop::new(&backing), Loop::new(&small)) else {
        return needs::skipped("root");
    };
    left(&site);
    let save = ["volume", "save", "data", device.0.as_str()];
    let why = refused(&site.run(&save));
    assert!(
        why.contains("is a block device and its data will be lost"),
        "{why}"
    );
    let why = refused(&site.run(&["volume", "save", "data", &too_small.0, "--force"]));
    assert!(why.contains("it does not fit"), "{why}");
    let saved = site.json(&[&save[..], &["--force", "--verify"]].concat());
    assert_eq!(saved["xxh3"], format!("{:032x}", xxh3_128(&wanted)));
    drop((device, too_small));
    let written = std::fs::read(&backing).unwrap();
    assert!(written[..wanted.len()] == wanted, "the device differs");
    // Bytes behind the image on the device are unchanged.
    assert!(written[wanted.len()..] == noise(9, written.len())[wanted.len()..]);
}

/// Loop device on a file.
pub struct Loop(pub String);

impl Loop {
    pub fn new(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["-f", "--show", text(file)])
            .output()
            .ok()?;
        let name = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        made.status.success().then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
