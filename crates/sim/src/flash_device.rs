//! A device of the array with its flash: what requests and copies make of it, and who wrote how much.
//!
//! Utilization is the time that requests, and the collection that they set off, take of the drive's units, over all of them. A flush ends when the drive has taken the command: its write buffer is taken to be protected against a loss of power. A trim voids
//! whole pages.

use algo::DeviceCounters;
use flash::Drive;
use flash::drive::Op as FlashOp;
use flash::ftl::TenantId;
use model::Op;
use volume::VolumeMap;

use crate::device::Io;
use crate::flash_config::FlashModel;
use crate::frames::Frames;

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

/// What a drive had done at a time.
#[derive(Debug, Clone, Default)]
struct Mark {
    flash_bytes: u64,
    erases: u64,
    written: Vec<Written>,
}

/// What it did since a time.
#[derive(Debug, Clone)]
pub(crate) struct Since {
    pub flash_bytes: u64,
    /// Years that its blocks last at this rate; none if nothing was erased.
    pub years: Option<f64>,
    pub written: Vec<Written>,
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
    tenant: TenantId,
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
            tenant: model.tenant,
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
                return self
                    .drive
                    .submit(now_ns, self.tenant, FlashOp::Write, 0, 0)
                    .done_ns;
            }
        };
        let (mut done, mut at, end) = (now_ns, io.at, io.at + io.length);
        let page = self.drive.config().page.0;
        let mut pages = 0;
        while at < end {
            let (offset, there) = self.frames.locate(at);
            let bytes = there.min(end - at);
            let served = self.drive.submit(now_ns, self.tenant, op, offset, bytes);
            self.counters.busy_ns +=
                served.device_ns as f64 / f64::from(self.drive.config().units());
            pages += (offset + bytes).div_ceil(page) - offset / page;
            done = done.max(served.done_ns);
            at += bytes;
        }
        match io.op {
            Op::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += io.length;
            }
            Op::Write => {
                self.counters.writes += 1;
                self.counters.write_bytes += io.length;
                let written = &mut self.written[io.volume.index()];
                written.pages += pages;
                match io.copy {
                    true => written.copied += io.length,
                    false => written.guest += io.length,
                }
            }
            Op::Trim | Op::Flush => self.counters.writes += 1,
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
                self.drive.trim(self.tenant, first, self.frames.bytes());
            }
        }
    }

    /// What is done from now on counts.
    pub(crate) fn count_from_now(&mut self) {
        self.counted = self.mark();
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
        }
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
        }
    }
}
