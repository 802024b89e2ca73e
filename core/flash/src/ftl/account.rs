//! Counters: host writes, moved pages by cause and owner, and wear of the blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::TENANTS_MAX;
use super::{Ftl, TenantId};

const T: usize = TENANTS_MAX as usize;

/// Counts of one tenant since they were last cleared. Units are pages of flash, not of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantCounts {
    /// Pages that the tenant wrote.
    pub host_writes: u64,
    /// Pages that it trimmed.
    pub trims: u64,
    /// Victims of collections that it caused.
    pub victims: u64,
    /// Valid pages in these victims.
    pub victim_pages: u64,
    /// Erases that it caused.
    pub erases: u64,
    /// Present number of pages with data, which clearing does not reset.
    pub mapped: u64,
}

/// Pages moved by the collections of one tenant, and pages of that tenant moved by others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moves {
    /// Its own pages, in collections that it caused.
    pub own: u64,
    /// Pages of others, in collections that it caused.
    pub foreign: u64,
    /// Its pages, in collections that others caused.
    pub by_others: u64,
}

impl Moves {
    /// Returns the share of its own pages among the pages that its collections moved; `None` if they moved nothing.
    pub fn own_share(&self) -> Option<f64> {
        let all = self.own + self.foreign;
        (all > 0).then(|| self.own as f64 / all as f64)
    }
}

/// Erases per block since the creation of the drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wear {
    /// Least worn block.
    pub least: u32,
    /// Mean over all blocks.
    pub mean: f64,
    /// Most worn block.
    pub most: u32,
}

/// Counts of removed tenants that are still part of the drive's counts.
#[derive(Debug, Clone, Copy, Default)]
struct RemovedCounts {
    counts: TenantCounts,
    /// Pages moved in collections that they caused.
    moved: u64,
}

/// Counters of a drive.
#[derive(Debug, Clone)]
pub(super) struct Account {
    gone: RemovedCounts,
    /// For each tenant: pages of removed tenants that its collections moved, and its pages that theirs moved.
    with_gone: Box<[(u64, u64); T]>,
    tenants: Box<[TenantCounts; T]>,
    /// Moved pages: tenant that caused the collection × owner of the page.
    moves: Box<[u64]>,
    pub summaries: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            gone: RemovedCounts::default(),
            with_gone: Box::new([(0, 0); T]),
            tenants: Box::new([TenantCounts::default(); T]),
            moves: vec![0; T * T].into(),
            summaries: 0,
        }
    }
}

impl Account {
    #[inline]
    fn of(&mut self, tenant: TenantId) -> &mut TenantCounts {
        &mut self.tenants[usize::from(tenant.0) % T]
    }

    #[inline]
    pub(super) fn host_write(&mut self, tenant: TenantId) {
        self.of(tenant).host_writes += 1;
    }

    pub(super) fn trim(&mut self, tenant: TenantId) {
        self.of(tenant).trims += 1;
    }

    pub(super) fn mapped(&mut self, tenant: TenantId, change: i64) {
        let mapped = &mut self.of(tenant).mapped;
        *mapped = mapped.strict_add_signed(change);
    }

    pub(super) fn erase(&mut self, tenant: TenantId) {
        self.of(tenant).erases += 1;
    }

    pub(super) fn victim(&mut self, tenant: TenantId, valid: u64) {
        let counts = self.of(tenant);
        counts.victims += 1;
        counts.victim_pages += valid;
    }

    #[inline]
    pub(super) fn moved(&mut self, by: TenantId, owner: u8, n: u64) {
        self.moves[(usize::from(by.0) % T) * T + usize::from(owner) % T] += n;
    }

    pub(super) fn clear(&mut self) {
        for t in self.tenants.iter_mut() {
            *t = TenantCounts {
                mapped: t.mapped,
                ..TenantCounts::default()
            };
        }
        self.moves.fill(0);
        self.gone = RemovedCounts::default();
        self.with_gone.fill((0, 0));
        self.summaries = 0;
    }

    /// Resets the counters of a tenant's index for a new tenant. Sums over the drive, and the pages that others moved,
    /// are kept.
    pub(super) fn forget(&mut self, tenant: TenantId) {
        let old = std::mem::take(self.of(tenant));
        let gone = &mut self.gone.counts;
        gone.host_writes += old.host_writes;
        gone.trims += old.trims;
        gone.victims += old.victims;
        gone.victim_pages += old.victim_pages;
        gone.erases += old.erases;
        let t = usize::from(tenant.0);
        self.gone.moved += std::mem::take(&mut self.with_gone[t]).0;
        for other in 0..T {
            let by_it = std::mem::take(&mut self.moves[t * T + other]);
            let of_it = std::mem::take(&mut self.moves[other * T + t]);
            self.gone.moved += by_it;
            self.with_gone[other].0 += of_it;
            if other != t {
                self.with_gone[other].1 += by_it;
            }
        }
    }

    /// Returns the counts of the present tenants and of the removed ones.
    fn all(&self) -> impl Iterator<Item = &TenantCounts> {
        self.tenants.iter().chain([&self.gone.counts])
    }

    pub(super) fn bytes(&self) -> usize {
        T * (size_of::<TenantCounts>() + 16) + self.moves.len() * 8
    }
}

impl Ftl {
    /// Returns the counts of a tenant.
    pub fn counts(&self, tenant: TenantId) -> TenantCounts {
        self.account.tenants[usize::from(tenant.0)]
    }

    /// Returns the moved pages of a tenant.
    pub fn moves(&self, tenant: TenantId) -> Moves {
        let t = usize::from(tenant.0);
        let m = &self.account.moves;
        let own = m[t * T + t];
        let row: u64 = m[t * T..(t + 1) * T].iter().sum();
        let column: u64 = (0..T).map(|by| m[by * T + t]).sum();
        Moves {
            own,
            foreign: row - own + self.account.with_gone[t].0,
            by_others: column - own + self.account.with_gone[t].1,
        }
    }

    /// Returns the pages of `owner` that were moved in collections that `by` caused.
    pub fn moved(&self, by: TenantId, owner: TenantId) -> u64 {
        self.account.moves[usize::from(by.0) * T + usize::from(owner.0)]
    }

    /// Returns the pages that the host wrote.
    pub fn host_writes(&self) -> u64 {
        self.account.all().map(|t| t.host_writes).sum()
    }

    /// Returns the pages programmed: host writes, moved pages, summaries.
    pub fn flash_writes(&self) -> u64 {
        let moved: u64 = self.account.moves.iter().sum();
        let of_gone: u64 = self.account.with_gone.iter().map(|w| w.0).sum();
        self.host_writes() + moved + of_gone + self.account.gone.moved + self.account.summaries
    }

    /// Returns the number of erases.
    pub fn erases(&self) -> u64 {
        self.account.all().map(|t| t.erases).sum()
    }

    /// Returns the write amplification: pages programmed per page that the host wrote; `None` before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let host = self.host_writes();
        (host > 0).then(|| self.flash_writes() as f64 / host as f64)
    }

    /// Returns the write amplification of one tenant's writes, including the moves that it caused.
    pub fn write_amplification_of(&self, tenant: TenantId) -> Option<f64> {
        let (counts, moves) = (self.counts(tenant), self.moves(tenant));
        let all = counts.host_writes + moves.own + moves.foreign;
        (counts.host_writes > 0).then(|| all as f64 / counts.host_writes as f64)
    }

    /// Returns the mean share of valid pages in collected blocks, the u of the cost model; `None` before the first
    /// collection.
    pub fn victim_utilization(&self) -> Option<f64> {
        let victims: u64 = self.account.all().map(|t| t.victims).sum();
        let pages: u64 = self.account.all().map(|t| t.victim_pages).sum();
        (victims > 0).then(|| pages as f64 / (victims as f64 * f64::from(self.data_pages)))
    }

    /// Returns the mean share of valid pages for collections that one tenant caused.
    pub fn victim_utilization_of(&self, tenant: TenantId) -> Option<f64> {
        let counts = self.counts(tenant);
        let pages = counts.victims as f64 * f64::from(self.data_pages);
        (counts.victims > 0).then(|| counts.victim_pages as f64 / pages)
    }

    /// Clears all counts except wear, usually at the end of the transient.
    pub fn clear_counts(&mut self) {
        self.account.clear();
    }

    /// Returns the wear of the blocks.
    pub fn wear(&self) -> Wear {
        let erases = || self.lives.iter().map(|l| l.erases);
        let sum: u64 = erases().map(u64::from).sum();
        Wear {
            least: erases().min().unwrap_or(0),
            mean: sum as f64 / self.lives.len() as f64,
            most: erases().max().unwrap_or(0),
        }
    }
}
