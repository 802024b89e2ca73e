//! The array and the link before it.

use serde::Serialize;
use units::{Bytes, BytesPerSec, Nanos};

/// What the array is made of, with its times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrayModel {
    /// Disks that hold data.
    pub data_disks: u32,
    /// Whether one more holds parity (RAID-4).
    pub parity: bool,
    /// Mean time of a random read on a disk, without the transfer.
    pub seek: Nanos,
    /// By how much of its mean that time is less or more, evenly distributed.
    pub spread: f64,
    /// Rate at which a disk reads what it has found.
    pub transfer: BytesPerSec,
    /// Time that a write takes on its disk once it is written back; a tenth of it on the parity disk. The guest does not wait for it.
    pub write_back: Nanos,
    /// Memory for data, in the parts that are kept apart: that of small reads, and that which large reads may take.
    pub memory: [Bytes; 2],
    /// Payload rate of the array's link, each way.
    pub link: BytesPerSec,
    /// Time in the array's controller and protocol, each request.
    pub controller: Nanos,
}

impl Default for ArrayModel {
    /// Eleven disks of 15,000 turns a minute, 16 GB of memory of which data gets 14, 1 Gbit/s.
    fn default() -> Self {
        Self {
            data_disks: 10,
            parity: true,
            seek: Nanos::from_micros(3400),
            // As wide as a log-normal of sigma 0.35.
            spread: 0.62,
            transfer: BytesPerSec(100_000_000),
            write_back: Nanos::from_micros(1000),
            memory: [Bytes::mib(13_500), Bytes::mib(900)],
            link: BytesPerSec(117_000_000),
            controller: Nanos::from_micros(300),
        }
    }
}
