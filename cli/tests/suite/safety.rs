//! Lost devices, lost and outdated copies of the map, and the removal of devices, with the real program and a real
//! client.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use datapath::Client;

use crate::support::{PATIENCE, Site};

const MIB: u64 = 1 << 20;

fn client(site: &Site, volume: &str) -> Client {
    Client::connect(&site.uri(volume).parse().unwrap()).unwrap()
}

/// Creates one volume on `fast` and one on `slow`, with 8 MiB of flushed data each.
fn filled() -> Site {
    let mut site = Site::new(&[("db", 16)]);
    site.ok(&[
        "volume", "create", "cold", "--size", "16 MiB", "--tier", "slow",
    ]);
    site.serve(&[]);
    for (volume, byte) in [("db", 1), ("cold", 2)] {
        let mut client = client(&site, volume);
        for mib in 0..8 {
            client.write(mib * MIB, &vec![byte; MIB as usize]).unwrap();
        }
        client.flush().unwrap();
        client.disconnect().unwrap();
    }
    site
}

fn is_filled(site: &Site, volume: &str, byte: u8) -> bool {
    let mut client = client(site, volume);
    (0..8).all(|mib| {
        let read = client.read(mib * MIB, MIB as u32).unwrap();
        read.iter().all(|b| *b == byte)
    })
}

/// Returns true if every read of written data fails.
fn is_lost(site: &Site, volume: &str) -> bool {
    let mut client = client(site, volume);
    (0..8).all(|mib| client.read(mib * MIB, 4096).is_err())
}

fn refused(site: &Site, args: &[&str]) -> String {
    let out = site.run(args);
    assert!(!out.status.success(), "{args:?} succeeds");
    String::from_utf8(out.stderr).unwrap()
}

fn second(site: &Site) -> PathBuf {
    let copies = site.json(&["array", "copies"]);
    assert_eq!(copies["copies"][1]["state"], "current", "{copies}");
    PathBuf::from(copies["copies"][1]["path"].as_str().unwrap())
}

#[test]
fn loss_of_one_device_does_not_affect_the_others() {
    let mut site = filled();
    site.stop();
    fs::rename(site.path("slow"), site.path("away")).unwrap();
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1));
    assert!(is_lost(&site, "cold"));
    let mut guest = client(&site, "cold");
    guest.write(12 * MIB, &[7; 4096]).unwrap();
    guest.flush().unwrap();
    assert_eq!(
        guest.read(12 * MIB, 4096).unwrap(),
        [7; 4096],
        "a new place elsewhere"
    );
    assert!(guest.write(0, &[7; 4096]).is_err());
    guest.flush().unwrap();
    let tiers = site.json(&["tier", "list"]);
    let lost = tiers["tiers"][2]["devices"][0]["lost"].as_str().unwrap();
    assert!(lost.contains("cannot open"), "{lost}");
    let text = site.ok(&["tier", "list"]);
    let said = format!("device slow-0 of tier slow is lost: {lost}");
    assert!(text.contains(&said), "{text}");
    // The list shows which volumes are incomplete.
    let text = site.ok(&["volume", "list"]);
    let state = |name: &str| {
        let row = text.lines().find(|l| l.starts_with(&format!(" {name} ")));
        row.unwrap().trim_end().ends_with("served, incomplete")
    };
    assert!(state("cold") && !state("db"), "{text}");
    let shown = site.json(&["volume", "show", "cold"]);
    let what = shown["incomplete"].as_str().unwrap();
    assert!(
        what.contains("on slow-0 cannot be read or written"),
        "{what}"
    );
    assert_eq!(
        site.json(&["volume", "show", "db"])["incomplete"],
        serde_json::Value::Null
    );
    // The device returns. It may lack unflushed writes, but the array accepts it without an order.
    fs::rename(site.path("away"), site.path("slow")).unwrap();
    let until = Instant::now() + PATIENCE;
    while client(&site, "cold").read(0, 4096).is_err() {
        assert!(Instant::now() < until, "it is not taken back");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_filled(&site, "cold", 2));
}

#[test]
fn device_lost_at_start_after_a_kill_is_accepted_and_flush_fails() {
    let mut site = filled();
    site.kill();
    fs::rename(site.path("slow"), site.path("away")).unwrap();
    site.serve(&[]);
    assert!(is_lost(&site, "cold"));
    fs::rename(site.path("away"), site.path("slow")).unwrap();
    let until = Instant::now() + PATIENCE;
    while client(&site, "cold").read(0, 4096).is_err() {
        assert!(Instant::now() < until, "it is not taken back");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_filled(&site, "cold", 2));
    let mut guest = client(&site, "cold");
    assert!(guest.flush().is_err(), "unflushed writes may be lost");
    guest.flush().unwrap();
}

#[test]
fn device_absent_at_a_start_after_a_kill_needs_consent() {
    let mut site = filled();
    site.kill();
    fs::rename(site.path("slow"), site.path("away")).unwrap();
    site.serve(&[]);
    assert!(is_lost(&site, "cold"));
    site.stop();
    fs::rename(site.path("away"), site.path("slow")).unwrap();
    site.serve(&[]);
    assert!(is_lost(&site, "cold"));
    let tiers = site.json(&["tier", "list"]);
    let lost = tiers["tiers"][2]["devices"][0]["lost"].as_str().unwrap();
    assert!(lost.contains("may not have been flushed"), "{lost}");
    site.ok(&["device", "accept", "slow-0"]);
    assert!(is_filled(&site, "cold", 2));
    site.kill();
    site.serve(&[]);
    assert!(is_filled(&site, "cold", 2), "and stays taken");
}

#[test]
fn older_copy_of_a_device_is_refused() {
    let mut site = filled();
    site.stop();
    let file = site.path("slow/slow-0.extents");
    fs::copy(&file, site.path("old")).unwrap();
    site.serve(&[]);
    let mut guest = client(&site, "cold");
    guest.write(0, &vec![3; MIB as usize]).unwrap();
    guest.flush().unwrap();
    site.stop();
    fs::rename(&file, site.path("right")).unwrap();
    fs::copy(site.path("old"), &file).unwrap();
    site.serve(&[]);
    assert!(is_lost(&site, "cold"), "what is read would be from before");
    let check = refused(&site, &["volume", "check"]);
    assert!(check.contains("is served"), "{check}");
    site.stop();
    let out = site.run(&["volume", "check"]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        !out.status.success() && said.contains("an older copy of the device"),
        "{said}"
    );
    fs::rename(site.path("right"), &file).unwrap();
    site.serve(&[]);
    assert_eq!(client(&site, "cold").read(0, 4096).unwrap(), [3; 4096]);
}

#[test]
fn data_of_a_replaced_device_is_never_read_as_zeroes() {
    let mut site = filled();
    site.kill();
    fs::remove_dir_all(site.path("slow")).unwrap();
    site.serve(&[]);
    fs::create_dir(site.path("new")).unwrap();
    let new = site.path("new");
    let replace = [
        "device",
        "replace",
        "slow-0",
        "--dir",
        new.to_str().unwrap(),
        "--size",
        "64 MiB",
    ];
    let said = refused(&site, &replace);
    assert!(
        said.contains("8 MiB of cold") && said.contains("--accept-loss slow-0"),
        "{said}"
    );
    site.ok(&[&replace[..], &["--accept-loss", "slow-0"]].concat());
    assert!(is_lost(&site, "cold"));
    site.kill();
    site.serve(&[]);
    assert!(is_lost(&site, "cold"), "over a restart too");
    assert!(is_filled(&site, "db", 1));
    let mut guest = client(&site, "cold");
    guest.trim(0, 16 * MIB as u32).unwrap();
    guest.write(0, &[9; 4096]).unwrap();
    guest.flush().unwrap();
    assert_eq!(guest.read(0, 4096).unwrap(), [9; 4096]);
    drop(guest);
    // The array forgets the device with the last of its extents.
    site.kill();
    site.serve(&[]);
    assert_eq!(client(&site, "cold").read(0, 4096).unwrap(), [9; 4096]);
    site.stop();
    let said = site.ok(&["volume", "check"]);
    assert!(
        said.contains("3 devices") && said.contains("no problem"),
        "{said}"
    );
}

#[test]
fn map_is_restored_from_its_second_copy() {
    let mut site = filled();
    let second = second(&site);
    let mut guest = client(&site, "db");
    guest.write(9 * MIB, &[5; 4096]).unwrap();
    site.kill();
    fs::remove_dir_all(site.path("array")).unwrap();
    let said = refused(&site, &["volume", "list"]);
    assert!(said.contains("terrace array restore"), "{said}");
    site.ok(&["array", "restore", "--from", second.to_str().unwrap()]);
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1) && is_filled(&site, "cold", 2));
    assert_eq!(client(&site, "db").read(9 * MIB, 4096).unwrap(), [5; 4096]);
    let copies = site.json(&["array", "copies"]);
    assert_eq!(copies["copies"][0]["state"], "current", "{copies}");
    assert_eq!(copies["copies"][1]["state"], "current", "{copies}");
}

#[test]
fn outdated_map_copy_is_refused() {
    let mut site = filled();
    let second = second(&site);
    site.kill();
    fs::copy(site.path("array/map.redb"), site.path("old.redb")).unwrap();
    site.serve(&[]);
    client(&site, "db").write(10 * MIB, &[5; 4096]).unwrap();
    site.kill();
    // Only the outdated copy remains.
    fs::copy(site.path("old.redb"), site.path("array/map.redb")).unwrap();
    fs::rename(&second, site.path("aside")).unwrap();
    let warns = |said: &str| said.contains("of generation") && said.contains("--accept-loss map");
    let said = refused(&site, &["volume", "export"]);
    assert!(warns(&said), "{said}");
    let said = refused(
        &site,
        &["volume", "create", "new", "--size", "1M", "--tier", "fast"],
    );
    assert!(warns(&said), "{said}");
    // Read-only commands work and show the warning.
    let out = site.run(&["volume", "list"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && warns(&said), "{said}");
    let check = String::from_utf8(site.run(&["volume", "check"]).stdout).unwrap();
    assert!(warns(&check), "{check}");
    // Next to the current copy, the outdated one is harmless.
    fs::rename(site.path("aside"), &second).unwrap();
    site.serve(&[]);
    assert_eq!(client(&site, "db").read(10 * MIB, 4096).unwrap(), [5; 4096]);
}

#[test]
fn array_that_lost_its_only_device_can_be_inspected() {
    let mut site = Site::empty();
    fs::create_dir(site.path("disk")).unwrap();
    let disk = site.path("disk");
    let add = ["tier", "add", "one", "--dir", disk.to_str().unwrap()];
    site.ok(&[&add[..], &["--size", "64M"]].concat());
    site.ok(&["volume", "create", "db", "--size", "16M", "--tier", "one"]);
    site.serve(&[]);
    client(&site, "db").write(0, &[1; 4096]).unwrap();
    site.stop();
    // The second copy of the map is lost with the device: nothing proves that the first copy is current.
    fs::rename(&disk, site.path("away")).unwrap();
    let volumes = site.json(&["volume", "list"]);
    assert_eq!(volumes["volumes"][0]["name"], "db");
    let copies = site.json(&["array", "copies"]);
    let doubt = copies["unsettled"].as_str().unwrap();
    assert!(doubt.contains("the other copy may be newer"), "{copies}");
    let check = String::from_utf8(site.run(&["volume", "check"]).stdout).unwrap();
    let line = check
        .lines()
        .find(|l| l.contains("device one-0: "))
        .unwrap();
    assert!(line.contains("also need `--accept-loss map`"), "{check}");
    fs::create_dir(site.path("new")).unwrap();
    let new = site.path("new");
    let replace = ["device", "replace", "one-0", "--dir", new.to_str().unwrap()];
    let replace = [&replace[..], &["--size", "64M", "--accept-loss", "one-0"]].concat();
    let said = refused(&site, &replace);
    assert!(said.contains("--accept-loss map"), "{said}");
    site.ok(&[&replace[..], &["--accept-loss", "map"]].concat());
    site.serve(&[]);
    assert!(client(&site, "db").read(0, 4096).is_err(), "it is lost");
    let mut guest = client(&site, "db");
    guest.write(4 * MIB, &[2; 4096]).unwrap();
    assert_eq!(guest.read(4 * MIB, 4096).unwrap(), [2; 4096]);
}

#[test]
fn restore_of_a_served_array_is_refused() {
    let site = filled();
    let backup = site.path("map.bak");
    let backup = backup.to_str().unwrap();
    site.ok(&["array", "backup", backup]);
    let restore = ["array", "restore", "--from", backup, "--accept-loss", "map"];
    let said = refused(&site, &restore);
    assert!(said.contains("stop that one first"), "{said}");
    // The server is no longer reachable, but its devices are still locked.
    fs::remove_file(second(&site)).unwrap();
    fs::remove_dir_all(site.path("array")).unwrap();
    let said = refused(&site, &restore);
    let locked = "is in use: another process has locked it";
    assert!(said.contains(locked), "{said}");
    assert!(!site.path("array/map.redb").exists());
}

#[test]
fn accepted_map_exposes_no_data_of_other_volumes() {
    let mut site = filled();
    site.stop();
    let backup = site.path("map.bak");
    let backup = backup.to_str().unwrap();
    site.ok(&["array", "backup", backup]);
    let second = second(&site);
    site.serve(&[]);
    client(&site, "db")
        .write(8 * MIB, &vec![9; 4 * MIB as usize])
        .unwrap();
    site.stop();
    fs::remove_file(second).unwrap();
    fs::remove_file(site.path("array/map.redb")).unwrap();
    site.ok(&["array", "restore", "--from", backup, "--accept-loss", "map"]);
    for device in ["fast-0", "middle-0", "slow-0"] {
        site.run(&["device", "accept", device]);
    }
    site.ok(&["volume", "create", "new", "--size", "16M", "--tier", "fast"]);
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1));
    let mut guest = client(&site, "new");
    for mib in 0..16 {
        guest.write(mib * MIB, &[1; 512]).unwrap();
        let read = guest.read(mib * MIB + 4096, 512 << 10).unwrap();
        assert!(read.iter().all(|b| *b == 0), "bytes of another volume");
    }
}

#[test]
fn removed_map_copies_are_recreated_by_the_server() {
    let mut site = filled();
    let second = second(&site);
    let first = site.path("array/map.redb");
    fs::remove_file(&first).unwrap();
    fs::remove_file(&second).unwrap();
    let until = Instant::now() + PATIENCE;
    let current = |site: &Site| {
        let copies = site.json(&["array", "copies"]);
        let states = copies["copies"].as_array().unwrap().iter();
        states.map(|c| c["state"].clone()).all(|s| s == "current")
    };
    while !(first.exists() && second.exists() && current(&site)) {
        assert!(
            Instant::now() < until,
            "{}",
            site.json(&["array", "copies"])
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    site.ok(&["volume", "create", "late", "--size", "1M", "--tier", "fast"]);
    site.kill();
    fs::remove_file(&first).unwrap();
    site.serve(&[]);
    site.ok(&["volume", "show", "late"]);
    assert!(is_filled(&site, "db", 1));
}

#[test]
fn backup_is_not_overwritten_by_an_older_one() {
    let mut site = filled();
    let second = second(&site);
    site.stop();
    fs::copy(site.path("array/map.redb"), site.path("old.redb")).unwrap();
    site.ok(&["volume", "create", "late", "--size", "1M", "--tier", "fast"]);
    let backup = site.path("map.bak");
    let backup = backup.to_str().unwrap();
    site.ok(&["array", "backup", backup]);
    fs::copy(site.path("old.redb"), site.path("array/map.redb")).unwrap();
    fs::remove_file(second).unwrap();
    let said = refused(&site, &["array", "backup", backup]);
    assert!(said.contains("an old copy was restored"), "{said}");
}

#[test]
fn second_map_copy_stays_where_its_new_location_is_full() {
    let own = fs::metadata("/proc/self").unwrap();
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return testkit::needs::skipped("root"); // to mount a small file system
    }
    let site = filled();
    let small = site.path("small");
    fs::create_dir(&small).unwrap();
    let mount = |args: &[&str]| {
        let done = std::process::Command::new(args[0])
            .args(&args[1..])
            .status();
        assert!(done.unwrap().success(), "{args:?}");
    };
    let dir = small.to_str().unwrap();
    mount(&["mount", "-t", "tmpfs", "-o", "size=16k", "none", dir]);
    let said = site.run(&["array", "copy", "--dir", dir]);
    let left = fs::read_dir(&small).unwrap().count();
    mount(&["umount", dir]);
    assert!(!said.status.success() && left == 0, "{said:?}, {left} left");
    assert!(second(&site).exists());
}

#[test]
fn second_map_copy_moves_to_the_replacement_device() {
    let mut site = filled();
    let second = second(&site);
    site.stop();
    let lost = second.parent().unwrap().to_owned();
    let device = format!("{}-0", lost.file_name().unwrap().to_str().unwrap());
    fs::remove_dir_all(&lost).unwrap();
    site.serve(&[]);
    fs::create_dir(site.path("new")).unwrap();
    let new = site.path("new");
    site.ok(&[
        "device",
        "replace",
        &device,
        "--dir",
        new.to_str().unwrap(),
        "--size",
        "64M",
        "--accept-loss",
        &device,
    ]);
    let until = Instant::now() + PATIENCE;
    loop {
        let copies = site.json(&["array", "copies"]);
        let path = PathBuf::from(copies["copies"][1]["path"].as_str().unwrap());
        if copies["copies"][1]["state"] == "current" && path.exists() {
            assert_ne!(path, second);
            break;
        }
        assert!(Instant::now() < until, "{copies}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn relocated_second_map_copy_is_found_and_left_in_place() {
    let mut site = filled();
    let second = second(&site);
    site.stop();
    fs::create_dir(site.path("elsewhere")).unwrap();
    let moved = site.path("elsewhere").join("copy.redb");
    fs::rename(&second, &moved).unwrap();
    fs::remove_dir_all(site.path("array")).unwrap();
    site.ok(&["array", "restore", "--from", moved.to_str().unwrap()]);
    let copies = site.json(&["array", "copies"]);
    let path = copies["copies"][1]["path"].as_str().unwrap();
    assert_eq!(PathBuf::from(path), moved.canonicalize().unwrap());
    assert_eq!(copies["copies"][1]["state"], "current", "{copies}");
    assert!(!second.exists());
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1));
}

#[test]
fn map_copy_lost_during_writes_is_recreated() {
    let mut site = filled();
    let second = second(&site);
    // The file of the copy is truncated while the server runs: every later commit to it fails.
    let mut guest = client(&site, "db");
    fs::remove_file(&second).unwrap();
    site.kill();
    site.serve(&[]);
    let until = Instant::now() + PATIENCE;
    loop {
        let copies = site.json(&["array", "copies"]);
        if copies["copies"][1]["state"] == "current" {
            break;
        }
        assert!(Instant::now() < until, "{copies}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(guest.read(0, 4096).is_err(), "the server was another one");
    guest = client(&site, "db");
    guest.write(11 * MIB, &[6; 4096]).unwrap();
    assert!(second.exists());
}

#[test]
fn backup_is_accepted_only_without_later_changes() {
    let mut site = filled();
    let backup = site.path("map.bak");
    let backup = backup.to_str().unwrap();
    site.ok(&["array", "backup", backup]);
    let second = second(&site);
    let lose = |site: &Site| {
        fs::remove_dir_all(site.path("array")).unwrap();
        let _ = fs::remove_file(&second);
    };
    site.kill();
    lose(&site);
    let restore = ["array", "restore", "--from", backup];
    let said = refused(&site, &restore);
    assert!(said.contains("is a backup"), "{said}");
    site.ok(&[&restore[..], &["--accept-loss", "map"]].concat());
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1) && is_filled(&site, "cold", 2));
    // A backup after an orderly stop is complete.
    site.stop();
    site.ok(&["array", "backup", backup]);
    lose(&site);
    site.ok(&restore);
    site.serve(&[]);
    assert!(is_filled(&site, "db", 1) && is_filled(&site, "cold", 2));
    // Changes without a server count as well.
    site.stop();
    site.ok(&["array", "backup", backup]);
    site.ok(&[
        "volume", "create", "later", "--size", "1M", "--tier", "fast",
    ]);
    lose(&site);
    let said = refused(&site, &restore);
    assert!(said.contains("is a backup"), "{said}");
    site.ok(&[&restore[..], &["--accept-loss", "map"]].concat());
    site.ok(&[
        "volume", "create", "later", "--size", "1M", "--tier", "fast",
    ]);
    fs::write(site.path("map.bak.new"), "mine").unwrap();
    site.ok(&["array", "backup", backup]);
    assert_eq!(fs::read(site.path("map.bak.new")).unwrap(), b"mine");
    lose(&site);
    site.ok(&restore);
    site.ok(&["volume", "show", "later"]);
    fs::write(site.path("mine"), "mine").unwrap();
    let mine = site.path("mine");
    let said = refused(&site, &["array", "backup", mine.to_str().unwrap()]);
    assert!(said.contains("not a backup of this array"), "{said}");
}

#[test]
fn empty_tiers_and_devices_can_be_removed() {
    let mut site = filled();
    let said = refused(&site, &["tier", "remove", "slow"]);
    assert!(said.contains("holds 8 MiB of cold"), "{said}");
    let said = refused(&site, &["device", "remove", "slow-0"]);
    assert!(said.contains("holds 8 MiB of cold"), "{said}");
    site.move_to("cold", "middle");
    site.ok(&["tier", "remove", "slow"]);
    assert!(!site.path("slow/slow-0.extents").exists());
    let names = |site: &Site| -> Vec<String> {
        let tiers = site.json(&["tier", "list"]);
        let all = tiers["tiers"].as_array().unwrap();
        all.iter()
            .map(|t| t["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&site), ["fast", "middle"]);
    let slow = site.path("slow");
    site.ok(&[
        "tier",
        "add",
        "slow",
        "--dir",
        slow.to_str().unwrap(),
        "--size",
        "64 MiB",
    ]);
    site.move_to("cold", "slow");
    site.kill();
    site.serve(&[]);
    assert_eq!(names(&site), ["fast", "middle", "slow"]);
    assert!(is_filled(&site, "cold", 2));
}
