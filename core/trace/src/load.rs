//! Loads a whole trace for replay: native traces are mapped, others are read into memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::bulk::{Bulk, read_bulk};
use crate::error::TraceError;
use crate::formats::Format;
use crate::generated::is_generated;
use crate::native::{
    MAGIC, NativeTrace, RECORDS_PER_BLOCK, Totals, VolumeSummary, check_names, content_hash,
};
use crate::record::Record;
use crate::source::Times;
use crate::stream::{Ordering, ReadOptions, TraceStream};

/// Trace for replay: all records are verified and in order of time.
#[derive(Debug)]
pub struct LoadedTrace {
    records: Records,
    /// Volumes; [`Record::volume`] is an index into them.
    pub volumes: Vec<VolumeSummary>,
    /// Time of the last record in nanoseconds since the trace's start.
    pub span_ns: u64,
    /// Unix time of time 0 in nanoseconds, if known.
    pub origin_unix_ns: Option<i64>,
    /// Meaning of the times.
    pub times: Times,
    /// Format, detected or given.
    pub format: Format,
    /// Reason that the format is only assumed, if it is.
    pub format_assumed: Option<String>,
    /// Bad records that were skipped.
    pub skipped: u64,
    /// Records with an earlier time than the previous one in the file.
    pub time_reversals: u64,
    /// XXH3-128 over the records (see [`NativeTrace::content_hash`]): for manifests, with [`LoadedTrace::volumes_hash`].
    pub content_hash: String,
}

#[derive(Debug)]
enum Records {
    Mapped(Box<NativeTrace>),
    Memory {
        records: Vec<Record>,
        latencies: Option<Vec<u64>>,
    },
}

impl LoadedTrace {
    /// Returns all records in order of time.
    #[inline]
    pub fn records(&self) -> &[Record] {
        match &self.records {
            Records::Mapped(trace) => trace.records(),
            Records::Memory { records, .. } => records,
        }
    }

    /// Returns the XXH3-128 of the names of the volumes and the meaning of the times, which the content hash does not cover.
    pub fn volumes_hash(&self) -> String {
        let names: Vec<&str> = self.volumes.iter().map(|v| v.name.as_str()).collect();
        let text = format!("{:?}", (self.times, names));
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// Returns the latency of each record in nanoseconds ([`crate::LATENCY_UNKNOWN`] if unknown), if the trace has
    /// latencies.
    #[inline]
    pub fn latencies(&self) -> Option<&[u64]> {
        match &self.records {
            Records::Mapped(trace) => trace.latencies(),
            Records::Memory { latencies, .. } => latencies.as_deref(),
        }
    }

    /// Creates a trace from generated records, with the usual checks. Its format is [`Format::Native`].
    ///
    /// # Errors
    /// [`TraceError::Write`] if a record is invalid or earlier than the previous one, if the name of a volume is
    /// invalid, or if the number of latencies differs from the number of records.
    pub fn from_records(
        records: Vec<Record>,
        latencies: Option<Vec<u64>>,
        volumes: &[&str],
    ) -> Result<Self, TraceError> {
        let refuse = |index: usize, reason: &str| TraceError::Write {
            index: index as u64,
            reason: reason.to_owned(),
        };
        check_names(volumes, 0)?;
        if latencies.as_ref().is_some_and(|l| l.len() != records.len()) {
            return Err(refuse(
                records.len(),
                "the number of latencies differs from the number of records",
            ));
        }
        let mut last_ns = 0;
        for (index, record) in records.iter().enumerate() {
            let back =
                (record.time_ns < last_ns).then_some("its time is before the previous record");
            if let Some(reason) = record.invalid(volumes.len()).or(back) {
                return Err(refuse(index, reason));
            }
            last_ns = record.time_ns;
        }
        Ok(in_memory(records, latencies, volumes.iter().copied()))
    }

    /// Returns true if the records are used in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.records, Records::Mapped(_))
    }
}

/// Loads a trace of any format: native traces are mapped and verified, others are read into memory, at most
/// `options.records_max` records.
///
/// # Errors
/// Any [`TraceError`].
pub fn load(path: &Path, options: &ReadOptions) -> Result<LoadedTrace, TraceError> {
    if options.columns.is_none()
        && options.format.is_none_or(|f| f == Format::Native)
        && !is_generated(path)
        && has_magic(path)?
    {
        let trace = NativeTrace::open_verified(path)?;
        return Ok(LoadedTrace {
            volumes: trace.volumes().to_vec(),
            span_ns: trace.span_ns(),
            origin_unix_ns: trace.origin_unix_ns(),
            times: trace.times(),
            format: Format::Native,
            format_assumed: None,
            skipped: 0,
            time_reversals: 0,
            content_hash: trace.content_hash(),
            records: Records::Mapped(Box::new(trace)),
        });
    }
    load_stream(TraceStream::open(path, options)?, options)
}

/// Reads the rest of a stream into memory, at most `options.records_max` records.
///
/// # Errors
/// Any [`TraceError`].
pub fn load_stream(
    mut stream: TraceStream,
    options: &ReadOptions,
) -> Result<LoadedTrace, TraceError> {
    if stream.is_fresh() {
        let Bulk { records, latencies } = read_bulk(&mut stream, options.records_max)?;
        return Ok(loaded(&stream, records, latencies));
    }
    let mut records = Vec::new();
    let mut latencies = stream.has_latencies().then(Vec::new);
    while let Some((record, latency_ns)) = stream.next_record()? {
        if records.len() as u64 >= options.records_max {
            return Err(TraceError::TooManyRecords {
                file: stream.file().into(),
                limit: options.records_max,
            });
        }
        records.push(record);
        if let Some(latencies) = &mut latencies {
            latencies.push(latency_ns);
        }
    }
    Ok(loaded(&stream, records, latencies))
}

fn loaded(stream: &TraceStream, records: Vec<Record>, latencies: Option<Vec<u64>>) -> LoadedTrace {
    LoadedTrace {
        origin_unix_ns: stream.origin_unix_ns(),
        times: stream.times(),
        format: stream.format(),
        format_assumed: stream.format_assumed().map(str::to_owned),
        skipped: stream.skipped(),
        time_reversals: stream.time_reversals(),
        ..in_memory(records, latencies, stream.volumes().iter())
    }
}

/// Creates a trace from valid, sorted records.
fn in_memory<'a>(
    records: Vec<Record>,
    latencies: Option<Vec<u64>>,
    names: impl ExactSizeIterator<Item = &'a str>,
) -> LoadedTrace {
    let mut totals = Totals::new(names.len());
    // By blocks, so memory is read only once.
    let blocks = records.chunks(RECORDS_PER_BLOCK);
    let sums: Vec<u64> = blocks
        .map(|block| {
            totals.add(block);
            xxh3_64(bytemuck::cast_slice(block))
        })
        .collect();
    LoadedTrace {
        volumes: totals.summaries(names),
        span_ns: records.last().map_or(0, |r| r.time_ns),
        origin_unix_ns: None,
        times: Times::Measured,
        format: Format::Native,
        format_assumed: None,
        skipped: 0,
        time_reversals: 0,
        content_hash: content_hash(&sums),
        records: Records::Memory { records, latencies },
    }
}

fn has_magic(path: &Path) -> Result<bool, TraceError> {
    let file = File::open(path).map_err(TraceError::io("open", path))?;
    // Reading from a pipe would consume its data, and a trace from a pipe cannot be mapped anyway.
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(false);
    }
    let mut first = Vec::with_capacity(MAGIC.len());
    file.take(MAGIC.len() as u64)
        .read_to_end(&mut first)
        .map_err(TraceError::io("read", path))?;
    Ok(first == MAGIC)
}

impl ReadOptions {
    /// Returns these options with the whole trace sorted in memory.
    pub fn sorted(self) -> Self {
        Self {
            ordering: Ordering::Sort,
            ..self
        }
    }
}
