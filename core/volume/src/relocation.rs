//! Relocation of a batch of extents: chunk states, mirrored writes, switch and drain. The crate documentation has diagrams.

use std::ops::Range;

use model::Op;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::map::{Batch, DeviceIo, EarlierRequests, Location, Request, push_joined};

/// Number of overwrites after which a chunk is copied with writes held. Bounds the duration of a move under constant writes.
/// It is low because a held write waits for one chunk only.
pub const SEAL_AFTER: u8 = 2;

/// Part of the volume to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Generation of its relocation.
    generation: u64,
    /// Index of the chunk.
    pub index: u32,
    /// Offset in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Next step of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStep {
    /// Copy this chunk, then call [`crate::VolumeMap::copied`].
    Copy(Chunk),
    /// All remaining chunks are being copied or have writes in flight: call again after the next completion.
    Wait,
    /// All chunks are synced.
    Done,
}

/// Request in flight during a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Generation of its relocation.
    generation: u64,
    /// Number that distinguishes requests in flight.
    id: u64,
    /// Byte range `start..end` of a write.
    write: Option<(u64, u64)>,
    mirrored: bool,
}

/// Reason why a relocation cannot start or continue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RelocationError {
    /// Another relocation is in progress.
    #[error(
        "a relocation of this volume is in progress, or requests of the last relocation are in flight"
    )]
    Busy,
    /// An extent is on its target already.
    #[error("extent {extent} is already at its target")]
    AlreadyThere {
        /// Number of the extent.
        extent: usize,
    },
    /// An extent has no data to copy.
    #[error("extent {extent} is a hole")]
    Hole {
        /// Number of the extent.
        extent: usize,
    },
    /// No relocation is in progress.
    #[error("no relocation of this volume is in progress")]
    NotRelocating,
    /// Source and target differ.
    #[error("the target does not hold the whole batch yet")]
    NotReady,
    /// The batch is switched already.
    #[error("the batch has already been switched to the target")]
    TooLate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// Part of an extent that stays at its place.
    Outside,
    Pending,
    /// To be copied sealed once the writes in flight are complete; new writes are held.
    Quiescing,
    Copying,
    /// Being copied, and overwritten by the guest since: it is copied again.
    Overwritten,
    /// Being copied, with writes held.
    Sealed,
    Synced,
}

/// Location of the authoritative data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// On the source; the target is being filled.
    Copying,
    /// On the target; the source waits for the last request that uses it.
    Switched,
    /// On the source; the target waits for the last mirrored write.
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
    /// Number of chunks per extent.
    per_extent: usize,
    /// States by chunk, extent by extent.
    states: Vec<ChunkState>,
    /// Guest writes in flight, by chunk.
    writes: Vec<u16>,
    overwrites: Vec<u8>,
    /// Chunk at which the search for the next pending one starts.
    cursor: usize,
    unsynced: usize,
    /// Byte ranges and ticket ids of mirrored writes in flight.
    mirrored: Vec<(u64, u64, u64)>,
    next_ticket: u64,
    in_flight: u64,
    /// Number of chunks that are being copied and not reported yet.
    copying: u32,
    /// True while requests from before the relocation, without a ticket, may be in flight.
    earlier: bool,
    phase: Phase,
    reads: ReadShare,
}

/// Distribution of reads over both ends.
#[derive(Debug, Clone, Copy, Default)]
struct ReadShare {
    /// Share of the target, in 1/65,536.
    second: u32,
    /// Accumulated share of the target, in 1/65,536 of a read.
    owed: u32,
}

impl Relocation {
    pub(crate) fn new(
        generation: u64,
        batch: Batch,
        size: u64,
        extent_bytes: u64,
        chunk_bytes: u64,
        earlier: EarlierRequests,
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
            earlier: earlier == EarlierRequests::InFlight,
            phase: Phase::Copying,
            reads: ReadShare::default(),
        }
    }

    /// Returns true if an extent moves.
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

    /// Returns start and end of a chunk, as offsets.
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

    /// Sets the target's share of the reads of equal ranges.
    pub(crate) fn share_reads(&mut self, second: f64) {
        self.reads.second = (second.clamp(0.0, 1.0) * 65_536.0) as u32;
    }

    /// Returns true if the next read should use the target where it is equal.
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

    /// Returns the target of the extent with these bytes, if both ends are equal there. The bytes must not cross extents.
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

    /// Returns the number of bytes that are equal on both ends.
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

    /// Returns true while writes reach the target.
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

    /// Returns the chunks of the batch that a byte range touches.
    fn chunks_of(&self, start: u64, end: u64) -> Range<usize> {
        let first = self.first as u64 * self.extent_bytes;
        let start = start.max(first);
        let end = end.min(first + self.targets.len() as u64 * self.extent_bytes);
        if start >= end {
            return 0..0;
        }
        self.chunk_at(start)..self.chunk_at(end - 1) + 1
    }

    /// Admits a request and adds its parts on the target; `None` if it must be held. After a switch or a cancel there is
    /// nothing to add or to track.
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
        // A write waits if a chunk has the largest number of writes in flight that its counter can hold.
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

    /// Counts a request and returns its ticket.
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

    /// Returns the bytes for which held requests may be admitted now: those of a mirrored write, or of one that freed a full
    /// counter.
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
        // All remaining chunks have writes in flight, perhaps always: hold new writes to one of them.
        if !self.states.contains(&ChunkState::Quiescing)
            && let Some(busy) = self.states.iter().position(|s| *s == ChunkState::Pending)
        {
            self.states[busy] = ChunkState::Quiescing;
        }
        CopyStep::Wait
    }

    /// Reports a chunk of a cancelled relocation.
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
