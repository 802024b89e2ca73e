//! Writing a trace in another format: native, or our capture CSV.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use model::Op;

use crate::atomic::AtomicFile;
use crate::error::TraceError;
use crate::formats::{CAPTURE_HEADER, Format};
use crate::info::PROGRESS_RECORDS;
use crate::load::LoadedTrace;
use crate::native::{Latencies, NativeFile, NativeOptions};
use crate::record::Record;
use crate::source::Times;
use crate::stream::{Progress, TraceStream, known};

const ZSTD_LEVEL: i32 = 3;
const BUFFER_BYTES: usize = 256 << 10;

/// What a conversion wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionSummary {
    /// Number of records.
    pub records: u64,
    /// Number of volumes.
    pub volumes: usize,
}

#[derive(Clone, Copy)]
enum Output {
    Native,
    Csv,
    CsvZstd,
    Parquet,
}

fn output_of(path: &Path) -> Result<Output, TraceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".trc") {
        Ok(Output::Native)
    } else if name.ends_with(".csv") {
        Ok(Output::Csv)
    } else if name.ends_with(".csv.zst") {
        Ok(Output::CsvZstd)
    } else if name.ends_with(".parquet") {
        Ok(Output::Parquet)
    } else {
        Err(TraceError::OutputFormat {
            path: path.to_owned(),
        })
    }
}

/// Writes the rest of a stream to `path`, in the format that its extension names: `.trc`, `.csv`, `.csv.zst` or
/// `.parquet`. The file appears when it is complete. The capture CSV does not keep the time of day at which a trace began.
///
/// # Errors
/// [`TraceError::AssumedFormat`] if the stream's format is only a guess: what is converted looks certain ever after.
/// Else those of the stream, or of writing.
pub fn convert(
    stream: &mut TraceStream,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<ConversionSummary, TraceError> {
    let output = output_of(path)?;
    let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    if same(Path::new(stream.file()), path) {
        return Err(TraceError::Columns {
            file: stream.file().to_owned(),
            reason: "is input and output, which would lose records that are left out: write to another file"
                .into(),
        });
    }
    if let Some(why) = stream.format_assumed() {
        // The columns of a CSV are assumed, and the reason says how to name them.
        if stream.format() == Format::Csv {
            return Err(TraceError::Columns {
                file: stream.file().to_owned(),
                reason: why.to_owned(),
            });
        }
        let (file, format) = (stream.file().to_owned(), stream.format().name());
        return Err(TraceError::AssumedFormat {
            file,
            format,
            why: why.to_owned(),
        });
    }
    if stream.times() == Times::Order && matches!(output, Output::Csv | Output::CsvZstd) {
        return Err(TraceError::Columns {
            file: stream.file().to_owned(),
            reason: "the trace has no times, which a CSV requires: convert it to .trc".into(),
        });
    }
    match output {
        Output::Native => to_native(stream, path, progress),
        Output::Parquet => to_parquet(stream, path, progress),
        Output::Csv => {
            let file = AtomicFile::create(path)?;
            let out = BufWriter::with_capacity(BUFFER_BYTES, file.file());
            let (converted, mut out) = to_csv(stream, out, path, progress)?;
            out.flush().map_err(TraceError::io("write", path))?;
            drop(out);
            file.commit()?;
            Ok(converted)
        }
        Output::CsvZstd => {
            let file = AtomicFile::create(path)?;
            let fail = || TraceError::io("write", file.target());
            let encoder: zstd::stream::write::Encoder<'_, &File> =
                zstd::stream::write::Encoder::new(file.file(), ZSTD_LEVEL).map_err(fail())?;
            let out = BufWriter::with_capacity(BUFFER_BYTES, encoder);
            let (converted, out) = to_csv(stream, out, path, progress)?;
            let encoder = out.into_inner().map_err(|e| fail()(e.into_error()))?;
            encoder.finish().map_err(fail())?;
            file.commit()?;
            Ok(converted)
        }
    }
}

/// Writes a trace in memory to a native file, which appears when it is complete. `progress` is called now and then with the number of requests;
/// an error ends the writing.
///
/// # Errors
/// Those of writing and of `progress`.
pub fn save<E: From<TraceError>>(
    trace: &LoadedTrace,
    path: &Path,
    progress: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let latencies = match trace.latencies() {
        Some(_) => Latencies::Stored,
        None => Latencies::Absent,
    };
    let options = NativeOptions {
        origin_unix_ns: trace.origin_unix_ns,
        times: trace.times,
    };
    let mut out = NativeFile::create(path, options, latencies)?;
    for (i, record) in trace.records().iter().enumerate() {
        out.push(*record, trace.latencies().and_then(|l| known(l[i])))?;
        if (i as u64 + 1).is_multiple_of(PROGRESS_RECORDS) {
            progress(i as u64 + 1)?;
        }
    }
    out.finish(trace.volumes.iter().map(|v| v.name.as_str()))?;
    Ok(())
}

fn to_native(
    stream: &mut TraceStream,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<ConversionSummary, TraceError> {
    let latencies = if stream.has_latencies() {
        Latencies::Stored
    } else {
        Latencies::Absent
    };
    // The origin is known from the first record on.
    let mut next = stream.next_record()?;
    let options = NativeOptions {
        origin_unix_ns: stream.origin_unix_ns(),
        times: stream.times(),
    };
    let mut out = NativeFile::create(path, options, latencies)?;
    while let Some((record, latency_ns)) = next {
        out.push(record, known(latency_ns))?;
        tick(stream, progress);
        next = stream.next_record()?;
    }
    let summary = out.finish(stream.volumes().iter())?;
    Ok(ConversionSummary {
        records: summary.records,
        volumes: summary.volumes.len(),
    })
}

fn to_parquet(
    stream: &mut TraceStream,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<ConversionSummary, TraceError> {
    let file = AtomicFile::create(path)?;
    // The origin is known from the first record on.
    let mut next = stream.next_record()?;
    let (times, origin) = (stream.times(), stream.origin_unix_ns());
    let mut out = crate::columnar::ParquetWriter::new(path, file.file(), times, origin)?;
    while let Some((record, latency_ns)) = next {
        out.push(&record, stream.volumes(), known(latency_ns))?;
        tick(stream, progress);
        next = stream.next_record()?;
    }
    let records = out.finish()?;
    file.commit()?;
    Ok(ConversionSummary {
        records,
        volumes: stream.volumes().len(),
    })
}

fn to_csv<W: Write>(
    stream: &mut TraceStream,
    out: W,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(ConversionSummary, W), TraceError> {
    let mut out = CaptureWriter::new(out).map_err(TraceError::io("write", path))?;
    let mut records = 0;
    while let Some((record, latency_ns)) = stream.next_record()? {
        let volume = stream.volumes().get(record.volume()).unwrap_or_default();
        out.push(&record, volume, known(latency_ns))
            .map_err(TraceError::io("write", path))?;
        records += 1;
        tick(stream, progress);
    }
    Ok((
        ConversionSummary {
            records,
            volumes: stream.volumes().len(),
        },
        out.into_inner(),
    ))
}

fn tick(stream: &TraceStream, progress: &mut dyn FnMut(Progress)) {
    if stream.progress().records.is_multiple_of(PROGRESS_RECORDS) {
        progress(stream.progress());
    }
}

/// Writes our capture CSV: `time_ns,volume,op,offset_bytes,length_bytes,latency_ns`; the kind is a letter (R, W, D
/// for trim, F for flush), an unknown latency is empty, and a volume's name is quoted if it has to be.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    out: W,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// What the writer fails with.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{CAPTURE_HEADER}")?;
        Ok(Self { out })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// What the writer fails with.
    pub fn push(
        &mut self,
        record: &Record,
        volume: &str,
        latency_ns: Option<u64>,
    ) -> io::Result<()> {
        let op = match record.op() {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Trim => 'D',
            Op::Flush => 'F',
        };
        let Record {
            time_ns,
            offset_bytes,
            length_bytes,
            ..
        } = record;
        write!(self.out, "{time_ns},")?;
        if volume.contains([',', '"']) {
            write!(self.out, "\"{}\"", volume.replace('"', "\"\""))?;
        } else {
            self.out.write_all(volume.as_bytes())?;
        }
        write!(self.out, ",{op},{offset_bytes},{length_bytes},")?;
        match latency_ns {
            Some(ns) => writeln!(self.out, "{ns}"),
            None => writeln!(self.out),
        }
    }

    /// The writer; what it buffers is not flushed.
    pub fn into_inner(self) -> W {
        self.out
    }
}
