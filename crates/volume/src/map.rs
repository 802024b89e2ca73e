//! The extent map of one volume and the routing of requests.

use model::Op;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::relocation::{Chunk, CopyStep, Relocation, RelocationError, Ticket};

/// What a guest asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Kind.
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
}

/// What became of a submitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submission {
    /// Do every part that was written to `out`; the request is done when all are. If there is a ticket, hand it to
    /// [`VolumeMap::complete`] then.
    Issued(Option<Ticket>),
    /// Nothing may be done yet. Submit it again after the next completion, copy or switch on this volume.
    Held,
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

/// Where the extents of one volume are, and what is being moved.
#[derive(Debug, Clone)]
pub struct VolumeMap {
    size: u64,
    extent_bytes: u64,
    extents: Vec<DeviceId>,
    /// Devices that hold extents, with their number; a handful at most.
    holders: Vec<(DeviceId, u32)>,
    relocation: Option<Box<Relocation>>,
    /// Number of relocations begun.
    generation: u64,
}

impl VolumeMap {
    /// A volume of `size` bytes, all of it on one device. Both sizes must be positive.
    pub fn new(size: Bytes, extent: Bytes, device: DeviceId) -> Self {
        assert!(
            size.0 > 0 && extent.0 > 0,
            "a volume has a size and an extent size"
        );
        let count = size.0.div_ceil(extent.0) as usize;
        Self {
            size: size.0,
            extent_bytes: extent.0,
            extents: vec![device; count],
            holders: vec![(device, count as u32)],
            relocation: None,
            generation: 0,
        }
    }

    /// Size of the volume.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// The device of an extent (its source, while it is being moved).
    pub fn device_of_extent(&self, extent: usize) -> DeviceId {
        self.extents[extent]
    }

    /// Devices that hold extents of this volume, with their number.
    pub fn holders(&self) -> &[(DeviceId, u32)] {
        &self.holders
    }

    /// The one device that a request goes to, when that is so simple: no move under way, and a single holder. This is
    /// the path of nearly all requests; [`VolumeMap::submit`] starts with it too.
    #[inline]
    pub fn sole_device(&self) -> Option<DeviceId> {
        match (&self.relocation, &self.holders[..]) {
            (None, [(device, _)]) => Some(*device),
            _ => None,
        }
    }

    /// Whether a range lies inside the volume.
    #[inline]
    pub fn contains(&self, offset: u64, length: u64) -> bool {
        length <= self.size && offset <= self.size - length
    }

    /// Routes a request: writes its parts to `out` (which is cleared first).
    pub fn submit(
        &mut self,
        request: Request,
        out: &mut Vec<DeviceIo>,
    ) -> Result<Submission, RangeError> {
        out.clear();
        let Request { op, offset, length } = request;
        if op == Op::Flush {
            // A flush covers every device that holds data of the volume, and both ends of a move.
            let filling = self.relocation.as_mut().filter(|r| r.fills_target());
            let (target, ticket) = match filling {
                Some(r) => (Some(r.to()), Some(r.ticket(None, false))),
                None => (None, None),
            };
            let holders = self.holders.iter().map(|h| h.0);
            let holders = holders.filter(|d| Some(*d) != target);
            out.extend(holders.chain(target).map(|device| DeviceIo {
                device,
                op,
                offset: 0,
                length: 0,
            }));
            return Ok(Submission::Issued(ticket));
        }
        if !self.contains(offset, length) {
            return Err(RangeError {
                offset,
                length,
                size: self.size,
            });
        }
        if let Some(device) = self.sole_device() {
            out.push(DeviceIo {
                device,
                op,
                offset,
                length,
            });
            return Ok(Submission::Issued(None));
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
        self.split(request, out);
        Ok(Submission::Issued(ticket))
    }

    /// Says that every part of a request that came with a ticket is done.
    pub fn complete(&mut self, ticket: Ticket) {
        if let Some(relocation) = &mut self.relocation {
            relocation.complete(ticket);
        }
    }

    /// Adds the parts of a request on the devices that hold its extents, like neighbours joined.
    fn split(&self, request: Request, out: &mut Vec<DeviceIo>) {
        let Request {
            op,
            mut offset,
            length,
        } = request;
        let end = offset + length;
        let first_part = out.len();
        while offset < end {
            let extent = (offset / self.extent_bytes) as usize;
            let part_end = end.min((extent as u64 + 1) * self.extent_bytes);
            let device = self.extents[extent];
            match out[first_part..].last_mut() {
                Some(last) if last.device == device => last.length += part_end - offset,
                _ => out.push(DeviceIo {
                    device,
                    op,
                    offset,
                    length: part_end - offset,
                }),
            }
            offset = part_end;
        }
    }

    /// Starts to move the whole volume to `to`, in chunks of `chunk` bytes. One relocation at a time.
    ///
    /// Requests on a quiet volume have no ticket, so the driver says whether any of them is still in flight (`earlier`);
    /// nothing is copied until it calls [`VolumeMap::earlier_complete`], since a copy must not miss a write.
    pub fn begin_relocation(
        &mut self,
        to: DeviceId,
        chunk: Bytes,
        earlier: Earlier,
    ) -> Result<(), RelocationError> {
        if self.relocation.is_some() {
            return Err(RelocationError::Busy);
        }
        if self.holders.iter().any(|h| h.0 == to) {
            return Err(RelocationError::AlreadyThere { device: to });
        }
        assert!(chunk.0 > 0, "a chunk has bytes");
        self.generation += 1;
        self.relocation = Some(Box::new(Relocation::new(
            self.generation,
            to,
            self.size,
            chunk.0,
            earlier == Earlier::InFlight,
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

    /// The device that a chunk must be read from.
    pub fn copy_source(&self, chunk: Chunk) -> DeviceId {
        self.extents[(chunk.offset / self.extent_bytes) as usize]
    }

    /// Says that a chunk was read from its source and written to the target; the bytes still to copy.
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

    /// The target becomes the truth, at once and for all extents. The driver must have made that durable.
    pub fn switch(&mut self) -> Result<(), RelocationError> {
        let relocation = self
            .relocation
            .as_mut()
            .ok_or(RelocationError::NotRelocating)?;
        relocation.switch()?;
        self.extents.fill(relocation.to());
        self.holders = vec![(relocation.to(), self.extents.len() as u32)];
        Ok(())
    }

    /// After the switch, or a cancel: whether every request that knows the device that is given up is complete, so that it
    /// can be freed (the source after a switch, the target after a cancel). True only once, and then the relocation is
    /// over.
    pub fn released(&mut self) -> bool {
        let over = self.relocation.as_ref().is_some_and(|r| r.drained());
        if over {
            self.relocation = None;
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

    /// The target of the relocation under way.
    pub fn relocating_to(&self) -> Option<DeviceId> {
        self.relocation.as_ref().map(|r| r.to())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, length: u64) -> Request {
        Request {
            op: Op::Write,
            offset,
            length,
        }
    }

    #[test]
    fn a_request_on_a_quiet_volume_is_one_part() {
        let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(3));
        let mut out = Vec::new();
        assert_eq!(
            map.submit(write(50, 500), &mut out),
            Ok(Submission::Issued(None))
        );
        assert_eq!(
            out,
            [DeviceIo {
                device: DeviceId(3),
                op: Op::Write,
                offset: 50,
                length: 500
            }]
        );
    }

    #[test]
    fn out_of_range_is_refused_without_overflow() {
        let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
        let mut out = Vec::new();
        for (offset, length) in [
            (1000, 1),
            (999, 2),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert!(
                map.submit(write(offset, length), &mut out).is_err(),
                "{offset} {length}"
            );
        }
        assert!(map.submit(write(999, 1), &mut out).is_ok());
        assert!(map.submit(write(1000, 0), &mut out).is_ok());
    }

    #[test]
    fn a_flush_during_a_move_reaches_both_ends() {
        let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
        map.begin_relocation(DeviceId(1), Bytes(100), Earlier::None)
            .unwrap();
        let mut out = Vec::new();
        let _ = map
            .submit(
                Request {
                    op: Op::Flush,
                    offset: 0,
                    length: 0,
                },
                &mut out,
            )
            .unwrap();
        assert_eq!(
            out.iter().map(|io| io.device).collect::<Vec<_>>(),
            [DeviceId(0), DeviceId(1)]
        );
    }

    #[test]
    fn misuse_is_an_error() {
        let mut map = VolumeMap::new(Bytes(1000), Bytes(100), DeviceId(0));
        assert_eq!(map.next_copy(), Err(RelocationError::NotRelocating));
        assert_eq!(
            map.begin_relocation(DeviceId(0), Bytes(10), Earlier::None),
            Err(RelocationError::AlreadyThere {
                device: DeviceId(0)
            })
        );
        map.begin_relocation(DeviceId(1), Bytes(1000), Earlier::None)
            .unwrap();
        assert_eq!(
            map.begin_relocation(DeviceId(2), Bytes(10), Earlier::None),
            Err(RelocationError::Busy)
        );
        assert_eq!(map.switch(), Err(RelocationError::NotReady));
        let CopyStep::Copy(chunk) = map.next_copy().unwrap() else {
            panic!()
        };
        assert_eq!(map.copied(chunk), Ok(Bytes::ZERO));
        assert!(map.ready_to_switch() && !map.released());
        map.switch().unwrap();
        assert_eq!(map.cancel_relocation(), Err(RelocationError::TooLate));
        assert!(map.released() && !map.released());
        assert_eq!(map.sole_device(), Some(DeviceId(1)));
    }
}
