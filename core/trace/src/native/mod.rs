//! Native format (`.trc`): records of fixed width that are mapped and used in place.
//!
//! One file is one trace. All numbers are little-endian. Every section starts at a multiple of 8 bytes. There are no
//! gaps between sections, so their positions and the file's size follow from the header alone.
//!
//! ```text
//! offset  size      section
//! ──────  ────────  ─────────────────────────────────────────────────────────────────────────────────────
//! 0       128       header
//! 128     24 · n    records, in order of time (n = number of records)
//! …       8 · n     latencies in ns, only if flag 0 is set; 2^64−1 = not known
//! …       64 · v    volumes (v = number of volumes)
//! …       names     names of the volumes, UTF-8, one after the other; zeros up to a multiple of 8
//! …       8 · b     checksums of the blocks of records, then of the blocks of latencies; to the end of the file
//!
//! header                                           volume
//! ──────────────────────────────────────────       ──────────────────────────────────────────
//! 0    8  magic: 89 'T' 'R' 'C' 0D 0A 1A 0A        0    8  reads
//! 8    4  version: 1                               8    8  writes
//! 12   4  flags: bit 0 has latencies,              16   8  trims
//!         bit 1 origin known; others zero          24   8  flushes
//! 16   8  number of records n                      32   8  bytes read
//! 24   8  span: time of the last record, ns        40   8  bytes written
//! 32   8  origin: Unix time of time 0, ns,         48   8  largest end offset, bytes
//!         signed; zero if not known                56   4  where its name starts in the names
//! 40   4  number of volumes v                      60   4  length of its name
//! 44   4  length of the names, bytes
//! 48  32  reads, writes, trims, flushes            record
//! 80  24  bytes read, written, trimmed             ──────────────────────────────────────────
//! 104  4  records per block: 16384                 0    8  time since the start, ns
//! 108  4  bytes per record: 24                     8    8  offset, bytes
//! 112  8  XXH3-64 of volumes, names, checksums     16   4  length, bytes
//! 120  8  XXH3-64 of bytes 0..120                  20   3  volume
//!                                                  23   1  op: 0 read 1 write 2 trim 3 flush
//! ```
//!
//! A block is 16 384 records (384 KiB) or latencies (128 KiB); the last one may be shorter. Its checksum is the
//! XXH3-64 of its bytes. Every byte of the file is covered by exactly one checksum.
//!
//! [`NativeTrace::open`] performs the cheap checks: header, sizes, tables. [`NativeTrace::verify`] reads the whole file
//! and checks checksums, the validity of every record (see [`crate::Record`]), the order of time and all totals. So a
//! replay of a verified trace may index arrays by volume and by offset without checks.
//!
//! Not supported: compression (a compressed file cannot be mapped), appending (a trace is written once), and big-endian
//! machines (they would have to swap every record).

mod header;
mod read;
mod totals;
mod verify;
mod write;

pub use header::{FORMAT_VERSION, MAGIC};
pub use read::NativeTrace;
pub use totals::VolumeSummary;
pub(crate) use totals::{Totals, check_name, check_names, content_hash};
pub use verify::VerifiedBlocks;
pub use write::{Latencies, LatencySpill, NativeFile, NativeOptions, NativeSummary, NativeWriter};

use thiserror::Error;

#[cfg(target_endian = "big")]
compile_error!("the native trace format is mapped in place and little-endian");

/// Records per checksum: 384 KiB, which stays in a second-level cache between hashing and use.
pub const RECORDS_PER_BLOCK: usize = 16_384;

/// Error of a native trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NativeError {
    /// The file does not start with the magic bytes.
    #[error("not a native trace")]
    NotNative,
    /// The file was written by another version of the format.
    #[error(
        "native format version {found} is not supported (this program reads version {FORMAT_VERSION})"
    )]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The file is shorter or longer than its header requires.
    #[error(
        "the file has {actual_bytes} bytes, but its header requires {expected_bytes}: truncated or damaged"
    )]
    Size {
        /// Size according to the header.
        expected_bytes: u64,
        /// Actual size.
        actual_bytes: u64,
    },
    /// A field of the header or of a table has an impossible value.
    #[error("damaged native trace: {what}")]
    Structure {
        /// Description of the field and the fault.
        what: String,
    },
    /// A checksum does not match.
    #[error("checksum mismatch in the {section}, bytes {start_byte}..{end_byte} of the file")]
    Checksum {
        /// Name of the section: `header`, `tables`, `records block 7`, …
        section: String,
        /// First byte that the checksum covers.
        start_byte: u64,
        /// One past the last byte that the checksum covers.
        end_byte: u64,
    },
    /// A record is invalid although its checksum matches: the writer was faulty.
    #[error("record {index} at byte {start_byte}: {reason}")]
    Record {
        /// Index of the record, from 0.
        index: u64,
        /// Offset of the record in the file.
        start_byte: u64,
        /// Reason.
        reason: &'static str,
    },
    /// The totals of the header or of a volume differ from the records.
    #[error("the totals of {what} differ from the records")]
    Totals {
        /// `the trace` or a volume's name.
        what: String,
    },
}
