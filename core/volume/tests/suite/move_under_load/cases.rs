//! Random schedules in that world, and chosen cases.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn moves_lose_no_acknowledged_write(
        holes in 0u8..32,
        steps in prop::collection::vec((0u8..64, 0usize..4000, 0u64..SIZE as u64, 1u64..150), 0..2000)
    ) {
        let mut world = World::new(holes);
        for (what, pick, offset, length) in steps {
            let length = length.min(SIZE as u64 - offset);
            match what {
                0..7 => world.submit(write(offset, length)),
                7 => world.submit(Request { op: Op::Trim, offset, length }),
                8..11 => world.submit(Request { op: Op::Read, offset, length }),
                11 => world.submit(Request { op: Op::Flush, offset: 0, length: 0 }),
                12..32 => world.land(pick),
                32 if pick.is_multiple_of(3) => world.cancel(),
                33 => world.vacate(pick % EXTENTS),
                34..36 => world.begin_any(pick),
                36 => {
                    world.begin_next(pick % DEVICES, length);
                }
                37 => {
                    let _ = world.map.share_reads((pick % 5) as f64 / 4.0);
                }
                _ => world.copy(pick),
            }
        }
        world.rest();
    }
}

#[test]
fn write_in_flight_at_the_start_of_a_move_is_copied() {
    let mut world = World::new(0);
    world.submit(write(0, 8));
    world.begin(0..1, |_| Some(2));
    for pick in 0..10 {
        world.copy(pick);
    }
    assert!(world.copies.is_empty(), "nothing may be copied yet");
    world.rest();
    assert_eq!((world.moves, world.truth(0)), (1, 1000));
    assert_eq!(world.map.location(0).map(|l| l.device), Some(DeviceId(2)));
}

#[test]
fn volume_moves_in_batches_during_writes() {
    let mut world = World::new(0b1000);
    for pick in 0..6000 {
        if pick % 3 == 0 {
            world.submit(write((pick * 37 % 150) as u64, 40));
        }
        world.land(pick);
        world.copy(pick);
        if !world.map.relocating() && !world.begin_next(2, 250) {
            break;
        }
    }
    world.rest();
    assert_eq!(
        world.map.bytes_not_on(Selection::Whole, DeviceId(2)),
        Bytes(0)
    );
    assert_eq!(world.map.holders(), [(DeviceId(2), 4)]);
    assert_eq!(world.moves, 3, "two extents at most, holes among them");
}

#[test]
fn move_ends_despite_continuous_writes() {
    let mut world = World::new(0);
    world.begin(0..EXTENTS, |_| Some(2));
    for round in 0..8000usize {
        // One write is in flight at all times, always to the same chunk and during its copy.
        if world.in_flight.is_empty() && world.held.is_empty() {
            world.submit(write(40, 8));
        }
        world.copy(round);
        if round % 2 == 1 {
            world.land(0);
            world.land(0);
        }
        if world.moves == 1 {
            return;
        }
    }
    panic!("the move did not end");
}

#[test]
fn hole_is_written_while_its_neighbours_move() {
    let mut world = World::new(0b10);
    world.begin(0..3, |_| Some(2));
    assert_eq!(world.moving.as_ref().map(|m| m.targets.len()), Some(2));
    for pick in 0..200 {
        world.copy(pick);
        if pick == 5 {
            world.submit(write(90, 120));
            world.vacate(0);
        }
    }
    world.rest();
    assert_eq!(world.moves, 1);
    let devices = [0, 2].map(|e| world.map.location(e).map(|l| l.device));
    assert_eq!(devices, [Some(DeviceId(2)); 2]);
    assert!((90..210).all(|byte| world.truth(byte) == 1000));
    world.vacate(1);
    assert_eq!((world.truth(99), world.truth(100)), (1000, 0));
}

/// Volume of one extent with one chunk, on device 0.
fn small() -> VolumeMap {
    VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0))
}

fn begin(
    map: &mut VolumeMap,
    to: u16,
    earlier: EarlierRequests,
) -> Result<(), volume::RelocationError> {
    let target = Location {
        device: DeviceId(to),
        slot: 0,
    };
    let batch = Batch {
        first: 0,
        targets: vec![Some(target)],
    };
    map.begin_relocation(batch, Bytes(64), earlier)
}

fn next_chunk(map: &mut VolumeMap) -> Chunk {
    match map.next_copy().unwrap() {
        CopyStep::Copy(chunk) => chunk,
        other => panic!("{other:?}"),
    }
}

#[test]
fn read_in_flight_at_the_start_of_a_move_keeps_its_source() {
    let (mut map, mut out) = (small(), vec![]);
    let read = Request {
        op: Op::Read,
        offset: 0,
        length: 8,
    };
    let _ = map.submit(read, &mut out).unwrap();
    begin(&mut map, 1, EarlierRequests::InFlight).unwrap();
    assert_eq!(map.next_copy(), Ok(CopyStep::Wait));
    map.earlier_complete();
    let chunk = next_chunk(&mut map);
    map.copied(chunk).unwrap();
    map.switch().unwrap();
    assert!(map.released());
}

#[test]
fn target_of_a_cancelled_move_waits_for_its_last_mirrored_write() {
    let (mut map, mut out) = (small(), vec![]);
    begin(&mut map, 1, EarlierRequests::None).unwrap();
    let chunk = next_chunk(&mut map);
    map.copied(chunk).unwrap();
    let Submission::Issued(Some(ticket)) = map.submit(write(0, 8), &mut out).unwrap() else {
        panic!()
    };
    assert_eq!(out.len(), 2, "to both ends");
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    assert!(begin(&mut map, 2, EarlierRequests::InFlight).is_err());
    map.complete(ticket);
    assert!(map.released());
    begin(&mut map, 2, EarlierRequests::None).unwrap();
}

#[test]
fn cancelled_move_waits_for_earlier_requests() {
    let mut map = small();
    begin(&mut map, 1, EarlierRequests::InFlight).unwrap();
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    map.earlier_complete();
    assert!(map.released());
}

#[test]
fn flush_after_a_cancel_reaches_only_the_source() {
    let (mut map, mut out) = (small(), vec![]);
    let flush = Request {
        op: Op::Flush,
        offset: 0,
        length: 0,
    };
    begin(&mut map, 1, EarlierRequests::None).unwrap();
    let Submission::Issued(Some(ticket)) = map.submit(flush, &mut out).unwrap() else {
        panic!()
    };
    map.cancel_relocation().unwrap();
    assert!(!map.released(), "the flush is on its way to the target");
    let _ = map.submit(flush, &mut out).unwrap();
    let devices: Vec<_> = out.iter().map(|io| io.device).collect();
    assert_eq!(devices, [DeviceId(0)]);
    map.complete(ticket);
    assert!(map.released());
}

#[test]
fn copy_in_flight_keeps_the_target_of_a_cancelled_move() {
    let mut map = small();
    begin(&mut map, 1, EarlierRequests::None).unwrap();
    let chunk = next_chunk(&mut map);
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    map.copy_abandoned(chunk).unwrap();
    assert!(map.released());
}
