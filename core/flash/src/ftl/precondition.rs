//! Ageing: a drive that was filled once is full, but not in a steady state.

use super::{Ftl, TenantId};
use crate::FlashError;

/// Number of pages drawn at a time.
const BATCH: usize = 1024;

impl Ftl {
    /// Writes all pages of a tenant once, in order.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn fill(&mut self, tenant: TenantId) -> Result<(), FlashError> {
        for page in 0..self.pages_of(tenant)? {
            self.write(tenant, page, &mut ());
        }
        Ok(())
    }

    /// Fills all tenants, then overwrites random pages and clears the counts. The amount is `times` the drive's data in
    /// total; a steady state needs two or more. The writes of the tenants alternate in proportion to their sizes.
    ///
    /// Do not use it before skewed traffic, whose steady state differs from that of uniform overwrites. Age the drive
    /// with that traffic instead.
    pub fn precondition(&mut self, times: f64) {
        self.overwrite(times);
        self.clear_counts();
    }

    /// Fills and overwrites one tenant that was added while others were counted. The work is not counted, except wear
    /// and pages with data.
    pub(crate) fn age_newcomer(&mut self, tenant: TenantId, times: f64) -> Result<(), FlashError> {
        let size = self.pages_of(tenant)?;
        let account = self.account.clone();
        self.fill(tenant)?;
        let mut random = self.ageing_random(u64::from(tenant.0) + 1);
        let mut left = (times * f64::from(size)) as u64;
        let mut pages = Vec::with_capacity(BATCH);
        while left > 0 {
            let n = left.min(BATCH as u64);
            pages.clear();
            pages.extend((0..n).map(|_| random.below(size.into()) as u32));
            self.write_all(tenant, &pages, &mut ());
            left -= n;
        }
        self.account = account;
        // All its pages are mapped now, and none was before.
        self.account.mapped(tenant, size.into());
        Ok(())
    }

    /// Like [`Ftl::precondition`], but keeps the counts of the last half of the overwrites: the present cost of a
    /// write.
    pub(crate) fn overwrite(&mut self, times: f64) {
        let tenants: Vec<TenantId> = self.tenants().collect();
        let sizes: Vec<u32> = tenants
            .iter()
            .map(|t| self.pages_of(*t).unwrap_or(0))
            .collect();
        for tenant in &tenants {
            let _ = self.fill(*tenant); // the tenant was just listed
        }
        let total: u64 = sizes.iter().map(|s| u64::from(*s)).sum();
        let mut left: Vec<u64> = sizes
            .iter()
            .map(|s| (times * f64::from(*s)) as u64)
            .collect();
        let mut random = self.ageing_random(0);
        let mut pages = Vec::with_capacity(BATCH);
        let half = left.iter().sum::<u64>() / 2;
        let mut settled = false;
        while left.iter().any(|l| *l > 0) {
            if !settled && left.iter().sum::<u64>() <= half {
                self.clear_counts();
                settled = true;
            }
            for ((tenant, size), left) in tenants.iter().zip(&sizes).zip(&mut left) {
                // A batch in proportion to the tenant's size keeps all tenants in step.
                let n = (BATCH as u64 * u64::from(*size)).div_ceil(total).min(*left);
                pages.clear();
                pages.extend((0..n).map(|_| random.below((*size).into()) as u32));
                self.write_all(*tenant, &pages, &mut ());
                *left -= n;
            }
        }
    }

    /// Fills and overwrites a drive with one address space, whose pages are first written by `owner`. The order of
    /// pages is always that of one tenant.
    pub(crate) fn overwrite_by_owner(&mut self, times: f64, owner: impl Fn(u32) -> TenantId) {
        let size = self.common.unwrap_or(0);
        for page in 0..size {
            self.write(owner(page), page, &mut ());
        }
        let mut left = (times * f64::from(size)) as u64;
        let (half, mut settled) = (left / 2, false);
        let mut random = self.ageing_random(0);
        while left > 0 {
            if !settled && left <= half {
                self.clear_counts();
                settled = true;
            }
            let n = left.min(BATCH as u64);
            for _ in 0..n {
                let page = random.below(size.into()) as u32;
                self.write(owner(page), page, &mut ());
            }
            left -= n;
        }
    }

    /// Returns a separate random sequence for ageing. Randomly drawn victims must not correlate with the written pages.
    fn ageing_random(&self, stream: u64) -> algo::Rng {
        algo::Rng::new(self.config.seed, 0xA6E ^ stream << 16)
    }
}
