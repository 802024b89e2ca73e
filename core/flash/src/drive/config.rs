//! Configuration of a simulated SSD.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::FlashError;
use crate::ftl::FtlConfig;
use crate::model::cost::PageCost;

/// Layout of erase blocks on the parallel units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// An erase block spans all units (a superblock or reclaim unit). Consecutive pages are programmed in parallel,
    /// and all units collect together.
    #[default]
    Striped,
    /// Each unit has its own log and garbage collection; logical pages are distributed to units in turn (SSD
    /// extension of DiskSim).
    PerUnit,
}

/// Timing of garbage collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The write that needs a block waits for the whole collection ("foreground").
    AtOnce,
    /// Each program operation pays a share of the cost of the last collection, and idle units collect in advance.
    #[default]
    Paced,
}

/// Configuration of a simulated SSD. Times are those of one page unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DriveConfig {
    /// Flash translation layer. Its `blocks`, `pages_per_block` and `lanes` are derived from the other keys of the
    /// drive.
    pub ftl: FtlConfig,
    /// Size of a page, the unit of mapping.
    pub page: Bytes,
    /// Number of pages in an erase block of one unit.
    pub pages_per_block: u32,
    /// Share of blocks that is kept free, and at least `ftl.reserve_blocks`. With isolated tenants, each tenant
    /// keeps a proportional part.
    pub reserve_share: f64,
    /// Number of channels. Each transfers one page at a time.
    pub channels: u32,
    /// Number of packages (dies) on each channel.
    pub packages: u32,
    /// Number of planes in each package. They are modelled as independent, which most real flash is not.
    pub planes: u32,
    /// Layout of erase blocks on the parallel units.
    pub layout: Layout,
    /// Time to read a page from its cells into the register.
    pub read: Nanos,
    /// Time to program a page from the register into its cells.
    pub program: Nanos,
    /// Time to erase a block.
    pub erase: Nanos,
    /// Time to transfer a page over a channel, without its spare bytes.
    pub transfer: Nanos,
    /// Number of spare (OOB) bytes transferred with each 512 bytes of data.
    pub oob_bytes: u32,
    /// If true, garbage collection copies pages within their plane, without transfers. This is realistic only with
    /// `layout = "per-unit"`.
    pub copy_back: bool,
    /// If true, a separate register lets transfers overlap with other operations of the unit.
    pub cache_register: bool,
    /// Timing of garbage collection.
    pub collection: Collection,
    /// Number of pages in the write buffer. 0 means no buffer: writes complete when they are programmed.
    pub buffer_pages: u32,
    /// Time to receive a page from the host.
    pub accept: Nanos,
    /// Processing time of a request before its first page.
    pub command: Nanos,
    /// Number of requests that the drive processes concurrently (NCQ). With 1, each request waits for the previous
    /// one.
    pub tags: u32,
    /// If true, partly overwritten pages are read first.
    pub read_modify_write: bool,
    /// Number of program/erase cycles of a block.
    pub endurance: u32,
    /// Sampling factor: only one in this many runs of 64 logical pages is in the translation layer, with its share
    /// of the flash. The other pages use the units in turn and pay the recent mean cost of garbage collection. 1
    /// maps all pages.
    ///
    /// Memory use falls by the factor. Write amplification is that of the sample, so hot spots of less than some
    /// thousand pages may be over- or underrated. Use it only with one pool or few, large tenants.
    pub scale: u32,
}

impl Default for DriveConfig {
    /// Configuration of paper 4's table, on one unit.
    fn default() -> Self {
        Self {
            ftl: FtlConfig {
                spare_share: 0.05,
                ..FtlConfig::default()
            },
            page: Bytes(4096),
            pages_per_block: 128,
            reserve_share: 0.0,
            channels: 1,
            packages: 1,
            planes: 1,
            layout: Layout::PerUnit,
            read: Nanos(60_000),
            program: Nanos(800_000),
            erase: Nanos(1_500_000),
            transfer: Nanos(102_000),
            oob_bytes: 0,
            copy_back: true,
            cache_register: false,
            collection: Collection::AtOnce,
            buffer_pages: 0,
            accept: Nanos(0),
            command: Nanos(0),
            tags: 32,
            read_modify_write: false,
            endurance: 3000,
            scale: 1,
        }
    }
}

/// Maximum number of parallel units.
const UNITS_MAX: u64 = 512;
/// Maximum number of pages in the write buffer.
const BUFFER_MAX: u32 = 1 << 20;
/// Maximum number of concurrent requests.
const TAGS_MAX: u32 = 1024;

impl DriveConfig {
    /// Returns the number of parallel units.
    pub fn units(&self) -> u32 {
        self.channels * self.packages * self.planes
    }

    /// Returns the transfer time of a page with its spare bytes, in nanoseconds.
    pub fn transfer_ns(&self) -> u64 {
        self.transfer.0 * u64::from(512 + self.oob_bytes) / 512
    }

    /// Returns the parameters of the cost model for one unit.
    pub fn page_cost(&self) -> PageCost {
        let us = |ns: u64| ns as f64 / 1e3;
        PageCost {
            read_us: us(self.read.0),
            program_us: us(self.program.0),
            erase_us: us(self.erase.0),
            transfer_us: us(self.transfer_ns()),
            pages: self.pages_per_block - u32::from(self.ftl.summary_page),
        }
    }

    /// Checks the ranges of all values, except those of the translation layer.
    ///
    /// # Errors
    /// The first value out of range.
    pub fn check(&self) -> Result<(), FlashError> {
        let range = |key, value: f64, ok, range| match ok {
            true => Ok(()),
            false => Err(FlashError::Range { key, value, range }),
        };
        let page = self.page.0;
        range(
            "page",
            page as f64,
            (512..=1 << 20).contains(&page),
            "512 B..=1 MiB",
        )?;
        let count = |n: u32| (1..=256).contains(&n);
        range(
            "channels",
            self.channels.into(),
            count(self.channels),
            "1..=256",
        )?;
        range(
            "packages",
            self.packages.into(),
            count(self.packages),
            "1..=256",
        )?;
        range("planes", self.planes.into(), count(self.planes), "1..=256")?;
        let units = u64::from(self.channels) * u64::from(self.packages) * u64::from(self.planes);
        range(
            "channels × packages × planes",
            units as f64,
            units <= UNITS_MAX,
            "1..=512",
        )?;
        let pages = self.pages_per_block;
        range(
            "pages_per_block",
            pages.into(),
            (4..=32_768).contains(&pages),
            "4..=32768",
        )?;
        let share = self.reserve_share;
        range(
            "reserve_share",
            share,
            (0.0..0.5).contains(&share),
            "0..0.5",
        )?;
        range(
            "oob_bytes",
            self.oob_bytes.into(),
            self.oob_bytes <= 512,
            "0..=512",
        )?;
        let buffer = self.buffer_pages;
        range(
            "buffer_pages",
            buffer.into(),
            buffer <= BUFFER_MAX,
            "0..=1048576",
        )?;
        range(
            "tags",
            self.tags.into(),
            (1..=TAGS_MAX).contains(&self.tags),
            "1..=1024",
        )?;
        range(
            "scale",
            self.scale.into(),
            (1..=65_536).contains(&self.scale),
            "1..=65536",
        )?;
        for (key, time) in [
            ("read", self.read),
            ("program", self.program),
            ("erase", self.erase),
            ("transfer", self.transfer),
            ("accept", self.accept),
            ("command", self.command),
        ] {
            range(
                key,
                time.0 as f64,
                time.0 <= 1_000_000_000,
                "0..=1 s, in nanoseconds",
            )?;
        }
        // With requests that take no time, a closed-loop load would repeat endlessly at one instant.
        range(
            "program",
            self.program.0 as f64,
            self.program.0 >= 1000,
            "1 µs and more, in nanoseconds",
        )?;
        range(
            "transfer and command",
            (self.transfer.0 + self.command.0) as f64,
            self.transfer.0 + self.command.0 > 0,
            "1 ns and more, together",
        )?;
        Ok(())
    }

    /// Returns the configuration of the translation layer for a drive that offers the host `bytes`.
    pub(crate) fn ftl_for(&self, bytes: Bytes) -> Result<FtlConfig, FlashError> {
        let units = u64::from(self.units());
        let (lanes, span) = match self.layout {
            Layout::Striped => (1, units),
            Layout::PerUnit => (units, 1),
        };
        let spare = self.ftl.spare_share;
        if !(0.001..=0.95).contains(&spare) {
            return Err(FlashError::Range {
                key: "spare_share",
                value: spare,
                range: "0.001..=0.95",
            });
        }
        let pages = u64::from(self.pages_per_block) * span;
        if pages > 32_768 {
            return Err(FlashError::Range {
                key: "pages_per_block × units",
                value: pages as f64,
                range: "4..=32768 where erase blocks span all units",
            });
        }
        let host = bytes.0.div_ceil(self.page.0).div_ceil(self.scale.into());
        let all = host as f64 / (1.0 - spare);
        let data = pages - u64::from(self.ftl.summary_page);
        let blocks = libm::ceil(all / (data * lanes) as f64) as u64 * lanes;
        if blocks / lanes < 8 {
            return Err(FlashError::TooSmall {
                blocks: blocks / lanes,
                lanes,
            });
        }
        let reserve = libm::ceil(self.reserve_share * (blocks / lanes) as f64) as u32;
        let too_many = FlashError::TooManyPages {
            blocks,
            pages,
            max: crate::ftl::PAGES_MAX,
        };
        Ok(FtlConfig {
            blocks: u32::try_from(blocks).map_err(|_| too_many)?,
            pages_per_block: pages as u32,
            lanes: lanes as u32,
            reserve_blocks: self.ftl.reserve_blocks.max(reserve),
            ..self.ftl.clone()
        })
    }
}
