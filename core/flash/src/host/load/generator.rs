//! Generator of the requests of one tenant.

use algo::{Popularity, Rng};

use super::{Load, RecordedRequest, StandIn};
use crate::drive::Op;

const FILE_BYTES: u64 = 128 << 10;
const PIECE_BYTES: u32 = 32 << 10;

/// Generator of the requests of one tenant.
#[derive(Debug, Clone)]
pub struct Generator {
    load: Load,
    space: u64,
    random: Rng,
    popularity: Popularity,
    /// Position of sequential loads and runs.
    at: u64,
    left: u32,
    op: Op,
    /// Index into recorded loads.
    next: usize,
}

impl Generator {
    /// Creates a generator for a tenant with `space` bytes.
    pub fn new(load: Load, space: u64, seed: u64, stream: u64) -> Self {
        let theta = match &load {
            Load::Random { theta, .. } => *theta,
            Load::StandIn(StandIn::Financial) => 1.0,
            Load::StandIn(StandIn::Msn | StandIn::Exchange) => 0.8,
            Load::StandIn(StandIn::Proj) => 0.6,
            _ => 0.0,
        };
        Self {
            popularity: Popularity::new((space / 4096).max(1), theta),
            random: Rng::new(seed, 0x10AD ^ stream << 16),
            load,
            space: space.max(4096),
            at: 0,
            left: 0,
            op: Op::Write,
            next: 0,
        }
    }

    /// Returns the next request; `None` at the end of a recorded load. The time of a request is meaningful only for
    /// recorded loads.
    pub fn next_request(&mut self) -> Option<RecordedRequest> {
        let load = self.load.clone();
        let (op, offset, bytes) = match &load {
            Load::Random { reads, bytes, .. } => {
                let op = self.op_with(*reads);
                (op, self.place(*bytes), *bytes)
            }
            Load::Sequential { reads, bytes } => {
                if self.at + u64::from(*bytes) > self.space {
                    self.at = 0;
                }
                if self.at == 0 {
                    self.op = self.op_with(*reads);
                }
                let offset = self.at;
                self.at += u64::from(*bytes);
                (self.op, offset, *bytes)
            }
            Load::FileServer => self.file_server(),
            Load::StandIn(family) => self.stand_in(*family),
            Load::Recorded(all) => {
                let request = *all.get(self.next)?;
                self.next += 1;
                // The mapping depends only on the offset, so one place of the trace stays one place here. The end is
                // cut off.
                let offset = request.offset % self.space;
                let room = self.space - offset;
                return Some(RecordedRequest {
                    offset,
                    bytes: u64::from(request.bytes).min(room) as u32,
                    ..request
                });
            }
        };
        // If the tenant is smaller than the request, only the part inside counts.
        let room = self.space.saturating_sub(offset);
        Some(RecordedRequest {
            at_ns: 0,
            op,
            offset,
            bytes: u64::from(bytes).min(room) as u32,
        })
    }

    fn op_with(&mut self, reads: f64) -> Op {
        match self.random.unit() < reads {
            true => Op::Read,
            false => Op::Write,
        }
    }

    /// Returns a random offset for the given size, aligned if possible.
    fn place(&mut self, bytes: u32) -> u64 {
        let bits = self.random.next_u64();
        let offset = self.popularity.page(bits) * 4096;
        let align = u64::from(bytes).max(4096);
        (offset / align * align).min(self.space.saturating_sub(bytes.into()) / 4096 * 4096)
    }

    fn file_server(&mut self) -> (Op, u64, u32) {
        if self.left == 0 {
            let files = (self.space / FILE_BYTES).max(1);
            // Bursts of mostly one kind: the same kind as before in three of four cases.
            if self.random.below(4) == 0 {
                self.op = self.op_with(0.5);
            }
            self.at = self.random.below(files) * FILE_BYTES;
            self.left = match self.op {
                // Half of the writes append one piece.
                Op::Write if self.random.below(2) == 0 => 1,
                _ => (FILE_BYTES.min(self.space) / u64::from(PIECE_BYTES)).max(1) as u32,
            };
        }
        self.left -= 1;
        let offset = self.at;
        self.at += u64::from(PIECE_BYTES);
        (self.op, offset, PIECE_BYTES)
    }

    fn stand_in(&mut self, family: StandIn) -> (Op, u64, u32) {
        let (reads, sizes): (f64, &[u32]) = match family {
            StandIn::Financial => (0.23, &[4096, 4096, 4096, 8192]),
            StandIn::Msn => (0.67, &[8192, 8192, 16_384, 65_536]),
            StandIn::Exchange => (0.50, &[8192, 8192, 16_384, 32_768]),
            StandIn::Proj => (0.15, &[4096, 8192, 32_768, 65_536]),
        };
        if self.left > 0 {
            self.left -= 1;
            let offset = self.at.min(self.space.saturating_sub(32_768));
            self.at = offset + 32_768;
            return (self.op, offset, 32_768);
        }
        let bytes = sizes[self.random.below(sizes.len() as u64) as usize];
        let op = self.op_with(reads);
        let offset = self.place(bytes);
        if family == StandIn::Proj && self.random.below(8) == 0 {
            (self.at, self.left, self.op) = (offset, 8, op);
        }
        (op, offset, bytes)
    }
}
