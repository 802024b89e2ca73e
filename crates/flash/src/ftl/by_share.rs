//! Tenants of one address space: each may write any page, and a page belongs to who wrote it last.
//!
//! For drives on which data comes and goes, where no tenant has a size of its own. Where tenants own their erase blocks, a tenant is to own
//! as many as its data fills, and its share of all others:
//!
//! ```text
//!  ├─ data of a ─┼─ share of a ─┼──── data of b ────┼─ share of b ─┤   all blocks of a lane
//!                └──────────────┴───── spare ───────┴──────────────┘   what holds no data, unused capacity with it
//! ```
//!
//! Both change with what is written and trimmed. Blocks follow: who needs a block and owns too few takes one that is nobody's, or from the
//! one that owns most beyond what it is to own, whose collection frees it first and whose counts bear that. Who owns too many gives one
//! up with each block that it opens. So a changed share is in force when collection has worked through the old blocks, not at once.
//!
//! Who has no data owns nothing: its share is that of the others meanwhile, in proportion to theirs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blocks::NIL;
use super::pool::{Pool, check_room};
use super::share::{NOBODY, Tenant};
use super::{FlashWork, Ftl, FtlConfig, Sharing, TenantId};
use crate::FlashError;

/// What a tenant has of the spare erase blocks of a drive with one address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OpsShare {
    /// A part of what given shares leave, by the size of its data there.
    #[default]
    ByData,
    /// This share of all, 0..=1.
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

/// Sums of shares are as good as floating-point numbers are.
const ROUNDING: f64 = 1e-9;

impl Ftl {
    /// An empty drive without tenants, all of which will address the same `pages`.
    ///
    /// # Errors
    /// As [`Ftl::new`], and when there are not as many pages.
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

    /// Makes room for a tenant that addresses all of the drive. Its share is without meaning where tenants share one pool.
    ///
    /// # Errors
    /// When the drive has no one address space, no handle is free, shares are more than all, or spare blocks are too few for the collection of
    /// so many tenants.
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

    /// What tenants have of the spare blocks from now on; of those that are not named, what they had. Where they own blocks these follow with
    /// what is written: nothing is collected now.
    ///
    /// # Errors
    /// When there is no such tenant, tenants own no blocks, or shares are more than all. Then nothing has changed.
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

    /// What a tenant has of the spare blocks, as it was given.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn ops_share(&self, tenant: TenantId) -> Result<OpsShare, FlashError> {
        Ok(self.live(tenant)?.ops)
    }

    /// Whether tenants own blocks that follow their data and shares.
    #[inline]
    pub(super) fn follows_shares(&self) -> bool {
        self.common.is_some() && self.config.sharing == Sharing::Isolated
    }

    /// Whether the shares of all, as they would be after a change and with one that comes, are shares.
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

    /// Whether the collection of so many tenants could work however full the drive is, and whosever its data.
    fn check_spare_for(&self, tenants: u32) -> Result<(), FlashError> {
        let (config, lanes) = (&self.config, self.config.lanes);
        let blocks = config.blocks / lanes;
        let pages = u64::from(self.common.unwrap_or(0).div_ceil(lanes));
        let data = pages.div_ceil(self.data_pages.into());
        let spare = u64::from(blocks).saturating_sub(data);
        // Each: its reserve and open blocks, and what rounding its data and its part of the reserve to blocks takes.
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

    /// A page is going to be written by a tenant: whose it was, it is no more.
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

    /// A page that has data has none any more, whosever it was.
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

    /// A tenant of one address space leaves: its pages are nobody's, and so are its blocks.
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

    /// All blocks of a pool without data are nobody's. They are erased when somebody takes them.
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

    /// Gives a stream of the host's an open block: first with blocks that the tenant is to own, then by collecting its own.
    #[cold]
    pub(super) fn open_by_share<W: FlashWork>(
        &mut self,
        pool: usize,
        stream: usize,
        tenant: TenantId,
        work: &mut W,
    ) {
        // Once more if collection, where it shares the block, filled it to the last page.
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

    /// Has all tenants own at once what they are to own, instead of with what is written. For drives that are being prepared.
    pub fn settle<W: FlashWork>(&mut self, work: &mut W) {
        if !self.follows_shares() {
            return;
        }
        let tenants: Vec<TenantId> = self.tenants().collect();
        for lane in 0..self.config.lanes as usize {
            let pool_of = |ftl: &Self, t: TenantId| ftl.tenants[usize::from(t.0)].pool as usize;
            // What is to be owned follows from data alone, so that collection does not change it.
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

    /// One more block for a tenant that owns fewer than it is to own; whether it got one.
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
        // Of those with as many the first.
        let Some((_, donor, from)) = most.min_by_key(|b| (u32::MAX - b.0, b.1)) else {
            return false;
        };
        self.free_one(from, TenantId(donor as u16), work);
        self.pass_on(from, pool, 1);
        true
    }

    /// One block less for a tenant that owns more than it is to own. One beyond that is left to it, so that a page more or less does not have a
    /// block go to and fro.
    fn give_block_up<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        let lane = pool % self.config.lanes as usize;
        self.aim(lane);
        let owns = self.pools[pool].members.len() as u32;
        if owns > self.aims[usize::from(tenant.0)] + 1 {
            self.free_one(pool, tenant, work);
            self.pass_on(pool, lane, 1);
        }
    }

    /// Collects until a pool has a free block that it can do without.
    fn free_one<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        let left = self.pools[pool].members.len() as u32 - 1;
        let free = self.config.reserve_of(left) + 1;
        while self.pools[pool].free.len() < free as usize {
            self.collect(pool, tenant, work);
        }
    }

    /// How many blocks of a lane each tenant is to own, into `aims`. All of them together are no more than there are.
    fn aim(&mut self, lane: usize) {
        let all = self.config.blocks / self.config.lanes;
        let data_pages = u64::from(self.data_pages);
        let data_of = |t: &Tenant| match t.live {
            true => self.pools[t.pool as usize + lane]
                .pages
                .div_ceil(data_pages) as u32,
            false => 0,
        };
        // What is given, to all and to those who are there; what is left, and the data by which it is split.
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
        // Raising some to the least they need is paid by those with the most.
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
