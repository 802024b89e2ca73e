//! Reader of lines with bounded length, without a copy or an allocation per line.

use std::io::{self, Read};
use std::ops::Range;

/// Longest line, bytes. Protects memory from a binary file without line ends.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// Result of [`Lines::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineResult {
    /// Line in [`Lines::line`].
    Line,
    /// Line of more than [`LINE_BYTES_MAX`] bytes, which was skipped. [`Lines::line`] has its start.
    TooLong,
    /// End of the input.
    End,
}

pub(crate) struct Lines<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Part of the buffer that was read from `inner` and not yet returned.
    unread: Range<usize>,
    line: Range<usize>,
    number: u64,
    offset_bytes: u64,
    ended: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            line: 0..0,
            number: 0,
            offset_bytes: 0,
            ended: false,
        }
    }

    /// Returns the current line without its end (LF or CR LF).
    #[inline]
    pub(crate) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Returns the number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes read so far, for errors of the stream.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.offset_bytes + self.unread.len() as u64
    }

    /// Returns the data after the current line, for a caller that searches line ends itself.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Consumes `bytes` bytes of the window: whole lines with their ends. [`Self::line`] is empty afterwards.
    #[inline]
    pub(crate) fn take_lines(&mut self, bytes: usize, lines: u64) {
        self.unread.start += bytes;
        self.line = self.unread.start..self.unread.start;
        self.offset_bytes += bytes as u64;
        self.number += lines;
    }

    /// Reads the next line. A last line without a line end is valid.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<LineResult> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(at) = memchr::memchr(b'\n', &unread[searched..]) {
                return Ok(self.take(searched + at, 1));
            }
            if self.ended {
                return Ok(if unread.is_empty() {
                    LineResult::End
                } else {
                    self.take(unread.len(), 0)
                });
            }
            searched = unread.len();
            if searched > LINE_BYTES_MAX {
                return self.pass_over();
            }
            self.fill()?;
        }
    }

    fn take(&mut self, length: usize, end_bytes: usize) -> LineResult {
        let start = self.unread.start;
        self.line = start..start + length;
        self.unread.start += length + end_bytes;
        self.offset_bytes += (length + end_bytes) as u64;
        self.number += 1;
        if self.number == 1 && self.line().starts_with(UTF8_BOM) {
            self.line.start += UTF8_BOM.len();
        }
        if self.line().ends_with(b"\r") {
            self.line.end -= 1;
        }
        if length > LINE_BYTES_MAX {
            LineResult::TooLong
        } else {
            LineResult::Line
        }
    }

    /// Moves the unread data to the front and reads more after it.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        loop {
            match self.inner.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.unread.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }

    #[cold]
    fn pass_over(&mut self) -> io::Result<LineResult> {
        // The start stays at the front of the buffer for the message. The rest is read after it and dropped.
        self.buffer
            .copy_within(self.unread.start..self.unread.start + LINE_BYTES_MAX, 0);
        self.offset_bytes += self.unread.len() as u64;
        self.unread = LINE_BYTES_MAX..LINE_BYTES_MAX;
        loop {
            let n = match self.inner.read(&mut self.buffer[LINE_BYTES_MAX..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let end = LINE_BYTES_MAX + n;
            let at = memchr::memchr(b'\n', &self.buffer[LINE_BYTES_MAX..end]);
            self.ended |= n == 0;
            let Some(at) = at.or((n == 0).then_some(0)) else {
                self.offset_bytes += n as u64;
                continue;
            };
            let consumed = if n == 0 { 0 } else { at + 1 };
            self.offset_bytes += consumed as u64;
            self.unread = LINE_BYTES_MAX + consumed..end;
            self.line = 0..LINE_BYTES_MAX;
            self.number += 1;
            return Ok(LineResult::TooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, LineResult, Vec<u8>)> {
        let mut lines = Lines::new(text);
        let mut out = Vec::new();
        loop {
            match lines.next().unwrap() {
                LineResult::End => return out,
                kind => out.push((lines.number(), kind, lines.line().to_vec())),
            }
        }
    }

    #[test]
    fn line_ends_are_removed_and_the_last_line_needs_none() {
        let got = all(b"\xef\xbb\xbfa\r\n\nb");
        let lines: Vec<&[u8]> = got.iter().map(|l| l.2.as_slice()).collect();
        assert_eq!(lines, [b"a".as_slice(), b"", b"b"]);
    }

    #[test]
    fn line_beyond_the_length_limit_is_skipped() {
        for length in [
            LINE_BYTES_MAX,
            LINE_BYTES_MAX + 1,
            BUFFER_BYTES,
            3 * BUFFER_BYTES + 17,
        ] {
            let mut text = vec![b'x'; length];
            text.extend_from_slice(b"\nnext\n");
            let got = all(&text);
            let expected = if length > LINE_BYTES_MAX {
                LineResult::TooLong
            } else {
                LineResult::Line
            };
            assert_eq!(got[0].1, expected, "{length}");
            assert_eq!(
                (got[1].0, got[1].2.as_slice()),
                (2, b"next".as_slice()),
                "{length}"
            );
            text.truncate(length);
            assert_eq!(all(&text).len(), 1, "{length}");
        }
    }
}
