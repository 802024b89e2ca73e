//! The array: memory before a RAID-4 group.

use algo::{JitterTable, mix};
use serde::Serialize;
use units::{Bytes, BytesPerSec, Nanos};

use super::parts::ArrayMemory;

/// What the array is made of, with its times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrayModel {
    /// Disks that hold data; one more holds parity (RAID-4).
    pub data_disks: u32,
    /// Mean time of a random read on a disk, without the transfer.
    pub seek: Nanos,
    /// Spread of that time (sigma of a log-normal).
    pub seek_sigma: f64,
    /// Rate at which a disk reads what it has found.
    pub transfer: BytesPerSec,
    /// Share of the time of a random read that a sequential one takes before its transfer.
    pub sequential: f64,
    /// Time that writing an object takes on its disk once it is written back; a tenth of it on the parity disk, as writes are
    /// gathered to full stripes. The guest does not wait for it: its write is in battery-backed memory.
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
            seek: Nanos::from_micros(3400),
            seek_sigma: 0.35,
            transfer: BytesPerSec(100_000_000),
            sequential: 0.1,
            write_back: Nanos::from_micros(1000),
            memory: [Bytes::mib(13_500), Bytes::mib(900)],
            link: BytesPerSec(117_000_000),
            controller: Nanos::from_micros(300),
        }
    }
}

/// Time that a request took of each resource, for who asked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    /// Of one disk.
    pub(super) disk_ns: u64,
    /// Of the link.
    pub(super) link_ns: u64,
}

pub(super) struct Backend {
    model: ArrayModel,
    pub(super) memory: ArrayMemory,
    jitter: JitterTable,
    disk_free: Vec<u64>,
    parity_free: u64,
    in_free: u64,
    seed: u64,
    draws: u64,
}

/// From this size on a read is a large one, whose data is not kept for long.
const LARGE: u32 = 32 << 10;

/// Which part of the memory keeps requests of `bytes`.
pub(super) fn pool(bytes: u32) -> usize {
    usize::from(bytes >= LARGE)
}

/// How a disk is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Random,
    Sequential,
}

impl Backend {
    pub(super) fn new(model: ArrayModel, classes: &[(u32, u32)], seed: u64) -> Self {
        Self {
            memory: ArrayMemory::new(model.memory, classes),
            jitter: JitterTable::new(model.seek_sigma),
            disk_free: vec![0; model.data_disks as usize],
            parity_free: 0,
            in_free: 0,
            seed,
            draws: 0,
            model,
        }
    }

    /// Reads `bytes` of an object from its disk: when that is done, and how long it took of the disk.
    pub(super) fn disk_read(
        &mut self,
        now: u64,
        object: u32,
        bytes: u64,
        how: Access,
    ) -> (u64, u64) {
        let factor = self.factor();
        let share = match how {
            Access::Random => 1.0,
            Access::Sequential => self.model.sequential,
        };
        let seek = self.model.seek.as_f64() * factor * share;
        let takes = seek as u64 + self.model.transfer.time_for(Bytes(bytes)).0;
        let free = &mut self.disk_free[disk_of(object, self.model.data_disks)];
        *free = now.max(*free) + takes;
        (*free, takes)
    }

    /// A write of an object: when it is acknowledged, and what it takes. Where it is stored, `waf` times as much is written.
    pub(super) fn write(&mut self, now: u64, object: u32, bytes: u64, waf: f64) -> (u64, Taken) {
        let link_ns = self.model.link.time_for(Bytes(bytes)).0;
        self.in_free = now.max(self.in_free) + link_ns;
        let done = self.in_free + self.model.controller.0;
        let disk_ns = (self.model.write_back.as_f64() * self.factor() * waf) as u64;
        let free = &mut self.disk_free[disk_of(object, self.model.data_disks)];
        *free = done.max(*free) + disk_ns;
        self.parity_free = done.max(self.parity_free) + disk_ns / 10;
        (done, Taken { disk_ns, link_ns })
    }

    /// Time that `bytes` take of the link.
    pub(super) fn link_time(&self, bytes: u64) -> u64 {
        self.model.link.time_for(Bytes(bytes)).0
    }

    /// Time in the controller.
    pub(super) fn controller(&self) -> u64 {
        self.model.controller.0
    }

    fn factor(&mut self) -> f64 {
        self.draws += 1;
        self.jitter.factor(mix(self.seed, self.draws))
    }
}

fn disk_of(object: u32, disks: u32) -> usize {
    (mix(0xD15C, u64::from(object)) % u64::from(disks)) as usize
}
