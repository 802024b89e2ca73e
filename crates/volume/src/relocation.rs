//! One move of a batch of extents: chunk states, mirrored writes, the switch and the drain. See the crate's page for the picture.

use std::ops::Range;

use model::Op;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::map::{Batch, DeviceIo, Earlier, Location, Request, push_joined};

/// After so many overwrites during its copy a chunk is copied with writes held. Bounds the length of a move against a
/// guest that never stops writing; low, because a held write waits for one chunk only.
pub const SEAL_AFTER: u8 = 2;

/// A piece of the volume to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The relocation that it belongs to.
    generation: u64,
    /// Number of the chunk.
    pub index: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// What to do next for the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStep {
    /// Copy this chunk, then say [`crate::VolumeMap::copied`].
    Copy(Chunk),
    /// Every chunk that is left is being copied or has writes in flight: ask again after the next completion.
    Wait,
    /// All chunks are synced.
    Done,
}

/// A request in flight during a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The relocation that it belongs to.
    generation: u64,
    /// Distinguishes requests in flight.
    id: u64,
    /// Bytes `start..end` when it writes.
    write: Option<(u64, u64)>,
    mirrored: bool,
}

/// Why a relocation cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RelocationError {
    /// One at a time.
    #[error(
        "a relocation of this volume is in progress, or requests of the last relocation are in flight"
    )]
    Busy,
    /// Nothing to move.
    #[error("extent {extent} is already at its target")]
    AlreadyThere {
        /// The extent.
        extent: usize,
    },
    /// Nothing to copy.
    #[error("extent {extent} is a hole")]
    Hole {
        /// The extent.
        extent: usize,
    },
    /// There is none.
    #[error("no relocation of this volume is in progress")]
    NotRelocating,
    /// Source and target differ.
    #[error("the target does not hold the whole batch yet")]
    NotReady,
    /// The target is the truth already.
    #[error("the batch has already been switched to the target")]
    TooLate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// Of an extent that stays where it is.
    Outside,
    Pending,
    /// To be copied sealed as soon as the writes in flight are done; new ones are held.
    Quiescing,
    Copying,
    /// Being copied, and written to by the guest since: will be copied again.
    Overwritten,
    /// Being copied with writes held.
    Sealed,
    Synced,
}

/// Where the truth is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// On the source; the target is being filled.
    Copying,
    /// On the target; the source waits for the last request that knows it.
    Switched,
    /// On the source; the target waits for the last write that was mirrored to it.
    Cancelled,
}

#[derive(Debug, Clone)]
pub(crate) struct Relocation {
    generation: u64,
    first: usize,
    targets: Vec<Option<Location>>,
    size: u64,
    extent_bytes: u64,
    chunk_bytes: u64,
    /// Chunks of one extent.
    per_extent: usize,
    /// By chunk, extent after extent.
    states: Vec<ChunkState>,
    /// Guest writes in flight, by chunk.
    writes: Vec<u16>,
    overwrites: Vec<u8>,
    /// Where to look for the next pending chunk.
    cursor: usize,
    unsynced: usize,
    /// Byte ranges of writes in flight to both ends.
    mirrored: Vec<(u64, u64, u64)>,
    next_ticket: u64,
    in_flight: u64,
    /// Chunks handed out to be copied and not reported yet.
    copying: u32,
    /// Requests routed before the relocation began, without a ticket, may still be in flight.
    earlier: bool,
    phase: Phase,
    reads: ReadShare,
}

/// Deals reads out to both ends.
#[derive(Debug, Clone, Copy, Default)]
struct ReadShare {
    /// For the target, of 65,536.
    second: u32,
    /// What the target is owed of one read, of 65,536.
    owed: u32,
}

impl Relocation {
    pub(crate) fn new(
        generation: u64,
        batch: Batch,
        size: u64,
        extent_bytes: u64,
        chunk_bytes: u64,
        earlier: Earlier,
    ) -> Self {
        let chunk_bytes = chunk_bytes.min(extent_bytes);
        let per_extent = extent_bytes.div_ceil(chunk_bytes) as usize;
        let mut states = Vec::with_capacity(batch.targets.len() * per_extent);
        for (extent, target) in (batch.first as u64..).zip(&batch.targets) {
            for piece in 0..per_extent as u64 {
                // The last extent of a volume may be short.
                let inside = extent * extent_bytes + piece * chunk_bytes < size;
                states.push(match target {
                    Some(_) if inside => ChunkState::Pending,
                    _ => ChunkState::Outside,
                });
            }
        }
        let unsynced = states.iter().filter(|s| **s == ChunkState::Pending).count();
        Self {
            generation,
            first: batch.first,
            targets: batch.targets,
            size,
            extent_bytes,
            chunk_bytes,
            per_extent,
            writes: vec![0; states.len()],
            overwrites: vec![0; states.len()],
            states,
            cursor: 0,
            unsynced,
            mirrored: Vec::new(),
            next_ticket: 0,
            in_flight: 0,
            copying: 0,
            earlier: earlier == Earlier::InFlight,
            phase: Phase::Copying,
            reads: ReadShare::default(),
        }
    }

    /// Whether an extent is one of those that move.
    pub(crate) fn moves(&self, extent: usize) -> bool {
        let at = extent.checked_sub(self.first);
        at.and_then(|i| self.targets.get(i))
            .is_some_and(|t| t.is_some())
    }

    pub(crate) fn target(&self, extent: usize) -> Location {
        self.targets[extent - self.first].expect("an extent that moves has a target")
    }

    pub(crate) fn targets(&self) -> Vec<(usize, Location)> {
        let all = (self.first..).zip(&self.targets);
        all.filter_map(|(e, t)| Some((e, (*t)?))).collect()
    }

    pub(crate) fn target_devices(&self) -> impl Iterator<Item = DeviceId> {
        self.targets.iter().flatten().map(|t| t.device)
    }

    /// First byte of a chunk, and the first after it.
    fn bytes_of(&self, chunk: usize) -> (u64, u64) {
        let extent = (self.first + chunk / self.per_extent) as u64;
        let piece = (chunk % self.per_extent) as u64;
        let start = extent * self.extent_bytes + piece * self.chunk_bytes;
        let extent_end = self.size.min((extent + 1) * self.extent_bytes);
        (start, extent_end.min(start + self.chunk_bytes))
    }

    fn chunk_at(&self, offset: u64) -> usize {
        let extent = offset / self.extent_bytes;
        let piece = (offset - extent * self.extent_bytes) / self.chunk_bytes;
        (extent as usize - self.first) * self.per_extent + piece as usize
    }

    /// From now on the target has this share of the reads of what is alike on both ends.
    pub(crate) fn share_reads(&mut self, second: f64) {
        self.reads.second = (second.clamp(0.0, 1.0) * 65_536.0) as u32;
    }

    /// Whether this read is one for the target, as far as that has what it is about.
    #[inline]
    pub(crate) fn reads_second(&mut self) -> bool {
        if self.reads.second == 0 || self.phase != Phase::Copying {
            return false;
        }
        self.reads.owed += self.reads.second;
        let second = self.reads.owed >= 65_536;
        if second {
            self.reads.owed -= 65_536;
        }
        second
    }

    /// The target of the extent that these bytes are in, where both ends have the same; the bytes do not cross extents.
    #[inline]
    pub(crate) fn alike(&self, start: u64, end: u64) -> Option<Location> {
        let extent = (start / self.extent_bytes) as usize;
        if !self.moves(extent) {
            return None;
        }
        let chunks = self.chunks_of(start, end);
        let synced = |s: &ChunkState| *s == ChunkState::Synced;
        let alike = self.phase == Phase::Copying
            && !chunks.is_empty()
            && self.states[chunks].iter().all(synced);
        alike.then(|| self.target(extent))
    }

    /// Bytes that are alike on both ends.
    pub(crate) fn alike_bytes(&self) -> u64 {
        if self.phase != Phase::Copying {
            return 0;
        }
        let synced = (0..self.states.len()).filter(|i| self.states[*i] == ChunkState::Synced);
        let bytes = synced.map(|i| {
            let (start, end) = self.bytes_of(i);
            end - start
        });
        bytes.sum()
    }

    /// Whether writes reach the target.
    pub(crate) fn fills_target(&self) -> bool {
        self.phase == Phase::Copying
    }

    pub(crate) fn ready(&self) -> bool {
        self.unsynced == 0 && self.phase == Phase::Copying
    }

    pub(crate) fn drained(&self) -> bool {
        self.phase != Phase::Copying && self.in_flight == 0 && self.copying == 0 && !self.earlier
    }

    pub(crate) fn earlier_complete(&mut self) {
        self.earlier = false;
    }

    pub(crate) fn cancel(&mut self) -> Result<(), RelocationError> {
        match self.phase {
            Phase::Copying => self.phase = Phase::Cancelled,
            Phase::Switched => return Err(RelocationError::TooLate),
            Phase::Cancelled => return Err(RelocationError::NotRelocating),
        }
        Ok(())
    }

    /// Chunks of the batch that a range of bytes touches.
    fn chunks_of(&self, start: u64, end: u64) -> Range<usize> {
        let first = self.first as u64 * self.extent_bytes;
        let start = start.max(first);
        let end = end.min(first + self.targets.len() as u64 * self.extent_bytes);
        if start >= end {
            return 0..0;
        }
        self.chunk_at(start)..self.chunk_at(end - 1) + 1
    }

    /// Lets a request in and adds the parts that go to the target; `None` if it must be held. After the switch, and after
    /// a cancel, there is nothing to add and nothing to track.
    pub(crate) fn admit(
        &mut self,
        request: Request,
        out: &mut Vec<DeviceIo>,
    ) -> Option<Option<Ticket>> {
        if self.phase != Phase::Copying {
            return Some(None);
        }
        if request.op == Op::Read {
            return Some(Some(self.ticket(None, false)));
        }
        let (start, end) = (request.offset, request.offset + request.length);
        let chunks = self.chunks_of(start, end);
        let sealed = |s: &ChunkState| matches!(s, ChunkState::Quiescing | ChunkState::Sealed);
        // A count per chunk: more writes in flight than it can hold have to wait.
        let full = self.writes[chunks.clone()].contains(&u16::MAX);
        if full
            || self.states[chunks.clone()].iter().any(sealed)
            || self.mirrored.iter().any(|m| m.0 < end && start < m.1)
        {
            return None;
        }
        let parts_before = out.len();
        for i in chunks {
            self.writes[i] += 1;
            match self.states[i] {
                ChunkState::Copying => self.states[i] = ChunkState::Overwritten,
                ChunkState::Synced => {
                    let (chunk_start, chunk_end) = self.bytes_of(i);
                    let (from, to) = (start.max(chunk_start), end.min(chunk_end));
                    let extent = from / self.extent_bytes;
                    let target = self.target(extent as usize);
                    let part = DeviceIo {
                        device: target.device,
                        op: request.op,
                        offset: from,
                        length: to - from,
                        at: u64::from(target.slot) * self.extent_bytes
                            + (from - extent * self.extent_bytes),
                        mirror: true,
                    };
                    push_joined(out, parts_before, part);
                }
                _ => {}
            }
        }
        let mirrored = out.len() > parts_before;
        let ticket = self.ticket(Some((start, end)), mirrored);
        if mirrored {
            self.mirrored.push((start, end, ticket.id));
        }
        Some(Some(ticket))
    }

    /// Counts one request in.
    pub(crate) fn ticket(&mut self, write: Option<(u64, u64)>, mirrored: bool) -> Ticket {
        self.next_ticket += 1;
        self.in_flight += 1;
        Ticket {
            generation: self.generation,
            id: self.next_ticket,
            write,
            mirrored,
        }
    }

    /// The bytes of which a request that was held may be let in now, if any: those of a write to both ends, or of one more than a chunk can
    /// count.
    pub(crate) fn complete(&mut self, ticket: Ticket) -> Option<Range<u64>> {
        assert_eq!(
            ticket.generation, self.generation,
            "a relocation ends only when its requests are complete"
        );
        self.in_flight -= 1;
        let (start, end) = ticket.write?;
        let mut full = false;
        for i in self.chunks_of(start, end) {
            full |= self.writes[i] == u16::MAX;
            self.writes[i] -= 1;
        }
        if ticket.mirrored {
            let at = self
                .mirrored
                .iter()
                .position(|m| m.2 == ticket.id)
                .expect("a mirrored write is listed");
            self.mirrored.swap_remove(at);
        }
        (ticket.mirrored || full).then_some(start..end)
    }

    pub(crate) fn next_copy(&mut self) -> CopyStep {
        if self.unsynced == 0 {
            return CopyStep::Done;
        }
        if self.earlier {
            return CopyStep::Wait;
        }
        let n = self.states.len();
        for step in 0..n {
            let i = (self.cursor + step) % n;
            let state = self.states[i];
            if matches!(state, ChunkState::Pending | ChunkState::Quiescing) && self.writes[i] == 0 {
                self.cursor = (i + 1) % n;
                let sealed = state == ChunkState::Quiescing || self.overwrites[i] >= SEAL_AFTER;
                self.states[i] = if sealed {
                    ChunkState::Sealed
                } else {
                    ChunkState::Copying
                };
                let (offset, end) = self.bytes_of(i);
                self.copying += 1;
                let generation = self.generation;
                return CopyStep::Copy(Chunk {
                    generation,
                    index: i as u32,
                    offset,
                    length: end - offset,
                });
            }
        }
        // What is left has writes in flight, perhaps always: let one chunk come to rest.
        if !self.states.contains(&ChunkState::Quiescing)
            && let Some(busy) = self.states.iter().position(|s| *s == ChunkState::Pending)
        {
            self.states[busy] = ChunkState::Quiescing;
        }
        CopyStep::Wait
    }

    /// A chunk of a relocation that was given up.
    pub(crate) fn abandoned(&mut self, chunk: Chunk) {
        self.ours(chunk);
        self.copying -= 1;
    }

    fn ours(&self, chunk: Chunk) {
        assert_eq!(
            chunk.generation, self.generation,
            "a relocation ends only when its copies are reported"
        );
    }

    pub(crate) fn copied(&mut self, chunk: Chunk) -> Bytes {
        self.ours(chunk);
        self.copying -= 1;
        let i = chunk.index as usize;
        match self.states[i] {
            ChunkState::Overwritten => {
                self.states[i] = ChunkState::Pending;
                self.overwrites[i] = self.overwrites[i].saturating_add(1);
            }
            ChunkState::Copying | ChunkState::Sealed => {
                self.states[i] = ChunkState::Synced;
                self.unsynced -= 1;
            }
            _ => {
                panic!("chunk {i} was not being copied")
            }
        }
        Bytes(self.unsynced as u64 * self.chunk_bytes)
    }

    pub(crate) fn switch(&mut self) -> Result<(), RelocationError> {
        match self.phase {
            Phase::Switched => return Err(RelocationError::TooLate),
            Phase::Cancelled => return Err(RelocationError::NotRelocating),
            Phase::Copying if self.unsynced > 0 => return Err(RelocationError::NotReady),
            Phase::Copying => self.phase = Phase::Switched,
        }
        Ok(())
    }
}
