//! Moves and mirrors of a volume: batches, copy steps, switch and release.

use units::{Bytes, DeviceId};

use super::{BATCH_SPAN, Batch, EarlierRequests, HOLE, Location, VolumeMap};
use crate::relocation::{Chunk, CopyStep, Relocation, RelocationError};
use crate::selection::Selection;

impl VolumeMap {
    /// Returns the next batch at or after `cursor`: a range whose first extent is selected and not on `to`. It has as many
    /// extents as `batch` bytes allow, at least one. Extents in the range that are not selected stay; they get no target.
    ///
    /// For a selection, only extents that move count towards `batch`, so scattered extents share a switch. The range has at
    /// most [`BATCH_SPAN`] times as many extents as a batch.
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

    /// Returns the bytes of selected extents that are neither holes nor on `to`. The time is constant for a whole volume,
    /// and proportional to the number of extents for a selection.
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

    /// Starts the relocation of a batch in chunks of at most `chunk` bytes. A volume has at most one relocation.
    ///
    /// Requests have no ticket while a volume has no relocation. Hence the driver reports with `earlier` if any are in
    /// flight. Copying starts only after it calls [`VolumeMap::earlier_complete`], because a copy must not miss a write.
    pub fn begin_relocation(
        &mut self,
        batch: Batch,
        chunk: Bytes,
        earlier: EarlierRequests,
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

    /// Reports that all requests from before [`VolumeMap::begin_relocation`] are complete.
    pub fn earlier_complete(&mut self) {
        if let Some(relocation) = &mut self.relocation {
            relocation.earlier_complete();
        }
    }

    /// Returns the next step of the copy.
    pub fn next_copy(&mut self) -> Result<CopyStep, RelocationError> {
        self.relocation
            .as_mut()
            .map(|r| r.next_copy())
            .ok_or(RelocationError::NotRelocating)
    }

    /// Returns source and target of a chunk, each as a device and an offset on it.
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

    /// Reports that a chunk was copied to the target. Returns the bytes of the batch that remain to be copied.
    pub fn copied(&mut self, chunk: Chunk) -> Result<Bytes, RelocationError> {
        self.relocation
            .as_mut()
            .map(|r| r.copied(chunk))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Reports that a chunk of a cancelled relocation is not copied any more. Each chunk must be reported once, here or to
    /// [`VolumeMap::copied`]: until then its target is not free.
    pub fn copy_abandoned(&mut self, chunk: Chunk) -> Result<(), RelocationError> {
        let relocation = self.relocation.as_mut();
        relocation
            .map(|r| r.abandoned(chunk))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Returns true if source and target are equal, so that [`VolumeMap::switch`] is permitted.
    pub fn ready_to_switch(&self) -> bool {
        self.relocation.as_ref().is_some_and(|r| r.ready())
    }

    /// Returns the extents of the batch and their places after the switch.
    pub fn batch_targets(&self) -> Vec<(usize, Location)> {
        self.relocation.as_ref().map_or(vec![], |r| r.targets())
    }

    /// Switches all extents of the batch to their targets at once. The driver must have made the switch durable. Returns the
    /// former places, which are free once [`VolumeMap::released`] returns true.
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

    /// Returns true once no request uses the old places after a switch or a cancel. Then they can be freed (the sources
    /// after a switch, the targets after a cancel). It returns true only once, and the relocation is over.
    pub fn released(&mut self) -> bool {
        let over = self.relocation.as_ref().is_some_and(|r| r.drained());
        if over {
            self.relocation = None;
            self.wanted = false;
        }
        over
    }

    /// Cancels a relocation before its switch. The source is complete and serves all requests from now on. The targets can
    /// be freed once [`VolumeMap::released`] returns true, because mirrored writes may be in flight.
    pub fn cancel_relocation(&mut self) -> Result<(), RelocationError> {
        self.relocation
            .as_mut()
            .ok_or(RelocationError::NotRelocating)?
            .cancel()
    }

    /// Sets the share of reads, 0..=1, that go to the target of the current relocation where both ends are equal. The rest
    /// goes to the source, as all reads before. The extents are *mirrored* until the relocation is switched or cancelled.
    pub fn share_reads(&mut self, second: f64) -> Result<(), RelocationError> {
        let relocation = self.relocation.as_mut();
        relocation
            .map(|r| r.share_reads(second))
            .ok_or(RelocationError::NotRelocating)
    }

    /// Returns true if all of these bytes are equal on both ends of the current relocation.
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

    /// Returns true if an extent is part of the current relocation.
    pub fn is_relocated(&self, extent: usize) -> bool {
        self.relocation.as_ref().is_some_and(|r| r.moves(extent))
    }

    /// Returns the bytes that are equal on both ends of the current relocation.
    pub fn mirrored_bytes(&self) -> Bytes {
        Bytes(self.relocation.as_ref().map_or(0, |r| r.alike_bytes()))
    }

    /// Returns true during a relocation, including the time of draining.
    pub fn relocating(&self) -> bool {
        self.relocation.is_some()
    }
}
