//! Totals of a trace. The writer counts them, verification recomputes them, and `info` shows them.

use std::collections::BTreeSet;

use model::Op;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::NativeError;
use super::header::VOLUME_ROW_BYTES;
use crate::error::{TraceError, quote};
use crate::record::{Record, VOLUME_NAME_BYTES_MAX, VOLUMES_MAX};

/// Volume of a trace, with its totals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VolumeSummary {
    /// Name in the trace.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Trims.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Largest end of any request, a lower bound of the volume's size. Zero without requests that have a range.
    pub max_end_offset_bytes: u64,
}

impl VolumeSummary {
    /// Returns the number of requests of all kinds.
    pub fn requests(&self) -> u64 {
        // Saturating, because the four counts come from a file; a verified trace never saturates.
        self.reads
            .saturating_add(self.writes)
            .saturating_add(self.trims)
            .saturating_add(self.flushes)
    }

    fn numbers(&self) -> [u64; 7] {
        let Self {
            reads,
            writes,
            trims,
            flushes,
            bytes_read,
            bytes_written,
            max_end_offset_bytes,
            ..
        } = self;
        [
            *reads,
            *writes,
            *trims,
            *flushes,
            *bytes_read,
            *bytes_written,
            *max_end_offset_bytes,
        ]
    }

    pub(super) fn encode(&self, name_start: u32) -> [u8; VOLUME_ROW_BYTES] {
        let mut out = [0; VOLUME_ROW_BYTES];
        for (slot, v) in out.chunks_exact_mut(8).zip(self.numbers()) {
            slot.copy_from_slice(&v.to_le_bytes());
        }
        out[56..60].copy_from_slice(&name_start.to_le_bytes());
        out[60..64].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        out
    }
}

/// Checks a volume's name. Returns the reason if it is invalid.
pub(crate) fn check_name(name: &[u8]) -> Result<&str, &'static str> {
    if name.is_empty() {
        return Err("a volume needs a name");
    }
    if name.len() > VOLUME_NAME_BYTES_MAX {
        return Err("the name of a volume is longer than 255 bytes");
    }
    let name = std::str::from_utf8(name).map_err(|_| "the name of a volume is not UTF-8")?;
    if name.trim() != name {
        return Err("the name of a volume begins or ends with a blank");
    }
    if name.contains(units::is_hidden) {
        return Err(
            "the name of a volume has control characters or invisible formatting characters",
        );
    }
    Ok(name)
}

/// Checks the names of all volumes of a trace, after `index` records.
///
/// # Errors
/// [`TraceError::Write`] with the reason.
pub(crate) fn check_names(names: &[&str], index: u64) -> Result<(), TraceError> {
    let refuse = |reason: String| TraceError::Write { index, reason };
    if names.len() > VOLUMES_MAX {
        let n = names.len();
        let reason = format!("{n} volumes exceed the limit of {VOLUMES_MAX}");
        return Err(refuse(reason));
    }
    let mut seen = BTreeSet::new();
    for name in names {
        let fresh = if seen.insert(*name) {
            Ok(())
        } else {
            Err("another volume has the same name")
        };
        check_name(name.as_bytes()).and(fresh).map_err(|reason| {
            let name = quote(name.as_bytes());
            refuse(format!("volume \"{name}\": {reason}"))
        })?;
    }
    Ok(())
}

/// Decodes the table of volumes. The size of the section was checked against that of the file before.
pub(super) fn decode_volumes(
    rows: &[u8],
    names: &[u8],
    names_bytes: u32,
) -> Result<Vec<VolumeSummary>, NativeError> {
    let structure = |i: usize, what: &str| NativeError::Structure {
        what: format!("volume {i}: {what}"),
    };
    let (names, padding) = names
        .split_at_checked(names_bytes as usize)
        .unwrap_or((names, &[]));
    if padding.iter().any(|b| *b != 0) {
        return Err(NativeError::Structure {
            what: "padding must be zero".into(),
        });
    }
    let mut volumes = Vec::with_capacity(rows.len() / VOLUME_ROW_BYTES);
    let mut seen = BTreeSet::new();
    let mut expected_start = 0usize;
    for (i, row) in rows.chunks_exact(VOLUME_ROW_BYTES).enumerate() {
        let (words, _) = row.as_chunks::<8>();
        let [
            reads,
            writes,
            trims,
            flushes,
            bytes_read,
            bytes_written,
            max_end_offset_bytes,
            name,
        ] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        let (start, length) = ((name & 0xffff_ffff) as usize, (name >> 32) as usize);
        if start != expected_start {
            return Err(structure(i, "its name does not follow the previous name"));
        }
        let bytes = start
            .checked_add(length)
            .and_then(|end| names.get(start..end));
        let bytes = bytes.ok_or_else(|| structure(i, "its name is outside the table of names"))?;
        let name = check_name(bytes).map_err(|reason| structure(i, reason))?;
        if !seen.insert(name) {
            return Err(structure(i, "another volume has the same name"));
        }
        let name = name.to_owned();
        expected_start += length;
        volumes.push(VolumeSummary {
            name,
            reads,
            writes,
            trims,
            flushes,
            bytes_read,
            bytes_written,
            max_end_offset_bytes,
        });
    }
    if expected_start != names.len() {
        return Err(NativeError::Structure {
            what: "bytes after the last name".into(),
        });
    }
    Ok(volumes)
}

/// Running totals per volume and kind, in dense arrays that are updated without branches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    requests: Vec<[u64; 4]>,
    bytes: Vec<[u64; 4]>,
    max_end: Vec<u64>,
}

impl Totals {
    pub(crate) fn new(volumes: usize) -> Self {
        Self {
            requests: vec![[0; 4]; volumes],
            bytes: vec![[0; 4]; volumes],
            max_end: vec![0; volumes],
        }
    }

    /// Returns the number of volumes with a slot.
    pub(crate) fn volumes(&self) -> usize {
        self.max_end.len()
    }

    /// Adds slots up to `volumes` volumes.
    pub(crate) fn grow(&mut self, volumes: usize) {
        if volumes > self.volumes() {
            self.requests.resize(volumes, [0; 4]);
            self.bytes.resize(volumes, [0; 4]);
            self.max_end.resize(volumes, 0);
        }
    }

    /// Adds valid records of volumes with a slot.
    pub(crate) fn add(&mut self, records: &[Record]) {
        for r in records {
            let (v, op) = (r.volume() as usize, r.op() as usize);
            self.requests[v][op] += 1;
            // Wrapping, like the header's totals: no trace transfers 2^64 bytes.
            self.bytes[v][op] = self.bytes[v][op].wrapping_add(u64::from(r.length_bytes));
            self.max_end[v] = self.max_end[v].max(r.end_offset_bytes());
        }
    }

    /// Returns the number of requests by kind over all volumes.
    pub(crate) fn requests(&self) -> [u64; 4] {
        std::array::from_fn(|op| self.requests.iter().map(|n| n[op]).sum())
    }

    /// Returns the bytes read, written and trimmed over all volumes.
    pub(crate) fn bytes(&self) -> [u64; 3] {
        std::array::from_fn(|op| {
            self.bytes
                .iter()
                .fold(0u64, |sum, n| sum.wrapping_add(n[op]))
        })
    }

    /// Returns the totals with names.
    pub(crate) fn summaries<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<VolumeSummary> {
        let rows = self.requests.iter().zip(&self.bytes).zip(&self.max_end);
        rows.zip(names)
            .map(|(((requests, bytes), max_end), name)| VolumeSummary {
                name: name.to_owned(),
                reads: requests[Op::Read as usize],
                writes: requests[Op::Write as usize],
                trims: requests[Op::Trim as usize],
                flushes: requests[Op::Flush as usize],
                bytes_read: bytes[Op::Read as usize],
                bytes_written: bytes[Op::Write as usize],
                max_end_offset_bytes: *max_end,
            })
            .collect()
    }
}

/// Returns the content hash of a trace: XXH3-128 of the checksums of its blocks of records, in hex. It depends on the
/// records alone, so the same requests have the same hash in any file.
pub(crate) fn content_hash(block_checksums: &[u64]) -> String {
    format!("{:032x}", xxh3_128(bytemuck::cast_slice(block_checksums)))
}
