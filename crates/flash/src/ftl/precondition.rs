//! Ageing: a drive that was filled once is full, not aged.

use super::{Ftl, TenantId};
use crate::FlashError;

/// Pages that are drawn at a time.
const BATCH: usize = 1024;

impl Ftl {
    /// Writes all pages of a tenant once, in order.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn fill(&mut self, tenant: TenantId) -> Result<(), FlashError> {
        for page in 0..self.pages_of(tenant)? {
            self.write(tenant, page, &mut ());
        }
        Ok(())
    }

    /// Fills all tenants, then overwrites pages at random, `times` the drive's data altogether (two and more for a steady state), and sets
    /// the counts to zero. Tenants' writes come in turn, in proportion to their sizes.
    ///
    /// Not for a drive on which skewed traffic follows: the steady state of uniform overwrites is another; let that traffic itself age it.
    pub fn precondition(&mut self, times: f64) {
        self.overwrite(times);
        self.clear_counts();
    }

    /// Fills and overwrites one tenant that has come while the others were counted: whatever that takes is in no counts but those of
    /// wear and of pages with data.
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
        // All that it has is mapped now, where nothing was.
        self.account.mapped(tenant, size.into());
        Ok(())
    }

    /// As [`Ftl::precondition`], with the counts of the last half of the overwriting: what a write costs now.
    pub(crate) fn overwrite(&mut self, times: f64) {
        let tenants: Vec<TenantId> = self.tenants().collect();
        let sizes: Vec<u32> = tenants
            .iter()
            .map(|t| self.pages_of(*t).unwrap_or(0))
            .collect();
        for tenant in &tenants {
            let _ = self.fill(*tenant); // it was just listed
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
                // As many as keep all tenants in step.
                let n = (BATCH as u64 * u64::from(*size)).div_ceil(total).min(*left);
                pages.clear();
                pages.extend((0..n).map(|_| random.below((*size).into()) as u32));
                self.write_all(*tenant, &pages, &mut ());
                *left -= n;
            }
        }
    }

    /// The same for a drive with one address space, whose pages are first written by `owner`. With any owners the order of pages is that of one
    /// tenant.
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

    /// Numbers for ageing alone: victims that are drawn at random must not follow from the pages that were.
    fn ageing_random(&self, stream: u64) -> algo::Rng {
        algo::Rng::new(self.config.seed, 0xA6E ^ stream << 16)
    }
}
