//! Device of the simulated array: a queueing model, a drive with a flash model, or a group of disks.

use algo::{DeviceCounters, DeviceModel};
use model::Op;
use units::VolumeId;

use crate::disks::DiskGroup;
use crate::flash_device::FlashDevice;

/// Request to a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Io {
    pub op: Op,
    /// First byte on the device.
    pub at: u64,
    pub length: u64,
    pub volume: VolumeId,
    /// True for a part of a copy, or for the second write of a mirrored extent.
    pub copy: bool,
    /// Random bits of the request.
    pub bits: u64,
}

/// Counts a request that a device serves.
#[inline]
pub(crate) fn count(counters: &mut DeviceCounters, io: &Io) {
    match io.op {
        Op::Read => {
            counters.reads += 1;
            counters.read_bytes += io.length;
        }
        Op::Write => {
            counters.writes += 1;
            counters.write_bytes += io.length;
        }
        Op::Trim | Op::Flush => counters.writes += 1,
    }
}

/// Simulated device.
pub(crate) enum SimDevice {
    /// Queueing model: caps, a load curve and jitter.
    Queue(DeviceModel),
    /// Flash model: pages, erase blocks and garbage collection.
    Flash(Box<FlashDevice>),
    /// Group of disks: positioning and transfer, with redundancy.
    Disks(Box<DiskGroup>),
}

impl SimDevice {
    /// Submits one request at `now_ns` and returns its completion time.
    #[inline]
    pub(crate) fn submit(&mut self, now_ns: u64, io: &Io) -> u64 {
        match self {
            Self::Queue(device) => device.submit(now_ns, io.op, io.length, io.bits),
            Self::Flash(device) => device.submit(now_ns, io),
            Self::Disks(device) => device.submit(now_ns, io),
        }
    }

    /// Returns the counters since the start.
    pub(crate) fn counters(&self) -> DeviceCounters {
        match self {
            Self::Queue(device) => device.counters(),
            Self::Flash(device) => device.counters(),
            Self::Disks(device) => device.counters(),
        }
    }

    pub(crate) fn flash(&mut self) -> Option<&mut FlashDevice> {
        match self {
            Self::Queue(_) | Self::Disks(_) => None,
            Self::Flash(device) => Some(device),
        }
    }

    pub(crate) fn as_flash(&self) -> Option<&FlashDevice> {
        match self {
            Self::Queue(_) | Self::Disks(_) => None,
            Self::Flash(device) => Some(device),
        }
    }

    /// Returns true if the service time depends on the address.
    pub(crate) fn has_addresses(&self) -> bool {
        !matches!(self, Self::Queue(_))
    }
}
