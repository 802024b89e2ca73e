//! `terrace trace info`: content of trace files and of files with measurements of load.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use trace::measurements::{LoadInfo, Measurements};
use trace::{ReadOptions, TraceError, TraceInfo, TraceStream};

use crate::progress::Bar;
use crate::trace_cmd::{Output, message, not_a_trace, warn_of_assumed};
use crate::{trace_load_table, trace_table};

/// Recognized content of a file.
#[derive(Serialize)]
#[serde(untagged)]
enum FileContent {
    Trace(Box<TraceInfo>),
    Load(LoadInfo),
}

/// Runs `terrace trace info`.
pub fn run(files: &[PathBuf], output: Output, options: &ReadOptions) -> anyhow::Result<ExitCode> {
    let mut shown = Vec::new();
    let mut failed = false;
    for file in files {
        match info_of(file, options) {
            Ok(info) => shown.push(info),
            // The other files are shown despite one bad file.
            Err(error) => {
                message(format_args!("error: {:#}", not_a_trace(file, error)));
                failed = true;
            }
        }
    }
    let mut out = io::stdout().lock();
    match output {
        Output::Json if files.len() == 1 => {
            if let Some(info) = shown.first() {
                writeln!(out, "{}", json(info)?)?;
            }
        }
        Output::Json => writeln!(out, "{}", json(&shown)?)?,
        Output::Csv => csv(&mut out, &shown)?,
        Output::Table => table(&mut out, &shown, files.len())?,
    }
    out.flush()?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn split(shown: &[FileContent]) -> (Vec<&TraceInfo>, Vec<&LoadInfo>) {
    let mut split = (Vec::new(), Vec::new());
    for one in shown {
        match one {
            FileContent::Trace(info) => split.0.push(&**info),
            FileContent::Load(load) => split.1.push(load),
        }
    }
    split
}

fn csv(out: &mut impl Write, shown: &[FileContent]) -> anyhow::Result<()> {
    let (traces, loads) = split(shown);
    anyhow::ensure!(
        traces.is_empty() || loads.is_empty(),
        "traces and measurements of load have different columns: show them with separate commands, or with -o json"
    );
    if loads.is_empty() {
        trace_table::csv(out, &traces)?;
    } else {
        trace_load_table::csv(out, &loads)?;
    }
    Ok(())
}

fn table(out: &mut impl Write, shown: &[FileContent], files: usize) -> io::Result<()> {
    let (traces, loads) = split(shown);
    match traces.as_slice() {
        [] => {}
        [only] if files == 1 => trace_table::one(out, only)?,
        several => trace_table::many(out, several)?,
    }
    for (i, load) in loads.iter().enumerate() {
        if i > 0 || !traces.is_empty() {
            writeln!(out)?;
        }
        trace_load_table::one(out, load)?;
    }
    Ok(())
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    serde_json::to_string_pretty(value).context("cannot write JSON")
}

fn info_of(file: &Path, options: &ReadOptions) -> Result<FileContent, TraceError> {
    // If a format is named, the file is a trace.
    if options.format.is_none() && options.columns.is_none() && Measurements::recognized(file)? {
        let load = Measurements::read(file)?.info(&file.display().to_string());
        return Ok(FileContent::Load(load));
    }
    let mut stream = TraceStream::open(file, options)?;
    let mut bar = Bar::new(&file.file_name().unwrap_or_default().to_string_lossy());
    let info = TraceInfo::collect(&mut stream, &mut |progress| bar.update(progress))?;
    drop(bar);
    if let Some(note) = &info.format_note {
        warn_of_assumed(&info.file, info.format, note);
    }
    for bad in &info.bad_records {
        message(format_args!("skipped: {bad}"));
    }
    let unshown = info.skipped_records - info.bad_records.len() as u64;
    if unshown > 0 {
        message(format_args!("skipped: {}: {unshown} more", info.file));
    }
    Ok(FileContent::Trace(Box::new(info)))
}
