//! `terrace reproduce …`: starts a separate program, because operators of an array do not need it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow};
use clap::Args;

/// Name of the program, which is in the directory of this one or on the path.
const PROGRAM: &str = "terrace-reproduce";

/// `terrace reproduce …`
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// The experiment and its options; --help lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "EXPERIMENT"
    )]
    args: Vec<OsString>,
}

/// Replaces this process by the program.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.with_file_name(PROGRAM);
    let program = match beside.exists() {
        true => beside,
        false => PROGRAM.into(),
    };
    let error = Command::new(program).args(&args.args).exec();
    Err(anyhow!(
        "cannot run {PROGRAM}, which is neither in the directory of {} nor on the PATH ({error}): build it with `cargo build --release -p {PROGRAM}`",
        own.display()
    ))
}
