//! Mirrors. The tests end each I/O explicitly.

use rustix::io::Errno;
use volume::{Location, VolumeMap};

use super::*;
use crate::engine::{DeviceRequest, EngineLimits, MoveEnd, StoreReply, StoreRequest};

const EXTENT: u64 = 1 << 20;
const FIRST: DeviceId = DeviceId(0);
const SECOND: DeviceId = DeviceId(1);
const MS: u64 = 1_000_000;
const OK: Result<(), Fault> = Ok(());

/// Engine with two extents on the first device, and its effects.
struct EngineDriver {
    engine: Engine<u32>,
    now_ns: u64,
    started: Vec<DeviceRequest>,
    stored: Vec<StoreRequest>,
    answered: Vec<(u32, Result<(), Fault>)>,
    again: Vec<(u32, GuestRequest)>,
    ended: Vec<MirrorEnd>,
}

impl EngineDriver {
    /// Returns an engine that mirrors both extents and sends every read to the second copy.
    fn mirrored() -> Self {
        let mut driven = Self::copying();
        driven.finish();
        let status = driven.engine.mirror_status().expect("it was started");
        assert_eq!((status.phase, status.share), ("mirrored", 1.0));
        driven
    }

    fn copying() -> Self {
        let map = VolumeMap::new(Bytes(2 * EXTENT), Bytes(EXTENT), FIRST);
        let all = OffloadLimits {
            least: 1.0,
            most: 1.0,
        };
        let limits = EngineLimits {
            copy_chunk: Bytes(EXTENT),
            mirror: MirrorLimits {
                offload: all,
                ..MirrorLimits::default()
            },
            ..EngineLimits::default()
        };
        let mut driven = Self {
            engine: Engine::new(map, limits),
            now_ns: 1,
            started: vec![],
            stored: vec![],
            answered: vec![],
            again: vec![],
            ended: vec![],
        };
        let order = MoveOrder {
            to: SECOND,
            bandwidth: BytesPerSec(1 << 40),
            extents: None,
            purpose: Purpose::Mirror,
        };
        let started = driven.engine.start_mirror(1, order, NeighborSlack::UNKNOWN);
        assert_eq!(started, Ok(()));
        driven.take();
        let slots = (0..2).map(|slot| Location {
            device: SECOND,
            slot: 7 + slot,
        });
        let reserved = StoreReply::Reserved(Ok(slots.collect()));
        driven.engine.store_done(1, reserved);
        driven.take();
        driven
    }

    fn take(&mut self) {
        let mut effects = vec![];
        self.engine.take_effects(&mut effects);
        for effect in effects {
            match effect {
                Effect::Io(io) => self.started.push(io),
                Effect::Store(request) => self.stored.push(request),
                Effect::Reply { guest, result, .. } => self.answered.push((guest, result)),
                Effect::Again { guest, request } => self.again.push((guest, request)),
                Effect::MirrorEnded(end) => self.ended.push(end),
                Effect::Wake(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Ends all I/Os, including those that follow, with success.
    fn finish(&mut self) {
        while !self.started.is_empty() {
            self.end(FIRST, OK);
            self.end(SECOND, OK);
            self.now_ns += MS;
            self.engine.wake(self.now_ns);
            self.take();
        }
    }

    /// Ends the I/Os in flight on a device.
    fn end(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let (of, rest) = std::mem::take(&mut self.started)
            .into_iter()
            .partition(|io| io.device == device);
        self.started = rest;
        let of: Vec<DeviceRequest> = of;
        for io in of {
            self.engine.io_done(self.now_ns, io.io, result, Zeroes::No);
            self.take();
        }
    }

    fn ask(&mut self, guest: u32, op: GuestOp, offset: u64, length: u64) {
        let request = GuestRequest {
            op,
            offset,
            length,
            fua: false,
        };
        self.engine.submit(self.now_ns, guest, request);
        self.take();
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.engine.wake(self.now_ns);
        self.take();
    }

    fn devices(&self) -> Vec<DeviceId> {
        let mut all: Vec<DeviceId> = self.started.iter().map(|io| io.device).collect();
        all.sort();
        all
    }

    fn answers(&mut self) -> Vec<(u32, Result<(), Fault>)> {
        std::mem::take(&mut self.answered)
    }

    fn why(&self) -> Option<StopReason> {
        self.ended.first().and_then(|e| e.why)
    }

    fn freed(&self) -> bool {
        let free = |s: &StoreRequest| matches!(s, StoreRequest::Free { slots } if slots.iter().all(|s| s.device == SECOND));
        self.stored.iter().any(free)
    }
}

fn fails(kind: IoKind) -> Result<(), Fault> {
    Err(Fault::of(SECOND, kind, Errno::IO))
}

const WRITE: IoKind = IoKind::Write { durable: false };

#[test]
fn mirror_is_read_after_copy_and_flush_and_is_not_stored() {
    let mut driven = EngineDriver::copying();
    driven.end(FIRST, OK); // a chunk is read; its write follows
    driven.ask(1, GuestOp::Read, 0, 4096);
    assert_eq!(driven.devices(), [FIRST, SECOND]);
    driven.end(FIRST, OK);
    assert_eq!(driven.answers(), [(1, OK)]);
    while driven.started.iter().all(|io| io.kind != IoKind::Flush) {
        driven.end(FIRST, OK);
        driven.end(SECOND, OK);
        driven.pass(MS);
    }
    // The copy is complete, but not flushed.
    driven.ask(2, GuestOp::Read, 0, 4096);
    assert_eq!(driven.devices(), [FIRST, SECOND]);
    driven.finish();
    driven.ask(3, GuestOp::Read, 0, 4096);
    assert_eq!(driven.devices(), [SECOND]);
    driven.finish();
    assert_eq!(driven.answers(), [(2, OK), (3, OK)]);
    assert_eq!(driven.engine.mirror_status().unwrap().reads, [0, 1]);
    let only_slots = |s: &StoreRequest| matches!(s, StoreRequest::Reserve { .. });
    assert!(driven.stored.iter().all(only_slots), "{:?}", driven.stored);
    assert_eq!(driven.engine.map().location(0).unwrap().device, FIRST);
}

#[test]
fn mirrored_write_waits_for_both_and_a_failed_mirror_is_dropped() {
    let mut driven = EngineDriver::mirrored();
    driven.ask(1, GuestOp::Write, 0, 4096);
    assert_eq!(driven.devices(), [FIRST, SECOND]);
    driven.end(FIRST, OK);
    assert_eq!(driven.answers(), []);
    driven.end(SECOND, OK);
    assert_eq!(driven.answers(), [(1, OK)]);
    driven.ask(2, GuestOp::Write, 0, 4096);
    driven.end(FIRST, OK);
    driven.end(SECOND, fails(WRITE));
    assert_eq!(driven.answers(), [(2, OK)]);
    assert!(matches!(driven.why(), Some(StopReason::TargetWrite(_))));
    assert!(driven.freed() && driven.engine.at_rest());
    driven.ask(3, GuestOp::Read, 0, 4096);
    assert_eq!(driven.devices(), [FIRST]);
}

#[test]
fn hanging_mirror_is_dropped_and_its_slots_stay_reserved() {
    let late_ns = MirrorLimits::default().late_ns;
    for op in [GuestOp::Write, GuestOp::Zero, GuestOp::Flush] {
        let mut driven = EngineDriver::mirrored();
        driven.ask(0, GuestOp::Write, EXTENT, 4096);
        driven.finish();
        driven.ask(1, op, 0, if op == GuestOp::Flush { 0 } else { 4096 });
        driven.end(FIRST, OK);
        assert_eq!(driven.answers(), [(0, OK)]);
        driven.pass(late_ns - MS);
        assert_eq!(driven.answers(), [], "{op:?}");
        driven.pass(MirrorLimits::default().look_ns + MS);
        assert_eq!(driven.answers(), [(1, OK)], "{op:?}");
        assert!(driven.ended.is_empty() && !driven.freed());
        // The guest can use the same bytes again at once.
        driven.ask(2, GuestOp::Write, 0, 4096);
        driven.ask(3, GuestOp::Read, 0, 4096);
        driven.end(FIRST, OK);
        assert_eq!(driven.answers(), [(2, OK), (3, OK)], "{op:?}");
        assert!(!driven.freed());
        driven.end(SECOND, OK);
        assert!(driven.freed(), "{op:?}");
        assert!(matches!(driven.why(), Some(StopReason::TargetLate(_))));
        assert!(driven.engine.at_rest());
    }
}

#[test]
fn mirror_reads_in_flight_are_repeated_on_the_first_copy() {
    let late_ns = MirrorLimits::default().late_ns;
    for (result, wait_ns) in [(fails(IoKind::Read), 0), (OK, late_ns + 300 * MS)] {
        let mut driven = EngineDriver::mirrored();
        driven.ask(1, GuestOp::Read, 0, 4096);
        assert_eq!(driven.devices(), [SECOND]);
        match wait_ns {
            0 => driven.end(SECOND, result),
            _ => driven.pass(wait_ns),
        }
        assert_eq!(driven.answers(), []);
        let (guest, request) = driven.again.pop().expect("it is asked again");
        driven.engine.submit(driven.now_ns, guest, request);
        driven.take();
        driven.end(FIRST, OK);
        assert_eq!(driven.answers(), [(1, OK)]);
        driven.end(SECOND, OK);
        assert!(driven.answers().is_empty() && driven.again.is_empty());
        assert!(driven.freed() && driven.engine.at_rest());
    }
}

#[test]
fn failed_first_copy_ends_the_mirror_and_fails_the_request() {
    let mut driven = EngineDriver::mirrored();
    driven.ask(1, GuestOp::Write, 0, 4096);
    let failed = Err(Fault::of(FIRST, WRITE, Errno::IO));
    driven.end(FIRST, failed);
    driven.end(SECOND, OK);
    assert_eq!(driven.answers(), [(1, failed)]);
    assert!(matches!(driven.why(), Some(StopReason::FirstCopy(_))));
}

#[test]
fn data_loss_on_either_device_ends_the_mirror() {
    for device in [FIRST, SECOND] {
        let mut driven = EngineDriver::mirrored();
        driven.ask(1, GuestOp::Write, 0, 4096);
        driven.finish();
        driven.ask(2, GuestOp::Read, 0, 4096);
        let failure = Failure::of_flush(device);
        driven.engine.flush_failed_elsewhere(failure);
        driven.take();
        // The result of the read may be older than the loss.
        assert_eq!(driven.again.len(), 1);
        driven.finish();
        assert_eq!(driven.ended.len(), 1, "{device:?}");
        let mut driven = EngineDriver::mirrored();
        driven.engine.device_lost(device, false);
        driven.pass(MS);
        assert_eq!(driven.ended.len(), 1, "{device:?}");
    }
}

#[test]
fn partial_trim_keeps_the_mirror_and_extent_trim_ends_it() {
    let mut driven = EngineDriver::mirrored();
    driven.ask(1, GuestOp::Trim, 4096, 8192);
    assert_eq!(
        (driven.devices(), driven.answers()),
        (vec![], vec![(1, OK)])
    );
    driven.ask(2, GuestOp::Zero, 4096, 8192);
    assert_eq!(driven.devices(), [FIRST, SECOND]);
    driven.finish();
    driven.ask(3, GuestOp::Trim, 4096, 2 * EXTENT - 4096);
    assert_eq!(driven.devices(), [FIRST]);
    driven.finish();
    assert_eq!(driven.answers(), [(2, OK), (3, OK)]);
    assert_eq!(driven.why(), Some(StopReason::MadeWay("a trim")));
}

#[test]
fn mirror_ends_for_moves_snapshots_resizes_and_take_overs() {
    let mut driven = EngineDriver::mirrored();
    assert!(
        driven.engine.grow(Bytes(3 * EXTENT)),
        "nothing is in flight"
    );
    driven.take();
    assert!(driven.why() == Some(StopReason::MadeWay("a change of size")) && driven.freed());

    let mut driven = EngineDriver::mirrored();
    driven.engine.hold_moves(driven.now_ns, true);
    driven.take();
    assert!(driven.engine.is_between_batches() && driven.freed());

    let mut driven = EngineDriver::mirrored();
    assert!(driven.engine.rest(driven.now_ns).is_some());
    let mut effects = vec![];
    driven.engine.take_effects(&mut effects);
    assert!(effects.iter().any(|e| matches!(e, Effect::MirrorEnded(_))));

    let mut driven = EngineDriver::mirrored();
    driven.ask(1, GuestOp::Write, 0, 4096);
    let order = MoveOrder {
        to: SECOND,
        bandwidth: BytesPerSec(1 << 40),
        extents: None,
        purpose: Purpose::Move,
    };
    let moved = driven
        .engine
        .start_move(driven.now_ns, order, NeighborSlack::UNKNOWN);
    assert_eq!(moved, Ok(()));
    driven.take();
    assert_eq!(driven.engine.move_status().unwrap().phase, "preparing");
    assert!(!driven.freed(), "a write to its slots is under way");
    driven.finish();
    assert!(driven.freed() && driven.answers() == [(1, OK)]);
    let reserves = |s: &&StoreRequest| matches!(s, StoreRequest::Reserve { .. });
    assert_eq!(driven.stored.iter().filter(reserves).count(), 2);
    let over = StoreRequest::MoveOver;
    assert!(!driven.stored.contains(&over), "the move's record stays");
}

#[test]
fn move_that_waits_for_a_mirror_can_be_cancelled() {
    let mut driven = EngineDriver::mirrored();
    driven.ask(1, GuestOp::Write, 0, 4096);
    let order = MoveOrder {
        to: SECOND,
        bandwidth: BytesPerSec(1 << 40),
        extents: None,
        purpose: Purpose::Move,
    };
    let moved = driven
        .engine
        .start_move(driven.now_ns, order, NeighborSlack::UNKNOWN);
    assert_eq!(moved, Ok(()));
    assert!(driven.engine.cancel_move(driven.now_ns));
    let mut effects = vec![];
    driven.engine.take_effects(&mut effects);
    assert!(effects.contains(&Effect::Store(StoreRequest::MoveOver)));
    let ended = |e: &Effect<u32>| matches!(e, Effect::MoveEnded(MoveEnd::Stopped { .. }));
    assert!(effects.iter().any(ended));
    assert!(!driven.engine.cancel_move(driven.now_ns));
}
