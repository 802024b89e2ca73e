//! The `terrace` binary: arguments in, output out. No logic lives here.
//!
//! Data goes to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod array_cmd;
mod asking;
mod bench_cmd;
mod bench_run;
mod cache_checks;
mod cache_cmd;
mod cache_node_cmd;
mod cache_read;
mod cache_sizes;
mod cache_table;
mod check_cmd;
mod config_cmd;
mod counting;
mod demo_cmd;
mod device_cmd;
mod device_live;
mod export_cmd;
mod facts_cmd;
mod filter_cmd;
mod heat_cmd;
mod import_cmd;
mod inject_cmd;
mod inputs;
mod job_cmd;
mod job_watch;
mod live;
mod live_table;
mod logging;
mod mirror_cmd;
mod move_cmd;
mod mrc_cmd;
mod notify;
mod past_cmd;
mod place_cmd;
mod plan_cmd;
mod progress;
mod qemu_img;
mod record;
mod reproduce_cmd;
mod reuse_cmd;
mod save_cmd;
mod serve_cmd;
mod shell_cmd;
mod sim_cmd;
mod sim_lists;
mod sim_plan;
mod sim_replay;
mod snapshot_cmd;
mod ssd_cmd;
mod ssd_table;
mod ssd_tenants;
mod status_cmd;
mod sweep_bar;
mod sweep_cmd;
mod sweep_run;
mod take_over;
mod tier_cmd;
mod tier_describe;
mod top_cmd;
mod trace_cmd;
mod trace_info;
mod trace_load_table;
mod trace_record;
mod trace_sample;
mod trace_table;
mod trial_cmd;
mod volume_asked;
mod volume_cmd;
mod volume_listed;
mod why_cmd;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Storage tiering: decide where data lives, in simulation and live.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, about, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See the whole live manager at work: emulated tiers, real NBD clients, a few minutes
    Demo(demo_cmd::Demo),
    /// See what would be moved on a host of virtual machines under libvirt, without touching anything
    Trial(trial_cmd::Trial),
    /// Run the live manager: controller, agent and data path
    Serve(serve_cmd::Serve),
    /// Run only an agent, for a controller on another host
    Agent(serve_cmd::Agent),
    /// ControlRequest a controller how everything is
    Status(asking::Asking),
    /// Watch tiers and volumes of a controller at work
    Top(top_cmd::TopArgs),
    /// ControlRequest a controller for a plan: what moves, what for, and what it waits for
    Plan(plan_cmd::PlanArgs),
    /// Say what a plan of a controller changes, or in what two of them differ
    Diff(plan_cmd::DiffArgs),
    /// Have moves of a plan carried out
    Apply(plan_cmd::ApplyArgs),
    /// Have moves of a plan not carried out
    Reject(plan_cmd::RejectArgs),
    /// Have a controller begin nothing new
    Pause(asking::Asking),
    /// Have a paused controller go on
    Resume(asking::Asking),
    /// Have a controller read its configuration anew, without a restart
    Reload(asking::Asking),
    /// Show or set how far a controller goes by itself
    Mode(status_cmd::ModeArgs),
    /// ControlRequest a controller what happened
    Events(past_cmd::EventsArgs),
    /// ControlRequest a controller what was predicted of moves and what came of them
    Outcomes(past_cmd::OutcomesArgs),
    /// List, watch and give up the moves that a controller carries out
    #[command(subcommand)]
    Job(job_cmd::JobCommand),
    /// Print what a controller knows, as files
    #[command(subcommand)]
    Export(facts_cmd::ExportCommand),
    /// Look at traces of I/O requests and convert them
    #[command(subcommand)]
    Trace(trace_cmd::TraceCommand),
    /// Simulate an array under tiering strategies
    #[command(subcommand)]
    Sim(sim_cmd::SimCommand),
    /// Hold strategies against one another on many scenarios
    #[command(subcommand)]
    Bench(bench_cmd::BenchCommand),
    /// Repeat published experiments and hold the results against what was claimed (by the program terrace-reproduce)
    #[command(disable_help_flag = true)]
    Reproduce(reproduce_cmd::ReproduceArgs),
    /// ControlRequest a controller on which tier a new volume would do best
    Place(place_cmd::PlaceArgs),
    /// Say why a volume is where it is, asking a controller or reading the record of a run
    ///
    /// With --run, --strategy or --at, the record of a run is read; with --controller, a controller is asked. Otherwise a
    /// controller is asked that TERRACE_CONTROLLER names or that has its socket in the usual place, and the record where that
    /// one has no answer. What answered is said.
    Why(why_cmd::Which),
    /// Say why a volume is not on a tier, asking a controller or reading the record of a run
    ///
    /// With --run, --strategy or --at, the record of a run is read; with --controller, a controller is asked. Otherwise a
    /// controller is asked that TERRACE_CONTROLLER names or that has its socket in the usual place, and the record where that
    /// one has no answer. What answered is said.
    WhyNot {
        #[command(flatten)]
        which: why_cmd::Which,
        /// The tier
        #[arg(long)]
        tier: String,
    },
    /// Serve, move, measure and look after the volumes of an array; `pin` and `history` ask a controller, `create` one for a tier
    #[command(subcommand)]
    Volume(volume_cmd::VolumeCommand),
    /// Look at the tiers of an array and add devices; `cordon`, `drain` and `open` ask a controller
    #[command(subcommand)]
    Tier(tier_cmd::TierCommand),
    /// Look after the map of an array: its copies, backups, bringing it back
    #[command(subcommand)]
    Array(array_cmd::ArrayCommand),
    /// Remove, replace or take back devices of an array; fit devices of scenarios to measurements
    #[command(subcommand)]
    Device(device_cmd::DeviceCommand),
    /// Measure, limit, delay or record an export of any NBD server
    Filter(Box<filter_cmd::FilterArgs>),
    /// Lend memory or flash of this host to the cache of another one
    #[command(after_help = cache_node_cmd::EXAMPLES)]
    CacheNode(cache_node_cmd::CacheNodeArgs),
    /// Check scenarios and live configurations, show what they come to, print their schemas
    #[command(subcommand)]
    Config(config_cmd::ConfigCommand),
    /// Print a script that completes commands and options of terrace in a shell
    Completion(shell_cmd::Completion),
    /// Write a manual page for each command into a directory
    #[command(hide = true)]
    Man(shell_cmd::Pages),
}

fn main() -> ExitCode {
    runner::end(run(Args::parse().command))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Demo(what) => return demo_cmd::run(&what),
        Command::Trial(what) => return trial_cmd::run(&what),
        Command::Serve(what) => return serve_cmd::serve(&what),
        Command::Agent(what) => return serve_cmd::agent(what),
        Command::Status(asking) => status_cmd::status(&asking),
        Command::Top(args) => top_cmd::run(&args),
        Command::Plan(args) => plan_cmd::plan(&args),
        Command::Diff(args) => plan_cmd::diff(&args),
        Command::Apply(args) => return plan_cmd::apply(&args),
        Command::Reject(args) => plan_cmd::reject(&args),
        Command::Pause(asking) => status_cmd::pause(&asking),
        Command::Resume(asking) => status_cmd::resume(&asking),
        Command::Reload(asking) => status_cmd::reload(&asking),
        Command::Mode(args) => status_cmd::mode(&args),
        Command::Events(args) => past_cmd::events(&args),
        Command::Outcomes(args) => past_cmd::outcomes(&args),
        Command::Job(command) => return job_cmd::run(command),
        Command::Export(command) => facts_cmd::run(&command),
        Command::Trace(command) => return trace_cmd::run(command),
        Command::Sim(command) => return sim_cmd::run(command),
        Command::Bench(command) => return bench_cmd::run(command),
        Command::Reproduce(args) => return reproduce_cmd::run(&args),
        Command::Place(args) => place_cmd::place(&args),
        Command::Why(which) => return why_cmd::why(&which),
        Command::WhyNot { which, tier } => return why_cmd::why_not(&which, &tier),
        Command::Volume(command) => return volume_cmd::run(command),
        Command::Tier(command) => return tier_cmd::run(command),
        Command::Array(command) => return array_cmd::run(command),
        Command::Device(command) => return device_cmd::run(command),
        Command::Filter(args) => return filter_cmd::run(*args),
        Command::CacheNode(args) => return cache_node_cmd::run(args),
        Command::Config(command) => return config_cmd::run(command),
        Command::Completion(what) => shell_cmd::completion(&what, Args::command()),
        Command::Man(what) => shell_cmd::pages(&what, Args::command()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
