//! Maps on a full file system: changes that add records are refused, all others work.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use array::{
    Array, ArrayError, Change, CommitError, Copies, CopyHealth, CopyId, CopyPlace, FilePlace,
    MAP_FILE, Members, Membership, Stamp,
};
use tempfile::TempDir;
use testkit::needs;
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::support::world::{EXTENT, ID, World, device, tier, volume};

/// File system in memory.
struct SmallFileSystem {
    dir: TempDir,
}

impl SmallFileSystem {
    fn new(kib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let size = format!("size={kib}k");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]);
        let mounted = mount.arg(dir.path()).output();
        if !mounted.is_ok_and(|out| out.status.success()) {
            needs::skipped("root");
            return None;
        }
        Some(Self { dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Another program takes all free space.
    fn fill(&self) {
        let mut options = File::options();
        let mut file = options
            .create(true)
            .append(true)
            .open(self.filler())
            .unwrap();
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

const EXTENTS: u32 = 200_000;

fn furnished() -> [Change; 3] {
    let slots = EXTENTS;
    let device = array::DeviceRecord {
        slots,
        high_water: slots,
        ..device(0, 0)
    };
    let volume = volume(0, u64::from(EXTENTS));
    [
        Change::AddTier(tier(0)),
        Change::AddDevice(device),
        Change::AddVolume(volume),
    ]
}

fn place(extent: u32, slot: u32) -> Change {
    let device = DeviceId(0);
    Change::Place {
        volume: VolumeId(0),
        extent,
        at: Location { device, slot },
    }
}

/// Returns 500 new places.
fn places(from: u32) -> Vec<Change> {
    (from..from + 500).map(|e| place(e, e)).collect()
}

/// Places extents until the map has no space; returns the number of extents.
fn place_all(mut commit: impl FnMut(&[Change]) -> Result<(), ArrayError>) -> u32 {
    let mut placed = 0;
    loop {
        match commit(&places(placed)) {
            Ok(()) => placed += 500,
            Err(ArrayError::NoSpace { .. }) => return placed,
            Err(error) => panic!("{error:?} after {placed}"),
        }
        assert!(placed < EXTENTS, "the file system is never full");
    }
}

/// Returns changes that free space, and those of moves and generations.
fn harmless(round: u32, placed: u32) -> Vec<Change> {
    let extent = round * 7 % placed;
    let stamp = Stamp {
        generation: u64::from(round) + 1,
        nonce: 1,
    };
    let members = Members::FIRST;
    vec![
        place(extent, placed + 500 + round),
        Change::Vacate {
            volume: VolumeId(0),
            extent,
        },
        Change::Propose {
            membership: Membership { stamp, members },
            devices: vec![],
        },
        Change::Confirm { devices: vec![] },
    ]
}

#[test]
fn full_file_system_refuses_only_new_records() {
    let Some(small) = SmallFileSystem::new(16 << 10) else {
        return;
    };
    let array = Array::create(small.path(), ID, EXTENT).unwrap();
    array.commit(&furnished()).unwrap();
    small.fill();
    let placed = place_all(|changes| array.commit(changes));
    assert!(placed > 1000, "{placed}");
    let known = World::read(&array).unwrap();
    assert_eq!(
        known.places.len() as u32,
        placed,
        "a refused commit changes nothing"
    );
    for round in 0..300 {
        small.fill();
        array.commit(&harmless(round, placed)).unwrap();
    }
    let refused = array.commit(&[Change::AddVolume(volume(1, 9))]);
    assert!(
        matches!(refused, Err(ArrayError::NoSpace { .. })),
        "{refused:?}"
    );
    assert!(refused.unwrap_err().to_string().contains("needs"));

    // The process ends, and another one starts.
    let known = World::read(&array).unwrap();
    drop(array);
    small.fill();
    let map = small.path().join(MAP_FILE);
    let array = Array::look_at(&map).unwrap().open_for_changes().unwrap();
    assert!(World::read(&array).unwrap().same(&known));
    small.fill();
    array.commit(&harmless(300, placed)).unwrap();
    array.commit(&[Change::RemoveVolume(VolumeId(0))]).unwrap();
    assert!(array.commit(&[Change::AddVolume(volume(1, 9))]).is_err());
    small.free();
    array.commit(&[Change::AddVolume(volume(1, 9))]).unwrap();
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn full_file_system_keeps_the_blocks_of_a_map_whose_file_gets_shorter() {
    let Some(small) = SmallFileSystem::new(6 << 10) else {
        return;
    };
    let map = small.path().join(MAP_FILE);
    let file = || std::fs::metadata(&map).unwrap();
    let array = Array::create(small.path(), ID, EXTENT).unwrap();
    array.commit(&furnished()).unwrap();
    array.commit(&places(0)).unwrap();
    small.fill();
    let mut placed = 500;
    let refused = loop {
        let few: Vec<_> = (placed..placed + 20).map(|e| place(e, e)).collect();
        match array.commit(&few) {
            Ok(()) => placed += 20,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, ArrayError::NoSpace { .. }), "{refused:?}");
    let full = file();
    assert!(full.blocks() * 512 > full.len(), "no reserve is left");

    // The store cuts free pages off the end of its file, now and when it is closed.
    let volume = VolumeId(0);
    let half = (0..placed / 2).map(|extent| Change::Vacate { volume, extent });
    let half: Vec<_> = half.collect();
    for some in half.chunks(500) {
        array.commit(some).unwrap();
        small.fill();
    }
    assert!(file().len() < full.len());
    assert_eq!(file().blocks(), full.blocks());
    drop(array);
    small.fill();
    assert_eq!(file().blocks(), full.blocks());

    let array = Array::look_at(&map).unwrap().open_for_changes().unwrap();
    small.fill();
    array.commit(&[Change::RemoveVolume(volume)]).unwrap();
    assert_eq!(file().blocks(), full.blocks());
    assert!(array.check().unwrap().is_clean());
}

fn copies_in(dirs: [&Path; 2]) -> Copies {
    let [first, second] = dirs.map(|dir| FilePlace(dir.join(MAP_FILE)));
    let array = Array::create(dirs[0], ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(first), array).unwrap();
    copies.commit(&furnished()).unwrap();
    copies.add(CopyId::Second, Box::new(second), None, "it is new");
    copies.begin_rebuild(CopyId::Second).unwrap();
    assert!(copies.end_rebuild());
    let (members, generation) = (copies.members(), 1);
    let stamp = Stamp {
        generation,
        nonce: 1,
    };
    let membership = Membership { stamp, members };
    let devices = vec![];
    copies
        .commit(&[Change::Propose {
            membership,
            devices,
        }])
        .unwrap();
    copies
        .commit(&[Change::Confirm { devices: vec![] }])
        .unwrap();
    copies
}

#[test]
fn copies_on_full_file_systems_refuse_new_records_and_stay_members() {
    let (Some(a), Some(b)) = (
        SmallFileSystem::new(16 << 10),
        SmallFileSystem::new(16 << 10),
    ) else {
        return;
    };
    let mut copies = copies_in([a.path(), b.path()]);
    a.fill();
    b.fill();
    let commit = |changes: &[Change]| copies.commit(changes).map_err(CommitError::into_error);
    let placed = place_all(commit);
    let named = copies.without_reserve().into_iter().map(|(place, _)| place);
    let maps = [&a, &b].map(|s| s.path().join(MAP_FILE).display().to_string());
    assert_eq!(named.collect::<Vec<_>>(), maps);
    assert!(copies.health().iter().all(|h| h.2 == CopyHealth::Member));
    copies.commit(&harmless(1, placed)[..2]).unwrap();
    assert!(copies.confirmed());
}

#[test]
fn copy_on_a_full_file_system_is_dropped_and_rebuilt_with_space() {
    let (Some(a), Some(b)) = (
        SmallFileSystem::new(32 << 10),
        SmallFileSystem::new(64 << 10),
    ) else {
        return;
    };
    let mut copies = copies_in([a.path(), b.path()]);
    a.fill();
    let mut from = 0;
    while copies.members().first {
        copies.commit(&places(from)).unwrap();
        from += 500;
    }
    let health = copies.health();
    let why = matches!(&health[0].2, CopyHealth::Dropped { why } if why.contains("is full"));
    assert!(why && health[1].2 == CopyHealth::Member, "{health:?}");
    // A new copy has no space, and the old one stays unchanged.
    copies.begin_rebuild(CopyId::First).unwrap();
    assert!(!copies.end_rebuild());
    assert!(FilePlace(a.path().join(MAP_FILE)).look().is_ok());
    a.free();
    copies.begin_rebuild(CopyId::First).unwrap();
    assert!(copies.end_rebuild());
}
