//! Guests: their requests, and the verification of replies.

use datapath::engine::{Fault, GuestOp, GuestRequest};

use units::VolumeId;

use super::life::{Event, Life};
use super::oracle::SECTOR;
use super::plan::EXTENT;

/// Most requests of a guest in flight.
const DEPTH: usize = 10;

/// Request in flight.
#[derive(Debug)]
pub struct PendingRequest {
    pub(super) volume: usize,
    pub(super) request: GuestRequest,
    /// Data that a read has returned so far.
    pub(super) bytes: Vec<u8>,
    /// Time of its start, for the oracle.
    pub(super) began: u64,
    /// Original request and its buffer, while whole pages are read for it.
    pub(super) narrower: Option<(GuestRequest, Vec<u8>)>,
    /// Version of its buffer. An abandoned buffer may still be filled by a late read, and its content is ignored.
    pub(super) buffer: u32,
}

impl Life<'_> {
    /// Sends a random request of a guest.
    pub(super) fn ask(&mut self, volume: usize) -> Result<(), String> {
        let gap_ns = self.some(self.plan.gap_ns);
        if self.to_come > 0 {
            self.after(gap_ns, Event::Guest(volume));
        }
        let of_this = self.asked.values().filter(|a| a.volume == volume);
        if self.to_come == 0 || of_this.count() >= DEPTH {
            return Ok(());
        }
        self.to_come -= 1;
        let request = self.draw(volume);
        self.send(volume, request)
    }

    /// Sends this request of a guest.
    pub(super) fn send(&mut self, volume: usize, mut request: GuestRequest) -> Result<(), String> {
        if let Some(guest) = &self.rings[volume] {
            // This guest has no other way to demand durability.
            let changes = !matches!(request.op, GuestOp::Read | GuestOp::Flush);
            request.fua = changes && guest.through;
        }
        *self.next_op += 1;
        let op = *self.next_op;
        let oracle = &mut self.oracles[volume];
        let GuestRequest { offset, length, .. } = request;
        let mut bytes = vec![];
        let began = match request.op {
            GuestOp::Flush => oracle.begin(false),
            GuestOp::Read => {
                bytes = vec![0xee; length as usize];
                oracle.begin(true)
            }
            kind => {
                let value = if kind == GuestOp::Write { op } else { 0 };
                oracle.change(op, offset, length, value, kind == GuestOp::Trim);
                0
            }
        };
        self.asked.insert(
            op,
            PendingRequest {
                volume,
                request,
                bytes,
                began,
                narrower: None,
                buffer: 0,
            },
        );
        self.tally.requests += 1;
        if self.tally.trace {
            eprintln!("{:>12}   volume {volume}: asks {op}: {request:?}", "");
        }
        if self.by_ring(volume, op, request) {
            return Ok(());
        }
        self.submit(volume, op, request)?;
        self.settle(volume)
    }

    /// Returns the extents with second copies that are read.
    fn mirrored_extents(&self, volume: usize) -> Vec<u32> {
        let engine = &self.engines[volume];
        let read = engine.mirror_status().is_some_and(|m| m.share > 0.0);
        let is_mirrored = |e: &u32| read && engine.map().is_relocated(*e as usize);
        (0..engine.map().extents() as u32)
            .filter(is_mirrored)
            .collect()
    }

    fn draw(&mut self, volume: usize) -> GuestRequest {
        let size = self.keeper.volumes[&VolumeId(volume as u32)].size; // the size that the guest knows
        let mirrored = self.mirrored_extents(volume);
        let rng = &mut self.rng;
        if !mirrored.is_empty() && rng.below(2) == 0 {
            // Prefer extents whose second copy could differ from the first.
            let extent = mirrored[rng.below(mirrored.len() as u64) as usize];
            let op = [GuestOp::Read, GuestOp::Read, GuestOp::Write][rng.below(3) as usize];
            let offset = u64::from(extent) * EXTENT + rng.below(24) * SECTOR as u64;
            let length = (1 + rng.below(16)) * SECTOR as u64;
            let fua = op == GuestOp::Write && rng.below(8) == 0;
            if offset + length <= size.0 {
                return GuestRequest {
                    op,
                    offset,
                    length,
                    fua,
                };
            }
        }
        let op = match rng.below(100) {
            0..25 => GuestOp::Read,
            25..68 => GuestOp::Write,
            68..80 => GuestOp::Trim,
            80..85 => GuestOp::Zero,
            85..88 => GuestOp::ZeroAllocated,
            _ => GuestOp::Flush,
        };
        let sectors = size.0 / SECTOR as u64;
        let of_extent = EXTENT / SECTOR as u64;
        let whole = matches!(op, GuestOp::Trim | GuestOp::Zero) && rng.below(4) > 0;
        let (first, count) = if whole {
            let first = rng.below(sectors.div_ceil(of_extent)) * of_extent;
            (first, of_extent * (1 + rng.below(2)))
        } else {
            match rng.below(10) {
                0..5 => (rng.below(sectors.min(2 * of_extent)), 1 + rng.below(16)),
                5..9 => (rng.below(sectors), 1 + rng.below(24)),
                _ => (rng.below(sectors), 1 + rng.below(3 * of_extent)),
            }
        };
        let count = count.min(sectors - first);
        let flush = op == GuestOp::Flush;
        GuestRequest {
            op,
            offset: if flush { 0 } else { first * SECTOR as u64 },
            length: if flush { 0 } else { count * SECTOR as u64 },
            fua: op != GuestOp::Read && !flush && rng.below(8) == 0,
        }
    }

    /// Handles the completion of a request.
    pub(super) fn answered(
        &mut self,
        volume: usize,
        op: u64,
        result: Result<(), Fault>,
        gaps: &[(u64, u64)],
    ) -> Result<(), String> {
        let mut asked = self
            .asked
            .remove(&op)
            .ok_or("a request is answered twice")?;
        let GuestRequest {
            offset,
            length,
            fua,
            op: kind,
        } = asked.request;
        let oracle = &mut self.oracles[volume];
        let done = result.is_ok();
        self.tally.answered(result);
        match kind {
            GuestOp::Flush => {
                // A flush in a ring is taken later than it is submitted. If it fails, the failure also covers writes
                // acknowledged in between.
                let fails_later = !done && self.rings[volume].is_some();
                let began = if fails_later { u64::MAX } else { asked.began };
                oracle.flushed(began, done);
            }
            GuestOp::Read => {
                for (from, bytes) in gaps {
                    asked.bytes[*from as usize..(from + bytes) as usize].fill(0);
                }
                oracle.read(asked.began, offset, done.then_some(&*asked.bytes))?;
            }
            _ => oracle.changed(op, offset, length, done, fua),
        }
        Ok(())
    }
}
