//! `terrace reproduce ops-isolation`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use reproduce::ops_isolation::{Cell, Outcome, Setup, document};
use runner::jobs;

use crate::{Output, check_report, hand_over};

/// What to run and where the results go.
#[derive(Debug, Args)]
pub struct OpsIsolationArgs {
    /// Seeds, at least 2
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=1000))]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Two seeds, smaller and shorter: a look, not a result
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Write a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &OpsIsolationArgs) -> anyhow::Result<ExitCode> {
    let seeds = if args.quick { 2 } else { args.seeds };
    let setup = Setup::new(seeds, args.seed, args.quick)?;
    check_report(args.report.as_deref())?;
    let started = Instant::now();
    let cells = setup.cells();
    let results = jobs::side_by_side(&cells, |cell: &Cell| {
        cell.run().with_context(|| format!("cell {}", cell.name()))
    });
    let results = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, &results);
    let seconds = started.elapsed().as_secs_f64();
    let _ = writeln!(io::stderr(), "{} runs, {seconds:.1} s", cells.len());
    hand_over(
        &outcome,
        document(&outcome),
        args.output,
        args.report.as_deref(),
    )
}
