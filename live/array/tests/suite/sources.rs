//! Imported volumes: their sources, refusals, and findings of a check.

use array::{Array, ArrayError, Change, Extent, Refusal, SourceMark, SourceRecord, VolumeRecord};
use crashdisk::CrashDisk;
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};
use volume::Location;

use crate::support::world::{EXTENT, ID, device, snapshot_of, tier, volume};

const V: VolumeId = VolumeId(3);
const SOURCE: DeviceId = DeviceId(9);

fn record(source: DeviceId) -> VolumeRecord {
    let record = volume(V.0, 10);
    VolumeRecord {
        source: Some(SourceRecord {
            device: source,
            from: "/images/disk.qcow2".into(),
            format: "qcow2".into(),
            mark: SourceMark {
                size: record.size,
                file_bytes: 12_345,
                modified_ns: -7,
                inode: 99,
            },
            bandwidth: BytesPerSec(1 << 20),
        }),
        ..record
    }
}

fn import(source: DeviceId, extents: &[(u32, u32)]) -> Change {
    Change::Import {
        volume: record(source),
        extents: extents.to_vec(),
    }
}

fn array() -> Array {
    let array = Array::create_on(CrashDisk::new(0), ID, EXTENT).unwrap();
    let changes = [
        Change::AddTier(tier(0)),
        Change::AddDevice(device(1, 0)),
        Change::AddVolume(volume(4, 10)),
    ];
    array.commit(&changes).unwrap();
    array
}

fn at(device: DeviceId, slot: u32) -> Location {
    Location { device, slot }
}

fn copy_up(extent: u32, slot: u32) -> Change {
    let (volume, at) = (V, at(DeviceId(1), slot));
    Change::CopyUp { volume, extent, at }
}

fn vacate(extent: u32) -> Change {
    Change::Vacate { volume: V, extent }
}

fn why(array: &Array, changes: &[Change]) -> String {
    match array.commit(changes) {
        Err(ArrayError::Refused {
            refusal: Refusal::Source { why, .. },
            ..
        }) => why,
        other => panic!("{changes:?}: {other:?}"),
    }
}

#[test]
fn extent_at_a_source_is_no_hole_until_copied_or_trimmed() {
    let array = array();
    array.commit(&[import(SOURCE, &[(0, 3), (5, 6)])]).unwrap();
    let known = array.volumes().unwrap();
    assert_eq!(known[0], record(SOURCE));
    let places = array.extents(V).unwrap();
    for (extent, place) in (0..).zip(&places) {
        let expected = match extent {
            0..3 | 5 => Extent::At(at(SOURCE, extent)),
            _ => Extent::Hole,
        };
        assert_eq!(*place, expected, "extent {extent}");
    }
    assert!(array.check().unwrap().is_clean());
    let done = VolumeRecord {
        source: None,
        ..record(SOURCE)
    };
    let end = Change::SetVolume(done.clone());
    array
        .commit(&[copy_up(0, 7), vacate(1), vacate(5)])
        .unwrap();
    assert_eq!(
        why(&array, std::slice::from_ref(&end)),
        "extent 2 is not copied yet"
    );
    array.commit(&[copy_up(2, 8), end]).unwrap();
    assert_eq!(array.volumes().unwrap()[0], done);
    assert!(array.check().unwrap().is_clean());
    // The number of the source is free again.
    array
        .commit(&[Change::AddDevice(device(SOURCE.0, 0))])
        .unwrap();
}

#[test]
fn source_numbers_are_not_used_by_devices() {
    let array = array();
    let taken = why(&array, &[import(DeviceId(1), &[(0, 1)])]);
    assert!(taken.contains("the number of device 1"), "{taken}");
    array.commit(&[import(SOURCE, &[(0, 1)])]).unwrap();
    let add = Change::AddDevice(device(SOURCE.0, 0));
    assert!(why(&array, &[add]).contains("number 9"));
    let other = VolumeRecord {
        id: VolumeId(5),
        name: "other".into(),
        ..record(SOURCE)
    };
    let again = Change::Import {
        volume: other,
        extents: vec![],
    };
    assert!(why(&array, &[again]).contains("number 9"));
    // Nothing is placed at the source, and no device of the array gets its number.
    let place = Change::Place {
        volume: VolumeId(4),
        extent: 0,
        at: at(SOURCE, 0),
    };
    assert!(array.commit(&[place]).is_err());
}

#[test]
fn invalid_import_is_refused() {
    let array = array();
    for extents in [
        &[(0, 11)][..],
        &[(3, 3)],
        &[(4, 5), (2, 3)],
        &[(0, 3), (2, 4)],
    ] {
        assert!(why(&array, &[import(SOURCE, extents)]).contains("extents"));
    }
    let none = Change::Import {
        volume: volume(V.0, 10),
        extents: vec![],
    };
    assert_eq!(why(&array, &[none]), "it has no source");
    assert!(why(&array, &[Change::AddVolume(record(SOURCE))]).contains("with a source"));
    // Adjacent extents may be two ranges or one.
    array.commit(&[import(SOURCE, &[(0, 3), (3, 10)])]).unwrap();
    let snapshot = Change::TakeSnapshot(VolumeRecord {
        source: None,
        ..snapshot_of(&record(SOURCE), 20, 1)
    });
    assert!(array.commit(&[snapshot]).is_err());
    let other = Change::SetVolume(record(DeviceId(8)));
    assert!(why(&array, &[other]).contains("keeps its number"));
    let late = Change::SetVolume(VolumeRecord {
        id: VolumeId(4),
        name: "late".into(),
        size: Bytes(10 * EXTENT.0),
        ..record(DeviceId(8))
    });
    assert!(why(&array, &[late]).contains("already"));
    // A volume with extents at its source can be removed.
    array.commit(&[Change::RemoveVolume(V)]).unwrap();
    assert!(array.check().unwrap().is_clean());
}
