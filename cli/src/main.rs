//! The `terrace` binary: arguments in, output out. No logic lives here.
//!
//! Data goes to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod array_cmd;
mod asking;
mod bench_cmd;
mod bench_moves;
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
mod file_kind;
mod filter_cmd;
mod heat_cmd;
mod host_cmd;
mod import_cmd;
mod init_cmd;
mod inject_cmd;
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
mod sweep_ray;
mod sweep_run;
mod table_files;
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
    /// Demonstrate the controller in a few minutes, with emulated tiers and real NBD clients
    Demo(demo_cmd::Demo),
    /// Show which moves Terrace would recommend on this host of virtual machines, without changing anything
    Trial(trial_cmd::Trial),
    /// Write a configuration for this host of virtual machines, which only recommends moves
    Init(init_cmd::Init),
    /// Run the controller, with agent and data path
    Serve(serve_cmd::Serve),
    /// Run only an agent, for a controller on another host
    Agent(serve_cmd::Agent),
    /// Show the state of a controller: hosts, tiers, volumes and problems
    Status(asking::ControllerArgs),
    /// Watch the load and latency of tiers and volumes
    Top(top_cmd::TopArgs),
    /// Show a plan of a controller: its moves, their reasons and their state
    Plan(plan_cmd::PlanArgs),
    /// Show the changes of a plan, or the differences between two plans
    Diff(plan_cmd::DiffArgs),
    /// Approve moves of a plan
    Apply(plan_cmd::ApplyArgs),
    /// Reject moves of a plan
    Reject(plan_cmd::RejectArgs),
    /// Pause a controller: it starts no new moves
    Pause(asking::ControllerArgs),
    /// Resume a paused controller
    Resume(asking::ControllerArgs),
    /// Make a controller reload its configuration without a restart
    Reload(asking::ControllerArgs),
    /// Show or set which moves a controller carries out without approval
    Mode(status_cmd::ModeArgs),
    /// List the events that a controller recorded
    Events(past_cmd::EventsArgs),
    /// Compare the predicted and the observed effect of past moves
    Outcomes(past_cmd::OutcomesArgs),
    /// List, watch and cancel the moves in progress
    #[command(subcommand)]
    Job(job_cmd::JobCommand),
    /// Export the data of a controller as files
    #[command(subcommand)]
    Export(facts_cmd::ExportCommand),
    /// Inspect, convert and sample traces of I/O requests
    #[command(subcommand)]
    Trace(trace_cmd::TraceCommand),
    /// Simulate an array under tiering strategies
    #[command(subcommand)]
    Sim(sim_cmd::SimCommand),
    /// Compare strategies over many scenarios
    #[command(subcommand)]
    Bench(bench_cmd::BenchCommand),
    /// Repeat published experiments and check their claims (runs the program terrace-reproduce)
    #[command(disable_help_flag = true)]
    Reproduce(reproduce_cmd::ReproduceArgs),
    /// Recommend the tier for a new volume
    Place(place_cmd::PlaceArgs),
    /// Explain why a volume is on its tier, from a controller or from the record of a run
    ///
    /// With --run, --strategy or --at, the command reads the record of a run. With --controller, it asks that controller.
    /// Without these options it asks the controller in TERRACE_CONTROLLER or at the usual socket, and then reads the
    /// record if that controller has no answer. The output names its source.
    Why(why_cmd::WhyArgs),
    /// Explain why a volume is not on a tier, from a controller or from the record of a run
    ///
    /// With --run, --strategy or --at, the command reads the record of a run. With --controller, it asks that controller.
    /// Without these options it asks the controller in TERRACE_CONTROLLER or at the usual socket, and then reads the
    /// record if that controller has no answer. The output names its source.
    WhyNot {
        #[command(flatten)]
        which: why_cmd::WhyArgs,
        /// The tier
        #[arg(long)]
        tier: String,
    },
    /// Create, serve, move and measure volumes of an array (`pin`, `throttle` and `history` need a controller)
    #[command(subcommand)]
    Volume(volume_cmd::VolumeCommand),
    /// List and change the tiers of an array (`cordon`, `drain` and `open` need a controller)
    #[command(subcommand)]
    Tier(tier_cmd::TierCommand),
    /// Copy, back up and restore the map of an array
    #[command(subcommand)]
    Array(array_cmd::ArrayCommand),
    /// Remove, replace or accept devices of an array; calibrate device models
    #[command(subcommand)]
    Device(device_cmd::DeviceCommand),
    /// Test the QEMU of a host of virtual machines
    #[command(subcommand)]
    Host(host_cmd::HostCommand),
    /// Measure, limit, delay or record an export of any NBD server
    Filter(Box<filter_cmd::FilterArgs>),
    /// Lend memory or flash of this host to the cache of another host
    #[command(after_help = cache_node_cmd::EXAMPLES)]
    CacheNode(cache_node_cmd::CacheNodeArgs),
    /// Check scenarios and live configurations, show effective values, print schemas
    #[command(subcommand)]
    Config(config_cmd::ConfigCommand),
    /// Print a completion script for a shell
    Completion(shell_cmd::Completion),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(shell_cmd::Pages),
}

fn main() -> ExitCode {
    let args = Args::try_parse().unwrap_or_else(|error| {
        let message = error.render().to_string();
        match runner::with_expected_number(&message, std::error::Error::source(&error)) {
            Some(message) => {
                eprint!("{message}");
                std::process::exit(error.exit_code())
            }
            None => error.exit(),
        }
    });
    runner::end(run(args.command))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Demo(what) => return demo_cmd::run(&what),
        Command::Trial(what) => return trial_cmd::run(&what),
        Command::Init(what) => return init_cmd::run(&what),
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
        Command::Host(command) => return host_cmd::run(command),
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
