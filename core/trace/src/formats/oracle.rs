//! libCacheSim's oracleGeneral: fixed binary records of a cache's requests, little-endian.
//!
//! ```text
//! 0   4  time, s
//! 4   8  id of the object
//! 12  4  size, bytes
//! 16  8  number of the object's next request, or -1; not used
//! ```
//!
//! Requests have no kind: all are treated as reads. Ids are not addresses: see [`IdPlacement`].

use std::io::Read;

use model::Op;
use units::Bytes;

use super::ids::{IdPlacement, Places, place};
use crate::error::{FieldError, Location, TraceError};
use crate::fixed::FixedRecords;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{RecordSource, SourceClock, VolumeNames};
use crate::text::check_range;

pub(crate) const ORACLE_RECORD_BYTES: usize = 24;
/// Records that detection reads.
const PLAUSIBLE_RECORDS: usize = 256;
/// Upper bound of requests in a trace, beyond any known one. Text that is read as such a number is far above.
const REQUESTS_MAX: i64 = 1 << 44;

struct Fields {
    time_s: u32,
    id: u64,
    size: u32,
    next: i64,
}

fn decode(record: &[u8]) -> Fields {
    let u32_at = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
    let u64_at =
        |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    Fields {
        time_s: u32_at(0),
        id: u64_at(4),
        size: u32_at(12),
        next: u64_at(16) as i64,
    }
}

/// Returns true if the first bytes of a file can be such records: times do not go back, sizes are
/// plausible, and next requests are later.
pub(crate) fn plausible_oracle(first: &[u8]) -> bool {
    let mut last_s = 0;
    let mut records = first
        .chunks_exact(ORACLE_RECORD_BYTES)
        .take(PLAUSIBLE_RECORDS)
        .enumerate()
        .peekable();
    records.peek().is_some()
        && records.all(|(i, record)| {
            let fields = decode(record);
            let later = fields.next == -1
                || fields.next == i64::MAX
                || (i as i64 + 1..REQUESTS_MAX).contains(&fields.next);
            let fits = later && fields.size > 0 && fields.time_s >= last_s;
            last_s = fields.time_s;
            fits
        })
}

pub(crate) struct OracleReader<R> {
    records: FixedRecords<R>,
    placement: IdPlacement,
    places: Places,
    volumes: VolumeNames,
}

impl<R: Read> OracleReader<R> {
    pub(crate) fn new(file: &str, inner: R, placement: Option<IdPlacement>) -> Self {
        Self {
            records: FixedRecords::new(file, inner, ORACLE_RECORD_BYTES),
            placement: placement.unwrap_or(IdPlacement::Blocks(Bytes(4096))),
            places: Places::default(),
            volumes: VolumeNames::single(),
        }
    }
}

impl<R: Read> RecordSource for OracleReader<R> {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        let Some(record) = self.records.next()? else {
            return Ok(false);
        };
        let Fields {
            time_s, id, size, ..
        } = decode(record);
        let length = u64::from(size);
        let text = id.to_string();
        let parsed = if size == 0 {
            Err(FieldError::new("size", b"0", "zero length"))
        } else {
            place(
                self.placement,
                &mut self.places,
                id,
                text.as_bytes(),
                length,
            )
        };
        let ranged = parsed.and_then(|offset| {
            check_range(offset, length)
                .map_err(|(field, reason)| FieldError::new(field, text.as_bytes(), reason))
        });
        let (offset_bytes, length_bytes) =
            ranged.map_err(|error| error.at(self.records.file(), self.records.location()))?;
        *out = RawRecord {
            time_ns: i64::from(time_s) * 1_000_000_000,
            offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes,
            volume: 0,
            op: Op::Read,
        };
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        false
    }

    fn clock(&self) -> SourceClock {
        SourceClock::Relative
    }

    fn location(&self) -> Location {
        self.records.location()
    }
}
