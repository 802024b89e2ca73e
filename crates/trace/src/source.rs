//! What every reader of a foreign format offers: records one at a time, and the volumes they name.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{FieldError, TraceError};
use crate::native::check_name;
use crate::record::{RawRecord, VOLUMES_MAX};

/// What a source's times count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceClock {
    /// Unix time in nanoseconds: the trace knows when it was taken.
    Unix,
    /// Some start of its own: the first record becomes time 0.
    Relative,
    /// The start of a recording, which other traces may share: kept, also where the first record comes later.
    Recording,
    /// There are no times: a record's "nanoseconds" are its number. Only the order means anything.
    Order,
}

/// Whether a trace's times are times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// They are.
    #[default]
    Measured,
    /// The format has none: [`crate::Record::time_ns`] counts the records before it. Rates and spans mean nothing.
    Order,
}

/// A stream of records in the order of the file.
pub trait RecordSource {
    /// Reads the next record into `out`; `false` at the end.
    ///
    /// # Errors
    /// [`TraceError::BadRecord`] for one record that cannot be read: the next call goes on behind it. Any other
    /// error is final.
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError>;

    /// Appends records to `out` until it has `limit`, or until one is earlier than the one before it in `out`: so that
    /// [`Self::location`] is that of any record that may be refused for its time. `false` at the end. What was appended
    /// before an error stays.
    ///
    /// # Errors
    /// As [`Self::next`].
    fn next_batch(&mut self, out: &mut Vec<RawRecord>, limit: usize) -> Result<bool, TraceError> {
        let mut record = RawRecord::EMPTY;
        while out.len() < limit {
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

    /// The volumes seen so far, in order of their first appearance.
    fn volumes(&self) -> &VolumeNames;

    /// Whether records may carry latencies.
    fn has_latencies(&self) -> bool;

    /// What the times count from; the same from the first record to the last.
    fn clock(&self) -> SourceClock;

    /// Lines so far that are neither requests nor wrong, and were passed over: opened files, merged requests, …
    fn other_events(&self) -> u64 {
        0
    }

    /// Where the record that was read last begins.
    fn location(&self) -> crate::Location;
}

/// Whether the last record is earlier than the one before it.
#[inline]
pub(crate) fn is_reversed(records: &[RawRecord]) -> bool {
    matches!(records, [.., before, last] if last.time_ns < before.time_ns)
}

/// Names of volumes, interned to dense indices in order of first appearance.
#[derive(Debug, Clone, Default)]
pub struct VolumeNames {
    names: Vec<String>,
    // Ordered map, not a hash map: only consulted when the volume changes.
    index: BTreeMap<Vec<u8>, u32>,
    last: u32,
}

impl VolumeNames {
    /// Interner with one volume, for formats that have only one. It is called `0`.
    pub fn single() -> Self {
        let mut names = Self::default();
        names.intern(b"0").expect("a valid name");
        names
    }

    /// The names of a trace that has them already, in order.
    pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            names: names.map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    /// Number of volumes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names in order of their indices.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The name of a volume.
    pub fn get(&self, volume: u32) -> Option<&str> {
        self.names.get(volume as usize).map(String::as_str)
    }

    /// The index of a name, new or known.
    #[inline]
    pub(crate) fn intern(&mut self, name: &[u8]) -> Result<u32, Box<FieldError>> {
        match self.names.get(self.last as usize) {
            Some(last) if last.as_bytes() == name => Ok(self.last),
            _ => self.intern_slow(name),
        }
    }

    fn intern_slow(&mut self, name: &[u8]) -> Result<u32, Box<FieldError>> {
        if let Some(index) = self.index.get(name) {
            self.last = *index;
            return Ok(*index);
        }
        let text = check_name(name).map_err(|reason| FieldError::new("volume", name, reason))?;
        if self.names.len() == VOLUMES_MAX {
            let reason = format!("more than {VOLUMES_MAX} volumes: check the volume column");
            return Err(FieldError::new("volume", name, reason));
        }
        self.last = self.names.len() as u32;
        self.names.push(text.to_owned());
        self.index.insert(name.to_vec(), self.last);
        Ok(self.last)
    }
}
