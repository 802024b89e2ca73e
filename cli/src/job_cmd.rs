//! `terrace job …`: jobs of a controller, which carry out moves.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use client::Client;
use manager::view::JobView;
use report::live;
use serde::Serialize;

use crate::asking::ControllerArgs;
use crate::job_watch::{JobsSeen, Watch};
use crate::live::{Form, Go, Stop, message};
use crate::past_cmd::parse_limit;
use crate::progress::JobBars;

/// `terrace job …`
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, newest first
    List {
        /// Number of entries, newest first
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_limit)]
        limit: usize,
        #[command(flatten)]
        asking: ControllerArgs,
    },
    /// Watch one job or all running jobs until they end; fails if a job failed
    Watch(WatchArgs),
    /// Cancel a job; extents already moved stay on the new tier
    Cancel {
        #[command(flatten)]
        which: JobSelector,
        #[command(flatten)]
        asking: ControllerArgs,
    },
}

/// Which job.
#[derive(Debug, Args)]
pub struct JobSelector {
    /// Number of the job
    #[arg(value_name = "JOB")]
    job: u32,
    /// The host of the job; optional with one host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// `terrace job watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Number of the job; all running jobs by default
    #[arg(value_name = "JOB")]
    job: Option<u32>,
    /// Only jobs of this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    asking: ControllerArgs,
}

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<JobView>,
}

/// Runs `terrace job …`.
pub fn run(command: JobCommand) -> anyhow::Result<ExitCode> {
    match command {
        JobCommand::List { limit, asking } => {
            let jobs = asking.client()?.jobs(Some(limit))?;
            let text = |j: &Jobs| live::jobs(&j.jobs);
            let output = &asking.output;
            output.print("terrace.job.list/1", &Jobs { jobs }, text)?;
        }
        JobCommand::Watch(args) => return watch(&args),
        JobCommand::Cancel { which, asking } => {
            let done = asking.client()?.cancel(which.job, which.host.as_deref())?;
            asking.done(&done)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Interval of requests for the jobs.
const LOOK: Duration = Duration::from_millis(500);
/// Time between two lines about a running job.
const SAY: Duration = Duration::from_secs(5);
/// Number of requested jobs: the limit of the controller. Older jobs have ended.
const JOBS_MAX: usize = 1000;

fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let mut client = args.asking.client()?;
    let look = |client: &mut Client| client.jobs(Some(JOBS_MAX));
    let mut jobs = look(&mut client)?;
    let mut watch = Watch::new(args.job, args.host.as_deref(), &jobs)?;
    let stop = Stop::listen()?;
    let form = args.asking.output.form();
    let bars = form == Form::Table && io::stderr().is_terminal();
    let mut bars = bars.then(JobBars::new);
    let mut said: Option<Instant> = None;
    loop {
        let seen = watch.take(&jobs)?;
        let due = said.is_none_or(|at| at.elapsed() >= SAY);
        if let Some(bars) = &mut bars {
            bars.update(&seen.going);
        }
        for job in ended_and(&seen, due && bars.is_none()) {
            // Bars are drawn below what is printed.
            let print = || {
                args.asking
                    .output
                    .print_next("terrace.job/1", job, |j| live::job_line(j) + "\n")
            };
            match &bars {
                Some(bars) => bars.suspend(print)?,
                None => print()?,
            }
        }
        if due {
            said = Some(Instant::now());
        }
        if seen.going.is_empty() {
            break;
        }
        if stop.sleep(LOOK) == Go::Stop {
            drop(bars);
            message("stopped watching: the jobs continue");
            return Ok(ExitCode::FAILURE);
        }
        jobs = look(&mut client)?;
    }
    drop(bars);
    if watch.seen() == 0 {
        message("no job is running");
    }
    io::stdout().flush()?;
    match watch.failed() {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

/// Returns the jobs to print: those that have ended, and with `going` also the running ones.
fn ended_and<'a>(seen: &JobsSeen<'a>, going: bool) -> impl Iterator<Item = &'a JobView> {
    let going = if going { seen.going.clone() } else { vec![] };
    seen.ended.clone().into_iter().chain(going)
}
