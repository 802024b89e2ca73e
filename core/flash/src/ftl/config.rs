//! Geometry and methods of a flash translation layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::FlashError;

/// Selection of the next sealed erase block for garbage collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The block with the fewest valid pages. Best for uniform traffic; with hot and cold data it collects hot
    /// blocks too early.
    #[default]
    Greedy,
    /// The block with the largest age × (1 − u) / 2u, where u is its share of valid pages (Kawaguchi, Nishioka,
    /// Motoda, USENIX 1995). Age is the time, in host writes, since one of its pages was last invalidated. Best for
    /// hot and cold data.
    CostBenefit,
    /// The block with the fewest valid pages among this number of random blocks (Van Houdt, SIGMETRICS 2013). It
    /// needs little state in firmware; with ten, results are within a few percent of greedy.
    Choices(u8),
}

/// Pages that may share an erase block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Streams {
    /// All pages: one open block for host writes and collected pages.
    #[default]
    One,
    /// Host writes and collected pages have separate blocks.
    HostAndCollected,
    /// Like `host-and-collected`, and host writes are separated by lifetime, with the rule of SepBIT (FAST 2022) for
    /// blocks. A page counts as short-lived if the page that it overwrites was younger than the mean life of
    /// collected short-lived blocks.
    HotAndCold,
}

/// Method by which tenants share erase blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One pool, and blocks with pages of all tenants, as in drives on the market.
    #[default]
    OnePool,
    /// Each tenant owns its erase blocks and their spare space. Garbage collection of one tenant moves no data of
    /// another (paper 4).
    Isolated,
    /// One pool with separate open blocks for the writes of each tenant, as with reclaim-unit handles of NVMe
    /// flexible data placement. Collected pages of all tenants share blocks ("initially isolated").
    HandlesInitially,
    /// Like `handles-initially`, and collected pages have separate blocks per tenant ("persistently isolated").
    /// Spare space is shared.
    HandlesPersistently,
}

/// Geometry and methods of a flash translation layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FtlConfig {
    /// Number of erase blocks, including spare ones.
    pub blocks: u32,
    /// Number of pages in an erase block.
    pub pages_per_block: u32,
    /// Spare share of all data pages (S_f), including reserve blocks. Hosts see the rest.
    pub spare_share: f64,
    /// Number of free erase blocks below which garbage collection starts, for each lane of a pool that covers the
    /// drive. Smaller pools keep a proportional number.
    pub reserve_blocks: u32,
    /// Selection of blocks for garbage collection.
    pub victim: Victim,
    /// Separation of pages within a pool.
    pub streams: Streams,
    /// Method by which tenants share erase blocks.
    pub sharing: Sharing,
    /// If true, the last page of each block holds a summary instead of data, and its program operation is counted
    /// (SSD extension of DiskSim).
    pub summary_page: bool,
    /// Number of independent parts with their own garbage collection; pages are distributed to them in turn. 1 if
    /// an erase block spans the drive.
    pub lanes: u32,
    /// Largest number of tenants with their own open blocks in one pool (reclaim-unit handles).
    pub handles: u32,
    /// Seed of random numbers, for the choice of victims and for preconditioning.
    pub seed: u64,
}

impl Default for FtlConfig {
    fn default() -> Self {
        Self {
            blocks: 2048,
            pages_per_block: 128,
            spare_share: 0.1,
            reserve_blocks: 2,
            victim: Victim::default(),
            streams: Streams::default(),
            sharing: Sharing::default(),
            summary_page: false,
            lanes: 1,
            handles: 1,
            seed: 1,
        }
    }
}

/// Maximum number of pages (valid or invalid) that the maps can number.
pub const PAGES_MAX: u64 = 1 << 31;
/// Maximum number of tenants at a time.
pub const TENANTS_MAX: u32 = 64;
/// Maximum number of independent lanes.
pub const LANES_MAX: u32 = 512;

impl FtlConfig {
    /// Checks that the values are in range and consistent.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), FlashError> {
        let range = |key, value: f64, ok, range| match ok {
            true => Ok(()),
            false => Err(FlashError::Range { key, value, range }),
        };
        let pages = self.pages_per_block;
        range(
            "blocks",
            f64::from(self.blocks),
            self.blocks >= 8,
            "8 and more",
        )?;
        range(
            "pages_per_block",
            f64::from(pages),
            (4..=32_768).contains(&pages),
            "4..=32768",
        )?;
        let spare = self.spare_share;
        range(
            "spare_share",
            spare,
            (0.001..=0.95).contains(&spare),
            "0.001..=0.95",
        )?;
        let lanes = self.lanes;
        range(
            "lanes",
            f64::from(lanes),
            (1..=LANES_MAX).contains(&lanes),
            "1..=512",
        )?;
        range(
            "lanes",
            f64::from(lanes),
            self.blocks.is_multiple_of(lanes) && self.blocks / lanes >= 8,
            "a divisor of blocks, with 8 blocks and more in each lane",
        )?;
        let handles = self.handles;
        range(
            "handles",
            f64::from(handles),
            (1..=TENANTS_MAX).contains(&handles),
            "1..=64",
        )?;
        if let Victim::Choices(d) = self.victim {
            range("choices", f64::from(d), d >= 1, "1..=255")?;
        }
        let slots = u64::from(self.blocks) * u64::from(pages.next_power_of_two());
        if slots > PAGES_MAX {
            return Err(FlashError::TooManyPages {
                blocks: self.blocks.into(),
                pages: pages.into(),
                max: PAGES_MAX,
            });
        }
        let destinations = self.collected_streams();
        if self.reserve_blocks < destinations + 1 {
            return Err(FlashError::ReserveTooSmall {
                reserve: self.reserve_blocks,
                destinations,
                needed: destinations + 1,
            });
        }
        Ok(())
    }

    /// Returns the number of data pages in an erase block.
    pub fn data_pages(&self) -> u32 {
        self.pages_per_block - u32::from(self.summary_page)
    }

    /// Returns the number of pages that the host can have data in, for all tenants together, without losses by
    /// rounding.
    pub fn host_pages(&self) -> u64 {
        let all = u64::from(self.blocks) * u64::from(self.data_pages());
        ((1.0 - self.spare_share) * all as f64) as u64
    }

    /// Returns the number of handles of one pool.
    pub(super) fn pool_handles(&self) -> u32 {
        match self.sharing {
            Sharing::OnePool | Sharing::Isolated => 1,
            Sharing::HandlesInitially | Sharing::HandlesPersistently => self.handles,
        }
    }

    /// Returns the number of streams of one handle for host writes.
    pub(super) fn host_kinds(&self) -> u32 {
        match self.streams {
            Streams::One | Streams::HostAndCollected => 1,
            Streams::HotAndCold => 2,
        }
    }

    /// Returns the number of streams of one pool that collection writes to.
    pub(super) fn collected_streams(&self) -> u32 {
        let handles = match self.sharing {
            Sharing::HandlesPersistently => self.handles,
            // With one stream, collected pages go back to the host's open block of the first handle.
            _ => 1,
        };
        handles * self.host_kinds()
    }

    /// Raises the reserve to the minimum for the streams of collection: one free block for each, and one more.
    #[must_use]
    pub fn with_reserve_for_streams(mut self) -> Self {
        self.reserve_blocks = self.reserve_blocks.max(self.collected_streams() + 1);
        self
    }

    /// Returns the total number of streams of one pool.
    pub(super) fn pool_streams(&self) -> u32 {
        match self.streams {
            Streams::One => self.pool_handles(),
            _ => self.pool_handles() * self.host_kinds() + self.collected_streams(),
        }
    }

    /// Returns the number of free blocks below which a pool with `blocks` blocks per lane collects: its part of the
    /// drive's reserve, and at least one for each stream that collection writes to, plus one.
    pub fn reserve_of(&self, blocks: u32) -> u32 {
        let all = u64::from(self.blocks / self.lanes).max(1);
        let part = (u64::from(self.reserve_blocks) * u64::from(blocks)).div_ceil(all);
        (part as u32).max(self.collected_streams() + 1)
    }

    /// Returns the number of blocks per lane that a pool of this size must have beyond its data: the free ones at the
    /// start of a collection, and the open ones. With no more than that, all sealed blocks could be full.
    pub fn spare_blocks_min(&self, blocks: u32) -> u32 {
        self.reserve_of(blocks) - 1 + self.pool_streams()
    }

    /// Returns the minimum number of spare blocks with which a pool with this number of data blocks can collect, for
    /// any writes.
    pub fn spare_blocks_least(&self, data: u32) -> u32 {
        let all = self.blocks / self.lanes;
        let enough = |spare: &u32| *spare > self.spare_blocks_min(data.saturating_add(*spare));
        (1..all).find(enough).unwrap_or(all)
    }
}
