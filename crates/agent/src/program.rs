//! Program of a QEMU process, opened through the process, so that an upgrade of the file does not change the result.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use vmhost::builds::{Build, BuildId, By};

use crate::qualify::record;

/// Opens the program of a process.
///
/// # Errors
/// The process has ended, or the agent may not look at it.
pub(crate) fn of(pid: i32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/exe"))
}

/// Returns the build-id of a program; none if it has none.
pub(crate) fn build_id(program: &File) -> Option<BuildId> {
    BuildId::of_elf(|at, length| {
        let mut bytes = vec![0; length];
        program.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    })
}

/// Adds to a build what `terrace host qualify` has recorded about it. It is read each time, because an operator may qualify a build
/// while the agent runs.
///
/// # Errors
/// There is a record, and it cannot be read: it may tell of lost writes.
pub(crate) fn with_record(build: &Build, by: By) -> Result<Build, String> {
    let qualified = match &build.id {
        Some(id) => record::qualified(id, by)?,
        None => None,
    };
    Ok(Build {
        qualified,
        ..build.clone()
    })
}
