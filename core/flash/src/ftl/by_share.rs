//! Tenants of one address space: each may write any page, and a page belongs to the tenant that wrote it last.
//!
//! This mode is for drives whose tenants have no fixed size, because data is created and deleted. If tenants own their
//! erase blocks, the target of a tenant is the number of blocks that its data fills, plus its share of all other
//! blocks:
//!
//! ```text
//!  ├─ data of a ─┼─ share of a ─┼──── data of b ────┼─ share of b ─┤   all blocks of a lane
//!                └──────────────┴───── spare ───────┴──────────────┘   blocks without data, including unused capacity
//! ```
//!
//! Both parts change with writes and trims, and the blocks follow. A tenant that needs a block and owns fewer than its
//! target takes one without an owner. If there is none, it takes one from the tenant that exceeds its target most. That
//! tenant's collection frees the block first, and the work is counted for that tenant. A tenant that exceeds its target
//! gives one block up with each block that it opens. So a changed share takes effect when collection has processed the
//! old blocks, not at once.
//!
//! A tenant without data owns nothing. Its share goes to the others meanwhile, in proportion to their shares.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blocks::NIL;
use super::pool::{Pool, check_room};
use super::share::{NOBODY, Tenant};
use super::{FlashWork, Ftl, FtlConfig, Sharing, TenantId};
use crate::FlashError;

/// Share of a tenant in the spare erase blocks of a drive with one address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OpsShare {
    /// Part of the blocks that given shares leave, in proportion to its data.
    #[default]
    ByData,
    /// Share of all spare blocks, 0..=1.
    Given(f64),
}

impl OpsShare {
    fn given(self) -> f64 {
        match self {
            OpsShare::Given(share) => share,
            OpsShare::ByData => 0.0,
        }
    }
}

/// Tolerance for sums of shares in floating point.
const ROUNDING: f64 = 1e-9;

impl Ftl {
    /// Creates an empty drive without tenants, all of which will address the same `pages`.
    ///
    /// # Errors
    /// As [`Ftl::new`], and if the drive has fewer pages.
    pub fn with_one_address_space(config: FtlConfig, pages: u32) -> Result<Self, FlashError> {
        let ftl = Self::with_addresses(config, Some(pages))?;
        let (all, lanes) = (ftl.config.host_pages(), ftl.config.lanes);
        if pages == 0 || u64::from(pages) > all {
            return Err(FlashError::NoSpace {
                pages: pages.into(),
                largest: all,
            });
        }
        if !ftl.follows_shares() {
            let in_lane = u64::from(pages.div_ceil(lanes));
            check_room(&ftl.config, ftl.config.blocks / lanes, in_lane)?;
        }
        Ok(ftl)
    }

    /// Adds a tenant that addresses the whole drive. Its share is ignored if tenants share one pool.
    ///
    /// # Errors
    /// The drive does not have one address space, no handle is free, the shares exceed 1, or the spare blocks are too
    /// few for the collection of this number of tenants.
    pub fn add_tenant_by_share(&mut self, ops: OpsShare) -> Result<TenantId, FlashError> {
        let pages = self.common.ok_or(FlashError::ByShare)?;
        let id = self.next_tenant()?;
        self.check_shares(&[], ops)?;
        let lanes = self.config.lanes;
        let isolated = self.follows_shares();
        if isolated {
            self.check_spare_for(self.live_tenants + 1)?;
            while self.pools.len() < (id + 2) * lanes as usize {
                self.pools.push(Pool::new(&self.config));
            }
        }
        let tenant = Tenant {
            first: 0,
            pages,
            pool: if isolated { (id as u32 + 1) * lanes } else { 0 },
            handle: match self.config.pool_handles() {
                1 => 0,
                _ => id as u16,
            },
            ops,
            live: true,
        };
        Ok(self.enter(id, tenant))
    }

    /// Sets shares of the spare blocks; tenants that are not listed keep theirs. If tenants own blocks, the blocks
    /// follow with later writes: nothing is collected now.
    ///
    /// # Errors
    /// A tenant does not exist, tenants own no blocks, or the shares exceed 1. Then nothing has changed.
    pub fn set_ops_shares(&mut self, shares: &[(TenantId, OpsShare)]) -> Result<(), FlashError> {
        if self.common.is_none() {
            return Err(FlashError::ByShare);
        }
        if !self.follows_shares() {
            return Err(FlashError::NotIsolated);
        }
        for (tenant, _) in shares {
            self.live(*tenant)?;
        }
        self.check_shares(shares, OpsShare::ByData)?;
        for (tenant, ops) in shares {
            self.tenants[usize::from(tenant.0)].ops = *ops;
        }
        Ok(())
    }

    /// Returns the share of a tenant in the spare blocks, as set.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn ops_share(&self, tenant: TenantId) -> Result<OpsShare, FlashError> {
        Ok(self.live(tenant)?.ops)
    }

    /// Returns true if tenants own blocks that follow their data and shares.
    #[inline]
    pub(super) fn follows_shares(&self) -> bool {
        self.common.is_some() && self.config.sharing == Sharing::Isolated
    }

    /// Checks the shares of all tenants after a change and with a new tenant.
    fn check_shares(
        &self,
        changed: &[(TenantId, OpsShare)],
        comes: OpsShare,
    ) -> Result<(), FlashError> {
        let mut sum = 0.0;
        let live = self.tenants.iter().enumerate().filter(|(_, t)| t.live);
        let after = live.map(|(i, t)| {
            let change = changed.iter().rfind(|c| usize::from(c.0.0) == i);
            change.map_or(t.ops, |c| c.1)
        });
        for ops in after.chain([comes]) {
            let share = ops.given();
            if !(0.0..=1.0).contains(&share) {
                return Err(FlashError::Range {
                    key: "share of over-provisioned space",
                    value: share,
                    range: "0..=1",
                });
            }
            sum += share;
        }
        match sum <= 1.0 + ROUNDING {
            true => Ok(()),
            false => Err(FlashError::Shares { sum }),
        }
    }

    /// Checks that collection works with this number of tenants, for any amount and ownership of data.
    fn check_spare_for(&self, tenants: u32) -> Result<(), FlashError> {
        let (config, lanes) = (&self.config, self.config.lanes);
        let blocks = config.blocks / lanes;
        let pages = u64::from(self.common.unwrap_or(0).div_ceil(lanes));
        let data = pages.div_ceil(self.data_pages.into());
        let spare = u64::from(blocks).saturating_sub(data);
        // Each tenant needs its reserve and open blocks, and the blocks lost by rounding its data and its part of the
        // reserve.
        let each = 2 + config.collected_streams() + config.pool_streams();
        let needed = u64::from(config.reserve_blocks) + u64::from(tenants) * u64::from(each);
        match needed <= spare {
            true => Ok(()),
            false => Err(FlashError::SpareForTenants {
                tenants,
                needed,
                spare,
            }),
        }
    }

    /// Transfers a page to the tenant that is about to write it.
    #[inline]
    pub(super) fn claim(&mut self, logical: u32, tenant: TenantId, pool: usize) {
        let at = logical as usize;
        if self.l2p[at] != NIL {
            if self.owners[at] == tenant.0 as u8 {
                return;
            }
            self.disown(logical);
        }
        self.owners[at] = tenant.0 as u8;
        if self.follows_shares() {
            self.pools[pool].pages += 1;
        }
    }

    /// Removes the mapping and the owner of a page with data.
    pub(super) fn disown(&mut self, logical: u32) {
        let owner = std::mem::replace(&mut self.owners[logical as usize], NOBODY);
        self.unmap(logical, TenantId(owner.into()));
        if self.follows_shares() {
            let lane = logical % self.config.lanes;
            let pool = (self.tenants[usize::from(owner)].pool + lane) as usize;
            self.pools[pool].pages -= 1;
            if self.pools[pool].pages == 0 {
                self.give_all_up(pool);
            }
        }
    }

    /// Removes a tenant of one address space: its pages and blocks have no owner afterwards.
    pub(super) fn leave_common(&mut self, tenant: TenantId) {
        for logical in 0..self.common.unwrap_or(0) {
            let at = logical as usize;
            if self.l2p[at] != NIL && u16::from(self.owners[at]) == tenant.0 {
                self.disown(logical);
            }
        }
        self.tenants[usize::from(tenant.0)].live = false;
        self.live_tenants -= 1;
    }

    /// Gives up all blocks of a pool without data. They are erased when another tenant takes them.
    fn give_all_up(&mut self, pool: usize) {
        let lane = pool % self.config.lanes as usize;
        for stream in 0..self.pools[pool].opens.len() {
            if self.pools[pool].has_open(stream) {
                let block = self.pools[pool].close(stream);
                self.pools[pool].buckets.link(&mut self.blocks, block);
            }
        }
        while let Some(block) = self.pools[pool].buckets.fewest() {
            self.pools[pool].buckets.unlink(&mut self.blocks, block);
            self.pools[pool].strike(block, &mut self.lives);
            self.blocks[block as usize].pool = lane as u16;
            self.pools[lane].enlist(block, &mut self.lives);
            self.pools[lane].buckets.link(&mut self.blocks, block);
        }
        let free = self.pools[pool].free.len() as u32;
        self.pass_on(pool, lane, free);
    }

    /// Opens a block for a stream of host writes: first with more blocks up to the tenant's target, then by
    /// collecting its own.
    #[cold]
    pub(super) fn open_by_share<W: FlashWork>(
        &mut self,
        pool: usize,
        stream: usize,
        tenant: TenantId,
        work: &mut W,
    ) {
        // Repeats if collection, which may share the block, filled it to the last page.
        while !self.pools[pool].has_open(stream) {
            if self.pools[pool].free.is_empty() {
                let taken = self.take_block(pool, tenant, work);
                assert!(taken, "spare blocks were checked to be enough for all");
            }
            self.open(pool, stream);
            while self.pools[pool].free.len() < self.reserve(pool) {
                if !self.take_block(pool, tenant, work) {
                    self.collect(pool, tenant, work);
                }
            }
            self.give_block_up(pool, tenant, work);
        }
    }

    /// Gives all tenants their target blocks at once instead of with later writes. For the preparation of drives.
    pub fn settle<W: FlashWork>(&mut self, work: &mut W) {
        if !self.follows_shares() {
            return;
        }
        let tenants: Vec<TenantId> = self.tenants().collect();
        for lane in 0..self.config.lanes as usize {
            let pool_of = |ftl: &Self, t: TenantId| ftl.tenants[usize::from(t.0)].pool as usize;
            // Targets depend on data alone, so collection does not change them.
            self.aim(lane);
            for tenant in &tenants {
                let pool = pool_of(self, *tenant) + lane;
                while self.pools[pool].members.len() as u32 > self.aims[usize::from(tenant.0)] {
                    self.free_one(pool, *tenant, work);
                    self.pass_on(pool, lane, 1);
                }
            }
            for tenant in &tenants {
                let pool = pool_of(self, *tenant) + lane;
                while self.take_block(pool, *tenant, work) {}
            }
        }
    }

    /// Takes one more block for a tenant below its target; returns true if it got one.
    fn take_block<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) -> bool {
        let lane = pool % self.config.lanes as usize;
        self.aim(lane);
        let owns = self.pools[pool].members.len() as u32;
        if owns >= self.aims[usize::from(tenant.0)] {
            return false;
        }
        if self.pools[lane].free.is_empty()
            && let Some(block) = self.pools[lane].buckets.fewest()
        {
            self.pools[lane].buckets.unlink(&mut self.blocks, block);
            self.erase(lane, block, tenant, 0, work);
        }
        if !self.pools[lane].free.is_empty() {
            self.pass_on(lane, pool, 1);
            return true;
        }
        let beyond = |(i, t): (usize, &Tenant)| {
            let owns = self.pools[t.pool as usize + lane].members.len() as u32;
            (owns.saturating_sub(self.aims[i]), i, t.pool as usize + lane)
        };
        let live = self.tenants.iter().enumerate().filter(|(_, t)| t.live);
        let most = live.map(beyond).filter(|b| b.0 > 0);
        // Among equals the first.
        let Some((_, donor, from)) = most.min_by_key(|b| (u32::MAX - b.0, b.1)) else {
            return false;
        };
        self.free_one(from, TenantId(donor as u16), work);
        self.pass_on(from, pool, 1);
        true
    }

    /// Takes one block from a tenant above its target. One extra block is tolerated, so small changes of its data do
    /// not move a block back and forth.
    fn give_block_up<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        let lane = pool % self.config.lanes as usize;
        self.aim(lane);
        let owns = self.pools[pool].members.len() as u32;
        if owns > self.aims[usize::from(tenant.0)] + 1 {
            self.free_one(pool, tenant, work);
            self.pass_on(pool, lane, 1);
        }
    }

    /// Collects until a pool has a free block that it can give up.
    fn free_one<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        let left = self.pools[pool].members.len() as u32 - 1;
        let free = self.config.reserve_of(left) + 1;
        while self.pools[pool].free.len() < free as usize {
            self.collect(pool, tenant, work);
        }
    }

    /// Computes the target number of blocks of each tenant in a lane into `aims`. Their sum does not exceed the number
    /// of blocks.
    fn aim(&mut self, lane: usize) {
        let all = self.config.blocks / self.config.lanes;
        let data_pages = u64::from(self.data_pages);
        let data_of = |t: &Tenant| match t.live {
            true => self.pools[t.pool as usize + lane]
                .pages
                .div_ceil(data_pages) as u32,
            false => 0,
        };
        // Given shares of all tenants and of those with data; the rest; and the data by which the rest is split.
        let (mut given, mut here) = (0.0, 0.0);
        let (mut by_data, mut data_by_data, mut data) = (false, 0, 0);
        for t in self.tenants.iter().filter(|t| t.live) {
            let own = data_of(t);
            data += own;
            given += t.ops.given();
            match t.ops {
                OpsShare::Given(share) if own > 0 => here += share,
                OpsShare::Given(_) => {}
                OpsShare::ByData => {
                    by_data = true;
                    data_by_data += own;
                }
            }
        }
        let left = if by_data { (1.0 - given).max(0.0) } else { 0.0 };
        let split = given + left;
        here += if data_by_data > 0 { left } else { 0.0 };
        let spare = f64::from(all.saturating_sub(data));
        let mut sum = 0;
        self.aims.clear();
        for t in &self.tenants {
            let own = data_of(t);
            if own == 0 {
                self.aims.push(0);
                continue;
            }
            let of_all = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
            let share = match t.ops {
                _ if here <= 0.0 => of_all(own, data),
                OpsShare::Given(share) => share / here * split,
                OpsShare::ByData => left * of_all(own, data_by_data) / here * split,
            };
            let least = self.config.spare_blocks_least(own);
            let blocks = own + ((share * spare + ROUNDING) as u32).max(least);
            sum += blocks;
            self.aims.push(blocks);
        }
        // Tenants that were raised to their minimum are paid for by those with the most.
        while sum > all {
            let beyond = |(i, t): (usize, &Tenant)| {
                let own = data_of(t);
                let least = own + self.config.spare_blocks_least(own);
                (self.aims[i].saturating_sub(least), i)
            };
            let most = self.tenants.iter().enumerate().map(beyond);
            let Some((1.., most)) = most.max_by_key(|b| b.0) else {
                return;
            };
            self.aims[most] -= 1;
            sum -= 1;
        }
    }
}
