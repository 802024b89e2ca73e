//! Tests of the extent map and the routing of requests.

use super::*;
use crate::relocation::{CopyStep, RelocationError};
use model::ExtentRanges;

fn whole(map: &VolumeMap, to: DeviceId) -> Batch {
    let slots = 0..map.extents() as u32;
    let at = |slot| Some(Location { device: to, slot });
    Batch {
        first: 0,
        targets: slots.map(at).collect(),
    }
}

fn write(offset: u64, length: u64) -> Request {
    Request {
        op: Op::Write,
        offset,
        length,
    }
}

#[test]
fn request_on_an_unmoved_volume_has_one_part() {
    let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(3));
    let mut out = Vec::new();
    assert_eq!(
        map.submit(write(50, 500), &mut out),
        Ok(Submission::Issued(None))
    );
    assert_eq!(
        out,
        [DeviceIo {
            device: DeviceId(3),
            op: Op::Write,
            offset: 50,
            length: 500,
            at: 50,
            mirror: false
        }]
    );
}

#[test]
fn out_of_range_request_is_refused_without_overflow() {
    let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
    let mut out = Vec::new();
    for (offset, length) in [
        (1000, 1),
        (999, 2),
        (u64::MAX, 1),
        (1, u64::MAX),
        (u64::MAX, u64::MAX),
    ] {
        assert!(
            map.submit(write(offset, length), &mut out).is_err(),
            "{offset} {length}"
        );
    }
    assert!(map.submit(write(999, 1), &mut out).is_ok());
    assert!(map.submit(write(1000, 0), &mut out).is_ok());
}

#[test]
fn flush_during_a_move_reaches_both_devices() {
    let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
    map.begin_relocation(whole(&map, DeviceId(1)), Bytes(100), EarlierRequests::None)
        .unwrap();
    let mut out = Vec::new();
    let _ = map
        .submit(
            Request {
                op: Op::Flush,
                offset: 0,
                length: 0,
            },
            &mut out,
        )
        .unwrap();
    assert_eq!(
        out.iter().map(|io| io.device).collect::<Vec<_>>(),
        [DeviceId(0), DeviceId(1)]
    );
}

#[test]
fn invalid_map_operations_are_errors() {
    let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
    assert_eq!(map.next_copy(), Err(RelocationError::NotRelocating));
    assert_eq!(
        map.begin_relocation(whole(&map, DeviceId(0)), Bytes(10), EarlierRequests::None),
        Err(RelocationError::AlreadyThere { extent: 0 })
    );
    let batch = whole(&map, DeviceId(1));
    map.begin_relocation(batch.clone(), Bytes(1000), EarlierRequests::None)
        .unwrap();
    assert_eq!(
        map.begin_relocation(batch, Bytes(10), EarlierRequests::None),
        Err(RelocationError::Busy)
    );
    assert_eq!(map.switch(), Err(RelocationError::NotReady));
    while let CopyStep::Copy(chunk) = map.next_copy().unwrap() {
        map.copied(chunk).unwrap();
    }
    assert!(map.ready_to_switch() && !map.released());
    map.switch().unwrap();
    assert_eq!(map.cancel_relocation(), Err(RelocationError::TooLate));
    assert!(map.released() && !map.released());
    assert_eq!(map.sole_device(), Some(DeviceId(1)));
}

#[test]
fn holes_read_as_zeroes_and_are_allocated_before_a_write() {
    let mut map = VolumeMap::at(Bytes(250), Bytes(100), vec![None; 3]);
    let mut out = Vec::new();
    let read = |offset, length| Request {
        op: Op::Read,
        offset,
        length,
    };
    assert_eq!((map.sole_device(), map.main_device()), (None, None));
    assert_eq!(
        map.submit(read(0, 250), &mut out),
        Ok(Submission::Issued(None))
    );
    assert!(out.is_empty());
    let needs = Submission::NeedsPlace { extent: 1, end: 3 };
    assert_eq!(map.submit(write(150, 100), &mut out), Ok(needs));
    let (device, slot) = (DeviceId(2), 7);
    map.place(1, Location { device, slot });
    let needs = Submission::NeedsPlace { extent: 2, end: 3 };
    assert_eq!(map.submit(write(150, 100), &mut out), Ok(needs));
    map.place(2, Location { device, slot: 8 });
    assert_eq!(
        map.submit(write(150, 100), &mut out),
        Ok(Submission::Issued(None))
    );
    // Adjacent parts on a device are joined.
    assert_eq!((out.len(), out[0].at, out[0].length), (1, 750, 100));
    assert_eq!(map.bytes_not_on(Selection::Whole, DeviceId(0)), Bytes(150));
    assert_eq!(map.vacate(1), Some(Location { device, slot }));
    assert_eq!(map.vacate(1), None);
    let _ = map.submit(read(50, 200), &mut out).unwrap();
    assert_eq!((out.len(), out[0].offset, out[0].at), (1, 200, 800));
    assert_eq!(map.bytes_not_on(Selection::Whole, DeviceId(0)), Bytes(50));
    assert_eq!([1, 2].map(|e| map.bytes_of(e)), [Bytes(100), Bytes(50)]);
}

#[test]
fn batches_skip_extents_on_the_target() {
    let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
    let to = DeviceId(1);
    assert_eq!(
        map.next_batch(Selection::Whole, 0, to, Bytes(250)),
        Some(0..2)
    );
    assert_eq!(
        map.next_batch(Selection::Whole, 9, to, Bytes(250)),
        Some(9..10)
    );
    assert_eq!(map.next_batch(Selection::Whole, 10, to, Bytes(250)), None);
    assert_eq!(
        map.next_batch(Selection::Whole, 0, to, Bytes(1)),
        Some(0..1)
    );
    map.begin_relocation(
        Batch {
            first: 0,
            targets: vec![
                Some(Location {
                    device: to,
                    slot: 0,
                }),
                None,
            ],
        },
        Bytes(100),
        EarlierRequests::None,
    )
    .unwrap();
    while let CopyStep::Copy(chunk) = map.next_copy().unwrap() {
        assert_eq!(chunk.offset, 0);
        map.copied(chunk).unwrap();
    }
    assert_eq!(map.switch().unwrap().len(), 1);
    assert!(map.released());
    let next = map.next_batch(Selection::Whole, 0, to, Bytes(250));
    assert_eq!(next, Some(1..3));
    assert_eq!(map.holders(), [(DeviceId(0), 9), (to, 1)]);
}

#[test]
fn selection_moves_exactly_its_extents() {
    let to = DeviceId(1);
    let mut map = VolumeMap::new(Bytes(95), Bytes(10), DeviceId(0));
    let ranges: ExtentRanges = "1,3-4,9".parse().unwrap();
    let selected = Selection::Extents(&ranges);
    assert_eq!(map.bytes_not_on(selected, to), Bytes(35));
    let mut cursor = 0;
    let mut batches = vec![];
    while let Some(batch) = map.next_batch(selected, cursor, to, Bytes(30)) {
        cursor = batch.end;
        batches.push(batch.clone());
        let target = |e: usize| Location {
            device: to,
            slot: e as u32,
        };
        let targets = batch
            .clone()
            .map(|e| selected.contains(e).then(|| target(e)));
        let (first, targets) = (batch.start, targets.collect());
        map.begin_relocation(Batch { first, targets }, Bytes(10), EarlierRequests::None)
            .unwrap();
        while let CopyStep::Copy(chunk) = map.next_copy().unwrap() {
            map.copied(chunk).unwrap();
        }
        map.switch().unwrap();
        assert!(map.released());
    }
    assert_eq!(batches, [1..5, 9..10]);
    assert_eq!(map.bytes_not_on(selected, to), Bytes(0));
    let there = (0..10).filter(|e| map.location(*e).is_some_and(|l| l.device == to));
    assert_eq!(there.collect::<Vec<_>>(), [1, 3, 4, 9]);
}

/// The short path gives the same result as the full one.
#[test]
fn sole_device_shortcut_matches_the_full_lookup() {
    let at = |device, slot| {
        Some(Location {
            device: DeviceId(device),
            slot,
        })
    };
    let places = vec![at(0, 0), at(0, 1), at(1, 2), None, at(1, 4), at(0, 5)];
    let mut map = VolumeMap::at(Bytes(58), Bytes(10), places);
    let mut parts = vec![];
    let mut lone = 0;
    for offset in 0..60 {
        for length in 0..25 {
            let device = map.lone_device(offset, length);
            let read = Request {
                op: Op::Read,
                offset,
                length,
            };
            if map.submit(read, &mut parts).is_err() {
                assert_eq!(device, None, "outside the volume");
                continue;
            }
            let bytes: u64 = parts.iter().map(|p| p.length).sum();
            let one = parts.iter().all(|p| p.device == parts[0].device);
            let expected = (length > 0 && bytes == length && one).then(|| parts[0].device);
            assert_eq!(device, expected, "{offset} {length}");
            lone += u32::from(device.is_some());
        }
    }
    assert!(lone > 300, "{lone} of them");
    let (first, targets) = (5, vec![at(1, 5)]);
    map.begin_relocation(Batch { first, targets }, Bytes(10), EarlierRequests::None)
        .unwrap();
    assert_eq!(map.lone_device(0, 5), None, "something moves");
}

#[test]
fn shared_extent_is_written_only_after_a_copy() {
    let (device, other) = (DeviceId(0), DeviceId(1));
    let mut map = VolumeMap::new(Bytes(40), Bytes(10), device);
    let mut out = vec![];
    map.share_all();
    assert_eq!(map.sole_device(), None);
    let request = |op, offset, length| Request { op, offset, length };
    // Reads are routed as usual; a trim of a part has no effect, and a write needs a copy.
    let read = map.submit(request(Op::Read, 5, 10), &mut out);
    assert!(read == Ok(Submission::Issued(None)) && out.len() == 1);
    let trim = map.submit(request(Op::Trim, 5, 10), &mut out);
    assert!(trim == Ok(Submission::Issued(None)) && out.is_empty());
    let needs = |extent, end| Ok(Submission::NeedsCopy { extent, end });
    let write = request(Op::Write, 5, 10);
    assert_eq!(map.submit(write, &mut out), needs(0, 2));
    assert!(map.begin_copy_up(0) && !map.begin_copy_up(0));
    assert_eq!(map.vacate(0), None, "it is being copied");
    let range = map.next_batch(Selection::Whole, 0, other, Bytes(40));
    assert_eq!(range, Some(1..4), "and not moved meanwhile");
    let slot = Location {
        device: other,
        slot: 7,
    };
    let before = Location { device, slot: 0 };
    assert_eq!(map.copied_up(0, Some(slot)), before);
    assert_eq!(map.holders(), [(device, 3), (other, 1)]);
    assert_eq!(map.submit(write, &mut out), needs(1, 2));
    // An extent that has become exclusive stays at its place.
    assert!(map.begin_copy_up(1));
    map.not_copied_up(1, true);
    assert_eq!(map.submit(write, &mut out), Ok(Submission::Issued(None)));
    assert_eq!(out.len(), 2);
    // A move includes shared extents. A write to one waits for the switch and makes the move urgent.
    let target = Location {
        device: other,
        slot: 8,
    };
    let batch = Batch {
        first: 2,
        targets: vec![Some(target)],
    };
    map.begin_relocation(batch, Bytes(10), EarlierRequests::None)
        .unwrap();
    let write = request(Op::Write, 20, 5);
    assert!(!map.is_wanted());
    assert_eq!(map.submit(write, &mut out), Ok(Submission::Held));
    assert!(map.is_wanted() && !map.begin_copy_up(2));
    let CopyStep::Copy(chunk) = map.next_copy().unwrap() else {
        panic!("it is to be copied");
    };
    map.copied(chunk).unwrap();
    map.switch().unwrap();
    assert_eq!(map.submit(write, &mut out), Ok(Submission::Issued(None)));
    assert!(!map.is_shared(2) && map.is_shared(3));
    assert!(map.released() && !map.is_wanted());
    // A trim of a whole extent makes a hole, which is not shared.
    assert!(map.vacate(3).is_some() && !map.is_shared(3));
}
