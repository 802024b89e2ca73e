//! Random guest reads, writes and trims while batches of the volume's extents move between random devices, again and again.
//! Copies and the parts of requests complete at random times, and moves are cancelled at random.
//!
//! The world has real bytes, by device and address. Free slots contain garbage, different each time, and so do slots that a
//! move fills, so a read that is too early or too late is detected. The oracle is a plain array of the last acknowledged
//! values. Of two racing writes either one may win; from then on the winner's value must stay.

mod cases;
mod mover;

use model::Op;
use units::{Bytes, DeviceId};
use volume::{
    Batch, Chunk, CopyStep, DeviceIo, EarlierRequests, Location, Request, Selection, Submission,
    Ticket, VolumeMap,
};

const SIZE: usize = 440;
const EXTENT: usize = 100;
const EXTENTS: usize = SIZE.div_ceil(EXTENT);
const CHUNK: u64 = 32;
const DEVICES: usize = 3;
const SLOTS: u32 = 8;
/// Smallest value of bytes in slots that must not be read.
const GARBAGE: u32 = 1 << 31;
/// Largest number of simultaneous chunk copies.
const COPIES: usize = 2;

/// Guest request whose parts complete one by one.
struct PendingRequest {
    number: u64,
    request: Request,
    parts: Vec<DeviceIo>,
    ticket: Option<Ticket>,
    /// Value of a write.
    value: Option<u32>,
    /// Values read so far; zero for bytes without a part.
    seen: Vec<u32>,
    /// Acknowledged contents at the submission.
    was: Vec<Option<u32>>,
    /// True for bytes with a concurrent write.
    raced: Vec<bool>,
    /// True if it was submitted before the current relocation.
    earlier: bool,
}

impl PendingRequest {
    fn range(&self) -> std::ops::Range<usize> {
        let from = self.request.offset as usize;
        from..from + self.was.len()
    }

    fn writes(&self, byte: usize) -> bool {
        self.value.is_some() && self.range().contains(&byte)
    }

    fn race(&mut self, bytes: &std::ops::Range<usize>) {
        let own = self.range();
        for byte in own.start.max(bytes.start)..own.end.min(bytes.end) {
            self.raced[byte - own.start] = true;
        }
    }
}

/// Chunk in flight: to be read, or read and to be written.
struct ChunkCopy {
    chunk: Chunk,
    bytes: Option<Vec<u32>>,
    from: (DeviceId, u64),
    to: (DeviceId, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Copying,
    Switched,
    Cancelled,
}

struct ActiveMove {
    targets: Vec<(usize, Location)>,
    phase: Phase,
    given_up: Vec<Location>,
}

struct World {
    map: VolumeMap,
    /// Contents by device and address.
    disks: Vec<Vec<u32>>,
    free: Vec<Vec<u32>>,
    /// Slots of trimmed extents, with the number of the first request that cannot use them.
    quarantine: Vec<(Location, u64)>,
    moving: Option<ActiveMove>,
    copies: Vec<ChunkCopy>,
    /// Acknowledged contents, where they are certain.
    expected: Vec<Option<u32>>,
    in_flight: Vec<PendingRequest>,
    /// Requests that the map holds.
    held: Vec<Request>,
    /// Writes that wait for a slot.
    starved: Vec<Request>,
    next_number: u64,
    next_value: u32,
    next_garbage: u32,
    /// Number of switched batches.
    moves: u32,
}

fn first_byte(place: Location) -> usize {
    place.slot as usize * EXTENT
}

fn bytes_of(extent: usize) -> std::ops::Range<usize> {
    extent * EXTENT..SIZE.min((extent + 1) * EXTENT)
}

fn write(offset: u64, length: u64) -> Request {
    Request {
        op: Op::Write,
        offset,
        length,
    }
}

impl World {
    /// Creates a volume on two devices, with holes at the set bits of `holes`.
    fn new(holes: u8) -> Self {
        let mut world = Self {
            map: VolumeMap::new(Bytes(1), Bytes(1), DeviceId(0)),
            disks: vec![vec![GARBAGE; SLOTS as usize * EXTENT]; DEVICES],
            free: vec![(0..SLOTS).rev().collect(); DEVICES],
            quarantine: vec![],
            moving: None,
            copies: vec![],
            expected: vec![Some(0); SIZE],
            in_flight: vec![],
            held: vec![],
            starved: vec![],
            next_number: 0,
            next_value: 1000,
            next_garbage: GARBAGE,
            moves: 0,
        };
        let mut places = vec![None; EXTENTS];
        for (extent, place) in places.iter_mut().enumerate() {
            if holes & (1 << extent) != 0 {
                continue;
            }
            let at = world.allocate(extent % 2, 0).expect("all is free");
            for byte in bytes_of(extent) {
                let address = first_byte(at) + byte % EXTENT;
                world.disks[at.device.index()][address] = byte as u32 + 1;
                world.expected[byte] = Some(byte as u32 + 1);
            }
            *place = Some(at);
        }
        world.map = VolumeMap::at(Bytes(SIZE as u64), Bytes(EXTENT as u64), places);
        world
    }

    /// Allocates a free slot, on this device if possible.
    fn allocate(&mut self, device: usize, pick: usize) -> Option<Location> {
        let device = (0..DEVICES)
            .map(|d| (device + d) % DEVICES)
            .find(|d| !self.free[*d].is_empty())?;
        let from = &mut self.free[device];
        // Usually the slot after the last one, so that parts are joined.
        let at = if pick.is_multiple_of(3) {
            pick / 3 % from.len()
        } else {
            from.len() - 1
        };
        Some(Location {
            device: DeviceId::from_index(device),
            slot: from.remove(at),
        })
    }

    fn fill(&mut self, place: Location, value: u32) {
        let from = first_byte(place);
        self.disks[place.device.index()][from..from + EXTENT].fill(value);
    }

    /// Frees a slot; no request in flight may use it.
    fn give_back(&mut self, place: Location) {
        let slot = first_byte(place)..first_byte(place) + EXTENT;
        let touches = |device: DeviceId, at: u64, length: u64| {
            let at = at as usize;
            device == place.device && at < slot.end && slot.start < at + length as usize
        };
        let mut parts = self.in_flight.iter().flat_map(|r| &r.parts);
        let known = parts.any(|p| p.op != Op::Flush && touches(p.device, p.at, p.length));
        assert!(!known, "{place:?} was freed under a request in flight");
        let copied = self.copies.iter().any(|c| {
            let length = c.chunk.length;
            touches(c.from.0, c.from.1, length) || touches(c.to.0, c.to.1, length)
        });
        assert!(!copied, "{place:?} was freed under a copy in flight");
        let live = (0..EXTENTS).any(|e| self.map.location(e) == Some(place));
        assert!(!live, "{place:?} was freed and is in use");
        self.next_garbage += 1;
        self.fill(place, self.next_garbage);
        let free = &mut self.free[place.device.index()];
        assert!(!free.contains(&place.slot), "{place:?} was freed twice");
        free.push(place.slot);
    }

    /// Returns the present value of a byte of the volume.
    fn truth(&self, byte: usize) -> u32 {
        let Some(place) = self.map.location(byte / EXTENT) else {
            return 0;
        };
        let value = self.disks[place.device.index()][first_byte(place) + byte % EXTENT];
        assert!(value < GARBAGE, "byte {byte} is garbage");
        value
    }

    /// Starts the relocation of a batch, unless one is in progress.
    fn begin(&mut self, batch: std::ops::Range<usize>, to: impl Fn(usize) -> Option<usize>) {
        if self.map.relocating() {
            return;
        }
        let mut targets = vec![];
        for extent in batch.clone() {
            let device = to(extent).filter(|_| self.map.location(extent).is_some());
            targets.push(device.and_then(|d| self.allocate(d, extent)));
        }
        let earlier = if self.in_flight.is_empty() {
            EarlierRequests::None
        } else {
            EarlierRequests::InFlight
        };
        self.in_flight.iter_mut().for_each(|r| r.earlier = true);
        let first = batch.start;
        self.map
            .begin_relocation(Batch { first, targets }, Bytes(CHUNK), earlier)
            .unwrap();
        self.moving = Some(ActiveMove {
            targets: self.map.batch_targets(),
            phase: Phase::Copying,
            given_up: vec![],
        });
    }

    /// Starts a batch of any extents with any target devices, including their own.
    fn begin_any(&mut self, pick: usize) {
        let first = pick % EXTENTS;
        let end = first + 1 + pick / 5 % (EXTENTS - first);
        self.begin(first..end, |extent| {
            let device = (pick / 25) >> extent;
            (device % 5 != 4).then_some(device % DEVICES)
        });
    }

    /// Starts the next batch of a move of the whole volume to one device, as a move does.
    fn begin_next(&mut self, to: usize, bytes: u64) -> bool {
        let target = DeviceId::from_index(to);
        let batch = self
            .map
            .next_batch(Selection::Whole, 0, target, Bytes(bytes));
        assert_eq!(
            batch.is_none(),
            self.map.bytes_not_on(Selection::Whole, target) == Bytes(0)
        );
        let Some(batch) = batch else { return false };
        let there: Vec<bool> = (0..EXTENTS)
            .map(|e| self.map.location(e).is_some_and(|l| l.device == target))
            .collect();
        self.begin(batch, |extent| (!there[extent]).then_some(to));
        true
    }

    fn moving_in(&self, phase: Phase) -> Option<&ActiveMove> {
        self.moving.as_ref().filter(|m| m.phase == phase)
    }

    fn cancel(&mut self) {
        if self.moving_in(Phase::Copying).is_none() {
            return;
        }
        self.map.cancel_relocation().unwrap();
        let moving = self.moving.as_mut().expect("it is being copied");
        moving.phase = Phase::Cancelled;
        moving.given_up = moving.targets.iter().map(|t| t.1).collect();
        self.retry_held();
        self.release();
    }

    /// Frees places that no request uses any more, and retries writes that wait for a slot.
    fn release(&mut self) {
        if self.map.released() {
            let moving = self.moving.take().expect("something was given up");
            assert_ne!(moving.phase, Phase::Copying);
            for place in moving.given_up {
                self.give_back(place);
            }
        }
        self.release_quarantine();
    }

    /// Frees the slots of trimmed extents and retries writes that wait for a slot.
    fn release_quarantine(&mut self) {
        let oldest = self.in_flight.iter().map(|r| r.number).min();
        let waits = |since: &u64| oldest.is_some_and(|o| o < *since);
        let done: Vec<_> = self
            .quarantine
            .extract_if(.., |q| !waits(&q.1))
            .map(|q| q.0)
            .collect();
        for place in done {
            self.give_back(place);
        }
        for request in std::mem::take(&mut self.starved) {
            self.submit(request);
        }
    }

    /// Trims a whole extent and frees its slot.
    fn vacate(&mut self, extent: usize) {
        self.vacate_alone(extent);
        self.release();
    }

    fn vacate_alone(&mut self, extent: usize) {
        let Some(place) = self.map.vacate(extent) else {
            return;
        };
        for byte in bytes_of(extent) {
            let busy = self.in_flight.iter().any(|r| r.writes(byte));
            self.expected[byte] = (!busy).then_some(0);
        }
        for request in &mut self.in_flight {
            request.race(&bytes_of(extent));
        }
        self.quarantine.push((place, self.next_number));
    }

    fn submit(&mut self, request: Request) {
        let mut parts = Vec::new();
        let ticket = loop {
            match self.map.submit(request, &mut parts).unwrap() {
                Submission::Held => return self.held.push(request),
                Submission::Issued(ticket) => break ticket,
                Submission::NeedsPlace { extent, end } => {
                    assert!(extent < end && end <= EXTENTS);
                    let number = self.next_number as usize;
                    let Some(place) = self.allocate(number % DEVICES, number) else {
                        return self.starved.push(request);
                    };
                    self.fill(place, 0);
                    self.map.place(extent, place);
                }
                Submission::NeedsCopy { .. } => unreachable!("nobody shares"),
            }
        };
        self.check_parts(request.op, &parts);
        let from = request.offset as usize;
        let range = from..from + request.length as usize;
        let value = match request.op {
            Op::Write => Some(self.next_value),
            Op::Trim => Some(0),
            _ => None,
        };
        let mut issued = PendingRequest {
            number: self.next_number,
            request,
            parts,
            ticket,
            value,
            seen: vec![0; range.len()],
            was: self.expected[range.clone()].to_vec(),
            raced: vec![false; range.len()],
            earlier: false,
        };
        for other in &mut self.in_flight {
            if issued.value.is_some() {
                other.race(&range);
            }
            if other.value.is_some() {
                issued.race(&other.range());
            }
        }
        self.in_flight.push(issued);
        self.next_value += 1;
        self.next_number += 1;
    }

    /// Checks that each part goes to the place of an extent or to its target.
    fn check_parts(&self, op: Op, parts: &[DeviceIo]) {
        let targets = self
            .moving_in(Phase::Copying)
            .map_or(&[][..], |m| &m.targets);
        if op == Op::Flush {
            let held = self.map.holders().iter().map(|h| h.0);
            for device in held.chain(targets.iter().map(|t| t.1.device)) {
                let n = parts.iter().filter(|p| p.device == device).count();
                assert_eq!(n, 1, "a flush reaches every device once");
            }
            return;
        }
        for part in parts {
            let (mut offset, end) = (part.offset as usize, (part.offset + part.length) as usize);
            while offset < end {
                let extent = offset / EXTENT;
                let at = part.at as usize + offset - part.offset as usize;
                let goes_to = |p: &Location| {
                    p.device == part.device && first_byte(*p) + offset % EXTENT == at
                };
                let is = self.map.location(extent);
                let moved = targets.iter().filter(|t| t.0 == extent).map(|t| t.1);
                let here = end.min((extent + 1) * EXTENT) - offset;
                let alike = self.map.is_mirrored(offset as u64, here as u64);
                let known = is.iter().any(goes_to)
                    || (op != Op::Read || alike) && moved.into_iter().any(|t| goes_to(&t));
                assert!(known, "{part:?} goes to a place that is not the volume's");
                offset = (extent + 1) * EXTENT;
            }
        }
    }

    /// Checks that no held request could continue: the retries were sufficient.
    fn check_held(&self) {
        for request in &self.held {
            let now = self.map.clone().submit(*request, &mut vec![]).unwrap();
            assert!(!matches!(now, Submission::Issued(_)), "{request:?} waits");
        }
    }

    /// Retries held requests that touch these bytes; the others need no retry.
    fn retry_touching(&mut self, bytes: std::ops::Range<u64>) {
        let touches = |r: &mut Request| r.offset < bytes.end && bytes.start < r.offset + r.length;
        let some: Vec<Request> = self.held.extract_if(.., touches).collect();
        for request in some {
            self.submit(request);
        }
    }

    fn retry_held(&mut self) {
        for request in std::mem::take(&mut self.held) {
            self.submit(request);
        }
    }

    /// Completes one part of a request, and the request after its last part.
    fn land(&mut self, pick: usize) {
        self.land_alone(pick);
        if self.in_flight.iter().all(|r| !r.earlier) {
            self.map.earlier_complete();
        }
        self.release();
        self.check_held();
    }

    fn land_alone(&mut self, pick: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let i = pick % self.in_flight.len();
        let request = &mut self.in_flight[i];
        if !request.parts.is_empty() {
            let part = request.parts.swap_remove(pick / 7 % request.parts.len());
            let at = part.at as usize..(part.at + part.length) as usize;
            let disk = &mut self.disks[part.device.index()][at];
            match request.value {
                Some(value) => disk.fill(value),
                None => {
                    let from = (part.offset - request.request.offset) as usize;
                    request.seen[from..from + disk.len()].copy_from_slice(disk);
                }
            }
        }
        if !self.in_flight[i].parts.is_empty() {
            return;
        }
        let done = self.in_flight.swap_remove(i);
        self.answer(&done);
        if let Some(bytes) = done.ticket.and_then(|t| self.map.complete(t)) {
            self.retry_touching(bytes);
        }
    }

    /// Checks that acknowledged results are true and stay true.
    fn answer(&mut self, done: &PendingRequest) {
        for (i, byte) in done.range().enumerate() {
            let (seen, raced) = (done.seen[i], done.raced[i]);
            match done.value {
                Some(value) if !raced => {
                    assert_eq!(self.truth(byte), value, "a write of byte {byte} is lost");
                    self.expected[byte] = Some(value);
                }
                // Either write may win, but the result must then stay.
                Some(_) => {
                    let still = self.in_flight.iter().any(|r| r.writes(byte));
                    self.expected[byte] = (!still).then(|| self.truth(byte));
                }
                None => {
                    assert!(seen < GARBAGE, "byte {byte} was read as garbage");
                    let was = done.was[i].filter(|_| !raced);
                    assert!(
                        was.is_none_or(|w| w == seen),
                        "byte {byte} was {was:?} and was read as {seen}"
                    );
                }
            }
        }
    }

    /// Runs one step of the copy: start a chunk, read one, write one, or switch.
    fn copy(&mut self, pick: usize) {
        let n = self.copies.len();
        if n == COPIES || n > 0 && (pick.is_multiple_of(2) || !self.may_hand_out()) {
            self.advance(pick / 2 % n);
            return;
        }
        if !self.may_hand_out() {
            return;
        }
        match self.map.next_copy().unwrap() {
            CopyStep::Copy(chunk) => {
                let (from, to) = self.map.copy_ends(chunk);
                self.copies.push(ChunkCopy {
                    chunk,
                    bytes: None,
                    from,
                    to,
                });
            }
            CopyStep::Wait if n > 0 => self.advance(pick / 2 % n),
            CopyStep::Wait => {}
            CopyStep::Done => self.switch(),
        }
    }

    fn may_hand_out(&self) -> bool {
        self.moving_in(Phase::Copying).is_some()
    }

    /// Reads a chunk, or writes one that was read.
    fn advance(&mut self, i: usize) {
        let copy = &mut self.copies[i];
        let length = copy.chunk.length as usize;
        if copy.bytes.is_none() {
            let from = copy.from.1 as usize;
            copy.bytes = Some(self.disks[copy.from.0.index()][from..from + length].to_vec());
            return;
        }
        let copy = self.copies.swap_remove(i);
        let to = copy.to.1 as usize;
        let bytes = copy.bytes.expect("it was read");
        self.disks[copy.to.0.index()][to..to + length].copy_from_slice(&bytes);
        if self.may_hand_out() {
            let remaining = self.map.copied(copy.chunk).unwrap();
            assert_eq!(remaining == Bytes(0), self.map.ready_to_switch());
            let chunk = copy.chunk;
            self.retry_touching(chunk.offset..chunk.offset + chunk.length);
        } else {
            self.map.copy_abandoned(copy.chunk).unwrap();
            self.release();
        }
        self.check_held();
    }

    fn switch(&mut self) {
        assert!(self.map.ready_to_switch());
        self.check_ends_agree();
        let sources = self.map.switch().unwrap();
        let moving = self.moving.as_mut().expect("it is being copied");
        for (extent, target) in &moving.targets {
            assert_eq!(self.map.location(*extent), Some(*target));
        }
        moving.phase = Phase::Switched;
        moving.given_up = sources;
        self.moves += 1;
        self.check_contents();
        self.retry_held();
        self.release();
    }

    /// Checks that both ends are equal at the switch, except for bytes with writes in flight to both.
    fn check_ends_agree(&self) {
        let moving = self.moving.as_ref().expect("it is being copied");
        for (extent, target) in &moving.targets {
            for byte in bytes_of(*extent) {
                if self.in_flight.iter().any(|r| r.writes(byte)) {
                    continue;
                }
                let there = self.disks[target.device.index()][first_byte(*target) + byte % EXTENT];
                assert_eq!(self.truth(byte), there, "byte {byte} differs at the switch");
            }
        }
    }

    fn check_contents(&self) {
        for (byte, expected) in self.expected.iter().enumerate() {
            if self.in_flight.iter().any(|r| r.writes(byte)) {
                continue;
            }
            let value = expected.expect("nothing races");
            assert_eq!(
                self.truth(byte),
                value,
                "acknowledged contents of byte {byte} are lost"
            );
        }
    }

    /// Stops the guest and completes all operations, from any state.
    fn rest(&mut self) {
        for pick in 0..4000 {
            self.land(pick);
            self.copy(pick);
        }
        self.release();
        assert!(self.in_flight.is_empty() && self.held.is_empty() && self.starved.is_empty());
        assert!(self.copies.is_empty() && self.quarantine.is_empty());
        assert!(self.moving.is_none() && !self.map.relocating());
        self.check_contents();
        let places = (0..EXTENTS).filter_map(|e| self.map.location(e));
        let counted: usize = self.map.holders().iter().map(|h| h.1 as usize).sum();
        assert_eq!(places.clone().count(), counted);
        for d in 0..DEVICES {
            let used = places.clone().filter(|l| l.device.index() == d).count();
            assert_eq!(self.free[d].len() + used, SLOTS as usize, "a slot is lost");
        }
        // Also from the guest's view.
        self.submit(Request {
            op: Op::Read,
            offset: 0,
            length: SIZE as u64,
        });
        while !self.in_flight.is_empty() {
            self.land(0);
        }
    }
}
