//! Simulated device: a disk that loses unflushed data, with injected errors.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use algo::Rng;
use array::{SUPERBLOCKS_BYTES, Superblock};
use crashdisk::CrashDisk;
use datapath::DatapathError;
use datapath::device::{SlotSpace, Space, StampError, ZeroError, ZeroResult};
use units::Bytes;

use super::plan::{EXTENT, Faults};

/// Device whose slots begin at its first byte. Its superblocks follow the last slot.
#[derive(Debug)]
pub struct SimDevice {
    /// Disk with its content.
    pub disk: CrashDisk,
    rng: Mutex<Rng>,
    faults: Faults,
    /// Offset of the superblocks.
    head: u64,
    /// True if the kernel has lost data and has not reported it yet.
    pub loss_pending: AtomicBool,
    /// True if data was lost since the process started.
    pub lossy: AtomicBool,
    /// Slots whose zeroing has exceeded the keeper's wait.
    zeroing: Mutex<Vec<u32>>,
}

impl SimDevice {
    /// Creates a device on a disk.
    pub fn new(disk: CrashDisk, slots: u32, seed: u64, faults: Faults) -> Self {
        Self {
            disk,
            head: u64::from(slots) * EXTENT,
            rng: Mutex::new(Rng::new(seed, 0xde)),
            faults,
            loss_pending: AtomicBool::new(false),
            lossy: AtomicBool::new(false),
            zeroing: Mutex::default(),
        }
    }

    /// Returns true with a probability of `of_thousand` / 1000.
    pub fn chance(&self, of_thousand: u64) -> bool {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        of_thousand > 0 && rng.below(1000) < of_thousand
    }

    fn bits(&self) -> u64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.next_u64()
    }

    /// Simulates a failed write-back of the kernel.
    pub fn lose(&self) {
        self.disk.fail_sync(self.bits());
        self.lossy.store(true, Ordering::Relaxed);
    }

    fn zeroing(&self) -> MutexGuard<'_, Vec<u32>> {
        self.zeroing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn zero_now(&self, slots: &[u32]) -> Result<(), ZeroError> {
        let fail = |why: String, flush| ZeroError {
            why,
            flush,
            late: false,
        };
        for slot in slots {
            if self.chance(self.faults.io) {
                let why = "simulated: a slot cannot be zeroed".into();
                return Err(fail(why, false));
            }
            let zeroed = self.disk.zero(u64::from(*slot) * EXTENT, EXTENT);
            zeroed.map_err(|e| fail(e.to_string(), false))?;
        }
        self.flush().map_err(|why| fail(why, true))
    }

    /// Flushes the disk. An error is reported once.
    pub fn flush(&self) -> Result<(), String> {
        if self.chance(self.faults.flush) {
            self.lose();
            self.loss_pending.store(true, Ordering::Relaxed);
        }
        if self.loss_pending.swap(false, Ordering::Relaxed) {
            return Err("simulated: a flush fails".into());
        }
        self.disk.sync().map_err(|e| e.to_string())
    }
}

impl SlotSpace for SimDevice {
    fn zero(&self, slots: &[u32], _: Bytes) -> Result<(), ZeroError> {
        if self.chance(self.faults.hang) {
            *self.zeroing() = slots.to_vec();
            return Err(ZeroError {
                why: "simulated: zeroing takes long".into(),
                flush: false,
                late: true,
            });
        }
        self.zero_now(slots)
    }

    fn is_zeroing(&self) -> bool {
        !self.zeroing().is_empty()
    }

    fn zeroed_late(&self) -> Option<ZeroResult> {
        if !self.is_zeroing() || self.chance(700) {
            return None;
        }
        let slots = std::mem::take(&mut *self.zeroing());
        let result = self.zero_now(&slots);
        Some((slots, result))
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn hold(&self, _: u32, _: Bytes) -> Space {
        match self.chance(self.faults.space) {
            true => Space::None,
            false => Space::Held,
        }
    }

    fn read_superblock(&self) -> Result<Superblock, DatapathError> {
        let mut head = vec![0; SUPERBLOCKS_BYTES];
        self.disk
            .read(self.head, &mut head)
            .map_err(|e| DatapathError::Refused(e.to_string()))?;
        Superblock::decode_both(&head).map_err(|e| DatapathError::Refused(e.to_string()))
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError> {
        let mut there = vec![0; SUPERBLOCKS_BYTES];
        self.disk.read(self.head, &mut there)?;
        for (at, block) in superblock.writes(&there) {
            let at = self.head + at;
            if self.chance(self.faults.io) {
                let failed = io::Error::other("simulated: a superblock cannot be written");
                return Err(failed.into());
            }
            self.disk.write(at, &block)?;
            // The write uses a separate opening: a loss is also reported to guests' flushes.
            if self.chance(self.faults.flush) {
                self.lose();
                self.loss_pending.store(true, Ordering::Relaxed);
            }
            if self.loss_pending.load(Ordering::Relaxed) {
                return Err(io::Error::other("simulated: a flush fails").into());
            }
            self.disk.sync()?;
        }
        Ok(())
    }

    fn flush_all(&self) -> io::Result<()> {
        self.flush().map_err(io::Error::other)
    }
}
