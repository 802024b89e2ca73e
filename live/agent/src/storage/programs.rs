//! Programs of LVM and ZFS.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{Result, in_context};
use crate::process::run;

/// Runs a program. Returns its output.
///
/// # Errors
/// It cannot be started, exceeds the time limit, or failed.
pub(super) fn said(program: &'static str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    run(command, program)?.text(program)
}

/// Runs a program whose output is JSON. Returns the output.
///
/// # Errors
/// The program failed, or its output is not JSON.
pub(super) fn report(program: &'static str, words: &[&str]) -> Result<Value> {
    let text = said(program, words)?;
    serde_json::from_str(&text).map_err(in_context(program))
}
