//! Imports of images and exports as an operator runs them: while a guest uses the volume, across kills of the server,
//! and from sources that disappear or change.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use algo::Rng;
use datapath::Client;
use serde_json::Value;
use testkit::needs;

use crate::save::Loop;
use crate::support::{KillOnDrop, PATIENCE, Site, signal, wait_for};

const MIB: usize = 1 << 20;

/// Returns bytes that identify their seed and their position.
fn pattern(seed: u64, at: usize, length: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed, at as u64);
    let words = (0..length / 8).flat_map(|_| rng.next_u64().to_le_bytes());
    words.collect()
}

/// Creates a raw image of 48 MiB: data, a hole, written zeroes, data. Returns its path and its content.
fn image(site: &Site, name: &str, seed: u64) -> (String, Vec<u8>) {
    let path = site.path(name);
    let file = File::create(&path).unwrap();
    let mut content = vec![0; 48 * MIB];
    file.set_len(content.len() as u64).unwrap();
    for (from, to) in [(0, 14), (24, 47)] {
        let bytes = pattern(seed, from, (to - from) * MIB);
        content[from * MIB..to * MIB].copy_from_slice(&bytes);
    }
    for mib in (0..14).chain(20..47) {
        let at = mib * MIB;
        file.write_all_at(&content[at..at + MIB], at as u64)
            .unwrap();
    }
    (path.to_str().unwrap().into(), content)
}

fn connect(site: &Site, volume: &str) -> Client {
    Client::connect(&site.uri(volume).parse().unwrap()).unwrap()
}

fn assert_holds(site: &Site, volume: &str, content: &[u8]) {
    let mut guest = connect(site, volume);
    assert_eq!(guest.size(), content.len() as u64);
    for (n, part) in content.chunks(MIB).enumerate() {
        let found = guest.read((n * MIB) as u64, part.len() as u32).unwrap();
        assert!(found == part, "{volume}: MiB {n} differs");
    }
}

fn import(site: &Site, volume: &str) -> Option<Value> {
    let shown = site.json(&["volume", "show", volume]);
    shown.get("import").cloned()
}

/// Waits until the import of a volume satisfies a condition; `None` means that the import has ended.
fn until(site: &Site, volume: &str, what: impl Fn(Option<&Value>) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = import(site, volume);
        if what(now.as_ref()) {
            return;
        }
        assert!(Instant::now() < end, "{volume}: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn refused(site: &Site, args: &[&str], why: &str) {
    let out = site.run(&[&["volume", "import"], args].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains(why),
        "{args:?}: {said}"
    );
}

/// Changes a volume as a guest and applies the same changes to `content`.
fn change(site: &Site, volume: &str, content: &mut [u8], rng: &mut Rng) {
    let mut guest = connect(site, volume);
    for _ in 0..40 {
        let (at, length) = match rng.below(3) {
            0 => (rng.below(48) as usize * MIB, MIB),
            _ => (
                rng.below(48 * 256) as usize * 4096,
                4096 * (1 + rng.below(8)) as usize,
            ),
        };
        let length = length.min(content.len() - at);
        let part = &mut content[at..at + length];
        match rng.below(4) {
            0 => {
                guest.zero(at as u64, length as u32).unwrap();
                part.fill(0);
            }
            1 => {
                let found = guest.read(at as u64, length as u32).unwrap();
                assert!(found == part, "{volume}: {length} bytes at {at} differ");
            }
            _ => {
                part.copy_from_slice(&pattern(rng.next_u64(), at, length));
                guest.write(at as u64, part).unwrap();
            }
        }
    }
    // Trimmed data never reverts to the source's data: it reads as zeroes or as before the trim.
    let at = rng.below(48) as usize * MIB;
    guest.trim(at as u64, MIB as u32).unwrap();
    let found = guest.read(at as u64, MIB as u32).unwrap();
    let part = &mut content[at..at + MIB];
    assert!(found == part || found.iter().all(|b| *b == 0));
    part.copy_from_slice(&found);
}

fn check_use_during_import_and_kills(format: &str) {
    let mut site = Site::new(&[]);
    let (raw, mut content) = image(&site, "disk.raw", 1);
    let source = match format {
        "raw" => raw,
        _ => {
            let image = site.path("disk.image").to_str().unwrap().to_owned();
            site.client("qemu-img", &["convert", "-O", format, &raw, &image]);
            image
        }
    };
    let before = std::fs::read(&source).unwrap();
    site.serve(&[]);
    site.ok(&[
        "volume",
        "import",
        "data",
        &source,
        "--format",
        format,
        "--tier",
        "fast",
        "--bandwidth",
        "1 MiB/s",
        "--detach",
    ]);
    let mut rng = Rng::new(7, 7);
    for _ in 0..4 {
        // On a busy machine some reads precede the connection to the image's server.
        until(&site, "data", |i| i.is_some_and(|i| i["problem"].is_null()));
        change(&site, "data", &mut content, &mut rng);
        site.kill();
        site.serve(&[]);
    }
    assert_holds(&site, "data", &content);
    // Overwritten extents need no copy: the import ends sooner.
    let mut guest = connect(&site, "data");
    for at in (16..44).map(|mib| mib * MIB) {
        let part = &mut content[at..at + MIB];
        part.copy_from_slice(&pattern(2, at, MIB));
        guest.write(at as u64, part).unwrap();
    }
    drop(guest);
    until(&site, "data", |import| import.is_none());
    assert_holds(&site, "data", &content);
    assert!(
        std::fs::read(&source).unwrap() == before,
        "the source was written to"
    );
    site.kill();
    std::fs::remove_file(&source).unwrap();
    site.ok(&["volume", "check"]);
    site.serve(&[]);
    assert_holds(&site, "data", &content);
}

/// Starts an import in the background that takes more than a minute.
fn begin_import(site: &Site, volume: &str, from: &str) {
    let import = ["volume", "import", volume, from, "--tier", "fast"];
    site.ok(&[&import[..], &["--bandwidth", "512 KiB/s", "--detach"]].concat());
}

#[test]
fn raw_image_is_usable_during_import_despite_kills() {
    check_use_during_import_and_kills("raw");
}

#[test]
fn qcow2_image_is_usable_during_import_despite_kills() {
    if needs::programs(&["qemu-img", "qemu-nbd"]) {
        check_use_during_import_and_kills("qcow2");
    }
}

#[test]
fn import_offline_from_image_and_from_export_is_verified() {
    if !needs::programs(&["qemu-img"]) {
        return;
    }
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "disk.raw", 2);
    let answer = site.json(&[
        "volume", "import", "one", &raw, "--tier", "fast", "--verify",
    ]);
    assert_eq!(answer["schema"], "terrace.volume.import/1");
    assert_eq!(answer["complete"], true);
    assert_eq!(answer["verified"], true);
    // Neither holes nor zeroes occupy space.
    let shown = site.json(&["volume", "show", "one"]);
    assert_eq!(shown["allocated"], "37 MiB");
    assert!(shown.get("import").is_none(), "{shown}");
    site.serve(&[]);
    assert_holds(&site, "one", &content);
    let uri = site.uri("one");
    let socket = site.socket();
    let socket = ["--socket", socket.to_str().unwrap()];
    let args = [
        "volume", "import", "two", &uri, "--tier", "slow", "--verify",
    ];
    let said = site.ok(&[&args[..], &socket].concat());
    assert!(said.contains("0 bytes differ"), "{said}");
    assert_holds(&site, "two", &content);
    site.stop();
    site.ok(&["volume", "check"]);
}

#[test]
fn import_of_unsuitable_source_is_refused_with_the_reason() {
    let mut site = Site::new(&[("there", 1)]);
    let (raw, _) = image(&site, "disk.raw", 3);
    std::fs::write(site.path("odd"), [1; 1000]).unwrap();
    std::fs::write(site.path("empty"), []).unwrap();
    std::fs::write(site.path("qcow"), b"QFI\xfb\0\0\0\x03").unwrap();
    let at = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let (odd, empty, qcow, none) = (at("odd"), at("empty"), at("qcow"), at("none"));
    let (dir, pipe) = (at("fast"), at("pipe"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe.as_str(), mode).unwrap();
    let detach = ["x", &raw, "--tier", "fast", "--detach"];
    refused(&site, &detach, "leave --detach out");
    site.serve(&[]);
    for (args, why) in [
        (&["there", &raw, "--tier", "fast"][..], "already"),
        (&["x", &none, "--tier", "fast"], "cannot open"),
        (&["x", &dir, "--tier", "fast"], "neither a file"),
        // The command does not block on a pipe without a writer.
        (&["x", &pipe, "--tier", "fast"], "neither a file"),
        (&["x", &odd, "--tier", "fast"], "multiple of 512"),
        (&["x", &empty, "--tier", "fast"], "is empty"),
        (
            &["x", &qcow, "--tier", "fast"],
            "is an image of format qcow2",
        ),
        (&["x", &raw, "--tier", "fasd"], "did you mean"),
        (&["x@y", &raw, "--tier", "fast"], "snapshots"),
        (&["x", "nbd://", "--tier", "fast"], "nbd://"),
        (
            &["x", "nbd+unix:///a?socket=/none", "--tier", "fast"],
            "cannot talk to",
        ),
    ] {
        refused(&site, args, why);
    }
    if needs::programs(&["qemu-nbd"]) {
        let bad = ["x", &qcow, "--format", "qcow2", "--tier", "fast"];
        refused(&site, &bad, "qemu-nbd says");
        // Another process has the image open for writing.
        let socket = site.path("qemu.sock");
        let mut writer = KillOnDrop(
            Command::new("qemu-nbd")
                .args(["--persistent", "--format=raw", "--socket"])
                .arg(&socket)
                .arg(&raw)
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
        wait_for("qemu-nbd listens", || socket.exists());
        refused(&site, &["x", &raw, "--tier", "fast"], "shut it down first");
        writer.0.kill().unwrap();
        writer.0.wait().unwrap();
        // Conversely, no other process can open the image for writing during the import.
        begin_import(&site, "x", &raw);
        let opened = Command::new("qemu-io")
            .args(["-f", "raw", "-c", "write 0 4k", &raw])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&opened.stderr).into_owned();
        assert!(said.contains("lock"), "{said}");
        site.ok(&["volume", "delete", "x", "--yes"]);
    }
    site.kill();
    site.ok(&["volume", "check"]);
}

#[test]
fn import_with_removed_or_changed_source_reports_a_problem() {
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "disk.raw", 4);
    site.serve(&[]);
    begin_import(&site, "data", &raw);
    // Snapshots and size changes require a complete import.
    for words in [
        &["snapshot", "create", "data", "now"][..],
        &["resize", "data", "--size", "1G"],
    ] {
        let out = site.run(&[&["volume"], words].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("is being imported"), "{said}");
    }
    let away = site.path("elsewhere");
    let mut guest = connect(&site, "data");
    let far = |guest: &mut Client| guest.read(46 * MIB as u64, 4096);
    let there = &content[46 * MIB..46 * MIB + 4096];
    std::fs::rename(&raw, &away).unwrap();
    until(&site, "data", |i| {
        i.is_some_and(|i| i["warning"].is_string())
    });
    // Open files remain readable, and the status warns that the source no longer exists.
    assert!(far(&mut guest).unwrap() == there);
    assert!(import(&site, "data").unwrap()["problem"].is_null());
    let shown = site.ok(&["volume", "show", "data"]);
    let warns = shown.contains("import warns") && shown.contains("no longer exists");
    assert!(warns, "{shown}");
    drop(guest);
    site.kill();
    site.serve(&[]);
    until(&site, "data", |i| {
        i.is_some_and(|i| i["problem"].is_string())
    });
    let mut guest = connect(&site, "data");
    assert!(far(&mut guest).is_err());
    // Holes and fully overwritten extents need the source as little as copied extents do.
    assert!(guest.read(48 * MIB as u64 - 4096, 4096).unwrap() == [0; 4096]);
    let status = site.ok(&["volume", "show", "data"]);
    assert!(status.contains("import waits"), "{status}");
    std::fs::rename(&away, &raw).unwrap();
    until(&site, "data", |i| i.is_none_or(|i| i["problem"].is_null()));
    assert!(far(&mut guest).unwrap() == there);
    // Another process writes to the source in spite of the import.
    let file = File::options().write(true).open(&raw).unwrap();
    file.write_all_at(&[9; 512], 47 * MIB as u64 - 512).unwrap();
    until(&site, "data", |i| {
        let problem = i.and_then(|i| i["problem"].as_str());
        problem.is_some_and(|t| t.contains("was changed since the import began"))
    });
    assert!(guest.read(47 * MIB as u64 - 512, 512).is_err());
    drop(guest);
    site.kill();
    site.serve(&[]);
    let problem = import(&site, "data").unwrap()["problem"].clone();
    assert!(
        problem
            .as_str()
            .unwrap()
            .contains("was changed since the import began")
    );
    site.ok(&["volume", "delete", "data", "--yes"]);
    site.kill();
    site.ok(&["volume", "check"]);
}

#[test]
fn import_into_full_array_waits_for_space() {
    let mut site = Site::with_tiers(&["20 MiB"], &[]);
    let (raw, content) = image(&site, "disk.raw", 5);
    site.serve(&[]);
    site.ok(&[
        "volume", "import", "data", &raw, "--tier", "fast", "--detach",
    ]);
    until(&site, "data", |i| {
        let problem = i.and_then(|i| i["problem"].as_str());
        problem.is_some_and(|t| t.contains("no space"))
    });
    assert_holds(&site, "data", &content);
    let dir = site.path("fast").to_str().unwrap().to_owned();
    site.ok(&["tier", "add", "fast", "--dir", &dir, "--size", "1 GiB"]);
    until(&site, "data", |i| i.is_none());
    assert_holds(&site, "data", &content);
    site.kill();
    site.ok(&["volume", "check"]);
}

#[test]
fn import_of_a_deleted_image_file_completes() {
    for format in ["raw", "qcow2"] {
        if format != "raw" && !needs::programs(&["qemu-img", "qemu-nbd"]) {
            continue;
        }
        let mut site = Site::new(&[]);
        let (raw, content) = image(&site, "disk.raw", 6);
        let source = match format {
            "raw" => raw,
            _ => {
                let image = site.path("disk.image").to_str().unwrap().to_owned();
                site.client("qemu-img", &["convert", "-O", format, &raw, &image]);
                image
            }
        };
        site.serve(&[]);
        let args = ["volume", "import", "data", &source, "--format", format];
        let slow = ["--tier", "fast", "--bandwidth", "16 MiB/s", "--detach"];
        site.ok(&[&args[..], &slow].concat());
        std::fs::remove_file(&source).unwrap();
        until(&site, "data", |i| i.is_none());
        assert_holds(&site, "data", &content);
        site.kill();
        site.ok(&["volume", "check"]);
    }
}

#[test]
fn import_from_a_replaced_export_stops_reading() {
    let mut other = Site::new(&[("source", 48)]);
    other.serve(&[]);
    let content = pattern(8, 0, 48 * MIB);
    let mut writer = connect(&other, "source");
    for (n, part) in content.chunks(MIB).enumerate() {
        writer.write((n * MIB) as u64, part).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let mut site = Site::new(&[]);
    site.serve(&[]);
    let uri = other.uri("source");
    begin_import(&site, "data", &uri);
    let at = 46 * MIB;
    let mut guest = connect(&site, "data");
    assert!(guest.read(at as u64, 4096).unwrap() == content[at..at + 4096]);
    // The source's server is killed, then serves the unchanged source again.
    other.kill();
    until(&site, "data", |i| {
        i.is_some_and(|i| i["problem"].is_string())
    });
    assert!(guest.read(at as u64, 4096).is_err());
    other.serve(&[]);
    until(&site, "data", |i| i.is_some_and(|i| i["problem"].is_null()));
    let end = Instant::now() + PATIENCE;
    loop {
        match guest.read(at as u64, 4096) {
            Ok(found) => break assert!(found == content[at..at + 4096]),
            Err(why) => assert!(Instant::now() < end, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // The source's server returns with a changed source.
    other.kill();
    other.ok(&["volume", "resize", "source", "--size", "64 MiB"]);
    other.serve(&[]);
    until(&site, "data", |i| {
        let problem = i.and_then(|i| i["problem"].as_str());
        problem.is_some_and(|t| t.contains("was changed since the import began"))
    });
    assert!(guest.read(at as u64, 4096).is_err());
    drop(guest);
    site.ok(&["volume", "delete", "data", "--yes"]);
}

#[test]
fn volume_with_unresponsive_import_source_can_be_deleted() {
    let mut other = Site::new(&[("source", 48)]);
    other.serve(&[]);
    let mut writer = connect(&other, "source");
    writer.write(0, &pattern(9, 0, 8 * MIB)).unwrap();
    writer.write(40 * MIB as u64, &pattern(9, 1, MIB)).unwrap();
    drop(writer);
    let mut site = Site::new(&[]);
    site.serve(&[]);
    let uri = other.uri("source");
    begin_import(&site, "data", &uri);
    let pid = other.server_pid();
    signal(pid, "-STOP");
    // A read from the source is in flight.
    let volume = site.uri("data").parse().unwrap();
    let reads = std::thread::spawn(move || {
        let mut guest = Client::connect(&volume).unwrap();
        guest.read(40 * MIB as u64, 4096)
    });
    wait_for("something is under way", || site.outstanding("data") > 0);
    // The source sends no answer until the volume is deleted.
    site.ok(&["volume", "delete", "data", "--yes", "--force"]);
    assert!(reads.join().unwrap().is_err());
    signal(pid, "-CONT");
}

#[test]
fn import_of_image_that_references_other_files_is_refused() {
    if !needs::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "secret", 10);
    let at = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let (overlay, apart, data) = (at("overlay.qcow2"), at("apart.qcow2"), at("data"));
    let flat = at("flat.vmdk");
    let create = ["create", "-f", "qcow2"];
    let backing = ["-b", &raw, "-F", "raw", &overlay];
    site.client("qemu-img", &[&create[..], &backing].concat());
    let external = format!("data_file={data}");
    let external = ["-o", &external, &apart, "48M"];
    site.client("qemu-img", &[&create[..], &external].concat());
    site.serve(&[]);
    for (from, field) in [
        (&overlay, "backing_file_offset"),
        (&apart, "external data file"),
    ] {
        let import = ["x", from, "--format", "qcow2", "--tier", "fast"];
        refused(&site, &import, field);
        refused(&site, &import, "qemu-img convert");
    }
    // Files next to a VMDK descriptor belong to it; files in other directories do not.
    let convert = ["convert", "-O", "vmdk", "-o", "subformat=monolithicFlat"];
    site.client("qemu-img", &[&convert[..], &[&raw, &flat]].concat());
    let import = ["x", &flat, "--format", "vmdk", "--tier", "fast"];
    let descriptor = std::fs::read_to_string(&flat).unwrap();
    let elsewhere = descriptor.replace(
        "\"flat-flat.vmdk",
        &format!("\"{}/secret", site.dir.path().display()),
    );
    assert!(elsewhere != descriptor, "{descriptor}");
    std::fs::write(&flat, elsewhere).unwrap();
    refused(&site, &import, "extent \"");
    assert!(site.json(&["volume", "list"])["volumes"] == serde_json::json!([]));
    std::fs::write(&flat, descriptor).unwrap();
    site.ok(&[&["volume", "import"], &import[..]].concat());
    assert_holds(&site, "x", &content);
}

#[test]
fn import_with_no_data_left_to_copy_ends_without_its_source() {
    let mut site = Site::new(&[]);
    let (raw, _) = image(&site, "disk.raw", 14);
    site.serve(&[]);
    begin_import(&site, "data", &raw);
    site.kill();
    std::fs::remove_file(&raw).unwrap();
    site.serve(&[]);
    let gone = import_problem(&site);
    assert!(gone.contains("cannot open"), "{gone}");
    let mut guest = connect(&site, "data");
    let end = Instant::now() + PATIENCE;
    // The trim is repeated, because an extent that is being copied does not become a hole.
    while self::import(&site, "data").is_some() {
        guest.trim(0, 48 * MIB as u32).unwrap();
        assert!(Instant::now() < end, "{}", import_problem(&site));
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(guest);
    site.kill();
    site.ok(&["volume", "check"]);
}

fn import_problem(site: &Site) -> String {
    let import = import(site, "data").unwrap();
    import["problem"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn import_of_block_device_in_use_is_refused() {
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "disk.raw", 11);
    let Some(device) = Loop::new(raw.as_ref()) else {
        return needs::skipped("root");
    };
    site.serve(&[]);
    // A mounted device is opened exclusively in the same way.
    let user = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
        .open(&device.0)
        .unwrap();
    let import = ["data", &device.0, "--tier", "fast"];
    refused(&site, &import, "unmount it first");
    drop(user);
    site.ok(&[&["volume", "import"], &import[..]].concat());
    assert_holds(&site, "data", &content);
}

#[test]
fn interrupted_import_is_verified_with_its_own_format() {
    if !needs::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "disk.raw", 12);
    let source = site.path("disk.qcow2").to_str().unwrap().to_owned();
    site.client("qemu-img", &["convert", "-O", "qcow2", &raw, &source]);
    site.serve(&[]);
    let import = ["volume", "import", "data", &source, "--tier", "fast"];
    let begin = ["--format", "qcow2", "--bandwidth", "4 MiB/s", "--detach"];
    site.ok(&[&import[..], &begin].concat());
    // The image's server is in its own process group, so Ctrl-C reaches only the command.
    let children = format!("/proc/{0}/task/{0}/children", site.server_pid());
    let children = std::fs::read_to_string(children).unwrap();
    let of_images: Vec<&str> = children.split_whitespace().collect();
    assert!(!of_images.is_empty(), "qemu-nbd is not there");
    for child in of_images {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let group = stat.rsplit_once(") ").unwrap().1.split(' ').nth(2);
        assert_eq!(group, Some(child), "{stat}");
    }
    // Each start uses a new socket, because the image's server of the previous start may still be ending.
    let sockets = || {
        let all = std::fs::read_dir(site.path("array")).unwrap();
        let names = all.map(|e| e.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|n| n.starts_with("source-"));
        names.collect::<Vec<_>>()
    };
    let before = sockets();
    let pid = format!("-{}-", site.server_pid());
    assert!(before.len() == 1 && before[0].contains(&pid), "{before:?}");
    site.stop();
    let other = ["--format", "vmdk"];
    refused(&site, &[&import[2..], &other].concat(), "format qcow2");
    let said = site.ok(&[&import[..], &["--verify"]].concat());
    assert!(said.contains("0 bytes differ"), "{said}");
    let left = std::fs::read_dir(site.path("array")).unwrap();
    let mut left = left.map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(!left.any(|name| name == before[0]));
    site.serve(&[]);
    assert_holds(&site, "data", &content);
}

#[test]
fn import_of_damaged_volume_is_not_resumed() {
    let mut site = Site::new(&[]);
    let (raw, _) = image(&site, "disk.raw", 13);
    site.serve(&[]);
    begin_import(&site, "data", &raw);
    site.stop();
    let map = array::Array::open(&site.path("array")).unwrap();
    let id = map.volumes().unwrap()[0].id;
    let damaged = array::Change::Repair(array::Repair::MarkDamaged(id));
    map.commit(&[damaged]).unwrap();
    drop(map);
    site.serve(&[]);
    let args = ["data", &raw, "--tier", "fast"];
    refused(&site, &args, "so its import does not continue");
}

#[test]
fn offline_import_waits_for_a_source_server_that_starts_late() {
    let site = Site::new(&[]);
    let socket = site.path("late.sock");
    let late = socket.clone();
    let starts = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        testkit::export::serve(&late, usize::MAX);
    });
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    site.ok(&["volume", "import", "data", &uri, "--tier", "fast"]);
    starts.join().unwrap();
    let shown = site.json(&["volume", "show", "data"]);
    assert_eq!(
        (&shown["size"], &shown["import"]),
        (&"16 MiB".into(), &Value::Null)
    );
}

#[test]
fn import_uses_one_connection_and_respects_request_sizes() {
    if !needs::programs(&["nbdkit"]) {
        return;
    }
    let mut site = Site::new(&[]);
    let (raw, content) = image(&site, "disk.raw", 14);
    let socket = site.path("nbdkit.sock");
    let sizes = [
        "minimum=4096",
        "preferred=4096",
        "maximum=64K",
        "error-policy=error",
    ];
    let nbdkit = Command::new("nbdkit")
        .arg("--foreground")
        .arg("--unix")
        .arg(&socket)
        .args([
            "--filter=blocksize-policy",
            "--filter=limit",
            "file",
            &raw,
            "limit=1",
        ])
        .args(sizes.map(|s| format!("blocksize-{s}")))
        .spawn();
    let _nbdkit = KillOnDrop(nbdkit.unwrap());
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    site.ok(&["volume", "import", "data", &uri, "--tier", "fast"]);
    let shown = site.json(&["volume", "show", "data"]);
    assert_eq!(shown["logical_block"], 4096);
    site.serve(&[]);
    assert_holds(&site, "data", &content);
    // A guest reads less than the source's minimum request size before the copy is complete.
    begin_import(&site, "slow", &uri);
    let mut guest = connect(&site, "slow");
    let at = 46 * MIB + 512;
    assert!(guest.read(at as u64, 1024).unwrap() == content[at..at + 1024]);
    site.ok(&["volume", "delete", "slow", "--yes", "--force"]);
}

#[test]
fn import_keeps_the_logical_block_size_of_the_disk() {
    let mut site = Site::new(&[]);
    let disk = site.path("4kn");
    let file = File::create(&disk).unwrap();
    file.set_len(48 << 20).unwrap();
    let mut gpt = b"EFI PART\0\0\x01\0\x5c\0\0\0".to_vec();
    gpt.resize(24, 0);
    gpt.push(1);
    file.write_all_at(&gpt, 4096).unwrap();
    site.serve(&[]);
    let disk = disk.to_str().unwrap();
    let said = site.ok(&["volume", "import", "data", disk, "--tier", "fast"]);
    assert!(said.contains("imported volume data"), "{said}");
    site.ok(&["volume", "snapshot", "create", "data", "now"]);
    let odd = site.run(&["volume", "resize", "data", "--size", "50332160B"]);
    assert!(String::from_utf8_lossy(&odd.stderr).contains("logical blocks of 4096"));
    site.ok(&["volume", "resize", "data", "--size", "64 MiB"]);
    site.kill();
    site.serve(&[]);
    for name in ["data", "data@now"] {
        assert_eq!(site.json(&["volume", "show", name])["logical_block"], 4096);
    }
    let socket = site.socket();
    let xml = [
        "volume",
        "xml",
        "data",
        "--socket",
        socket.to_str().unwrap(),
    ];
    let blocks = "<blockio logical_block_size='4096' physical_block_size='4096'/>";
    assert!(site.ok(&xml).contains(blocks));
    let ide = site.run(&[&xml[..], &["--target", "hda"]].concat());
    assert!(String::from_utf8_lossy(&ide.stderr).contains("sectors of 512 bytes"));
}

#[test]
fn import_of_damaged_image_is_refused_and_omitted_features_are_listed() {
    if !needs::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let mut site = Site::new(&[]);
    let (raw, _) = image(&site, "disk.raw", 15);
    let at = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let (cut, rich) = (at("cut.qcow2"), at("rich.qcow2"));
    for path in [&cut, &rich] {
        site.client("qemu-img", &["convert", "-O", "qcow2", &raw, path]);
    }
    let file = File::options().write(true).open(&cut).unwrap();
    file.set_len(file.metadata().unwrap().len() - (60 << 10))
        .unwrap();
    site.client("qemu-img", &["snapshot", "-c", "before", &rich]);
    site.serve(&[]);
    let qcow2 = ["--format", "qcow2", "--tier", "fast"];
    refused(&site, &[&["x", &cut][..], &qcow2].concat(), "is truncated");
    // The message does not advise a conversion, which would silently replace the missing data by zeroes.
    let without_format = ["x", &cut, "--tier", "fast"];
    refused(&site, &without_format, "is truncated");
    let out = site.run(&[&["volume", "import"], &without_format[..]].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!said.contains("qemu-img convert"), "{said}");
    refused(
        &site,
        &["x", &rich, "--tier", "fast"],
        "both ways lose 1 internal snapshot",
    );
    let import = [&["volume", "import", "data", &rich][..], &qcow2].concat();
    let said = site.json(&import);
    assert_eq!(said["not_imported"], "1 internal snapshot");
    let unknown = ["y", &raw, "--format", "host_device", "--tier", "fast"];
    refused(&site, &unknown, "the formats are raw, qcow2");
}
