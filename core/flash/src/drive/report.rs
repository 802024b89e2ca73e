//! Report of a drive at the end of a run.

use serde::Serialize;
use units::Bytes;

use super::{Drive, UnsampledPages};
use crate::ftl::{Moves, TenantCounts, TenantId, Wear};

/// Report of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantReport {
    /// Id of the tenant.
    pub tenant: TenantId,
    /// Pages that it wrote and trimmed; victims and erases that it caused.
    pub counts: TenantCounts,
    /// Pages moved, by owner.
    pub moves: Moves,
    /// Write amplification of its writes; `None` if it wrote nothing.
    pub waf: Option<f64>,
    /// Mean share of valid pages in the blocks that its collections took.
    pub victim_utilization: Option<f64>,
    /// Blocks beyond its data, over all lanes, if tenants own blocks.
    pub spare_blocks: Option<u64>,
}

/// Report of a drive since its counts were last cleared. A scaled-down drive reports values of the full drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriveReport {
    /// Write amplification; `None` before the first write.
    pub waf: Option<f64>,
    /// Bytes that the host wrote, in whole pages.
    pub host_bytes: Bytes,
    /// Bytes programmed.
    pub flash_bytes: Bytes,
    /// Blocks erased.
    pub erases: u64,
    /// Bytes written by the host, as a multiple of the drive's capacity.
    pub drive_writes: f64,
    /// Mean share of valid pages in collected blocks.
    pub victim_utilization: Option<f64>,
    /// Block erases since the creation of the drive, including ageing.
    pub wear: Wear,
    /// Reports of the tenants.
    pub tenants: Vec<TenantReport>,
}

impl Drive {
    /// Returns the present counts.
    pub fn report(&self) -> DriveReport {
        let ftl = &self.ftl;
        let scale = u64::from(self.config.scale);
        let unsampled: u64 = self.unsampled.iter().map(|u| u.writes).sum();
        let host = ftl.host_writes() + unsampled + self.unsampled_gone;
        let waf = ftl.write_amplification();
        let flash = ftl.flash_writes() as f64 / ftl.host_writes().max(1) as f64 * host as f64;
        let tenants = ftl.tenants().map(|tenant| self.tenant_report(tenant));
        DriveReport {
            waf,
            host_bytes: Bytes(host * self.page_bytes),
            flash_bytes: Bytes(flash as u64 * self.page_bytes),
            erases: ftl.erases() * scale,
            drive_writes: (host * self.page_bytes) as f64 / self.bytes.max(1) as f64,
            victim_utilization: ftl.victim_utilization(),
            wear: ftl.wear(),
            tenants: tenants.collect(),
        }
    }

    /// Returns the counts of one tenant. Its writes and trims are exact on scaled-down drives too; the rest is the
    /// sample times the scale.
    pub fn tenant_report(&self, tenant: TenantId) -> TenantReport {
        let (ftl, scale) = (&self.ftl, u64::from(self.config.scale));
        let at = usize::from(tenant.0);
        let unsampled = self.unsampled.get(at).copied().unwrap_or_default();
        let (counts, moves) = (ftl.counts(tenant), ftl.moves(tenant));
        let all = self.host_pages.get(at).copied().unwrap_or(0);
        let lanes = ftl.config().lanes;
        TenantReport {
            tenant,
            counts: TenantCounts {
                host_writes: counts.host_writes + unsampled.writes,
                trims: counts.trims + unsampled.trims,
                victims: counts.victims * scale,
                victim_pages: counts.victim_pages * scale,
                erases: counts.erases * scale,
                mapped: (counts.mapped * scale).min(all),
            },
            moves: Moves {
                own: moves.own * scale,
                foreign: moves.foreign * scale,
                by_others: moves.by_others * scale,
            },
            waf: ftl.write_amplification_of(tenant),
            victim_utilization: ftl.victim_utilization_of(tenant),
            spare_blocks: (ftl.spare_blocks(tenant).ok())
                .map(|blocks| u64::from(blocks) * u64::from(lanes) * scale),
        }
    }

    /// Clears the counts, except wear.
    pub fn clear_counts(&mut self) {
        self.ftl.clear_counts();
        self.read_pages = 0;
        self.unsampled.fill(UnsampledPages::default());
        self.unsampled_gone = 0;
    }

    /// Returns the pages read by the host since the counts were cleared.
    pub fn read_pages(&self) -> u64 {
        self.read_pages
    }

    /// Returns the number of erase blocks of the drive, including the unsampled part.
    pub fn blocks(&self) -> u64 {
        u64::from(self.ftl.config().blocks) * u64::from(self.config.scale)
    }

    /// Returns the lifetime of the blocks in years under perfect wear levelling, if `erases` of them are erased in
    /// `seconds`. `None` if nothing was erased.
    pub fn years(&self, erases: u64, seconds: f64) -> Option<f64> {
        const YEAR_S: f64 = 365.25 * 86_400.0;
        let per_block = erases as f64 / self.blocks() as f64;
        (erases > 0).then(|| f64::from(self.config.endurance) / per_block * seconds / YEAR_S)
    }

    /// Returns the capacity that the host sees.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.bytes)
    }
}
