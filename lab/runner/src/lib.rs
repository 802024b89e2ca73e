//! Shared parts of the programs: files of a scenario, simulations on all cores, results on disk, progress on a terminal, start and end of a
//! program.
//!
//! # Limits
//!
//! It contains no logic of a simulation and no output of a command.

pub mod cells;
pub mod inputs;
pub mod jobs;
mod numbers;
pub mod progress;
pub mod ray;
pub mod strategies;
pub mod sweeps;

pub use numbers::with_expected_number;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Ends a program: prints its error, except if the reader of its output has closed the pipe.
pub fn end(done: anyhow::Result<ExitCode>) -> ExitCode {
    let enough = |error: &anyhow::Error| {
        let io = error.downcast_ref::<io::Error>();
        io.is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    match done {
        Ok(code) => code,
        Err(error) if enough(&error) || error.is::<ray::OneCellDone>() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
