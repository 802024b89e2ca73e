//! Writer of native traces, as a stream.
//!
//! The header is written last, over a placeholder, because counts and checksums are unknown before. Latencies follow
//! the records in the file, so they are kept in a spill until all records are written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::RECORDS_PER_BLOCK;
use super::header::{HEADER_BYTES, Header};
use super::totals::{Totals, VolumeSummary, check_names, content_hash};
use crate::atomic::AtomicFile;
use crate::error::TraceError;
use crate::record::{LATENCY_UNKNOWN, Record, VOLUMES_MAX};
use crate::source::Times;

/// Bytes per copy from the latency spill to the trace.
const COPY_BYTES: usize = 256 << 10;

/// Properties of a trace other than its records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NativeOptions {
    /// Unix time of time 0 in nanoseconds, if known.
    pub origin_unix_ns: Option<i64>,
    /// Meaning of the times.
    pub times: Times,
}

/// Storage of latencies while the records are written.
#[derive(Debug)]
pub enum LatencySpill {
    /// The trace has no latencies.
    None,
    /// Memory: 8 bytes per record.
    Memory(Vec<u64>),
    /// File that is open for reading and writing, used from its start.
    File(File),
}

impl LatencySpill {
    fn push(&mut self, latencies: &[u64]) -> io::Result<()> {
        match self {
            LatencySpill::None => {}
            LatencySpill::Memory(all) => all.extend_from_slice(latencies),
            LatencySpill::File(file) => file.write_all(bytemuck::cast_slice(latencies))?,
        }
        Ok(())
    }

    fn copy_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        match self {
            LatencySpill::None => {}
            LatencySpill::Memory(all) => out.write_all(bytemuck::cast_slice(all))?,
            LatencySpill::File(file) => {
                file.rewind()?;
                let mut buffer = vec![0; COPY_BYTES];
                loop {
                    let n = file.read(&mut buffer)?;
                    if n == 0 {
                        break;
                    }
                    out.write_all(&buffer[..n])?;
                }
            }
        }
        Ok(())
    }
}

/// Result of writing a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeSummary {
    /// Number of records.
    pub records: u64,
    /// Time of the last record in nanoseconds.
    pub span_ns: u64,
    /// Volumes with their totals.
    pub volumes: Vec<VolumeSummary>,
    /// Content hash, as [`super::NativeTrace::content_hash`].
    pub content_hash: String,
}

/// Writer of a native trace to any seekable output. Use [`NativeFile`] for a file that appears only when it is
/// complete.
#[derive(Debug)]
pub struct NativeWriter<W> {
    out: W,
    options: NativeOptions,
    spill: LatencySpill,
    block: Vec<Record>,
    block_latencies: Vec<u64>,
    record_sums: Vec<u64>,
    latency_sums: Vec<u64>,
    totals: Totals,
    records: u64,
    last_time_ns: u64,
}

impl<W: Write + Seek> NativeWriter<W> {
    /// Starts a trace at the start of the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(mut out: W, options: NativeOptions, spill: LatencySpill) -> io::Result<Self> {
        out.rewind()?;
        out.write_all(&[0; HEADER_BYTES])?;
        Ok(Self {
            out,
            options,
            spill,
            block: Vec::with_capacity(RECORDS_PER_BLOCK),
            block_latencies: Vec::new(),
            record_sums: Vec::new(),
            latency_sums: Vec::new(),
            totals: Totals::new(0),
            records: 0,
            last_time_ns: 0,
        })
    }

    /// Appends a record. Its latency in nanoseconds is ignored if the trace has no latencies.
    ///
    /// # Errors
    /// [`TraceError::Write`] for a record that is invalid or before the last one; nothing is appended then.
    /// [`TraceError::Stream`] if the output fails; the trace is lost then.
    pub fn push(&mut self, record: Record, latency_ns: Option<u64>) -> Result<(), TraceError> {
        let index = self.records;
        if let Some(reason) = record.invalid(VOLUMES_MAX) {
            return Err(TraceError::Write {
                index,
                reason: reason.into(),
            });
        }
        if record.time_ns < self.last_time_ns {
            let reason = format!(
                "its time is {} ns before the previous record",
                self.last_time_ns - record.time_ns
            );
            return Err(TraceError::Write { index, reason });
        }
        self.last_time_ns = record.time_ns;
        self.records += 1;
        self.block.push(record);
        if !matches!(self.spill, LatencySpill::None) {
            self.block_latencies
                .push(latency_ns.unwrap_or(LATENCY_UNKNOWN));
        }
        if self.block.len() == RECORDS_PER_BLOCK {
            self.write_block().map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    /// Returns the number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the trace. `names` are the volumes in the order of their indices. Volumes without a request are kept;
    /// a request of a volume without a name is an error.
    ///
    /// # Errors
    /// [`TraceError::Write`] for an invalid name, [`TraceError::Stream`] if the output fails.
    pub fn finish<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(W, NativeSummary), TraceError> {
        let names: Vec<&str> = names.into_iter().collect();
        self.write_block().map_err(|e| self.failed(e))?;
        let refuse = |reason: String| TraceError::Write {
            index: self.records,
            reason,
        };
        if names.len() < self.totals.volumes() {
            return Err(refuse(format!(
                "volume {} has no name",
                self.totals.volumes() - 1
            )));
        }
        check_names(&names, self.records)?;
        self.totals.grow(names.len());
        let volumes = self.totals.summaries(names.iter().copied());
        self.write_rest(&volumes).map_err(|e| self.failed(e))?;
        let content_hash = content_hash(&self.record_sums);
        let summary = NativeSummary {
            records: self.records,
            span_ns: self.last_time_ns,
            volumes,
            content_hash,
        };
        Ok((self.out, summary))
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let offset_bytes = self.records.saturating_mul(Record::SIZE_BYTES as u64);
        TraceError::Stream {
            file: "native trace".into(),
            offset_bytes,
            what: "output",
            source,
        }
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let volumes = self
            .block
            .iter()
            .map(|r| r.volume() as usize + 1)
            .max()
            .unwrap_or(0);
        self.totals.grow(volumes);
        self.totals.add(&self.block);
        let bytes: &[u8] = bytemuck::cast_slice(&self.block);
        self.record_sums.push(xxh3_64(bytes));
        self.out.write_all(bytes)?;
        self.block.clear();
        if !matches!(self.spill, LatencySpill::None) {
            self.latency_sums
                .push(xxh3_64(bytemuck::cast_slice(&self.block_latencies)));
            self.spill.push(&self.block_latencies)?;
            self.block_latencies.clear();
        }
        Ok(())
    }

    fn write_rest(&mut self, volumes: &[VolumeSummary]) -> io::Result<()> {
        self.spill.copy_to(&mut self.out)?;
        let mut tables = Vec::new();
        let mut names = Vec::new();
        for volume in volumes {
            tables.extend_from_slice(&volume.encode(names.len() as u32));
            names.extend_from_slice(volume.name.as_bytes());
        }
        let names_bytes = names.len() as u32;
        names.resize(names.len().next_multiple_of(8), 0);
        tables.extend_from_slice(&names);
        tables.extend_from_slice(bytemuck::cast_slice(&self.record_sums));
        tables.extend_from_slice(bytemuck::cast_slice(&self.latency_sums));
        self.out.write_all(&tables)?;
        let header = Header {
            has_latencies: !matches!(self.spill, LatencySpill::None),
            records: self.records,
            span_ns: self.last_time_ns,
            origin_unix_ns: self.options.origin_unix_ns,
            times: self.options.times,
            volumes: volumes.len() as u32,
            names_bytes,
            requests: self.totals.requests(),
            bytes: self.totals.bytes(),
            tables_checksum: xxh3_64(&tables),
        };
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header.encode())?;
        self.out.flush()
    }
}

/// Native trace file that appears under its name only when it is complete.
#[derive(Debug)]
pub struct NativeFile {
    writer: NativeWriter<File>,
    file: AtomicFile,
    // Keeps the spill's name until the trace is complete. Dropping it removes the file.
    _spill: Option<AtomicFile>,
}

impl NativeFile {
    /// Creates temporary files in the directory of `path`. With `latencies`, each record may have one.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn create(
        path: &Path,
        options: NativeOptions,
        latencies: Latencies,
    ) -> Result<Self, TraceError> {
        let file = AtomicFile::create(path)?;
        let spill_file = match latencies {
            Latencies::Absent => None,
            Latencies::Stored => Some(AtomicFile::create(&path.with_extension("latencies"))?),
        };
        let fail = |action| TraceError::io(action, path);
        let spill = match &spill_file {
            None => LatencySpill::None,
            Some(spill) => LatencySpill::File(spill.file().try_clone().map_err(fail("open"))?),
        };
        let out = file.file().try_clone().map_err(fail("open"))?;
        let writer = NativeWriter::new(out, options, spill).map_err(fail("write"))?;
        Ok(Self {
            writer,
            file,
            _spill: spill_file,
        })
    }

    /// Appends a record, see [`NativeWriter::push`].
    ///
    /// # Errors
    /// As [`NativeWriter::push`].
    pub fn push(&mut self, record: Record, latency_ns: Option<u64>) -> Result<(), TraceError> {
        self.writer.push(record, latency_ns)
    }

    /// Completes the trace, makes it durable and renames it to its name. See [`NativeWriter::finish`].
    ///
    /// # Errors
    /// As [`NativeWriter::finish`]; no file appears then.
    pub fn finish<'a>(
        self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<NativeSummary, TraceError> {
        let (_, summary) = self.writer.finish(names)?;
        self.file.commit()?;
        Ok(summary)
    }
}

/// Presence of a latency column in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latencies {
    /// No column.
    Absent,
    /// A column of 8 bytes per record.
    Stored,
}
