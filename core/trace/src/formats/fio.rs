//! I/O logs of fio (`write_iolog`), versions 2 and 3; fio's manual, "Trace file format".
//!
//! ```text
//! fio version 2 iolog                fio version 3 iolog
//! /dev/sda add                       28 /dev/sda add
//! /dev/sda read 503808 4096          181 /dev/sda read 503808 4096        timestamp, file, action, byte offset, bytes
//! ```
//!
//! fio writes the timestamps of version 3 in µs since the start; its manual does not name the unit. Version 2 has no
//! times: its order is the clock. If there are waits (in µs) within the first 64 KiB, the sum of the waits is the
//! clock. Add, open and close of files are skipped and counted.

use std::io::Read;

use model::Op;

use super::rows::{RowParser, RowReader, RowResult, words};
use crate::error::FieldError;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{SourceClock, VolumeNames};
use crate::text::{TimeUnit, check_range, parse_time, parse_u64};

pub(crate) const FIO2_HEADER: &[u8] = b"fio version 2 iolog";
pub(crate) const FIO3_HEADER: &[u8] = b"fio version 3 iolog";

const NS_PER_US: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// Version 3: every line has a time.
    Stamps,
    /// Version 2 with waits.
    Waits,
    /// Version 2 without waits.
    Order,
}

pub(crate) struct FioParser {
    header: &'static [u8],
    header_ahead: bool,
    clock: Clock,
    /// Sum of the waits, or number of the next request.
    now_ns: i64,
    volumes: VolumeNames,
}

/// Returns a reader of version 2 or 3 for a file that begins with `first`.
pub(crate) fn fio_reader<R: Read>(
    file: &str,
    inner: R,
    header: &'static [u8],
    first: &[u8],
) -> RowReader<R, FioParser> {
    let is_wait = |line: &[u8]| words::<2>(line)[1] == Some(b"wait");
    let clock = if header == FIO3_HEADER {
        Clock::Stamps
    } else if first.split(|b| *b == b'\n').any(is_wait) {
        Clock::Waits
    } else {
        Clock::Order
    };
    let parser = FioParser {
        header,
        header_ahead: true,
        clock,
        now_ns: 0,
        volumes: VolumeNames::default(),
    };
    RowReader::new(file, inner, parser)
}

impl RowParser for FioParser {
    fn take(&mut self, line: &[u8]) -> Result<RowResult, Box<FieldError>> {
        if self.header_ahead {
            self.header_ahead = false;
            if line != self.header {
                let reason = format!("not \"{}\"", self.header.escape_ascii());
                return Err(FieldError::new("line", line, reason));
            }
            return Ok(RowResult::Nothing);
        }
        let (stamp, [name, action, offset, length, more]) = if self.clock == Clock::Stamps {
            let [stamp, name, action, offset, length, more] = words::<6>(line);
            (stamp, [name, action, offset, length, more])
        } else {
            (None, words::<5>(line))
        };
        let (Some(name), Some(action)) = (name, action) else {
            return Err(FieldError::new(
                "line",
                line,
                "fewer columns than an action has",
            ));
        };
        if more.is_some() {
            return Err(FieldError::new(
                "line",
                line,
                "more columns than an action has",
            ));
        }
        if let Some(stamp) = stamp {
            self.now_ns = parse_time("time", stamp, TimeUnit::Micros)?;
        }
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
            b"add" | b"open" | b"close" => return Ok(RowResult::Other),
            b"wait" => return self.wait(offset.unwrap_or_default()),
            _ => {
                let reason =
                    "not an action (read, write, trim, sync, datasync, wait, add, open or close)";
                return Err(FieldError::new("action", action, reason));
            }
        };
        let (offset_bytes, length_bytes) = if op == Op::Flush {
            (0, 0)
        } else {
            let (Some(offset), Some(length)) = (offset, length) else {
                return Err(FieldError::new("line", line, "no offset and length"));
            };
            check_range(parse_u64("offset", offset)?, parse_u64("length", length)?).map_err(
                |(field, reason)| {
                    let value = if field == "offset" { offset } else { length };
                    FieldError::new(field, value, reason)
                },
            )?
        };
        let volume = self.volumes.intern(name)?;
        let time_ns = self.now_ns;
        if self.clock == Clock::Order {
            self.now_ns += 1;
        }
        Ok(RowResult::Record(RawRecord {
            time_ns,
            offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes,
            volume,
            op,
        }))
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn clock(&self) -> SourceClock {
        match self.clock {
            Clock::Stamps => SourceClock::Recording,
            Clock::Waits => SourceClock::Relative,
            Clock::Order => SourceClock::Order,
        }
    }
}

impl FioParser {
    fn wait(&mut self, us: &[u8]) -> Result<RowResult, Box<FieldError>> {
        let reason = match self.clock {
            Clock::Waits => {
                let wait_ns = i64::try_from(parse_u64("wait", us)?)
                    .ok()
                    .and_then(|us| us.checked_mul(NS_PER_US))
                    .and_then(|ns| self.now_ns.checked_add(ns));
                let out_of_range = || FieldError::new("wait", us, "beyond 2^63 ns (292 years)");
                self.now_ns = wait_ns.ok_or_else(out_of_range)?;
                return Ok(RowResult::Other);
            }
            Clock::Stamps => "version 3 has no waits",
            Clock::Order => {
                "the first wait comes after 64 KiB, and the actions before it have no times"
            }
        };
        Err(FieldError::new("wait", us, reason))
    }
}
