//! A drive with a flash translation layer behind the cache: garbage collection, latency tails and wear.
//!
//! Extents lie in slots, and a slot is an address of the drive; extents that change places change slots. A copy is read and written through the
//! drive itself, an extent at a time, so that its bytes wear flash and its requests delay others.

use flash::drive::{DriveConfig, DriveReport, Op as FlashOp};
use flash::ftl::TenantId;
use flash::{Drive, FlashError};
use model::Op;
use serde::Serialize;
use units::Bytes;

use super::setup::PAGES_PER_EXTENT;

/// Overwrites of the drive's capacity before the run: it is full and aged, not new.
const AGE_TIMES: f64 = 2.0;

/// What the drives of one kind have to say about their flash.
#[derive(Debug, Clone, Serialize)]
pub struct WearResult {
    /// Kind of device.
    pub kind: String,
    /// Write amplification: pages programmed over pages written; none before the first write.
    pub waf: Option<f64>,
    /// Bytes written to the drives, copies of exchanges and redundancy with them.
    pub host_bytes: u64,
    /// Share of these bytes that classes wrote, by class; the rest are copies of exchanges. 0..=1.
    pub written_share: Vec<f64>,
    /// How often the capacity of a drive was written, on average.
    pub drive_writes: f64,
    /// Years that the blocks last at this rate, perfectly levelled; none if nothing was erased.
    pub years: Option<f64>,
}

/// One drive.
#[derive(Debug, Clone)]
pub(super) struct FlashDevice {
    drive: Drive,
    tenant: TenantId,
    page: u64,
    pub(super) busy_ns: f64,
    pub(super) copy_ns: f64,
}

impl FlashDevice {
    /// A drive with room for `extents`, full and aged.
    pub(super) fn new(config: &DriveConfig, extents: u32, page: Bytes) -> Result<Self, FlashError> {
        let bytes = Bytes(u64::from(extents.max(1)) * u64::from(PAGES_PER_EXTENT) * page.0);
        let mut drive = Drive::new(config.clone(), bytes)?;
        let tenant = drive.add_tenant(bytes, 0.0)?;
        drive.age(AGE_TIMES);
        drive.clear_counts();
        Ok(Self {
            drive,
            tenant,
            page: page.0,
            busy_ns: 0.0,
            copy_ns: 0.0,
        })
    }

    /// Pages of a slot; with `redundant`, what is there is read before it is written.
    pub(super) fn submit(
        &mut self,
        now_ns: u64,
        op: Op,
        (slot, page): (u32, u32),
        pages: u64,
        redundant: bool,
    ) -> f64 {
        let at = u64::from(slot) * u64::from(PAGES_PER_EXTENT) + u64::from(page);
        let (offset, bytes) = (at * self.page, pages * self.page);
        let op = match op {
            Op::Read => FlashOp::Read,
            _ => FlashOp::Write,
        };
        let mut done = now_ns;
        if redundant {
            let read = self
                .drive
                .submit(now_ns, self.tenant, FlashOp::Read, offset, bytes);
            self.busy_ns += read.device_ns as f64;
            done = read.done_ns;
        }
        let served = self.drive.submit(now_ns, self.tenant, op, offset, bytes);
        self.busy_ns += served.device_ns as f64;
        done.max(served.done_ns) as f64
    }

    /// Reads what is in a slot and writes it anew, as an exchange does.
    pub(super) fn copy(&mut self, now_ns: u64, slot: u32) {
        let before = self.busy_ns;
        let pages = u64::from(PAGES_PER_EXTENT);
        self.submit(now_ns, Op::Read, (slot, 0), pages, false);
        self.submit(now_ns, Op::Write, (slot, 0), pages, false);
        self.copy_ns += self.busy_ns - before;
        self.busy_ns = before;
    }

    pub(super) fn units(&self) -> u32 {
        self.drive.config().units()
    }

    /// What it did since it was aged.
    pub(super) fn report(&self) -> DriveReport {
        self.drive.report()
    }

    /// Years that its blocks last at the rate of `seconds`.
    pub(super) fn years(&self, seconds: f64) -> Option<f64> {
        let blocks = u32::try_from(self.drive.blocks()).unwrap_or(u32::MAX);
        self.report()
            .years(self.drive.config().endurance, blocks, seconds)
    }
}
