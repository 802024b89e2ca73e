//! Guests with rings in their own memory. Unlike guests of sockets they outlive the process: their inflight buffer
//! has the requests that were in flight at a kill, and the next process repeats them.
//!
//! ```text
//!   guest ─▶ ring, kick ─▶ taken ─▶ engine ─▶ completed ─▶ published ─▶ seen by the guest
//!                            └─── in the inflight buffer ────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use datapath::engine::{Fault, GuestOp, GuestRequest};
use testkit::virtio::{Driver, Form};
use vm_memory::MmapRegion;
use vring::{Chain, InflightBuffer, Memory, Queue, QueueSetup, Region, blk};

use super::guest::PendingRequest;
use super::life::{Event, Life};

/// Descriptors of a ring: more than a guest needs for its requests in flight, even to read everything.
const SIZE: u16 = 64;

/// Address of the memory in the process that runs a guest.
const USER: u64 = 0x7f00_0000_0000;

/// Offset of headers, ranges and statuses of requests, and their distance.
const HEADS: u64 = 256 << 10;
const HEAD_BYTES: u64 = 64;
const STATUS_AT: u64 = 48;

/// Offset of the data of all requests: the simulation keeps data separately.
const DATA: u64 = 512 << 10;
const MEMORY_BYTES: usize = 1 << 20;

pub struct RingGuest {
    driver: Driver,
    memory: Arc<Memory>,
    inflight: Arc<MmapRegion>,
    setup: QueueSetup,
    /// True if the write cache is off: the guest never flushes.
    pub through: bool,
    /// Requests by head, with the offset of their parts.
    heads: BTreeMap<u16, (u64, u64)>,
    /// Free offsets of parts.
    free: Vec<u64>,
    /// Requests in flight while the guest is not served.
    pub kept: BTreeMap<u64, PendingRequest>,
}

impl RingGuest {
    /// Creates a guest that has just started.
    pub fn new(through: bool) -> Self {
        let map = Arc::new(MmapRegion::new(MEMORY_BYTES).expect("memory"));
        let driver = Driver::new(map.clone(), 0, SIZE, true);
        let [descriptors, available, used] = driver.places().map(|at| USER + at);
        let region = Region {
            guest: 0,
            user: USER,
            length: MEMORY_BYTES as u64,
            map,
            at: 0,
        };
        Self {
            driver,
            memory: Arc::new(Memory::new(vec![region]).expect("one region")),
            inflight: Arc::new(MmapRegion::new(InflightBuffer::bytes(1, SIZE)).expect("memory")),
            setup: QueueSetup {
                size: SIZE,
                descriptors,
                available,
                used,
                base: 0,
                event_index: true,
                indirect: true,
            },
            through,
            heads: BTreeMap::new(),
            free: (0..u64::from(SIZE))
                .map(|n| HEADS + n * HEAD_BYTES)
                .collect(),
            kept: BTreeMap::new(),
        }
    }

    /// Submits a request.
    fn ask(&mut self, op: u64, request: GuestRequest) {
        let at = self.free.pop().expect("fewer are in flight than there are");
        let (kind, flags) = match request.op {
            GuestOp::Read => (0_u32, 0_u32),
            GuestOp::Write => (1, 0),
            GuestOp::Flush => (4, 0),
            GuestOp::Trim => (11, 0),
            GuestOp::Zero => (13, 1),
            GuestOp::ZeroAllocated => (13, 0),
        };
        let sector = request.offset / blk::SECTOR_BYTES;
        let of_range = kind >= 11;
        self.driver.put(at, &kind.to_le_bytes());
        let own = if of_range { 0 } else { sector };
        self.driver.put(at + 8, &own.to_le_bytes());
        let sectors = (request.length / blk::SECTOR_BYTES) as u32;
        self.driver.put(at + 16, &sector.to_le_bytes());
        self.driver.put(at + 24, &sectors.to_le_bytes());
        self.driver.put(at + 28, &flags.to_le_bytes());
        self.driver.put(at + STATUS_AT, &[0xff]);
        let data = (DATA, request.length as u32);
        let (head, status) = ((at, if of_range { 32 } else { 16 }), (at + STATUS_AT, 1));
        let (readable, writable) = match request.op {
            GuestOp::Read => (vec![head], vec![data, status]),
            GuestOp::Write => (vec![head, data], vec![status]),
            _ => (vec![head], vec![status]),
        };
        let head = self.driver.add(&readable, &writable, Form::Indirect);
        self.heads.insert(head.expect("as above"), (op, at));
        self.driver.expose();
    }

    /// Creates the queue of a process that begins to serve the guest.
    fn serve(&self) -> Queue {
        let inflight =
            InflightBuffer::new(self.inflight.clone(), 0, 1, SIZE).expect("it was made for it");
        let account = inflight.account(0, SIZE).expect("as above");
        Queue::new(self.memory.clone(), self.setup, Some(account)).expect("all of it is inside")
    }

    /// Returns completed requests, with `true` for the successful ones.
    fn answers(&mut self) -> Vec<(u64, bool)> {
        let mut all = vec![];
        while let Some((head, _)) = self.driver.next_used() {
            let (op, at) = self.heads.remove(&head).expect("it was handed in");
            let mut status = [0];
            self.driver.get(at + STATUS_AT, &mut status);
            assert!(
                status[0] < 2,
                "request {op} is answered, and says {status:?}"
            );
            self.free.push(at);
            all.push((op, status[0] == 0));
        }
        all
    }
}

/// Ring in the process.
pub struct LiveRing {
    queue: Queue,
    /// Descriptor chains by request.
    chains: BTreeMap<u64, Chain>,
}

impl Life<'_> {
    /// Begins to serve guests with rings, including requests that an earlier process left.
    pub(super) fn begin_rings(&mut self) {
        for volume in 0..self.rings.len() {
            let Some(guest) = &mut self.rings[volume] else {
                continue;
            };
            let queue = guest.serve();
            self.tally.again += queue.resubmitted() as u64;
            for (op, mut asked) in std::mem::take(&mut guest.kept) {
                if asked.request.op == GuestOp::Read {
                    asked.began = self.oracles[volume].begin(true);
                }
                self.asked.insert(op, asked);
            }
            let chains = BTreeMap::new();
            self.live_rings[volume] = Some(LiveRing { queue, chains });
            self.after(1, Event::Take(volume));
        }
    }

    /// Submits a request by the guest's ring, if it has one.
    pub(super) fn by_ring(&mut self, volume: usize, op: u64, request: GuestRequest) -> bool {
        let Some(guest) = &mut self.rings[volume] else {
            return false;
        };
        guest.ask(op, request);
        let kick_ns = self.some(self.plan.gap_ns.min(100_000));
        self.after(kick_ns, Event::Take(volume));
        true
    }

    /// Takes new requests from a ring.
    pub(super) fn take(&mut self, volume: usize) -> Result<(), String> {
        let (Some(guest), Some(live)) = (&self.rings[volume], &mut self.live_rings[volume]) else {
            return Ok(());
        };
        let mut taken = vec![];
        while let Some(chain) = live.queue.pop().map_err(|e| e.to_string())? {
            let (op, _) = guest.heads[&chain.head()];
            let parsed = blk::parse(&chain, MEMORY_BYTES as u64).map_err(|e| e.to_string())?;
            let request = parsed.map_err(|s| format!("request {op} ends at once: {s:?}"))?;
            let kind = match request.operation {
                blk::Operation::Read => GuestOp::Read,
                blk::Operation::Write => GuestOp::Write,
                blk::Operation::Flush => GuestOp::Flush,
                blk::Operation::Discard => GuestOp::Trim,
                blk::Operation::Zero => GuestOp::Zero,
                blk::Operation::ZeroAllocated => GuestOp::ZeroAllocated,
                blk::Operation::Name => return Err("nobody asks for a name".into()),
            };
            let changes = !matches!(kind, GuestOp::Read | GuestOp::Flush);
            let request = GuestRequest {
                op: kind,
                offset: request.offset,
                length: request.length,
                fua: changes && guest.through,
            };
            if request != self.asked[&op].request {
                return Err(format!("request {op} became {request:?}"));
            }
            live.chains.insert(op, chain);
            taken.push((op, request));
        }
        for (op, request) in taken {
            self.submit(volume, op, request)?;
        }
        self.settle(volume)
    }

    /// Puts a reply into its ring, if the request came by one. The guest does not see it yet.
    pub(super) fn answer_ring(
        &mut self,
        volume: usize,
        op: u64,
        result: Result<(), Fault>,
        gaps: &[(u64, u64)],
    ) -> bool {
        let Some(live) = &mut self.live_rings[volume] else {
            return false;
        };
        let asked = self.asked.get_mut(&op).expect("it was asked");
        for (from, bytes) in gaps {
            asked.bytes[*from as usize..(from + bytes) as usize].fill(0);
        }
        let chain = live.chains.remove(&op).expect("it was taken");
        let (status, data) = match result {
            Ok(()) => (blk::Status::Done, asked.bytes.len() as u64),
            Err(_) => (blk::Status::Failed, 0),
        };
        let written = blk::finish(&chain, status, data);
        live.queue.push(chain, written);
        let turn_ns = self.some(20_000);
        self.after(turn_ns, Event::Publish(volume));
        true
    }

    /// Makes replies visible to a guest.
    pub(super) fn publish(&mut self, volume: usize) {
        if let Some(live) = &mut self.live_rings[volume] {
            live.queue.publish();
            let look_ns = self.some(50_000);
            self.after(look_ns, Event::Look(volume));
        }
    }

    /// Lets a guest process its replies.
    pub(super) fn look(&mut self, volume: usize) -> Result<(), String> {
        let Some(guest) = &mut self.rings[volume] else {
            return Ok(());
        };
        for (op, done) in guest.answers() {
            let result = if done { Ok(()) } else { Err(Fault::Io) };
            self.answered(volume, op, result, &[])?;
        }
        Ok(())
    }

    /// Handles a kill of the process: guests with rings continue, and keep their requests in flight.
    pub(super) fn keep_rings(&mut self) -> Result<(), String> {
        for volume in 0..self.rings.len() {
            if self.live_rings[volume].is_none() {
                continue; // no guest was admitted
            }
            self.look(volume)?;
            let own = self.asked.extract_if(.., |_, asked| asked.volume == volume);
            let mut kept: BTreeMap<u64, PendingRequest> = own.collect();
            for asked in kept.values_mut() {
                if let Some((request, bytes)) = asked.narrower.take() {
                    (asked.request, asked.bytes) = (request, bytes);
                    asked.buffer += 1;
                }
            }
            if let Some(guest) = &mut self.rings[volume] {
                guest.kept = kept;
            }
        }
        Ok(())
    }
}
