//! Exhaustive check of all invariants.

use super::blocks::NIL;
use super::share::NOBODY;
use super::{Ftl, Sharing};
use crate::FlashError;

impl Ftl {
    /// Checks all maps and lists, in time proportional to the size of the drive. For tests.
    ///
    /// # Errors
    /// [`FlashError::Inconsistent`] with the first violation.
    pub fn verify(&self) -> Result<(), FlashError> {
        self.verify_maps()?;
        self.verify_pools()?;
        for (t, tenant) in self.tenants.iter().enumerate().filter(|(_, t)| t.live) {
            let range = tenant.first as usize..(tenant.first + tenant.pages) as usize;
            let own = |logical: &usize| usize::from(self.owners[*logical >> self.chunk_shift]) == t;
            let mapped = range.filter(|l| self.l2p[*l] != NIL).filter(own);
            let mapped = mapped.count() as u64;
            let counted = self.counts(super::TenantId(t as u16)).mapped;
            if mapped != counted {
                return Err(inconsistent(
                    "tenant",
                    t,
                    format!("has {mapped} pages, counted were {counted}"),
                ));
            }
            if self.follows_shares() {
                let pools = &self.pools[tenant.pool as usize..];
                let pools = &pools[..self.config.lanes as usize];
                let known: u64 = pools.iter().map(|p| p.pages).sum();
                if mapped != known {
                    return Err(inconsistent(
                        "tenant",
                        t,
                        format!("has {mapped} pages, its pools know of {known}"),
                    ));
                }
                if let Some(pool) = pools.iter().find(|p| p.pages == 0 && !p.members.is_empty()) {
                    let blocks = pool.members.len();
                    return Err(inconsistent(
                        "tenant",
                        t,
                        format!("has no data and {blocks} blocks"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that mapped logical pages and valid physical pages correspond one to one, and that the counts of all
    /// blocks are correct.
    fn verify_maps(&self) -> Result<(), FlashError> {
        let mut valid = vec![0_u32; self.blocks.len()];
        for (logical, at) in self.l2p.iter().enumerate().filter(|(_, p)| **p != NIL) {
            if self.p2l[*at as usize] as usize != logical {
                return Err(inconsistent(
                    "page",
                    logical,
                    format!("is at {at}, where another one is"),
                ));
            }
            let block = (*at >> self.shift) as usize;
            valid[block] += 1;
            if *at & (self.stride() - 1) >= self.data_pages {
                return Err(inconsistent(
                    "page",
                    logical,
                    format!("is at {at}, which is not a data page"),
                ));
            }
            let owner = self.owners[logical >> self.chunk_shift];
            if owner == NOBODY {
                return Err(inconsistent("page", logical, "has data and no owner"));
            }
            let tenant = &self.tenants[usize::from(owner)];
            let lane = logical % self.config.lanes as usize;
            if usize::from(self.blocks[block].pool) != tenant.pool as usize + lane {
                return Err(inconsistent(
                    "page",
                    logical,
                    format!("of tenant {owner} is in a block of another pool"),
                ));
            }
        }
        for (block, n) in valid.iter().enumerate() {
            if u32::from(self.blocks[block].valid) != *n {
                let counted = self.blocks[block].valid;
                return Err(inconsistent(
                    "block",
                    block,
                    format!("has {n} valid pages, counted were {counted}"),
                ));
            }
        }
        Ok(())
    }

    /// Checks that every block is in exactly one pool, and there free, open, or in the list for its valid pages.
    fn verify_pools(&self) -> Result<(), FlashError> {
        let mut seen = vec![false; self.blocks.len()];
        let mut see = |block: u32, what: &str| {
            let twice = std::mem::replace(&mut seen[block as usize], true);
            (!twice).then_some(()).ok_or_else(|| {
                inconsistent(
                    "block",
                    block as usize,
                    format!("is {what} and has a second use"),
                )
            })
        };
        for (p, pool) in self.pools.iter().enumerate() {
            let mut n = 0;
            for block in &pool.free {
                see(*block, "free")?;
                n += 1;
                if !self.blocks[*block as usize].is_free() {
                    return Err(inconsistent(
                        "block",
                        *block as usize,
                        "is in the free list and not free",
                    ));
                }
            }
            for open in pool.opens.iter().filter(|o| o.block != NIL) {
                see(open.block, "open")?;
                n += 1;
            }
            for (valid, block) in pool.buckets.members(&self.blocks) {
                see(block, "sealed")?;
                n += 1;
                if usize::from(self.blocks[block as usize].valid) != valid {
                    return Err(inconsistent(
                        "block",
                        block as usize,
                        format!("is in the list of {valid} valid pages"),
                    ));
                }
            }
            if n != pool.members.len() {
                return Err(inconsistent(
                    "pool",
                    p,
                    format!("has {} blocks, {n} are in its lists", pool.members.len()),
                ));
            }
            for (at, block) in pool.members.iter().enumerate() {
                let entry = self.blocks[*block as usize];
                if usize::from(entry.pool) != p || self.lives[*block as usize].member as usize != at
                {
                    return Err(inconsistent(
                        "block",
                        *block as usize,
                        format!("is in pool {p}, but its record differs"),
                    ));
                }
            }
            let owned = self.config.sharing != Sharing::Isolated || p >= self.config.lanes as usize;
            let begun = pool.free.len() < pool.members.len();
            if owned && begun && pool.free.len() + 1 < self.reserve(p) {
                return Err(inconsistent(
                    "pool",
                    p,
                    format!("has only {} free blocks", pool.free.len()),
                ));
            }
        }
        match seen.iter().position(|s| !s) {
            Some(block) => Err(inconsistent("block", block, "is in no pool")),
            None => Ok(()),
        }
    }
}

fn inconsistent(part: &'static str, number: usize, fault: impl Into<String>) -> FlashError {
    let fault = fault.into();
    FlashError::Inconsistent {
        part,
        number,
        fault,
    }
}
