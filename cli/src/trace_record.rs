//! `terrace trace record`: recording of the requests of a served volume as a native trace.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use datapath::control_server::ControlAnswer;
use datapath::stages::record::{Command, RecordingStatus};
use units::Nanos;

use crate::live::{ArrayArg, Go, Stop, absolute, message, unexpected};

/// `terrace trace record`
#[derive(Debug, Args)]
pub struct Record {
    #[command(flatten)]
    array: ArrayArg,
    /// The volume; it must be served
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// File to write (.trc); appears when the recording ends
    #[arg(long, value_name = "FILE", required_unless_present = "end")]
    out: Option<PathBuf>,
    /// Length of the recording; until Ctrl-C by default
    #[arg(long = "for", value_name = "TIME")]
    lasting: Option<Nanos>,
    /// End the recording of another command that did not end it
    #[arg(long, conflicts_with_all = ["out", "lasting"])]
    end: bool,
}

/// Checks that a path can be the target of a recording. Returns the absolute path.
pub fn target(path: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        path.extension().is_some_and(|e| e == "trc"),
        "{}: recordings are native traces: name it .trc",
        path.display()
    );
    let path = absolute(path)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    ensure!(
        parent.is_dir(),
        "{}: the directory does not exist",
        parent.display()
    );
    Ok(path)
}

/// Prints a summary of the recording.
pub fn say(recorded: &RecordingStatus) {
    let RecordingStatus {
        path,
        requests,
        lost,
    } = recorded;
    message(&format!("{}: {requests} requests recorded", path.display()));
    if *lost > 0 {
        message(&format!(
            "warning: {lost} more requests did not fit: the recording is incomplete"
        ));
    }
}

/// Runs `terrace trace record`.
pub fn run(record: &Record) -> anyhow::Result<ExitCode> {
    let volume = record.volume.clone();
    if let Some(out) = &record.out {
        let stop = Stop::listen()?;
        let begin = Command::Record {
            volume: volume.clone(),
            path: target(out)?,
        };
        record.array.order(begin.into())?;
        let time = record.lasting.map(|t| Duration::from_nanos(t.0));
        // Without a length, the wait repeats after each day.
        while stop.sleep(time.unwrap_or(Duration::from_secs(86_400))) == Go::On && time.is_none() {}
    }
    match record.array.ask(Command::RecordEnd { volume }.into())? {
        ControlAnswer::Recorded(recorded) => say(&recorded),
        _ => return Err(unexpected()),
    }
    Ok(ExitCode::SUCCESS)
}
