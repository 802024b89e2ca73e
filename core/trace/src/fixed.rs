//! Binary records of one size from a stream, with positions and detection of a truncated last record.

use std::io::{self, Read};

use crate::error::{FieldError, Location, TraceError};

const BUFFER_BYTES: usize = 128 << 10;

pub(crate) struct FixedRecords<R> {
    file: String,
    inner: R,
    record_bytes: usize,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// File offset of `buffer[0]`.
    base: u64,
    record_start: u64,
}

impl<R: Read> FixedRecords<R> {
    /// Creates a reader of records of `record_bytes`, which must be far smaller than the buffer.
    pub(crate) fn new(file: &str, inner: R, record_bytes: usize) -> Self {
        Self {
            file: file.to_owned(),
            inner,
            record_bytes,
            buffer: vec![0; BUFFER_BYTES],
            at: 0,
            end: 0,
            base: 0,
            record_start: 0,
        }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the position of the last record that was read.
    pub(crate) fn location(&self) -> Location {
        Location::Byte(self.record_start)
    }

    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError::BadRecord`] for a truncated last record, [`TraceError::Stream`] if reading fails.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let size = self.record_bytes;
        if self.end - self.at < size {
            self.fill().map_err(|source| TraceError::Stream {
                file: self.file.clone(),
                offset_bytes: self.base + self.end as u64,
                what: "data",
                source,
            })?;
        }
        self.record_start = self.base + self.at as u64;
        if self.at == self.end {
            return Ok(None);
        }
        if self.end - self.at < size {
            let rest = &self.buffer[self.at..self.end];
            let reason = format!("the file ends after {} of {size} bytes", rest.len());
            let error = FieldError::new("record", rest, reason);
            self.at = self.end;
            return Err(error.at(&self.file, self.location()));
        }
        self.at += size;
        Ok(Some(&self.buffer[self.at - size..self.at]))
    }

    /// Reads until a whole record is buffered, if the file has one.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < self.record_bytes {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
