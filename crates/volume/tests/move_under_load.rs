//! A guest writes at random while the volume moves; the copy and every part of every request land at random times.
//! The oracle is two plain arrays of "which write was last here".

use model::Op;
use proptest::prelude::*;
use units::{Bytes, DeviceId};
use volume::{Chunk, CopyStep, DeviceIo, Request, Submission, Ticket, VolumeMap};

const SIZE: usize = 240;
const CHUNK: u64 = 32;

/// A guest request whose parts land one by one.
struct InFlight {
    parts: Vec<DeviceIo>,
    ticket: Option<Ticket>,
    value: u32,
    range: (usize, usize),
}

struct World {
    map: VolumeMap,
    /// Contents by device.
    disks: [Vec<u32>; 2],
    in_flight: Vec<InFlight>,
    held: Vec<Request>,
    /// A chunk that was read (with its bytes) and not yet written to the target.
    copying: Option<(Chunk, Vec<u32>)>,
    next_value: u32,
    switched: bool,
}

impl World {
    fn new() -> Self {
        let mut map = VolumeMap::new(Bytes(SIZE as u64), Bytes(100), DeviceId(0));
        map.begin_relocation(DeviceId(1), Bytes(CHUNK)).unwrap();
        let disks = [(0..SIZE as u32).collect(), vec![u32::MAX; SIZE]];
        Self {
            map,
            disks,
            in_flight: vec![],
            held: vec![],
            copying: None,
            next_value: 1000,
            switched: false,
        }
    }

    fn submit(&mut self, request: Request) {
        let mut parts = Vec::new();
        match self.map.submit(request, &mut parts).unwrap() {
            Submission::Held => self.held.push(request),
            Submission::Issued(ticket) => {
                let from = request.offset as usize;
                let range = (from, from + request.length as usize);
                self.in_flight.push(InFlight {
                    parts,
                    ticket,
                    value: self.next_value,
                    range,
                });
                self.next_value += 1;
            }
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
            if part.op == Op::Write {
                let range = part.offset as usize..(part.offset + part.length) as usize;
                self.disks[part.device.index()][range].fill(request.value);
            }
        }
        if self.in_flight[i].parts.is_empty() {
            let done = self.in_flight.swap_remove(i);
            if let Some(ticket) = done.ticket {
                self.map.complete(ticket);
            }
            for request in std::mem::take(&mut self.held) {
                self.submit(request);
            }
        }
    }

    /// One step of the copy: read, or write what was read, or switch.
    fn copy(&mut self) {
        if self.switched {
            return;
        }
        if let Some((chunk, bytes)) = self.copying.take() {
            let range = chunk.offset as usize..(chunk.offset + chunk.length) as usize;
            self.disks[1][range].copy_from_slice(&bytes);
            self.map.copied(chunk).unwrap();
            for request in std::mem::take(&mut self.held) {
                self.submit(request);
            }
            return;
        }
        match self.map.next_copy().unwrap() {
            CopyStep::Copy(chunk) => {
                let from = self.map.copy_source(chunk).index();
                let range = chunk.offset as usize..(chunk.offset + chunk.length) as usize;
                self.copying = Some((chunk, self.disks[from][range].to_vec()));
            }
            CopyStep::Wait => {}
            CopyStep::Done => {
                assert!(self.map.ready_to_switch());
                self.check_ends_agree();
                self.map.switch().unwrap();
                self.switched = true;
            }
        }
    }

    /// At the switch both ends hold the same bytes, but for bytes that a write in flight is about to set at both.
    fn check_ends_agree(&self) {
        for byte in 0..SIZE {
            let being_written = self
                .in_flight
                .iter()
                .any(|r| r.value >= 1000 && (r.range.0..r.range.1).contains(&byte));
            if !being_written {
                assert_eq!(
                    self.disks[0][byte], self.disks[1][byte],
                    "byte {byte} differs at the switch"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn both_ends_agree_at_the_switch_and_nothing_is_lost(
        steps in prop::collection::vec((0u8..8, 0usize..1000, 0u64..SIZE as u64, 1u64..90), 0..400)
    ) {
        let mut world = World::new();
        for (what, pick, offset, length) in steps {
            match what {
                0 | 1 => {
                    let length = length.min(SIZE as u64 - offset);
                    world.submit(Request { op: Op::Write, offset, length });
                }
                2 => world.submit(Request { op: Op::Read, offset, length: length.min(SIZE as u64 - offset) }),
                3 | 4 => world.land(pick),
                _ => world.copy(),
            }
        }
        // The guest stops; everything comes to rest, whatever the state was.
        for pick in 0..4000 {
            world.land(pick);
            world.copy();
        }
        prop_assert!(world.switched, "the move must end");
        prop_assert!(world.in_flight.is_empty() && world.held.is_empty());
        prop_assert!(world.map.released());
        prop_assert_eq!(world.map.sole_device(), Some(DeviceId(1)));
    }

    #[test]
    fn a_cancelled_move_leaves_the_source_whole(
        steps in prop::collection::vec((0u8..6, 0usize..1000, 0u64..SIZE as u64, 1u64..90), 0..200)
    ) {
        let mut world = World::new();
        for (what, pick, offset, length) in steps {
            match what {
                0 | 1 => world.submit(Request { op: Op::Write, offset, length: length.min(SIZE as u64 - offset) }),
                2 | 3 => world.land(pick),
                _ if !world.switched => world.copy(),
                _ => {}
            }
        }
        if !world.switched {
            world.map.cancel_relocation().unwrap();
            // What the guest reads from now on comes from the source, and new writes go nowhere else.
            let mut parts = Vec::new();
            let _ = world.map.submit(Request { op: Op::Write, offset: 0, length: SIZE as u64 }, &mut parts).unwrap();
            prop_assert_eq!(parts.len(), 1);
            prop_assert_eq!(parts[0].device, DeviceId(0));
        }
    }
}

#[test]
fn a_guest_that_never_stops_writing_cannot_keep_a_move_from_ending() {
    let mut world = World::new();
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
        if world.switched {
            return;
        }
    }
    panic!("the move did not end");
}
