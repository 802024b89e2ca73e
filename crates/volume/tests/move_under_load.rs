//! A guest writes at random while the volume moves, again and again; the copy and every part of every request land at
//! random times, and moves are given up at random. The oracle is a plain array of "what was acknowledged here last".

use model::Op;
use proptest::prelude::*;
use units::{Bytes, DeviceId};
use volume::{Chunk, CopyStep, DeviceIo, Earlier, Request, Submission, Ticket, VolumeMap};

const SIZE: usize = 240;
const CHUNK: u64 = 32;
const DISKS: usize = 3;

/// A guest request whose parts land one by one.
struct InFlight {
    parts: Vec<DeviceIo>,
    ticket: Option<Ticket>,
    /// Value that it writes.
    value: Option<u32>,
    range: (usize, usize),
    /// Another write to the same bytes was in flight at the same time: either may win.
    racing: bool,
    /// Issued before the relocation that is under way.
    earlier: bool,
}

struct World {
    map: VolumeMap,
    /// Contents by device.
    disks: [Vec<u32>; DISKS],
    truth: usize,
    target: Option<usize>,
    /// Acknowledged contents, where they are certain.
    expected: Vec<Option<u32>>,
    in_flight: Vec<InFlight>,
    held: Vec<Request>,
    /// A chunk that was read (with its bytes) and not yet written to the target.
    copying: Option<(Chunk, Vec<u32>)>,
    /// Chunks of a move that was given up, still on their way to this device.
    stray: Vec<(usize, Chunk, Vec<u32>)>,
    next_value: u32,
    moves: u32,
}

impl World {
    fn new() -> Self {
        let map = VolumeMap::new(Bytes(SIZE as u64), Bytes(100), DeviceId(0));
        let start: Vec<u32> = (0..SIZE as u32).collect();
        Self {
            map,
            expected: start.iter().copied().map(Some).collect(),
            disks: [start, vec![u32::MAX; SIZE], vec![u32::MAX; SIZE]],
            truth: 0,
            target: None,
            in_flight: vec![],
            held: vec![],
            copying: None,
            stray: vec![],
            next_value: 1000,
            moves: 0,
        }
    }

    fn begin(&mut self) {
        if self.target.is_some() || self.map.relocating_to().is_some() {
            return;
        }
        let to = (self.truth + 1) % DISKS;
        // What is left there from another time must not matter.
        self.disks[to].fill(u32::MAX);
        let earlier = if self.in_flight.is_empty() {
            Earlier::None
        } else {
            Earlier::InFlight
        };
        self.in_flight.iter_mut().for_each(|r| r.earlier = true);
        self.map
            .begin_relocation(DeviceId::from_index(to), Bytes(CHUNK), earlier)
            .unwrap();
        self.target = Some(to);
    }

    fn cancel(&mut self) {
        if let Some(target) = self.target.take() {
            self.map.cancel_relocation().unwrap();
            let stray = self.copying.take();
            self.stray
                .extend(stray.map(|(chunk, bytes)| (target, chunk, bytes)));
            self.retry_held();
            self.release();
        }
    }

    /// Nothing that is in flight may know a device that was freed.
    fn release(&mut self) {
        let given_up = self.map.relocating_to();
        if !self.map.released() {
            return;
        }
        let freed = given_up
            .filter(|d| d.index() != self.truth)
            .map_or((self.truth + DISKS - 1) % DISKS, |d| d.index());
        let known = self
            .in_flight
            .iter()
            .flat_map(|r| &r.parts)
            .any(|p| p.device.index() == freed);
        assert!(!known, "device {freed} was freed under a request in flight");
        assert!(self.stray.is_empty(), "freed under a copy in flight");
    }

    fn submit(&mut self, request: Request) {
        let mut parts = Vec::new();
        match self.map.submit(request, &mut parts).unwrap() {
            Submission::Held => self.held.push(request),
            Submission::Issued(ticket) => {
                for part in &parts {
                    let known = part.device.index() == self.truth
                        || Some(part.device.index()) == self.target;
                    assert!(known, "a request was sent to a device that was given up");
                }
                let from = request.offset as usize;
                let range = (from, from + request.length as usize);
                let writes = request.op == Op::Write;
                let mut racing = false;
                for other in self
                    .in_flight
                    .iter_mut()
                    .filter(|o| writes && o.value.is_some())
                {
                    if other.range.0 < range.1 && range.0 < other.range.1 {
                        (other.racing, racing) = (true, true);
                    }
                }
                let value = writes.then_some(self.next_value);
                self.in_flight.push(InFlight {
                    parts,
                    ticket,
                    value,
                    range,
                    racing,
                    earlier: false,
                });
                self.next_value += 1;
            }
        }
    }

    fn retry_held(&mut self) {
        for request in std::mem::take(&mut self.held) {
            self.submit(request);
        }
    }

    /// Lands one part of one request; completes the request after its last part.
    fn land(&mut self, pick: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let i = pick % self.in_flight.len();
        let request = &mut self.in_flight[i];
        if !request.parts.is_empty() {
            let part = request.parts.swap_remove(pick / 7 % request.parts.len());
            if let Some(value) = request.value {
                let range = part.offset as usize..(part.offset + part.length) as usize;
                self.disks[part.device.index()][range].fill(value);
            }
        }
        if !self.in_flight[i].parts.is_empty() {
            return;
        }
        let done = self.in_flight.swap_remove(i);
        if let Some(value) = done.value {
            let certain = (!done.racing).then_some(value);
            self.expected[done.range.0..done.range.1].fill(certain);
        }
        if let Some(ticket) = done.ticket {
            self.map.complete(ticket);
        }
        if self.in_flight.iter().all(|r| !r.earlier) {
            self.map.earlier_complete();
        }
        self.retry_held();
        self.release();
    }

    /// One step of the copy: read, or write what was read, or switch.
    fn copy(&mut self) {
        if let Some((device, chunk, bytes)) = self.stray.pop() {
            let range = chunk.offset as usize..(chunk.offset + chunk.length) as usize;
            self.disks[device][range].copy_from_slice(&bytes);
            self.map.copy_abandoned(chunk).unwrap();
            self.release();
            return;
        }
        let Some(target) = self.target else { return };
        if let Some((chunk, bytes)) = self.copying.take() {
            let range = chunk.offset as usize..(chunk.offset + chunk.length) as usize;
            self.disks[target][range].copy_from_slice(&bytes);
            self.map.copied(chunk).unwrap();
            self.retry_held();
            return;
        }
        match self.map.next_copy().unwrap() {
            CopyStep::Copy(chunk) => {
                let from = self.map.copy_source(chunk).index();
                assert_eq!(from, self.truth);
                let range = chunk.offset as usize..(chunk.offset + chunk.length) as usize;
                self.copying = Some((chunk, self.disks[from][range].to_vec()));
            }
            CopyStep::Wait => {}
            CopyStep::Done => {
                assert!(self.map.ready_to_switch());
                self.check_ends_agree(target);
                self.map.switch().unwrap();
                (self.truth, self.target) = (target, None);
                self.moves += 1;
                self.retry_held();
                self.release();
            }
        }
    }

    /// At the switch both ends hold the same bytes, but for bytes that a write in flight is about to set at both.
    fn check_ends_agree(&self, target: usize) {
        for byte in 0..SIZE {
            let being_written = self
                .in_flight
                .iter()
                .any(|r| r.value.is_some() && (r.range.0..r.range.1).contains(&byte));
            if !being_written {
                let (a, b) = (self.disks[self.truth][byte], self.disks[target][byte]);
                assert_eq!(a, b, "byte {byte} differs at the switch");
            }
        }
    }

    /// The guest stops; everything comes to rest, whatever the state was.
    fn rest(&mut self) {
        for pick in 0..4000 {
            self.land(pick);
            self.copy();
        }
        assert!(self.in_flight.is_empty() && self.held.is_empty() && self.target.is_none());
        self.release();
        assert_eq!(
            self.map.sole_device(),
            Some(DeviceId::from_index(self.truth))
        );
        for (byte, expected) in self.expected.iter().enumerate() {
            if let Some(value) = expected {
                assert_eq!(
                    self.disks[self.truth][byte], *value,
                    "an acknowledged write of byte {byte} is lost"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_acknowledged_write_is_lost_through_any_number_of_moves(
        steps in prop::collection::vec((0u8..40, 0usize..1000, 0u64..SIZE as u64, 1u64..90), 0..500)
    ) {
        let mut world = World::new();
        for (what, pick, offset, length) in steps {
            let length = length.min(SIZE as u64 - offset);
            match what {
                0..8 => world.submit(Request { op: Op::Write, offset, length }),
                8..11 => world.submit(Request { op: Op::Read, offset, length }),
                11 => world.submit(Request { op: Op::Flush, offset: 0, length: 0 }),
                12..20 => world.land(pick),
                20 => world.cancel(),
                21..24 => world.begin(),
                _ => world.copy(),
            }
        }
        world.rest();
    }
}

#[test]
fn a_write_in_flight_when_the_move_begins_is_not_missed() {
    let mut world = World::new();
    world.submit(Request {
        op: Op::Write,
        offset: 0,
        length: 8,
    });
    world.begin();
    for _ in 0..10 {
        world.copy();
    }
    assert!(world.target.is_some(), "nothing may be copied yet");
    world.rest();
    assert_eq!((world.moves, world.disks[1][0]), (1, 1000));
}

#[test]
fn a_read_in_flight_when_the_move_begins_keeps_its_source() {
    let mut map = VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0));
    let mut out = vec![];
    let _ = map
        .submit(
            Request {
                op: Op::Read,
                offset: 0,
                length: 8,
            },
            &mut out,
        )
        .unwrap();
    map.begin_relocation(DeviceId(1), Bytes(64), Earlier::InFlight)
        .unwrap();
    assert_eq!(map.next_copy(), Ok(CopyStep::Wait));
    map.earlier_complete();
    let CopyStep::Copy(chunk) = map.next_copy().unwrap() else {
        panic!()
    };
    map.copied(chunk).unwrap();
    map.switch().unwrap();
    assert!(map.released());
}

#[test]
fn the_target_of_a_cancelled_move_waits_for_its_last_mirrored_write() {
    let mut map = VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0));
    let mut out = vec![];
    map.begin_relocation(DeviceId(1), Bytes(64), Earlier::None)
        .unwrap();
    let CopyStep::Copy(chunk) = map.next_copy().unwrap() else {
        panic!()
    };
    map.copied(chunk).unwrap();
    let write = Request {
        op: Op::Write,
        offset: 0,
        length: 8,
    };
    let Submission::Issued(Some(ticket)) = map.submit(write, &mut out).unwrap() else {
        panic!()
    };
    assert_eq!(out.len(), 2, "to both ends");
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    assert!(
        map.begin_relocation(DeviceId(2), Bytes(64), Earlier::InFlight)
            .is_err()
    );
    map.complete(ticket);
    assert!(map.released());
    map.begin_relocation(DeviceId(2), Bytes(64), Earlier::None)
        .unwrap();
}

#[test]
fn a_guest_that_never_stops_writing_cannot_keep_a_move_from_ending() {
    let mut world = World::new();
    world.begin();
    for round in 0..4000usize {
        // One write in flight at all times, always to the same chunk, always while it is being copied.
        if world.in_flight.is_empty() && world.held.is_empty() {
            world.submit(Request {
                op: Op::Write,
                offset: 40,
                length: 8,
            });
        }
        world.copy();
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
fn a_cancelled_move_waits_for_what_was_issued_before_it() {
    let mut map = VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0));
    map.begin_relocation(DeviceId(1), Bytes(64), Earlier::InFlight)
        .unwrap();
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    map.earlier_complete();
    assert!(map.released());
}

#[test]
fn a_flush_after_a_cancel_goes_to_the_source_alone() {
    let mut map = VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0));
    let mut out = vec![];
    let flush = Request {
        op: Op::Flush,
        offset: 0,
        length: 0,
    };
    map.begin_relocation(DeviceId(1), Bytes(64), Earlier::None)
        .unwrap();
    let Submission::Issued(Some(ticket)) = map.submit(flush, &mut out).unwrap() else {
        panic!()
    };
    map.cancel_relocation().unwrap();
    assert!(!map.released(), "the flush is on its way to the target");
    let _ = map.submit(flush, &mut out).unwrap();
    assert_eq!(
        out.iter().map(|io| io.device).collect::<Vec<_>>(),
        [DeviceId(0)]
    );
    map.complete(ticket);
    assert!(map.released());
}

#[test]
fn a_copy_in_flight_keeps_a_cancelled_target() {
    let mut map = VolumeMap::new(Bytes(64), Bytes(64), DeviceId(0));
    map.begin_relocation(DeviceId(1), Bytes(64), Earlier::None)
        .unwrap();
    let CopyStep::Copy(chunk) = map.next_copy().unwrap() else {
        panic!()
    };
    map.cancel_relocation().unwrap();
    assert!(!map.released());
    map.copy_abandoned(chunk).unwrap();
    assert!(map.released());
}
