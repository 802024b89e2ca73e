//! Tenants of a drive: addition, ageing, transfer of blocks, and removal.

use ::units::Bytes;

use super::{Drive, SAMPLE_PAGES, UnsampledPages, sampled_pages};
use crate::FlashError;
use crate::ftl::{OpsShare, TenantId, TenantSpec};

impl Drive {
    /// Adds a tenant with `bytes` of the drive. If tenants own their blocks, it also gets `spare_share` of all the
    /// flash as spare space beyond its data.
    ///
    /// # Errors
    /// As [`Ftl::add_tenant`].
    pub fn add_tenant(&mut self, bytes: Bytes, spare_share: f64) -> Result<TenantId, FlashError> {
        let tenant = self.ftl.add_tenant(self.spec(bytes, spare_share)?)?;
        self.enter(tenant, bytes.0);
        Ok(tenant)
    }

    /// Adds a tenant to a drive with one address space. It has no range of its own: a page belongs to the tenant that
    /// wrote it last, until any tenant trims it. If tenants own their blocks, the tenant's target is the blocks for its
    /// data plus `ops` of all spare blocks.
    ///
    /// # Errors
    /// As [`Ftl::add_tenant_by_share`].
    pub fn add_tenant_by_share(&mut self, ops: OpsShare) -> Result<TenantId, FlashError> {
        let tenant = self.ftl.add_tenant_by_share(ops)?;
        self.enter(tenant, self.bytes);
        Ok(tenant)
    }

    fn enter(&mut self, tenant: TenantId, bytes: u64) {
        let at = usize::from(tenant.0);
        if self.host_pages.len() <= at {
            self.host_pages.resize(at + 1, 0);
            self.unsampled.resize(at + 1, UnsampledPages::default());
        }
        self.host_pages[at] = bytes.div_ceil(self.page_bytes);
        self.unsampled_gone += std::mem::take(&mut self.unsampled[at]).writes;
    }

    /// Checks that a tenant with its own blocks could collect garbage with this spare space, if that many blocks were
    /// available.
    pub(crate) fn check_tenant(&self, bytes: Bytes, spare_share: f64) -> Result<(), FlashError> {
        self.ftl.check_spec(self.spec(bytes, spare_share)?)?;
        Ok(())
    }

    /// Ages a tenant that was just added to an aged drive, like the others, in no time and without counting. On a drive
    /// that was not aged, its space stays unwritten.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn age_newcomer(&mut self, tenant: TenantId) -> Result<(), FlashError> {
        match self.aged {
            Some(times) => self.ftl.age_newcomer(tenant, times),
            None => Ok(()),
        }
    }

    fn spec(&self, bytes: Bytes, spare_share: f64) -> Result<TenantSpec, FlashError> {
        if !(0.0..1.0).contains(&spare_share) {
            return Err(FlashError::Range {
                key: "spare share of a tenant",
                value: spare_share,
                range: "0..1",
            });
        }
        let kept = sampled_pages(bytes.0.div_ceil(self.page_bytes), self.config.scale);
        let config = self.ftl.config();
        let per_lane = f64::from(config.blocks / config.lanes);
        Ok(TenantSpec {
            pages: u32::try_from(kept).unwrap_or(u32::MAX),
            spare_blocks: libm::round(spare_share * per_lane) as u32,
        })
    }

    /// Returns the number of erase blocks per lane that a tenant of this size and spare space would own.
    pub fn blocks_needed(&self, bytes: Bytes, spare_share: f64) -> u32 {
        let config = self.ftl.config();
        let lanes = u64::from(config.lanes);
        let pages = sampled_pages(bytes.0.div_ceil(self.page_bytes), self.config.scale);
        let data = pages.div_ceil(lanes).div_ceil(config.data_pages().into());
        let spare = libm::round(spare_share * f64::from(config.blocks / config.lanes));
        data.min(u64::from(u32::MAX)) as u32 + spare as u32
    }

    /// Removes a tenant. The resulting erases are charged to the units.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn remove_tenant(&mut self, now_ns: u64, tenant: TenantId) -> Result<(), FlashError> {
        self.units.set_now(now_ns);
        let before = self.units.spent_ns();
        self.ftl.remove_tenant(tenant, &mut self.units)?;
        self.spread_over_the_rest(before);
        Ok(())
    }

    /// Fills the drive and overwrites it at random until it is in a steady state, in no time. See
    /// [`Ftl::precondition`].
    pub fn age(&mut self, times: f64) {
        self.aged = Some(times);
        self.ftl.overwrite(times);
        self.units.learn_cost(&self.ftl);
        self.clear_counts();
    }

    /// Ages a drive with one address space. `owner` returns the tenant of the byte at an offset. The order of writes is
    /// that of a drive with one tenant.
    pub fn age_by_owner(&mut self, times: f64, owner: impl Fn(u64) -> TenantId) {
        self.aged = Some(times);
        let (scale, bytes) = (u64::from(self.config.scale), self.page_bytes);
        self.ftl.overwrite_by_owner(times, |page| {
            let (chunk, within) = (
                u64::from(page) / SAMPLE_PAGES,
                u64::from(page) % SAMPLE_PAGES,
            );
            owner((chunk * scale * SAMPLE_PAGES + within) * bytes)
        });
        self.units.learn_cost(&self.ftl);
        self.clear_counts();
    }

    /// Gives the tenants of one address space their target blocks at once, in no time. For use before anything is
    /// counted.
    pub fn settle(&mut self) {
        self.ftl.settle(&mut ());
    }

    /// Transfers `blocks` erase blocks of each lane from one tenant to another. The donor's collection takes unit time.
    ///
    /// # Errors
    /// As [`Ftl::hand_over`].
    pub fn hand_over(
        &mut self,
        now_ns: u64,
        donor: TenantId,
        recipient: Option<TenantId>,
        blocks: u32,
    ) -> Result<u64, FlashError> {
        self.units.set_now(now_ns.max(self.last_ns));
        let before = self.units.spent_ns();
        self.ftl
            .hand_over(donor, recipient, blocks, &mut self.units)?;
        Ok(self.spread_over_the_rest(before))
    }

    /// Repeats the sample's work since `before` for each unsampled part; returns the total time.
    fn spread_over_the_rest(&mut self, before: u64) -> u64 {
        let sampled = self.units.spent_ns() - before;
        let others = sampled * u64::from(self.config.scale - 1);
        self.units.spread(others);
        sampled + others
    }
}
