//! What of a volume moves, or is mirrored: batches, the copy's steps, the switch and its release.

use units::{Bytes, DeviceId};

use super::{BATCH_SPAN, Batch, Earlier, HOLE, Location, VolumeMap};
use crate::relocation::{Chunk, CopyStep, Relocation, RelocationError};
use crate::selection::Selection;

impl VolumeMap {
    /// The next extents, at `cursor` or after it, of which the first is selected and not on `to` yet: as many as `batch`
    /// bytes hold, one at least. Those among them that are not selected have to stay: no target for them.
    ///
    /// Of a selection, only extents that are to move count for `batch`, so that ones that lie apart share a switch; the range
    /// has at most [`BATCH_SPAN`] times as many extents as a batch.
    pub fn next_batch(
        &self,
        selected: Selection<'_>,
        cursor: usize,
        to: DeviceId,
        batch: Bytes,
    ) -> Option<std::ops::Range<usize>> {
        let elsewhere = |e: &usize| {
            let at = self.extents[*e];
            at != HOLE && at.device != to && !self.is_copied_up(*e) && !self.is_at_source(*e)
        };
        let most = (batch.0 / self.extent_bytes).max(1) as usize;
        match selected {
            Selection::Whole => {
                let first = (cursor..self.extents.len()).find(elsewhere)?;
                Some(first..self.extents.len().min(first + most))
            }
            Selection::Extents(ranges) => {
                let rest = ranges.from(u32::try_from(cursor).ok()?);
                let mut to_move = rest.map(|e| e as usize).filter(elsewhere);
                let first = to_move.next()?;
                let near = |e: &usize| *e < first + most * BATCH_SPAN;
                let last = to_move.take(most - 1).take_while(near).last();
                Some(first..last.unwrap_or(first) + 1)
            }
        }
    }

    /// Bytes of the selected extents that are neither holes nor on `to`. Of a whole volume that is known at once, of ranges
    /// it is added up.
    pub fn bytes_not_on(&self, selected: Selection<'_>, to: DeviceId) -> Bytes {
        if let Selection::Extents(ranges) = selected {
            let elsewhere = ranges.iter().map(|e| e as usize).filter(|e| {
                let at = self.extents[*e];
                at != HOLE && at.device != to && !self.is_at_source(*e)
            });
            return elsewhere.map(|e| self.bytes_of(e)).sum();
        }
        let elsewhere = self.holders.iter().filter(|h| h.0 != to);
        let extents: u64 = elsewhere.map(|h| u64::from(h.1)).sum();
        let cut = self.extents.len() as u64 * self.extent_bytes - self.size;
        let last = *self.extents.last().expect("a volume has an extent");
        let at_source = self.source() == Some(last.device);
        let last_counts = last != HOLE && last.device != to && !at_source;
        Bytes(extents * self.extent_bytes - if last_counts { cut } else { 0 })
    }

    /// Starts to move a batch of extents in chunks of at most `chunk` bytes. One relocation at a time.
    ///
    /// Requests on a quiet volume have no ticket, so the driver says whether any of them is still in flight (`earlier`);
    /// nothing is copied until it calls [`VolumeMap::earlier_complete`], since a copy must not miss a write.
    pub fn begin_relocation(
        &mut self,
        batch: Batch,
        chunk: Bytes,
        earlier: Earlier,
    ) -> Result<(), RelocationError> {
        if self.relocation.is_some() {
            return Err(RelocationError::Busy);
        }
        assert!(chunk.0 > 0, "a chunk has bytes");
        assert!(batch.first + batch.targets.len() <= self.extents.len());
        let ends = (batch.first..).zip(&batch.targets);
        for (extent, target) in ends.filter_map(|(e, t)| Some((e, (*t)?))) {
            let source = self.extents[extent];
            if source == HOLE {
                return Err(RelocationError::Hole { extent });
            }
            assert!(
                !self.is_copied_up(extent),
                "one copy of an extent at a time"
            );
            if source == target {
                return Err(RelocationError::AlreadyThere { extent });
            }
        }
        self.generation += 1;
        self.relocation = Some(Box::new(Relocation::new(
            self.generation,
            batch,
            self.size,
            self.extent_bytes,
            chunk.0,
            earlier,
        )));
        Ok(())
    }

    /// Says that every request that was routed before [`VolumeMap::begin_relocation`] is complete.
    pub fn earlier_complete(&mut self) {
        if let Some(relocation) = &mut self.relocation {
            relocation.earlier_complete();
        }
    }

    /// The next step of the copy.
    pub fn next_copy(&mut self) -> Result<CopyStep, RelocationError> {
        self.relocation
            .as_mut()
            .map(|r| r.next_copy())
            .ok_or(RelocationError::NotRelocating)
    }

    /// Where a chunk must be read from and written to: device and byte on it.
    pub fn copy_ends(&self, chunk: Chunk) -> ((DeviceId, u64), (DeviceId, u64)) {
        let extent = chunk.offset / self.extent_bytes;
        let within = chunk.offset - extent * self.extent_bytes;
        let relocation = self
            .relocation
            .as_ref()
            .expect("a chunk has its relocation");
        let target = relocation.target(extent as usize);
        let [source, target] = [self.extents[extent as usize], target]
            .map(|l| (l.device, u64::from(l.slot) * self.extent_bytes + within));
        (source, target)
    }

    /// Says that a chunk was read from its source and written to the target; the bytes of the batch still to copy.
    pub fn copied(&mut self, chunk: Chunk) -> Result<Bytes, RelocationError> {
        self.relocation
            .as_mut()
            .map(|r| r.copied(chunk))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Says that a chunk of a relocation that was given up will not be copied any more. Every chunk that was handed out is
    /// reported once, by this or by [`VolumeMap::copied`]: until then its target is not free.
    pub fn copy_abandoned(&mut self, chunk: Chunk) -> Result<(), RelocationError> {
        let relocation = self.relocation.as_mut();
        relocation
            .map(|r| r.abandoned(chunk))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Whether [`VolumeMap::switch`] may be called: source and target hold the same bytes.
    pub fn ready_to_switch(&self) -> bool {
        self.relocation.as_ref().is_some_and(|r| r.ready())
    }

    /// What the switch of the batch will make true: extents and their new places.
    pub fn batch_targets(&self) -> Vec<(usize, Location)> {
        self.relocation.as_ref().map_or(vec![], |r| r.targets())
    }

    /// The targets become the truth, at once and for all extents of the batch. The driver must have made that durable.
    /// Returns what was their place; it is free once [`VolumeMap::released`] says so.
    pub fn switch(&mut self) -> Result<Vec<Location>, RelocationError> {
        let relocation = self
            .relocation
            .as_mut()
            .ok_or(RelocationError::NotRelocating)?;
        relocation.switch()?;
        let targets = relocation.targets();
        let mut sources = Vec::with_capacity(targets.len());
        for (extent, target) in targets {
            let source = std::mem::replace(&mut self.extents[extent], target);
            self.shared.remove(extent);
            self.count(source.device, -1);
            self.count(target.device, 1);
            sources.push(source);
        }
        Ok(sources)
    }

    /// After the switch, or a cancel: whether every request that knows the places that are given up is complete, so that
    /// they can be freed (the sources after a switch, the targets after a cancel). True only once, and then the
    /// relocation is over.
    pub fn released(&mut self) -> bool {
        let over = self.relocation.as_ref().is_some_and(|r| r.drained());
        if over {
            self.relocation = None;
            self.wanted = false;
        }
        over
    }

    /// Gives a relocation up before its switch. The source is whole and takes all requests from now on; what is on the
    /// target is void, and can be freed once [`VolumeMap::released`] says so: mirrored writes may still be on their way.
    pub fn cancel_relocation(&mut self) -> Result<(), RelocationError> {
        self.relocation
            .as_mut()
            .ok_or(RelocationError::NotRelocating)?
            .cancel()
    }

    /// Of the reads of what is alike on both ends of the relocation under way this share, 0..=1, goes to its target from now on; the
    /// rest, as all reads before, to the source. So its extents are *mirrored*, for as long as it is neither switched nor given up.
    pub fn share_reads(&mut self, second: f64) -> Result<(), RelocationError> {
        let relocation = self.relocation.as_mut();
        relocation
            .map(|r| r.share_reads(second))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Whether all of these bytes are the same on both ends of the relocation under way.
    pub fn is_mirrored(&self, offset: u64, length: u64) -> bool {
        let Some(relocation) = &self.relocation else {
            return false;
        };
        let end = offset + length;
        self.extents_of(offset, length).all(|e| {
            let first = e as u64 * self.extent_bytes;
            let part = offset.max(first)..end.min(first + self.extent_bytes);
            relocation.alike(part.start, part.end).is_some()
        })
    }

    /// Whether an extent is one of the relocation under way.
    pub fn is_relocated(&self, extent: usize) -> bool {
        self.relocation.as_ref().is_some_and(|r| r.moves(extent))
    }

    /// Bytes that are.
    pub fn mirrored_bytes(&self) -> Bytes {
        Bytes(self.relocation.as_ref().map_or(0, |r| r.alike_bytes()))
    }

    /// Whether a relocation is under way, one that is draining included.
    pub fn relocating(&self) -> bool {
        self.relocation.is_some()
    }
}
