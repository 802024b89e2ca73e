//! Tenants of a drive: they come, are aged, hand over blocks, and go.

use ::units::Bytes;

use super::{Drive, SAMPLE_PAGES, Unsampled, sampled_pages};
use crate::FlashError;
use crate::ftl::{OpsShare, TenantId, TenantSpec};

impl Drive {
    /// A tenant with `bytes` of the drive and, where tenants own their blocks, a share of all its flash as spare space beyond that.
    ///
    /// # Errors
    /// As [`Ftl::add_tenant`].
    pub fn add_tenant(&mut self, bytes: Bytes, spare_share: f64) -> Result<TenantId, FlashError> {
        let tenant = self.ftl.add_tenant(self.spec(bytes, spare_share)?)?;
        self.enter(tenant, bytes.0);
        Ok(tenant)
    }

    /// A tenant of a drive with one address space. It has no range of its own: what it writes is its until another tenant writes there or it
    /// is trimmed, whoever trims it. Where tenants own their blocks, it is to own those that its data needs and `ops` of all others.
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
            self.unsampled.resize(at + 1, Unsampled::default());
        }
        self.host_pages[at] = bytes.div_ceil(self.page_bytes);
        self.unsampled_gone += std::mem::take(&mut self.unsampled[at]).writes;
    }

    /// Whether a tenant with blocks of its own could collect with this spare space, were there as many blocks.
    pub(crate) fn check_tenant(&self, bytes: Bytes, spare_share: f64) -> Result<(), FlashError> {
        self.ftl.check_spec(self.spec(bytes, spare_share)?)?;
        Ok(())
    }

    /// A tenant that has just been added to a drive that was aged is aged like the others, in no time and without being counted. On a drive
    /// that was not, its space stays unwritten.
    ///
    /// # Errors
    /// When there is no such tenant.
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

    /// Erase blocks of each lane that a tenant of this size with this spare space would own.
    pub fn blocks_needed(&self, bytes: Bytes, spare_share: f64) -> u32 {
        let config = self.ftl.config();
        let lanes = u64::from(config.lanes);
        let pages = sampled_pages(bytes.0.div_ceil(self.page_bytes), self.config.scale);
        let data = pages.div_ceil(lanes).div_ceil(config.data_pages().into());
        let spare = libm::round(spare_share * f64::from(config.blocks / config.lanes));
        data.min(u64::from(u32::MAX)) as u32 + spare as u32
    }

    /// A tenant leaves; what its departure erases is charged to the units.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn remove_tenant(&mut self, now_ns: u64, tenant: TenantId) -> Result<(), FlashError> {
        self.units.set_now(now_ns);
        let before = self.units.spent_ns();
        self.ftl.remove_tenant(tenant, &mut self.units)?;
        self.spread_over_the_rest(before);
        Ok(())
    }

    /// Fills the drive and overwrites it at random until it is in a steady state, in no time. See [`Ftl::precondition`].
    pub fn age(&mut self, times: f64) {
        self.aged = Some(times);
        self.ftl.overwrite(times);
        self.units.learn_cost(&self.ftl);
        self.clear_counts();
    }

    /// The same for a drive with one address space: `owner` says whose the byte at an offset is. The order of writes is that of a drive with one
    /// tenant.
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

    /// Has tenants of one address space own at once, and in no time, what they are to own: before anything counts.
    pub fn settle(&mut self) {
        self.ftl.settle(&mut ());
    }

    /// Gives `blocks` erase blocks of each lane from one tenant to another; the donor's collection takes the units' time.
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

    /// What the sample did since its units had spent `before` is done in each part that is not sampled too; the time of all of it.
    fn spread_over_the_rest(&mut self, before: u64) -> u64 {
        let sampled = self.units.spent_ns() - before;
        let others = sampled * u64::from(self.config.scale - 1);
        self.units.spread(others);
        sampled + others
    }
}
