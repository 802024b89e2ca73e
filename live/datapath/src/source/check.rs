//! Check that an image is complete, before it becomes a volume.
//!
//! QEMU's reader returns zeroes for data beyond the end of a file, so a result of this reader alone is not trusted.
//! The tables of a qcow2 or vmdk are walked here. For other formats, each piece of data that `qemu-img map` places is
//! compared with the size of its file. `qemu-img check` runs if it supports the format.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{headers, qcow, vmdk};
use crate::error::{DatapathError, Result};
use crate::text::shell_word;

const PROGRAM: &str = "qemu-img";

/// Time limit of a check, because the operator waits for it. A longer check is aborted, and the import is refused.
const CHECK_TIME: Duration = Duration::from_secs(120);

/// Bytes of the program's messages that are kept.
const MESSAGE_BYTES: u64 = 4096;

/// Largest map that is read: more than 100,000 pieces of data. A longer one is refused.
const MAP_BYTES: u64 = 64 << 20;

/// Exit code of `qemu-img check` for clusters without a reference.
const LEAKS: i32 = 3;

/// Exit code of `qemu-img check` for an unsupported format.
const NO_CHECK: i32 = 63;

/// Piece of an image, as `qemu-img map --output=json` prints it.
#[derive(Debug, Deserialize)]
struct Piece {
    length: u64,
    data: bool,
    /// Its offset in the file, unless it is compressed.
    offset: Option<u64>,
}

/// Refuses a damaged or incomplete image.
///
/// # Errors
/// [`DatapathError::Image`] with the damage and the remedy; [`DatapathError::Program`] if the check fails.
pub(super) fn is_whole(path: &Path, file: &File, format: &str) -> Result<()> {
    let shown = path.display();
    if matches!(format, "qcow2" | "qcow") {
        let header = qcow::Header::read(file).map_err(|why| {
            DatapathError::Image(format!("{shown} is not a {format} image: {why}"))
        })?;
        let complete = header.is_complete(file);
        complete.map_err(|why| DatapathError::Image(format!("{shown} {why}")))?;
    }
    let (status, _, said) = run(path, format, &["check"])?;
    match status {
        Some(0 | LEAKS | NO_CHECK) => {}
        _ => {
            return Err(DatapathError::Image(format!(
                "{shown} is damaged: `qemu-img check -f {format} {}` reports: {}; restore it from a backup, or repair a copy with `qemu-img check -r all`",
                shell_word(&shown.to_string()),
                said_by(&said)
            )));
        }
    }
    match format {
        "qcow2" | "qcow" => Ok(()),
        "vmdk" => vmdk_is_complete(path, file),
        _ => has_its_data(path, file, format),
    }
}

/// Walks a sparse file, or all files that a descriptor names.
fn vmdk_is_complete(path: &Path, file: &File) -> Result<()> {
    let walk = |path: &Path, file: &File| {
        let complete = vmdk::is_complete(file);
        complete.map_err(|why| DatapathError::Image(format!("{} {why}", path.display())))
    };
    let extents = headers::vmdk_extents(file);
    let extents = extents.map_err(DatapathError::system("read", &path.display()))?;
    let Some(extents) = extents else {
        return walk(path, file);
    };
    for extent in extents {
        let path = path.with_file_name(&extent.name);
        let file = File::open(&path);
        let file = file.map_err(DatapathError::system("open", &path.display()))?;
        if extent.is_flat {
            ends_behind(&path, length(&path, &file)?, extent.end)?;
        } else {
            walk(&path, &file)?;
        }
    }
    Ok(())
}

/// Returns the length of a file.
fn length(path: &Path, file: &File) -> Result<u64> {
    let meta = file.metadata();
    let failed = DatapathError::system("determine the size of", &path.display());
    Ok(meta.map_err(failed)?.len())
}

/// Compares the place of each piece of data with the size of the file.
fn has_its_data(path: &Path, file: &File, format: &str) -> Result<()> {
    let shown = path.display();
    let (status, out, said) = run(path, format, &["map", "--output=json"])?;
    if status != Some(0) {
        let said = said_by(&said);
        let why = format!("cannot read {shown} as {format}: {said}");
        return Err(DatapathError::Image(why));
    }
    let pieces: Vec<Piece> = serde_json::from_slice(&out).map_err(|e| {
        let why = format!("cannot read the output of `{PROGRAM} map` for {shown}: {e}");
        DatapathError::Program(why)
    })?;
    let end = length(path, file)?;
    let data = pieces.iter().filter(|p| p.data);
    let last = data.filter_map(|p| p.offset?.checked_add(p.length)).max();
    ends_behind(path, end, last.unwrap_or(0))
}

/// Returns the error for a program of QEMU that cannot start.
pub(super) fn not_started(program: &str, format: &str, error: std::io::Error) -> DatapathError {
    match error.kind() {
        std::io::ErrorKind::NotFound => DatapathError::Program(format!(
            "images of format {format} need {program}, which is not installed (package qemu-utils)"
        )),
        _ => DatapathError::system("start", &program)(error),
    }
}

/// Joins the messages of a program of QEMU to one line.
pub(super) fn said_by(errors: &str) -> String {
    crate::reason(errors).unwrap_or_else(|| "nothing".into())
}

/// Refuses a part of an image that lies beyond the end of its file. The message is a predicate without the path.
pub(super) fn lies_inside(end: u64, what: &str, at: u64, length: u64) -> Result<()> {
    match at.checked_add(length) {
        Some(to) if to <= end => Ok(()),
        _ => Err(DatapathError::Image(format!(
            "is truncated: {what} at byte {at} has {length} bytes, but the file ends at byte {end}; copy the image again"
        ))),
    }
}

fn ends_behind(path: &Path, end: u64, last: u64) -> Result<()> {
    if last <= end {
        return Ok(());
    }
    Err(DatapathError::Image(format!(
        "{} is truncated: its data extends to byte {last}, but the file ends at byte {end}; copy the image again",
        path.display()
    )))
}

/// Runs the program on an image. Returns its exit code, its output and its error output.
fn run(path: &Path, format: &str, args: &[&str]) -> Result<(Option<i32>, Vec<u8>, String)> {
    let shown = path.display();
    let spawned = Command::new(PROGRAM)
        .arg(args[0])
        .args(["-f", format])
        .args(&args[1..])
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|e| not_started(PROGRAM, format, e))?;
    let out = child.stdout.take().expect("it is piped");
    let said = child.stderr.take().expect("it is piped");
    let out = reader(out, MAP_BYTES)?;
    let said = reader(said, MESSAGE_BYTES)?;
    let until = Instant::now() + CHECK_TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill(); // it may have ended
                let _ = child.wait();
                return Err(DatapathError::Late(format!(
                    "{PROGRAM} {} of {shown} did not end within {} s: convert it to a raw image first",
                    args[0],
                    CHECK_TIME.as_secs()
                )));
            }
        }
    };
    let out = out.join().unwrap_or_default();
    let said = said.join().unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((status.code(), out, said))
}

/// Reads all of a program's output, so the program can end, and keeps a part.
fn reader(mut from: impl Read + Send + 'static, most: u64) -> Result<JoinHandle<Vec<u8>>> {
    let thread = std::thread::Builder::new().name("terrace-check".into());
    let spawned = thread.spawn(move || {
        let mut kept = vec![];
        let _ = from.by_ref().take(most).read_to_end(&mut kept); // the exit code shows a failure
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        kept
    });
    spawned.map_err(DatapathError::system("read the output of", &PROGRAM))
}
