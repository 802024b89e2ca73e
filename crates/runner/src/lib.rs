//! Shared parts of the programs: files of a scenario, simulations on all cores, results on disk, progress on a terminal, start and end of a
//! program.
//!
//! # What it is not
//!
//! No logic of a simulation, and nothing that knows what a command prints.

pub mod cells;
pub mod inputs;
pub mod jobs;
mod numbers;
pub mod progress;
pub mod sweeps;

pub use numbers::with_expected_number;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Ends a program: an error is said, unless it is that whoever reads its output has seen enough.
pub fn end(done: anyhow::Result<ExitCode>) -> ExitCode {
    let enough = |error: &anyhow::Error| {
        let io = error.downcast_ref::<io::Error>();
        io.is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    match done {
        Ok(code) => code,
        Err(error) if enough(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
