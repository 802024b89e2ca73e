//! IBM's object-store traces: `Timestamp Operation Object_ID Size [Start End]`, the time in ms since the trace's start,
//! the id in hexadecimal, the range with its last byte.
//!
//! Objects have no addresses. Each gets its own range, in order of first appearance ([`super::ids`]). Sizes, reuse and
//! the order within an object are kept; the neighbourhood of different objects is not. A PUT writes the whole object, a
//! GET reads its range. HEAD, DELETE and COPY, and requests without data, are skipped and counted.

use std::io::Read;

use model::Op;

use super::ids::Places;
use super::rows::{RowParser, RowReader, RowResult, words};
use crate::error::FieldError;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{SourceClock, VolumeNames};
use crate::text::{TimeUnit, check_range, parse_time, parse_u64};

/// Returns true for a row of this format, or its header.
pub(crate) fn is_cos(line: &[u8]) -> bool {
    match words::<3>(line) {
        [Some(b"Timestamp"), Some(b"Operation"), Some(b"Object_ID")] => true,
        [Some(time), Some(operation), Some(_)] => {
            parse_u64("", time).is_ok() && operation.starts_with(b"REST.")
        }
        _ => false,
    }
}

pub(crate) struct CosParser {
    places: Places,
    volumes: VolumeNames,
}

pub(crate) fn cos_reader<R: Read>(file: &str, inner: R) -> RowReader<R, CosParser> {
    let parser = CosParser {
        places: Places::default(),
        volumes: VolumeNames::single(),
    };
    RowReader::new(file, inner, parser)
}

impl RowParser for CosParser {
    fn take(&mut self, line: &[u8]) -> Result<RowResult, Box<FieldError>> {
        let [
            Some(time),
            Some(operation),
            Some(id_text),
            size,
            start,
            end,
            more,
        ] = words::<7>(line)
        else {
            return Err(FieldError::new("line", line, "fewer than three columns"));
        };
        if time == b"Timestamp" {
            return Ok(RowResult::Nothing);
        }
        if more.is_some() {
            return Err(FieldError::new("line", line, "more than six columns"));
        }
        let time_ns = parse_time("time", time, TimeUnit::Millis)?;
        let op = match operation.split(|b| *b == b'.').nth(1) {
            Some(b"PUT") => Op::Write,
            Some(b"GET") => Op::Read,
            Some(b"HEAD" | b"DELETE" | b"COPY" | b"POST") if operation.starts_with(b"REST.") => {
                return Ok(RowResult::Other);
            }
            _ => {
                return Err(FieldError::new(
                    "operation",
                    operation,
                    "not an operation on an object",
                ));
            }
        };
        let id = std::str::from_utf8(id_text)
            .ok()
            .filter(|t| !t.starts_with('+'))
            .and_then(|t| u64::from_str_radix(t, 16).ok())
            .ok_or_else(|| {
                FieldError::new("id", id_text, "not hexadecimal of at most 16 digits")
            })?;
        let Some(size_text) = size else {
            return Err(FieldError::new("line", line, "no size"));
        };
        let size = parse_u64("size", size_text)?;
        let (from, length) = match (start, end) {
            (None, _) => (0, size),
            (Some(start), Some(end)) => {
                let (first, last) = (parse_u64("start", start)?, parse_u64("end", end)?);
                if last < first {
                    return Err(FieldError::new("end", end, "before the start"));
                }
                let Some(length) = (last - first).checked_add(1) else {
                    return Err(FieldError::new("end", end, "beyond 2^64"));
                };
                (first, length)
            }
            (Some(start), None) => {
                return Err(FieldError::new("start", start, "a range without its end"));
            }
        };
        if size == 0 {
            return Ok(RowResult::Other);
        }
        let Some(needed) = from.checked_add(length).map(|range| range.max(size)) else {
            return Err(FieldError::new("end", line, "beyond 2^64"));
        };
        // This check precedes the allocation of the object's place, so a bad row leaves no place behind.
        check_range(from, length)
            .map_err(|(_, reason)| FieldError::new("size", size_text, reason))?;
        let base = self.places.start(id, id_text, needed)?;
        let (offset_bytes, length_bytes) = check_range(base + from, length)
            .map_err(|(_, reason)| FieldError::new("size", size_text, reason))?;
        Ok(RowResult::Record(RawRecord {
            time_ns,
            offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes,
            volume: 0,
            op,
        }))
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn clock(&self) -> SourceClock {
        SourceClock::Relative
    }
}
