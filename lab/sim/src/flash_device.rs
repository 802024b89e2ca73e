//! Device of the array with a flash model: effects of requests and copies on the flash, and bytes written by volume.
//!
//! Utilization is the time of the drive's units used by requests and by the garbage collection that they cause, divided
//! by the time of all units. A flush ends when the drive has accepted the command, because the write buffer is assumed
//! to survive a power loss. A trim invalidates whole pages.

use std::collections::VecDeque;
use std::sync::Arc;

use algo::DeviceCounters;
use flash::drive::Op as FlashOp;
use flash::ftl::{OpsShare, Sharing, TenantId};
use flash::model::cleaning::amplification_greedy;
use flash::{Drive, FlashError};
use model::Op;
use units::VolumeId;
use volume::VolumeMap;

use crate::device::{Io, count};
use crate::flash_config::FlashModel;
use crate::frames::Frames;
use crate::tenants::FlashTenants;

/// Bytes written for one volume.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumeBytes {
    /// Bytes written by its guest.
    pub guest: u64,
    /// Bytes written by moves.
    pub copied: u64,
    /// Pages touched by both. A partial write programs the whole page.
    pub pages: u64,
}

impl VolumeBytes {
    pub(crate) fn bytes(&self) -> u64 {
        self.guest + self.copied
    }
}

/// Pages that a tenant wrote and that its garbage collection moved, at a time or since a time.
#[derive(Debug, Clone, Copy, Default)]
struct ProgrammedPages {
    /// Pages that the tenant wrote.
    pages: u64,
    /// Own and foreign pages moved by garbage collection that this tenant caused. For a sampled drive: the sample
    /// multiplied by the scale.
    own: u64,
    foreign: u64,
    /// Own pages moved by garbage collection that other tenants caused.
    by_others: u64,
}

impl ProgrammedPages {
    fn since(self, before: Self) -> Self {
        Self {
            pages: self.pages - before.pages,
            own: self.own - before.own,
            foreign: self.foreign - before.foreign,
            by_others: self.by_others - before.by_others,
        }
    }
}

/// Over-provisioned space of a tenant, summed over windows.
#[derive(Debug, Clone, Copy, Default)]
struct OpsSum {
    windows: u64,
    bytes: u64,
    /// Share of all over-provisioned space of the drive.
    share: f64,
}

/// Predicted effect of spare over-provisioned space on a tenant's writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpareSpace {
    /// Write amplification of the last windows.
    pub waf: f64,
    /// Write amplification with all spare space.
    pub waf_with_spare: f64,
}

/// Number of windows over which remedies compute write amplification.
const WAF_WINDOWS: usize = 6;

/// Counters of a drive at a time.
#[derive(Debug, Clone, Default)]
struct Mark {
    flash_bytes: u64,
    erases: u64,
    written: Vec<VolumeBytes>,
    /// Programmed pages by tenant.
    programmed: Vec<ProgrammedPages>,
}

/// Mean over-provisioned space of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpsOwned {
    pub bytes: u64,
    /// Share of all over-provisioned space of the drive, 0..=1.
    pub share: f64,
}

/// Counters of a tenant since a time.
#[derive(Debug, Clone)]
pub(crate) struct TenantSince {
    /// Bytes programmed for its writes and by garbage collection that it caused.
    pub flash_bytes: u64,
    /// Bytes of other tenants among them.
    pub foreign_bytes: u64,
    /// Own bytes moved by garbage collection that other tenants caused.
    pub by_others_bytes: u64,
    /// Over-provisioned space; `None` if tenants own no blocks.
    pub ops: Option<OpsOwned>,
}

/// Counters of a drive since a time.
#[derive(Debug, Clone)]
pub(crate) struct DriveCounters {
    pub flash_bytes: u64,
    /// Lifetime of its blocks at this rate, years; `None` if nothing was erased.
    pub years: Option<f64>,
    pub written: Vec<VolumeBytes>,
    /// Counters by tenant; empty without tenants.
    pub tenants: Vec<TenantSince>,
}

impl DriveCounters {
    /// Returns the bytes that were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.written.iter().map(VolumeBytes::bytes).sum()
    }
}

/// Returns programmed bytes per written byte; `None` if nothing was written.
pub(crate) fn waf(programmed: u64, written: u64) -> Option<f64> {
    (written > 0).then(|| programmed as f64 / written as f64)
}

pub(crate) struct FlashDevice {
    drive: Drive,
    tenants: Option<Arc<FlashTenants>>,
    /// Numbers of the tenants on the drive.
    ids: Vec<TenantId>,
    /// Over-provisioned space in the measured time, by tenant.
    ops: Vec<OpsSum>,
    /// Share of over-provisioned space by tenant, set by the scenario or an operator; then whether the tenant also has
    /// a part of the spare space.
    shares: Vec<OpsShare>,
    has_spare: Vec<bool>,
    /// Programmed pages at the ends of the last windows, if tenants have shares.
    windows: VecDeque<Vec<ProgrammedPages>>,
    discard: bool,
    frames: Frames,
    counters: DeviceCounters,
    /// Written bytes by volume.
    written: Vec<VolumeBytes>,
    /// Counters at the start of the measured time.
    counted: Mark,
    /// Counters at the end of the last epoch.
    epoch: Mark,
}

impl FlashDevice {
    /// Creates the device with the extents that `maps` has on device `number`.
    pub(crate) fn new(model: &FlashModel, number: usize, maps: &[VolumeMap]) -> Self {
        let volumes = maps.len();
        let mut frames = Frames::new(model.frames);
        for map in maps {
            for e in 0..map.extents() {
                if let Some(place) = map.location(e).filter(|l| l.device.index() == number) {
                    let first = u64::from(place.slot) * model.frames.extent;
                    let (mut at, end) = (first, first + map.bytes_of(e).0);
                    while at < end {
                        at += frames.locate(at).1;
                    }
                }
            }
        }
        Self {
            drive: model.drive.clone(),
            tenants: model.tenants.clone(),
            ids: model.ids.clone(),
            ops: vec![OpsSum::default(); model.ids.len()],
            shares: model.tenants.as_ref().map_or(vec![], |t| t.shares.clone()),
            has_spare: vec![false; model.ids.len()],
            windows: VecDeque::new(),
            discard: model.discard,
            frames,
            counters: DeviceCounters::default(),
            written: vec![VolumeBytes::default(); volumes],
            counted: Mark::default(),
            epoch: Mark::default(),
        }
    }

    pub(crate) fn submit(&mut self, now_ns: u64, io: &Io) -> u64 {
        let op = match io.op {
            Op::Read => FlashOp::Read,
            Op::Write => FlashOp::Write,
            Op::Trim => FlashOp::Trim,
            Op::Flush => {
                let tenant = self.tenant_of(io.volume);
                return self
                    .drive
                    .submit(now_ns, tenant, FlashOp::Write, 0, 0)
                    .done_ns;
            }
        };
        let tenant = self.tenant_of(io.volume);
        let (mut done, mut at, end) = (now_ns, io.at, io.at + io.length);
        let page = self.drive.config().page.0;
        let mut pages = 0;
        while at < end {
            let (offset, there) = self.frames.locate(at);
            let bytes = there.min(end - at);
            let served = self.drive.submit(now_ns, tenant, op, offset, bytes);
            self.counters.busy_ns +=
                served.device_ns as f64 / f64::from(self.drive.config().units());
            pages += (offset + bytes).div_ceil(page) - offset / page;
            done = done.max(served.done_ns);
            at += bytes;
        }
        count(&mut self.counters, io);
        if io.op == Op::Write {
            let written = &mut self.written[io.volume.index()];
            written.pages += pages;
            match io.copy {
                true => written.copied += io.length,
                false => written.guest += io.length,
            }
        }
        done
    }

    pub(crate) fn counters(&self) -> DeviceCounters {
        self.counters
    }

    /// Frees a slot that holds no data any more.
    pub(crate) fn vacated(&mut self, slot: u32) {
        for first in self.frames.give_back(slot) {
            if self.discard {
                // The drive knows the owner of the page, so any tenant's number works.
                self.drive.trim(self.ids[0], first, self.frames.bytes());
            }
        }
    }

    /// Returns the tenant of a volume.
    #[inline]
    fn tenant_of(&self, volume: VolumeId) -> TenantId {
        match &self.tenants {
            None => self.ids[0],
            Some(tenants) => self.ids[usize::from(tenants.of_volume[volume.index()])],
        }
    }

    /// Sets the shares of over-provisioned space of tenants, by their numbers in the scenario. Blocks follow gradually,
    /// as garbage collection processes them.
    pub(crate) fn set_ops_shares(&mut self, shares: &[(usize, f64)]) -> Result<(), FlashError> {
        for (tenant, share) in shares {
            self.shares[*tenant] = OpsShare::Given(*share);
        }
        self.share_out()
    }

    /// Divides the spare over-provisioned space among these tenants, and no others.
    pub(crate) fn give_spare(&mut self, has: &[bool]) -> Result<(), FlashError> {
        if self.has_spare == has {
            return Ok(());
        }
        self.has_spare.copy_from_slice(has);
        self.share_out()
    }

    /// Returns the share of over-provisioned space without an owner; zero if a tenant has all that the others leave.
    fn spare_share(&self) -> f64 {
        let mut left = 1.0;
        for share in &self.shares {
            match share {
                OpsShare::Given(share) => left -= share,
                OpsShare::ByData => return 0.0,
            }
        }
        left.max(0.0)
    }

    fn share_out(&mut self) -> Result<(), FlashError> {
        let having = self.has_spare.iter().filter(|has| **has).count();
        let each = self.spare_share() / having.max(1) as f64;
        let tenants = self.ids.iter().zip(&self.shares).zip(&self.has_spare);
        let shares = tenants.map(|((id, share), has)| match (share, has) {
            (OpsShare::Given(share), true) => (*id, OpsShare::Given(share + each)),
            _ => (*id, *share),
        });
        let shares: Vec<(TenantId, OpsShare)> = shares.collect();
        self.drive.ftl_mut().set_ops_shares(&shares)
    }

    /// Returns true if tenants own blocks.
    pub(crate) fn is_isolated(&self) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_some_and(|t| t.sharing == Sharing::Isolated)
    }

    /// Returns the number of tenants, including the one for all other volumes.
    pub(crate) fn tenants(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of a volume's tenant in the scenario; `None` without tenants.
    pub(crate) fn tenant_number(&self, volume: usize) -> Option<usize> {
        let tenants = self.tenants.as_ref()?;
        Some(usize::from(tenants.of_volume[volume]))
    }

    /// Returns the predicted effect of spare over-provisioned space for a tenant; `None` if there is no spare space, or
    /// nothing was written lately.
    ///
    /// The formula for greedy garbage collection under uniform writes ([`amplification_greedy`]) gives the relative
    /// change of write amplification above one with the space; its present level is measured. The prediction is right
    /// for traffic as uniform as in the formula, and too optimistic for traffic that is already separated well.
    pub(crate) fn spare_space(&self, tenant: usize) -> Option<SpareSpace> {
        let having = self.has_spare.iter().filter(|has| **has).count();
        // The tenants that have spare space already share it with this one.
        let spare = self.spare_share() / (having + 1) as f64;
        if !self.is_isolated() || spare <= 0.0 || self.has_spare[tenant] {
            return None;
        }
        let before = self.windows.front()?.get(tenant)?;
        let now = self.windows.back()?.get(tenant)?;
        let done = now.since(*before);
        let waf = waf(done.pages + done.own + done.foreign, done.pages)?;
        let ftl = self.drive.ftl();
        let owned = |t: &TenantId| ftl.spare_blocks(*t).unwrap_or(0);
        let all = self.ids.iter().map(owned).sum::<u32>() + ftl.unowned_blocks();
        let (data, own) = (ftl.data_blocks(self.ids[tenant]), owned(&self.ids[tenant]));
        let with = f64::from(own) + spare * f64::from(all);
        let pages = ftl.config().data_pages();
        let beyond_one = |blocks: f64| {
            let share = (blocks / (blocks + f64::from(data))).clamp(1e-3, 0.99);
            amplification_greedy(share, pages) - 1.0
        };
        let less = (beyond_one(with) / beyond_one(f64::from(own))).min(1.0);
        Some(SpareSpace {
            waf,
            waf_with_spare: 1.0 + (waf - 1.0) * less,
        })
    }

    /// Returns the drive and the number of used frames.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> (&Drive, usize) {
        (&self.drive, self.frames.taken())
    }

    /// Ends a window and adds the space that each tenant owns.
    pub(crate) fn end_window(&mut self) {
        if self.tenants.is_none() {
            return;
        }
        if self.windows.len() > WAF_WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(self.programmed());
        for (sum, now) in self.ops.iter_mut().zip(ops_owned(&self.drive, &self.ids)) {
            sum.windows += 1;
            sum.bytes += now.bytes;
            sum.share += now.share;
        }
    }

    /// Starts the measured time.
    pub(crate) fn count_from_now(&mut self) {
        self.counted = self.mark();
        self.ops.fill(OpsSum::default());
    }

    /// Returns the counters of the measured time, which is `seconds` long.
    pub(crate) fn counted(&self, seconds: f64) -> DriveCounters {
        self.between(&self.counted, &self.mark(), seconds)
    }

    /// Returns write amplification since the last call; `None` if nothing was written.
    pub(crate) fn epoch_waf(&mut self) -> Option<f64> {
        let now = self.mark();
        let since = self.between(&self.epoch, &now, 0.0);
        self.epoch = now;
        waf(since.flash_bytes, since.bytes())
    }

    fn mark(&self) -> Mark {
        let report = self.drive.report();
        Mark {
            flash_bytes: report.flash_bytes.0,
            erases: report.erases,
            written: self.written.clone(),
            programmed: self.programmed(),
        }
    }

    /// Returns programmed pages by tenant; empty without tenants.
    fn programmed(&self) -> Vec<ProgrammedPages> {
        let ids = self.ids.iter().filter(|_| self.tenants.is_some());
        let ids = ids.map(|tenant| {
            let report = self.drive.tenant_report(*tenant);
            ProgrammedPages {
                pages: report.counts.host_writes,
                own: report.moves.own,
                foreign: report.moves.foreign,
                by_others: report.moves.by_others,
            }
        });
        ids.collect()
    }

    fn tenants_between(&self, before: &Mark, now: &Mark) -> Vec<TenantSince> {
        let page = self.drive.config().page.0;
        let owned = ops_owned(&self.drive, &self.ids);
        let tenants = now.programmed.iter().enumerate().map(|(t, programmed)| {
            let before = before.programmed.get(t).copied().unwrap_or_default();
            let done = programmed.since(before);
            let sum = self.ops[t];
            let mean = |now: &OpsOwned| match sum.windows {
                0 => *now,
                windows => OpsOwned {
                    bytes: sum.bytes / windows,
                    share: sum.share / windows as f64,
                },
            };
            TenantSince {
                flash_bytes: (done.pages + done.own + done.foreign) * page,
                foreign_bytes: done.foreign * page,
                by_others_bytes: done.by_others * page,
                ops: owned.get(t).map(mean),
            }
        });
        tenants.collect()
    }

    fn between(&self, before: &Mark, now: &Mark, seconds: f64) -> DriveCounters {
        let nothing = VolumeBytes::default();
        let written = now.written.iter().enumerate().map(|(v, w)| {
            let before = before.written.get(v).unwrap_or(&nothing);
            VolumeBytes {
                guest: w.guest - before.guest,
                copied: w.copied - before.copied,
                pages: w.pages - before.pages,
            }
        });
        let written: Vec<VolumeBytes> = written.collect();
        let pages: u64 = written.iter().map(|w| w.pages).sum();
        DriveCounters {
            // A scaled drive samples few pages. The value is at least the number of written bytes.
            flash_bytes: (now.flash_bytes.saturating_sub(before.flash_bytes))
                .max(pages * self.drive.config().page.0),
            years: self.drive.years(now.erases - before.erases, seconds),
            written,
            tenants: self.tenants_between(before, now),
        }
    }
}

/// Returns the over-provisioned space of each tenant now; empty if tenants own no blocks.
fn ops_owned(drive: &Drive, ids: &[TenantId]) -> Vec<OpsOwned> {
    let ftl = drive.ftl();
    let spare: Result<Vec<u32>, FlashError> = ids.iter().map(|t| ftl.spare_blocks(*t)).collect();
    let Ok(spare) = spare else {
        return Vec::new();
    };
    let all = spare.iter().sum::<u32>() + ftl.unowned_blocks();
    let config = ftl.config();
    let lanes = u64::from(config.lanes) * u64::from(drive.config().scale);
    let block = u64::from(config.data_pages()) * drive.config().page.0;
    let owned = spare.iter().map(|blocks| OpsOwned {
        bytes: u64::from(*blocks) * lanes * block,
        share: f64::from(*blocks) / f64::from(all.max(1)),
    });
    owned.collect()
}
