//! Damaged and inconsistent records: refusals of reads, findings of a check, and repairs.

use array::{Array, ArrayError, Change, Extent, Health, Repair, SnapshotOf};
use crashdisk::CrashDisk;
use redb::{Builder, ReadableTable, TableDefinition};
use units::{DeviceId, VolumeId};
use volume::Location;
use xxhash_rust::xxh3::xxh3_64;

use crate::support::world::{EXTENT, ID, device, snapshot_of, tier, volume};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const TIERS: TableDefinition<u16, &[u8]> = TableDefinition::new("tiers");
const DEVICES: TableDefinition<u16, &[u8]> = TableDefinition::new("devices");
const VOLUMES: TableDefinition<u32, &[u8]> = TableDefinition::new("volumes");
const EXTENTS: TableDefinition<u64, &[u8; 14]> = TableDefinition::new("extents");
const MOVES: TableDefinition<u32, &[u8]> = TableDefinition::new("moves");
const CHANGED: TableDefinition<u64, &[u8; 8]> = TableDefinition::new("changed");

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

/// Returns a disk with a map that has one record of each kind.
fn disk() -> CrashDisk {
    let disk = CrashDisk::new(0);
    let array = Array::create_on(disk.clone(), ID, EXTENT).unwrap();
    let high_water = Change::HighWater {
        device: DeviceId(0),
        slots: 9,
    };
    let a_move = array::MoveRecord {
        volume: VolumeId(3),
        to: DeviceId(1),
        bandwidth: units::BytesPerSec(1),
        extents: None,
    };
    let changes = [
        Change::AddTier(tier(0)),
        Change::AddDevice(device(0, 0)),
        Change::AddDevice(device(1, 0)),
        Change::AddVolume(volume(3, 10)),
        Change::AddVolume(volume(4, 10)),
        high_water,
        place(3, 2, at(0, 8)),
        place(4, 0, at(1, 5)),
        Change::SetMove(a_move),
    ];
    array.commit(&changes).unwrap();
    disk
}

/// Changes records without the array.
fn tamper(disk: &CrashDisk, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = Builder::new().create_with_backend(disk.clone()).unwrap();
    let txn = db.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
}

/// Flips one bit of a value.
fn flip<K: redb::Key + 'static>(
    txn: &redb::WriteTransaction,
    table: TableDefinition<'static, K, &'static [u8]>,
    key: K::SelfType<'_>,
    bit: usize,
) {
    let mut table = txn.open_table(table).unwrap();
    let mut value = table.remove(&key).unwrap().unwrap().value().to_vec();
    value[bit / 8] ^= 1 << (bit % 8);
    table.insert(key, &*value).unwrap();
}

fn key(volume: u32, extent: u32) -> u64 {
    u64::from(volume) << 32 | u64::from(extent)
}

fn put_extent(txn: &redb::WriteTransaction, key: u64, at: Location) {
    let mut value = [0; 14];
    value[..2].copy_from_slice(&at.device.0.to_le_bytes());
    value[2..6].copy_from_slice(&at.slot.to_le_bytes());
    let covered = [&[4][..], &key.to_le_bytes(), &value[..6]].concat();
    value[6..].copy_from_slice(&xxh3_64(&covered).to_le_bytes());
    txn.open_table(EXTENTS)
        .unwrap()
        .insert(key, &value)
        .unwrap();
}

fn problems(array: &Array) -> Vec<String> {
    let report = array.check().unwrap();
    report.problems.iter().map(|p| p.to_string()).collect()
}

#[test]
fn flipped_bit_is_named_by_table_and_key_and_refused() {
    type Read = fn(&Array) -> Result<(), ArrayError>;
    type Flip = fn(&redb::WriteTransaction, usize);
    let cases: [(&str, &str, Flip, Read); 4] = [
        (
            "tiers",
            "0",
            |t, b| flip(t, TIERS, 0, b),
            |a| a.tiers().map(drop),
        ),
        (
            "devices",
            "1",
            |t, b| flip(t, DEVICES, 1, b),
            |a| a.devices().map(drop),
        ),
        (
            "volumes",
            "4",
            |t, b| flip(t, VOLUMES, 4, b),
            |a| a.volumes().map(drop),
        ),
        (
            "moves",
            "3",
            |t, b| flip(t, MOVES, 3, b),
            |a| a.moves().map(drop),
        ),
    ];
    for (table, key, flip, read) in cases {
        for bit in (0..17 * 8).step_by(3) {
            let disk = disk();
            tamper(&disk, |txn| flip(txn, bit));
            let array = Array::open_on(disk).unwrap();
            let error = read(&array).unwrap_err();
            assert!(matches!(error, ArrayError::Corrupt { .. }), "{error:?}");
            let want = format!("table {table}, key {key}: checksum mismatch");
            assert_eq!(error.to_string(), want);
            let found = problems(&array);
            assert!(found.len() == 1 && found[0].starts_with(&want), "{found:?}");
        }
    }
}

#[test]
fn meta_record_damaged_or_of_another_format_is_refused() {
    let open = |change: &dyn Fn(&mut Vec<u8>)| {
        let disk = disk();
        tamper(&disk, |txn| {
            let mut table = txn.open_table(META).unwrap();
            let mut value = table.get("array").unwrap().unwrap().value().to_vec();
            change(&mut value);
            table.insert("array", &*value).unwrap();
        });
        Array::open_on(disk).unwrap_err()
    };
    let error = open(&|value| value[20] ^= 1);
    assert_eq!(
        error.to_string(),
        "table meta, key array: checksum mismatch"
    );
    // Records of another format may have any length.
    for found in [2, 4] {
        let error = open(&|value| {
            let body = [&[found, 0, 0, 0][..], &[9; 100]].concat();
            let sum = xxh3_64(&[&[0], &b"array"[..], &body].concat());
            *value = [&body[..], &sum.to_le_bytes()].concat();
        });
        let text = format!("the map has format version {found}, and this program reads version 3");
        assert!(error.to_string().contains(&text), "{error}");
    }
    let disk = disk();
    tamper(&disk, |txn| {
        drop(txn.open_table(META).unwrap().remove("array").unwrap())
    });
    let error = Array::open_on(disk).unwrap_err();
    assert!(matches!(error, ArrayError::NotAnArray { .. }), "{error:?}");
}

#[test]
fn records_with_a_good_checksum_are_still_checked() {
    let disk = disk();
    let body: [&[u8]; 3] = [&[9], &[1, 0], b"x"];
    let body = body.concat();
    let sum = xxh3_64(&[&[1, 7, 0][..], &body].concat()).to_le_bytes();
    let value = [&body[..], &sum].concat();
    tamper(&disk, |txn| {
        drop(txn.open_table(TIERS).unwrap().insert(7, &*value).unwrap())
    });
    let array = Array::open_on(disk).unwrap();
    let error = array.tiers().unwrap_err();
    assert!(matches!(error, ArrayError::Record { .. }), "{error:?}");
    let text = "table tiers, key 7: record version 9 is unknown";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(problems(&array)[0].starts_with(text));
}

#[test]
fn corrupt_extent_record_damages_its_volume_and_is_retained() {
    for bit in 0..14 * 8 {
        let disk = disk();
        tamper(&disk, |txn| {
            let mut table = txn.open_table(EXTENTS).unwrap();
            let mut value = *table.get(key(3, 2)).unwrap().unwrap().value();
            value[bit / 8] ^= 1 << (bit % 8);
            table.insert(key(3, 2), &value).unwrap();
        });
        let array = Array::open_on(disk).unwrap();
        let error = array.places(VolumeId(3)).unwrap_err().to_string();
        assert_eq!(error, "table extents, key 3:2: checksum mismatch");
        assert_eq!(array.places(VolumeId(4)).unwrap()[0], Some(at(1, 5)));
        let extents = array.extents(VolumeId(3)).unwrap();
        assert_eq!((extents[1], extents[2]), (Extent::Hole, Extent::Lost));
        for change in [
            place(3, 2, at(0, 1)),
            Change::Vacate {
                volume: VolumeId(3),
                extent: 2,
            },
        ] {
            let error = array.commit(&[change]).unwrap_err().to_string();
            assert!(error.contains("extent 2 of volume 3 is corrupt"), "{error}");
        }
        let report = array.check().unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        let repaired = array.repair(&report).unwrap();
        assert_eq!(
            repaired[0].to_string(),
            "mark volume 3 as damaged: table extents, key 3:2: checksum mismatch"
        );
        let health: Vec<Health> = array.volumes().unwrap().iter().map(|v| v.health).collect();
        assert_eq!(health, [Health::Damaged, Health::Whole]);
        // The problem still exists and is reported, but needs no further repair.
        assert_eq!(array.check().unwrap(), report);
        assert_eq!(array.repair(&report).unwrap(), []);
        assert_eq!(array.extents(VolumeId(3)).unwrap()[2], Extent::Lost);
        array.commit(&[Change::RemoveVolume(VolumeId(3))]).unwrap();
        assert!(array.check().unwrap().is_clean());
    }
}

#[test]
fn slot_with_two_owners_damages_both() {
    let disk = disk();
    tamper(&disk, |txn| put_extent(txn, key(4, 7), at(0, 8)));
    let array = Array::open_on(disk).unwrap();
    let report = array.check().unwrap();
    let keys: Vec<&str> = report.problems.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["3:2", "4:7"]);
    let text = "it is in slot 8 of device 0, which also holds another extent";
    assert!(report.problems[0].what == text, "{:?}", report.problems);
    let repaired = array.repair(&report).unwrap();
    let repairs: Vec<Repair> = repaired.iter().map(|r| r.repair).collect();
    assert_eq!(repairs, [3, 4].map(|v| Repair::MarkDamaged(VolumeId(v))));
    assert_eq!(array.places(VolumeId(4)).unwrap()[7], Some(at(0, 8)));
}

#[test]
fn repairable_damage_is_repaired() {
    let disk = disk();
    tamper(&disk, |txn| {
        put_extent(txn, key(9, 0), at(0, 1));
        put_extent(txn, key(9, 1), at(0, 2));
        put_extent(txn, key(3, 0), at(0, 20));
        put_extent(txn, key(3, 1), at(0, 30));
        flip(txn, MOVES, 3, 20);
    });
    let array = Array::open_on(disk).unwrap();
    // An id is not reused while records of a removed volume have it.
    let error = array
        .commit(&[Change::AddVolume(volume(9, 4))])
        .unwrap_err();
    assert!(
        error.to_string().contains("key 9:0: belongs to no volume"),
        "{error}"
    );
    let report = array.check().unwrap();
    assert_eq!(report.problems.len(), 5, "{report:#?}");
    let repaired = array.repair(&report).unwrap();
    let repairs: Vec<String> = repaired.iter().map(|r| r.repair.to_string()).collect();
    assert_eq!(
        repairs,
        [
            "drop the record of extent 9:0",
            "drop the record of extent 9:1",
            "drop the move of volume 3",
            "raise the high-water mark of device 0 to 21",
            "raise the high-water mark of device 0 to 31",
        ]
    );
    let after = array.check().unwrap();
    assert!(after.is_clean(), "{after:?}");
    assert_eq!(after.extents, 4);
    assert_eq!(array.devices().unwrap()[0].high_water, 31);
    assert_eq!(
        array.repair(&report).unwrap(),
        [],
        "an old report repairs nothing"
    );
}

#[test]
fn volume_with_a_corrupt_record_keeps_its_extents() {
    let disk = disk();
    tamper(&disk, |txn| {
        flip(txn, VOLUMES, 3, 11);
        flip(txn, DEVICES, 1, 11);
    });
    let array = Array::open_on(disk).unwrap();
    let report = array.check().unwrap();
    let at: Vec<_> = report
        .problems
        .iter()
        .map(|p| (p.table, p.repair))
        .collect();
    assert_eq!(at, [("devices", None), ("volumes", None)]);
    assert_eq!(array.repair(&report).unwrap(), []);
    assert_eq!((report.extents, report.moves), (2, 1));
    let text = report.problems[0].to_string();
    assert!(
        text.ends_with("no safe repair; restore the map from a copy"),
        "{text}"
    );
}

#[test]
fn invalid_locations_are_reported() {
    let disk = disk();
    tamper(&disk, |txn| {
        put_extent(txn, key(3, 0), at(7, 1));
        put_extent(txn, key(3, 1), at(0, 300));
        put_extent(txn, key(4, 10), at(0, 1));
        let mut tiers = txn.open_table(TIERS).unwrap();
        tiers.remove(0).unwrap();
        let mut volumes = txn.open_table(VOLUMES).unwrap();
        let body = volumes.get(3).unwrap().unwrap().value().to_vec();
        let body = &body[..body.len() - 8];
        let sum = xxh3_64(&[&[3, 8, 0, 0, 0][..], body].concat());
        let value = [body, &sum.to_le_bytes()].concat();
        volumes.insert(8, &*value).unwrap();
        let mut devices = txn.open_table(DEVICES).unwrap();
        devices.remove(1).unwrap();
    });
    let array = Array::open_on(disk).unwrap();
    let found = problems(&array).join("\n");
    for text in [
        "table devices, key 0: its tier 0 does not exist",
        "table volumes, key 3: its home tier 0 does not exist; no safe repair; set another home",
        "table volumes, key 8: its name also belongs to 3",
        "table extents, key 3:0: it is on device 7, which does not exist; repair: mark volume 3 as damaged",
        "table extents, key 3:1: it is in slot 300 of device 0, which has 300; repair: mark volume 3",
        "table extents, key 4:10: volume 4 has only 10 extents; no safe repair",
        "table moves, key 3: its target, device 1, does not exist; repair: drop the move of volume 3",
    ] {
        assert!(found.contains(text), "{text}\nnot in\n{found}");
    }
    let error = array.places(VolumeId(4)).unwrap_err().to_string();
    assert_eq!(
        error,
        "table extents, key 4:10: the volume has only 10 extents"
    );
}

/// Writes the record of a move as bytes, with a valid checksum.
fn put_move(disk: &CrashDisk, volume: u32, body: &[u8]) {
    let covered = [&[5][..], &volume.to_le_bytes(), body].concat();
    let value = [body, &xxh3_64(&covered).to_le_bytes()].concat();
    tamper(disk, |txn| {
        let mut table = txn.open_table(MOVES).unwrap();
        table.insert(volume, &*value).unwrap();
    });
}

#[test]
fn move_records_of_both_versions_are_read_and_invalid_ones_dropped() {
    let numbers = |numbers: &[u32]| {
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let fields = [&[1, 0][..], &7_u64.to_le_bytes()].concat();
    let of = |version: u8, ranges: &[u32]| [&[version][..], &fields, &numbers(ranges)].concat();
    let read = |body: &[u8]| {
        let disk = disk();
        put_move(&disk, 3, body);
        let array = Array::open_on(disk).unwrap();
        let found = array
            .moves()
            .map(|mut m| m.remove(0))
            .map_err(|e| e.to_string());
        (found, problems(&array), array)
    };
    // Layout of a version before moves of extents.
    let (found, problems, _) = read(&of(1, &[]));
    let found = found.unwrap();
    assert_eq!(
        (found.to, found.bandwidth.0, found.extents),
        (DeviceId(1), 7, None)
    );
    assert_eq!(problems, [""; 0]);
    let (found, problems, _) = read(&of(2, &[2, 0, 3, 7, 8]));
    assert_eq!(found.unwrap().extents, Some("0-2,7".parse().unwrap()));
    assert_eq!(problems, [""; 0]);
    for (body, why) in [
        (
            of(3, &[]),
            "record version 3 is unknown to this program, which reads 1 to 2",
        ),
        (of(1, &[1, 0, 3]), "12 bytes too many"),
        (of(2, &[0]), "number of ranges is 0, must be 1 to 2048"),
        (
            of(2, &[2049]),
            "number of ranges is 2049, must be 1 to 2048",
        ),
        (of(2, &[2, 0, 3, 7]), "field range is cut off"),
        (
            of(2, &[2, 0, 3, 2, 8]),
            "overlaps or adjoins the previous range",
        ),
        (of(2, &[1, 3, 3]), "is empty"),
        (of(2, &[1, 3, 4, 5]), "4 bytes too many"),
    ] {
        let (found, problems, array) = read(&body);
        let found = found.unwrap_err();
        assert!(found.contains(why), "{found}");
        assert!(
            problems.len() == 1 && problems[0].contains(why),
            "{problems:?}"
        );
        let report = array.check().unwrap();
        array.repair(&report).unwrap();
        assert_eq!(array.moves().unwrap(), []);
    }
    // The record is readable, but the volume has no such extent.
    let (found, problems, array) = read(&of(2, &[1, 9, 11]));
    assert!(found.is_ok());
    assert!(
        problems.len() == 1 && problems[0].contains("extent 10 does not exist"),
        "{problems:?}"
    );
    let report = array.check().unwrap();
    array.repair(&report).unwrap();
    assert!(array.check().unwrap().is_clean());
}

/// Writes the record of a volume as bytes, with a valid checksum.
fn put_volume(disk: &CrashDisk, volume: u32, body: &[u8]) {
    let covered = [&[3][..], &volume.to_le_bytes(), body].concat();
    let value = [body, &xxh3_64(&covered).to_le_bytes()].concat();
    tamper(disk, |txn| {
        let mut table = txn.open_table(VOLUMES).unwrap();
        table.insert(volume, &*value).unwrap();
    });
}

fn changed_value(key: u64) -> [u8; 8] {
    xxh3_64(&[&[8][..], &key.to_le_bytes()].concat()).to_le_bytes()
}

/// Returns a disk with volume 4 and snapshots 10, 11 and 12. Extent 0 changed after 10, extent 1 after 11, extent 2
/// after 12.
fn disk_with_snapshots() -> CrashDisk {
    let disk = disk();
    let array = Array::open_on(disk.clone()).unwrap();
    let take = |id, sequence| Change::TakeSnapshot(snapshot_of(&volume(4, 10), id, sequence));
    let changes = [
        take(10, 0),
        place(4, 0, at(1, 20)),
        take(11, 1),
        place(4, 1, at(1, 21)),
        take(12, 7),
        place(4, 2, at(1, 22)),
    ];
    array.commit(&changes).unwrap();
    disk
}

fn changed(array: &Array, from: u32, to: u32) -> Result<Vec<u32>, String> {
    let found = array.changed_between(Some(VolumeId(from)), VolumeId(to));
    found.map_err(|e| e.to_string())
}

/// Returns the record of a snapshot of volume 4, field by field.
fn snapshot_body(version: u8) -> Vec<u8> {
    let size = 10 * EXTENT.0 - 512;
    let text = |text: &str| [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
    [
        &[version][..],
        &size.to_le_bytes(),
        &[0, 0, 0], // home tier, health
        &text("snapshot 12"),
        &text("default"),
        &512_u32.to_le_bytes(), // logical block
        &4_u32.to_le_bytes(),
        &7_u32.to_le_bytes(),
        &1_700_000_012_u64.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn snapshot_records_have_the_documented_layout() {
    let disk = disk_with_snapshots();
    tamper(&disk, |txn| {
        let table = txn.open_table(VOLUMES).unwrap();
        let value = table.get(12).unwrap().unwrap().value().to_vec();
        assert_eq!(value[..value.len() - 8], snapshot_body(2));
        // A volume that is no snapshot is written in the layout from before snapshots.
        assert_eq!(table.get(4).unwrap().unwrap().value()[0], 1);
        let table = txn.open_table(CHANGED).unwrap();
        let rows = table.iter().unwrap().map(|row| {
            let (key, value) = row.unwrap();
            assert_eq!(*value.value(), changed_value(key.value()));
            key.value()
        });
        let rows: Vec<u64> = rows.collect();
        assert_eq!(rows, [key(4, 2), key(11, 0), key(12, 1)]);
    });
}

#[test]
fn invalid_snapshot_records_are_refused_by_name() {
    let read = |body: &[u8]| {
        let disk = disk_with_snapshots();
        put_volume(&disk, 12, body);
        let array = Array::open_on(disk).unwrap();
        let found = array.volumes().map(|mut v| v.pop().unwrap());
        (found.map_err(|e| e.to_string()), problems(&array), array)
    };
    let (found, problems, _) = read(&snapshot_body(2));
    let of = SnapshotOf {
        volume: VolumeId(4),
        sequence: 7,
        taken_s: 1_700_000_012,
    };
    assert_eq!(found.unwrap().snapshot, Some(of));
    assert_eq!(problems, [""; 0]);
    let good = snapshot_body(2);
    let end = good.len();
    for (body, why) in [
        (
            snapshot_body(4),
            "record version 4 is unknown to this program, which reads 1 to 3",
        ),
        (snapshot_body(1), "16 bytes too many"),
        (good[..end - 1].to_vec(), "field taken is cut off"),
        (good[..end - 9].to_vec(), "field sequence is cut off"),
        (good[..end - 16].to_vec(), "field snapshot of is cut off"),
        ([&good[..], &[0]].concat(), "1 bytes too many"),
        (
            [&good[..end - 16], &12_u32.to_le_bytes(), &good[end - 12..]].concat(),
            "field snapshot of names the snapshot itself",
        ),
    ] {
        let (found, problems, array) = read(&body);
        let text = format!("table volumes, key 12: {why}");
        assert_eq!(found.unwrap_err(), text);
        // Slots shared with its volume are not reported as damage.
        assert!(
            problems.len() == 1 && problems[0].starts_with(&text),
            "{problems:?}"
        );
        // Without a known snapshot, changes cannot be listed, but reads work.
        assert_eq!(changed(&array, 10, 4).unwrap_err(), text);
        assert_eq!(array.places(VolumeId(4)).unwrap()[2], Some(at(1, 22)));
        array.commit(&[place(4, 3, at(1, 23))]).unwrap();
        let take = Change::TakeSnapshot(snapshot_of(&volume(4, 10), 13, 9));
        assert_eq!(array.commit(&[take]).unwrap_err().to_string(), text);
        // It may be between the others, so they must be deleted first.
        let remove = |id| Change::RemoveVolume(VolumeId(id));
        let error = array.commit(&[remove(12)]).unwrap_err().to_string();
        assert!(
            error.contains("may be a snapshot between others"),
            "{error}"
        );
        array.commit(&[remove(10), remove(11), remove(12)]).unwrap();
        assert!(array.check().unwrap().is_clean());
    }
}

#[test]
fn snapshots_inconsistent_with_their_volume_are_reported() {
    let body = |of: u32, sequence: u32| {
        let mut body = snapshot_body(2);
        let end = body.len();
        body[end - 16..end - 12].copy_from_slice(&of.to_le_bytes());
        body[end - 12..end - 8].copy_from_slice(&sequence.to_le_bytes());
        body
    };
    let found = |of, sequence| {
        let disk = disk_with_snapshots();
        put_volume(&disk, 12, &body(of, sequence));
        let array = Array::open_on(disk).unwrap();
        (problems(&array).join("\n"), array)
    };
    let (text, array) = found(99, 7);
    let said = "table volumes, key 12: its volume 99 does not exist; no safe repair; copy its data, then remove it";
    assert!(text.contains(said), "{text}");
    // A slot shared with another family is a problem of all three owners.
    assert!(
        text.contains("key 12:0: it is in slot 20 of device 1, which also holds another extent")
    );
    let error = array.commit(&[Change::AddVolume(volume(99, 1))]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("it belongs to volume 99, which does not exist"),
        "{error}"
    );
    array.commit(&[Change::RemoveVolume(VolumeId(12))]).unwrap();
    assert_eq!(changed(&array, 10, 11).unwrap(), [0]);
    let (text, _) = found(10, 7);
    assert!(
        text.contains("key 12: its volume 10 is a snapshot"),
        "{text}"
    );

    let (text, array) = found(4, 1);
    let said = "table volumes, key 12: its sequence 1 also belongs to snapshot 11; no safe repair; remove one";
    assert!(text.contains(said), "{text}");
    let why = "the order of the snapshots 11 and 12 is unknown";
    assert!(changed(&array, 10, 4).unwrap_err().contains(why));
    let error = array.commit(&[Change::RestoreSnapshot(VolumeId(10))]);
    assert!(error.unwrap_err().to_string().contains(why));
    // Deleting one of them, in any order, loses no change.
    array.commit(&[Change::RemoveVolume(VolumeId(11))]).unwrap();
    assert_eq!(changed(&array, 10, 12).unwrap(), [0, 1]);
    assert_eq!(changed(&array, 12, 4).unwrap(), [0, 2]);
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn unreadable_change_records_are_rebuilt() {
    for bit in 0..8 * 8 {
        let disk = disk_with_snapshots();
        tamper(&disk, |txn| {
            let mut table = txn.open_table(CHANGED).unwrap();
            // One record has a flipped bit in its value, and one in its key, which was 11:0.
            let mut value = changed_value(key(4, 2));
            value[bit / 8] ^= 1 << (bit % 8);
            table.insert(key(4, 2), &value).unwrap();
            table.remove(key(11, 0)).unwrap();
            table
                .insert(key(11, 9), &changed_value(key(11, 0)))
                .unwrap();
        });
        let array = Array::open_on(disk).unwrap();
        let error = "table changed, key 4:2: checksum mismatch";
        assert_eq!(changed(&array, 12, 4).unwrap_err(), error);
        let report = array.check().unwrap();
        let repaired = array.repair(&report).unwrap();
        let repaired: Vec<String> = repaired.iter().map(|r| r.to_string()).collect();
        assert_eq!(
            repaired,
            [
                "mark all extents of volume 4 that may differ from the snapshot before it as changed: table changed, key 4:2: checksum mismatch",
                "mark all extents of volume 11 that may differ from the snapshot before it as changed: table changed, key 11:9: checksum mismatch",
            ]
        );
        assert!(array.check().unwrap().is_clean());
        assert_eq!(changed(&array, 12, 4).unwrap(), [2]);
        assert_eq!(changed(&array, 10, 11).unwrap(), [0, 9]);
    }
}

#[test]
fn missing_and_orphaned_change_records_are_found() {
    let disk = disk_with_snapshots();
    tamper(&disk, |txn| {
        let mut table = txn.open_table(CHANGED).unwrap();
        table.remove(key(4, 2)).unwrap();
        for (volume, extent) in [(3, 5), (3, 6), (77, 0)] {
            let key = key(volume, extent);
            table.insert(key, &changed_value(key)).unwrap();
        }
        table.insert(key(78, 1), &[0; 8]).unwrap();
    });
    let array = Array::open_on(disk).unwrap();
    let found = problems(&array);
    assert_eq!(
        found,
        [
            "table changed, key 3: 2 extents of volume 3 have changed, which has no snapshots; repair: drop the records of changes in volume 3",
            "table changed, key 77: 1 extents of volume 77 have changed, which has no snapshots; repair: drop the records of changes in volume 77",
            "table changed, key 78: 1 extents of volume 78 have changed, which has no snapshots; repair: drop the records of changes in volume 78",
            "table changed, key 4:2: 1 extents, from this one on, differ from the newest snapshot 12, but are not marked as changed; repair: mark all extents of volume 4 that may differ from the snapshot before it as changed",
        ]
    );
    let report = array.check().unwrap();
    assert_eq!(array.repair(&report).unwrap().len(), 4);
    assert!(array.check().unwrap().is_clean());
    assert_eq!(changed(&array, 10, 4).unwrap(), [0, 1, 2]);
}

#[test]
fn slot_shared_across_families_or_extents_damages_all_its_owners() {
    for (other, extent) in [(3, 0), (12, 6)] {
        let disk = disk_with_snapshots();
        tamper(&disk, |txn| put_extent(txn, key(other, extent), at(1, 20)));
        let array = Array::open_on(disk).unwrap();
        let report = array.check().unwrap();
        let what = "it is in slot 20 of device 1, which also holds another extent";
        let twice = report.problems.iter().filter(|p| p.what == what);
        let mut keys: Vec<&str> = twice.map(|p| p.key.as_str()).collect();
        keys.sort();
        let mut want = ["4:0", "11:0", "12:0", &format!("{other}:{extent}")];
        want.sort();
        assert_eq!(keys, want);
    }
}
