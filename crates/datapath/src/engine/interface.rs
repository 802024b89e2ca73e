//! What the engine and its driver say to one another: requests of guests, what is to be done on devices and in the map, answers.

use std::ops::Range;

use model::Op;
use rustix::io::Errno;
use thiserror::Error;
use units::DeviceId;
use volume::Location;

use super::{Failure, MirrorEnd, MoveEnd};

/// What a guest may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestOp {
    Read,
    Write,
    /// The contents are of no use any more.
    Trim,
    /// Read as zeroes from now on.
    Zero,
    /// As `Zero`, and the space stays allocated.
    ZeroAllocated,
    /// Everything that was answered before is durable when this is answered.
    Flush,
}

impl GuestOp {
    /// How the volume core routes it.
    pub(super) fn routed_as(self) -> Op {
        match self {
            GuestOp::Read => Op::Read,
            GuestOp::Write | GuestOp::ZeroAllocated => Op::Write,
            GuestOp::Trim | GuestOp::Zero => Op::Trim,
            GuestOp::Flush => Op::Flush,
        }
    }

    /// Whether it changes what is read later.
    pub(super) fn changes(self) -> bool {
        !matches!(self, GuestOp::Read | GuestOp::Flush)
    }
}

/// A guest's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestRequest {
    /// Kind.
    pub op: GuestOp,
    /// First byte of the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Durable when it is answered.
    pub fua: bool,
}

impl GuestRequest {
    /// The bytes that it is about.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// What to do on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    Read,
    Write {
        /// Durable when it is done.
        durable: bool,
    },
    /// Make it read as zeroes and give the space back.
    Zero,
    /// Make it read as zeroes and keep the space.
    ZeroAllocated,
    /// The contents are of no use any more.
    Discard,
    /// Make everything written before durable.
    Flush,
}

impl IoKind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            IoKind::Read => "read",
            IoKind::Write { .. } => "write",
            IoKind::Zero | IoKind::ZeroAllocated => "zero",
            IoKind::Discard => "discard",
            IoKind::Flush => "flush",
        }
    }
}

/// Whose bytes an I/O reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRef {
    /// Of a guest's request.
    Guest {
        /// The request; [`Engine::guest`] has what belongs to it.
        request: u32,
        /// From this byte of its buffer.
        from: u64,
    },
    /// Of the move's copy buffer.
    Copy,
    /// Of a buffer for an extent that is given a slot of its own, by its number.
    CopyUp(u32),
    None,
}

/// An I/O on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRequest {
    /// To be given back to [`Engine::io_done`].
    pub io: u32,
    pub device: DeviceId,
    pub kind: IoKind,
    /// First byte of the device's data.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// The bytes.
    pub data: DataRef,
}

/// What the engine wants of the array's store. Answers come in any order, one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRequest {
    /// Durable places, in slots that read as zeroes, for extents that have none: on `prefer` while it has room, else on
    /// the volume's home tier, else on the next tier with room.
    Place {
        extents: Vec<u32>,
        /// The target of a running move, of extents that it moves.
        prefer: Option<DeviceId>,
    },
    /// These extents have no place any more, durably. Their slots stay quarantined until [`StoreRequest::Free`].
    Vacate { extents: Vec<u32> },
    /// Slots on a device to copy so many extents to.
    Reserve {
        device: DeviceId,
        /// How many.
        count: usize,
    },
    /// These are the places of these extents now, durably, in one step.
    Switch {
        /// Extents and their new places.
        places: Vec<(u32, Location)>,
    },
    /// A slot for an extent that is in one that others have too: on `prefer` while it has room, else as for [`StoreRequest::Place`], with any
    /// content; none if nobody else has it (any more).
    Unshare {
        extent: u32,
        from: Location,
        /// Where the slot should be.
        prefer: DeviceId,
    },
    /// This is the place of an extent now, durably, and what it holds may differ from what others have of it.
    CopyUp {
        extent: u32,
        /// Its new place.
        at: Location,
    },
    /// Slots with any content for so many extents that are imported: on `prefer` while it has room, else as for [`StoreRequest::Place`].
    Gather {
        /// How many.
        count: usize,
        /// Where they should be.
        prefer: Option<DeviceId>,
    },
    /// These are the places of extents that were imported now, durably and in one step; what has none is a hole.
    Arrive {
        /// Given back with the answer.
        group: u32,
        /// Extents and their new places.
        places: Vec<(u32, Option<Location>)>,
    },
    /// Nothing is at the volume's source any more, and nobody reads from it.
    Imported,
    /// Nobody knows these slots any more. No answer.
    Free { slots: Vec<Location> },
    /// No move is to be resumed any more. No answer.
    MoveOver,
}

/// What the store answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreReply {
    /// To `Place`: as many places as extents, in order.
    Placed {
        /// The extents that were asked for.
        extents: Vec<u32>,
        /// Their places, or why there are none.
        places: Result<Vec<Location>, Fault>,
    },
    /// To `Vacate`.
    Vacated {
        /// The extents that were asked for.
        extents: Vec<u32>,
        /// Whether it is durable.
        done: Result<(), Fault>,
    },
    /// To `Reserve`.
    Reserved(Result<Vec<Location>, Fault>),
    /// To `Switch`. An error means that it may or may not be durable.
    Switched(Result<(), Fault>),
    /// To `Unshare`.
    Unshared {
        /// The extent that was asked for.
        extent: u32,
        /// The slot, or why there is none; nothing if it needs none.
        to: Result<Option<Location>, Fault>,
    },
    /// To `Gather`: as many as were asked for.
    Gathered(Result<Vec<Location>, Fault>),
    /// To `Arrive`. An error means that it may or may not be durable.
    Arrived {
        /// The group that was asked for.
        group: u32,
        /// Whether it is durable.
        done: Result<(), Fault>,
    },
    /// To `Imported`. An error means that it may or may not be durable.
    Imported(Result<(), Fault>),
    /// To `CopyUp`. An error means that it may or may not be durable.
    CopiedUp {
        /// The extent that was asked for.
        extent: u32,
        /// Whether it is durable.
        done: Result<(), Fault>,
    },
}

/// Why a request failed, as the guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// A device failed.
    #[error("input/output error")]
    Device(Failure),
    /// Something else failed, or did not come in time: the map, or what the request had to wait for.
    #[error("input/output error")]
    Io,
    /// The device cannot be reached.
    #[error("the device is lost")]
    Lost,
    /// No tier has room.
    #[error("no space left on any tier")]
    NoSpace,
    /// Outside the volume.
    #[error("outside the volume")]
    Range,
    /// The volume, or the server, goes away.
    #[error("shutting down")]
    Shutdown,
}

impl Fault {
    /// A device failed an I/O like this.
    pub fn of(device: DeviceId, kind: IoKind, errno: Errno) -> Self {
        Fault::Device(Failure::new(device, kind, errno))
    }

    /// The I/O that failed, if one did.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Fault::Device(failure) => Some(failure),
            _ => None,
        }
    }
}

/// What the worker is to do.
#[derive(Debug, PartialEq)]
pub enum Effect<G> {
    /// An I/O on a device.
    Io(DeviceRequest),
    /// A request is over.
    Reply {
        /// What belongs to it.
        guest: G,
        request: GuestRequest,
        /// How it ended.
        result: Result<(), Fault>,
        /// Bytes of a read's buffer that no device holds, as `(from, bytes)`: they are zeroes.
        gaps: Vec<(u64, u64)>,
    },
    /// Something to make durable.
    Store(StoreRequest),
    /// Call [`Engine::wake`] at this time, in nanoseconds.
    Wake(u64),
    /// The move is over.
    MoveEnded(MoveEnd),
    /// Nothing is mirrored any more.
    MirrorEnded(MirrorEnd),
    /// A read is to be submitted again, into other memory: what was begun for it at a second copy may still write to what it had.
    Again {
        /// What belongs to it.
        guest: G,
        request: GuestRequest,
    },
    /// The volume is at rest, and all that was answered is durable; or why it is not: it took too long ([`Fault::Io`]), or a device failed.
    AtRest(Result<(), Fault>),
}

/// Whether a copy's chunk holds only zeroes: its target is then zeroed instead of written, which keeps it sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroes {
    /// Not known, or not so.
    No,
    All,
}
