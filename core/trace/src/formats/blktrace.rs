//! Text output of the Linux kernel's block tracer: blkparse's default output, and events derived from it.
//!
//! ```text
//! 8,16  5  2  0.000001850 18615  Q   R 1444645666 + 256 [java]      device cpu sequence time pid action kind sector + sectors
//! 35181 D read 136318976 4096 0.000000000 0 False                   pid action kind offset bytes time delta …
//! ```
//!
//! The tracer reports each request several times on its way through the kernel. One of these events is its arrival: Q
//! (queued) if the start of the file has any, else D (issued to the driver), else C (completed). C gives the latency of
//! requests that arrived. All others are skipped and counted: remaps, merges, plugs, messages, … Totals may be
//! anywhere, as in joined outputs.

use std::io::Read;

use model::Op;

use super::matching::RequestMatcher;
use super::rows::{RowParser, RowReader, RowResult, words};
use crate::error::FieldError;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{SourceClock, VolumeNames};
use crate::text::{TimeUnit, check_range, parse_time, parse_u64};

const SECTOR_BYTES: u64 = 512;

/// Variants of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlkForm {
    /// blkparse's default output (`-f` not given).
    Blkparse,
    /// One event per line: pid, action, kind, byte offset, bytes, time, and optional further fields.
    Events,
}

impl BlkForm {
    fn action(self, line: &[u8]) -> Option<&[u8]> {
        match self {
            BlkForm::Blkparse => words::<6>(line)[5],
            BlkForm::Events => words::<2>(line)[1],
        }
    }
}

/// Returns true for device numbers such as `8,16`.
pub(crate) fn is_device(cell: &[u8]) -> bool {
    let mut parts = cell.split(|b| *b == b',');
    let mut number = || parts.next().is_some_and(|p| parse_u64("", p).is_ok());
    number() && number() && parts.next().is_none()
}

/// Returns true for a line with which blkparse begins its totals or reports an input file.
pub(crate) fn begins_summary(line: &[u8]) -> bool {
    let begins: [&[u8]; 6] = [
        b"CPU",
        b"Total",
        b"Throughput",
        b"Events",
        b"Skips",
        b"Input file",
    ];
    begins.iter().any(|word| line.starts_with(word))
}

/// Returns true for an event of the second variant.
pub(crate) fn is_event(line: &[u8]) -> bool {
    let [
        Some(pid),
        Some(action),
        Some(kind),
        Some(offset),
        Some(bytes),
        Some(time),
        ..,
    ] = words::<7>(line)
    else {
        return false;
    };
    [pid, offset, bytes]
        .iter()
        .all(|n| parse_u64("", n).is_ok())
        && matches!(action, b"Q" | b"D" | b"C")
        && matches!(kind, b"read" | b"write" | b"discard" | b"flush" | b"none")
        && parse_time("", time, TimeUnit::Seconds).is_ok()
}

pub(crate) struct BlkParser {
    form: BlkForm,
    arrival: &'static [u8],
    matching: RequestMatcher,
    volumes: VolumeNames,
    /// True within totals per processor and device, up to the next event.
    in_summary: bool,
}

/// Returns a reader of a file that begins with `first`.
pub(crate) fn blktrace_reader<R: Read>(
    file: &str,
    inner: R,
    form: BlkForm,
    first: &[u8],
) -> RowReader<R, BlkParser> {
    let has = |action: &[u8]| {
        first
            .split(|b| *b == b'\n')
            .any(|line| form.action(line) == Some(action))
    };
    let arrivals: [&'static [u8]; 3] = [b"Q", b"D", b"C"];
    let arrival = arrivals.into_iter().find(|a| has(a)).unwrap_or(b"Q");
    let parser = BlkParser {
        form,
        arrival,
        matching: RequestMatcher::default(),
        volumes: match form {
            BlkForm::Blkparse => VolumeNames::default(),
            BlkForm::Events => VolumeNames::single(),
        },
        in_summary: false,
    };
    RowReader::new(file, inner, parser)
}

/// Event about a request.
struct Event<'a> {
    device: &'a [u8],
    time: &'a [u8],
    op: Op,
    /// First byte and length, with the text that they come from.
    range: Option<(u64, u64)>,
}

impl RowParser for BlkParser {
    fn take(&mut self, line: &[u8]) -> Result<RowResult, Box<FieldError>> {
        if self.form == BlkForm::Blkparse {
            self.in_summary |= begins_summary(line);
            self.in_summary &= !words::<1>(line)[0].is_some_and(is_device);
            if self.in_summary {
                return Ok(RowResult::Nothing);
            }
        }
        let Some(action) = self.form.action(line) else {
            return Err(FieldError::new(
                "line",
                line,
                "fewer columns than an event has",
            ));
        };
        let (arrives, completes) = (action == self.arrival, action == b"C");
        let event = match self.form {
            BlkForm::Blkparse => blkparse_event(line, arrives || completes)?,
            BlkForm::Events => derived_event(line)?,
        };
        let Some(event) = event.filter(|_| arrives || completes) else {
            return Ok(RowResult::Other);
        };
        let time_ns = parse_time("time", event.time, TimeUnit::Seconds)?;
        let (offset_bytes, length_bytes) = match event.range {
            None => (0, 0),
            Some((offset, length)) => check_range(offset, length)
                .map_err(|(name, reason)| FieldError::new(name, line, reason))?,
        };
        let volume = match self.form {
            BlkForm::Blkparse => self.volumes.intern(event.device)?,
            BlkForm::Events => 0,
        };
        let record = RawRecord {
            time_ns,
            offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes,
            volume,
            op: event.op,
        };
        if self.arrival == b"C" {
            return Ok(RowResult::Record(record));
        }
        if arrives {
            self.matching.arrive(record);
            return Ok(RowResult::Held);
        }
        // A completion of a held request, which does not count as a skipped event.
        self.matching.complete(&record);
        Ok(RowResult::Held)
    }

    fn ready(&mut self, ended: bool) -> Option<RawRecord> {
        self.matching.pop(ended)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        self.arrival != b"C"
    }

    fn clock(&self) -> SourceClock {
        SourceClock::Relative
    }
}

/// Parses an event of blkparse; `None` if it is neither about a range of sectors nor a flush.
fn blkparse_event(line: &[u8], wanted: bool) -> Result<Option<Event<'_>>, Box<FieldError>> {
    let [
        Some(device),
        Some(cpu),
        Some(sequence),
        Some(time),
        Some(pid),
        Some(action),
        kind,
        first,
        plus,
        count,
    ] = words::<10>(line)
    else {
        return Err(FieldError::new(
            "line",
            line,
            "fewer columns than an event has",
        ));
    };
    if !is_device(device) {
        return Err(FieldError::new(
            "device",
            device,
            "not device numbers such as 8,16",
        ));
    }
    for (name, value) in [("cpu", cpu), ("sequence", sequence), ("pid", pid)] {
        parse_u64(name, value)?;
    }
    parse_time("time", time, TimeUnit::Seconds)?;
    if action.len() > 2 || !action.iter().all(u8::is_ascii_alphabetic) {
        return Err(FieldError::new(
            "action",
            action,
            "not an action of a request",
        ));
    }
    if !wanted {
        return Ok(None);
    }
    let kind = kind.unwrap_or_default();
    let Some(kinds) = kind_of(kind) else {
        return Err(FieldError::new("op", kind, "not a kind of request"));
    };
    let range = match (first, plus, count) {
        (Some(first), Some(b"+"), Some(count)) => {
            let sectors = |name, value| -> Result<u64, Box<FieldError>> {
                parse_u64(name, value)?
                    .checked_mul(SECTOR_BYTES)
                    .ok_or_else(|| FieldError::new(name, value, "beyond 2^64 bytes"))
            };
            let (offset, length) = (sectors("sector", first)?, sectors("sectors", count)?);
            (length > 0).then_some((offset, length))
        }
        _ => None,
    };
    Ok(match (kinds, range) {
        // No data, or a command passed through to the device.
        (Kind::Nothing, _) => None,
        (Kind::Transfer(op), Some(_)) => Some(Event {
            device,
            time,
            op,
            range,
        }),
        (Kind::Transfer(_), None) if kind.iter().any(|b| matches!(b, b'F' | b'B')) => Some(Event {
            device,
            time,
            op: Op::Flush,
            range: None,
        }),
        (Kind::Transfer(_), None) if plus == Some(b"+") => {
            return Err(FieldError::new(
                "sectors",
                count.unwrap_or_default(),
                "zero length",
            ));
        }
        (Kind::Transfer(_), None) => None,
        (Kind::Flush, _) => Some(Event {
            device,
            time,
            op: Op::Flush,
            range: None,
        }),
    })
}

/// The meaning of blkparse's letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Transfer(Op),
    Flush,
    /// No data: a command of its own, or the state of a zone.
    Nothing,
}

/// Returns the kind of blkparse's letters: the kind, with an optional F before it (preceding flush) and flags after it.
pub(crate) fn kind_of(letters: &[u8]) -> Option<Kind> {
    let (flush, rest) = match letters {
        [b'F', rest @ ..] => (true, rest),
        _ => (false, letters),
    };
    let (kind, flags) = match rest {
        [b'R', flags @ ..] => (Kind::Transfer(Op::Read), flags),
        // Write Zeroes transfers no data, like a discard.
        [b'W', b'Z', flags @ ..] => (Kind::Transfer(Op::Trim), flags),
        [b'W', flags @ ..] => (Kind::Transfer(Op::Write), flags),
        // Discards, including secure ones.
        [b'D', b'E', flags @ ..] | [b'D', flags @ ..] => (Kind::Transfer(Op::Trim), flags),
        // Zones: append; reset (all), finish, open, close.
        [b'Z', b'A', flags @ ..] => (Kind::Transfer(Op::Write), flags),
        [b'Z', b'R' | b'F' | b'O' | b'C', flags @ ..] => (Kind::Nothing, flags),
        [b'N', flags @ ..] if !flush => (Kind::Nothing, flags),
        flags if flush => (Kind::Flush, flags.strip_prefix(b"N").unwrap_or(flags)),
        _ => return None,
    };
    // Flags: read-ahead, sync, metadata, barrier, FUA, passthrough, atomic.
    flags.iter().all(|b| b"ASMBFPU".contains(b)).then_some(kind)
}

/// Parses an event of the second variant; `None` if it has no data.
fn derived_event(line: &[u8]) -> Result<Option<Event<'_>>, Box<FieldError>> {
    let [
        Some(pid),
        Some(action),
        Some(kind),
        Some(offset),
        Some(bytes),
        Some(time),
    ] = words::<6>(line)
    else {
        return Err(FieldError::new(
            "line",
            line,
            "fewer columns than an event has",
        ));
    };
    parse_u64("pid", pid)?;
    if action.len() > 2 || !action.iter().all(u8::is_ascii_alphabetic) {
        return Err(FieldError::new(
            "action",
            action,
            "not an action of a request",
        ));
    }
    let op = match kind {
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"discard" => Op::Trim,
        b"flush" => Op::Flush,
        b"none" => return Ok(None),
        _ => {
            return Err(FieldError::new(
                "op",
                kind,
                "neither read, write, discard, flush nor none",
            ));
        }
    };
    let range = (parse_u64("offset", offset)?, parse_u64("bytes", bytes)?);
    let range = (op != Op::Flush).then_some(range);
    Ok(Some(Event {
        device: b"",
        time,
        op,
        range,
    }))
}
