//! Page-mapped flash translation layer: map from logical to physical pages, and garbage collection.
//!
//! ```text
//!  logical page ──l2p──▶ physical page = erase block × stride + position ──p2l──▶ logical page
//!                        valid if and only if l2p[p2l[p]] = p: no other state per page
//! ```
//!
//! The layer has no notion of time. It reports every program, copy and erase to [`FlashWork`], which a timing model
//! implements. The state takes 4 bytes per logical page, 4 per physical page, and some dozens per block.
//!
//! Simplifications: no bad blocks, no partial pages, no mapping traffic (the whole map is in memory). Wear is levelled
//! only by the first-in-first-out order of free blocks, and collection begins and ends in the middle of a write.

mod account;
mod blocks;
mod by_share;
mod collect;
mod config;
mod pool;
mod precondition;
mod share;
mod verify;

pub use account::{Moves, TenantCounts, Wear};
pub use by_share::OpsShare;
pub use config::{FtlConfig, LANES_MAX, PAGES_MAX, Sharing, Streams, TENANTS_MAX, Victim};
pub use share::{TenantId, TenantSpec};

use std::fmt;

use crate::FlashError;
use account::Account;
use blocks::{Block, Life, NIL};
use pool::Pool;
use share::Tenant;

/// Receiver of flash operations. Physical pages are `block × Ftl::stride() + position`.
pub trait FlashWork {
    /// A page of the host was programmed.
    fn programmed(&mut self, page: u32);
    /// Pages of `block` were read and programmed again, from `to` on. The upper half of each survivor is its position
    /// in `block`.
    fn copied(&mut self, block: u32, survivors: &[u64], to: u32);
    /// The summary page of a block was programmed.
    fn summarized(&mut self, block: u32);
    /// A block was erased. It had `valid` pages when it was selected.
    fn erased(&mut self, block: u32, valid: u32);
}

/// Receiver that ignores all operations, for callers that only need the counts.
impl FlashWork for () {
    #[inline]
    fn programmed(&mut self, _: u32) {}
    #[inline]
    fn copied(&mut self, _: u32, _: &[u64], _: u32) {}
    #[inline]
    fn summarized(&mut self, _: u32) {}
    #[inline]
    fn erased(&mut self, _: u32, _: u32) {}
}

/// Number of requests whose map entries are touched in advance, so that their cache misses overlap.
const AHEAD: usize = 32;

/// Translation layer of one drive.
#[derive(Clone)]
pub struct Ftl {
    config: FtlConfig,
    /// Number of bits for a position in a block.
    shift: u32,
    /// Number of data pages in a block.
    data_pages: u32,
    l2p: Box<[u32]>,
    p2l: Box<[u32]>,
    blocks: Box<[Block]>,
    lives: Box<[Life]>,
    pools: Vec<Pool>,
    tenants: Vec<Tenant>,
    /// Owner of each run of `1 << chunk_shift` logical pages.
    owners: Box<[u8]>,
    chunk_shift: u32,
    /// Number of live tenants. With one tenant, counts by owner are skipped.
    live_tenants: u32,
    /// Number of pages of the address space that all tenants share, if there is one.
    common: Option<u32>,
    /// Target number of blocks of each tenant in a lane, if it follows data and shares.
    aims: Vec<u32>,
    account: Account,
    /// Number of host writes so far: the clock for ages.
    clock: u64,
    /// Mean life of collected short-lived blocks, for [`Streams::HotAndCold`].
    short_life: f64,
    random: algo::Rng,
    /// Survivors of a victim: position in the upper half, logical page in the lower.
    survivors: Vec<u64>,
}

/// Omits the maps, which have millions of entries.
impl fmt::Debug for Ftl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Ftl");
        out.field("config", &self.config)
            .field("tenants", &self.tenants);
        out.finish_non_exhaustive()
    }
}

impl Ftl {
    /// Creates an empty drive without tenants.
    ///
    /// # Errors
    /// The configuration is invalid; see [`FtlConfig::check`].
    pub fn new(config: FtlConfig) -> Result<Self, FlashError> {
        Self::with_addresses(config, None)
    }

    /// Creates a drive with an address space for each tenant, or with one of `common` pages for all.
    fn with_addresses(config: FtlConfig, common: Option<u32>) -> Result<Self, FlashError> {
        config.check()?;
        let lanes = config.lanes;
        let stride = config.pages_per_block.next_power_of_two();
        let pages = config.host_pages();
        if config.sharing != Sharing::Isolated {
            pool::check_room(&config, config.blocks / lanes, pages.div_ceil(lanes.into()))?;
        }
        // Fine enough that tenants lose little to rounding, coarse enough that the owners fit in a cache.
        let chunk = match common {
            None => (pages >> 12).next_power_of_two().clamp(1, 64),
            Some(_) => 1,
        };
        let slots = (pages.next_multiple_of(chunk) + chunk * u64::from(TENANTS_MAX)) as usize;
        let mut pools: Vec<Pool> = (0..lanes).map(|_| Pool::new(&config)).collect();
        let mut blocks: Vec<Block> = Vec::with_capacity(config.blocks as usize);
        let mut lives = vec![Life::default(); config.blocks as usize];
        for block in 0..config.blocks {
            let pool = (block % lanes) as u16;
            blocks.push(Block::free(pool));
            pools[usize::from(pool)].take_in(block, &mut lives);
        }
        Ok(Self {
            shift: stride.trailing_zeros(),
            data_pages: config.data_pages(),
            l2p: vec![NIL; slots].into(),
            p2l: vec![0; config.blocks as usize * stride as usize].into(),
            blocks: blocks.into(),
            lives: lives.into(),
            pools,
            tenants: Vec::new(),
            owners: vec![share::NOBODY; slots / chunk as usize].into(),
            chunk_shift: chunk.trailing_zeros(),
            live_tenants: 0,
            common,
            aims: Vec::new(),
            account: Account::default(),
            clock: 0,
            short_life: f64::INFINITY,
            random: algo::Rng::new(config.seed, 0xF1A5),
            survivors: vec![0; config.pages_per_block as usize],
            config,
        })
    }

    /// Creates a drive with one tenant that has all pages.
    ///
    /// # Errors
    /// As [`Ftl::new`] and [`Ftl::add_tenant`].
    pub fn with_one_tenant(config: FtlConfig) -> Result<(Self, TenantId), FlashError> {
        let (lanes, pages) = (u64::from(config.lanes), config.host_pages());
        let mut ftl = Self::new(config)?;
        let data = pages.div_ceil(lanes).div_ceil(ftl.data_pages.into());
        let spare = u64::from(ftl.config.blocks) / lanes - data;
        let tenant = ftl.add_tenant(TenantSpec {
            pages: pages as u32,
            spare_blocks: spare as u32,
        })?;
        Ok((ftl, tenant))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &FtlConfig {
        &self.config
    }

    /// Returns the distance between the physical page numbers of two consecutive blocks.
    pub fn stride(&self) -> u32 {
        1 << self.shift
    }

    /// Writes a page of a tenant. The caller must pass a page inside the tenant's range.
    #[inline]
    pub fn write<W: FlashWork>(&mut self, tenant: TenantId, page: u32, work: &mut W) {
        let (logical, place) = self.locate(tenant, page);
        if self.common.is_some() {
            self.claim(logical, tenant, place.pool);
        }
        let stream = self.host_stream(place.handle, logical);
        if !self.pools[place.pool].has_open(stream) {
            self.open_for_host(place.pool, stream, tenant, work);
        }
        self.void(logical, tenant);
        let at = self.append(place.pool, stream, logical, work);
        work.programmed(at);
        self.clock += 1;
        self.account.host_write(tenant);
    }

    /// Writes many pages in this order. Faster than single writes, because the map entries are prefetched.
    pub fn write_all<W: FlashWork>(&mut self, tenant: TenantId, pages: &[u32], work: &mut W) {
        let first = self.tenants[usize::from(tenant.0)].first as usize;
        for some in pages.chunks(AHEAD) {
            let mut touched = 0;
            for page in some {
                touched ^= self.l2p.get(first + *page as usize).copied().unwrap_or(0);
            }
            // Without this, the compiler would remove the loads and their overlap.
            std::hint::black_box(touched);
            for page in some {
                self.write(tenant, *page, work);
            }
        }
    }

    /// Returns the physical page of a page; `None` if it was never written or is trimmed.
    #[inline]
    pub fn read(&self, tenant: TenantId, page: u32) -> Option<u32> {
        let (logical, _) = self.locate(tenant, page);
        let at = self.l2p[logical as usize];
        (at != NIL).then_some(at)
    }

    /// Returns the physical page that a write of the page would program now, if nothing is collected before.
    #[inline]
    pub(crate) fn place_of_write(&self, tenant: TenantId, page: u32) -> Option<u32> {
        let (logical, place) = self.locate(tenant, page);
        let stream = self.host_stream(place.handle, logical);
        let pool = &self.pools[place.pool];
        if pool.has_open(stream) {
            let open = pool.opens[stream];
            return Some((open.block << self.shift) + open.next);
        }
        pool.free.front().map(|block| block << self.shift)
    }

    /// Trims a page that the host no longer needs.
    pub fn trim(&mut self, tenant: TenantId, page: u32) {
        let (logical, _) = self.locate(tenant, page);
        if self.l2p[logical as usize] != NIL {
            match self.common {
                None => self.unmap(logical, tenant),
                Some(_) => self.disown(logical),
            }
        }
        self.account.trim(tenant);
    }

    /// Removes the mapping of a page with data.
    fn unmap(&mut self, logical: u32, tenant: TenantId) {
        self.void(logical, tenant);
        self.l2p[logical as usize] = NIL;
        self.account.mapped(tenant, -1);
    }

    /// Returns the lane of a physical page's block.
    #[inline]
    pub fn lane_of(&self, page: u32) -> u32 {
        (page >> self.shift) % self.config.lanes
    }

    #[inline]
    fn locate(&self, tenant: TenantId, page: u32) -> (u32, Place) {
        let t = &self.tenants[usize::from(tenant.0)];
        assert!(
            page < t.pages,
            "page {page} is outside the tenant's {} pages",
            t.pages
        );
        let logical = t.first + page;
        let lane = match self.config.lanes {
            1 => 0,
            lanes => (logical % lanes) as usize,
        };
        let place = Place {
            pool: t.pool as usize + lane,
            handle: t.handle,
        };
        (logical, place)
    }

    /// Invalidates the present copy of a page, if there is one.
    #[inline]
    fn void(&mut self, logical: u32, tenant: TenantId) {
        let old = self.l2p[logical as usize];
        if old == NIL {
            self.account.mapped(tenant, 1);
            return;
        }
        let block = old >> self.shift;
        if self.config.victim == Victim::CostBenefit {
            self.lives[block as usize].touched = self.clock;
        }
        let entry = &mut self.blocks[block as usize];
        if entry.is_sealed() {
            let buckets = &mut self.pools[usize::from(entry.pool)].buckets;
            buckets.unlink(&mut self.blocks, block);
            self.blocks[block as usize].valid -= 1;
            buckets.link(&mut self.blocks, block);
        } else {
            entry.valid -= 1;
        }
    }

    /// Appends a page to an open block, which is sealed when it is full.
    #[inline]
    fn append<W: FlashWork>(
        &mut self,
        pool: usize,
        stream: usize,
        logical: u32,
        work: &mut W,
    ) -> u32 {
        let open = &mut self.pools[pool].opens[stream];
        let at = (open.block << self.shift) + open.next;
        open.next += 1;
        let full = open.next == self.data_pages;
        self.l2p[logical as usize] = at;
        self.p2l[at as usize] = logical;
        self.blocks[open.block as usize].valid += 1;
        if full {
            self.seal(pool, stream, work);
        }
        at
    }

    #[cold]
    fn seal<W: FlashWork>(&mut self, pool: usize, stream: usize, work: &mut W) {
        let pool = &mut self.pools[pool];
        let block = pool.close(stream);
        pool.buckets.link(&mut self.blocks, block);
        if self.config.summary_page {
            self.account.summaries += 1;
            work.summarized(block);
        }
    }

    #[inline]
    fn host_stream(&self, handle: u16, logical: u32) -> usize {
        let handle = usize::from(handle);
        match self.config.streams {
            Streams::One | Streams::HostAndCollected => handle,
            Streams::HotAndCold => 2 * handle + usize::from(!self.is_short_lived(logical)),
        }
    }

    /// Classifies a write by the age of the copy that it overwrites.
    fn is_short_lived(&self, logical: u32) -> bool {
        let old = self.l2p[logical as usize];
        if old == NIL {
            return false;
        }
        let opened = self.lives[(old >> self.shift) as usize].opened;
        ((self.clock - opened) as f64) < self.short_life
    }

    /// Returns the bytes of state, including the maps, per data page of the flash.
    pub fn bytes_per_page(&self) -> f64 {
        let maps = 4 * (self.l2p.len() + self.p2l.len()) + self.owners.len();
        let blocks = self.blocks.len() * (size_of::<Block>() + size_of::<Life>());
        let pools: usize = self.pools.iter().map(Pool::bytes).sum();
        let rest = size_of::<Self>() + 8 * self.survivors.len() + self.account.bytes();
        let pages = f64::from(self.config.blocks) * f64::from(self.config.data_pages());
        (maps + blocks + pools + rest) as f64 / pages
    }
}

/// Destination of a tenant's page.
#[derive(Debug, Clone, Copy)]
struct Place {
    pool: usize,
    handle: u16,
}
