//! Commits, reopening, and all refusals.

use array::{Array, ArrayError, ArrayId, Change, DeviceKind, Extent, MoveRecord, Refusal};
use crashdisk::CrashDisk;
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};
use volume::Location;

use crate::support::world::{EXTENT, ID, World, device, tier, volume};

fn at(device: u16, slot: u32) -> Location {
    Location {
        device: DeviceId(device),
        slot,
    }
}

fn place(volume: u32, extent: u32, at: Location) -> Change {
    Change::Place {
        volume: VolumeId(volume),
        extent,
        at,
    }
}

fn mark(device: u16, slots: u32) -> Change {
    Change::HighWater {
        device: DeviceId(device),
        slots,
    }
}

fn a_move(volume: u32, to: u16) -> MoveRecord {
    MoveRecord {
        volume: VolumeId(volume),
        to: DeviceId(to),
        bandwidth: BytesPerSec(200 << 20),
        extents: None,
    }
}

fn of_extents(ranges: &str) -> MoveRecord {
    MoveRecord {
        extents: Some(ranges.parse().unwrap()),
        ..a_move(3, 1)
    }
}

/// Returns changes that add two tiers, a file, a block device and two volumes.
fn furnished() -> Vec<Change> {
    vec![
        Change::AddTier(tier(0)),
        Change::AddTier(tier(1)),
        Change::AddDevice(device(0, 0)),
        Change::AddDevice(device(1, 1)),
        Change::AddVolume(volume(3, 10)),
        Change::AddVolume(volume(4, 20)),
        mark(0, 5),
        place(3, 9, at(0, 4)),
        place(4, 0, at(1, 299)),
        Change::SetMove(a_move(3, 1)),
    ]
}

fn array() -> Array {
    let array = Array::create_on(CrashDisk::new(0), ID, EXTENT).unwrap();
    array.commit(&furnished()).unwrap();
    array
}

#[test]
fn committed_changes_are_found_after_reopening_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("array");
    let array = Array::create(&path, ID, EXTENT).unwrap();
    array.commit(&furnished()).unwrap();
    let before = World::read(&array).unwrap();
    let error = Array::open(&path).unwrap_err();
    assert!(matches!(error, ArrayError::InUse { .. }), "{error:?}");
    let error = Array::create(&path, ID, EXTENT).unwrap_err();
    assert!(matches!(error, ArrayError::Exists { .. }), "{error:?}");
    drop(array);
    let error = Array::create(&path, ID, EXTENT).unwrap_err().to_string();
    assert!(
        error.contains("map.redb: the directory already has an array"),
        "{error}"
    );
    let array = Array::open(&path).unwrap();
    assert_eq!((array.id(), array.extent()), (ID, EXTENT));
    assert_eq!(World::read(&array).unwrap(), before);
    assert!(array.check().unwrap().is_clean());
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
    assert_eq!(files.len(), 1, "nothing is left of the creation: {files:?}");
}

#[test]
fn open_of_a_missing_or_foreign_map_names_the_fault() {
    let dir = tempfile::tempdir().unwrap();
    let open = |what: &str| Array::open(dir.path()).expect_err(what);
    let error = open("nothing is there");
    assert!(matches!(error, ArrayError::Missing { .. }), "{error}");
    let map = dir.path().join("map.redb");
    for content in [&b""[..], &[7; 4096], b"short"] {
        std::fs::write(&map, content).unwrap();
        let error = open("not a map");
        let fits = matches!(error, ArrayError::NotAnArray { .. });
        assert!(fits || content == b"short", "{error:?}");
        assert!(error.to_string().contains("map.redb"), "{error}");
        assert_eq!(std::fs::read(&map).unwrap(), content, "it is left alone");
    }
    std::fs::remove_file(&map).unwrap();
    drop(redb::Database::create(&map).unwrap());
    let error = open("another database");
    assert!(matches!(error, ArrayError::NotAnArray { .. }), "{error:?}");
    let error = Array::create(&dir.path().join("no/such"), ID, EXTENT).unwrap_err();
    assert!(
        matches!(
            error,
            ArrayError::Io {
                action: "create",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn extent_size_must_be_a_power_of_two_within_limits() {
    for bad in [0, 1, 32 << 10, 96 << 10, (64 << 10) + 1, 2 << 30] {
        let error = Array::create_on(CrashDisk::new(0), ID, Bytes(bad)).unwrap_err();
        assert!(matches!(error, ArrayError::ExtentSize { .. }), "{error}");
    }
    for good in [64 << 10, 1 << 20, 1 << 30] {
        Array::create_on(CrashDisk::new(0), ArrayId([0; 16]), Bytes(good)).unwrap();
    }
    let used = CrashDisk::new(512);
    let error = Array::create_on(used, ID, EXTENT).unwrap_err();
    assert!(matches!(error, ArrayError::Exists { .. }), "{error}");
}

#[test]
fn changes_update_the_map() {
    let array = array();
    let v3 = VolumeId(3);
    let places = array.places(v3).unwrap();
    assert_eq!(
        (places.len(), places[9], places[0]),
        (10, Some(at(0, 4)), None)
    );
    // A switch, a lower mark, the end of a move.
    array
        .commit(&[place(3, 9, at(1, 7)), mark(0, 2), Change::ClearMove(v3)])
        .unwrap();
    assert_eq!(array.places(v3).unwrap()[9], Some(at(1, 7)));
    assert_eq!(
        array.devices().unwrap()[0].high_water,
        5,
        "a mark never falls"
    );
    assert_eq!(array.moves().unwrap(), []);
    array.commit(&[]).unwrap();
    // Vacated extents make room, then a volume may shrink. A new volume may take its former name.
    let vacate = Change::Vacate {
        volume: v3,
        extent: 9,
    };
    let small = array::VolumeRecord {
        name: "small".into(),
        ..volume(3, 5)
    };
    let other = array::VolumeRecord {
        name: "volume 3".into(),
        ..volume(9, 1)
    };
    array
        .commit(&[vacate, Change::SetVolume(small), Change::AddVolume(other)])
        .unwrap();
    assert_eq!(array.extents(v3).unwrap(), [Extent::Hole; 5]);
    array
        .commit(&[
            Change::SetMove(a_move(4, 0)),
            Change::RemoveVolume(VolumeId(4)),
        ])
        .unwrap();
    assert!(matches!(
        array.places(VolumeId(4)),
        Err(ArrayError::NoVolume(4))
    ));
    assert_eq!(array.moves().unwrap(), []);
    // The next volume with the id inherits nothing from the removed one.
    array.commit(&[Change::AddVolume(volume(4, 20))]).unwrap();
    assert_eq!(array.places(VolumeId(4)).unwrap(), [None; 20]);
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn invalid_change_is_refused_and_has_no_effect() {
    let array = array();
    let before = World::read(&array).unwrap();
    let cases: Vec<(Change, &str)> = vec![
        (Change::AddTier(tier(1)), "tier 1 already exists"),
        (
            Change::AddTier(array::TierRecord {
                id: TierId(5),
                name: "tier 1".into(),
            }),
            "name \"tier 1\" already belongs to tier 1",
        ),
        (
            Change::AddTier(array::TierRecord {
                id: TierId(5),
                name: String::new(),
            }),
            "name \"\": must not be empty",
        ),
        (
            Change::AddTier(array::TierRecord {
                id: TierId(5),
                name: "a\nb".into(),
            }),
            "control character",
        ),
        (
            Change::AddTier(array::TierRecord {
                id: TierId(5),
                name: "n".repeat(256),
            }),
            "256 bytes, at most 255",
        ),
        (Change::AddDevice(device(1, 1)), "device 1 already exists"),
        (Change::AddDevice(device(2, 7)), "no tier 7"),
        (
            dev(|d| d.name = "device 1".into()),
            "name \"device 1\" already belongs to device 1",
        ),
        (
            dev(|d| d.path = "somewhere/1".into()),
            "path \"somewhere/1\" already belongs to device 1",
        ),
        (dev(|d| d.path = "p".repeat(4097)), "4097 bytes"),
        (
            dev(|d| d.id = DeviceId(u16::MAX)),
            "device id 65535 is above 65534",
        ),
        (
            dev(|d| (d.slots, d.high_water) = (0, 0)),
            "0 slots, must be 1 to",
        ),
        (dev(|d| d.slots = u32::MAX), "slots, must be 1 to"),
        (
            dev(|d| d.high_water = 999),
            "mark 999 of 302 slots: it is past the end",
        ),
        (dev(|d| d.high_water = 1), "only a file's slots"),
        (
            dev(|d| {
                let mut spec = model::preset("pm953").unwrap().spec();
                spec.jitter_sigma = f64::NAN;
                d.emulate = Some(spec);
            }),
            "specification of",
        ),
        (mark(8, 1), "no device 8"),
        (mark(0, 301), "mark 301 of 300 slots: it is past the end"),
        (Change::AddVolume(volume(3, 1)), "volume 3 already exists"),
        (
            vol(|v| v.name = "volume 3".into()),
            "name \"volume 3\" already belongs to volume 3",
        ),
        (
            vol(|v| v.class = String::new()),
            "class \"\": must not be empty",
        ),
        (vol(|v| v.home = TierId(9)), "no tier 9"),
        (vol(|v| v.size = Bytes(0)), "has 0 extents, must be 1 to"),
        (vol(|v| v.size = Bytes(u64::MAX)), "extents, must be 1 to"),
        (Change::SetVolume(volume(8, 1)), "no volume 8"),
        (
            Change::SetVolume(volume(3, 9)),
            "volume 3: cannot shrink to 9 extents, because extent 9 is allocated",
        ),
        (Change::RemoveVolume(VolumeId(8)), "no volume 8"),
        (place(8, 0, at(0, 0)), "no volume 8"),
        (
            place(3, 10, at(0, 0)),
            "volume 3 has 10 extents, so extent 10 does not exist",
        ),
        (place(3, 0, at(8, 0)), "no device 8"),
        (
            place(3, 0, at(0, 300)),
            "device 0 has 300 slots, so slot 300 does not exist",
        ),
        (place(3, 0, at(0, 5)), "not below its high-water mark 5"),
        (
            Change::Vacate {
                volume: VolumeId(3),
                extent: 10,
            },
            "volume 3 has 10 extents, so extent 10 does not exist",
        ),
        (Change::SetMove(a_move(8, 0)), "no volume 8"),
        (Change::SetMove(a_move(3, 8)), "no device 8"),
        (Change::ClearMove(VolumeId(8)), "no volume 8"),
    ];
    for (change, text) in cases {
        let good = Change::AddTier(tier(77));
        let error = array.commit(&[good, change.clone()]).unwrap_err();
        let index = matches!(error, ArrayError::Refused { index: 1, .. });
        let error = error.to_string();
        assert!(index && error.contains(text), "{change:?}: {error}");
    }
    assert_eq!(World::read(&array).unwrap(), before);
    // Within one commit, an extent may get a slot before the mark is raised.
    array.commit(&[place(3, 0, at(0, 5)), mark(0, 6)]).unwrap();
}

fn dev(change: impl Fn(&mut array::DeviceRecord)) -> Change {
    let mut record = device(2, 0);
    assert_eq!(record.kind, DeviceKind::Nbd);
    change(&mut record);
    Change::AddDevice(record)
}

fn vol(change: impl Fn(&mut array::VolumeRecord)) -> Change {
    let mut record = volume(7, 1);
    change(&mut record);
    Change::AddVolume(record)
}

#[test]
fn failed_store_returns_errors_until_it_is_reopened() {
    let disk = CrashDisk::new(0);
    let array = Array::create_on(disk.clone(), ID, EXTENT).unwrap();
    array.commit(&furnished()).unwrap();
    disk.fail_after(1);
    let error = array.commit(&[Change::AddTier(tier(7))]).unwrap_err();
    assert!(matches!(error, ArrayError::Store { .. }), "{error}");
    let error = array.commit(&[Change::AddTier(tier(8))]).unwrap_err();
    assert!(matches!(error, ArrayError::Store { .. }), "{error}");
    let refused = Refusal::Unknown {
        what: "tier",
        id: 1,
    };
    assert_eq!(refused.to_string(), "no tier 1");
}

#[test]
fn move_record_names_existing_extents_and_limited_ranges() {
    let array = array();
    let set = |ranges: &str| array.commit(&[Change::SetMove(of_extents(ranges))]);
    set("0-2,5,9").unwrap();
    assert_eq!(array.moves().unwrap(), [of_extents("0-2,5,9")]);
    let refusal = |result: Result<(), ArrayError>| match result {
        Err(ArrayError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    };
    let outside = Refusal::ExtentOutside {
        volume: 3,
        extent: 10,
        extents: 10,
    };
    assert_eq!(refusal(set("0-2,8-10")), outside);
    let none = Refusal::MoveRanges {
        volume: 3,
        ranges: 0,
    };
    assert_eq!(refusal(set("")), none);
    assert_eq!(array.moves().unwrap(), [of_extents("0-2,5,9")]);

    let most = array::MOVE_RANGES_MAX as u32;
    array
        .commit(&[Change::AddVolume(volume(5, 10_000))])
        .unwrap();
    let every_other = |ranges: u32| MoveRecord {
        volume: VolumeId(5),
        extents: Some(model::ExtentRanges::from_sorted((0..ranges).map(|e| 2 * e))),
        ..a_move(5, 0)
    };
    array.commit(&[Change::SetMove(every_other(most))]).unwrap();
    assert_eq!(array.moves().unwrap()[1], every_other(most));
    let too_many = array.commit(&[Change::SetMove(every_other(most + 1))]);
    assert!(
        matches!(refusal(too_many), Refusal::MoveRanges { ranges, .. } if ranges == most as usize + 1)
    );
    assert!(array.check().unwrap().is_clean());

    // The extents of a move stay in the volume until the move ends.
    let smaller = Change::SetVolume(volume(5, 100));
    let refused = refusal(array.commit(std::slice::from_ref(&smaller)));
    assert!(
        matches!(refused, Refusal::ExtentOutside { volume: 5, .. }),
        "{refused}"
    );
    array
        .commit(&[Change::ClearMove(VolumeId(5)), smaller])
        .unwrap();
}
