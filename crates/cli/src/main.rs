//! The `terrace` binary: arguments in, output out. No logic lives here.
//!
//! Data goes to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod check_cmd;
mod config_cmd;
mod demo_cmd;
mod device_cmd;
mod export_cmd;
mod filter_cmd;
mod inject_cmd;
mod jobs;
mod live;
mod live_table;
mod move_cmd;
mod progress;
mod record;
mod reproduce_cmd;
mod serve_cmd;
mod sim_cmd;
mod tier_cmd;
mod trace_cmd;
mod trace_info;
mod trace_load_table;
mod trace_record;
mod trace_sample;
mod trace_table;
mod volume_cmd;
mod why_cmd;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Storage tiering: decide where data lives, in simulation and live.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See the whole live manager at work: emulated tiers, real NBD clients, a few minutes
    Demo(demo_cmd::Demo),
    /// Run the live manager: controller, agent and data path
    Serve(serve_cmd::Serve),
    /// Run only an agent, for a controller on another host
    Agent(serve_cmd::Agent),
    /// Look at traces of I/O requests and convert them
    #[command(subcommand)]
    Trace(trace_cmd::TraceCommand),
    /// Simulate an array under tiering strategies
    #[command(subcommand)]
    Sim(sim_cmd::SimCommand),
    /// Repeat published experiments and hold the results against what was claimed
    #[command(subcommand)]
    Reproduce(reproduce_cmd::ReproduceCommand),
    /// Say why a volume is where it is, from the record of a run
    Why(why_cmd::Which),
    /// Say why a volume is not on a tier, from the record of a run
    WhyNot {
        #[command(flatten)]
        which: why_cmd::Which,
        /// The tier
        #[arg(long)]
        tier: String,
    },
    /// Serve, move, measure and look after the volumes of an array
    #[command(subcommand)]
    Volume(volume_cmd::VolumeCommand),
    /// Look at the tiers of an array and add devices
    #[command(subcommand)]
    Tier(tier_cmd::TierCommand),
    /// Fit devices of scenarios to measurements
    #[command(subcommand)]
    Device(device_cmd::DeviceCommand),
    /// Measure, limit, delay or record an export of any NBD server
    Filter(Box<filter_cmd::FilterArgs>),
    /// Check scenario files and print their schema
    #[command(subcommand)]
    Config(config_cmd::ConfigCommand),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Demo(what) => demo_cmd::run(&what),
        Command::Serve(what) => serve_cmd::serve(&what),
        Command::Agent(what) => serve_cmd::agent(what),
        Command::Trace(command) => trace_cmd::run(command),
        Command::Sim(command) => sim_cmd::run(command),
        Command::Reproduce(command) => reproduce_cmd::run(command),
        Command::Why(which) => why_cmd::why(&which),
        Command::WhyNot { which, tier } => why_cmd::why_not(&which, &tier),
        Command::Volume(command) => volume_cmd::run(command),
        Command::Tier(command) => tier_cmd::run(command),
        Command::Device(command) => device_cmd::run(command),
        Command::Filter(args) => filter_cmd::run(*args),
        Command::Config(command) => config_cmd::run(command),
    };
    match done {
        Ok(code) => code,
        // Whoever reads our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
