//! `terrace reproduce summary`.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reproduce::summary::{OutcomeRead, Summary};

use crate::ResultsArg;

/// Arguments of `terrace reproduce summary`.
#[derive(Debug, Args)]
pub struct SummaryArgs {
    /// Outcomes of experiments of this program, as printed with -o json
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    results: ResultsArg,
}

/// Runs the command.
pub fn run(args: &SummaryArgs) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| -> anyhow::Result<OutcomeRead> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let json = serde_json::from_reader(BufReader::new(file))
            .with_context(|| format!("{}: not JSON", path.display()))?;
        OutcomeRead::of(json).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
    };
    args.results.check()?;
    let outcomes: Vec<OutcomeRead> = args.files.iter().map(read).collect::<Result<_, _>>()?;
    let summary = Summary::new(&outcomes)
        .map_err(|(i, why)| anyhow::anyhow!("{}: {why}", args.files[i].display()))?;
    args.results.hand_over(&summary, &summary.document())
}
