//! `terrace reproduce dual-period`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use reproduce::dual_period::{
    Conditions, Job, Outcome, QueueingJob, QueueingSetup, Setup, document,
};
use serde_json::json;

use crate::{KeepArg, ResultsArg};

/// Arguments of `terrace reproduce dual-period`.
#[derive(Debug, Args)]
pub struct DualPeriodArgs {
    /// Number of seeds, at least 2; each seed generates its own loads
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=1000))]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Length of the load in days; the paper uses a month
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=400))]
    days: u32,
    /// Run only two seeds, six days and ten conditions: a preview, not a result
    #[arg(long, conflicts_with_all = ["seeds", "days"])]
    quick: bool,
    /// Also run named cells in the queueing simulation, with devices, queues and copies (about 15 minutes on two cores)
    #[arg(long)]
    queueing: bool,
    /// Length of the queueing runs in days; the first two are not measured
    #[arg(long, value_name = "N", default_value_t = 4, requires = "queueing")]
    queueing_days: u32,
    #[command(flatten)]
    keep: KeepArg,
    #[command(flatten)]
    results: ResultsArg,
}

/// Runs the command.
pub fn run(args: &DualPeriodArgs) -> anyhow::Result<ExitCode> {
    let (seeds, days, conditions) = match args.quick {
        true => (2, 6, Conditions::Some),
        false => (args.seeds, args.days, Conditions::All),
    };
    let setup = Setup::new(seeds, args.seed, days, conditions)?;
    args.results.check()?;
    let started = Instant::now();
    let all = setup.jobs();
    let cells = args
        .queueing
        .then(|| QueueingSetup::new(args.queueing_days, args.seed))
        .transpose()?;
    let title = "reproduce dual-period";
    let identity = |job: &Job| json!([title, job]);
    let results = args.keep.run(title, &all, identity, |job| Ok(job.run()))?;
    let cells = cells.map(|setup| {
        let title = "reproduce dual-period --queueing";
        let identity = |job: &QueueingJob| json!([title, job]);
        let jobs = setup.jobs();
        let cells = args.keep.run(title, &jobs, identity, |job| Ok(job.run()))?;
        anyhow::Ok((setup, cells))
    });
    let cells = cells.transpose()?;
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, results, cells);
    let _ = writeln!(
        io::stderr(),
        "{} loads, {:.1} s",
        all.len(),
        started.elapsed().as_secs_f64()
    );
    args.results.hand_over(&outcome, &document(&outcome))
}
