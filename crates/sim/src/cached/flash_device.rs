//! A drive with a flash translation layer behind the cache: garbage collection, latency tails and wear.
//!
//! Extents lie in slots, and a slot is an address of the drive; extents that change places change slots. A copy is read and written through the
//! drive itself, a piece at a time and paced, so that its bytes wear flash and its requests delay others, but not for long.

use std::collections::VecDeque;

use flash::drive::{DriveConfig, DriveReport, Op as FlashOp};
use flash::ftl::TenantId;
use flash::{Drive, FlashError};
use model::Op;
use serde::{Deserialize, Serialize};
use units::Bytes;

use super::setup::PAGES_PER_EXTENT;

/// Overwrites of the drive's capacity before the run: it is full and aged, not new.
const AGE_TIMES: f64 = 2.0;

/// Pages of one piece of a copy.
const PIECE_PAGES: u32 = 4;
/// Pieces of copies follow each other at so many times what programming one takes all units: a sixteenth of what a new drive could write,
/// since one that collects can do much less.
const PACE: f64 = 16.0;

/// What the drives of one kind have to say about their flash.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// A copy under way.
#[derive(Debug, Clone, Copy)]
struct Copy {
    exchange: u32,
    slot: u32,
    /// First page that is not copied yet.
    page: u32,
}

/// One drive.
#[derive(Debug, Clone)]
pub(super) struct FlashDevice {
    drive: Drive,
    tenant: TenantId,
    page: u64,
    copies: VecDeque<Copy>,
    next_piece_ns: u64,
    piece_ns: u64,
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
        let flash_pages = f64::from(PIECE_PAGES) * page.as_f64() / config.page.as_f64();
        let programs = flash_pages * config.program.as_f64() / f64::from(config.units());
        Ok(Self {
            drive,
            tenant,
            page: page.0,
            copies: VecDeque::new(),
            next_piece_ns: 0,
            piece_ns: (PACE * programs) as u64,
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

    /// Adds the reading and writing anew of a slot, as an exchange does.
    pub(super) fn add_copy(&mut self, now_ns: u64, exchange: u32, slot: u32) {
        if self.copies.is_empty() {
            self.next_piece_ns = self.next_piece_ns.max(now_ns);
        }
        self.copies.push_back(Copy {
            exchange,
            slot,
            page: 0,
        });
    }

    /// Copies the pieces that are due by `now_ns`; exchanges whose part here ends are added to `done`.
    #[inline]
    pub(super) fn copy_until(&mut self, now_ns: u64, done: &mut Vec<u32>) {
        while self.next_piece_ns <= now_ns {
            let Some(copy) = self.copies.front().copied() else {
                return;
            };
            let at = self.next_piece_ns;
            self.next_piece_ns += self.piece_ns;
            let pages = PIECE_PAGES.min(PAGES_PER_EXTENT - copy.page);
            let before = self.busy_ns;
            let address = (copy.slot, copy.page);
            self.submit(at, Op::Read, address, u64::from(pages), false);
            self.submit(at, Op::Write, address, u64::from(pages), false);
            self.copy_ns += self.busy_ns - before;
            self.busy_ns = before;
            match self.copies.front_mut() {
                Some(copy) if copy.page + pages < PAGES_PER_EXTENT => copy.page += pages,
                _ => {
                    self.copies.pop_front();
                    done.push(copy.exchange);
                }
            }
        }
    }

    /// Gives up copies that are not complete.
    pub(super) fn give_up(&mut self) {
        self.copies.clear();
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
        self.drive.years(self.report().erases, seconds)
    }
}
