//! A device of the simulated array: the queueing model, a drive with its flash, or a group of disks.

use algo::{DeviceCounters, DeviceModel};
use model::Op;
use units::VolumeId;

use crate::disks::DiskGroup;
use crate::flash_device::FlashDevice;

/// One request to a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Io {
    pub op: Op,
    /// First byte on the device.
    pub at: u64,
    pub length: u64,
    pub volume: VolumeId,
    /// Part of a copy, or of a write that keeps a copy alike.
    pub copy: bool,
    /// The request's own random bits.
    pub bits: u64,
}

/// Counts a request that a device takes.
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

/// A device.
pub(crate) enum SimDevice {
    /// Caps, a load curve and jitter.
    Queue(DeviceModel),
    /// Pages, erase blocks and their collection.
    Flash(Box<FlashDevice>),
    /// Positioning and transfer, with redundancy.
    Disks(Box<DiskGroup>),
}

impl SimDevice {
    /// One request at `now_ns`; the time it completes.
    #[inline]
    pub(crate) fn submit(&mut self, now_ns: u64, io: &Io) -> u64 {
        match self {
            Self::Queue(device) => device.submit(now_ns, io.op, io.length, io.bits),
            Self::Flash(device) => device.submit(now_ns, io),
            Self::Disks(device) => device.submit(now_ns, io),
        }
    }

    /// What was done since the start.
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

    /// Whether it matters where on it a request goes.
    pub(crate) fn has_addresses(&self) -> bool {
        !matches!(self, Self::Queue(_))
    }
}
