//! Lines of bounded length, without a copy or an allocation per line.

use std::io::{self, Read};
use std::ops::Range;

/// Longest line in bytes. Protects memory from a binary file that has no line ends.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// What [`Lines::next`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line; [`Lines::line`] has it.
    Line,
    /// A line of more than [`LINE_BYTES_MAX`] bytes, which was passed over; [`Lines::line`] has its start.
    TooLong,
    /// The end.
    End,
}

pub(crate) struct Lines<R> {
    inner: R,
    buffer: Vec<u8>,
    /// What of the buffer was read from `inner` and not yet handed out.
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

    /// The current line without its end (LF or CR LF).
    #[inline]
    pub(crate) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of complete lines that were handed out, for errors of the stream.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.offset_bytes + self.unread.len() as u64
    }

    /// What was read behind the current line, for a caller that finds line ends by itself.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Takes `bytes` bytes of the window: whole lines with their ends, of which [`Self::line`] then is nothing.
    #[inline]
    pub(crate) fn take_lines(&mut self, bytes: usize, lines: u64) {
        self.unread.start += bytes;
        self.line = self.unread.start..self.unread.start;
        self.offset_bytes += bytes as u64;
        self.number += lines;
    }

    /// Goes to the next line. A last line without a line end is a line like any other.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(at) = memchr::memchr(b'\n', &unread[searched..]) {
                return Ok(self.take(searched + at, 1));
            }
            if self.ended {
                return Ok(if unread.is_empty() {
                    Next::End
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

    fn take(&mut self, length: usize, end_bytes: usize) -> Next {
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
            Next::TooLong
        } else {
            Next::Line
        }
    }

    /// Moves what is unread to the front and reads more behind it.
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
    fn pass_over(&mut self) -> io::Result<Next> {
        // The start stays at the front of the buffer for the message; the rest is read behind it and dropped.
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
            return Ok(Next::TooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, Next, Vec<u8>)> {
        let mut lines = Lines::new(text);
        let mut out = Vec::new();
        loop {
            match lines.next().unwrap() {
                Next::End => return out,
                kind => out.push((lines.number(), kind, lines.line().to_vec())),
            }
        }
    }

    #[test]
    fn ends_are_removed_and_the_last_needs_none() {
        let got = all(b"\xef\xbb\xbfa\r\n\nb");
        let lines: Vec<&[u8]> = got.iter().map(|l| l.2.as_slice()).collect();
        assert_eq!(lines, [b"a".as_slice(), b"", b"b"]);
    }

    #[test]
    fn an_endless_line_is_passed_over() {
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
                Next::TooLong
            } else {
                Next::Line
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
