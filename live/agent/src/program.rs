//! Program of a QEMU process. It is opened through the process, because an upgrade may have replaced the file at its
//! path.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use vmhost::builds::{Build, BuildId, CopyInitiator};

use crate::error::Result;
use crate::qualify::record;

/// Opens the program of a process.
///
/// # Errors
/// The process has ended, or the agent may not read it.
pub(crate) fn of(pid: i32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/exe"))
}

/// Returns the build-id of a program; `None` if the program has none.
pub(crate) fn build_id(program: &File) -> Option<BuildId> {
    BuildId::of_elf(|at, length| {
        let mut bytes = vec![0; length];
        program.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    })
}

/// Adds the record of `terrace host qualify` to a build. The record is read each time, because an operator may qualify
/// a build while the agent runs.
///
/// # Errors
/// The record exists but cannot be read. It may report lost writes.
pub(crate) fn with_record(build: &Build, by: CopyInitiator) -> Result<Build> {
    let qualified = match &build.id {
        Some(id) => record::qualified(id, by)?,
        None => None,
    };
    Ok(Build {
        qualified,
        ..build.clone()
    })
}
