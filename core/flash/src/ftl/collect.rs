//! Garbage collection: selection of a victim, copies of its valid pages, its erase.

use super::blocks::NIL;
use super::{FlashWork, Ftl, Sharing, Streams, TenantId, Victim};

/// Weight of the newest collected block in the mean life of short-lived blocks.
const LIFE_WEIGHT: f64 = 1.0 / 16.0;
/// Number of random draws before the list of the fewest valid pages is used instead. Bounds the work if hardly any
/// block has invalid pages.
const ROUNDS_MAX: u32 = 64;

impl Ftl {
    /// Opens a block for a stream of host writes, and collects until the reserve is complete again.
    #[cold]
    pub(super) fn open_for_host<W: FlashWork>(
        &mut self,
        pool: usize,
        stream: usize,
        tenant: TenantId,
        work: &mut W,
    ) {
        if self.follows_shares() {
            return self.open_by_share(pool, stream, tenant, work);
        }
        // Repeats if collection, which may share the block, filled it to the last page.
        while !self.pools[pool].has_open(stream) {
            self.open(pool, stream);
            let reserve = self.reserve(pool);
            while self.pools[pool].free.len() < reserve {
                self.collect(pool, tenant, work);
            }
        }
    }

    /// Returns the number of free blocks that a pool keeps.
    pub(super) fn reserve(&self, pool: usize) -> usize {
        self.config
            .reserve_of(self.pools[pool].members.len() as u32) as usize
    }

    pub(super) fn open(&mut self, pool: usize, stream: usize) {
        let block = self.pools[pool].open(stream, &mut self.blocks);
        let life = &mut self.lives[block as usize];
        life.opened = self.clock;
        life.touched = self.clock;
        life.stream = stream as u16;
    }

    /// Frees one block of a pool. `tenant` caused the collection.
    ///
    /// # Panics
    /// If all blocks are full of valid pages. Pools are sized so that this cannot happen.
    pub(super) fn collect<W: FlashWork>(&mut self, pool: usize, tenant: TenantId, work: &mut W) {
        let victim = self.victim(pool);
        let victim = victim.expect("a pool has spare space, so some block is not full");
        self.pools[pool].buckets.unlink(&mut self.blocks, victim);
        let base = victim << self.shift;
        let n = self.survivors_of(base);
        debug_assert_eq!(n, usize::from(self.blocks[victim as usize].valid));
        self.count_moves(tenant, n);
        let stream = self.collected_stream(victim);
        // Moved out temporarily, so that it can be read while the maps are written.
        let survivors = std::mem::take(&mut self.survivors);
        let mut rest = &survivors[..n];
        while !rest.is_empty() {
            if !self.pools[pool].has_open(stream) {
                self.open(pool, stream);
            }
            let open = self.pools[pool].opens[stream];
            let (run, later) =
                rest.split_at(rest.len().min((self.data_pages - open.next) as usize));
            let to = (open.block << self.shift) + open.next;
            self.put_run(run, to);
            work.copied(victim, run, to);
            self.blocks[open.block as usize].valid += run.len() as u16;
            let next = open.next + run.len() as u32;
            self.pools[pool].opens[stream].next = next;
            if next == self.data_pages {
                self.seal(pool, stream, work);
            }
            rest = later;
        }
        self.survivors = survivors;
        self.note_life(victim);
        self.account.victim(tenant, n as u64);
        self.erase(pool, victim, tenant, n as u32, work);
    }

    /// Erases a block without valid pages.
    pub(super) fn erase<W: FlashWork>(
        &mut self,
        pool: usize,
        block: u32,
        tenant: TenantId,
        valid: u32,
        work: &mut W,
    ) {
        self.lives[block as usize].erases += 1;
        self.blocks[block as usize].set_free();
        self.pools[pool].free.push_back(block);
        self.account.erase(tenant);
        work.erased(block, valid);
    }

    /// Collects the valid pages of the block that begins at `base`; returns their number.
    fn survivors_of(&mut self, base: u32) -> usize {
        let pages = self.data_pages as usize;
        let names = &self.p2l[base as usize..base as usize + pages];
        let out = &mut self.survivors[..pages];
        let mut n = 0;
        for (i, logical) in names.iter().enumerate() {
            // Without a branch, because the valid pages are unpredictable; the loads of l2p overlap.
            out[n] = (i as u64) << 32 | u64::from(*logical);
            n += usize::from(self.l2p[*logical as usize] == base + i as u32);
        }
        n
    }

    #[inline]
    fn put_run(&mut self, run: &[u64], to: u32) {
        let names = &mut self.p2l[to as usize..to as usize + run.len()];
        for ((name, survivor), at) in names.iter_mut().zip(run).zip(to..) {
            let logical = *survivor as u32;
            *name = logical;
            self.l2p[logical as usize] = at;
        }
    }

    fn count_moves(&mut self, tenant: TenantId, n: usize) {
        if self.live_tenants == 1 {
            self.account.moved(tenant, tenant.0 as u8, n as u64);
            return;
        }
        for survivor in &self.survivors[..n] {
            let owner = self.owners[(*survivor as u32 >> self.chunk_shift) as usize];
            self.account.moved(tenant, owner, 1);
        }
    }

    /// Returns the stream for the survivors of a block.
    fn collected_stream(&self, victim: u32) -> usize {
        let from = usize::from(self.lives[victim as usize].stream);
        let kinds = self.config.host_kinds() as usize;
        let host = self.config.pool_handles() as usize * kinds;
        let persistent = self.config.sharing == Sharing::HandlesPersistently;
        if self.config.streams == Streams::One {
            return if persistent { from } else { 0 };
        }
        // Handle of the block, and whether it held the host's short-lived pages.
        let (handle, kind) = if from < host {
            (from / kinds, from % kinds)
        } else {
            ((from - host) / kinds, kinds - 1)
        };
        host + if persistent { handle * kinds } else { 0 } + kind
    }

    /// Updates the mean life of blocks with short-lived pages.
    fn note_life(&mut self, victim: u32) {
        if self.config.streams != Streams::HotAndCold {
            return;
        }
        let life = self.lives[victim as usize];
        let host = self.config.pool_handles() * self.config.host_kinds();
        if u32::from(life.stream) < host && life.stream.is_multiple_of(2) {
            let age = (self.clock - life.opened) as f64;
            self.short_life = match self.short_life.is_finite() {
                true => self.short_life + LIFE_WEIGHT * (age - self.short_life),
                false => age,
            };
        }
    }

    fn victim(&mut self, pool: usize) -> Option<u32> {
        let chosen = match self.config.victim {
            Victim::Greedy => NIL,
            Victim::CostBenefit => self.best_by_age(pool),
            Victim::Choices(d) => self.best_of(pool, d),
        };
        let chosen = match chosen {
            NIL => self.pools[pool].buckets.fewest()?,
            found => found,
        };
        (u32::from(self.blocks[chosen as usize].valid) < self.data_pages).then_some(chosen)
    }

    /// Among blocks with equally many valid pages, the one unchanged for the longest time is best. So one block per
    /// list is compared.
    fn best_by_age(&self, pool: usize) -> u32 {
        let mut best = (0.0, NIL);
        for (valid, block) in self.pools[pool].buckets.oldest() {
            let age = (self.clock - self.lives[block as usize].touched) as f64 + 1.0;
            let void = f64::from(self.data_pages) - valid as f64;
            let score = match valid {
                0 => f64::INFINITY,
                _ => age * void / (2.0 * valid as f64),
            };
            if score > best.0 {
                best = (score, block);
            }
        }
        best.1
    }

    /// Returns the best of `d` random members; draws again if all of them were open, free or full.
    fn best_of(&mut self, pool: usize, d: u8) -> u32 {
        let members = &self.pools[pool].members;
        let mut best = (self.data_pages, NIL);
        for _ in 0..ROUNDS_MAX {
            for _ in 0..d {
                let block = members[self.random.below(members.len() as u64) as usize];
                let entry = self.blocks[block as usize];
                if entry.is_sealed() && u32::from(entry.valid) < best.0 {
                    best = (entry.valid.into(), block);
                }
            }
            if best.1 != NIL {
                break;
            }
        }
        best.1
    }
}
