//! Flushes of one volume on one device. The tests end each I/O explicitly.

use units::{Bytes, DeviceId};
use volume::{Location, VolumeMap};

use crate::engine::{
    DeviceRequest, Effect, Engine, EngineLimits, Failure, Fault, GuestOp, GuestRequest, IoKind,
    StoreReply, StoreRequest, Zeroes,
};

const EXTENT: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const PLAIN: IoKind = IoKind::Write { durable: false };
const DURABLE: IoKind = IoKind::Write { durable: true };
const OK: Result<(), Fault> = Ok(());
const LOST: Result<(), Fault> = Err(Fault::Device(Failure {
    device: DEVICE,
    kind: IoKind::Flush,
    errno: 5,
}));

/// Engine with its started I/Os and its answers. Guests are numbers.
struct EngineDriver {
    engine: Engine<u32>,
    started: Vec<DeviceRequest>,
    stored: Vec<StoreRequest>,
    answered: Vec<(u32, Result<(), Fault>)>,
}

impl EngineDriver {
    /// Returns an engine with two extents on the device.
    fn new() -> Self {
        Self::of(VolumeMap::new(Bytes(2 * EXTENT), Bytes(EXTENT), DEVICE))
    }

    fn of(map: VolumeMap) -> Self {
        Self {
            engine: Engine::new(map, EngineLimits::default()),
            started: vec![],
            stored: vec![],
            answered: vec![],
        }
    }

    /// Returns an engine without unflushed writes and without requests in flight.
    fn clean() -> Self {
        let mut driven = Self::new();
        driven.flush(0);
        driven.end(IoKind::Flush, OK);
        assert_eq!(driven.answers(), [(0, OK)]);
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
                _ => panic!("nothing moves: {effect:?}"),
            }
        }
    }

    fn submit(&mut self, guest: u32, op: GuestOp, length: u64, fua: bool) {
        let request = GuestRequest {
            op,
            offset: 0,
            length,
            fua,
        };
        self.engine.submit(0, guest, request);
        self.take();
    }

    fn write(&mut self, guest: u32) {
        self.submit(guest, GuestOp::Write, 512, false);
    }

    fn write_durably(&mut self, guest: u32) {
        self.submit(guest, GuestOp::Write, 512, true);
    }

    fn flush(&mut self, guest: u32) {
        self.submit(guest, GuestOp::Flush, 0, false);
    }

    /// Ends the first I/O of a kind.
    fn end(&mut self, kind: IoKind, result: Result<(), Fault>) {
        let at = self.started.iter().position(|io| io.kind == kind);
        let io = self.started.remove(at.expect("it was started"));
        self.engine.io_done(0, io.io, result, Zeroes::No);
        self.take();
    }

    fn store_says(&mut self, reply: StoreReply) {
        self.engine.store_done(0, reply);
        self.take();
    }

    /// Writes and expects the answer.
    fn written(&mut self, guest: u32) {
        self.write(guest);
        self.end(PLAIN, OK);
        assert_eq!(self.answers(), [(guest, OK)]);
    }

    /// Flushes with success of the device, and returns the answer.
    fn flushed(&mut self, guest: u32) -> Result<(), Fault> {
        self.flush(guest);
        self.end(IoKind::Flush, OK);
        let answers = self.answers();
        assert_eq!((answers.len(), answers[0].0), (1, guest));
        answers[0].1
    }

    /// Flushes without work for the device, and returns the answer.
    fn flushed_at_once(&mut self, guest: u32) -> Result<(), Fault> {
        self.flush(guest);
        assert_eq!(self.started, [], "there is nothing to flush");
        let answers = self.answers();
        assert_eq!((answers.len(), answers[0].0), (1, guest));
        answers[0].1
    }

    fn answers(&mut self) -> Vec<(u32, Result<(), Fault>)> {
        std::mem::take(&mut self.answered)
    }
}

#[test]
fn device_is_flushed_only_after_unflushed_changes() {
    let mut driven = EngineDriver::new();
    assert_eq!(driven.flushed(1), OK, "of an earlier process");
    assert_eq!(driven.flushed_at_once(2), OK);
    driven.written(3);
    assert_eq!(driven.flushed(4), OK);
    driven.submit(5, GuestOp::Read, 512, false);
    driven.end(IoKind::Read, OK);
    driven.answers();
    assert_eq!(driven.flushed_at_once(6), OK, "a read leaves nothing");
    driven.write_durably(7);
    driven.end(DURABLE, OK);
    driven.answers();
    assert_eq!(driven.flushed_at_once(8), OK, "it is durable by itself");
    driven.submit(9, GuestOp::Zero, 512, false);
    driven.end(IoKind::Zero, OK);
    driven.answers();
    assert_eq!(driven.flushed(10), OK, "zeroes have to be flushed");
}

#[test]
fn failed_flush_without_later_writes_fails_once() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.flush(2);
    driven.end(IoKind::Flush, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    assert_eq!(driven.flushed(3), OK, "and the device is flushed again");
    assert_eq!(driven.flushed_at_once(4), OK);
}

#[test]
fn write_in_flight_during_a_failed_flush_fails_the_next_flush() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.flush(2);
    driven.write(3);
    driven.end(IoKind::Flush, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    driven.flush(4);
    driven.end(PLAIN, OK);
    driven.end(IoKind::Flush, OK);
    // This flush began before the answer to the write, so the guest does not relate its failure to the write.
    assert_eq!(driven.answers(), [(3, OK), (4, LOST)]);
    assert_eq!(driven.flushed(5), LOST, "this one began after it");
    assert_eq!(driven.flushed_at_once(6), OK);
}

#[test]
fn flush_failure_is_final_once_affected_writes_are_acknowledged() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.flush(2);
    driven.write(3);
    driven.end(IoKind::Flush, LOST);
    driven.end(PLAIN, OK);
    assert_eq!(driven.answers(), [(2, LOST), (3, OK)]);
    driven.flush(4);
    driven.written(5);
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [(4, LOST)]);
    assert_eq!(driven.flushed(6), OK, "the loss was before the last write");
}

#[test]
fn flush_failure_of_another_volume_fails_the_next_flush_if_dirty() {
    let mut driven = EngineDriver::clean();
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    assert_eq!(driven.flushed_at_once(1), OK, "nothing was to be flushed");
    driven.written(2);
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    assert_eq!(driven.flushed(3), LOST);
    assert_eq!(driven.flushed_at_once(4), OK);
    driven.write(5);
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    driven.end(PLAIN, OK);
    driven.answers();
    assert_eq!(driven.flushed(6), LOST, "a write in flight may be lost too");
    // A flush in flight fails as well, even if its own device reports success.
    driven.written(7);
    driven.flush(8);
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [(8, LOST)]);
}

#[test]
fn flushes_share_a_device_flush_without_writes_after_its_start() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.flush(2);
    driven.flush(3);
    assert_eq!(driven.started.len(), 1, "the second one takes part");
    driven.written(4);
    driven.flush(5);
    driven.flush(6);
    assert_eq!(driven.started.len(), 1, "one at a time");
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [(2, OK), (3, OK)]);
    assert_eq!(driven.started.len(), 1, "the next one, for both");
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [(5, OK), (6, OK)]);
    assert_eq!(driven.flushed_at_once(7), OK);
}

#[test]
fn flush_waits_for_durable_writes_that_may_report_the_failure() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.write_durably(2);
    driven.flush(3);
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [], "the write was there before");
    driven.write_durably(4);
    driven.end(DURABLE, OK);
    assert_eq!(driven.answers(), [(3, OK), (2, OK)], "not for a later one");
    driven.end(DURABLE, OK);
    assert_eq!(driven.answers(), [(4, OK)]);

    driven.written(5);
    driven.write_durably(6);
    driven.flush(7);
    driven.end(IoKind::Flush, OK);
    driven.end(DURABLE, LOST);
    assert_eq!(driven.answers(), [(7, LOST), (6, LOST)]);
}

#[test]
fn failed_durable_write_does_not_cover_earlier_writes() {
    let mut driven = EngineDriver::clean();
    driven.written(1);
    driven.write_durably(2);
    driven.end(DURABLE, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    assert_eq!(driven.flushed(3), LOST);
    assert_eq!(driven.flushed_at_once(4), OK);
}

#[test]
fn flush_failure_before_the_first_use_of_a_device_is_ignored() {
    let map = VolumeMap::at(Bytes(EXTENT), Bytes(EXTENT), vec![None]);
    let mut driven = EngineDriver::of(map);
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    driven.write(1);
    let asked = StoreRequest::Place {
        extents: vec![0],
        prefer: None,
    };
    assert_eq!(driven.stored, [asked]);
    let slot = Location {
        device: DEVICE,
        slot: 5,
    };
    driven.store_says(StoreReply::Placed {
        extents: vec![0],
        places: Ok(vec![slot]),
    });
    driven.end(PLAIN, OK);
    assert_eq!(driven.answers(), [(1, OK)]);
    assert_eq!(driven.flushed(2), OK);
}

#[test]
fn device_that_a_crash_may_restore_is_flushed() {
    let mut driven = EngineDriver::clean();
    driven.submit(1, GuestOp::Write, 2 * EXTENT, false);
    for _ in 0..driven.started.len() {
        driven.end(PLAIN, OK);
    }
    driven.submit(2, GuestOp::Trim, 2 * EXTENT, false);
    let asked = StoreRequest::Vacate {
        extents: vec![0, 1],
    };
    assert_eq!(driven.stored, [asked]);
    driven.store_says(StoreReply::Vacated {
        extents: vec![0, 1],
        done: LOST,
    });
    assert!(driven.engine.map().holders().is_empty());
    driven.answers();
    // The map on disk may still have the extents on the device.
    assert_eq!(driven.flushed(3), OK);
}
