//! `terrace trace`: what traces are, and converting them.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use trace::{
    ColumnSpec, Delimiter, Format, HeaderRow, Ordering, ReadOptions, SkipBad, TraceInfo,
    TraceStream, convert,
};

use crate::progress::Bar;
use crate::trace_table;

/// `terrace trace …`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show what is in traces: requests, sizes, rates, footprint, volumes
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
    /// Convert a trace to the native format (OUT.trc) or to CSV (OUT.csv, OUT.csv.zst)
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
}

/// Form of the output of `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// One object for one file, an array for several
    Json,
    /// One row per file
    Csv,
}

/// How traces are read.
#[derive(Debug, Args)]
pub struct Reading {
    /// Format of the input instead of a detected one: native, capture-csv, csv, msr, vscsi1, vscsi2, disksim,
    /// ssdsim, mqsim, ascii-bytes-ms, diskmon or hadoop-csv
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
    /// Which column of a CSV is what: time, op, offset and length, and possibly volume and latency, each by number
    /// (from 1) or name, with its unit (s, ms, us, ns, filetime; bytes, sectors, kib, pages or a number of bytes;
    /// for op: words, read1, read0 or bit0). Example: time=1:s,volume=2,op=3,offset=4:sectors,length=5:bytes
    #[arg(long, value_name = "MAPPING", value_parser = parse_columns)]
    columns: Option<ColumnSpec>,
    /// What separates the columns of a CSV: one character, tab, or space (any run of blanks)
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    delimiter: Option<Delimiter>,
    /// Whether the first row of a CSV has the names of its columns
    #[arg(long, value_enum, default_value = "auto")]
    header: Header,
    /// Pass over up to this many bad records; they are counted and the first ones are shown
    #[arg(long, value_name = "N", default_value = "0")]
    skip_bad: u64,
    /// Sort the whole trace by time, in memory (small reversals are repaired without it)
    #[arg(long)]
    sort: bool,
}

/// `--header`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// Look at the first row
    Auto,
    /// It has
    Yes,
    /// It has not
    No,
}

fn parse_format(text: &str) -> Result<Format, String> {
    text.parse()
}

fn parse_columns(text: &str) -> Result<ColumnSpec, String> {
    text.parse()
}

fn parse_delimiter(text: &str) -> Result<Delimiter, String> {
    text.parse()
}

impl Reading {
    fn options(&self) -> ReadOptions {
        let header = match self.header {
            Header::Auto => HeaderRow::Auto,
            Header::Yes => HeaderRow::Present,
            Header::No => HeaderRow::Absent,
        };
        // A delimiter or a header alone already says that this is a CSV.
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
        } => info(&files, output, &reading.options()),
        TraceCommand::Convert {
            input,
            output,
            reading,
        } => convert_one(&input, &output, &reading.options()),
    }
}

fn message(text: std::fmt::Arguments<'_>) {
    // A message that cannot be shown is no reason to stop.
    let _ = writeln!(io::stderr(), "{text}");
}

fn info(files: &[PathBuf], output: Output, options: &ReadOptions) -> anyhow::Result<ExitCode> {
    let mut infos = Vec::new();
    let mut failed = false;
    for file in files {
        match info_of(file, options) {
            Ok(info) => infos.push(info),
            // One bad file does not hide what the others are.
            Err(error) => {
                message(format_args!("error: {:#}", anyhow::Error::new(error)));
                failed = true;
            }
        }
    }
    let mut out = io::stdout().lock();
    match output {
        Output::Json if files.len() == 1 => {
            if let Some(info) = infos.first() {
                writeln!(out, "{}", json(info)?)?;
            }
        }
        Output::Json => writeln!(out, "{}", json(&infos)?)?,
        Output::Csv => trace_table::csv(&mut out, &infos)?,
        Output::Table if files.len() == 1 => {
            if let Some(info) = infos.first() {
                trace_table::one(&mut out, info)?;
            }
        }
        Output::Table if infos.is_empty() => {}
        Output::Table => trace_table::many(&mut out, &infos)?,
    }
    out.flush()?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_json::to_string_pretty(value).context("cannot write JSON")
}

fn info_of(file: &Path, options: &ReadOptions) -> Result<TraceInfo, trace::TraceError> {
    let mut stream = TraceStream::open(file, options)?;
    let mut bar = Bar::new(&file.file_name().unwrap_or_default().to_string_lossy());
    let info = TraceInfo::collect(&mut stream, &mut |progress| bar.update(progress))?;
    drop(bar);
    if let Some(note) = &info.format_note {
        message(format_args!(
            "warning: {}: the format is assumed to be {}: {note}; --format says it for sure",
            info.file, info.format
        ));
    }
    for bad in &info.bad_records {
        message(format_args!("skipped: {bad}"));
    }
    let unshown = info.skipped_records - info.bad_records.len() as u64;
    if unshown > 0 {
        message(format_args!("skipped: {}: {unshown} more", info.file));
    }
    Ok(info)
}

fn convert_one(input: &Path, output: &Path, options: &ReadOptions) -> anyhow::Result<ExitCode> {
    let mut stream = TraceStream::open(input, options)?;
    let mut bar = Bar::new(&input.file_name().unwrap_or_default().to_string_lossy());
    let converted = convert(&mut stream, output, &mut |progress| bar.update(progress))?;
    drop(bar);
    for bad in stream.bad_records() {
        message(format_args!("skipped: {bad}"));
    }
    if stream.skipped() > 0 || stream.time_reversals() > 0 || io::stderr().is_terminal() {
        message(format_args!(
            "{}: {} requests of {} volumes written ({} bad records skipped, {} time reversals repaired)",
            output.display(),
            converted.records,
            converted.volumes,
            stream.skipped(),
            stream.time_reversals()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
