//! Whether I/O on a device passes the page cache by: what its file system says, and what is measured.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{DATA_START, SUPERBLOCKS_BYTES};
use model::DirectIo;
use rustix::fs::{Advice, AtFlags, OFlags, StatxFlags, fadvise, statx};

use super::lock::mark_direct;
use super::{Backing, Device, Medium, reopened, write_durably};
use crate::direct::Alignment;
use crate::helper_thread::{Outcome, Wanted};
use crate::io::{BUF_ALIGNMENT, Buf};

/// What is asked and measured of a device before it is used takes this long at most; one that takes longer is used through the page cache.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Measuring takes this long at most, but for what is under way then.
const MEASURE_TIME: Duration = Duration::from_millis(150);

/// Pairs of one write and one read, either way: as many at most, and at least.
const PAIRS: (usize, usize) = (48, 5);

const BYTES: usize = 4096;

/// Direct I/O is taken unless it takes this many times as long: it keeps guests' data out of the host's memory, and what is measured of the
/// device is the device.
const WORTH: f64 = 1.25;

/// A file or block device, open past the page cache.
#[derive(Debug, Clone)]
pub struct DirectFile {
    pub file: Arc<File>,
    /// What it demands.
    pub alignment: Alignment,
}

const MEMORY: &str = "the device is in memory";

/// How a device is used, and why.
#[derive(Debug, Clone)]
pub(super) struct Settled {
    direct: Option<DirectFile>,
    why: String,
    /// It was to be direct, and is not.
    refused: bool,
}

impl Device {
    /// How it is used past the page cache, if it is.
    #[inline]
    pub fn direct(&self) -> Option<&DirectFile> {
        self.settled.get()?.direct.as_ref()
    }

    /// Whether I/O on it is direct, and why, in words; `None` where nobody has asked, or there is nothing to choose.
    pub fn direct_why(&self) -> Option<(bool, &str)> {
        let settled = self.settled.get()?;
        Some((settled.direct.is_some(), &settled.why))
    }

    /// Why it is used through the page cache though that was not wanted.
    pub fn direct_refused(&self) -> Option<&str> {
        let settled = self.settled.get()?;
        settled.refused.then_some(&settled.why)
    }

    /// Why it can only be used through the page cache, if so.
    pub fn direct_impossible(&self) -> Option<String> {
        match &self.medium {
            Medium::File(_, Backing::Memory) => Some(MEMORY.into()),
            Medium::File(file, Backing::Storage) => alignment_of(file).err(),
            Medium::Nbd(..) | Medium::Lost => None,
        }
    }

    /// What was wanted when it was opened.
    pub fn direct_wanted(&self) -> DirectIo {
        self.wanted
    }

    /// Uses it as another process has, which decided that.
    pub(super) fn settle_as(&self, direct: bool, why: String) {
        let Medium::File(file, _) = &self.medium else {
            return;
        };
        let opened = direct.then(|| open_direct(file)).transpose();
        let settled = match opened {
            Ok(opened) => Settled {
                direct: opened,
                refused: self.wanted == DirectIo::On && !direct,
                why,
            },
            Err(why) => Settled {
                direct: None,
                why,
                refused: self.wanted == DirectIo::On,
            },
        };
        let _ = self.settled.set(settled);
    }

    /// Decides, once and before it is used, whether I/O on it passes the page cache by. Only of a device that is the array's: what is measured
    /// is written to it, though not where anything is.
    pub fn settle_direct(&self) {
        let Medium::File(file, backing) = &self.medium else {
            return;
        };
        if self.settled.get().is_some() {
            return;
        }
        let (file, backing, wanted) = (file.clone(), *backing, self.wanted);
        let settle = move |still: &Wanted| settle(&file, backing, wanted, still);
        let settled = match self.holder.within(SETTLE_TIME, settle) {
            Outcome::Done(settled) => settled,
            Outcome::Late(_) | Outcome::NotBegun => Settled {
                direct: None,
                why: format!("no response within {} s", SETTLE_TIME.as_secs()),
                refused: wanted == DirectIo::On,
            },
        };
        let _ = self.settled.set(settled);
    }
}

fn settle(file: &File, backing: Backing, wanted: DirectIo, still: &Wanted) -> Settled {
    let cached = |why: String| Settled {
        direct: None,
        refused: wanted == DirectIo::On,
        why,
    };
    if wanted == DirectIo::Off {
        return cached("as configured".into());
    }
    if backing == Backing::Memory {
        return cached(MEMORY.into());
    }
    let direct = match open_direct(file) {
        Ok(direct) => direct,
        Err(why) => return cached(why),
    };
    if wanted == DirectIo::On {
        return Settled {
            direct: Some(direct),
            why: "as configured".into(),
            refused: false,
        };
    }
    match measure(file, &direct, still) {
        Ok(measured) => Settled {
            why: measured.to_string(),
            direct: measured.is_worth_it().then_some(direct),
            refused: false,
        },
        Err(error) => cached(format!("cannot measure direct I/O: {error}")),
    }
}

/// What direct I/O on a file demands, if it can be done.
fn alignment_of(file: &File) -> Result<Alignment, String> {
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let asked = asked.map_err(|e| format!("cannot query the alignment for direct I/O: {e}"))?;
    if asked.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Err("the kernel does not report the alignment for direct I/O: this needs Linux 6.1 or newer and a file system with support for it".into());
    }
    let alignment = Alignment {
        memory: asked.stx_dio_mem_align,
        block: asked.stx_dio_offset_align,
    };
    let fits = |n: u32| n.is_power_of_two() && n <= BUF_ALIGNMENT;
    match alignment {
        Alignment { block: 0, .. } => Err("the file system does not support direct I/O".into()),
        Alignment { memory, block } if !fits(memory) || !fits(block) => Err(format!(
            "direct I/O needs memory aligned to {memory} bytes and blocks of {block} bytes; at most {BUF_ALIGNMENT} are supported"
        )),
        Alignment { .. } => Ok(alignment),
    }
}

/// Opens what is open a second time, past the page cache.
fn open_direct(file: &File) -> Result<DirectFile, String> {
    let alignment = alignment_of(file)?;
    let opened = reopened(file, OFlags::DIRECT);
    let direct = DirectFile {
        file: Arc::new(opened.map_err(|e| format!("cannot open for direct I/O: {e}"))?),
        alignment,
    };
    mark_direct(&direct.file);
    // What is said is tried.
    let mut head = Buf::new(SUPERBLOCKS_BYTES).target(0..SUPERBLOCKS_BYTES);
    match direct.file.read_at(&mut head, 0) {
        Ok(SUPERBLOCKS_BYTES) => Ok(direct),
        Ok(n) => Err(format!(
            "a direct read returned {n} of {SUPERBLOCKS_BYTES} bytes"
        )),
        Err(error) => Err(format!("a direct read failed: {error}")),
    }
}

/// Medians of single requests, one at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    write: Duration,
    read: Duration,
}

impl Times {
    fn of(mut writes: Vec<Duration>, mut reads: Vec<Duration>) -> Self {
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        Self {
            write: median(&mut writes),
            read: median(&mut reads),
        }
    }

    fn both(self) -> f64 {
        (self.write + self.read).as_secs_f64()
    }
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    direct: Times,
    cached: Times,
}

impl Measured {
    fn is_worth_it(&self) -> bool {
        self.direct.both() <= WORTH * self.cached.both()
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |t: Duration| t.as_micros();
        write!(
            f,
            "a durable write of 4 KiB takes {} µs and a read {} µs; through the page cache {} µs and {} µs",
            us(self.direct.write),
            us(self.direct.read),
            us(self.cached.write),
            us(self.cached.read)
        )
    }
}

/// Durable writes, and reads that the page cache does not have, of 4 KiB each, either way in turns. They are between superblocks and slots,
/// where nothing is, and write what they find.
fn measure(file: &File, direct: &DirectFile, still: &Wanted) -> io::Result<Measured> {
    let places = (DATA_START as usize - SUPERBLOCKS_BYTES) / BYTES;
    let until = Instant::now() + MEASURE_TIME;
    let mut times = [(vec![], vec![]), (vec![], vec![])];
    for pair in 0..PAIRS.0 {
        if pair >= PAIRS.1 && Instant::now() >= until {
            break;
        }
        for (way, (writes, reads)) in times.iter_mut().enumerate() {
            let file = if way == 0 { &*direct.file } else { file };
            // Far enough from one another that no read ahead has it.
            let place = (pair * 2 + way) * 67 % places;
            let at = (SUPERBLOCKS_BYTES + place * BYTES) as u64;
            let mut buf = Buf::new(BYTES).target(0..BYTES);
            file.read_exact_at(&mut buf, at)?;
            if !still.still() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let began = Instant::now();
            write_durably(file, &buf, at)?;
            writes.push(began.elapsed());
            fadvise(
                file,
                at,
                std::num::NonZeroU64::new(BYTES as u64),
                Advice::DontNeed,
            )?;
            let began = Instant::now();
            file.read_exact_at(&mut buf, at)?;
            reads.push(began.elapsed());
        }
    }
    let [direct, cached] = times.map(|(writes, reads)| Times::of(writes, reads));
    Ok(Measured { direct, cached })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(write: u64, read: u64) -> Times {
        Times {
            write: Duration::from_micros(write),
            read: Duration::from_micros(read),
        }
    }

    #[test]
    fn what_is_much_slower_is_not_taken() {
        let cached = times(100, 80);
        let is = |direct| Measured { direct, cached }.is_worth_it();
        assert!(is(times(90, 80)));
        assert!(is(times(120, 100)));
        assert!(!is(times(150, 90)));
    }

    #[test]
    fn one_that_was_slow_once_is_no_slow_one() {
        let us = Duration::from_micros;
        let times = Times::of(vec![us(9), us(5_000), us(8)], vec![us(3)]);
        assert_eq!((times.write, times.read), (us(9), us(3)));
    }
}
