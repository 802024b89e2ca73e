//! Common interface of all readers of foreign formats: records one at a time, and the names of their volumes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{FieldError, TraceError};
use crate::native::check_name;
use crate::record::{RawRecord, VOLUMES_MAX};

/// Origin of a source's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceClock {
    /// Unix time in nanoseconds: the trace has absolute times.
    Unix,
    /// Unknown start: the first record becomes time 0.
    Relative,
    /// Start of a recording, which other traces may share. It remains time 0, also if the first record comes later.
    Recording,
    /// No times: a record's "nanoseconds" are its number. Only the order is meaningful.
    Order,
}

/// Meaning of a trace's times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Measured times.
    #[default]
    Measured,
    /// The format has no times: [`crate::Record::time_ns`] is the number of earlier records. Rates and spans are
    /// meaningless.
    Order,
}

/// Stream of records in the order of the file.
pub trait RecordSource {
    /// Reads the next record into `out`; `false` at the end.
    ///
    /// # Errors
    /// [`TraceError::BadRecord`] for a single invalid record; the next call continues after it. Any other error is
    /// final.
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError>;

    /// Appends records to `out` until it has `limit`, or until one is earlier than the previous one in `out`. So
    /// [`Self::location`] is the position of any record that may be rejected for its time. Returns false at the end.
    /// Records appended before an error remain.
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

    /// Returns the volumes seen so far, in order of first appearance.
    fn volumes(&self) -> &VolumeNames;

    /// Returns true if records may have latencies.
    fn has_latencies(&self) -> bool;

    /// Returns the origin of the times, which is constant for the whole source.
    fn clock(&self) -> SourceClock;

    /// Returns the number of lines so far that are neither requests nor errors and were skipped: opened files, merged
    /// requests, …
    fn other_events(&self) -> u64 {
        0
    }

    /// Returns the position of the last record that was read.
    fn location(&self) -> crate::Location;
}

/// Returns true if the last record is earlier than the previous one.
#[inline]
pub(crate) fn is_reversed(records: &[RawRecord]) -> bool {
    matches!(records, [.., before, last] if last.time_ns < before.time_ns)
}

/// Name of the only volume of a trace whose format does not name it.
pub const NAMELESS_VOLUME: &str = "0";

/// Interner of volume names, with dense indices in order of first appearance.
#[derive(Debug, Clone, Default)]
pub struct VolumeNames {
    names: Vec<String>,
    // Ordered map, not a hash map: only consulted when the volume changes.
    index: BTreeMap<Vec<u8>, u32>,
    last: u32,
}

impl VolumeNames {
    /// Creates an interner with one volume, [`NAMELESS_VOLUME`], for formats with only one.
    pub fn single() -> Self {
        let mut names = Self::default();
        names
            .intern(NAMELESS_VOLUME.as_bytes())
            .expect("a valid name");
        names
    }

    /// Creates an interner with the given names, in order.
    pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            names: names.map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    /// Returns the number of volumes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true without volumes.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names in order of their indices.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the name of a volume.
    pub fn get(&self, volume: u32) -> Option<&str> {
        self.names.get(volume as usize).map(String::as_str)
    }

    /// Returns the index of a name, new or known.
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
