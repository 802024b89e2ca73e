//! Choice between direct I/O and the page cache for a device, by the abilities of its file system and by measurement.

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
use crate::error::{DatapathError, Result};
use crate::helper_thread::{Outcome, WorkFlag};
use crate::io::{BUF_ALIGNMENT, Buf};

/// Time limit of queries and measurements before the first use of a device. A slower device uses the page cache.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Time limit of the measurement, except for requests in flight.
const MEASURE_TIME: Duration = Duration::from_millis(150);

/// Number of pairs of one write and one read by each method: maximum and minimum.
const PAIRS: (usize, usize) = (48, 5);

const BYTES: usize = 4096;

/// Direct I/O is chosen unless its time is longer by this factor. It keeps guests' data out of the host's memory, and
/// its measurements are those of the device.
const WORTH: f64 = 1.25;

/// File or block device, open for direct I/O.
#[derive(Debug, Clone)]
pub struct DirectFile {
    pub file: Arc<File>,
    /// Alignment that it demands.
    pub alignment: Alignment,
}

const MEMORY: &str = "the device is in memory";

/// Decision about direct I/O with its reason.
#[derive(Debug, Clone)]
pub(super) struct DirectDecision {
    direct: Option<DirectFile>,
    why: String,
    /// True if direct I/O is configured but not possible.
    refused: bool,
}

impl Device {
    /// Returns the opening for direct I/O, if the device uses it.
    #[inline]
    pub fn direct(&self) -> Option<&DirectFile> {
        self.settled.get()?.direct.as_ref()
    }

    /// Returns the decision for or against direct I/O with its reason; `None` if no decision was made or needed.
    pub fn direct_why(&self) -> Option<(bool, &str)> {
        let settled = self.settled.get()?;
        Some((settled.direct.is_some(), &settled.why))
    }

    /// Returns the reason why the page cache is used although direct I/O is configured.
    pub fn direct_refused(&self) -> Option<&str> {
        let settled = self.settled.get()?;
        settled.refused.then_some(&settled.why)
    }

    /// Returns the reason why direct I/O is impossible.
    pub fn direct_impossible(&self) -> Option<String> {
        match &self.medium {
            Medium::File(_, Backing::Memory) => Some(MEMORY.into()),
            Medium::File(file, Backing::Storage) => {
                alignment_of(file).err().map(|why| why.to_string())
            }
            Medium::Nbd(..) | Medium::Lost => None,
        }
    }

    /// Returns the configured mode.
    pub fn direct_wanted(&self) -> DirectIo {
        self.wanted
    }

    /// Uses the method that another process has chosen.
    pub(super) fn settle_as(&self, direct: bool, why: String) {
        let Medium::File(file, _) = &self.medium else {
            return;
        };
        let opened = direct.then(|| open_direct(file)).transpose();
        let settled = match opened {
            Ok(opened) => DirectDecision {
                direct: opened,
                refused: self.wanted == DirectIo::On && !direct,
                why,
            },
            Err(why) => DirectDecision {
                direct: None,
                why: why.to_string(),
                refused: self.wanted == DirectIo::On,
            },
        };
        let _ = self.settled.set(settled);
    }

    /// Chooses direct I/O or the page cache before the first use. Call it only for a device of the array: the
    /// measurement writes to it, but only in an unused area.
    pub fn settle_direct(&self) {
        let Medium::File(file, backing) = &self.medium else {
            return;
        };
        if self.settled.get().is_some() {
            return;
        }
        let (file, backing, wanted) = (file.clone(), *backing, self.wanted);
        let settle = move |still: &WorkFlag| settle(&file, backing, wanted, still);
        let settled = match self.holder.within(SETTLE_TIME, settle) {
            Outcome::Done(settled) => settled,
            Outcome::Late(_) | Outcome::NotBegun => DirectDecision {
                direct: None,
                why: format!("no response within {} s", SETTLE_TIME.as_secs()),
                refused: wanted == DirectIo::On,
            },
        };
        let _ = self.settled.set(settled);
    }
}

fn settle(file: &File, backing: Backing, wanted: DirectIo, still: &WorkFlag) -> DirectDecision {
    let cached = |why: String| DirectDecision {
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
        Err(why) => return cached(why.to_string()),
    };
    if wanted == DirectIo::On {
        return DirectDecision {
            direct: Some(direct),
            why: "as configured".into(),
            refused: false,
        };
    }
    match measure(file, &direct, still) {
        Ok(measured) => DirectDecision {
            why: measured.to_string(),
            direct: measured.is_worth_it().then_some(direct),
            refused: false,
        },
        Err(error) => cached(format!("cannot measure direct I/O: {error}")),
    }
}

/// Returns the alignment of direct I/O on a file; an error if it is not possible.
fn alignment_of(file: &File) -> Result<Alignment> {
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let asked = asked.map_err(DatapathError::system(
        "query",
        &"the alignment for direct I/O",
    ))?;
    if asked.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Err(DatapathError::Refused("the kernel does not report the alignment for direct I/O: this needs Linux 6.1 or newer and a file system with support for it".into()));
    }
    let alignment = Alignment {
        memory: asked.stx_dio_mem_align,
        block: asked.stx_dio_offset_align,
    };
    let fits = |n: u32| n.is_power_of_two() && n <= BUF_ALIGNMENT;
    match alignment {
        Alignment { block: 0, .. } => Err(DatapathError::Refused(
            "the file system does not support direct I/O".into(),
        )),
        Alignment { memory, block } if !fits(memory) || !fits(block) => {
            Err(DatapathError::Refused(format!(
                "direct I/O needs memory aligned to {memory} bytes and blocks of {block} bytes; at most {BUF_ALIGNMENT} are supported"
            )))
        }
        Alignment { .. } => Ok(alignment),
    }
}

/// Opens an open file again for direct I/O.
fn open_direct(file: &File) -> Result<DirectFile> {
    let alignment = alignment_of(file)?;
    let opened = reopened(file, OFlags::DIRECT);
    let direct = DirectFile {
        file: Arc::new(opened.map_err(DatapathError::system("open", &"for direct I/O"))?),
        alignment,
    };
    mark_direct(&direct.file);
    // Test the reported alignment.
    let mut head = Buf::new(SUPERBLOCKS_BYTES).target(0..SUPERBLOCKS_BYTES);
    match direct.file.read_at(&mut head, 0) {
        Ok(SUPERBLOCKS_BYTES) => Ok(direct),
        Ok(n) => Err(DatapathError::Refused(format!(
            "a direct read returned {n} of {SUPERBLOCKS_BYTES} bytes"
        ))),
        Err(error) => Err(DatapathError::failed(error).about("a direct read failed")),
    }
}

/// Median times of single requests, one at a time.
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
struct DirectTimes {
    direct: Times,
    cached: Times,
}

impl DirectTimes {
    fn is_worth_it(&self) -> bool {
        self.direct.both() <= WORTH * self.cached.both()
    }
}

impl std::fmt::Display for DirectTimes {
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

/// Measures durable writes and uncached reads of 4 KiB, by both methods in turns. They use the unused area between
/// superblocks and slots, and write the content that they read there.
fn measure(file: &File, direct: &DirectFile, still: &WorkFlag) -> io::Result<DirectTimes> {
    let places = (DATA_START as usize - SUPERBLOCKS_BYTES) / BYTES;
    let until = Instant::now() + MEASURE_TIME;
    let mut times = [(vec![], vec![]), (vec![], vec![])];
    for pair in 0..PAIRS.0 {
        if pair >= PAIRS.1 && Instant::now() >= until {
            break;
        }
        for (way, (writes, reads)) in times.iter_mut().enumerate() {
            let file = if way == 0 { &*direct.file } else { file };
            // The places are far enough apart to avoid read-ahead.
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
    Ok(DirectTimes { direct, cached })
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
    fn much_slower_direct_io_is_not_used() {
        let cached = times(100, 80);
        let is = |direct| DirectTimes { direct, cached }.is_worth_it();
        assert!(is(times(90, 80)));
        assert!(is(times(120, 100)));
        assert!(!is(times(150, 90)));
    }

    #[test]
    fn single_slow_sample_does_not_affect_the_measured_time() {
        let us = Duration::from_micros;
        let times = Times::of(vec![us(9), us(5_000), us(8)], vec![us(3)]);
        assert_eq!((times.write, times.read), (us(9), us(3)));
    }
}
