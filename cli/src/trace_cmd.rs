//! `terrace trace`: inspection, conversion, sampling, generation and recording of traces.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{
    ColumnSpec, Delimiter, Format, GenerateOptions, GeneratedVolume, Generator, HeaderRow,
    IdPlacement, Ordering, ReadOptions, SkipBad, TraceError, TraceStream, convert,
};
use units::{Bytes, Nanos};

use crate::file_kind::{FileKind, with_kind};
use crate::progress::Bar;
use crate::sim_cmd;
use crate::{mrc_cmd, trace_info, trace_record, trace_sample};
use runner::inputs;

/// `terrace trace …`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show the content of traces: requests, sizes, rates, footprint, volumes; also measurements of load
    Info {
        /// Trace files of any known format; .gz, .xz and .zst are read as they are
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Form of the output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        reading: Reading,
    },
    /// Convert a trace to the native format (OUT.trc), to CSV (OUT.csv, OUT.csv.zst) or to Parquet (OUT.parquet)
    Convert {
        /// Trace file of any known format
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// File to write; its extension names the format; appears when it is complete
        #[arg(value_name = "OUT")]
        output: PathBuf,
        #[command(flatten)]
        reading: Reading,
    },
    /// Write a part of a trace: by place (spatially hashed), volume, time, or every n-th request
    Sample(trace_sample::Sample),
    /// Generate a native trace from closed-loop clients with a constant latency
    Generate {
        /// File to write (.trc); appears when it is complete
        #[arg(value_name = "OUT")]
        output: PathBuf,
        #[command(flatten)]
        what: GenerateArgs,
    },
    /// Compute miss-ratio curves of LRU caches: exactly, by samples and by working sets, with their errors
    Mrc(mrc_cmd::Mrc),
    /// Record the requests of a served volume, with latencies, as a native trace
    Record(trace_record::Record),
}

/// What `generate` makes.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Workloads of paper 0's Table V, one volume each; `terrace sim presets` lists them
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        required_unless_present = "scenario"
    )]
    preset: Vec<String>,
    /// All clients of this scenario on its volumes instead
    #[arg(long, value_name = "SCENARIO", conflicts_with_all = ["preset", "volume_size"])]
    scenario: Option<PathBuf>,
    /// Size of each volume
    #[arg(long, value_name = "SIZE", default_value = "100 GiB")]
    volume_size: Bytes,
    /// Length of the trace
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Nanos,
    /// Response time of every request
    #[arg(long, value_name = "TIME", default_value = "100us")]
    latency: Nanos,
    /// Seed
    #[arg(long, default_value = "1")]
    seed: u64,
}

/// Form of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs; the layout names its version
    Json,
    /// For spreadsheets
    Csv,
}

/// How traces are read.
#[derive(Debug, Args)]
pub struct Reading {
    /// Format of the input instead of a detected one: native, capture-csv, csv, msr, vscsi1, vscsi2, disksim,
    /// ssdsim, mqsim, ascii-bytes-ms, diskmon, hadoop-csv, spc, oraclegeneral, blkparse, blk-events, alibaba,
    /// tencent, systor, fiu, fio2, fio3, lis, lis-days, lirs, ibm-cos or parquet
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Columns of a CSV: time, op, offset and length, optionally volume and latency, each by number (from 1) or name,
    /// with its unit (s, ms, us, ns, filetime or date; bytes, sectors, kib, pages or a number of bytes). For op: words,
    /// read1, read0, scsi, nvme, or values with their kinds (read, write, trim, flush, skip); op=read if all requests
    /// are reads. Example: time=1:us,op=2,offset=3:sectors,length=4:bytes with op=2:read=28|a8,write=2a in place
    /// of op=2 if the second column has SCSI opcodes in hexadecimal
    #[arg(long, value_name = "MAPPING")]
    columns: Option<ColumnSpec>,
    /// Delimiter of a CSV: one character, tab, or space (any run of blanks)
    #[arg(long, value_name = "CHAR")]
    delimiter: Option<Delimiter>,
    /// First row of a CSV: column names or data
    #[arg(long, value_enum, default_value = "auto")]
    header: Header,
    /// Address of the ids of lis, lirs and oraclegeneral, which have no addresses: the size of a block (the id is a
    /// block number), or "appearance" (the id is a name; each gets a new range). Default: 512 B for lis, else 4 KiB
    #[arg(long, value_name = "SIZE")]
    ids: Option<IdPlacement>,
    /// Skip up to this number of bad records; they are counted, and the first ones are shown
    #[arg(long, value_name = "N", default_value = "0")]
    skip_bad: u64,
    /// Sort the whole trace by time, in memory (small reversals are repaired without it)
    #[arg(long)]
    sort: bool,
}

/// `--header`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// Detect from the first row
    Auto,
    /// It has
    Yes,
    /// It has data
    No,
}

impl Reading {
    /// Converts the arguments to the options of the library.
    pub fn options(&self) -> ReadOptions {
        let header = match self.header {
            Header::Auto => HeaderRow::Auto,
            Header::Yes => HeaderRow::Present,
            Header::No => HeaderRow::Absent,
        };
        // A delimiter or a header option alone is enough to assume a CSV.
        let says_csv = self.delimiter.is_some() || header != HeaderRow::Auto;
        let columns = self
            .columns
            .clone()
            .or_else(|| says_csv.then(ColumnSpec::default));
        ReadOptions {
            format: self.format,
            columns: columns.map(|mut spec| {
                (spec.delimiter, spec.header) = (self.delimiter, header);
                spec
            }),
            ids: self.ids,
            skip_bad: SkipBad {
                limit: self.skip_bad,
            },
            ordering: if self.sort {
                Ordering::Sort
            } else {
                Ordering::Repair
            },
            ..ReadOptions::default()
        }
    }
}

/// Runs `terrace trace …`.
pub fn run(command: TraceCommand) -> anyhow::Result<ExitCode> {
    match command {
        TraceCommand::Info {
            files,
            output,
            reading,
        } => trace_info::run(&files, output, &reading.options()),
        TraceCommand::Convert {
            input,
            output,
            reading,
        } => convert_one(&input, &output, &reading.options()),
        TraceCommand::Sample(sample) => trace_sample::run(&sample),
        TraceCommand::Generate { output, what } => generate_one(&output, &what),
        TraceCommand::Mrc(mrc) => mrc_cmd::run(&mrc),
        TraceCommand::Record(record) => trace_record::run(&record),
    }
}

/// Opens a trace.
pub fn open(path: &Path, options: &ReadOptions) -> anyhow::Result<TraceStream> {
    TraceStream::open(path, options).map_err(|error| not_a_trace(path, error))
}

/// Returns the error; if the file is not a trace, with the command for its kind.
pub fn not_a_trace(path: &Path, error: TraceError) -> anyhow::Error {
    match error {
        TraceError::UnknownFormat { .. } => with_kind(path, &[FileKind::Trace], error.into()),
        _ => error.into(),
    }
}

/// Warns that a format or its columns are only assumed.
pub fn warn_of_assumed(file: &str, format: Format, why: &str) {
    // For columns, the reason explains how to name them.
    if format == Format::Csv {
        message(format_args!("warning: {file}: {why}"));
    } else {
        message(format_args!(
            "warning: {file}: the format is assumed to be {format}: {why}; give --format to be certain"
        ));
    }
}

/// Prints a message to standard error.
pub fn message(text: std::fmt::Arguments<'_>) {
    // A message that cannot be printed must not stop the command.
    let _ = writeln!(io::stderr(), "{text}");
}

fn convert_one(input: &Path, output: &Path, options: &ReadOptions) -> anyhow::Result<ExitCode> {
    let mut stream = open(input, options)?;
    let mut bar = Bar::new(&input.file_name().unwrap_or_default().to_string_lossy());
    let converted = convert(&mut stream, output, &mut |progress| bar.update(progress))?;
    drop(bar);
    for bad in stream.bad_records() {
        message(format_args!("skipped: {bad}"));
    }
    if stream.other_events() > 0 {
        message(format_args!(
            "{}: skipped {} events that are not requests",
            input.display(),
            stream.other_events()
        ));
    }
    if stream.skipped() > 0 || stream.time_reversals() > 0 || io::stderr().is_terminal() {
        message(format_args!(
            "{}: wrote {} requests of {} volumes ({} bad records skipped, {} time reversals repaired)",
            output.display(),
            converted.records,
            converted.volumes,
            stream.skipped(),
            stream.time_reversals()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn generate_one(output: &Path, what: &GenerateArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        output.extension().is_some_and(|e| e == "trc"),
        "{}: generate writes native traces: name it .trc",
        output.display()
    );
    let volumes = generated_volumes(what)?;
    let options = GenerateOptions {
        duration: what.duration,
        latency: what.latency,
        seed: what.seed,
    };
    let native = NativeOptions::default();
    let mut out = NativeFile::create(output, native, Latencies::Absent)?;
    let mut records = 0u64;
    for record in Generator::new(&volumes, options)? {
        out.push(record, None)?;
        records += 1;
    }
    out.finish(volumes.iter().map(|v| v.name.as_str()))?;
    message(format_args!(
        "{}: wrote {records} requests of {} volumes",
        output.display(),
        volumes.len()
    ));
    Ok(ExitCode::SUCCESS)
}

fn generated_volumes(what: &GenerateArgs) -> anyhow::Result<Vec<GeneratedVolume>> {
    let Some(path) = &what.scenario else {
        let volume =
            |name: &String| GeneratedVolume::of_preset(name.clone(), name, what.volume_size);
        return Ok(what.preset.iter().map(volume).collect());
    };
    let file = sim_cmd::read_scenario(path)?;
    let model = inputs::load(path, &file)?.model;
    anyhow::ensure!(
        !model.clients.is_empty(),
        "{}: the scenario has no clients",
        path.display()
    );
    let mut volumes: Vec<GeneratedVolume> = Vec::new();
    for client in &model.clients {
        let volume = &model.volumes[client.volume.index()];
        anyhow::ensure!(
            volumes.iter().all(|v| v.name != volume.name),
            "{}: volume \"{}\" has several clients: generate takes one per volume",
            path.display(),
            volume.name
        );
        volumes.push(GeneratedVolume {
            name: volume.name.clone(),
            size: volume.size,
            client: client.spec.clone(),
        });
    }
    Ok(volumes)
}
