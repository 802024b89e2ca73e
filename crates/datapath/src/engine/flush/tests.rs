//! Flushes of one volume on one device, with every I/O ended by hand.

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

/// An engine, the I/Os that it has started, and what it has answered. Guests are numbers.
struct Driven {
    engine: Engine<u32>,
    started: Vec<DeviceRequest>,
    stored: Vec<StoreRequest>,
    answered: Vec<(u32, Result<(), Fault>)>,
}

impl Driven {
    /// Two extents on the device.
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

    /// Everything that was written before is durable, and nothing is in flight.
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

    /// The device ends the first I/O of a kind.
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

    /// A write that is answered.
    fn written(&mut self, guest: u32) {
        self.write(guest);
        self.end(PLAIN, OK);
        assert_eq!(self.answers(), [(guest, OK)]);
    }

    /// A flush that the device does; how it is answered.
    fn flushed(&mut self, guest: u32) -> Result<(), Fault> {
        self.flush(guest);
        self.end(IoKind::Flush, OK);
        let answers = self.answers();
        assert_eq!((answers.len(), answers[0].0), (1, guest));
        answers[0].1
    }

    /// A flush that has nothing to do on the device; how it is answered.
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
fn a_device_is_flushed_when_it_has_something_to_flush() {
    let mut driven = Driven::new();
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
fn one_failed_flush_tells_of_a_loss_if_nothing_was_written_meanwhile() {
    let mut driven = Driven::clean();
    driven.written(1);
    driven.flush(2);
    driven.end(IoKind::Flush, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    assert_eq!(driven.flushed(3), OK, "and the device is flushed again");
    assert_eq!(driven.flushed_at_once(4), OK);
}

#[test]
fn a_write_in_flight_when_a_loss_is_heard_of_is_told_of_by_another_flush() {
    let mut driven = Driven::clean();
    driven.written(1);
    driven.flush(2);
    driven.write(3);
    driven.end(IoKind::Flush, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    driven.flush(4);
    driven.end(PLAIN, OK);
    driven.end(IoKind::Flush, OK);
    // It began before the write was answered: the guest cannot take it for the fate of that.
    assert_eq!(driven.answers(), [(3, OK), (4, LOST)]);
    assert_eq!(driven.flushed(5), LOST, "this one began after it");
    assert_eq!(driven.flushed_at_once(6), OK);
}

#[test]
fn a_loss_is_told_for_good_once_all_that_it_may_have_hit_is_answered() {
    let mut driven = Driven::clean();
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
fn a_loss_that_somebody_else_was_told_of_fails_the_next_flush_if_there_was_something_to_lose() {
    let mut driven = Driven::clean();
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
    // A flush that runs meanwhile fails as well, whatever its own device says.
    driven.written(7);
    driven.flush(8);
    driven
        .engine
        .flush_failed_elsewhere(Failure::of_flush(DEVICE));
    driven.end(IoKind::Flush, OK);
    assert_eq!(driven.answers(), [(8, LOST)]);
}

#[test]
fn flushes_share_one_of_the_device_unless_something_was_written_after_it_began() {
    let mut driven = Driven::clean();
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
fn a_flush_waits_for_durable_writes_that_may_have_been_told_of_a_loss() {
    let mut driven = Driven::clean();
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
fn a_durable_write_that_fails_is_no_answer_for_the_writes_before_it() {
    let mut driven = Driven::clean();
    driven.written(1);
    driven.write_durably(2);
    driven.end(DURABLE, LOST);
    assert_eq!(driven.answers(), [(2, LOST)]);
    assert_eq!(driven.flushed(3), LOST);
    assert_eq!(driven.flushed_at_once(4), OK);
}

#[test]
fn what_was_lost_before_a_volume_came_to_a_device_is_not_its_own() {
    let map = VolumeMap::at(Bytes(EXTENT), Bytes(EXTENT), vec![None]);
    let mut driven = Driven::of(map);
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
fn a_device_that_a_crash_may_bring_back_is_flushed_too() {
    let mut driven = Driven::clean();
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
    // The map on disk may still say that the extents are there.
    assert_eq!(driven.flushed(3), OK);
}
