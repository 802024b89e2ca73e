//! A drive with time: parallel units, channels, write buffer and tags around the translation layer.
//!
//! ```text
//!  request ─▶ tag (one of 32, or the only one) ─▶ pages ─┬ write: buffer slot ─▶ done for the host
//!                                                         │            └▶ channel ─▶ unit: debt of collection, program
//!                                                         └ read: unit: sense ─▶ channel ─▶ done
//! ```
//!
//! Each unit and each channel is one number: until when it is busy. A request's completion is known when it is submitted, so there is no
//! event queue, and nothing is allocated per request. What that gives up is stated at [`units`] and measured against
//! [`crate::event`], which has queues for everything.
//!
//! Requests must come in order of time; one that does not is treated as arriving with the one before.
//!
//! # As a device of an array
//! [`Drive::new`] with a configuration from [`preset`] and the capacity that the host sees; [`Drive::add_tenant`] for each tenant (or once,
//! with all of it); [`Drive::age`]; then [`Drive::submit`] and [`Drive::trim`]; [`Drive::report`] at the end. Large drives are scaled down by
//! [`DriveConfig::scale`]: see there.

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

/// What a host asks of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Data to the host.
    Read,
    /// Data from the host.
    Write,
    /// The host no longer needs a range: whole pages of it are void. Takes no time of units.
    Trim,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When the host has its answer.
    pub done_ns: u64,
    /// Time of units that the request took or will take, with the collection that it set off: what it costs others.
    pub device_ns: u64,
}

/// Logical pages that are sampled together when a drive is scaled down.
const SAMPLE_PAGES: u64 = 64;

/// Pages that one tenant wrote and trimmed where nothing is sampled.
#[derive(Debug, Clone, Copy, Default)]
struct Unsampled {
    writes: u64,
    trims: u64,
}

/// One drive.
#[derive(Debug, Clone)]
pub struct Drive {
    config: DriveConfig,
    ftl: Ftl,
    units: Units,
    tags: Tags,
    slots: Slots,
    page_bytes: u64,
    /// Capacity that the host sees, bytes.
    bytes: u64,
    accept_ns: u64,
    command_ns: u64,
    last_ns: u64,
    /// Pages of the tenants as the host sees them.
    host_pages: Vec<u64>,
    read_pages: u64,
    /// What tenants wrote and trimmed in parts of the drive that are not sampled.
    unsampled: Vec<Unsampled>,
    /// Pages that those who left wrote there.
    unsampled_gone: u64,
    /// How often the drive was overwritten, if it was aged.
    aged: Option<f64>,
    next_unit: u32,
}

impl Drive {
    /// A clean drive that shows the host `bytes`, without tenants. Erase blocks are rounded up.
    ///
    /// # Errors
    /// When the configuration is not one of a drive that works, or is too large for the maps: scale it down.
    pub fn new(config: DriveConfig, bytes: Bytes) -> Result<Self, FlashError> {
        config.check()?;
        let ftl = Ftl::new(config.ftl_for(bytes)?)?;
        Ok(Self::around(ftl, config, bytes))
    }

    /// The same with one address space of all `bytes`, which every tenant addresses: see [`Drive::add_tenant_by_share`].
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

    /// A request of a tenant; `offset` is within the tenant. What is beyond its end is left out.
    #[inline]
    pub fn submit(
        &mut self,
        now_ns: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> Served {
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
        Served {
            done_ns,
            device_ns: self.units.spent_ns() - spent,
        }
    }

    /// A tenant no longer needs a range: whole pages of it are void. Takes no time.
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

    /// The translation layer, for its counts.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// The translation layer, for what changes no data: granting blocks, clearing counts.
    pub fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// What it was made from.
    pub fn config(&self) -> &DriveConfig {
        &self.config
    }

    #[inline]
    fn write(&mut self, begun: u64, tenant: TenantId, offset: u64, bytes: u64) -> u64 {
        let pages = self.pages(tenant, offset, bytes);
        let (first, last) = (pages.start, pages.end.saturating_sub(1));
        // A page that is written in part is read first, where the drive has no smaller sectors to map: at most the first and the last one.
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
            // Never written: the map knows, no cell is asked, but the host gets a page of zeros all the same.
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

    /// The unit whose turn it is where nothing is sampled.
    fn next_turn(&self) -> usize {
        (self.next_unit as usize + 1) % self.units.len()
    }

    fn turn(&mut self) -> usize {
        let unit = self.next_turn();
        self.next_unit = unit as u32;
        unit
    }

    /// Pages that a range touches, within the tenant.
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

    /// The page of the translation layer that stands for a page, if it is sampled.
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

/// How many of the first `pages` pages are sampled.
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
    fn ageing_teaches_what_collection_costs() {
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
            // What collection then shows, over as many writes as the drive has pages.
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
