//! VMware vscsi traces: fixed binary records, little-endian, one virtual disk per file.
//!
//! ```text
//! version 1, 32 bytes                          version 2, 40 bytes
//! 0   4  serial number                         0   2  SCSI command
//! 4   4  length, bytes                         2   2  version, 0x02xx
//! 8   4  scatter-gather elements               4   4  serial number
//! 12  2  SCSI command                          8   4  length, bytes
//! 14  2  version, 0x01xx                       12  4  scatter-gather elements
//! 16  8  first block of 512 bytes              16  8  first block of 512 bytes
//! 24  8  time, µs                              24  8  time, µs
//!                                              32  8  response time, µs
//! ```
//!
//! The time has its own start. An UNMAP's length is that of its list of ranges, which is not in the trace: such a trim
//! only shows that some range was trimmed.

use std::io::Read;

use model::Op;

use super::opcodes::scsi_op;
use crate::error::{FieldError, Location, TraceError};
use crate::fixed::FixedRecords;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{RecordSource, SourceClock, VolumeNames};
use crate::text::check_range;

const BLOCK_BYTES: u64 = 512;
/// Records that detection reads.
const PLAUSIBLE_RECORDS: usize = 64;

/// Version of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VscsiVersion {
    V1,
    V2,
}

impl VscsiVersion {
    fn record_bytes(self) -> usize {
        match self {
            VscsiVersion::V1 => 32,
            VscsiVersion::V2 => 40,
        }
    }

    fn decode(self, record: &[u8]) -> Fields {
        let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        let u32_at =
            |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
        let (command, version, length, response_us) = match self {
            VscsiVersion::V1 => (u16_at(12), u16_at(14), u32_at(4), None),
            VscsiVersion::V2 => (u16_at(0), u16_at(2), u32_at(8), Some(u64_at(32))),
        };
        Fields {
            command,
            version,
            length,
            block: u64_at(16),
            time_us: u64_at(24),
            response_us,
        }
    }

    fn major(self) -> u16 {
        match self {
            VscsiVersion::V1 => 1,
            VscsiVersion::V2 => 2,
        }
    }
}

struct Fields {
    command: u16,
    version: u16,
    length: u32,
    block: u64,
    time_us: u64,
    response_us: Option<u64>,
}

/// Returns true if the first bytes of a file can be records of this version.
pub(crate) fn plausible(first: &[u8], version: VscsiVersion) -> bool {
    let mut records = first
        .chunks_exact(version.record_bytes())
        .take(PLAUSIBLE_RECORDS)
        .peekable();
    records.peek().is_some()
        && records.all(|r| {
            let fields = version.decode(r);
            // Unknown opcodes occur, but no opcode exceeds a byte.
            fields.version >> 8 == version.major() && fields.command <= 0xff
        })
}

pub(crate) struct VscsiReader<R> {
    records: FixedRecords<R>,
    version: VscsiVersion,
    volumes: VolumeNames,
}

impl<R: Read> VscsiReader<R> {
    pub(crate) fn new(file: &str, inner: R, version: VscsiVersion) -> Self {
        Self {
            records: FixedRecords::new(file, inner, version.record_bytes()),
            version,
            volumes: VolumeNames::single(),
        }
    }
}

impl<R: Read> RecordSource for VscsiReader<R> {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        let version = self.version;
        let Some(bytes) = self.records.next()? else {
            return Ok(false);
        };
        let parsed = parse(&version.decode(bytes), version);
        *out = parsed.map_err(|error| error.at(self.records.file(), self.location()))?;
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        self.version == VscsiVersion::V2
    }

    fn clock(&self) -> SourceClock {
        SourceClock::Relative
    }

    fn location(&self) -> Location {
        self.records.location()
    }
}

fn parse(fields: &Fields, version: VscsiVersion) -> Result<RawRecord, Box<FieldError>> {
    fn bad<T>(
        field: &'static str,
        value: impl std::fmt::Display,
        reason: &'static str,
    ) -> Result<T, Box<FieldError>> {
        Err(FieldError::new(field, value.to_string().as_bytes(), reason))
    }
    if fields.version >> 8 != version.major() {
        return bad(
            "version",
            format_args!("{:#06x}", fields.version),
            "not the version of this trace",
        );
    }
    let Some(op) = scsi_op(fields.command) else {
        return bad(
            "command",
            format_args!("{:#04x}", fields.command),
            "not a SCSI command that reads, writes, unmaps or flushes",
        );
    };
    let time_ns = i64::try_from(fields.time_us)
        .ok()
        .and_then(|us| us.checked_mul(1000));
    let Some(time_ns) = time_ns else {
        return bad("time", fields.time_us, "beyond 2^63 ns (292 years)");
    };
    let latency_ns = match fields.response_us {
        None => LATENCY_UNKNOWN,
        Some(us) => match us.checked_mul(1000) {
            Some(ns) => ns,
            None => return bad("response time", us, "beyond 2^64 ns"),
        },
    };
    let (offset_bytes, length_bytes) = if op == Op::Flush {
        (0, 0)
    } else {
        let Some(offset) = fields.block.checked_mul(BLOCK_BYTES) else {
            return bad("block", fields.block, "beyond 2^64 bytes");
        };
        match check_range(offset, u64::from(fields.length)) {
            Ok(range) => range,
            Err(("offset", reason)) => return bad("block", fields.block, reason),
            Err((field, reason)) => return bad(field, fields.length, reason),
        }
    };
    Ok(RawRecord {
        time_ns,
        offset_bytes,
        latency_ns,
        length_bytes,
        volume: 0,
        op,
    })
}
