//! `terrace reproduce ops-isolation`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reproduce::ops_isolation::{Cell, Outcome, Setup, document};
use serde_json::json;

use crate::{KeepArg, ResultsArg};

/// Arguments of `terrace reproduce ops-isolation`.
#[derive(Debug, Args)]
pub struct OpsIsolationArgs {
    /// Number of seeds, at least 2
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=1000))]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Run two seeds at a smaller size and length: a preview, not a result
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    #[command(flatten)]
    keep: KeepArg,
    #[command(flatten)]
    results: ResultsArg,
}

/// Runs the command.
pub fn run(args: &OpsIsolationArgs) -> anyhow::Result<ExitCode> {
    let seeds = if args.quick { 2 } else { args.seeds };
    let setup = Setup::new(seeds, args.seed, args.quick)?;
    args.results.check()?;
    let cells = setup.cells();
    let identity = |cell: &Cell| json!(["ops-isolation", cell]);
    let results = args
        .keep
        .run("reproduce ops-isolation", &cells, identity, |cell| {
            cell.run().with_context(|| format!("cell {}", cell.name()))
        })?;
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, &results);
    args.results.hand_over(&outcome, &document(&outcome))
}
