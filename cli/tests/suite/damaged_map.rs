//! Maps with damaged pages, tested with the real program and a real client.

use std::fs;
use std::path::{Path, PathBuf};

use array::{Array, ArrayError, CopyId, Salvage};
use datapath::Client;

use crate::support::{Site, wait_for};

/// Smallest size of an extent: the records of each volume fill several pages of the map.
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 400;
const VOLUMES: [&str; 2] = ["one", "two"];

fn client(site: &Site, volume: &str) -> Client {
    Client::connect(&site.uri(volume).parse().unwrap()).unwrap()
}

fn content(volume: usize, extent: u64) -> [u8; 8] {
    (volume as u64 * 1_000_000 + extent + 1).to_le_bytes()
}

/// Creates an array with two copies of its map and stops its server. Returns the paths of the
/// copies.
fn closed() -> (Site, [PathBuf; 2]) {
    let mut site = Site::empty();
    for (tier, more) in [("fast", &["--extent", "64 KiB"][..]), ("slow", &[])] {
        let dir = site.path(tier);
        fs::create_dir_all(&dir).unwrap();
        let dir = dir.to_str().unwrap();
        let add = ["tier", "add", tier, "--dir", dir, "--size", "64 MiB"];
        site.ok(&[&add[..], more].concat());
    }
    for volume in VOLUMES {
        site.ok(&[
            "volume", "create", volume, "--size", "25 MiB", "--tier", "fast",
        ]);
    }
    site.serve(&[]);
    site.copies_are_current();
    for (n, volume) in VOLUMES.iter().enumerate() {
        let mut client = client(&site, volume);
        for extent in 0..EXTENTS {
            client.write(extent * EXTENT, &content(n, extent)).unwrap();
        }
        client.flush().unwrap();
        client.disconnect().unwrap();
    }
    let copies = site.json(&["array", "copies"]);
    let path = |n: usize| PathBuf::from(copies["copies"][n]["path"].as_str().unwrap());
    site.stop();
    (site, [path(0), path(1)])
}

fn holds_written_data(site: &Site, n: usize) -> bool {
    let mut client = client(site, VOLUMES[n]);
    (0..EXTENTS).all(|extent| client.read(extent * EXTENT, 8).unwrap() == content(n, extent))
}

/// Flips one bit of a copy, in page after page, until the condition holds.
fn damage(path: &Path, is_wanted: impl Fn() -> bool) {
    let intact = fs::read(path).unwrap();
    for page in 1..intact.len() / 4096 {
        let mut bytes = intact.clone();
        bytes[page * 4096 + 300] ^= 4;
        fs::write(path, &bytes).unwrap();
        if is_wanted() {
            return;
        }
    }
    panic!("no flipped bit meets the condition");
}

fn is_damaged(path: &Path) -> bool {
    matches!(Array::look_at(path), Err(ArrayError::Damaged { .. }))
}

/// Damages both copies: the volume "one" is lost, the volume "two" stays intact.
fn damage_both(site: &Site, copies: &[PathBuf; 2]) {
    let both = [CopyId::First, CopyId::Second].into_iter().zip(copies);
    let both: Vec<(CopyId, PathBuf)> = both.map(|(c, p)| (c, p.clone())).collect();
    for one in &both {
        damage(&one.1, || {
            let found = Salvage::find(std::slice::from_ref(one));
            found.is_ok_and(|found| found.intact == ["two"] && found.lost == ["one"])
        });
    }
    let out = site.run(&["volume", "export"]);
    assert!(!out.status.success());
    let message = String::from_utf8(out.stderr).unwrap();
    for part in [
        "first copy: ",
        "second copy: ",
        "the map is damaged",
        "Recoverable volumes: two; not recoverable: one.",
        "terrace volume save two two.raw --salvage",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

#[test]
fn map_with_one_damaged_copy_is_served_and_the_copy_is_rebuilt() {
    for n in 0..2 {
        let (mut site, copies) = closed();
        damage(&copies[n], || is_damaged(&copies[n]));
        site.serve(&[]);
        assert!((0..2).all(|n| holds_written_data(&site, n)));
        site.copies_are_current();
        wait_for("no problem is left", || {
            let log = site.log();
            log.contains("map-copy-lost") && log.contains("problem resolved")
        });
        site.stop();
        assert!(!is_damaged(&copies[n]));
    }
}

#[test]
fn map_with_two_damaged_copies_serves_intact_volumes_read_only() {
    let (mut site, copies) = closed();
    damage_both(&site, &copies);
    let files = |site: &Site| {
        let device = site.path("fast").join("fast-0.extents");
        [&copies[0], &copies[1], &device].map(|path| fs::read(path).unwrap())
    };
    let before = files(&site);
    let image = site.path("two.raw");
    site.ok(&[
        "volume",
        "save",
        "two",
        image.to_str().unwrap(),
        "--salvage",
    ]);
    let bytes = fs::read(&image).unwrap();
    assert!((0..EXTENTS).all(|extent| {
        let at = (extent * EXTENT) as usize;
        bytes[at..at + 8] == content(1, extent)
    }));
    let out = site.run(&["volume", "save", "one", "one.raw", "--salvage"]);
    assert!(!out.status.success());
    site.serve(&["--salvage"]);
    assert!(holds_written_data(&site, 1));
    assert!(client(&site, "two").write(0, &[1; 512]).is_err());
    let create = [
        "volume", "create", "new", "--size", "1 MiB", "--tier", "fast",
    ];
    let out = site.run(&create);
    assert!(!out.status.success());
    site.stop();
    assert!(files(&site) == before, "a file of the array was written to");
}

#[test]
fn salvage_of_an_intact_map_is_refused() {
    let (site, _) = closed();
    let out = site.run(&["volume", "export", "--salvage"]);
    assert!(!out.status.success());
    let message = String::from_utf8(out.stderr).unwrap();
    assert!(
        message.contains("run the command without --salvage"),
        "{message}"
    );
}

#[test]
fn map_with_only_a_damaged_copy_is_refused_and_names_intact_volumes() {
    let (mut site, copies) = closed();
    site.ok(&["array", "copy", "--none"]);
    let first = (CopyId::First, copies[0].clone());
    damage(&copies[0], || {
        let found = Salvage::find(std::slice::from_ref(&first));
        found.is_ok_and(|found| found.intact == ["two"])
    });
    let out = site.run(&["volume", "export"]);
    let message = String::from_utf8(out.stderr).unwrap();
    assert!(message.contains("Recoverable volumes: two"), "{message}");
    site.serve(&["--salvage"]);
    assert!(holds_written_data(&site, 1));
}
