//! Interface of engine and driver: requests of guests, I/O on devices, requests to the keeper, answers.

use std::ops::Range;

use model::Op;
use rustix::io::Errno;
use thiserror::Error;
use units::DeviceId;
use volume::Location;

use super::{Failure, MirrorEnd, MoveEnd};

/// Kind of a guest's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestOp {
    Read,
    Write,
    /// Declares the content unused.
    Trim,
    /// Makes the range read as zeroes.
    Zero,
    /// As `Zero`, and the space stays allocated.
    ZeroAllocated,
    /// Makes all changes durable that were answered before.
    Flush,
}

impl GuestOp {
    /// Returns the kind by which the volume core routes the request.
    pub(super) fn routed_as(self) -> Op {
        match self {
            GuestOp::Read => Op::Read,
            GuestOp::Write | GuestOp::ZeroAllocated => Op::Write,
            GuestOp::Trim | GuestOp::Zero => Op::Trim,
            GuestOp::Flush => Op::Flush,
        }
    }

    /// Returns true if the request changes the result of later reads.
    pub(super) fn changes(self) -> bool {
        !matches!(self, GuestOp::Read | GuestOp::Flush)
    }
}

/// Request of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestRequest {
    /// Kind.
    pub op: GuestOp,
    /// First byte in the volume.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// True if the request must be durable when it is answered (force unit access).
    pub fua: bool,
}

impl GuestRequest {
    /// Returns the range of the request.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// Kind of an I/O on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    Read,
    Write {
        /// True if the data must be durable when the write completes.
        durable: bool,
    },
    /// Makes the range read as zeroes and frees its space.
    Zero,
    /// Makes the range read as zeroes and keeps its space.
    ZeroAllocated,
    /// Declares the content unused.
    Discard,
    /// Makes all earlier writes durable.
    Flush,
}

impl IoKind {
    /// Returns the name for messages.
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

/// Buffer of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRef {
    /// Buffer of a guest's request.
    Guest {
        /// Number of the request; [`Engine::guest`] returns its data.
        request: u32,
        /// First byte in the buffer.
        from: u64,
    },
    /// Copy buffer of the move.
    Copy,
    /// Buffer of a copy-up or a piece of an import, by number.
    CopyUp(u32),
    None,
}

/// I/O on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Number of the I/O for [`Engine::io_done`].
    pub io: u32,
    pub device: DeviceId,
    pub kind: IoKind,
    /// First byte in the device's data.
    pub at: u64,
    /// Number of bytes.
    pub length: u64,
    /// Buffer.
    pub data: DataRef,
}

/// Request to the keeper, which stores the map of the array. Replies come in any order, one for each request unless noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRequest {
    /// Allocates durable places, in slots that read as zeroes, for extents without a place: on `prefer` while it has room,
    /// else on the volume's home tier, else on the next tier with room.
    Place {
        extents: Vec<u32>,
        /// Target of a running move, for extents that move.
        prefer: Option<DeviceId>,
    },
    /// Removes the places of extents durably. Their slots stay quarantined until [`StoreRequest::Free`].
    Vacate { extents: Vec<u32> },
    /// Reserves slots on a device as targets of copies.
    Reserve {
        device: DeviceId,
        /// Number of slots.
        count: usize,
    },
    /// Changes the places of extents durably and in one step.
    Switch {
        /// Extents and their new places.
        places: Vec<(u32, Location)>,
    },
    /// Allocates a slot for an extent in a shared slot: on `prefer` while it has room, else as for [`StoreRequest::Place`].
    /// The slot may have any content. The reply has no slot if the present slot is not shared any more.
    Unshare {
        extent: u32,
        from: Location,
        /// Preferred device.
        prefer: DeviceId,
    },
    /// Changes the place of an extent durably. From then on its content may differ from that of the other owners of its old
    /// slot.
    CopyUp {
        extent: u32,
        /// New place.
        at: Location,
    },
    /// Allocates slots with any content for extents that are imported: on `prefer` while it has room, else as for
    /// [`StoreRequest::Place`].
    Gather {
        /// Number of slots.
        count: usize,
        /// Preferred device.
        prefer: Option<DeviceId>,
    },
    /// Changes the places of imported extents durably and in one step; an extent without a place is a hole.
    Arrive {
        /// Number of the group, which the reply repeats.
        group: u32,
        /// Extents and their new places.
        places: Vec<(u32, Option<Location>)>,
    },
    /// Removes the source of the volume: no extent is left there, and no request reads from it.
    Imported,
    /// Frees slots that nobody uses any more. No reply.
    Free { slots: Vec<Location> },
    /// Removes the stored move, so that it is not resumed. No reply.
    MoveOver,
}

/// Reply of the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreReply {
    /// Reply to `Place`: one place for each extent, in order.
    Placed {
        /// Extents of the request.
        extents: Vec<u32>,
        /// Places, or the reason why they could not be allocated.
        places: Result<Vec<Location>, Fault>,
    },
    /// Reply to `Vacate`.
    Vacated {
        /// Extents of the request.
        extents: Vec<u32>,
        /// Result; after an error, the durability is unknown.
        done: Result<(), Fault>,
    },
    /// Reply to `Reserve`.
    Reserved(Result<Vec<Location>, Fault>),
    /// Reply to `Switch`. After an error, the durability is unknown.
    Switched(Result<(), Fault>),
    /// Reply to `Unshare`.
    Unshared {
        /// Extent of the request.
        extent: u32,
        /// New slot, or the reason why none could be allocated; none if the extent needs none.
        to: Result<Option<Location>, Fault>,
    },
    /// Reply to `Gather`: the requested number of slots.
    Gathered(Result<Vec<Location>, Fault>),
    /// Reply to `Arrive`. After an error, the durability is unknown.
    Arrived {
        /// Group of the request.
        group: u32,
        /// Result.
        done: Result<(), Fault>,
    },
    /// Reply to `Imported`. After an error, the durability is unknown.
    Imported(Result<(), Fault>),
    /// Reply to `CopyUp`. After an error, the durability is unknown.
    CopiedUp {
        /// Extent of the request.
        extent: u32,
        /// Result.
        done: Result<(), Fault>,
    },
}

/// Reason for a failed request, as the guest receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// A device failed an I/O.
    #[error("input/output error")]
    Device(Failure),
    /// Another failure or timeout: of the map, or of an operation that the request waited for.
    #[error("input/output error")]
    Io,
    /// The device is unreachable.
    #[error("the device is lost")]
    Lost,
    /// No tier has space.
    #[error("no space left on any tier")]
    NoSpace,
    /// The range is outside the volume.
    #[error("outside the volume")]
    Range,
    /// The service of the volume or the server ends.
    #[error("shutting down")]
    Shutdown,
}

impl Fault {
    /// Creates the fault of a failed I/O.
    pub fn of(device: DeviceId, kind: IoKind, errno: Errno) -> Self {
        Fault::Device(Failure::new(device, kind, errno))
    }

    /// Returns the failed I/O, if one is the cause.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Fault::Device(failure) => Some(failure),
            _ => None,
        }
    }
}

/// Action for the driver.
#[derive(Debug, PartialEq)]
pub enum Effect<G> {
    /// Start an I/O on a device.
    Io(DeviceRequest),
    /// Answer a request.
    Reply {
        /// Driver's data of the request.
        guest: G,
        request: GuestRequest,
        /// Result.
        result: Result<(), Fault>,
        /// Parts of a read's buffer without data on a device, as `(from, bytes)`: they are zeroes.
        gaps: Vec<(u64, u64)>,
    },
    /// Send a request to the keeper.
    Store(StoreRequest),
    /// Call [`Engine::wake`] at this time, in nanoseconds.
    Wake(u64),
    /// The move has ended.
    MoveEnded(MoveEnd),
    /// The mirror has ended.
    MirrorEnded(MirrorEnd),
    /// Submit a read again, with another buffer. A part of the read at a second copy may still write to the old buffer.
    Again {
        /// Driver's data of the request.
        guest: G,
        request: GuestRequest,
    },
    /// The volume is at rest, and all acknowledged writes are durable. An error is a timeout ([`Fault::Io`]) or a failed
    /// device.
    AtRest(Result<(), Fault>),
}

/// Content of a copied chunk. The target of a chunk of zeroes is zeroed instead of written, and so stays sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroes {
    /// Other data, or unknown.
    No,
    All,
}
