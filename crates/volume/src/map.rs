//! The extent map of one volume and the routing of requests.

mod moving;

use model::Op;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::relocation::{Relocation, Ticket};
use crate::selection::Selection;
use crate::shared::ExtentSet;

/// What a guest asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Kind. A write of zeroes that may deallocate is routed as [`Op::Trim`].
    pub op: Op,
    /// First byte, from the start of the volume. Ignored for a flush.
    pub offset: u64,
    /// Number of bytes. Ignored for a flush.
    pub length: u64,
}

/// Whether requests without a ticket are in flight when a relocation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// There are none.
    None,
    /// There may be.
    InFlight,
}

/// Where an extent is: a slot of its own size on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The device.
    pub device: DeviceId,
    /// Number of the slot; it begins at `slot * extent size`.
    pub slot: u32,
}

/// An extent that has never been written, or was trimmed: it reads as zeroes.
const HOLE: Location = Location {
    device: DeviceId(u16::MAX),
    slot: u32::MAX,
};

/// A part of a request, on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIo {
    /// Where it goes.
    pub device: DeviceId,
    /// Kind.
    pub op: Op,
    /// First byte, from the start of the volume.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// First byte on the device.
    pub at: u64,
    /// It is for the second of two places: it keeps the target of a relocation alike, or reads from it what is alike there
    /// ([`VolumeMap::share_reads`]). When it fails, the relocation is to be given up; the guest's request is not harmed: a write is done at its first
    /// place, a read is to be submitted again.
    pub mirror: bool,
}

/// What became of a submitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submission {
    /// Do every part that was written to `out`; the request is done when all are. If there is a ticket, hand it to
    /// [`VolumeMap::complete`] then. Bytes of a read that no part covers are zeroes.
    Issued(Option<Ticket>),
    /// Nothing may be done yet. Submit it again after a completion that says so ([`VolumeMap::complete`]), after a copy of a chunk that it
    /// touches, and after a switch or a cancel.
    Held,
    /// A write to extents of which this one, at least, has no place yet: give it one ([`VolumeMap::place`]) and submit
    /// the write again.
    NeedsPlace {
        /// The first such extent.
        extent: usize,
        /// The first extent after the write.
        end: usize,
    },
    /// A write to extents of which this one, at least, is in a slot that others read too: give it one of its own
    /// ([`VolumeMap::begin_copy_up`]) and submit the write again.
    NeedsCopy {
        /// The first such extent.
        extent: usize,
        /// The first extent after the write.
        end: usize,
    },
}

/// A request past the end of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("request of {length} bytes at offset {offset} is outside the volume of {size} bytes")]
pub struct RangeError {
    /// First byte asked for.
    pub offset: u64,
    /// Bytes asked for.
    pub length: u64,
    /// Size of the volume.
    pub size: u64,
}

/// Bytes of the extents that a move relocates together, one extent at least. Each batch costs one durable switch, and two
/// waits for requests in flight (before its copy, and before its sources are free). A larger one is mirrored for longer,
/// holds both ends for longer, and loses more when it is given up.
pub const BATCH_BYTES: Bytes = Bytes::mib(64);

/// Extents of a selection that lie apart move together where the first and the last are no further apart than so many
/// batches: a relocation remembers something of every chunk between them, and looks through that.
pub const BATCH_SPAN: usize = 4;

/// Extents to relocate together: they are switched in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The first extent.
    pub first: usize,
    /// Where this extent and the following ones go; `None` for an extent that stays as it is.
    pub targets: Vec<Option<Location>>,
}

/// Where the extents of one volume are, and what is being moved.
#[derive(Debug, Clone)]
pub struct VolumeMap {
    size: u64,
    extent_bytes: u64,
    extents: Vec<Location>,
    /// Devices that hold extents, with their number; a handful at most.
    holders: Vec<(DeviceId, u32)>,
    relocation: Option<Box<Relocation>>,
    /// Number of relocations begun.
    generation: u64,
    /// Extents in slots that others read too.
    shared: ExtentSet,
    /// Those of them that are being copied to slots of their own.
    copied_up: ExtentSet,
    /// Where the extents are that have not been imported yet, and how many there are. It is read only: each of them is shared with it.
    source: Option<(DeviceId, u32)>,
    /// A write waits for the relocation under way, as it touches an extent that is shared until the switch.
    wanted: bool,
}

impl VolumeMap {
    /// A volume of `size` bytes, all of it on one device, every extent in the slot of its own number. Both sizes must be
    /// positive.
    pub fn new(size: Bytes, extent: Bytes, device: DeviceId) -> Self {
        let count = size.0.div_ceil(extent.0.max(1)) as u32;
        let places = (0..count).map(|slot| Some(Location { device, slot }));
        Self::at(size, extent, places.collect())
    }

    /// A volume of `size` bytes whose extents are at `places`, one for each extent.
    pub fn at(size: Bytes, extent: Bytes, places: Vec<Option<Location>>) -> Self {
        Self::from_source(size, extent, places, None)
    }

    /// [`VolumeMap::at`]; extents that are on `source` have to be imported from there. Nothing is ever written to it, nor flushed, and moves
    /// leave them where they are: they get places by being copied up.
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

    /// Makes the volume larger; what is new has no place yet, and reads as zeroes. Requests in flight go on: what they were about is where it was.
    ///
    /// # Panics
    /// When it would be smaller, or while it moves.
    pub fn grow(&mut self, size: Bytes) {
        assert!(size.0 >= self.size, "a volume only grows");
        assert!(self.relocation.is_none(), "a move is of one size");
        let extents = size.0.div_ceil(self.extent_bytes) as usize;
        self.extents.resize(extents, HOLE);
        self.size = size.0;
    }

    /// Size of the volume.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Size of an extent.
    pub fn extent_bytes(&self) -> Bytes {
        Bytes(self.extent_bytes)
    }

    /// Number of extents.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Bytes of an extent; the last one of a volume may be short.
    pub fn bytes_of(&self, extent: usize) -> Bytes {
        assert!(extent < self.extents.len());
        let begin = extent as u64 * self.extent_bytes;
        Bytes(self.extent_bytes.min(self.size - begin))
    }

    /// Bytes between a byte and the end of its extent, or of the volume; none at the beginning of an extent.
    pub fn rest_of_extent(&self, at: Bytes) -> Bytes {
        let end = at.0.next_multiple_of(self.extent_bytes).min(self.size);
        Bytes(end.saturating_sub(at.0))
    }

    /// Where an extent is (its source, while it is being moved); `None` for a hole.
    pub fn location(&self, extent: usize) -> Option<Location> {
        let location = self.extents[extent];
        (location != HOLE).then_some(location)
    }

    /// The device with most extents of the volume, the first of those with as many; `None` if nothing is written yet.
    pub fn main_device(&self) -> Option<DeviceId> {
        let most = self.holders.iter().rev().max_by_key(|h| h.1);
        most.map(|h| h.0)
    }

    /// Devices that hold extents of this volume, with their number, in order.
    pub fn holders(&self) -> &[(DeviceId, u32)] {
        &self.holders
    }

    /// The one device that a request goes to, when that is so simple: no move under way, no holes, nothing shared, and a single holder.
    /// This is the path of nearly all simulated requests.
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

    /// The one device that a request goes to when nothing of the volume moves and all extents that it touches are there.
    /// This is the path of nearly all simulated requests on a volume that lies on several devices. `None` where
    /// [`VolumeMap::submit`] has to say; always so for a request of no bytes.
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

    /// Whether a range lies inside the volume.
    #[inline]
    pub fn contains(&self, offset: u64, length: u64) -> bool {
        length <= self.size && offset <= self.size - length
    }

    /// Gives a hole a place. The driver must have made that durable, and the slot must read as zeroes.
    pub fn place(&mut self, extent: usize, location: Location) {
        assert_eq!(self.extents[extent], HOLE, "an extent has one place");
        self.extents[extent] = location;
        self.count(location.device, 1);
    }

    /// Makes a hole of an extent; what was its place is free once every request that was submitted before is complete.
    /// `None` if it is a hole already, is being moved, or copied up.
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

    /// Routes a request: writes its parts to `out` (which is cleared first).
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

    /// A request that changes something where others read too.
    #[cold]
    fn submit_shared(&mut self, Request { op, offset, length }: Request) -> Submission {
        if op != Op::Write {
            // What a trim is about need not go, and others still want it.
            return Submission::Issued(None);
        }
        let range = self.extents_of(offset, length);
        let end = range.end;
        let mut shared = range.filter(|e| self.shared.contains(*e));
        if shared.clone().any(|e| self.is_relocated(e)) {
            self.wanted = true;
            return Submission::Held; // it has a slot of its own after the switch
        }
        let extent = shared.next().expect("it was looked for");
        Submission::NeedsCopy { extent, end }
    }

    /// Where the extents are that have not been imported yet, if there was a source.
    pub fn source(&self) -> Option<DeviceId> {
        self.source.map(|s| s.0)
    }

    /// How many extents have not been imported yet.
    pub fn left_at_source(&self) -> usize {
        self.source.map_or(0, |s| s.1 as usize)
    }

    /// Whether an extent has not been imported yet.
    #[inline]
    pub fn is_at_source(&self, extent: usize) -> bool {
        self.source
            .is_some_and(|(source, _)| self.extents[extent].device == source)
    }

    /// Nothing is at the source any more, and nobody in flight knows it.
    ///
    /// # Panics
    /// When something is.
    pub fn forget_source(&mut self) {
        assert_eq!(self.left_at_source(), 0, "what is there is not forgotten");
        self.source = None;
    }

    /// Whether a range touches an extent that is shared.
    #[inline]
    pub fn touches_shared(&self, offset: u64, length: u64) -> bool {
        !self.shared.is_empty()
            && self
                .extents_of(offset, length)
                .any(|e| self.shared.contains(e))
    }

    /// Others read the slot of an extent from now on, so that it is copied before it is written to. Writes to it that were submitted before
    /// must be complete.
    ///
    /// # Panics
    /// When it is a hole, or being moved.
    pub fn share(&mut self, extent: usize) {
        assert!(self.extents[extent] != HOLE, "a hole is nobody's");
        assert!(!self.is_relocated(extent), "what is shared is at rest");
        self.shared.insert(extent);
    }

    /// [`VolumeMap::share`] of all extents that have a place.
    pub fn share_all(&mut self) {
        for extent in 0..self.extents.len() {
            if self.extents[extent] != HOLE {
                self.share(extent);
            }
        }
    }

    /// Whether an extent is in a slot that others read too, as far as is known here.
    pub fn is_shared(&self, extent: usize) -> bool {
        self.shared.contains(extent)
    }

    /// Begins to give a shared extent a slot of its own: nobody writes to it, moves it or makes a hole of it until that is over. Whether it
    /// is to be done: not if it is not shared (any more), is being moved, or copied already.
    pub fn begin_copy_up(&mut self, extent: usize) -> bool {
        let begins =
            self.is_shared(extent) && !self.is_relocated(extent) && !self.is_copied_up(extent);
        if begins {
            self.copied_up.insert(extent);
        }
        begins
    }

    /// Whether an extent is being copied to a slot of its own.
    pub fn is_copied_up(&self, extent: usize) -> bool {
        self.copied_up.contains(extent)
    }

    /// Whether one of these extents is, and a move has to wait for it.
    pub fn copies_up(&self, selected: Selection<'_>) -> bool {
        let moves = |e: usize| selected.contains(e) && !self.is_at_source(e);
        self.copied_up.iter().any(moves)
    }

    /// The extent is at `to` from now on, and nobody else is there: its bytes are, durably, and the map of the array says so. `None` makes a hole
    /// of one whose bytes are all zeroes. Returns where it was, which reads that were submitted before may still know.
    pub fn copied_up(&mut self, extent: usize, to: Option<Location>) -> Location {
        self.copy_up_over(extent);
        self.shared.remove(extent);
        let to = to.unwrap_or(HOLE);
        let before = std::mem::replace(&mut self.extents[extent], to);
        self.count(before.device, -1);
        self.count(to.device, 1);
        before
    }

    /// The extent stays where it is: it could not be copied, or (`alone`) nobody else reads its slot any more.
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

    /// Whether a write waits for the relocation under way: it should not be slow.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A flush covers every device that holds data of the volume, and both ends of a move.
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

    /// Says that every part of a request that came with a ticket is done. Requests that were held and touch the bytes that are returned
    /// may be let in now; `None` where it makes no difference to any.
    pub fn complete(&mut self, ticket: Ticket) -> Option<std::ops::Range<u64>> {
        self.relocation.as_mut()?.complete(ticket)
    }

    /// Adds the parts of a request on the devices that hold its extents, like neighbours joined; of a read that is one for the `second` copy what that has.
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

/// Adds a part; joins it to the last one, if that is not before `first`, and ends where the part begins.
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
