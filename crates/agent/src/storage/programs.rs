//! Programs of LVM and ZFS.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::run;

/// Runs a program; its output.
///
/// # Errors
/// It cannot be run, has not ended in time, or failed.
pub(super) fn said(program: &'static str, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    let said = run(command, program)?;
    match said.success {
        true => Ok(said.out),
        false => Err(format!("{program}: {}", said.error("no reason given"))),
    }
}

/// Runs a program; its output, which is JSON.
///
/// # Errors
/// It failed, or printed something else.
pub(super) fn report(program: &'static str, words: &[&str]) -> Result<Value, String> {
    let text = said(program, words)?;
    serde_json::from_str(&text).map_err(|e| format!("{program}: {e}"))
}
