//! Measurements of load: how much each volume did per half hour, where the requests themselves are not to be had.
//!
//! ```text
//! vm_halfhour….csv(.xz)      one row per (VM, slot)  ─┐
//!                                                     ├─▶ Measurements ─▶ LoadInfo   means, peaks, working sets
//! block_snapshots….tar(.xz)  a CSV per VM            ─┘
//! ```
//!
//! Two forms of one data set are read: the digest (`vm,index,end_us,reads_4k,…`), and the tar archive of snapshots it
//! was made from (members `block_snap_<vm>.csv`). Both count **per slot**: the counters are not cumulative, and the two
//! forms agree in every row. What is counted are accesses to 4 KiB pages, also in the snapshots, whose columns are
//! called `…block_req_count`. Not read are the snapshots' `io_request_size_*` and `page_access_count`: they are over-counted.
//!
//! # Time
//! `index` is the number of a slot of 30 minutes since the VM's own start, and `end_us` the time of the last request up
//! to the slot's end. A slot without accesses therefore repeats the `end_us` of the one before: taken for the ends of
//! intervals, they would make intervals of zero length and stretch the next one. So an [`Interval`] is the slot,
//! `index · 30 min` up to `(index + 1) · 30 min`; only a volume's last one, which the end of the capture cuts
//! short, ends with its last request if it has any. The reader checks what this rests on: `end_us` lies within the slot wherever
//! there are accesses, or on one of its boundaries: whether a request at exactly 30 minutes is of the slot that ends or of the
//! one that begins is up to whoever made the file. (Of a last slot whose requests all came at its very beginning nothing says
//! where it was cut short: it counts as whole.) A missing index is a gap: there is no interval, since unknown is not zero.
//!
//! Not here: requests. Whoever makes some from these numbers must say so.

mod read;
mod stats;
mod tar;

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use units::{Bytes, Nanos};

use crate::beginning::First;
use crate::compress::decompress;
use crate::error::TraceError;

pub use stats::{LOAD_SCHEMA, LoadInfo, LoadStats, VolumeLoad};

/// Length of the slots that are measured.
pub const MEASUREMENT_SLOT: Nanos = Nanos::from_secs(1800);
/// Size of the accesses that are counted.
pub const MEASUREMENT_PAGE: Bytes = Bytes(4096);
/// Rows of one file. Protects memory (240 MB); the largest known one has 16 283.
const INTERVALS_MAX: usize = 1 << 22;

/// What volumes did, slot by slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurements {
    /// The volumes, in order of their first appearance.
    pub volumes: Vec<VolumeMeasurements>,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMeasurements {
    /// Its name: the VM's.
    pub name: String,
    /// In order of time, not overlapping; there may be gaps.
    pub intervals: Vec<Interval>,
}

/// What a volume did during one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Since the volume's own start.
    pub start: Nanos,
    /// Later than the start.
    pub end: Nanos,
    /// Accesses to pages of 4 KiB that read.
    pub read_pages: u64,
    /// Accesses to pages of 4 KiB that wrote.
    pub write_pages: u64,
    /// Distinct pages accessed, in bytes.
    pub working_set: Bytes,
    /// Distinct pages read, in bytes.
    pub read_working_set: Bytes,
    /// Distinct pages written, in bytes.
    pub write_working_set: Bytes,
}

impl Measurements {
    /// Reads a file of either form, compressed or not.
    ///
    /// # Errors
    /// [`TraceError::Io`] or [`TraceError::Stream`] if it cannot be read, [`TraceError::UnknownFormat`] if it is of
    /// neither form, [`TraceError::Columns`] if a column is missing or there twice, [`TraceError::BadRecord`] with file
    /// (and member), line and column for a row that is wrong, of a slot that is not after the one before, or whose
    /// `end_us` is not within its slot.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(TraceError::io("open", path))?;
        Self::from_reader(&path.display().to_string(), file)
    }

    /// The same from any reader; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_reader(name: &str, reader: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let first = open(name, reader)?;
        let kind = kind(&first.peek);
        let bytes = Cursor::new(first.peek).chain(first.rest);
        match kind {
            Some(Kind::Digest) => read::digest(name, bytes),
            Some(Kind::Snapshots) => read::snapshots(name, bytes),
            None => Err(TraceError::UnknownFormat {
                file: name.to_owned(),
                hint: "not measurements of load: neither a CSV with columns vm, index, end_us, reads_4k, … nor a tar \
                       archive of block_snap_<vm>.csv"
                    .into(),
            }),
        }
    }

    /// Whether a file looks like measurements of load, by its content. Only a regular file is looked at: looking into
    /// a pipe would take away what it holds.
    ///
    /// # Errors
    /// [`TraceError::Io`] or [`TraceError::Stream`] if it cannot be read.
    pub fn recognized(path: &Path) -> Result<bool, TraceError> {
        let file = File::open(path).map_err(TraceError::io("open", path))?;
        if !file.metadata().is_ok_and(|m| m.is_file()) {
            return Ok(false);
        }
        let first = open(&path.display().to_string(), file)?;
        Ok(kind(&first.peek).is_some())
    }
}

fn open(name: &str, reader: impl Read + Send + 'static) -> Result<First, TraceError> {
    let fail = |source| TraceError::Stream {
        file: name.to_owned(),
        offset_bytes: 0,
        what: "data",
        source,
    };
    let (bytes, compression, _) = decompress(Box::new(reader)).map_err(fail)?;
    First::read(name, bytes, compression)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Digest,
    Snapshots,
}

/// Which form the first bytes of a file are of.
fn kind(first: &[u8]) -> Option<Kind> {
    if tar::plausible(first) {
        return tar::first_name(first)
            .is_some_and(|name| read::volume_of(name).is_some())
            .then_some(Kind::Snapshots);
    }
    let end = first.iter().position(|b| *b == b'\n')?;
    read::is_digest_header(&first[..end]).then_some(Kind::Digest)
}

/// Whether a file that begins like this is measurements, not requests.
pub(crate) fn plausible(first: &[u8]) -> bool {
    kind(first).is_some()
}
