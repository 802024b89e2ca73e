//! The extent map of one volume and the routing of requests.

mod moving;

use model::Op;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::relocation::{Relocation, Ticket};
use crate::selection::Selection;
use crate::shared::ExtentSet;

/// Request of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Kind. A write of zeroes that may deallocate is routed as [`Op::Trim`].
    pub op: Op,
    /// First byte, from the start of the volume. Ignored for a flush.
    pub offset: u64,
    /// Number of bytes. Ignored for a flush.
    pub length: u64,
}

/// Possible requests without a ticket at the start of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlierRequests {
    /// None are in flight.
    None,
    /// Some may be in flight.
    InFlight,
}

/// Place of an extent: a slot of the extent size on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Device that holds the extent.
    pub device: DeviceId,
    /// Number of the slot; it starts at `slot * extent size`.
    pub slot: u32,
}

/// Place of an extent that was never written, or was trimmed: it reads as zeroes.
const HOLE: Location = Location {
    device: DeviceId(u16::MAX),
    slot: u32::MAX,
};

/// Part of a request, on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIo {
    /// Target device.
    pub device: DeviceId,
    /// Kind.
    pub op: Op,
    /// First byte, from the start of the volume.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// First byte on the device.
    pub at: u64,
    /// True for the second of two places: a write that keeps the target of a relocation equal, or a read of equal data from
    /// it ([`VolumeMap::share_reads`]). If it fails, the driver must cancel the relocation. The guest's request does not
    /// fail: a write succeeds at its first place, and a read is submitted again.
    pub mirror: bool,
}

/// Result of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submission {
    /// Carry out all parts in `out`; the request is complete when all parts are. Then pass the ticket, if any, to
    /// [`VolumeMap::complete`]. Bytes of a read without a part are zeroes.
    Issued(Option<Ticket>),
    /// The request must wait. Submit it again after a completion that covers its bytes ([`VolumeMap::complete`]), after the
    /// copy of a chunk that it touches, and after a switch or a cancel.
    Held,
    /// A write needs places for at least one extent: assign them ([`VolumeMap::place`]) and submit the write again.
    NeedsPlace {
        /// First extent without a place.
        extent: usize,
        /// First extent after the write.
        end: usize,
    },
    /// A write touches at least one shared extent: copy it to an exclusive slot ([`VolumeMap::begin_copy_up`]) and submit
    /// the write again.
    NeedsCopy {
        /// First shared extent.
        extent: usize,
        /// First extent after the write.
        end: usize,
    },
}

/// Request beyond the end of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("request of {length} bytes at offset {offset} is outside the volume of {size} bytes")]
pub struct RangeError {
    /// Offset of the request.
    pub offset: u64,
    /// Length of the request, bytes.
    pub length: u64,
    /// Size of the volume.
    pub size: u64,
}

/// Size of the extents that a move relocates together; a batch has at least one extent. Each batch costs one durable switch
/// and two waits for requests in flight (before its copy, and before its sources are free). A larger batch is mirrored
/// longer, occupies both ends longer, and loses more copied data if it is cancelled.
pub const BATCH_BYTES: Bytes = Bytes::mib(64);

/// Largest distance of the extents of a batch from a selection, as a multiple of the batch. It bounds the memory and the
/// search of a relocation, which has a state for each chunk in this range.
pub const BATCH_SPAN: usize = 4;

/// Extents to relocate together, with one switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// First extent.
    pub first: usize,
    /// Targets of this and the following extents; `None` for an extent that stays at its place.
    pub targets: Vec<Option<Location>>,
}

/// Extent map of a volume and its relocation.
#[derive(Debug, Clone)]
pub struct VolumeMap {
    size: u64,
    extent_bytes: u64,
    extents: Vec<Location>,
    /// Devices that hold extents, with the number of extents; a few at most.
    holders: Vec<(DeviceId, u32)>,
    relocation: Option<Box<Relocation>>,
    /// Number of relocations so far.
    generation: u64,
    /// Extents in slots that a snapshot or another volume reads too.
    shared: ExtentSet,
    /// Shared extents that are being copied to exclusive slots.
    copied_up: ExtentSet,
    /// Source of an import, and the number of extents that are not imported yet. It is read-only, so each of these extents
    /// is shared with it.
    source: Option<(DeviceId, u32)>,
    /// True if a write waits for the current relocation, because its extent is shared until the switch.
    wanted: bool,
}

impl VolumeMap {
    /// Creates a volume of `size` bytes on one device, with each extent in the slot of its own number. Both sizes must be
    /// positive.
    pub fn new(size: Bytes, extent: Bytes, device: DeviceId) -> Self {
        let count = size.0.div_ceil(extent.0.max(1)) as u32;
        let places = (0..count).map(|slot| Some(Location { device, slot }));
        Self::at(size, extent, places.collect())
    }

    /// Creates a volume of `size` bytes with its extents at `places`, one place per extent.
    pub fn at(size: Bytes, extent: Bytes, places: Vec<Option<Location>>) -> Self {
        Self::from_source(size, extent, places, None)
    }

    /// Creates a volume like [`VolumeMap::at`], with an import from `source`. The source is never written nor flushed, and
    /// moves do not include its extents: these get places by copy-up.
    pub fn from_source(
        size: Bytes,
        extent: Bytes,
        places: Vec<Option<Location>>,
        source: Option<DeviceId>,
    ) -> Self {
        assert!(
            size.0 > 0 && extent.0 > 0,
            "a volume has a size and an extent size"
        );
        assert_eq!(size.0.div_ceil(extent.0), places.len() as u64);
        let extents = places.into_iter().map(|p| p.unwrap_or(HOLE)).collect();
        let mut map = Self {
            size: size.0,
            extent_bytes: extent.0,
            extents,
            holders: vec![],
            relocation: None,
            generation: 0,
            shared: ExtentSet::default(),
            copied_up: ExtentSet::default(),
            source: source.map(|s| (s, 0)),
            wanted: false,
        };
        for i in 0..map.extents.len() {
            map.count(map.extents[i].device, 1);
            if map.is_at_source(i) {
                map.shared.insert(i);
            }
        }
        map
    }

    fn count(&mut self, device: DeviceId, change: i32) {
        if device == HOLE.device {
            return;
        }
        if let Some((source, left)) = &mut self.source
            && *source == device
        {
            let now = left.checked_add_signed(change);
            *left = now.expect("no more leave than were there");
            return;
        }
        let at = match self.holders.iter().position(|h| h.0 == device) {
            Some(at) => at,
            None => {
                self.holders.push((device, 0));
                self.holders.sort();
                self.holders
                    .iter()
                    .position(|h| h.0 == device)
                    .expect("just added")
            }
        };
        let count = &mut self.holders[at].1;
        *count = count
            .checked_add_signed(change)
            .expect("no more leave than came");
        if *count == 0 {
            self.holders.remove(at);
        }
    }

    /// Enlarges the volume. The new extents have no places and read as zeroes. Requests in flight are not affected.
    ///
    /// # Panics
    /// If `size` is smaller than the present one, or during a relocation.
    pub fn grow(&mut self, size: Bytes) {
        assert!(size.0 >= self.size, "a volume only grows");
        assert!(self.relocation.is_none(), "a move is of one size");
        let extents = size.0.div_ceil(self.extent_bytes) as usize;
        self.extents.resize(extents, HOLE);
        self.size = size.0;
    }

    /// Returns the size of the volume.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Returns the size of an extent.
    pub fn extent_bytes(&self) -> Bytes {
        Bytes(self.extent_bytes)
    }

    /// Returns the number of extents.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Returns the size of an extent in bytes; the last one of a volume may be shorter.
    pub fn bytes_of(&self, extent: usize) -> Bytes {
        assert!(extent < self.extents.len());
        let begin = extent as u64 * self.extent_bytes;
        Bytes(self.extent_bytes.min(self.size - begin))
    }

    /// Returns the bytes from `at` to the end of its extent or of the volume; 0 at the start of an extent.
    pub fn rest_of_extent(&self, at: Bytes) -> Bytes {
        let end = at.0.next_multiple_of(self.extent_bytes).min(self.size);
        Bytes(end.saturating_sub(at.0))
    }

    /// Returns the place of an extent (its source during a relocation); `None` for a hole.
    pub fn location(&self, extent: usize) -> Option<Location> {
        let location = self.extents[extent];
        (location != HOLE).then_some(location)
    }

    /// Returns the device with the most extents of the volume, the first one among equals; `None` if the volume has only
    /// holes.
    pub fn main_device(&self) -> Option<DeviceId> {
        let most = self.holders.iter().rev().max_by_key(|h| h.1);
        most.map(|h| h.0)
    }

    /// Returns the devices that hold extents of this volume, in order, with the number of extents.
    pub fn holders(&self) -> &[(DeviceId, u32)] {
        &self.holders
    }

    /// Returns the only device of the volume, if it has no relocation, no holes and no shared extents. This is the path of
    /// nearly all simulated requests.
    #[inline]
    pub fn sole_device(&self) -> Option<DeviceId> {
        match (&self.relocation, &self.holders[..]) {
            (None, [(device, n)])
                if *n as usize == self.extents.len() && self.shared.is_empty() =>
            {
                Some(*device)
            }
            _ => None,
        }
    }

    /// Returns the only device of a request, if the volume has no relocation and no shared extents, and the request touches
    /// no holes. This is the path of nearly all simulated requests on a volume with several devices. `None` if
    /// [`VolumeMap::submit`] must decide; always `None` for an empty request.
    #[inline]
    pub fn lone_device(&self, offset: u64, length: u64) -> Option<DeviceId> {
        if self.relocation.is_some() || !self.shared.is_empty() || !self.contains(offset, length) {
            return None;
        }
        let range = self.extents_of(offset, length);
        let device = self.extents[range.clone()].first()?.device;
        let all = device != HOLE.device && self.extents[range].iter().all(|e| e.device == device);
        all.then_some(device)
    }

    /// Returns true if a range is inside the volume.
    #[inline]
    pub fn contains(&self, offset: u64, length: u64) -> bool {
        length <= self.size && offset <= self.size - length
    }

    /// Assigns a place to a hole. The driver must have made it durable, and the slot must read as zeroes.
    pub fn place(&mut self, extent: usize, location: Location) {
        assert_eq!(self.extents[extent], HOLE, "an extent has one place");
        self.extents[extent] = location;
        self.count(location.device, 1);
    }

    /// Turns an extent into a hole. Returns its former place, which is free after the completion of all earlier requests.
    /// `None` if the extent is a hole already or is being moved or copied up.
    pub fn vacate(&mut self, extent: usize) -> Option<Location> {
        let moved = self.is_relocated(extent) || self.is_copied_up(extent);
        if self.extents[extent] == HOLE || moved {
            return None;
        }
        self.shared.remove(extent);
        let location = std::mem::replace(&mut self.extents[extent], HOLE);
        self.count(location.device, -1);
        Some(location)
    }

    /// Routes a request: clears `out` and writes the parts to it.
    #[inline]
    pub fn submit(
        &mut self,
        request: Request,
        out: &mut Vec<DeviceIo>,
    ) -> Result<Submission, RangeError> {
        out.clear();
        let Request { op, offset, length } = request;
        if op == Op::Flush {
            return Ok(Submission::Issued(self.flush(out)));
        }
        if !self.contains(offset, length) {
            return Err(RangeError {
                offset,
                length,
                size: self.size,
            });
        }
        if op == Op::Write
            && let Some((extent, end)) = self.first_hole(offset, length)
        {
            return Ok(Submission::NeedsPlace { extent, end });
        }
        if op != Op::Read && self.touches_shared(offset, length) {
            return Ok(self.submit_shared(request));
        }
        let ticket = match &mut self.relocation {
            Some(relocation) => match relocation.admit(request, out) {
                None => {
                    out.clear();
                    return Ok(Submission::Held);
                }
                Some(ticket) => ticket,
            },
            None => None,
        };
        let relocation = self.relocation.as_mut().filter(|_| op == Op::Read);
        let second = relocation.is_some_and(|r| r.reads_second());
        self.split(request, second, out);
        Ok(Submission::Issued(ticket))
    }

    /// Routes a write or trim that touches shared extents.
    #[cold]
    fn submit_shared(&mut self, Request { op, offset, length }: Request) -> Submission {
        if op != Op::Write {
            // A trim may be ignored, and the other readers need the data.
            return Submission::Issued(None);
        }
        let range = self.extents_of(offset, length);
        let end = range.end;
        let mut shared = range.filter(|e| self.shared.contains(*e));
        if shared.clone().any(|e| self.is_relocated(e)) {
            self.wanted = true;
            return Submission::Held; // it has an exclusive slot after the switch
        }
        let extent = shared.next().expect("it was looked for");
        Submission::NeedsCopy { extent, end }
    }

    /// Returns the source of an import, if there was one.
    pub fn source(&self) -> Option<DeviceId> {
        self.source.map(|s| s.0)
    }

    /// Returns the number of extents that are not imported yet.
    pub fn left_at_source(&self) -> usize {
        self.source.map_or(0, |s| s.1 as usize)
    }

    /// Returns true if an extent is not imported yet.
    #[inline]
    pub fn is_at_source(&self, extent: usize) -> bool {
        self.source
            .is_some_and(|(source, _)| self.extents[extent].device == source)
    }

    /// Removes the source after the import. No request in flight may refer to it.
    ///
    /// # Panics
    /// If extents are still at the source.
    pub fn forget_source(&mut self) {
        assert_eq!(self.left_at_source(), 0, "what is there is not forgotten");
        self.source = None;
    }

    /// Returns true if a range touches a shared extent.
    #[inline]
    pub fn touches_shared(&self, offset: u64, length: u64) -> bool {
        !self.shared.is_empty()
            && self
                .extents_of(offset, length)
                .any(|e| self.shared.contains(e))
    }

    /// Marks an extent as shared: it is copied before it is written. Writes that were submitted earlier must be complete.
    ///
    /// # Panics
    /// If the extent is a hole or is being moved.
    pub fn share(&mut self, extent: usize) {
        assert!(self.extents[extent] != HOLE, "a hole is nobody's");
        assert!(!self.is_relocated(extent), "what is shared is at rest");
        self.shared.insert(extent);
    }

    /// Marks all extents with a place as shared ([`VolumeMap::share`]).
    pub fn share_all(&mut self) {
        for extent in 0..self.extents.len() {
            if self.extents[extent] != HOLE {
                self.share(extent);
            }
        }
    }

    /// Returns true if an extent is marked as shared; its slot may have become exclusive since.
    pub fn is_shared(&self, extent: usize) -> bool {
        self.shared.contains(extent)
    }

    /// Starts the copy-up of a shared extent. Until its end the extent is not written, moved or vacated. Returns false if no
    /// copy-up is needed or possible: the extent is not shared (any more), is being moved, or is already being copied up.
    pub fn begin_copy_up(&mut self, extent: usize) -> bool {
        let begins =
            self.is_shared(extent) && !self.is_relocated(extent) && !self.is_copied_up(extent);
        if begins {
            self.copied_up.insert(extent);
        }
        begins
    }

    /// Returns true if an extent is being copied up.
    pub fn is_copied_up(&self, extent: usize) -> bool {
        self.copied_up.contains(extent)
    }

    /// Returns true if a selected extent is being copied up, so that a move must wait.
    pub fn copies_up(&self, selected: Selection<'_>) -> bool {
        let moves = |e: usize| selected.contains(e) && !self.is_at_source(e);
        self.copied_up.iter().any(moves)
    }

    /// Ends a copy-up: the extent is at `to` and exclusive. Its data and the map of the array must be durable. `None` makes
    /// a hole of an extent that contains only zeroes. Returns the former place, which earlier reads in flight may still use.
    pub fn copied_up(&mut self, extent: usize, to: Option<Location>) -> Location {
        self.copy_up_over(extent);
        self.shared.remove(extent);
        let to = to.unwrap_or(HOLE);
        let before = std::mem::replace(&mut self.extents[extent], to);
        self.count(before.device, -1);
        self.count(to.device, 1);
        before
    }

    /// Ends a copy-up without a new place: the copy failed, or (`alone`) the slot has become exclusive.
    pub fn not_copied_up(&mut self, extent: usize, alone: bool) {
        self.copy_up_over(extent);
        if alone {
            self.shared.remove(extent);
        }
    }

    fn copy_up_over(&mut self, extent: usize) {
        assert!(self.is_copied_up(extent), "it is being copied up");
        self.copied_up.remove(extent);
    }

    /// Returns true if a write waits for the current relocation, which should then be fast.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Routes a flush to all devices that hold data of the volume, and to both ends of a relocation.
    fn flush(&mut self, out: &mut Vec<DeviceIo>) -> Option<Ticket> {
        let flush = |device, mirror| DeviceIo {
            device,
            op: Op::Flush,
            offset: 0,
            length: 0,
            at: 0,
            mirror,
        };
        out.extend(self.holders.iter().map(|h| flush(h.0, false)));
        let relocation = self.relocation.as_mut().filter(|r| r.fills_target())?;
        for device in relocation.target_devices() {
            if out.iter().all(|io| io.device != device) {
                out.push(flush(device, true));
            }
        }
        Some(relocation.ticket(None, false))
    }

    fn extents_of(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        if length == 0 {
            return 0..0;
        }
        (offset / self.extent_bytes) as usize
            ..((offset + length - 1) / self.extent_bytes) as usize + 1
    }

    #[inline]
    fn first_hole(&self, offset: u64, length: u64) -> Option<(usize, usize)> {
        let range = self.extents_of(offset, length);
        let end = range.end;
        let mut holes = range.filter(|e| self.extents[*e] == HOLE);
        holes.next().map(|extent| (extent, end))
    }

    /// Reports that all parts of a request with a ticket are complete. Held requests that touch the returned bytes may be
    /// submitted again; `None` if no held request is affected.
    pub fn complete(&mut self, ticket: Ticket) -> Option<std::ops::Range<u64>> {
        self.relocation.as_mut()?.complete(ticket)
    }

    /// Adds the parts of a request on the devices of its extents and joins adjacent ones. With `second`, a read uses the
    /// mirror where it is equal.
    #[inline]
    fn split(&self, request: Request, second: bool, out: &mut Vec<DeviceIo>) {
        let Request {
            op,
            mut offset,
            length,
        } = request;
        let end = offset + length;
        let first_part = out.len();
        while offset < end {
            let extent = offset / self.extent_bytes;
            let begin = extent * self.extent_bytes;
            let part_end = end.min(begin + self.extent_bytes);
            let copy = match &self.relocation {
                Some(relocation) if second => relocation.alike(offset, part_end),
                _ => None,
            };
            let Location { device, slot } = copy.unwrap_or(self.extents[extent as usize]);
            if device != HOLE.device {
                let part = DeviceIo {
                    device,
                    op,
                    offset,
                    length: part_end - offset,
                    at: u64::from(slot) * self.extent_bytes + (offset - begin),
                    mirror: copy.is_some(),
                };
                push_joined(out, first_part, part);
            }
            offset = part_end;
        }
    }
}

/// Adds a part, or extends the last part from index `first` on if the new one is adjacent to it.
#[inline]
pub(crate) fn push_joined(parts: &mut Vec<DeviceIo>, first: usize, part: DeviceIo) {
    match parts[first..].last_mut() {
        Some(last)
            if last.device == part.device
                && last.mirror == part.mirror
                && last.offset + last.length == part.offset
                && last.at + last.length == part.at =>
        {
            last.length += part.length;
        }
        _ => parts.push(part),
    }
}

#[cfg(test)]
mod tests;
