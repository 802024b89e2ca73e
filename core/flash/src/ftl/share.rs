//! Tenants: addition, removal, and transfer of erase blocks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::by_share::OpsShare;
use super::config::TENANTS_MAX;
use super::pool::{Pool, check_room};
use super::{FlashWork, Ftl, Sharing};
use crate::FlashError;

/// Owner of logical pages without a tenant.
pub(super) const NOBODY: u8 = u8::MAX;

/// Number of a tenant on its drive. Numbers of removed tenants are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantId(pub u16);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Resources of a new tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantSpec {
    /// Number of pages of its address space.
    pub pages: u32,
    /// Number of erase blocks beyond its data, in each lane: its over-provisioned space. Ignored if tenants share one
    /// pool.
    pub spare_blocks: u32,
}

/// Address range and pool of a tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant {
    /// Its first logical page.
    pub first: u32,
    pub pages: u32,
    /// Pool of its first lane.
    pub pool: u32,
    pub handle: u16,
    /// Its share of the spare blocks, if blocks follow data and shares.
    pub ops: OpsShare,
    pub live: bool,
}

impl Ftl {
    /// Adds a tenant.
    ///
    /// # Errors
    /// No range of logical pages, no handle or not enough unowned blocks are free, or its spare blocks are too few for
    /// collection.
    pub fn add_tenant(&mut self, spec: TenantSpec) -> Result<TenantId, FlashError> {
        let (config, lanes) = (&self.config, self.config.lanes);
        let pages = spec.pages;
        if self.common.is_some() {
            return Err(FlashError::ByShare);
        }
        if pages == 0 {
            return Err(FlashError::Range {
                key: "pages of a tenant",
                value: 0.0,
                range: "1 and more",
            });
        }
        let id = self.next_tenant()?;
        let first = self.free_range(pages)?;
        let in_lane = u64::from(pages).div_ceil(lanes.into());
        let isolated = config.sharing == Sharing::Isolated;
        if !isolated {
            // The pages of each tenant in a lane are rounded up, so many tenants may exceed the drive's equal part.
            let shared = self.pools[0].pages + in_lane;
            check_room(config, config.blocks / lanes, shared)?;
        }
        if isolated {
            let needed = self.check_spec(spec)?;
            let free = |lane: u32| self.pools[lane as usize].free.len() as u64;
            let least = (0..lanes).map(free).min().unwrap_or(0);
            if needed > least {
                return Err(FlashError::NoBlocks {
                    needed: needed * u64::from(lanes),
                    free: least * u64::from(lanes),
                });
            }
            while self.pools.len() < (id + 2) * lanes as usize {
                self.pools.push(Pool::new(&self.config));
            }
            for lane in 0..lanes {
                let to = (id as u32 + 1) * lanes + lane;
                self.pass_on(lane as usize, to as usize, needed as u32);
            }
        }
        let tenant = Tenant {
            first,
            pages,
            pool: if isolated { (id as u32 + 1) * lanes } else { 0 },
            handle: match self.config.pool_handles() {
                1 => 0,
                _ => id as u16,
            },
            ops: OpsShare::ByData,
            live: true,
        };
        for lane in 0..lanes {
            self.pools[(tenant.pool + lane) as usize].pages += in_lane;
        }
        self.own(tenant, id as u8);
        Ok(self.enter(id, tenant))
    }

    /// Returns the number of the next tenant.
    pub(super) fn next_tenant(&self) -> Result<usize, FlashError> {
        let id = self.tenants.iter().position(|t| !t.live);
        let id = id.unwrap_or(self.tenants.len());
        let max = match self.config.sharing {
            Sharing::OnePool | Sharing::Isolated => TENANTS_MAX,
            Sharing::HandlesInitially | Sharing::HandlesPersistently => self.config.handles,
        };
        match id < max as usize {
            true => Ok(id),
            false => Err(FlashError::TooManyTenants { max }),
        }
    }

    /// Registers a tenant.
    pub(super) fn enter(&mut self, id: usize, tenant: Tenant) -> TenantId {
        match self.tenants.get_mut(id) {
            Some(place) => *place = tenant,
            None => self.tenants.push(tenant),
        }
        self.live_tenants += 1;
        self.account.forget(TenantId(id as u16));
        TenantId(id as u16)
    }

    /// Returns the number of blocks per lane that a tenant with its own blocks would own, if its collection works with
    /// them.
    pub(crate) fn check_spec(&self, spec: TenantSpec) -> Result<u64, FlashError> {
        let in_lane = u64::from(spec.pages).div_ceil(self.config.lanes.into());
        let data = in_lane.div_ceil(self.data_pages.into());
        let needed = data + u64::from(spec.spare_blocks);
        check_room(&self.config, needed.min(u32::MAX.into()) as u32, in_lane)?;
        Ok(needed)
    }

    /// Removes a tenant: its data is trimmed; its own blocks are erased and have no owner afterwards.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn remove_tenant<W: FlashWork>(
        &mut self,
        tenant: TenantId,
        work: &mut W,
    ) -> Result<(), FlashError> {
        let place = self.live(tenant)?;
        if self.common.is_some() {
            self.leave_common(tenant);
            return Ok(());
        }
        for page in 0..place.pages {
            self.trim(tenant, page);
        }
        let lanes = self.config.lanes;
        for lane in 0..lanes as usize {
            let pool = place.pool as usize + lane;
            self.pools[pool].pages -= u64::from(place.pages).div_ceil(lanes.into());
            if self.config.sharing == Sharing::Isolated {
                self.empty(pool, tenant, work);
                let all = self.pools[pool].free.len() as u32;
                self.pass_on(pool, lane, all);
            }
        }
        self.own(place, NOBODY);
        self.tenants[usize::from(tenant.0)].live = false;
        self.live_tenants -= 1;
        Ok(())
    }

    /// Returns the number of blocks of a tenant beyond its data, in each lane.
    ///
    /// # Errors
    /// The tenant does not exist, or tenants have no blocks of their own.
    pub fn spare_blocks(&self, tenant: TenantId) -> Result<u32, FlashError> {
        let place = self.live(tenant)?;
        if self.config.sharing != Sharing::Isolated {
            return Err(FlashError::NotIsolated);
        }
        let pool = &self.pools[place.pool as usize];
        let data = pool.pages.div_ceil(self.data_pages.into());
        Ok(pool.members.len() as u32 - data as u32)
    }

    /// Returns the number of blocks per lane that a tenant's data would fill; 0 for an unknown tenant.
    pub fn data_blocks(&self, tenant: TenantId) -> u32 {
        let pages = self.live(tenant).map(|t| self.pools[t.pool as usize].pages);
        pages.unwrap_or(0).div_ceil(self.data_pages.into()) as u32
    }

    /// Returns the number of spare blocks per lane that a tenant can give away. Its own collection needs the others.
    ///
    /// # Errors
    /// As [`Ftl::spare_blocks`].
    pub fn spare_blocks_to_give(&self, tenant: TenantId) -> Result<u32, FlashError> {
        let spare = self.spare_blocks(tenant)?;
        let pool = self.live(tenant)?.pool as usize;
        let blocks = self.pools[pool].members.len() as u32;
        Ok(spare.saturating_sub(self.config.spare_blocks_min(blocks) + 1))
    }

    /// Transfers `blocks` erase blocks of each lane from one tenant to another one, or to no owner. The donor first
    /// collects until the blocks are free; `work` receives these operations, and they are counted for the donor.
    ///
    /// # Errors
    /// Tenants have no blocks of their own, or the donor's collection could not continue without these blocks.
    pub fn hand_over<W: FlashWork>(
        &mut self,
        donor: TenantId,
        recipient: Option<TenantId>,
        blocks: u32,
        work: &mut W,
    ) -> Result<(), FlashError> {
        let from = self.live(donor)?;
        self.check_owned()?;
        let to = match recipient {
            Some(tenant) => self.live(tenant)?.pool as usize,
            None => 0,
        };
        for lane in 0..self.config.lanes as usize {
            let pool = &self.pools[from.pool as usize + lane];
            let left = (pool.members.len() as u32).saturating_sub(blocks);
            check_room(&self.config, left, pool.pages)?;
        }
        for lane in 0..self.config.lanes as usize {
            let pool = from.pool as usize + lane;
            // The reserve for the remaining blocks; the reserve for all present blocks might never be free.
            let left = self.pools[pool].members.len() as u32 - blocks;
            let free = self.config.reserve_of(left) + blocks;
            while self.pools[pool].free.len() < free as usize {
                self.collect(pool, donor, work);
            }
            self.pass_on(pool, to + lane, blocks);
        }
        Ok(())
    }

    /// Adds blocks without an owner to a tenant's spare space.
    ///
    /// # Errors
    /// Tenants have no blocks of their own, or fewer blocks are without an owner.
    pub fn grant(&mut self, tenant: TenantId, blocks: u32) -> Result<(), FlashError> {
        let place = self.live(tenant)?;
        self.check_owned()?;
        let free = self.unowned_blocks();
        if blocks > free {
            let lanes = u64::from(self.config.lanes);
            return Err(FlashError::NoBlocks {
                needed: u64::from(blocks) * lanes,
                free: u64::from(free) * lanes,
            });
        }
        for lane in 0..self.config.lanes as usize {
            self.pass_on(lane, place.pool as usize + lane, blocks);
        }
        Ok(())
    }

    /// Returns the number of blocks without an owner, in each lane; 0 if tenants share one pool.
    pub fn unowned_blocks(&self) -> u32 {
        if self.config.sharing != Sharing::Isolated {
            return 0;
        }
        let lanes = self.pools.iter().take(self.config.lanes as usize);
        lanes.map(|p| p.members.len() as u32).min().unwrap_or(0)
    }

    /// Checks that tenants own blocks that change owner only by a transfer.
    fn check_owned(&self) -> Result<(), FlashError> {
        match self.config.sharing {
            Sharing::Isolated if self.common.is_some() => Err(FlashError::ByShare),
            Sharing::Isolated => Ok(()),
            _ => Err(FlashError::NotIsolated),
        }
    }

    /// Returns the present tenants.
    pub fn tenants(&self) -> impl Iterator<Item = TenantId> + '_ {
        let all = self.tenants.iter().enumerate();
        all.filter(|(_, t)| t.live).map(|(i, _)| TenantId(i as u16))
    }

    /// Returns the number of pages of a tenant's address space.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn pages_of(&self, tenant: TenantId) -> Result<u32, FlashError> {
        Ok(self.live(tenant)?.pages)
    }

    pub(super) fn live(&self, tenant: TenantId) -> Result<Tenant, FlashError> {
        let place = self.tenants.get(usize::from(tenant.0));
        place
            .filter(|t| t.live)
            .copied()
            .ok_or(FlashError::NoTenant(tenant.0))
    }

    /// Changes the owner of free blocks.
    pub(super) fn pass_on(&mut self, from: usize, to: usize, blocks: u32) {
        for _ in 0..blocks {
            let block = self.pools[from].give_up(&mut self.lives);
            let block = block.expect("as many blocks are free as were counted");
            self.blocks[block as usize].pool = to as u16;
            self.pools[to].take_in(block, &mut self.lives);
        }
    }

    /// Erases all blocks of a pool that have no valid page.
    fn empty<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        for stream in 0..self.pools[pool].opens.len() {
            if self.pools[pool].has_open(stream) {
                let block = self.pools[pool].close(stream);
                self.erase(pool, block, tenant, 0, work);
            }
        }
        while let Some(block) = self.pools[pool].buckets.fewest() {
            self.pools[pool].buckets.unlink(&mut self.blocks, block);
            self.erase(pool, block, tenant, 0, work);
        }
    }

    fn own(&mut self, tenant: Tenant, owner: u8) {
        let first = tenant.first >> self.chunk_shift;
        let last = (tenant.first + tenant.pages - 1) >> self.chunk_shift;
        self.owners[first as usize..=last as usize].fill(owner);
    }

    /// Returns the first of `pages` consecutive logical pages without an owner. The drive never promises more than its
    /// host pages.
    fn free_range(&self, pages: u32) -> Result<u32, FlashError> {
        let taken: u64 = self
            .tenants
            .iter()
            .filter(|t| t.live)
            .map(|t| u64::from(t.pages))
            .sum();
        let left = self.config.host_pages().saturating_sub(taken);
        let chunks = u64::from(pages).div_ceil(1 << self.chunk_shift);
        let (mut run, mut largest) = (0, 0);
        for (i, owner) in self.owners.iter().enumerate() {
            run = if *owner == NOBODY { run + 1 } else { 0 };
            largest = run.max(largest);
            if run == chunks && u64::from(pages) <= left {
                return Ok((i as u32 + 1 - chunks as u32) << self.chunk_shift);
            }
        }
        Err(FlashError::NoSpace {
            pages: pages.into(),
            largest: left.min(largest << self.chunk_shift),
        })
    }
}
