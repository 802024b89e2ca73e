//! Verification of a whole trace: checksums, validity, order, totals.
//!
//! Blocks are verified one by one, while each is in the cache. A branch-free pass checks all records of a block. The
//! invalid record is searched only if the pass fails.

use xxhash_rust::xxh3::xxh3_64;

use super::read::NativeTrace;
use super::totals::{Totals, VolumeSummary};
use super::{NativeError, RECORDS_PER_BLOCK};
use crate::error::TraceError;
use crate::record::Record;
use crate::warm::touch;

impl NativeTrace {
    /// Reads the whole trace and checks every checksum, every record, the order of time and all totals.
    ///
    /// # Errors
    /// [`TraceError::Native`], which names the block or the record and its byte offset in the file.
    pub fn verify(&self) -> Result<(), TraceError> {
        let mut totals = Totals::new(self.volumes().len());
        for block in self.verified_blocks() {
            totals.add(block?);
        }
        self.verify_latencies()
            .and_then(|()| self.verify_totals(&totals))
            .map_err(|error| self.error(error))
    }

    /// Returns the records by blocks. Each block is checked before it is returned: checksum, validity, order of time.
    /// An iterator that ended without an error has read every record. It has not checked latencies and totals.
    pub fn verified_blocks(&self) -> VerifiedBlocks<'_> {
        let limits = end_limits(self.volumes());
        VerifiedBlocks {
            trace: self,
            limits,
            block: 0,
            last_time_ns: 0,
        }
    }

    fn error(&self, error: NativeError) -> TraceError {
        TraceError::Native {
            file: self.file().to_owned(),
            error,
        }
    }

    fn verify_latencies(&self) -> Result<(), NativeError> {
        let Some(latencies) = self.latencies() else {
            return Ok(());
        };
        let sums = &self.block_checksums()[self.blocks()..];
        for (block, (values, sum)) in latencies.chunks(RECORDS_PER_BLOCK).zip(sums).enumerate() {
            if xxh3_64(bytemuck::cast_slice(values)) != *sum {
                let start =
                    self.sections().latencies.start + block * RECORDS_PER_BLOCK * size_of::<u64>();
                return Err(NativeError::Checksum {
                    section: format!("latencies block {block}"),
                    start_byte: start as u64,
                    end_byte: (start + size_of_val(values)) as u64,
                });
            }
        }
        Ok(())
    }

    fn verify_totals(&self, totals: &Totals) -> Result<(), NativeError> {
        let last_ns = self.records().last().map_or(0, |r| r.time_ns);
        let header = self.header();
        if totals.requests() != header.requests
            || totals.bytes() != header.bytes
            || last_ns != header.span_ns
        {
            return Err(NativeError::Totals {
                what: "the trace".into(),
            });
        }
        let actual = totals.summaries(self.volumes().iter().map(|v| v.name.as_str()));
        match actual.iter().zip(self.volumes()).find(|(a, b)| a != b) {
            Some((volume, _)) => Err(NativeError::Totals {
                what: format!("volume \"{}\"", volume.name),
            }),
            None => Ok(()),
        }
    }
}

/// Iterator of [`NativeTrace::verified_blocks`].
#[derive(Debug)]
pub struct VerifiedBlocks<'a> {
    trace: &'a NativeTrace,
    limits: Vec<u64>,
    block: usize,
    last_time_ns: u64,
}

impl<'a> Iterator for VerifiedBlocks<'a> {
    type Item = Result<&'a [Record], TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.block * RECORDS_PER_BLOCK;
        let rest = self
            .trace
            .records()
            .get(first..)
            .filter(|rest| !rest.is_empty())?;
        let records = &rest[..rest.len().min(RECORDS_PER_BLOCK)];
        let checked = self.check(records, first);
        // After an error, no further block is trusted.
        self.block = if checked.is_ok() {
            self.block + 1
        } else {
            usize::MAX / RECORDS_PER_BLOCK
        };
        Some(
            checked
                .map(|()| records)
                .map_err(|error| self.trace.error(error)),
        )
    }
}

impl VerifiedBlocks<'_> {
    fn check(&mut self, records: &[Record], first: usize) -> Result<(), NativeError> {
        let start = self.trace.sections().records.start + first * Record::SIZE_BYTES;
        touch(records);
        if xxh3_64(bytemuck::cast_slice(records)) != self.trace.block_checksums()[self.block] {
            return Err(NativeError::Checksum {
                section: format!("records block {}", self.block),
                start_byte: start as u64,
                end_byte: (start + size_of_val(records)) as u64,
            });
        }
        if all_valid(records, self.last_time_ns, &self.limits) {
            self.last_time_ns = records.last().map_or(self.last_time_ns, |r| r.time_ns);
            return Ok(());
        }
        let volumes = self.trace.volumes();
        let mut last_ns = self.last_time_ns;
        for (i, r) in records.iter().enumerate() {
            let fault = r.invalid(volumes.len()).or_else(|| {
                let beyond =
                    r.end_offset_bytes() > volumes[r.volume() as usize].max_end_offset_bytes;
                let back = r.time_ns < last_ns;
                let beyond = beyond.then_some("ends beyond the largest end offset of its volume");
                beyond.or(back.then_some("time decreases"))
            });
            if let Some(reason) = fault {
                let start_byte = (start + i * Record::SIZE_BYTES) as u64;
                return Err(NativeError::Record {
                    index: (first + i) as u64,
                    start_byte,
                    reason,
                });
            }
            last_ns = r.time_ns;
        }
        unreachable!("the fast and the slow check of a block disagree");
    }
}

/// Returns the largest valid end of a request for each volume and kind: that of the volume, but zero for a flush.
fn end_limits(volumes: &[VolumeSummary]) -> Vec<u64> {
    volumes
        .iter()
        .map(|v| v.max_end_offset_bytes)
        .flat_map(|end| [end, end, end, 0])
        .collect()
}

/// Returns true if all records are valid (see [`Record`]), none begins before the previous one, and none ends beyond
/// its limit. The rules equal those of [`Record::invalid`], without branches and with fewer comparisons:
///
/// - A request other than a flush has a length and does not wrap around. This is the case exactly if it begins before
///   its end.
/// - A flush has neither offset nor length. This is the case exactly if neither its offset nor its end exceeds its
///   limit of zero.
fn all_valid(records: &[Record], last_time_ns: u64, limits: &[u64]) -> bool {
    let Some(last) = limits.len().checked_sub(1) else {
        return records.is_empty();
    };
    let mut bad = false;
    let mut last_ns = last_time_ns;
    for r in records {
        let (op, offset, end) = (r.op_code(), r.offset_bytes, r.end_offset_bytes());
        let slot = r.volume() as usize * 4 + (op & 3) as usize;
        let limit = limits[slot.min(last)];
        bad |= (r.time_ns < last_ns) | (op > 3) | (slot > last);
        bad |= (end > limit) | (offset > limit) | ((offset >= end) != (op == 3));
        last_ns = r.time_ns;
    }
    !bad
}
