//! `terrace sim ssd`: tenants on one simulated SSD.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use flash::drive::{Drive, DriveConfig, DriveReport, PRESETS, preset};
use flash::ftl::{Sharing, Streams, Victim};
use flash::host::{
    Control, HostConfig, Outcome, Service, Split, objectives, place_tenants, run as run_tenants,
    shares_for_objectives,
};
use flash::model::sizing::Feasibility;
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::live::message;
use crate::ssd_table;
use crate::ssd_tenants;
use crate::table_files::ParquetArg;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Tenants: NAME:KEY=VALUE,…
  load=     random-write-32k, random-read-4k, random-mix-8k, zipf, zipf-16k, sequential,
            sequential-read-64k, fileserver, financial, msn, exchange, proj (stand-ins for the
            traces with these names), or trace=FILE instead of load=
  size=     share of the drive (20%) or size (\"1 GiB\") [default: an equal part of the rest]
  weight=   weight of the objective and of the service [default: 1]
  depth=    requests outstanding [default: 16]; a trace keeps its times unless depth is given
  rate=     open-loop arrival rate, requests per second; instead of depth
  iops=     objective: requests per second;  bandwidth=\"20 MiB/s\": objective in bytes
  ops=      own spare space as a share of the flash; tenants without ops= divide the rest equally
            (only with --sharing isolated)
  share=    share of device time under --service device-time [default: the weight;
            1 with --split model or --control; with iops= or bandwidth= and without --split model,
            the need according to the cost model]
  from=, to=  arrival and departure in simulated time, warm-up included (30s). An arriving tenant
            has aged data, unless --clean; with --sharing isolated its blocks are unassigned before

Examples:
  terrace sim ssd --preset paper4 --size \"512 MiB\" --tenants a:weight=1,load=random-write-4k b:weight=5,load=random-write-4k
  terrace sim ssd --preset paper4 --sharing isolated --service device-time --split model --tags 1 --tenants \\
      a:weight=1,load=random-write-4k b:weight=2,load=random-write-4k c:weight=5,load=random-write-4k
  terrace sim ssd --preset tlc-nvme --size \"16 GiB\" --duration 20s --tenants db:load=zipf,rate=40000 log:load=sequential,depth=4
  terrace sim ssd --preset paper4 --ops 7% --sharing isolated --service device-time --tags 1 --control --warmup 20m --duration 20m \
      --tenants a:iops=40,load=random-write-4k b:iops=100,load=random-write-4k";

/// What to run.
#[derive(Debug, Args)]
pub struct SsdArgs {
    /// The drive: paper4, disksim, tlc-nvme or qlc-nvme
    #[arg(long, value_name = "NAME", default_value = "paper4")]
    preset: String,
    /// Capacity that the host sees; small drives reach their steady state sooner [default: 1 GiB; 16 GiB for the NVMe presets]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// The tenants, as described below
    #[arg(long, value_name = "TENANT", num_args = 1.., required = true)]
    tenants: Vec<String>,
    /// How tenants share erase blocks
    #[arg(long, value_enum, default_value = "one-pool")]
    sharing: SharingArg,
    /// Order of the requests of tenants
    #[arg(long, value_enum, default_value = "fcfs")]
    service: ServiceArg,
    /// Spare share of all flash (over-provisioned space) instead of the preset's, such as 7%
    #[arg(long, value_name = "SHARE", value_parser = ssd_tenants::share)]
    ops: Option<f64>,
    /// How spare space is split between isolated tenants: the same for all, or by the cost model so that rates follow weights
    #[arg(long, value_enum, default_value = "equal")]
    split: SplitArg,
    /// Adapt spare space to the objectives during the run (isolated only)
    #[arg(long)]
    control: bool,
    /// Interval of the controller
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "control")]
    interval: Nanos,
    /// Requests that the drive has at a time and may reorder (NCQ): reads go first; 1 keeps the host's order [default: the preset's, 32
    /// at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    tags: Option<u32>,
    /// Size of the write buffer instead of the preset's; "0 B" for none
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Bytes>,
    /// Channels instead of the preset's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    channels: Option<u32>,
    /// Simulate one of N parts of a large drive; the rest is assumed to behave like it [default: the preset's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    scale: Option<u32>,
    /// Choice of victims: greedy, cost-benefit, or a number of candidates drawn at random
    #[arg(long, value_name = "METHOD", value_parser = victim)]
    victim: Option<Victim>,
    /// Separation of data in a pool
    #[arg(long, value_enum)]
    streams: Option<StreamsArg>,
    /// Begin with an empty drive; otherwise it is filled, and overwritten at random until it is steady
    #[arg(long)]
    clean: bool,
    /// Simulated warm-up, which does not count
    #[arg(long, value_name = "TIME", default_value = "10s")]
    warmup: Nanos,
    /// Simulated time that counts
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Nanos,
    /// Seed of the loads, of ageing and of victims drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Form,
    #[command(flatten)]
    parquet: ParquetArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SharingArg {
    /// One pool, as in ordinary drives
    OnePool,
    /// Every tenant owns its erase blocks and spare space
    Isolated,
    /// Open blocks of its own for each tenant, collected pages together
    HandlesInitially,
    /// Open blocks of its own for each tenant, collected pages too
    HandlesPersistently,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ServiceArg {
    /// First come, first served
    Fcfs,
    /// Bytes by weight, as far as the host can choose (cgroup-like)
    HostWeights,
    /// Device time by share, collection charged to its owner
    DeviceTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitArg {
    Equal,
    Model,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StreamsArg {
    /// One open block for all
    One,
    /// The host's writes apart from collected pages
    HostAndCollected,
    /// And short-lived pages apart from long-lived ones
    HotAndCold,
}

fn victim(text: &str) -> Result<Victim, String> {
    match text {
        "greedy" => Ok(Victim::Greedy),
        "cost-benefit" => Ok(Victim::CostBenefit),
        _ => match text.parse::<u8>() {
            Ok(d) if d > 0 => Ok(Victim::Choices(d)),
            _ => Err("give greedy, cost-benefit or a number from 1 to 255".into()),
        },
    }
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Results<'a> {
    schema: &'static str,
    version: &'static str,
    preset: &'a str,
    capacity: Bytes,
    drive: &'a DriveConfig,
    service: Service,
    tags: u32,
    seed: u64,
    clean: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    feasibility: Option<&'a Feasibility>,
    report: &'a DriveReport,
    /// Years until the cells are worn out, were this all that ever happens.
    years: Option<f64>,
    outcome: &'a Outcome,
}

/// Runs `terrace sim ssd`.
pub fn run(args: &SsdArgs) -> anyhow::Result<ExitCode> {
    let config = drive_config(args)?;
    ensure!(args.duration.0 > 0, "--duration must be above 0");
    ensure!(
        !args.control || args.interval.0 >= 1_000_000,
        "--interval: give 1 ms or more"
    );
    let size = args.size.unwrap_or(default_size(&args.preset));
    let (mut plans, shares_given) = ssd_tenants::plans(
        &args.tenants,
        size,
        args.split == SplitArg::Model || args.control,
    )?;
    let end = args.warmup.0.saturating_add(args.duration.0);
    if let Some(late) = plans.iter().find(|p| p.comes.0 >= end) {
        bail!(
            "tenant \"{}\": from={} is after the end of the run (--warmup and --duration)",
            late.name,
            late.comes
        );
    }
    if args.control && config.ftl.sharing != Sharing::Isolated {
        bail!(
            "--control moves spare space between tenants that own theirs: it needs --sharing isolated"
        );
    }
    let given = plans.iter().any(|p| p.spare_share > 0.0);
    if given && (config.ftl.sharing != Sharing::Isolated || args.split == SplitArg::Model) {
        bail!(
            "ops= is spare space of a tenant's own: it needs --sharing isolated, and not --split model"
        );
    }
    let split = match (given, args.split) {
        (true, _) => Split::Given,
        (false, SplitArg::Equal) => Split::Equal,
        (false, SplitArg::Model) => Split::ByModel,
    };
    let feasibility = objectives(&config, &plans, config.ftl.spare_share);
    if let Some(needs) = &feasibility
        && matches!(args.service, ServiceArg::DeviceTime)
        && args.split == SplitArg::Equal
    {
        shares_for_objectives(&mut plans, needs, &shares_given);
    }
    let mut drive = Drive::new(config, size).context("the drive")?;
    place_tenants(&mut drive, &mut plans, split).context("the tenants")?;
    if !args.clean {
        drive.age(3.0);
    }
    let tags = drive.config().tags;
    if args.control && (!matches!(args.service, ServiceArg::DeviceTime) || tags > 1) {
        message(
            "note: spare space alone has little effect with this service; use --control with --service device-time --tags 1",
        );
    }
    let host = HostConfig {
        service: match args.service {
            ServiceArg::Fcfs => Service::Fcfs,
            ServiceArg::HostWeights => Service::HostWeights,
            ServiceArg::DeviceTime => Service::DeviceTime,
        },
        tags,
        warmup: args.warmup,
        duration: args.duration,
        control: args.control.then(|| Control {
            interval: args.interval,
            ..Control::default()
        }),
        seed: args.seed,
        ..HostConfig::default()
    };
    let outcome = run_tenants(&mut drive, &plans, &host).context("the run")?;
    let report = drive.report();
    let years = drive.years(report.erases, outcome.seconds);
    args.parquet
        .write(|| ssd_table::tables(&outcome, &report, years))?;
    let mut out = io::stdout().lock();
    match args.output {
        Form::Table => {
            let text = ssd_table::text(&drive, &outcome, &report, years, feasibility.as_ref());
            write!(out, "{text}")?;
        }
        Form::Json => {
            let results = Results {
                schema: ssd_table::SCHEMA,
                version: env!("CARGO_PKG_VERSION"),
                preset: &args.preset,
                capacity: size,
                drive: drive.config(),
                service: host.service,
                tags,
                seed: args.seed,
                clean: args.clean,
                feasibility: feasibility.as_ref(),
                report: &report,
                years,
                outcome: &outcome,
            };
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The NVMe presets' erase blocks span so many units that a small drive would have too few of them.
fn default_size(preset: &str) -> Bytes {
    match preset.ends_with("-nvme") {
        true => Bytes(16 << 30),
        false => Bytes(1 << 30),
    }
}

fn drive_config(args: &SsdArgs) -> anyhow::Result<DriveConfig> {
    let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
    let mut config = preset(&args.preset).with_context(|| {
        format!(
            "--preset {}: unknown preset; known presets: {}",
            args.preset,
            names.join(", ")
        )
    })?;
    config.ftl.sharing = match args.sharing {
        SharingArg::OnePool => Sharing::OnePool,
        SharingArg::Isolated => Sharing::Isolated,
        SharingArg::HandlesInitially => Sharing::HandlesInitially,
        SharingArg::HandlesPersistently => Sharing::HandlesPersistently,
    };
    config.ftl.handles = args.tenants.len().clamp(1, 64) as u32;
    if let Some(ops) = args.ops {
        ensure!(
            (0.001..=0.95).contains(&ops),
            "--ops: give 0.1% to 95%, {:.2}% was given",
            100.0 * ops
        );
        config.ftl.spare_share = ops;
    }
    if let Some(victim) = args.victim {
        config.ftl.victim = victim;
    }
    match args.streams {
        None => {}
        Some(StreamsArg::One) => config.ftl.streams = Streams::One,
        Some(StreamsArg::HostAndCollected) => config.ftl.streams = Streams::HostAndCollected,
        Some(StreamsArg::HotAndCold) => config.ftl.streams = Streams::HotAndCold,
    }
    config.ftl = config.ftl.with_reserve_for_streams();
    config.ftl.seed = args.seed;
    if let Some(buffer) = args.buffer {
        config.buffer_pages = u32::try_from(buffer.0 / config.page.0).unwrap_or(u32::MAX);
    }
    config.tags = args.tags.unwrap_or(config.tags.min(32));
    if let Some(scale) = args.scale {
        config.scale = scale;
    }
    if let Some(channels) = args.channels {
        config.channels = channels;
    }
    Ok(config)
}
