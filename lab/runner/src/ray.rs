//! Cells on Ray, by the package for Python. The definition of the cells goes to the package as JSON, and a line of JSON comes back for each cell.
//!
//! ```text
//!  command --ray ── definition ──▶ terrace._cells ──▶ task on a node: command --cell ──▶ content of a file
//!                ◀── lines ───────      └──▶ files of results in the directory of the command
//! ```
//!
//! A cell of a command is computed by the same command with one more option, so it has the same inputs everywhere. Its process only reads from
//! the directory.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Module of the package that runs the cells.
const MODULE: &str = "terrace._cells";
/// Address in place of Ray's: each cell is a process of this machine.
const PROCESSES: &str = "processes";

/// Options of a command whose cells can run on Ray.
#[derive(Debug, Clone, Default, Args)]
pub struct RayArg {
    /// Run missing cells on Ray: on this machine, or on the cluster at an address such as auto. Needs the Python package
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    pub ray: Option<Option<String>>,
    /// Compute this cell only and print the content of its file: the processes of --ray have this option
    #[arg(long, value_name = "JSON", hide = true, value_parser = OneCell::parse)]
    pub cell: Option<OneCell>,
}

/// Cell that a process computes for another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneCell {
    /// Name of its result.
    pub name: String,
    /// Part of the command that it belongs to, such as a scenario and a seed. The command need not read other parts.
    pub of: Value,
}

impl OneCell {
    fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

/// End of a process that has printed its cell. It is no failure ([`crate::end`]).
#[derive(Debug)]
pub struct OneCellDone;

impl std::fmt::Display for OneCellDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cell is printed")
    }
}

impl std::error::Error for OneCellDone {}

/// Line about a cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Name of its result.
    pub name: String,
    /// True if the result existed.
    pub existed: bool,
    /// Reason that it has no result.
    pub error: Option<String>,
    /// Duration of the computation, seconds.
    pub took_s: f64,
}

/// Child process that does not outlive the command.
struct Package(Child);

impl Drop for Package {
    fn drop(&mut self) {
        // It has ended, except after an error here.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the package run the cells of a definition. `on` receives a line per cell. Without an address, Ray starts on this machine.
///
/// # Errors
/// A Python without the package or without Ray; a package of another version; a directory that cannot be written; an error of `on`.
pub fn run(
    definition: &Value,
    address: Option<&str>,
    on: &mut dyn FnMut(Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let program = interpreter::program();
    check_package(&program, address)?;
    let python = program.display();
    let child = Command::new(&program)
        .args(["-m", MODULE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut package = Package(child.with_context(|| format!("cannot start {python}"))?);
    let lost = || format!("{python} -m {MODULE} ended; its message is above");
    let mut stdin = package.0.stdin.take().with_context(lost)?;
    stdin
        .write_all(definition.to_string().as_bytes())
        .with_context(lost)?;
    drop(stdin);
    let stdout = package.0.stdout.take().with_context(lost)?;
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(lost)?;
        let line: Line = serde_json::from_str(&line)
            .with_context(|| format!("unexpected line of {python} -m {MODULE}: {line}"))?;
        on(line)?;
    }
    let status = package.0.wait().with_context(lost)?;
    if !status.success() {
        bail!("--ray: the Python package stopped ({status}); its message is above");
    }
    Ok(())
}

/// Refuses a Python without the package or without Ray.
fn check_package(program: &OsStr, address: Option<&str>) -> anyhow::Result<()> {
    let python = program.display();
    let remedy = "install both in the root of a clone (pip install ./python ray), or name an interpreter that has them in TERRACE_PYTHON";
    let imports = match address {
        Some(PROCESSES) => "import terrace._cells",
        _ => "import terrace._cells, ray",
    };
    let probe = Command::new(program)
        .args(["-c", imports])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("--ray: cannot start {python}: install Python, then {remedy}"))?;
    if !probe.status.success() {
        let said = String::from_utf8_lossy(&probe.stderr);
        let why = said.trim().lines().last().unwrap_or("no message");
        bail!("--ray: {python} cannot import the packages terrace and ray ({why}); {remedy}");
    }
    Ok(())
}
