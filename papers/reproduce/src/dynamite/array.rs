//! Array, and the link to it.

use serde::Serialize;
use units::{Bytes, BytesPerSec, Nanos};

/// Components of the array, with their times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrayModel {
    /// Number of data disks.
    pub data_disks: u32,
    /// True if one more disk holds parity (RAID-4).
    pub parity: bool,
    /// Mean time of a random read on a disk, without the transfer.
    pub seek: Nanos,
    /// Maximum relative deviation of that time from its mean; uniformly distributed.
    pub spread: f64,
    /// Transfer rate of a disk.
    pub transfer: BytesPerSec,
    /// Time of a write-back on its disk; a tenth of it on the parity disk. The guest does not wait for it.
    pub write_back: Nanos,
    /// Memory for data in its two separate parts: for small reads, and for large reads.
    pub memory: [Bytes; 2],
    /// Payload rate of the array's link, in each direction.
    pub link: BytesPerSec,
    /// Time per request in the array's controller and protocol.
    pub controller: Nanos,
}

impl Default for ArrayModel {
    /// Eleven disks with 15,000 rpm; 16 GB of memory, 14 of them for data; 1 Gbit/s.
    fn default() -> Self {
        Self {
            data_disks: 10,
            parity: true,
            seek: Nanos::from_micros(3400),
            // As wide as a log-normal distribution with sigma 0.35.
            spread: 0.62,
            transfer: BytesPerSec(100_000_000),
            write_back: Nanos::from_micros(1000),
            memory: [Bytes::mib(13_500), Bytes::mib(900)],
            link: BytesPerSec(117_000_000),
            controller: Nanos::from_micros(300),
        }
    }
}
