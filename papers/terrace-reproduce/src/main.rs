//! The program behind `terrace reproduce`.

use std::process::ExitCode;

fn main() -> ExitCode {
    terrace_reproduce::run_with(std::env::args_os())
}
