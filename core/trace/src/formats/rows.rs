//! Text formats with lines that are not just columns: events of several kinds, commands, ids. Each is a [`RowParser`];
//! lines, positions and skipped lines are handled in common.

use std::io::Read;

use crate::error::{FieldError, Location, TraceError};
use crate::record::RawRecord;
use crate::source::{RecordSource, SourceClock, VolumeNames};
use crate::text::{LineResult, Lines};

/// Result of a line.
pub(super) enum RowResult {
    /// Request.
    Record(RawRecord),
    /// Request that [`RowParser::ready`] will return later, or an event about one.
    Held,
    /// Event that is neither a request nor an error.
    Other,
    /// Header, or line of a summary.
    Nothing,
}

/// Parser for the lines of one format.
pub(super) trait RowParser {
    /// Parses a line that is neither blank nor a comment.
    fn take(&mut self, line: &[u8]) -> Result<RowResult, Box<FieldError>>;

    /// Returns the next held request that need not be held any longer.
    fn ready(&mut self, _ended: bool) -> Option<RawRecord> {
        None
    }

    fn volumes(&self) -> &VolumeNames;

    fn has_latencies(&self) -> bool {
        false
    }

    fn clock(&self) -> SourceClock;
}

pub(crate) struct RowReader<R, P> {
    file: String,
    lines: Lines<R>,
    parser: P,
    others: u64,
}

impl<R: Read, P> RowReader<R, P> {
    pub(super) fn new(file: &str, inner: R, parser: P) -> Self {
        Self {
            file: file.to_owned(),
            lines: Lines::new(inner),
            parser,
            others: 0,
        }
    }
}

impl<R: Read, P: RowParser> RecordSource for RowReader<R, P> {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        loop {
            if let Some(record) = self.parser.ready(false) {
                *out = record;
                return Ok(true);
            }
            match self.lines.next() {
                Ok(LineResult::End) => {
                    let last = self.parser.ready(true);
                    *out = last.unwrap_or(*out);
                    return Ok(last.is_some());
                }
                Ok(LineResult::Line) => {}
                Ok(LineResult::TooLong) => {
                    let error =
                        FieldError::new("line", self.lines.line(), "longer than 65536 bytes");
                    return Err(error.at(&self.file, self.location()));
                }
                Err(source) => {
                    return Err(TraceError::Stream {
                        file: self.file.clone(),
                        offset_bytes: self.lines.offset_bytes(),
                        what: "data",
                        source,
                    });
                }
            }
            let line = self.lines.line().trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            match self.parser.take(line) {
                Ok(RowResult::Record(record)) => {
                    *out = record;
                    return Ok(true);
                }
                Ok(RowResult::Held | RowResult::Nothing) => {}
                Ok(RowResult::Other) => self.others += 1,
                Err(error) => return Err(error.at(&self.file, self.location())),
            }
        }
    }

    fn volumes(&self) -> &VolumeNames {
        self.parser.volumes()
    }

    fn has_latencies(&self) -> bool {
        self.parser.has_latencies()
    }

    fn clock(&self) -> SourceClock {
        self.parser.clock()
    }

    fn other_events(&self) -> u64 {
        self.others
    }

    fn location(&self) -> Location {
        Location::Line(self.lines.number())
    }
}

/// Returns the first words of a line; `None` for missing ones.
pub(super) fn words<const N: usize>(line: &[u8]) -> [Option<&[u8]>; N] {
    let mut words = line
        .split(|b| matches!(b, b' ' | b'\t'))
        .filter(|w| !w.is_empty());
    std::array::from_fn(|_| words.next())
}
