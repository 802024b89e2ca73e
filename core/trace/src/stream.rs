//! A trace as a stream: opened, decompressed, recognized, bad records passed over, in order of time from zero.
//!
//! ```text
//! file ─▶ decompress ─▶ detect ─▶ RecordSource ─▶ skip bad ─▶ reorder ─▶ times from 0 ─▶ Record, latency
//! ```

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use crate::beginning::{First, choose_format, stream_name};
use crate::compress::{Compression, InputPosition, decompress};
use crate::detect::rows;
use crate::error::{BadRecord, Location, SkipBad, TraceError};
use crate::formats::{
    BlkForm, FIO2_HEADER, FIO3_HEADER, Format, IdPlacement, OracleReader, References, VscsiReader,
    VscsiVersion, blktrace_reader, cos_reader, fio_reader, fitted_layout, reference_reader,
};
use crate::generated::{self, GeneratedSource};
use crate::native::NativeTrace;
use crate::native_source::NativeSource;
use crate::order::{REORDER_RECORDS_MAX, Reorder};
use crate::record::{LATENCY_UNKNOWN, RawRecord, Record, Request};
use crate::sample::{SampleCounts, SampleSpec, Sampler};
use crate::source::{RecordSource, SourceClock, Times, VolumeNames};
use crate::text::{ColumnReader, ColumnSpec};

/// Messages about bad records that are kept; further ones are only counted. Protects reports from a damaged file.
const BAD_MESSAGES_MAX: usize = 5;
/// Default for [`ReadOptions::records_max`]: 6 GiB of records.
pub const RECORDS_IN_MEMORY_MAX: u64 = 1 << 28;

/// How a trace's records get into order of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Small reversals are repaired within a buffer of [`REORDER_RECORDS_MAX`] records; larger ones are errors.
    #[default]
    Repair,
    /// The whole trace is sorted in memory; records of the same time keep their order.
    Sort,
}

/// How to read a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format; detected if `None`.
    pub format: Option<Format>,
    /// A column mapping, for [`Format::Csv`].
    pub columns: Option<ColumnSpec>,
    /// Where ids lie, for the formats that have ids and not addresses; their own default if `None`.
    pub ids: Option<IdPlacement>,
    /// How many bad records are passed over.
    pub skip_bad: SkipBad,
    /// How the records get into order of time.
    pub ordering: Ordering,
    /// Most records to hold in memory, for [`Ordering::Sort`] and [`crate::load`]. Mapped traces are not limited.
    pub records_max: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: None,
            columns: None,
            ids: None,
            skip_bad: SkipBad::default(),
            ordering: Ordering::default(),
            records_max: RECORDS_IN_MEMORY_MAX,
        }
    }
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the (compressed) file that were read.
    pub done_bytes: u64,
    /// Size of the file, if known.
    pub total_bytes: Option<u64>,
    /// Records that were handed on.
    pub records: u64,
}

/// A trace of any format, record by record.
pub struct TraceStream {
    file: String,
    total_bytes: Option<u64>,
    source: Box<dyn RecordSource + Send>,
    format: Format,
    assumed: Option<String>,
    compression: Compression,
    input: InputPosition,
    options: ReadOptions,
    reorder: Reorder,
    ended: bool,
    skipped: u64,
    bad: Vec<BadRecord>,
    /// Time on the source's clock that is time 0.
    base_ns: Option<i64>,
    origin_unix_ns: Option<i64>,
    records: u64,
    sampler: Option<Sampler>,
}

impl TraceStream {
    /// Opens a file, or a generated trace such as `generate:preset=jesd,duration=1h`. A native trace is mapped and verified before the first
    /// record.
    ///
    /// # Errors
    /// Any [`TraceError`]: the file cannot be read, its format is unknown, the mapping does not fit, …
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, TraceError> {
        if let Some(specification) = generated::specification(path) {
            let source = Box::new(GeneratedSource::new(specification)?);
            // Its requests are in order, so none is held back.
            let reorder = Reorder::new(0);
            let of = Self::new(path.display().to_string(), source, Format::Native, options);
            return Ok(Self { reorder, ..of });
        }
        let file = File::open(path).map_err(TraceError::io("open", path))?;
        let total_bytes = file
            .metadata()
            .ok()
            .filter(|m| m.is_file())
            .map(|m| m.len());
        let name = path.display().to_string();
        let (bytes, compression, input) =
            decompress(Box::new(file)).map_err(TraceError::io("read", path))?;
        let first = First::read(&name, bytes, compression)?;
        if compression == Compression::None && first.is_native(options) {
            let trace = NativeTrace::open_verified(path)?;
            return Ok(Self::of_native(trace, options));
        }
        let (format, _) = choose_format(&name, &first, options)?;
        if compression == Compression::None && format == Format::Parquet {
            return Self::of_parquet(name, path, total_bytes, options);
        }
        Self::of_bytes(name, first, input, total_bytes, options)
    }

    fn of_parquet(
        file: String,
        path: &Path,
        total_bytes: Option<u64>,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        // It is read from its end: what was looked at is left behind.
        let opened = File::open(path).map_err(TraceError::io("open", path))?;
        let source = crate::columnar::ParquetSource::open(&file, opened)?;
        Ok(Self {
            total_bytes,
            origin_unix_ns: source.origin_unix_ns,
            ..Self::new(file, Box::new(source), Format::Parquet, options)
        })
    }

    /// The same from any reader; `name` stands for the file in errors. A native trace cannot be streamed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_reader(
        name: &str,
        reader: impl Read + Send + 'static,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        let fail = |source| TraceError::Stream {
            file: name.to_owned(),
            offset_bytes: 0,
            what: "data",
            source,
        };
        let (bytes, compression, input) = decompress(Box::new(reader)).map_err(fail)?;
        let first = First::read(name, bytes, compression)?;
        Self::of_bytes(name.to_owned(), first, input, None, options)
    }

    fn of_native(trace: NativeTrace, options: &ReadOptions) -> Self {
        let (file, origin_unix_ns) = (trace.file().to_owned(), trace.origin_unix_ns());
        let source = Box::new(NativeSource::new(trace));
        Self {
            origin_unix_ns,
            // Native times count from the trace's start already.
            base_ns: Some(0),
            // Verified to be in order: nothing needs to be held back.
            reorder: Reorder::new(0),
            ..Self::new(file, source, Format::Native, options)
        }
    }

    fn of_bytes(
        file: String,
        first: First,
        input: InputPosition,
        total_bytes: Option<u64>,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        let (format, mut assumed) = choose_format(&file, &first, options)?;
        let columns = |reason: String| TraceError::Columns {
            file: file.clone(),
            reason,
        };
        let rows = rows(&first.peek);
        let named = options
            .columns
            .is_none()
            .then(|| fitted_layout(format, &rows));
        let layout = match (format, named.flatten()) {
            (Format::Csv, None) => {
                let spec = options.columns.clone().unwrap_or_default();
                let resolved = spec.resolve(&rows).map_err(|e| columns(e.to_string()))?;
                assumed = resolved.assumed;
                Some(resolved.layout)
            }
            (_, layout) => layout,
        };
        if options.ids.is_some() && !format.has_ids() {
            return Err(columns(format!(
                "{format} has addresses: --ids applies only to lis, lirs and oraclegeneral"
            )));
        }
        let compression = first.compression;
        let source: Box<dyn RecordSource + Send> = match layout {
            Some(layout) => {
                let bytes = Cursor::new(first.peek).chain(first.rest);
                Box::new(ColumnReader::new(&file, bytes, layout))
            }
            None => open_source(&file, first, format, options)?,
        };
        Ok(Self {
            assumed,
            compression,
            input,
            total_bytes,
            ..Self::new(file, source, format, options)
        })
    }

    fn new(
        file: String,
        source: Box<dyn RecordSource + Send>,
        format: Format,
        options: &ReadOptions,
    ) -> Self {
        Self {
            file,
            total_bytes: None,
            source,
            format,
            assumed: None,
            compression: Compression::None,
            input: InputPosition::default(),
            options: options.clone(),
            reorder: Reorder::new(REORDER_RECORDS_MAX),
            ended: false,
            skipped: 0,
            bad: Vec::new(),
            base_ns: None,
            origin_unix_ns: None,
            records: 0,
            sampler: None,
        }
    }

    /// Hands on only a part of the records from here on; volumes are then those of which something was kept.
    ///
    /// # Errors
    /// [`TraceError::Columns`] if the specification cannot be applied, or asks for times that the trace does not have.
    /// A volume that is not in the trace is an error at its end.
    pub fn sample(&mut self, spec: &SampleSpec) -> Result<(), TraceError> {
        let fail = |reason: String| TraceError::Columns {
            file: self.file.clone(),
            reason,
        };
        if spec.needs_times() && self.times() == Times::Order {
            return Err(fail(
                "the trace has no times, which the start or end of a sample requires".into(),
            ));
        }
        self.sampler = Some(spec.sampler().map_err(|e| fail(e.to_string()))?);
        Ok(())
    }

    /// What was kept so far, if [`Self::sample`] was called.
    pub fn sampled(&self) -> Option<SampleCounts> {
        self.sampler.as_ref().map(Sampler::sampled)
    }

    /// The next record in order of time, with its latency in nanoseconds or [`LATENCY_UNKNOWN`]; `None` at the end.
    ///
    /// # Errors
    /// Any [`TraceError`]; all are final.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<(Record, u64)>, TraceError> {
        if self.sampler.is_some() {
            return self.next_sampled();
        }
        self.next_unsampled()
    }

    fn next_sampled(&mut self) -> Result<Option<(Record, u64)>, TraceError> {
        while let Some((record, latency_ns)) = self.next_unsampled()? {
            let Some(sampler) = &mut self.sampler else {
                return Ok(Some((record, latency_ns)));
            };
            // All volumes are known by now only if none was asked for; else the rest must be read.
            if sampler.is_past(record.time_ns) && sampler.missing(self.source.volumes()).is_none() {
                return Ok(None);
            }
            if let Some(kept) = sampler.keep(record, self.source.volumes()) {
                return Ok(Some((kept, latency_ns)));
            }
        }
        let missing = self
            .sampler
            .as_ref()
            .and_then(|s| s.missing(self.source.volumes()));
        match missing {
            None => Ok(None),
            Some(name) => Err(TraceError::Columns {
                file: self.file.clone(),
                reason: format!("the trace has no volume \"{name}\""),
            }),
        }
    }

    #[inline]
    fn next_unsampled(&mut self) -> Result<Option<(Record, u64)>, TraceError> {
        loop {
            let ready = if self.ended {
                self.reorder.pop()
            } else {
                self.reorder.pop_ready()
            };
            if let Some(raw) = ready {
                return self.hand_on(&raw).map(Some);
            }
            if self.ended {
                return Ok(None);
            }
            if self.options.ordering == Ordering::Sort && self.format != Format::Native {
                self.read_all()?;
                continue;
            }
            let mut raw = RawRecord::EMPTY;
            if self.read(&mut raw)?
                && let Err(back_ns) = self.reorder.push(raw)
            {
                let (file, at) = (self.file.clone(), self.source.location());
                return Err(TraceError::TimeReversal {
                    file,
                    at,
                    back_ns,
                    buffer_records: REORDER_RECORDS_MAX,
                });
            }
        }
    }

    fn read_all(&mut self) -> Result<(), TraceError> {
        let mut raw = RawRecord::EMPTY;
        while self.read(&mut raw)? {
            if self.reorder.len() as u64 >= self.options.records_max {
                return Err(TraceError::TooManyRecords {
                    file: self.file.clone(),
                    limit: self.options.records_max,
                });
            }
            self.reorder.push_unbounded(raw);
        }
        self.reorder.sort();
        Ok(())
    }

    /// Reads the next good record; at the end `false`, and the stream is marked as ended.
    fn read(&mut self, raw: &mut RawRecord) -> Result<bool, TraceError> {
        loop {
            match self.source.next(raw) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    self.ended = true;
                    return Ok(false);
                }
                Err(error) => self.pass_over(error)?,
            }
        }
    }

    /// Appends good records to `out` until it has `limit`; at the end `false`, and the stream is marked as ended.
    pub(crate) fn read_batch(
        &mut self,
        out: &mut Vec<RawRecord>,
        limit: usize,
    ) -> Result<bool, TraceError> {
        loop {
            match self.source.next_batch(out, limit) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    self.ended = true;
                    return Ok(false);
                }
                Err(error) => self.pass_over(error)?,
            }
        }
    }

    /// Whether nothing was read yet and reversals are to be repaired: then [`crate::bulk`] may read all at once.
    pub(crate) fn is_fresh(&self) -> bool {
        self.records == 0
            && self.reorder.len() == 0
            && !self.ended
            && self.sampler.is_none()
            && self.options.ordering == Ordering::Repair
    }

    /// What the times count from.
    pub(crate) fn clock(&self) -> SourceClock {
        self.source.clock()
    }

    /// Where the record that was read last begins.
    pub(crate) fn location(&self) -> Location {
        self.source.location()
    }

    /// Takes note of what [`crate::bulk`] found out.
    pub(crate) fn finish_bulk(
        &mut self,
        records: u64,
        reversals: u64,
        origin_unix_ns: Option<i64>,
    ) {
        self.records = records;
        self.reorder.count_reversals(reversals);
        if origin_unix_ns.is_some() {
            self.origin_unix_ns = origin_unix_ns;
        }
    }

    /// Skips what may be skipped; the error if it may not.
    #[cold]
    fn pass_over(&mut self, error: TraceError) -> Result<(), TraceError> {
        match error {
            TraceError::BadRecord(bad) => self.skip(bad),
            TraceError::Stream {
                file,
                offset_bytes,
                source,
                ..
            } => Err(TraceError::Stream {
                file,
                offset_bytes,
                what: stream_name(self.compression),
                source,
            }),
            other => Err(other),
        }
    }

    #[cold]
    fn skip(&mut self, bad: Box<BadRecord>) -> Result<(), TraceError> {
        let limit = self.options.skip_bad.limit;
        if limit == 0 {
            return Err(TraceError::BadRecord(bad));
        }
        if self.skipped >= limit {
            return Err(TraceError::TooManyBad { limit, last: bad });
        }
        self.skipped += 1;
        if self.bad.len() < BAD_MESSAGES_MAX {
            self.bad.push(*bad);
        }
        Ok(())
    }

    #[inline]
    fn hand_on(&mut self, raw: &RawRecord) -> Result<(Record, u64), TraceError> {
        let base_ns = match self.base_ns {
            Some(base_ns) => base_ns,
            None => {
                let clock = self.source.clock();
                if clock == SourceClock::Unix {
                    self.origin_unix_ns = Some(raw.time_ns);
                }
                let zero = if clock == SourceClock::Recording {
                    0
                } else {
                    raw.time_ns
                };
                *self.base_ns.insert(zero)
            }
        };
        // Never negative: records leave the buffer in order.
        let since_base = raw
            .time_ns
            .checked_sub(base_ns)
            .and_then(|ns| u64::try_from(ns).ok());
        let Some(time_ns) = since_base else {
            return Err(TraceError::SpanTooLong {
                file: self.file.clone(),
                at: Location::Record(self.records),
            });
        };
        self.records += 1;
        let RawRecord {
            offset_bytes,
            latency_ns,
            length_bytes,
            volume,
            op,
            ..
        } = *raw;
        Ok((
            Record::new(Request {
                time_ns,
                volume,
                op,
                offset_bytes,
                length_bytes,
            }),
            latency_ns,
        ))
    }

    /// The file, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The format, detected or given.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Why the format is only assumed, if it is.
    pub fn format_assumed(&self) -> Option<&str> {
        self.assumed.as_deref()
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The volumes seen so far; [`Record::volume`] is an index into them.
    pub fn volumes(&self) -> &VolumeNames {
        match &self.sampler {
            Some(sampler) => sampler.names(),
            None => self.source.volumes(),
        }
    }

    /// Whether records may carry latencies.
    pub fn has_latencies(&self) -> bool {
        self.source.has_latencies()
    }

    /// Unix time of time 0 in nanoseconds, if the trace knows it; known from the first record on.
    pub fn origin_unix_ns(&self) -> Option<i64> {
        let from_ns = self.sampler.as_ref().map_or(0, Sampler::begin_ns);
        self.origin_unix_ns?
            .checked_add(i64::try_from(from_ns).ok()?)
    }

    /// Whether the times are times, or only the order of the records.
    pub fn times(&self) -> Times {
        match self.source.clock() {
            SourceClock::Order => Times::Order,
            SourceClock::Unix | SourceClock::Relative | SourceClock::Recording => Times::Measured,
        }
    }

    /// How many lines so far were neither requests nor wrong, and were passed over.
    pub fn other_events(&self) -> u64 {
        self.source.other_events()
    }

    /// How many records so far were earlier than the one before them in the file.
    pub fn time_reversals(&self) -> u64 {
        self.reorder.reversals()
    }

    /// How many bad records were passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The first of them.
    pub fn bad_records(&self) -> &[BadRecord] {
        &self.bad
    }

    /// How far the stream has come.
    pub fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.input.bytes(),
            total_bytes: self.total_bytes,
            records: self.records,
        }
    }
}

/// The reader of a format that is not one of columns.
fn open_source(
    file: &str,
    first: First,
    format: Format,
    options: &ReadOptions,
) -> Result<Box<dyn RecordSource + Send>, TraceError> {
    let peek = first.peek.clone();
    let bytes = Cursor::new(first.peek).chain(first.rest);
    let ids = options.ids;
    Ok(match format {
        Format::Vscsi1 => Box::new(VscsiReader::new(file, bytes, VscsiVersion::V1)),
        Format::Vscsi2 => Box::new(VscsiReader::new(file, bytes, VscsiVersion::V2)),
        Format::OracleGeneral => Box::new(OracleReader::new(file, bytes, ids)),
        Format::Blkparse => Box::new(blktrace_reader(file, bytes, BlkForm::Blkparse, &peek)),
        Format::BlkEvents => Box::new(blktrace_reader(file, bytes, BlkForm::Events, &peek)),
        Format::Fio2 => Box::new(fio_reader(file, bytes, FIO2_HEADER, &peek)),
        Format::Fio3 => Box::new(fio_reader(file, bytes, FIO3_HEADER, &peek)),
        Format::Lis => Box::new(reference_reader(file, bytes, References::Lis, ids)),
        Format::LisDays => Box::new(reference_reader(file, bytes, References::LisDays, ids)),
        Format::Lirs => Box::new(reference_reader(file, bytes, References::Ids, ids)),
        Format::IbmCos => Box::new(cos_reader(file, bytes)),
        _ => {
            return Err(TraceError::UnknownFormat {
                file: file.to_owned(),
                hint: "native traces and Parquet must be uncompressed files".into(),
            });
        }
    })
}

impl std::fmt::Debug for TraceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceStream")
            .field("file", &self.file)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// The latency, unless it is [`LATENCY_UNKNOWN`].
pub(crate) fn known(latency_ns: u64) -> Option<u64> {
    (latency_ns != LATENCY_UNKNOWN).then_some(latency_ns)
}
