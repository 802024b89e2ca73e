//! Conversion of rows to records.

use std::io::Read;

use super::columns::{Delimiter, Layout, VolumeColumns};
use super::field::{parse_duration, parse_time, parse_u64};
use super::kinds::{OpColumn, with_remedy};
use super::lines::{LineResult, Lines};
use super::plain::PlainMsr;
use crate::error::{FieldError, Location, TraceError};
use crate::formats::{Format, text_layout};
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{RecordSource, SourceClock, VolumeNames, is_reversed};
use model::Op;

/// Start and end of a field within its line (of at most 64 KiB).
pub(crate) type Field = (u32, u32);

/// Splits a row into at most `limit` fields and ignores the rest.
#[inline]
pub(crate) fn split(line: &[u8], delimiter: Delimiter, fields: &mut Vec<Field>, limit: usize) {
    fields.clear();
    match delimiter {
        Delimiter::Byte(delimiter) => {
            let mut start = 0;
            for (i, b) in line.iter().enumerate() {
                if *b == delimiter {
                    fields.push((start, i as u32));
                    start = i as u32 + 1;
                    if fields.len() == limit {
                        return;
                    }
                }
            }
            fields.push((start, line.len() as u32));
        }
        Delimiter::Whitespace => {
            let mut i = 0;
            while fields.len() < limit {
                while i < line.len() && matches!(line[i], b' ' | b'\t') {
                    i += 1;
                }
                if i == line.len() {
                    return;
                }
                let start = i;
                while i < line.len() && !matches!(line[i], b' ' | b'\t') {
                    i += 1;
                }
                fields.push((start as u32, i as u32));
            }
        }
    }
}

/// Splits a row with quoted fields. The fields are in `text`, without quotes.
fn split_quoted(
    line: &[u8],
    delimiter: u8,
    text: &mut Vec<u8>,
    fields: &mut Vec<Field>,
    limit: usize,
) {
    fields.clear();
    text.clear();
    let (mut start, mut i, mut quoted) = (0, 0, false);
    while let Some(b) = line.get(i) {
        match b {
            b'"' if quoted && line.get(i + 1) == Some(&b'"') => {
                text.push(b'"');
                i += 1;
            }
            b'"' if quoted => quoted = false,
            b'"' if text.len() == start => quoted = true,
            b if !quoted && *b == delimiter => {
                fields.push((start as u32, text.len() as u32));
                start = text.len();
                if fields.len() == limit {
                    return;
                }
            }
            b => text.push(*b),
        }
        i += 1;
    }
    fields.push((start as u32, text.len() as u32));
}

/// Reader of rows with a [`Layout`].
pub(crate) struct ColumnReader<R> {
    file: String,
    lines: Lines<R>,
    row: Row,
    header_ahead: bool,
    /// Fast path, if the layout has one.
    plain: Option<Box<PlainMsr>>,
    plain_lines: u64,
    /// Number of skipped rows.
    others: u64,
}

/// State for parsing rows.
struct Row {
    layout: Layout,
    needed: usize,
    limit: usize,
    fields: Vec<Field>,
    unquoted: Vec<u8>,
    joined: Vec<u8>,
    volumes: VolumeNames,
}

impl<R: Read> ColumnReader<R> {
    pub(crate) fn new(file: &str, inner: R, layout: Layout) -> Self {
        let needed = layout.columns_needed();
        // A header is never plain.
        let is_msr = text_layout(Format::Msr).is_some_and(|msr| {
            msr == Layout {
                header: msr.header,
                ..layout.clone()
            }
        });
        let single = layout.volume == VolumeColumns::Single;
        Self {
            file: file.to_owned(),
            lines: Lines::new(inner),
            header_ahead: layout.header,
            plain: is_msr.then(|| Box::new(PlainMsr::new())),
            plain_lines: 0,
            others: 0,
            row: Row {
                needed,
                // One more column than needed shows whether a row has too many.
                limit: needed + usize::from(layout.columns.is_some()),
                fields: Vec::with_capacity(needed + 1),
                unquoted: Vec::new(),
                joined: Vec::new(),
                volumes: if single {
                    VolumeNames::single()
                } else {
                    VolumeNames::default()
                },
                layout,
            },
        }
    }
}

#[cfg(test)]
impl<R> ColumnReader<R> {
    /// Disables the fast path.
    pub(super) fn read_carefully(&mut self) {
        self.plain = None;
    }

    /// Returns the number of lines read by the fast path.
    pub(super) fn plain_lines(&self) -> u64 {
        self.plain_lines
    }
}

impl<R: Read> RecordSource for ColumnReader<R> {
    #[inline]
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        if let Some(plain) = &mut self.plain
            && let Some((record, length)) = plain.parse_one(self.lines.window())
        {
            self.lines.take_lines(length, 1);
            self.plain_lines += 1;
            *out = record;
            return Ok(true);
        }
        loop {
            match self.lines.next() {
                Ok(LineResult::End) => return Ok(false),
                Ok(LineResult::Line) => {}
                Ok(LineResult::TooLong) => {
                    let error =
                        FieldError::new("line", self.lines.line(), "longer than 65536 bytes");
                    return Err(error.at(&self.file, self.location()));
                }
                Err(source) => {
                    let offset_bytes = self.lines.offset_bytes();
                    return Err(TraceError::Stream {
                        file: self.file.clone(),
                        offset_bytes,
                        what: "data",
                        source,
                    });
                }
            }
            let line = self.lines.line();
            if line
                .first()
                .is_none_or(|b| b.is_ascii_whitespace() || *b == b'#')
                && (line.trim_ascii().is_empty() || line[0] == b'#')
            {
                continue;
            }
            if self.header_ahead {
                self.header_ahead = false;
                continue;
            }
            *out = match self.row.parse(line) {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.others += 1;
                    continue;
                }
                Err(error) => return Err(error.at(&self.file, self.location())),
            };
            if let Some(plain) = &mut self.plain {
                plain.learn(self.lines.line(), out.volume);
            }
            return Ok(true);
        }
    }

    fn next_batch(&mut self, out: &mut Vec<RawRecord>, limit: usize) -> Result<bool, TraceError> {
        while out.len() < limit {
            if let Some(plain) = &mut self.plain {
                let (bytes, lines) = plain.parse_many(self.lines.window(), out, limit);
                self.lines.take_lines(bytes, lines);
                self.plain_lines += lines;
                if out.len() == limit || lines > 0 && is_reversed(out) {
                    break;
                }
            }
            let mut record = RawRecord::EMPTY;
            if !self.next(&mut record)? {
                return Ok(false);
            }
            out.push(record);
            if is_reversed(out) {
                break;
            }
        }
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.row.volumes
    }

    fn has_latencies(&self) -> bool {
        self.row.layout.latency.is_some()
    }

    fn clock(&self) -> SourceClock {
        self.row.layout.clock
    }

    fn other_events(&self) -> u64 {
        self.others
    }

    fn location(&self) -> Location {
        Location::Line(self.lines.number())
    }
}

impl Row {
    /// Returns the request of a row; `None` if the row is to be skipped.
    #[inline]
    fn parse(&mut self, line: &[u8]) -> Result<Option<RawRecord>, Box<FieldError>> {
        let Self {
            layout,
            fields,
            unquoted,
            ..
        } = self;
        let text = match layout.delimiter {
            Delimiter::Byte(delimiter) if memchr::memchr(b'"', line).is_some() => {
                split_quoted(line, delimiter, unquoted, fields, self.limit);
                unquoted.as_slice()
            }
            delimiter => {
                split(line, delimiter, fields, self.limit);
                line
            }
        };
        let field = |i: usize| text[fields[i].0 as usize..fields[i].1 as usize].trim_ascii();
        if fields.len() < self.needed {
            let reason = format!("{} columns where {} are needed", fields.len(), self.needed);
            return Err(FieldError::new("line", line, reason));
        }
        if fields.len() > self.needed && !field(self.needed).is_empty() {
            let reason = format!("more than {} columns", self.needed);
            return Err(FieldError::new("line", line, reason));
        }
        let time_ns = parse_time("time", field(layout.time.0), layout.time.1)?;
        let op = match &layout.op {
            OpColumn::All(op) => *op,
            OpColumn::In {
                index,
                rule,
                meanings,
            } => {
                let value = field(*index);
                match meanings.get(value) {
                    Some(Some(op)) => op,
                    Some(None) => return Ok(None),
                    None => rule
                        .parse(value)
                        .map_err(|error| with_remedy(error, *index, value))?,
                }
            }
        };
        let (offset_text, length_text) = (field(layout.offset.0), field(layout.length.0));
        let scaled = |name, value, unit: u64| -> Result<u64, Box<FieldError>> {
            let n = parse_u64(name, value)?;
            n.checked_mul(unit)
                .ok_or_else(|| FieldError::new(name, value, "beyond 2^64 bytes"))
        };
        let (offset_bytes, length_bytes) = if op == Op::Flush {
            (0, 0)
        } else {
            let offset = scaled("offset", offset_text, layout.offset.1)?;
            let length = scaled("length", length_text, layout.length.1)?;
            check_range(offset, length).map_err(|(name, reason)| {
                let value = if name == "offset" {
                    offset_text
                } else {
                    length_text
                };
                FieldError::new(name, value, reason)
            })?
        };
        let latency_ns = match layout.latency.map(|(i, unit)| (field(i), unit)) {
            None | Some((b"", _)) => LATENCY_UNKNOWN,
            Some((value, unit)) => parse_duration("latency", value, unit)?,
        };
        // The volume comes last, so a bad row adds no volume.
        let volume = match layout.volume {
            VolumeColumns::Single => 0,
            VolumeColumns::One(i) => self.volumes.intern(field(i))?,
            VolumeColumns::Two(a, b) => {
                self.joined.clear();
                self.joined.extend_from_slice(field(a));
                self.joined.push(b'.');
                self.joined.extend_from_slice(field(b));
                self.volumes.intern(&self.joined)?
            }
        };
        Ok(Some(RawRecord {
            time_ns,
            offset_bytes,
            latency_ns,
            length_bytes,
            volume,
            op,
        }))
    }
}

/// Checks the range of a request that has one. Returns the invalid field and the reason.
pub(crate) fn check_range(
    offset: u64,
    length: u64,
) -> Result<(u64, u32), (&'static str, &'static str)> {
    if length == 0 {
        return Err(("length", "zero length"));
    }
    let short = u32::try_from(length).map_err(|_| ("length", "4 GiB or more"))?;
    match offset.checked_add(length) {
        Some(_) => Ok((offset, short)),
        None => Err(("offset", "offset + length is beyond 2^64")),
    }
}
