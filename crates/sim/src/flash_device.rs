//! A device of the array with its flash: what requests and copies make of it, and who wrote how much.
//!
//! Utilization is the time that requests, and the collection that they set off, take of the drive's units, over all of them. A flush ends when the drive has taken the command: its write buffer is taken to be protected against a loss of power. A trim voids
//! whole pages.

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

/// Bytes that were written for one volume.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// By its guest.
    pub guest: u64,
    /// By moves.
    pub copied: u64,
    /// Pages that both touched: what is written in part is programmed whole.
    pub pages: u64,
}

impl Written {
    pub(crate) fn bytes(&self) -> u64 {
        self.guest + self.copied
    }
}

/// Pages that a tenant had written and had collection move, at a time or since one.
#[derive(Debug, Clone, Copy, Default)]
struct Programmed {
    /// Those that it wrote.
    pages: u64,
    /// Moved by collections that it set off: its own, and those of others. Of a drive that is sampled, the sample's times the scale.
    own: u64,
    foreign: u64,
    /// Its own, moved by collections that others set off.
    by_others: u64,
}

impl Programmed {
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
    /// Of all of the drive.
    share: f64,
}

/// What spare over-provisioned space would do for a tenant's writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpareSpace {
    /// Write amplification of the last windows.
    pub waf: f64,
    /// And with all that is spare.
    pub waf_with_spare: f64,
}

/// Windows over which write amplification is taken, for answers to broken objectives.
const WAF_WINDOWS: usize = 6;

/// What a drive had done at a time.
#[derive(Debug, Clone, Default)]
struct Mark {
    flash_bytes: u64,
    erases: u64,
    written: Vec<Written>,
    /// By tenant.
    programmed: Vec<Programmed>,
}

/// Over-provisioned space that a tenant owned, on average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpsOwned {
    pub bytes: u64,
    /// Of all of the drive, 0..=1.
    pub share: f64,
}

/// What a tenant did since a time.
#[derive(Debug, Clone)]
pub(crate) struct TenantSince {
    /// Bytes programmed for what it wrote, and by collections that it set off.
    pub flash_bytes: u64,
    /// Bytes of others in these.
    pub foreign_bytes: u64,
    /// Its own in collections that others set off.
    pub by_others_bytes: u64,
    /// None where tenants own no blocks.
    pub ops: Option<OpsOwned>,
}

/// What it did since a time.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    pub flash_bytes: u64,
    /// Years that its blocks last at this rate; none if nothing was erased.
    pub years: Option<f64>,
    pub written: Vec<Written>,
    /// By tenant; none where nobody is told apart.
    pub tenants: Vec<TenantSince>,
}

impl Since {
    /// Bytes that were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.written.iter().map(Written::bytes).sum()
    }
}

/// Bytes programmed for each that was written; none if nothing was.
pub(crate) fn waf(programmed: u64, written: u64) -> Option<f64> {
    (written > 0).then(|| programmed as f64 / written as f64)
}

pub(crate) struct FlashDevice {
    drive: Drive,
    tenants: Option<Arc<FlashTenants>>,
    /// Numbers of tenants on the drive.
    ids: Vec<TenantId>,
    /// By tenant, in the time that counts.
    ops: Vec<OpsSum>,
    /// By tenant: its share of over-provisioned space as the scenario or an operator says, and whether it has what nobody has on top.
    shares: Vec<OpsShare>,
    has_spare: Vec<bool>,
    /// What was programmed by the ends of the last windows, where tenants have shares.
    windows: VecDeque<Vec<Programmed>>,
    discard: bool,
    frames: Frames,
    counters: DeviceCounters,
    /// By volume.
    written: Vec<Written>,
    /// When what counts began.
    counted: Mark,
    /// When the last epoch ended.
    epoch: Mark,
}

impl FlashDevice {
    /// With the volumes that `maps` has on device `number`.
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
            written: vec![Written::default(); volumes],
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

    /// A slot holds nothing any more.
    pub(crate) fn vacated(&mut self, slot: u32) {
        for first in self.frames.give_back(slot) {
            if self.discard {
                // Whosever it was: the drive knows.
                self.drive.trim(self.ids[0], first, self.frames.bytes());
            }
        }
    }

    /// The tenant of a volume.
    #[inline]
    fn tenant_of(&self, volume: VolumeId) -> TenantId {
        match &self.tenants {
            None => self.ids[0],
            Some(tenants) => self.ids[usize::from(tenants.of_volume[volume.index()])],
        }
    }

    /// Shares of the drive's over-provisioned space that tenants, by their numbers in the scenario, have from now on. Blocks follow as collection
    /// works through them.
    pub(crate) fn set_ops_shares(&mut self, shares: &[(usize, f64)]) -> Result<(), FlashError> {
        for (tenant, share) in shares {
            self.shares[*tenant] = OpsShare::Given(*share);
        }
        self.share_out()
    }

    /// What nobody has of the over-provisioned space is shared by these tenants from now on, and by no others.
    pub(crate) fn give_spare(&mut self, has: &[bool]) -> Result<(), FlashError> {
        if self.has_spare == has {
            return Ok(());
        }
        self.has_spare.copy_from_slice(has);
        self.share_out()
    }

    /// Share of the over-provisioned space that nobody has: none where somebody has what others leave.
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

    /// Whether tenants own blocks.
    pub(crate) fn is_isolated(&self) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_some_and(|t| t.sharing == Sharing::Isolated)
    }

    /// How many tenants there are, that of all others among them.
    pub(crate) fn tenants(&self) -> usize {
        self.ids.len()
    }

    /// The number of a volume's tenant in the scenario; none where nobody is told apart.
    pub(crate) fn tenant_number(&self, volume: usize) -> Option<usize> {
        let tenants = self.tenants.as_ref()?;
        Some(usize::from(tenants.of_volume[volume]))
    }

    /// What over-provisioned space that nobody has would do for a tenant; none where there is nothing to give, or nothing was written lately.
    ///
    /// Write amplification by greedy collection of uniform writes ([`amplification_greedy`]) says how its part beyond one changes with the
    /// space: how large it is was measured. So it is right for traffic as uniform as that in the formula, and too hopeful for
    /// traffic that is already separated well.
    pub(crate) fn spare_space(&self, tenant: usize) -> Option<SpareSpace> {
        let having = self.has_spare.iter().filter(|has| **has).count();
        // Shared by those who have it already.
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

    /// The drive, and frames in use.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> (&Drive, usize) {
        (&self.drive, self.frames.taken())
    }

    /// A window ends: who owns how much of what is spare.
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

    /// What is done from now on counts.
    pub(crate) fn count_from_now(&mut self) {
        self.counted = self.mark();
        self.ops.fill(OpsSum::default());
    }

    /// What was done since that, `seconds` long.
    pub(crate) fn counted(&self, seconds: f64) -> Since {
        self.between(&self.counted, &self.mark(), seconds)
    }

    /// Write amplification since it was asked for last; none if nothing was written.
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

    /// By tenant; nothing where nobody is told apart.
    fn programmed(&self) -> Vec<Programmed> {
        let ids = self.ids.iter().filter(|_| self.tenants.is_some());
        let ids = ids.map(|tenant| {
            let report = self.drive.tenant_report(*tenant);
            Programmed {
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

    fn between(&self, before: &Mark, now: &Mark, seconds: f64) -> Since {
        let nothing = Written::default();
        let written = now.written.iter().enumerate().map(|(v, w)| {
            let before = before.written.get(v).unwrap_or(&nothing);
            Written {
                guest: w.guest - before.guest,
                copied: w.copied - before.copied,
                pages: w.pages - before.pages,
            }
        });
        let written: Vec<Written> = written.collect();
        let pages: u64 = written.iter().map(|w| w.pages).sum();
        Since {
            // Of a scaled drive, few pages of which were sampled: at least what was written.
            flash_bytes: (now.flash_bytes.saturating_sub(before.flash_bytes))
                .max(pages * self.drive.config().page.0),
            years: self.drive.years(now.erases - before.erases, seconds),
            written,
            tenants: self.tenants_between(before, now),
        }
    }
}

/// Over-provisioned space of tenants now; nothing where they own no blocks.
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
