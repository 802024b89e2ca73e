//! Drive with time: parallel units, channels, write buffer and tags around the translation layer.
//!
//! ```text
//!  request ─▶ tag (one of 32, or the only one) ─▶ pages ─┬ write: buffer slot ─▶ done for the host
//!                                                         │            └▶ channel ─▶ unit: debt of collection, program
//!                                                         └ read: unit: sense ─▶ channel ─▶ done
//! ```
//!
//! The state of each unit and each channel is one number: the time until which it is busy. The completion time of a
//! request is known when it is submitted, so there is no event queue, and no allocation per request. [`units`]
//! describes the simplifications. They are measured against [`crate::event`], which has queues for everything.
//!
//! Requests must come in order of time. A request that does not is treated as if it arrived with the previous one.
//!
//! # Use as a device of an array
//!
//! Call [`Drive::new`] with a configuration from [`preset`] and the capacity that the host sees, then
//! [`Drive::add_tenant`] for each tenant (or once for the whole capacity), then [`Drive::age`], then [`Drive::submit`]
//! and [`Drive::trim`], and [`Drive::report`] at the end. [`DriveConfig::scale`] scales large drives down.

mod config;
mod presets;
mod queues;
mod ready;
mod report;
mod tenants;
pub(crate) mod units;

pub use config::{Collection, DriveConfig, Layout};
pub use presets::{PRESETS, Preset, preset};
pub use report::{DriveReport, TenantReport};

use crate::FlashError;
use crate::ftl::{Ftl, TenantId};
use ::units::Bytes;
use queues::{Slots, Tags};
use units::Units;

/// Operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Transfers data to the host.
    Read,
    /// Transfers data from the host.
    Write,
    /// Invalidates the whole pages of a range that the host no longer needs. Takes no time of units.
    Trim,
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestResult {
    /// Time at which the host gets the reply.
    pub done_ns: u64,
    /// Unit time of the request and of the garbage collection that it causes: its cost to other requests.
    pub device_ns: u64,
}

/// Number of adjacent logical pages that are sampled together in a scaled-down drive.
const SAMPLE_PAGES: u64 = 64;

/// Pages that one tenant wrote and trimmed in the unsampled part.
#[derive(Debug, Clone, Copy, Default)]
struct UnsampledPages {
    writes: u64,
    trims: u64,
}

/// Simulated drive.
#[derive(Debug, Clone)]
pub struct Drive {
    config: DriveConfig,
    ftl: Ftl,
    units: Units,
    tags: Tags,
    slots: Slots,
    page_bytes: u64,
    /// Capacity that the host sees, in bytes.
    bytes: u64,
    accept_ns: u64,
    command_ns: u64,
    last_ns: u64,
    /// Pages of each tenant as the host sees them.
    host_pages: Vec<u64>,
    read_pages: u64,
    /// Pages that tenants wrote and trimmed in the unsampled part of the drive.
    unsampled: Vec<UnsampledPages>,
    /// Pages that removed tenants wrote in the unsampled part.
    unsampled_gone: u64,
    /// Number of times the drive was overwritten during ageing, if it was aged.
    aged: Option<f64>,
    next_unit: u32,
}

impl Drive {
    /// Creates a clean drive without tenants that offers the host `bytes`. The number of erase blocks is rounded up.
    ///
    /// # Errors
    /// The configuration is invalid, or too large for the maps; then scale it down.
    pub fn new(config: DriveConfig, bytes: Bytes) -> Result<Self, FlashError> {
        config.check()?;
        let ftl = Ftl::new(config.ftl_for(bytes)?)?;
        Ok(Self::around(ftl, config, bytes))
    }

    /// Creates a drive with one address space of all `bytes` for all tenants: see [`Drive::add_tenant_by_share`].
    ///
    /// # Errors
    /// As [`Drive::new`].
    pub fn with_one_address_space(config: DriveConfig, bytes: Bytes) -> Result<Self, FlashError> {
        config.check()?;
        let pages = sampled_pages(bytes.0.div_ceil(config.page.0), config.scale);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let ftl = Ftl::with_one_address_space(config.ftl_for(bytes)?, pages)?;
        Ok(Self::around(ftl, config, bytes))
    }

    fn around(ftl: Ftl, config: DriveConfig, bytes: Bytes) -> Self {
        let units = Units::new(&config, &ftl);
        Self {
            tags: Tags::new(config.tags),
            slots: Slots::new(config.buffer_pages, config.units()),
            page_bytes: config.page.0,
            bytes: bytes.0,
            accept_ns: config.accept.0,
            command_ns: config.command.0,
            last_ns: 0,
            host_pages: Vec::new(),
            read_pages: 0,
            unsampled: Vec::new(),
            unsampled_gone: 0,
            aged: None,
            next_unit: 0,
            ftl,
            units,
            config,
        }
    }

    /// Submits a request of a tenant; `offset` is within the tenant. The part beyond its end is ignored.
    #[inline]
    pub fn submit(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
        let now = now_ns.max(self.last_ns);
        self.last_ns = now;
        let begun = self.tags.wait(now) + self.command_ns;
        let spent = self.units.spent_ns();
        let done_ns = match op {
            Op::Read => self.read(begun, tenant, offset, bytes),
            Op::Write => self.write(begun, tenant, offset, bytes),
            Op::Trim => {
                self.trim(tenant, offset, bytes);
                begun
            }
        };
        self.tags.held_until(done_ns);
        RequestResult {
            done_ns,
            device_ns: self.units.spent_ns() - spent,
        }
    }

    /// Invalidates the whole pages of a range that a tenant no longer needs. Takes no time.
    pub fn trim(&mut self, tenant: TenantId, offset: u64, bytes: u64) {
        let first = offset.div_ceil(self.page_bytes);
        let end = ((offset + bytes) / self.page_bytes).min(self.host_pages[usize::from(tenant.0)]);
        for page in first..end {
            match self.sampled(page) {
                Some(page) => self.ftl.trim(tenant, page),
                None => self.unsampled[usize::from(tenant.0)].trims += 1,
            }
        }
    }

    /// Returns the translation layer, to read its counts.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Returns the translation layer for operations that change no data: granting blocks, clearing counts.
    pub fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// Returns the configuration of the drive.
    pub fn config(&self) -> &DriveConfig {
        &self.config
    }

    #[inline]
    fn write(&mut self, begun: u64, tenant: TenantId, offset: u64, bytes: u64) -> u64 {
        let pages = self.pages(tenant, offset, bytes);
        let (first, last) = (pages.start, pages.end.saturating_sub(1));
        // A partly written page is read first, if the drive maps no smaller sectors. At most the first and the last
        // page are partial.
        let mut read = [begun; 2];
        if self.config.read_modify_write && !pages.is_empty() {
            if self.is_partial(first, offset, bytes) {
                read[0] = self.read_page(begun, tenant, first);
            }
            if last > first && self.is_partial(last, offset, bytes) {
                read[1] = self.read_page(begun, tenant, last);
            }
        }
        let mut done = begun;
        for page in pages {
            let ready = match page {
                page if page == first => read[0],
                page if page == last => read[1],
                _ => begun,
            };
            let slot = self.slots.wait(ready);
            self.units.set_now(slot + self.accept_ns);
            match self.sampled(page) {
                Some(page) => self.ftl.write(tenant, page, &mut self.units),
                None => self.write_unsampled(tenant),
            }
            let programmed = self.units.done_ns();
            done = done.max(match self.slots.is_none() {
                true => programmed,
                false => slot + self.accept_ns,
            });
            self.slots.held_until(self.units.last_unit(), programmed);
        }
        done
    }

    #[inline]
    fn read(&mut self, begun: u64, tenant: TenantId, offset: u64, bytes: u64) -> u64 {
        let mut done = begun;
        for page in self.pages(tenant, offset, bytes) {
            done = done.max(self.read_page(begun, tenant, page));
        }
        done
    }

    #[inline]
    fn read_page(&mut self, now: u64, tenant: TenantId, page: u64) -> u64 {
        self.read_pages += 1;
        self.units.set_now(now);
        match self.sampled(page).map(|p| self.ftl.read(tenant, p)) {
            Some(Some(at)) => self.units.read(at),
            // Never-written page: no cell is read, but the host still gets a page of zeros.
            Some(None) => {
                let unit = (page % self.units.len() as u64) as usize;
                self.units.transfer_only(unit)
            }
            None => {
                let unit = self.turn();
                self.units.read_at(unit)
            }
        }
    }

    fn write_unsampled(&mut self, tenant: TenantId) {
        self.unsampled[usize::from(tenant.0)].writes += 1;
        let unit = self.turn();
        self.units.program_on_average(unit);
    }

    /// Returns the next unit in turn, for unsampled pages.
    fn next_turn(&self) -> usize {
        (self.next_unit as usize + 1) % self.units.len()
    }

    fn turn(&mut self) -> usize {
        let unit = self.next_turn();
        self.next_unit = unit as u32;
        unit
    }

    /// Returns the pages that a range touches, within the tenant.
    #[inline]
    fn pages(&self, tenant: TenantId, offset: u64, bytes: u64) -> std::ops::Range<u64> {
        let end = self.host_pages[usize::from(tenant.0)];
        let first = offset / self.page_bytes;
        let last = (offset + bytes).div_ceil(self.page_bytes);
        first.min(end)..last.min(end)
    }

    fn is_partial(&self, page: u64, offset: u64, bytes: u64) -> bool {
        let begin = page * self.page_bytes;
        offset > begin || offset + bytes < begin + self.page_bytes
    }

    /// Returns the page of the translation layer that represents a page, if it is sampled.
    #[inline]
    fn sampled(&self, page: u64) -> Option<u32> {
        let scale = u64::from(self.config.scale);
        if scale == 1 {
            return Some(page as u32);
        }
        let (chunk, within) = (page / SAMPLE_PAGES, page % SAMPLE_PAGES);
        chunk
            .is_multiple_of(scale)
            .then_some((chunk / scale * SAMPLE_PAGES + within) as u32)
    }
}

/// Returns the number of sampled pages among the first `pages` pages.
fn sampled_pages(pages: u64, scale: u32) -> u64 {
    let scale = u64::from(scale);
    let (chunks, rest) = (pages / SAMPLE_PAGES, pages % SAMPLE_PAGES);
    let last = if chunks.is_multiple_of(scale) {
        rest
    } else {
        0
    };
    chunks.div_ceil(scale) * SAMPLE_PAGES + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ageing_initializes_the_collection_cost() {
        for name in ["paper4", "tlc-nvme"] {
            let config = DriveConfig {
                scale: 4,
                pages_per_block: 16,
                ..preset(name).unwrap()
            };
            let bytes = Bytes(2 << 30);
            let mut drive = Drive::new(config, bytes).unwrap();
            let tenant = drive.add_tenant(bytes, 0.0).unwrap();
            drive.age(3.0);
            let learned = drive.units.mean_cost();
            assert!(learned > 0.0, "{name}");
            assert_eq!(drive.report().waf, None, "{name}: ageing does not count");
            // Cost that collection has afterwards, over as many writes as the drive has pages.
            let mut random = algo::Rng::new(1, 1);
            let (mut done, mut pages) = (0, 0);
            while pages < bytes.0 / 4096 {
                let offset = random.below(bytes.0 / 4096) * 4096;
                done = drive.submit(done, tenant, Op::Write, offset, 4096).done_ns;
                pages += 1;
            }
            let shown = drive.units.mean_cost();
            assert!(
                (learned / shown - 1.0).abs() < 0.15,
                "{name}: {learned} {shown}"
            );
        }
    }
}
