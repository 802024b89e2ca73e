//! Load measurements: activity of each volume per half hour, for data sets without single requests.
//!
//! ```text
//! vm_halfhour….csv(.xz)      one row per (VM, slot)  ─┐
//!                                                     ├─▶ Measurements ─▶ LoadInfo   means, peaks, working sets
//! block_snapshots….tar(.xz)  a CSV per VM            ─┘
//! ```
//!
//! Two forms of one data set are supported: the digest (`vm,index,end_us,reads_4k,…`), and the tar archive of snapshots
//! from which it was made (members `block_snap_<vm>.csv`). Both count **per slot**: the counters are not cumulative,
//! and the two forms agree in every row. The counts are accesses to 4 KiB pages, also in the snapshots, whose columns
//! are named `…block_req_count`. The snapshots' `io_request_size_*` and `page_access_count` are ignored: they are
//! over-counted.
//!
//! # Time
//! `index` is the number of a slot of 30 minutes since the VM's start, and `end_us` is the time of the last request up
//! to the slot's end. So a slot without accesses repeats the `end_us` of the previous one. As ends of intervals, these
//! values would give intervals of zero length and stretch the next one. So an [`Interval`] is the slot, `index · 30
//! min` up to `(index + 1) · 30 min`. Only the last slot of a volume, which the end of the capture shortens, ends with
//! its last request, if it has any.
//!
//! The reader checks this: `end_us` is within the slot if there are accesses, or on one of its boundaries. A request at
//! exactly 30 minutes may belong to either slot, depending on the file's producer. If all requests of a last slot are
//! at its start, its real end is unknown, and it counts as complete. A missing index is a gap without an interval,
//! because unknown is not zero.
//!
//! Measurements have no requests. Code that generates requests from them must state so.

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
use crate::generated::is_generated;

pub use stats::{LOAD_SCHEMA, LoadInfo, LoadStats, VolumeLoad};

/// Length of the measured slots.
pub const MEASUREMENT_SLOT: Nanos = Nanos::from_secs(1800);
/// Size of the counted accesses.
pub const MEASUREMENT_PAGE: Bytes = Bytes(4096);
/// Largest number of rows of one file. Protects memory (240 MB); the largest known file has 16 283.
const INTERVALS_MAX: usize = 1 << 22;

/// Activity of volumes by slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurements {
    /// Volumes in order of first appearance.
    pub volumes: Vec<VolumeMeasurements>,
}

/// Activity of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMeasurements {
    /// Name of the VM.
    pub name: String,
    /// Intervals in order of time, without overlaps; there may be gaps.
    pub intervals: Vec<Interval>,
}

/// Activity of a volume in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Start, relative to the volume's own start.
    pub start: Nanos,
    /// End, later than the start.
    pub end: Nanos,
    /// Read accesses to pages of 4 KiB.
    pub read_pages: u64,
    /// Write accesses to pages of 4 KiB.
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
    /// [`TraceError::Io`] or [`TraceError::Stream`] if it cannot be read, [`TraceError::UnknownFormat`] if it has
    /// neither form, [`TraceError::Columns`] if a column is missing or occurs twice. [`TraceError::BadRecord`] with
    /// file (and member), line and column for an invalid row, for a slot that is not after the previous one, and for an
    /// `end_us` outside its slot.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(TraceError::io("open", path))?;
        Self::from_reader(&path.display().to_string(), file)
    }

    /// Reads measurements from a reader; `name` is the file name in errors.
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

    /// Returns true if the content of a file looks like load measurements. Only regular files are read, because reading
    /// from a pipe would consume its data.
    ///
    /// # Errors
    /// [`TraceError::Io`] or [`TraceError::Stream`] if it cannot be read.
    pub fn recognized(path: &Path) -> Result<bool, TraceError> {
        if is_generated(path) {
            return Ok(false);
        }
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

/// Returns the form that the first bytes of a file have.
fn kind(first: &[u8]) -> Option<Kind> {
    if tar::plausible(first) {
        return tar::first_name(first)
            .is_some_and(|name| read::volume_of(name).is_some())
            .then_some(Kind::Snapshots);
    }
    let end = first.iter().position(|b| *b == b'\n')?;
    read::is_digest_header(&first[..end]).then_some(Kind::Digest)
}

/// Returns true if a file that begins like this has measurements, not requests.
pub(crate) fn plausible(first: &[u8]) -> bool {
    kind(first).is_some()
}
